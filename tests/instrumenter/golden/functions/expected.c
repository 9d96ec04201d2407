extern volatile unsigned long long __measure_counters[7]; static inline __attribute__((always_inline, unused)) void __measure_flush3(unsigned long long *counted) { __measure_counters[3] += *counted; } static inline __attribute__((always_inline, unused)) void __measure_left0(unsigned char *counted) { if (*counted) { __measure_counters[1]++; } } static inline __attribute__((always_inline, unused)) void __measure_left1(unsigned char *counted) { if (*counted) { __measure_counters[2]++; } } static inline __attribute__((always_inline, unused)) void __measure_left2(unsigned char *counted) { if (*counted) { __measure_counters[4]++; } }
# 1 "input.c"
int printf(const char *, ...);
static int area(int a, int b)
{ unsigned long long __attribute__((cleanup(__measure_flush3))) __measure_local3 = 0; __measure_counters[0]++; unsigned char __measure_leaving0 __attribute__((cleanup(__measure_left0), unused)) = (1);
    if (a < 0)
        {__measure_local3 = (unsigned long long)(long long)(a); return -1;}
    {__measure_local3 = (unsigned long long)(long long)(a); return a * b;}
}
void show(void) { unsigned char __measure_leaving1 __attribute__((cleanup(__measure_left1), unused)) = (1); printf("%d\n", (__measure_counters[6]++, area(2, (__measure_counters[6]++, area(3, 4))))); }
static int sum(int n, int all)
{ unsigned char __measure_leaving2 __attribute__((cleanup(__measure_left2), unused)) = (1);
    if (!(__measure_counters[6]++, area(n, 1)))
        return (__measure_counters[6]++, area(all, 1));
    return n > 9 ? (__measure_counters[6]++, area(n, all)) : (__measure_leaving2 ? __measure_left2(&__measure_leaving2), (void)(__measure_leaving2 = 0) : (void)0, sum(n - 1, all + n));
}
static int end(int n) { {__measure_counters[5]++; __attribute__((musttail)) return end(n - 1);}  __measure_counters[5]++;}
int main(void)
{
    show();
    return sizeof(area(1, 1)) == 4 ? 0 : 1;
}
/* 0: entries */
/* 1: exits */
/* 2: ends */
/* 3: sizes */
/* 4: turns */
/* 5: last */
/* 6: calls */
volatile unsigned long long __measure_counters[7] __attribute__((aligned(64), used));
