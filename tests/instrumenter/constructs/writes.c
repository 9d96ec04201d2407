// COUNT forms: {event: write, variable: g} = 14
// COUNT shadowed: {event: write, variable: h} = 1
// COUNT local: {event: write, variable: sum, function: add_up} = 4
// COUNT parameter: {event: write, variable: n, function: count_down} = 3
// COUNT kept: {event: write, variable: kept} = 2
// COUNT pointed: {event: write, variable: target} = 3
// COUNT wide: {event: write, variable: wide} = 3
// COUNT only_line: {event: write, variable: g, line: 21} = 1
// COUNT text: {event: write, variable: message} = 2
#include <stdio.h>
int g, h, target, *pointer = &h;
unsigned char wide;
const char *message;
static int add_up(int n) { int sum = 0; for (int i = 0; i < n; i++) sum += i; return sum; }
static int count_down(int n) { while (n-- > 0); return n; }
static int next(void) { static int kept = 5; return ++kept; }
static int shadow(int h) { h = 1; { int h = 2; h++; } return h; }
int main(void)
{
    g++; ++g; g--; --g; g = 1; g += 2; g <<= 1; (g) = 7;
    g = 9;
    int twice = (g = 5, g);
    for (g = 0; g < 2; g++) ;
    int chained = h = g = 3;
    *&target = 1; (&target)[0] += 2; *(&target) = 4;
    wide = 255; wide++; wide -= 1;
    message = "(text with ; and { braces }"; message = message + 1;
    *pointer += 1; // through a pointer: not a write by name
    printf("%d %d %d %d %d %d %d %d %s\n", twice, chained, g, h, target, wide, add_up(4), count_down(2), message);
    return next() + next() + shadow(3) - 14;
}
