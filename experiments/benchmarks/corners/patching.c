/* Code that changes: the same instruction patched again and again, or fresh code at every turn. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef long (*function)(long);

int main(int argc, char **argv) {
    long turns = atol(argv[2]), size = 1 << 20, total = 0;
    uint32_t *code = mmap(0, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fresh = !strcmp(argv[1], "fresh"), loop = !strcmp(argv[1], "loop");
    long at = 0;
    for (long n = 0; n < turns; n++) {
        uint32_t *p = code + at;
        p[0] = 0x00050513 | (uint32_t)(n & 1023) << 20; /* addi a0, a0, n */
        p[1] = 0x00008067;                              /* ret */
        __asm__ volatile("fence.i" ::: "memory");
        for (int k = 0; k < (loop ? 1000 : 1); k++) total = ((function)p)(total);
        if (fresh) at = (at + 8) % (size / 4);
    }
    printf("%ld\n", total);
    return 0;
}
