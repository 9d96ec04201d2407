// COUNT writes: {event: write, variable: g} = 14
// COUNT branches: {event: branch, function: computed} = 1
// COUNT loops: {event: loop, function: ranges} = 6
// COUNT entries: {event: entry, function: local_labels} = 1
// COUNT exits: {event: exit, function: tail} = 2
// COUNT tails: {event: call, callee: leaf} = 1
// COUNT nested_values: {event: write, variable: v, function: expressions} = 3
// COUNT empties: {event: entry, function: empty} = 2
// COUNT aliased: {event: call, callee: renamed} = 1
#include <stdio.h>
int g;
static void computed(void)
{
    static void *targets[] = {&&a, &&b};
    int i = 0;
    goto *targets[i];
a:  g++;
    i++;
    goto *targets[i];
b:  g++;
    if (i) goto end;
end:;
}
static int ranges(int x)
{
    switch (x) {
    case 1: g++; __attribute__((fallthrough));
    case 2 ... 4: g = 2; break;
    default: ;
        for (int i = 0; i < 2; i++) g--;
    }
    return g;
}
static int local_labels(void) { __label__ out; goto out; out: return 3; }
static int leaf(int n) { return n + 1; }
static int tail(int n) { if (n) __attribute__((musttail)) return leaf(n); return 0; }
static int expressions(void) { int v; v = ({ int w = ({ v = 1; v; }); w + (v += 2); }); return v; }
static void empty(void) {}
extern int renamed(const char *) __asm__("puts");
static void cleaner(int *p) { g += *p; }
static void cleaned(void) { __attribute__((cleanup(cleaner))) int x = 2; g++; }
int main(void)
{
    computed(); ranges(1); ranges(3); ranges(9); ranges(9); ranges(10);
    empty(), empty();
    renamed("renamed");
    cleaned();
    __extension__ g++;
    printf("%d %d %d %d %d\n", g, local_labels(), tail(0), tail(3), expressions());
    return 0;
}
