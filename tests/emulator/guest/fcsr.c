/* Rounding modes and flags of threads, signal handlers, children and executed programs: says what is wrong. */
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) \
    if (!(condition)) printf("line %d: " #condition "\n", __LINE__)

static volatile double one = 1, three = 3;
static const int modes[4] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
static const int flags[4] = {FE_DIVBYZERO, FE_OVERFLOW, FE_INVALID, 0};
static volatile int handled;

static unsigned long fcsr(void) {
    unsigned long value;
    __asm__ volatile("frcsr %0" : "=r"(value));
    return value;
}

static void *work(void *argument) {
    long me = (long)argument;
    CHECK(fcsr() == (FE_UPWARD << 5 | FE_UNDERFLOW)); /* that of the thread that has started it */
    double up = 0x1.5555555555556p-2, down = 0x1.5555555555555p-2;
    for (int round = 0; round < 300; round++) {
        fesetround(modes[me]);
        __asm__ volatile("fsflags %0" ::"r"(flags[me]));
        if (round % 3 == 0) sched_yield();
        CHECK(fcsr() == (unsigned long)(modes[me] << 5 | flags[me]));
        CHECK(one / three == (me == 3 ? up : down));
        CHECK(fetestexcept(FE_ALL_EXCEPT) == (flags[me] | FE_INEXACT));
    }
    return 0;
}

static void tick(int number) {
    handled++;
    fesetround(FE_DOWNWARD);
    feraiseexcept(FE_DIVBYZERO);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        CHECK(fcsr() == 0); /* a program begins so */
        return 0;
    }
    CHECK(fcsr() == 0);
    pthread_t threads[4];
    fesetround(FE_UPWARD);
    feraiseexcept(FE_UNDERFLOW);
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, (void *)i);
    for (long i = 0; i < 4; i++) pthread_join(threads[i], 0);
    CHECK(fcsr() == (FE_UPWARD << 5 | FE_UNDERFLOW));

    signal(SIGALRM, tick);
    struct itimerval every = {{0, 20}, {0, 20}};
    setitimer(ITIMER_REAL, &every, 0);
    while (handled < 20) CHECK(fcsr() == (FE_UPWARD << 5 | FE_UNDERFLOW));
    memset(&every, 0, sizeof every);
    setitimer(ITIMER_REAL, &every, 0);

    fflush(stdout);
    int status;
    if (fork() == 0) {
        CHECK(fcsr() == (FE_UPWARD << 5 | FE_UNDERFLOW));
        fesetround(FE_DOWNWARD);
        feclearexcept(FE_ALL_EXCEPT);
        fflush(stdout);
        _exit(0);
    }
    wait(&status);
    CHECK(status == 0);
    CHECK(fcsr() == (FE_UPWARD << 5 | FE_UNDERFLOW));
    fflush(stdout);
    execl("/proc/self/exe", argv[0], "again", (char *)0);
    execl(argv[0], argv[0], "again", (char *)0);
    CHECK(0);
    return 1;
}
