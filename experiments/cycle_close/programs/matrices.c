/* Matrix products and transpositions of sizes and row lengths that are drawn, and sorts: what a loop waits for memory
   depends on its data alone. Rows of a power of two put a column into one set of a cache.

       matrices TURNS */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "draw.h"

enum { SIDE = 512, NUMBERS = 200000 };

static double a[SIDE * SIDE], b[SIDE * SIDE], c[SIDE * SIDE];
static uint32_t numbers[NUMBERS];

__attribute__((noinline)) static void multiply(int n, int row)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int k = 0; k < n; k++)
                sum += a[i * row + k] * b[k * row + j];
            c[i * row + j] += sum;
        }
}

__attribute__((noinline)) static void transpose(int n, int row)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            c[j * row + i] = a[i * row + j];
}

static int compare(const void *x, const void *y)
{
    uint32_t p = *(const uint32_t *)x, q = *(const uint32_t *)y;
    return p < q ? -1 : p > q;
}

int main(int argc, char **argv)
{
    static const int rows[] = {512, 500, 256, 260, 128, 130, 64, 72};
    double total = 0;
    for (int i = 0; i < SIDE * SIDE; i++) {
        a[i] = i % 7;
        b[i] = i % 5;
    }
    for (int left = argc > 1 ? atoi(argv[1]) : 150; left > 0; left--) {
        int row = rows[draw() % 8];
        int n = 24 + (int)(draw() % (row > 200 ? 70 : row - 24));
        int kind = (int)(draw() % 4);
        if (kind < 2)
            for (int times = 1 + 400000 / (n * n * n + 1); times > 0; times--)
                multiply(n, row);
        else if (kind == 2)
            for (int times = 40; times > 0; times--)
                transpose(n, row);
        else {
            int m = 200 + (int)(draw() % 20000);
            for (int k = 0; k < m; k++)
                numbers[k] = draw();
            qsort(numbers, (size_t)m, sizeof *numbers, compare);
            total += numbers[m / 2];
        }
        total += c[draw() % 1000];
    }
    printf("%g\n", total);
    return 0;
}
