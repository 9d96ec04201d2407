// FLAGS: -D_FORTIFY_SOURCE=0 -Wall -Werror -std=gnu17
// COUNT entries: {event: entry, function: digraphs} = 3
// COUNT exits: {event: exit, function: digraphs} = 3
// COUNT loops: {event: loop, function: digraphs} = 6
// COUNT jumped_into: {event: loop, function: jumped_into} = 1
// COUNT written: {event: write, variable: g} = 9
// COUNT continued: {event: write, variable: h} = 1
// COUNT pragmas: {event: loop, function: pragmas} = 3
// COUNT pragma_branch: {event: branch, function: pragmas} = 1
// COUNT atomics: {event: write, variable: shared} = 2
// COUNT wide: {event: branch, function: wide} = 3
// COUNT void_values: {event: exit, function: void_value} = 2
// COUNT overloads: {event: entry, function: overloaded} = 2
// COUNT assembly: {event: write, variable: x, function: assembly} = 1
// COUNT promoted: {event: write, field: bits} = 2
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
int g, h;
_Atomic int shared;
struct narrow { unsigned bits : 3; } narrow;
static void digraphs(int n) <% for (int i = 0; i < n; i++) <% g += i == 1; %> %>
static int jumped_into(int n) { switch (n) while (g < 4) case 2: g++; return g; }
static void pragmas(void)
{
    if (h == 0) _Pragma("clang loop unroll(disable)") for (int i = 0; i < 3; i++) errno = i;
    h \
        = \
        3;
}
static int wide(__int128 n) { double d = n ?: 0.5; int *p = &g, *q = p ?: (int *)0; return d > 0 && q == p; }
static void nothing(void) {}
static void void_value(int n) { if (n) return nothing(); return (void)nothing(); }
__attribute__((overloadable)) static int overloaded(int x) { return x; }
__attribute__((overloadable)) static double overloaded(double x) { return x; }
static int assembly(void) { int x = 0; __asm__ goto("" : : : : out); x = 1; out: return x; }
int main(void)
{
    digraphs(2); digraphs(0); digraphs(4);
    g = 2;
    pragmas();
    shared++; shared += 2; atomic_fetch_add(&shared, 1);
    void_value(0); void_value(1);
    printf("%d %d %d %d %d ", jumped_into(2), h, shared, wide(0), wide(7));
    printf("%d %g %d ", overloaded(1), overloaded(0.5), assembly());
    printf("%d %d\n", (narrow.bits = 7) - 8 < 0, narrow.bits++ - 8 < 0);
    return 0;
}
