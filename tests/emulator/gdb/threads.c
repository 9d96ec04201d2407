/* Two threads, one of which waits for the other. */
#include <pthread.h>
#include <sched.h>

volatile int ready;

__attribute__((noinline)) int inside(int n) { return n * 3; }

static void *second(void *n)
{
    while (!ready) sched_yield();
    return (void *)(long)inside((int)(long)n);
}

int main(void)
{
    pthread_t thread;
    void *result;
    pthread_create(&thread, 0, second, (void *)14L);
    ready = 1;
    pthread_join(thread, &result);
    return (int)(long)result;
}
