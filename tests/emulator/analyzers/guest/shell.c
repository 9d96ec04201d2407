/* Runs another program again and again, as a shell does: all of them lie at the same addresses. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline, aligned(0x4000))) static long chew(long n)
{
    volatile long sum = 0;
    for (long i = 0; i < n; i++)
#ifdef OTHER
        sum ^= i * 7 + (sum >> 3);
#else
        sum += i & 5;
#endif
    return sum;
}

int main(void)
{
    long sum = chew(300);
#ifndef OTHER
    for (int round = 0; round < 3; round++) {
        if (!fork()) {
            sum += chew(50 + round);
            execl("/other", "other", (char *)0);
        }
        wait(0);
        sum += chew(100);
    }
#endif
    printf("%ld\n", sum);
    return 0;
}
