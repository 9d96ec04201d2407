extern volatile unsigned long long __measure_counters[3];
# 1 "input.c"
struct point { int x, y; } points[2];
static int total = 3;
int main(void)
{
    int i = 0;
    for ((__measure_counters[2]++, i = 1); i < 2; (__measure_counters[2]++, ++i))
        (__measure_counters[0]++, total += (__measure_counters[1]++, points[i].x = i));
    (__measure_counters[0]++, (total)--), points[0].y = 4;
    (__measure_counters[0]++, total = ((__measure_counters[1]++, points->x++), total));
    return 0;
}
/* 0: total */
/* 1: x */
/* 2: index */
volatile unsigned long long __measure_counters[3] __attribute__((aligned(64), used));
