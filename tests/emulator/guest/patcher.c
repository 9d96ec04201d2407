/* Works hard, and makes itself a new function in a page of its own now and then. */
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

static uint64_t work(uint64_t x) {
    for (int i = 0; i < 20000; i++) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return x;
}

int main(void) {
    uint32_t *page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t sum = 1;
    for (int round = 0; round < 40; round++) {
        page[0] = 0x00050513 | (uint32_t)round << 20; /* addi a0, a0, round */
        page[1] = 0x00008067;                         /* ret */
        __asm__ volatile("fence.i" ::: "memory");
        for (int i = 0; i < 30; i++) sum = ((uint64_t(*)(uint64_t))page)(sum);
        sum = work(sum);
    }
    printf("%lx\n", sum);
    return 0;
}
