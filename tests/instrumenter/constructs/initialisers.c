// COUNT calls: {event: call, callee: f} = 8
// COUNT branches: {event: branch, function: main} = 2
// COUNT writes: {event: write, variable: n} = 2
#include <stdio.h>
int n;
static int f(int x) { return x; }
struct pair { int a, b; };
static struct pair fixed = {.b = 1 ? 2 : 3, .a = sizeof(int)};
static const char *const names[] = {[0] = "x", [1 ? 2 : 3] = "y"};
int main(void)
{
    static int once = 1 ? 4 : 5;
    struct pair pair = {.b = f(2), .a = f(1)}, copy = pair, other = (n = 3, pair);
    int list[] = {[1] = f(4), [2 ... 3] = 5, f(6)};
    struct pair *at = &(struct pair){f(7), n > 2 ? 1 : 2};
    int nested[2][2] = {{f(8)}, {[1] = f(9)}};
    int k = ({ n++; n; }), c = (k ? f(10) : f(11));
    printf("%d %d %d %d %d %d %d %d %d\n", pair.a, copy.b, other.a, list[4], at->b, nested[1][1], c, fixed.b + once, names[2][0]);
    return 0;
}
