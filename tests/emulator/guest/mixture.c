/* A bit of everything that a translator may get wrong: calls, recursion, indirect calls, floating point. */
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned long fib(unsigned n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
static int add(int a, int b) { return a + b; }
static int sub(int a, int b) { return a - b; }
static int mul(int a, int b) { return a * b; }
static int (*const operations[])(int, int) = {add, sub, mul};

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 50, length = argc > 2 ? atoi(argv[2]) : 3000;
    unsigned state = 1;
    int *table = malloc(length * sizeof *table), value = 0;
    double sum = 0;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < length; i++) {
            state = state * 1664525u + 1013904223u;
            table[i] = (int)(state >> 12);
            value = operations[(state >> 20) % 3](value, table[i]) & 0xffff;
            switch (state >> 29) {
            case 0: sum += sqrt(table[i]); break;
            case 3: sum -= table[i] / 3.0; break;
            case 5: sum *= 0.75f; break;
            case 7: sum = fma(sum, 0.5, (float)i); break;
            default: value ^= i;
            }
        }
        qsort(table, length, sizeof *table, compare);
    }
    feclearexcept(FE_ALL_EXCEPT);
    volatile double zero = 0, one = 1, third = one / 3;
    int inexact = fetestexcept(FE_ALL_EXCEPT) == FE_INEXACT;
    volatile double infinite = one / zero;
    int by_zero = !!fetestexcept(FE_DIVBYZERO);
    fesetround(FE_UPWARD);
    volatile double up = one / 3;
    fesetround(FE_TONEAREST);
    printf("%d %a %lu %d %d %d %d\n", value, sum, fib(18), inexact, by_zero, up > third, isinf(infinite));
    return 0;
}
