extern volatile unsigned long long __measure_counters[3];
# 1 "input.c"
static int sent;
static void send(const char *data, int length)
{ __measure_counters[1] += (unsigned long long)(long long)(length / 2);
    sent += data ? length : 0;
}
int main(void)
{
    for (int length = 0; length < 5; length++)
        (__measure_counters[0] += (unsigned long long)(long long)(length), __measure_counters[2]++, send("abcdef", length));
    return sent - 10;
}
/* 0: bytes */
/* 1: halves */
/* 2: sends */
volatile unsigned long long __measure_counters[3] __attribute__((aligned(64), used));
