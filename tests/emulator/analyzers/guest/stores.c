/* Stores that fault and are caught, in blocks that load nothing, as the ones before them. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static sigjmp_buf back;
static volatile long cells[4];
static void on_fault(int signal) { siglongjmp(back, signal); }

__attribute__((noinline)) static void put(volatile long *where, long n)
{
    if (n != 1000) {
        where[0] = n;
        where[1] = n;
    }
}

int main(void)
{
    volatile int caught = 0;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_fault;
    sigaction(SIGSEGV, &action, 0);
    for (volatile int i = 0; i < 60; i++)
        if (sigsetjmp(back, 1))
            caught++;
        else
            put(i % 3 == 2 ? (long *)0x40 : cells, i);
    printf("%d\n", caught);
    return 0;
}
