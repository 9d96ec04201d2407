/* Accesses that fail in the middle of a hot loop, passed over by a handler that sums up every register it is given. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

static uint64_t sum, faults;

static void handler(int number, siginfo_t *info, void *context) {
    ucontext_t *at = context;
    for (int n = 0; n < 32; n++) sum = sum * 31 + (n == 3 || n == 4 ? 0 : at->uc_mcontext.__gregs[n]);
    for (int n = 0; n < 32; n++) sum = sum * 31 + at->uc_mcontext.__fpregs.__d.__f[n];
    sum = sum * 31 + (uint64_t)info->si_addr + number;
    faults++;
    uint16_t low;
    memcpy(&low, (void *)at->uc_mcontext.__gregs[0], 2);
    at->uc_mcontext.__gregs[0] += (low & 3) == 3 ? 4 : 2;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 100;
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, 0);
    volatile int64_t *pages = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect((char *)pages + 4096, 4096, PROT_NONE);
    double x = 1.0;
    int64_t a = 1, b = 2, c = 3;
    for (long i = 0; i < rounds; i++) {
        long at = i % 61 == 0 ? 512 : i & 255; /* mostly a good place */
        a += b ^ i;
        x = x * 1.0000001 + a % 7;
        pages[at] = a;
        b = b * 5 + c;
        c += pages[at];
        x += c & 15;
        pages[at ^ 1] += b;
        a -= c >> 3;
    }
    printf("%ld %lu %lx %lx %lx %lx %.17g\n", rounds, faults, sum, a, b, c, x);
    return 0;
}
