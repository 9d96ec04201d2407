/* Ends badly in the way that its first argument names. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int deep(int n)
{
    volatile char room[4096];
    room[0] = (char)n;
    return deep(n + 1) + room[0];
}

static sigjmp_buf back;
static volatile unsigned long fault_address;

static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    fault_address = (unsigned long)info->si_addr;
    siglongjmp(back, 1);
}

static long hot_loop(int rounds)
{
    static int table[512];
    int *at = table;
    long sum = 0;
    for (int i = 0; i < rounds; i++) {
        at[i & 511] += i;
        sum += at[(i * 7) & 511];
        if (i == rounds - 10)
            at = (int *)16;
    }
    return sum;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "null-store"))
        *(volatile int *)0 = 1;
    else if (!strcmp(what, "null-load"))
        return *(volatile int *)8;
    else if (!strcmp(what, "wild"))
        *(volatile long *)0xdeadbeef12345678 = 1;
    else if (!strcmp(what, "stack"))
        return deep(0);
    else if (!strcmp(what, "illegal"))
        __asm__ volatile(".4byte 0");
    else if (!strcmp(what, "jump"))
        ((void (*)(void))0x1234)();
    else if (!strcmp(what, "code"))
        *(volatile char *)main = 0;
    else if (!strcmp(what, "hot"))
        return (int)hot_loop(300000);
    else if (!strcmp(what, "abort"))
        abort();
    else if (!strcmp(what, "forever"))
        for (;;)
            ;
    else if (!strcmp(what, "caught")) {
        struct sigaction action;
        memset(&action, 0, sizeof action);
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGSEGV, &action, 0);
        int caught = 0;
        for (volatile int i = 0; i < 1000; i++) {
            if (sigsetjmp(back, 1)) {
                caught++;
                continue;
            }
            *(volatile int *)(0x40L + i) = 1;
        }
        printf("%d %lx\n", caught, fault_address);
    } else
        return 42;
    return 0;
}
