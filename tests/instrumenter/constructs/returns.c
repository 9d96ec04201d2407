// COUNT entries: {event: entry, function: find} = 3
// COUNT exits: {event: exit, function: find} = 3
// COUNT void_exits: {event: exit, function: maybe} = 3
// COUNT falls_off: {event: exit, function: falls_off} = 2
// COUNT never: {event: exit, function: ends} = 0
// COUNT begins: {event: entry, function: ends} = 1
// COUNT main_ends: {event: exit, function: main} = 0
// COUNT results: {event: exit, function: find, add: n} = 13
// COUNT structs: {event: exit, function: pair} = 2
// COUNT in_expression: {event: exit, function: early} = 2
#include <stdio.h>
#include <stdlib.h>
struct pair { int a, b; };
static int find(int n)
{
    if (n < 0) return -1;
    for (;;) {
        if (n > 3) return n;
        n++;
    }
}
static void maybe(int n) { if (n == 1) return; if (n == 2) { { return; } } }
static int falls_off(int *n) { ++*n; }
static struct pair pair(int n) { return (struct pair){n, n + 1}; }
static int early(int n) { int x = ({ if (n) return 7; n + 1; }); return x; }
_Noreturn static void ends(void) { exit(0); }
int main(void)
{
    int n = 0;
    printf("%d %d %d %d %d ", find(-1) + 2, find(0), find(10), pair(1).b, pair(2).a);
    maybe(0); maybe(1); maybe(2);
    falls_off(&n); falls_off(&n);
    printf("%d %d %d\n", n, early(0), early(1));
    ends();
}
