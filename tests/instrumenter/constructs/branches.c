// COUNT chain: {event: branch, function: chain} = 4
// COUNT nested: {event: branch, function: nested} = 3
// COUNT ternary: {event: branch, function: ternary} = 4
// COUNT short_form: {event: branch, function: short_form} = 3
// COUNT nothing: {event: branch, function: nothing} = 1
// COUNT in_condition: {event: branch, function: in_condition} = 4
// COUNT floating: {event: branch, function: floating} = 2
// COUNT labelled: {event: branch, function: labelled} = 3
// COUNT one_line: {event: branch, line: 15} = 1
#include <stdio.h>
static int evaluations;
static int chain(int n)
{
    if (n == 0) return 1;
    else if (n == 1) return 2;
    else if (n == 2) { return 3; }
    else return 4;
}
static int nested(int a, int b) { int r = 0; if (a) if (b) r = 1; else r = 2; return r; }
static int ternary(int n) { return n > 5 ? 1 : n > 2 ? n > 3 ? 2 : 3 : 4; }
static int once(int n) { evaluations++; return n; }
static int short_form(int n) { return once(n) ?: 9; }
static int *nothing(int *p, int c) { return c ? 0 : p; }
static int in_condition(int n) { while (n > 3 ? n-- : 0) ; if (n ? 0 : 1) return 1; return n; }
static double floating(double x) { return x ? 1.5 : x; }
static int labelled(int n) { if (n) again: n--; if (n > 0) goto again; return n; }
int main(void)
{
    int sum = 0, value = 3;
    for (int i = 0; i < 4; i++) sum = sum * 5 + chain(i);
    sum += chain(0);
    sum += nested(1, 1) + nested(1, 0) * 4 + nested(0, 1);
    sum += ternary(6) + ternary(4) + ternary(3) + ternary(1) + ternary(0);
    sum += short_form(2) + short_form(0) + short_form(-1) + short_form(7);
    sum += *nothing(&value, 0) + (nothing(&value, 1) == 0);
    sum += in_condition(5) + in_condition(0);
    printf("%d %d %g %d\n", sum, evaluations, floating(0.0) + floating(2.0) + floating(-1.0), labelled(3));
    return 0;
}
