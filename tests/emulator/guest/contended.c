/* Threads that contend for a mutex, give their turn away and meet at a barrier. What it prints depends on who had the
 * mutex when; with a third argument a timer interrupts whoever runs, and one thread is sent a signal by the others. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

#define THREADS 5
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_t threads[THREADS];
static volatile unsigned long order, signals;
static long rounds, with_signals, used[THREADS];

static void on_signal(int number) {
    signals = signals * 7 + number;
    order = order * 31 + 17;
}

static void *body(void *argument) {
    long me = (long)argument;
    for (long n = 0; n < rounds; n++) {
        pthread_mutex_lock(&mutex);
        order = order * 31 + me;
        if (n % 3 == me % 3) sched_yield();
        pthread_mutex_unlock(&mutex);
        if (n % 5 == 0) pthread_barrier_wait(&barrier);
        if (with_signals && n % 7 == me) pthread_kill(threads[0], SIGUSR1);
    }
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    used[me] = time.tv_nsec;
    pthread_barrier_wait(&barrier);
    return 0;
}

int main(int argc, char **argv) {
    rounds = atol(argv[1]);
    with_signals = argc > 2;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    sigaction(SIGUSR1, &action, 0);
    struct itimerval every = {{0, 50}, {0, 50}};
    if (with_signals) setitimer(ITIMER_REAL, &every, 0);
    pthread_barrier_init(&barrier, 0, THREADS);
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, body, (void *)i);
    for (long i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    printf("%lx %lx", order, signals);
    for (long i = 0; i < THREADS; i++) printf(" %ld", used[i]);
    printf("\n");
    return 0;
}
