/* Signals for a debugger to see: handled ones, one that interrupts a wait, a handled fault, and one that ends it. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

static volatile int seen[65];
static sigjmp_buf back;

__attribute__((noinline)) void handler(int number) { seen[number]++; }
__attribute__((noinline)) void out_of_fault(int number) { seen[number]++; siglongjmp(back, 1); }

int main(int argc, char **argv)
{
    signal(SIGUSR1, handler);
    signal(SIGUSR2, handler);
    signal(SIGALRM, handler);
    signal(SIGSEGV, out_of_fault);
    raise(SIGUSR1);
    raise(SIGUSR1);
    struct itimerval soon = {{0, 0}, {0, 1000}};
    setitimer(ITIMER_REAL, &soon, 0);
    pause();
    if (!sigsetjmp(back, 1)) *(volatile int *)64 = 1;
    printf("%d %d %d %d\n", seen[SIGUSR1], seen[SIGUSR2], seen[SIGALRM], seen[SIGSEGV]);
    fflush(stdout);
    if (argc > 1) abort();
    return 3;
}
