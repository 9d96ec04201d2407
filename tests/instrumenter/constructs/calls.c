// COUNT direct: {event: call, callee: f} = 11
// COUNT inside: {event: call, callee: f, function: nested} = 3
// COUNT library: {event: call, callee: puts} = 2
// COUNT builtin: {event: call, callee: memcpy} = 1
// COUNT structs: {event: call, callee: make} = 2
// COUNT variadic: {event: call, callee: sum} = 2
// COUNT arguments: {event: entry, function: sum, add: n} = 5
// COUNT recursive: {event: call, callee: down} = 4
// COUNT inlined: {event: entry, function: small} = 3
// COUNT exported_inline: {event: entry, function: exported} = 1
// COUNT generic: {event: call, callee: g} = 2
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
struct two { int a[2]; };
static int f(int x) { return x + 1; }
static double g(double x) { return x; }
static int nested(int x) { return f(f(x)) + (x, f(x)); }
static struct two make(int x) { return (struct two){{x, x + 1}}; }
static int sum(int n, ...) { va_list list; int s = 0; va_start(list, n); while (n--) s += va_arg(list, int); va_end(list); return s; }
static int down(int n) { return n ? down(n - 1) : 0; }
static inline int small(int x) { return x; }
inline int exported(int x) { return x; }
extern int exported(int);
int main(void)
{
    int (*pointer)(int) = f; // calls through it are not counted
    char copy[4];
    int total = f(0) + (f)(1) + (*f)(2) + (&f)(3) + nested(4) + pointer(5);
    total += ({ int y = f(1); f(y); });
    if (total && f(1)) total += total || f(9);
    total += (f(2), 1);
    puts("one"), puts("two");
    memcpy(copy, "abc", 4);
    total += make(3).a[1] + make(4).a[0];
    total += sum(2, 3, 4) + sum(3, 1, 2, 3) + down(3);
    total += small(1) + small(2) + small(3) + exported(4);
    total += (int)_Generic(1.0, double: g, default: g)(2.0) + (int)_Generic(1, int: g(1.0), default: f(7));
    printf("%d %s\n", total, copy);
    return 0;
}
