/* What a debugger looks at: calls, memory that changes, floating point, a fault, an endless loop. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

volatile int counter;
volatile char text[16] = "before";
volatile double half = 0.5;

__attribute__((noinline)) int twice(int n) { return n + n; }

__attribute__((noinline)) int work(int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++) {
        counter = i;
        sum += twice(i);
        half *= 1.5;
    }
    return sum;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "loop"))
        for (;;) counter++;
    if (argc > 1 && !strcmp(argv[1], "fault"))
        *(volatile int *)(long)atoi(argv[2]) = work(3);
    printf("%d %a %s\n", work(5), half, (const char *)text);
    return 7;
}
