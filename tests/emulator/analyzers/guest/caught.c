/* Faults that are caught, in the middle of blocks: the record must stay whole. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static sigjmp_buf back;
static volatile long cells[4];
static void on_fault(int signal) { siglongjmp(back, signal); }

__attribute__((noinline)) static void touch(volatile long *where)
{
    cells[0]++;
    cells[1] += *where;
    cells[2]++;
}

__attribute__((noinline)) static void illegal(void)
{
    cells[3]++;
    __asm__ volatile("csrr t0, 0x123" ::: "t0");
}

int main(void)
{
    long *const places[] = {0, (long *)0xdeadbeef12345678, (long *)cells, (long *)0x40};
    volatile int caught = 0;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_fault;
    sigaction(SIGSEGV, &action, 0);
    sigaction(SIGILL, &action, 0);
    for (volatile int i = 0; i < 40; i++) {
        int signal = sigsetjmp(back, 1);
        if (signal)
            caught += signal;
        else if (i % 5 == 4)
            illegal();
        else
            touch(places[i % 5]);
    }
    printf("%d %ld %ld\n", caught, cells[0], cells[3]);
    return 0;
}
