// COUNT first: {event: write, variable: a} = 4
// COUNT second: {event: write, variable: b} = 2
// COUNT loops: {event: loop, function: main} = 3
// COUNT on_line: {event: write, line: 21, variable: a} = 1
// COUNT header: {event: write, variable: a, file: macros.h} = 1
// COUNT branch: {event: branch, function: main} = 1
#include "macros.h"
#include <stdio.h>
#define BUMP(x) do { (x)++; } while (0)
#define SWAP(type, x, y) { type t = x; \
    x = y; y = t; }
#define EACH(i, n) for (int i = 0; i < (n); i++)
#define UNLESS(c) if (!(c))
int main(void)
{
    BUMP(a);
    SWAP(int,
         a,
         b);
    EACH(i, 3) touch();
    UNLESS(a) BUMP(b); else a += 0;
    UNLESS(b - 1) b += 2;
    printf("%d %d\n", a, b);
    return 0;
}
