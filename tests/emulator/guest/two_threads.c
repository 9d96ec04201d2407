/* Two threads that count, each a little at a time: what is hot is so over many turns. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

static uint64_t results[2];

static void *work(void *place) {
    uint64_t x = 88172645463325252ull, sum = 0;
    for (int i = 0; i < 3000000; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        sum += x & 1 ? x : 3 * x;
    }
    *(uint64_t *)place = sum;
    return 0;
}

int main(void) {
    pthread_t other;
    pthread_create(&other, 0, work, &results[1]);
    work(&results[0]);
    pthread_join(other, 0);
    printf("%d\n", results[0] == results[1]);
    return 0;
}
