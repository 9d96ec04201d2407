// FLAGS: -std=gnu89
// COUNT entries: {event: entry, function: add} = 2
// COUNT exits: {event: exit, function: implicit} = 3
// COUNT calls: {event: call, callee: implicit} = 3
// COUNT bytes: {event: alloc_bytes} = 10
// COUNT writes: {event: write, variable: common} = 4
// COUNT parameters: {event: write, variable: b, function: add} = 2
char *malloc();
int common;
int add(a, b) int a; register b; { b++; return a + b; }
main()
{
    int i;
    char *p = malloc((unsigned long)10);
    for (common = 0; common < 3; common++) implicit(common);
    i = add(1, 2) + add(3, 4);
    *p = i;
    printf("%d\n", *p + i);
    return 0;
}
implicit(x) { return x; }
