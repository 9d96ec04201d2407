extern volatile unsigned long long __measure_counters[3];
# 1 "input.c"
int main(void)
{
    int n = 0, *p = 0;
    for (int i = 0; i < 3; i++) { __measure_counters[0]++;
        n += ((i > 1) ? (__measure_counters[1]++, 1) : 0) ? 2 : 1;
    }
    while (n > 3) {__measure_counters[0]++, __measure_counters[2]++; n--;}
    do
        {__measure_counters[0]++; if (n) {__measure_counters[1]++; n++;} else if (n == 7) { __measure_counters[1]++; n = 0; } else;}
    while (n < 9);
    for (;;) {__measure_counters[0]++; if (({ __auto_type __measure_value = (n); if (__measure_value) { __measure_counters[1]++; } __measure_value; }) ?: 1) {__measure_counters[1]++; break;}}
    return ((p) ? (__measure_counters[1]++, 1) : 0) ? *p : 0;
}
/* 0: loops */
/* 1: taken */
/* 2: here */
volatile unsigned long long __measure_counters[3] __attribute__((aligned(64), used));
