/* Rounds to the nearest, ties away from zero, which hosts cannot: for ever, or for a while. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 0;
    volatile float sum = 0, step = 1.5f / (1 << 20);
    __asm__ volatile("fsrmi 4");
    for (long i = 0; !rounds || i < rounds; i++) sum += step;
    __asm__ volatile("fsrmi 0");
    printf("%a\n", sum);
    return 0;
}
