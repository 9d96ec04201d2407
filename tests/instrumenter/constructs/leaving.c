// COUNT jumped: {event: exit, function: parsed} = 8
// COUNT enters: {event: entry, function: parsed} = 10
// COUNT jumping: {event: exit, function: parse} = 8
// COUNT nested: {event: exit, function: nested} = 10
// COUNT nested_sum: {event: exit, function: nested, add: n} = 45
// COUNT bit_fields: {event: exit, function: width} = 10
// COUNT pointers: {event: exit, function: chosen} = 10
// COUNT arrays: {event: exit, function: row} = 10
// COUNT old: {event: exit, function: old} = 10
// COUNT nothing: {event: exit, function: nothing} = 20
// COUNT void_value: {event: exit, function: either} = 10
// COUNT computed: {event: exit, function: computed} = 10
// COUNT complex: {event: exit, function: complex} = 10
// COUNT bound_to_jump: {event: exit, function: end} = 11
// COUNT bound_to_jump_sum: {event: exit, function: end, add: "(long long)n"} = 55
// COUNT bound_to_jump_local: {event: entry, function: end, local: true} = 11
// COUNT in_value: {event: exit, function: first} = 10
#include <setjmp.h>
#include <stdio.h>
static jmp_buf start;
typedef int (*function)(int);
static int parse(int n) { if (n % 5 == 4) longjmp(start, 1); return n; }
static int parsed(int n) { return parse(n); }
static int nested(int n) { return ({ if (n > 5) return n; n + 1; }); }
static const struct { unsigned narrow : 5, wide : 7; } bits = {3, 5};
static unsigned width(void) { return bits.wide; }
static function chosen(int n) { if (n) return parsed; return 0; }
static int (*row(int n))[3] { static int rows[2][3]; return n ? &rows[1] : rows; }
static int old(a) int a; { if (a) return a; return 1; }
static void nothing(void) {}
static void either(int n) { nothing(); if (n) return nothing(); return (void)nothing(); }
static int computed(int n)
{
    static void *labels[] = {&&zero, &&one};
    goto *labels[n & 1];
zero:
    return 1;
one:
    if (n > 5) return 2;
    n++;
    goto *labels[n & 1];
}
static double _Complex complex(int n) { return n; }
static int end(int n) { if (!n) return 0; __attribute__((musttail)) return end(n - 1); }
static int second(int n) { return n + 1; }
static int first(int n) { int m = n ? ({ if (n > 3) return second(n); n; }) : 2; return second(m) + second(m); }
int main(void)
{
    volatile int sum = 0;
    for (volatile int i = 0; i < 10; i++)
        if (!setjmp(start))
            sum += parsed(i);
    for (int i = 0; i < 10; i++) {
        sum += nested(i) + (int)width() + (chosen(i) != 0) + (row(i) != 0) + old(i) + computed(i) + (int)complex(i);
        sum += first(i);
        either(i);
    }
    printf("%d %d\n", sum, end(10));
    return 0;
}
