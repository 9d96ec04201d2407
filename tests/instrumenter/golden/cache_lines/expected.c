extern struct __measure_line { unsigned long long value; char padding[56]; } __measure_counters[2];
# 1 "original.c"
int n;
void f(void)
{ __measure_counters[0].value++;
# 7 "generated.y"
    (__measure_counters[1].value++, n = 1);
}
/* 0: first */
/* 1: second */
struct __measure_line { unsigned long long value; char padding[56]; } __measure_counters[2] __attribute__((aligned(64), used));
