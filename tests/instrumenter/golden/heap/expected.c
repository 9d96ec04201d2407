extern volatile unsigned long long __measure_counters[2]; extern void *__measure_malloc0_real(__SIZE_TYPE__ n) __asm__("malloc"); static inline __attribute__((always_inline, unused)) void *__measure_malloc0(__SIZE_TYPE__ n) { __measure_counters[1] += n; return __measure_malloc0_real(n); } extern void *__measure_calloc1_real(__SIZE_TYPE__ a, __SIZE_TYPE__ b) __asm__("calloc"); static inline __attribute__((always_inline, unused)) void *__measure_calloc1(__SIZE_TYPE__ a, __SIZE_TYPE__ b) { __measure_counters[1] += a * b; return __measure_calloc1_real(a, b); }
# 1 "input.c"
typedef unsigned long size_t;
void *malloc(size_t), *calloc(size_t, size_t);
void free(void *);
int main(void)
{
    char *a = (__measure_counters[0]++, __measure_malloc0(10)), *b = (__measure_counters[0]++, __measure_calloc1(2, 4));
    free(a), free(b);
    free((__measure_counters[0]++, __measure_malloc0(1)));
    return 0;
}
/* 0: requests */
/* 1: bytes */
volatile unsigned long long __measure_counters[2] __attribute__((aligned(64), used));
