/* Every class of instruction in little time: what analyzers are tried on. */
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node { struct node *next; long value; };
static struct node nodes[64];
static volatile signed char bytes[16];
static volatile float single = 1.5f;
static _Atomic int counter;
static _Atomic long wide;

__attribute__((noinline)) long walk(struct node *node)
{
    long sum = 0;
    for (; node; node = node->next)
        sum += node->value;
    return sum;
}

__attribute__((noinline)) double mix(double x, int n)
{
    for (int i = 0; i < n; i++)
        x = i & 1 ? fma(x, 0.5, i) : sqrt(x + i) / 3.0 + single;
    return x * 0.5;
}

__attribute__((noinline)) int leaf(int n) { return bytes[n & 15] -= n; }
__attribute__((noinline)) int twice(int n) { return leaf(n) + leaf(n + 1); }
static int (*volatile const chosen[])(int) = {leaf, twice};

__attribute__((noinline)) long fact(long n) { return n < 2 ? 1 : fact(n - 1) * n + fact(n - 2) % 3; }

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    long sum = 0;
    double x = 1;
    for (int i = 0; i < 64; i++)
        nodes[i] = (struct node){i < 63 ? &nodes[i + 1] : 0, (long)i * i * 1000003 % 977 - 300};
    for (int round = 0; round < rounds; round++) {
        sum += walk(nodes) / (round + 1) + fact(5) % 7;
        x = mix(x, 20);
        for (int i = 0; i < 8; i++)
            sum += chosen[i % 3 == 0](i);
        counter += round;
        wide ^= sum;
        feclearexcept(FE_ALL_EXCEPT);
    }
    printf("%ld %a %d %ld %d\n", sum, x, counter, wide, fetestexcept(FE_INEXACT) != 0);
    return 0;
}
