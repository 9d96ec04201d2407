// COUNT calls: {event: call, callee: f} = 3
// COUNT writes: {event: write, variable: n} = 1
#include <stddef.h>
#include <stdio.h>
int n;
static int f(int x) { return x; }
struct s { int a, b[4]; };
static const int table[] = {[sizeof(int) > 2 ? 1 : 0] = 3, 4};
_Static_assert(sizeof(f(1)) == 4, "not evaluated");
enum { SIZE = sizeof(int) == 4 ? 5 : 6 };
int main(void)
{
    int size = sizeof(f(n++)) + sizeof n++ + _Alignof(int);
    typeof(f(n = 3)) result = f(1);
    int chosen = _Generic(f(2), int: f(3), default: f(4));
    int constant = __builtin_constant_p(f(5)) + __builtin_choose_expr(1, f(6), f(7));
    static int once = sizeof(int) ? 2 : 3;
    int array[SIZE > 4 ? 2 : 1];
    switch (result) { case sizeof(int) > 2 ? 1 : 7: n = 2; }
    printf("%d %d %d %d %d %d %zu %zu\n", size, result, chosen, constant, once, n, sizeof array, offsetof(struct s, b[1]));
    return table[1] - 3;
}
