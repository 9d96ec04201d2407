/* Programs whose intervals run the same code and differ in one thing that signatures do not show, each of two kinds of
   turns, a plain and an unusual one. Which comes next is drawn; the first three quarters are mostly plain.

       limits CASE TURNS

   code      the same 64 functions, 45 KiB, are called four times each in a row, or by turns: the L1I cache misses
   branches  one loop reads sorted bytes, or shuffled ones: mispredictions
   targets   eight functions are called through pointers, each in a run of 512, or by turns: mispredicted targets
   fft       a Fourier transform of 65,536 points in place, over and over: conflicts in an L2 that move from set to set
   columns   Fourier transforms down the columns of a matrix of 256 rows of 2 KiB: the same
   recall    a pass over 320 KiB, after work that stays in 8 KiB or streams through 4 MiB: lines used before the interval
   pages     12 pages of 4 KiB in turn, which lie in one page of 2 MiB or in 12: misses of a TLB of large pages
   gathers   one of eight loads misses: one in each group of eight, or all eight in one group: misses at once */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draw.h"

static uint64_t total;

static void shuffle(uint8_t *bytes, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(draw() % (uint32_t)(i + 1));
        uint8_t byte = bytes[i];
        bytes[i] = bytes[j];
        bytes[j] = byte;
    }
}

/* code */
#define STEP(n) x ^= x >> (3 + (n) % 17); x -= y; x ^= x << (3 + (n) % 13); x += 40503u * (n);
#define STEPS(n) STEP(n) STEP((n) + 1) STEP((n) + 2) STEP((n) + 3) STEP((n) + 4) STEP((n) + 5) STEP((n) + 6) STEP((n) + 7)
#define FUNCTION(n) \
    __attribute__((noinline)) static uint64_t function##n(uint64_t x, uint64_t y) \
    { STEPS(n) STEPS(n + 8) STEPS(n + 16) STEPS(n + 24) STEPS(n + 32) return x; }
#define EIGHT(make, n) make(n##0) make(n##1) make(n##2) make(n##3) make(n##4) make(n##5) make(n##6) make(n##7)
#define ALL(make) \
    EIGHT(make, 1) EIGHT(make, 2) EIGHT(make, 3) EIGHT(make, 4) EIGHT(make, 5) EIGHT(make, 6) EIGHT(make, 7) EIGHT(make, 8)
#define NAME(n) function##n,
ALL(FUNCTION)
static uint64_t (*const functions[64])(uint64_t, uint64_t) = {ALL(NAME)};

__attribute__((noinline)) static void call_all(const uint8_t *order, int n)
{
    for (int i = 0; i < n; i++)
        total = functions[order[i]](total, (uint64_t)i);
}

static void code(int is_unusual)
{
    uint8_t order[256], chosen[64];
    for (int i = 0; i < 64; i++)
        chosen[i] = (uint8_t)i;
    for (int left = 100 + (int)(draw() % 200); left > 0; left--) {
        shuffle(chosen, 64);
        for (int i = 0; i < 256; i++)
            order[i] = is_unusual ? chosen[i % 64] : chosen[i / 4];
        call_all(order, 256);
    }
}

/* branches */
__attribute__((noinline)) static void count_small(const uint8_t *bytes, int n)
{
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) {
        if (bytes[i] < 128)
            sum += (uint64_t)i;
        else
            sum ^= (uint64_t)i * 3;
        __asm__ volatile("" ::"r"(sum));
    }
    total += sum;
}

static void branches(int is_unusual)
{
    static uint8_t sorted[4096], shuffled[4096];
    if (!sorted[4095]) {
        for (int i = 0; i < 4096; i++)
            sorted[i] = shuffled[i] = (uint8_t)(i / 16);
        shuffle(shuffled, 4096);
    }
    for (int left = 60 + (int)(draw() % 200); left > 0; left--)
        count_small(is_unusual ? shuffled : sorted, 4096);
}

/* targets */
#define LITTLE(n) __attribute__((noinline)) static uint64_t little##n(uint64_t x, uint64_t y) { return x * (2 * n + 1) + y; }
LITTLE(0) LITTLE(1) LITTLE(2) LITTLE(3) LITTLE(4) LITTLE(5) LITTLE(6) LITTLE(7)
static uint64_t (*const little[8])(uint64_t, uint64_t) = {
    little0, little1, little2, little3, little4, little5, little6, little7,
};

__attribute__((noinline)) static void call_little(const uint8_t *order, int n)
{
    for (int i = 0; i < n; i++)
        total = little[order[i]](total, (uint64_t)i);
}

static void targets(int is_unusual)
{
    static uint8_t orders[2][4096];
    for (int i = 0; i < 4096; i++) {
        orders[0][i] = (uint8_t)(i / 512);
        orders[1][i] = (uint8_t)(i % 8);
    }
    for (int left = 60 + (int)(draw() % 200); left > 0; left--)
        call_little(orders[is_unusual], 4096);
}

/* fft, columns */
enum { POINTS = 1 << 16 };
static double re[POINTS], im[POINTS], cosines[POINTS / 2], sines[POINTS / 2];

__attribute__((noinline)) static void transform(double *x, double *y, int n, int apart)
{
    for (int length = 2; length <= n; length *= 2) {
        int half = length / 2, step = POINTS / length;
        for (int k = 0; k < half; k++) {
            double c = cosines[k * step], s = sines[k * step];
            for (int i = k * apart; i < n * apart; i += length * apart) {
                int j = i + half * apart;
                double u = x[j] * c - y[j] * s, w = x[j] * s + y[j] * c;
                x[j] = (x[i] - u) * 0.7;
                y[j] = (y[i] - w) * 0.7;
                x[i] = (x[i] + u) * 0.7;
                y[i] = (y[i] + w) * 0.7;
            }
        }
    }
}

static void fill_points(void)
{
    if (re[1] == 0) {
        for (int i = 0; i < POINTS / 2; i++) {
            cosines[i] = cos(2 * 3.14159265358979 * i / POINTS);
            sines[i] = sin(2 * 3.14159265358979 * i / POINTS);
        }
        for (int i = 0; i < POINTS; i++)
            re[i] = 1 + i % 17;
    }
}

static void fft(int is_unusual)
{
    (void)is_unusual;
    fill_points();
    transform(re, im, POINTS, 1);
    total += re[5] > 1;
}

static void columns(int is_unusual)
{
    (void)is_unusual;
    fill_points();
    for (int column = 0; column < 256; column++)
        transform(re + column, im + column, 256, 256);
    for (int i = 0; i < POINTS; i++) {
        re[i] = fmod(re[i], 7);
        im[i] = fmod(im[i], 7);
    }
    total += re[5] > 1;
}

/* recall */
static uint64_t recalled[1 << 16], streamed[1 << 19];

__attribute__((noinline)) static void pass(const uint64_t *words, long lines, long first, long mask, int work)
{
    uint64_t sum = 0;
    for (long i = 0; i < lines; i++) {
        uint64_t word = words[(first + 8 * i) & mask];
        for (int k = 0; k < work; k++) {
            word = word * 5 + (uint64_t)k;
            __asm__ volatile("" : "+r"(word));
        }
        sum += word;
    }
    total += sum;
}

static void recall(int is_unusual)
{
    static long at;
    memset(recalled, 1, recalled[0] ? 0 : sizeof recalled);
    memset(streamed, 1, streamed[0] ? 0 : sizeof streamed);
    pass(streamed, 9000, at, is_unusual ? (1 << 19) - 1 : 1023, 2);
    at = (at + 72000) & ((1 << 19) - 1);
    pass(recalled, 5000, 0, (1 << 16) - 1, 16);
}

/* pages */
static char large_pages[14 << 21] __attribute__((aligned(1 << 21)));

__attribute__((noinline)) static void read_pages(long apart, long n)
{
    uint64_t sum = 0;
    for (long i = 0; i < n; i++)
        for (long k = 0; k < 12; k++) {
            uint64_t word = *(volatile uint64_t *)(large_pages + k * apart + (k * 256 & 2047) + (i & 31) * 64);
            for (int j = 0; j < 3; j++) {
                word = word * 3 + (uint64_t)j;
                __asm__ volatile("" : "+r"(word));
            }
            sum += word;
        }
    total += sum;
}

static void pages(int is_unusual)
{
    read_pages(is_unusual ? (1 << 21) + 4096 : 4096, 3000 + draw() % 6000);
}

/* gathers */
static uint32_t gathered[1 << 22];

__attribute__((noinline)) static void gather(const uint32_t *places, const uint32_t *words)
{
    uint32_t sum = 0;
    for (int i = 0; i < 4096; i += 8) {
        const uint32_t *p = places + i;
        uint32_t a = words[p[0]], b = words[p[1]], c = words[p[2]], d = words[p[3]];
        uint32_t e = words[p[4]], f = words[p[5]], g = words[p[6]], h = words[p[7]];
        __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f), "+r"(g), "+r"(h));
        sum += a ^ b ^ c ^ d ^ e ^ f ^ g ^ h;
    }
    total += sum;
}

static void gathers(int is_unusual)
{
    static uint32_t places[2][4096];
    if (!places[0][0])
        for (uint32_t i = 0; i < 4096; i++) { /* 512 lines that are far apart; eight words of one line */
            places[0][i] = i % 8 ? i % 8 : 64 + i / 8 * 976 % (1 << 21);
            places[1][i] = i / 8 % 8 ? i % 8 : 64 + (i / 64 * 8 + i % 8) * 976 % (1 << 21);
        }
    for (uint32_t i = 0, n = 60 + draw() % 120; i < n; i++)
        gather(places[is_unusual], gathered + i % 64 * 65584 % (1 << 20));
}

static const struct {
    const char *name;
    void (*turn)(int is_unusual);
} cases[] = {
    {"code", code}, {"branches", branches}, {"targets", targets}, {"fft", fft}, {"columns", columns},
    {"recall", recall}, {"pages", pages}, {"gathers", gathers},
};

int main(int argc, char **argv)
{
    int turns = argc > 2 ? atoi(argv[2]) : 0;
    for (size_t i = 0; argc > 2 && i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(argv[1], cases[i].name)) {
            for (int turn = 0; turn < turns; turn++)
                cases[i].turn(turn < turns * 3 / 4 ? draw() % 20 == 0 : draw() % 2 == 0);
            printf("%llu\n", (unsigned long long)total);
            return 0;
        }
    fprintf(stderr, "usage: limits CASE TURNS\n");
    return 2;
}
