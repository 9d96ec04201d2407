extern volatile unsigned long long __measure_counters[4];
# 1 "input.c"
int printf(const char *, ...);
static int area(int a, int b)
{ __measure_counters[0]++;
    if (a < 0)
        {__measure_counters[1]++; return -1;}
    {__measure_counters[1]++; return a * b;}
}
void show(void) { printf("%d\n", (__measure_counters[3]++, area(2, (__measure_counters[3]++, area(3, 4)))));  __measure_counters[2]++;}
int main(void)
{
    show();
    return sizeof(area(1, 1)) == 4 ? 0 : 1;
}
/* 0: entries */
/* 1: exits */
/* 2: ends */
/* 3: calls */
volatile unsigned long long __measure_counters[4] __attribute__((aligned(64), used));
