/* 64 threads that want the same thing: a mutex, a spin lock, a condition. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 64
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static atomic_int spin;
static long counter, turns, turn;
static const char *kind;

static void work(void) {
    for (volatile int i = 0; i < 20; i++) {}
}

static void *body(void *argument) {
    long me = (long)argument;
    for (long n = 0; n < turns; n++) {
        if (!strcmp(kind, "mutex")) {
            pthread_mutex_lock(&mutex);
            counter++;
            work();
            pthread_mutex_unlock(&mutex);
        } else if (!strcmp(kind, "yield")) { /* the holder gives its turn away: all others find the lock taken */
            pthread_mutex_lock(&mutex);
            counter++;
            sched_yield();
            pthread_mutex_unlock(&mutex);
        } else if (!strcmp(kind, "spin")) {
            while (atomic_exchange(&spin, 1)) sched_yield();
            counter++;
            work();
            atomic_store(&spin, 0);
        } else if (!strcmp(kind, "condition")) { /* round robin: one after the other */
            pthread_mutex_lock(&mutex);
            while (turn != me) pthread_cond_wait(&changed, &mutex);
            turn = (me + 1) % THREADS;
            counter++;
            pthread_cond_broadcast(&changed);
            pthread_mutex_unlock(&mutex);
        } else {
            pthread_barrier_wait(&barrier);
            atomic_fetch_add(&spin, 1);
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    kind = argv[1];
    turns = atol(argv[2]);
    pthread_barrier_init(&barrier, 0, THREADS);
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, body, (void *)i);
    for (long i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    printf("%ld\n", counter + spin);
    return 0;
}
