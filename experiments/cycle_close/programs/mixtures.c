/* One loop that reads from four arrays, in shares that change. Which array is next, and whether it is read in order or at
   random, is data: the code says nothing of how long it waits for memory.

       mixtures KIND TURNS jumps|drifts */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draw.h"

enum { ARRAYS = 4, CHOICES = 4096, KINDS = 6 };

struct array {
    uint32_t n, apart, is_random, at; /* so many bytes, so far apart */
};

static const char *const names[KINDS] = {"pages", "far pages", "lines", "all", "large", "second level"};
static struct array kinds[KINDS][ARRAYS] = {
    {{100, 4096 + 64, 1, 0}, {20, 4096 + 64, 0, 0}, {64, 64, 1, 0}, {64, 64, 1, 0}},
    {{110, 8192 + 64, 1, 0}, {64, 64, 0, 0}, {256, 64, 1, 0}, {30, 4096 + 64, 1, 0}},
    {{400, 320, 1, 0}, {100, 64, 0, 0}, {32, 4096, 0, 0}, {64, 64, 1, 0}},
    {{2000, 64, 1, 0}, {300, 64, 0, 0}, {100, 4160, 1, 0}, {12, 8192, 0, 0}},
    {{20000, 64, 1, 0}, {300, 64, 0, 0}, {3000, 192, 1, 0}, {10, 16384, 0, 0}},
    {{1500, 4096 + 64, 1, 0}, {200, 64, 0, 0}, {90, 4096 + 64, 1, 0}, {700, 64, 1, 0}},
};
static volatile uint8_t data[64 << 20];
static uint64_t total;

static double unit(void)
{
    return draw() / 4294967296.0;
}

__attribute__((noinline)) static void work(struct array *arrays, const uint8_t *which, long reads)
{
    uint64_t sum = 0;
    for (long i = 0; i < reads; i++) {
        struct array *one = &arrays[which[i % CHOICES]];
        uint32_t drawn = draw();
        uint32_t k = one->is_random ? (uint32_t)((uint64_t)drawn * one->n >> 32) : one->at;
        one->at = one->at + 1 == one->n ? 0 : one->at + 1;
        sum += data[(size_t)k * one->apart + ((size_t)(one - arrays) << 23)];
    }
    total += sum;
}

int main(int argc, char **argv)
{
    double weights[ARRAYS] = {1, 1, 1, 1};
    uint8_t which[CHOICES];
    int kind = 0, drifts = argc > 3 && strcmp(argv[3], "drifts") == 0;
    for (int i = 0; i < KINDS; i++)
        if (argc > 1 && strcmp(argv[1], names[i]) == 0)
            kind = i;
    for (long left = argc > 2 ? atol(argv[2]) : 400; left > 0; left--) {
        double sum = 0;
        if (drifts)
            for (int k = 0; k < ARRAYS; k++) {
                weights[k] *= 0.9 + 0.2 * unit();
                weights[k] = weights[k] < 0.02 ? 0.02 : weights[k] > 5 ? 5 : weights[k];
            }
        else if (draw() % 12 == 0)
            for (int k = 0; k < ARRAYS; k++) {
                double u = unit();
                weights[k] = u * u * u + 0.01;
            }
        for (int k = 0; k < ARRAYS; k++)
            sum += weights[k];
        for (int i = 0; i < CHOICES; i++) {
            double u = unit() * sum;
            int k = 0;
            while (k < ARRAYS - 1 && u >= weights[k])
                u -= weights[k++];
            which[i] = (uint8_t)k;
        }
        work(kinds[kind], which, 100000);
    }
    printf("%llu\n", (unsigned long long)total);
    return 0;
}
