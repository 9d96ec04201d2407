/* The interval sampler of Mytkowicz et al. (section 3.1) as a C runtime of the measured program.
 *
 * On each timer signal: stop the counters, read them, store the record, reset them, restart. What that costs
 * is visible in the trace, as on a real machine. Compiled with
 *   MEASURE_INTERVAL_NANOSECONDS  processor time between signals
 *   MEASURE_HARDWARE_COUNTERS     how many of hpmcounter3.. to read (0 to 29)
 *   MEASURE_SOFTWARE_COUNTERS     length of __measure_counters
 *   MEASURE_COUNTER_STRIDE        its stride in 8-byte words
 *   MEASURE_BUFFER_RECORDS        records held in memory before they are written to the file
 * CSR 0x800 of the machine controls the counters: bit 0 lets them count, writing bit 1 resets them.
 *
 * The first process samples, by its own processor time. Processes that it starts take no records: the hardware counters
 * count in all of them, and __measure_counters of each is its own, so that the machine has to add them up.
 */
#define _GNU_SOURCE
#include "sampler.h"

#ifdef __riscv
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FIRST_PARENT 1 /* what the emulated kernel calls the parent of the first process */
#define COLUMNS (2 + MEASURE_HARDWARE_COUNTERS + MEASURE_SOFTWARE_COUNTERS)

#if MEASURE_SOFTWARE_COUNTERS > 0
extern volatile unsigned long long __measure_counters[];
#endif

static uint64_t buffer[MEASURE_BUFFER_RECORDS][COLUMNS];
static unsigned records;
static int trace = -1;
static pid_t owner;

#define READ_CSR(number, value) __asm__ volatile("csrr %0, " #number : "=r"(value))
#define CONTROL(bits) __asm__ volatile("csrw 0x800, %0" : : "r"((uint64_t)(bits)))
#define HARDWARE(n, number)                     \
    do {                                        \
        if ((n) < MEASURE_HARDWARE_COUNTERS)    \
            READ_CSR(number, record[2 + (n)]);  \
    } while (0)

static void complain(const char *message)
{
    if (write(2, "measure: ", 9) < 0 || write(2, message, strlen(message)) < 0 || write(2, "\n", 1) < 0)
        _exit(125);
}

static void flush(void)
{
    const char *from = (const char *)buffer;
    size_t left = (size_t)records * sizeof buffer[0];
    while (trace >= 0 && left > 0) {
        ssize_t written = write(trace, from, left);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            complain("the trace file cannot be written; the trace ends here");
            close(trace);
            trace = -1;
            break;
        }
        from += written;
        left -= (size_t)written;
    }
    records = 0;
}

static void take_record(void)
{
    uint64_t *record = buffer[records];
    READ_CSR(0xc00, record[0]);
    READ_CSR(0xc02, record[1]);
    HARDWARE(0, 0xc03);
    HARDWARE(1, 0xc04);
    HARDWARE(2, 0xc05);
    HARDWARE(3, 0xc06);
    HARDWARE(4, 0xc07);
    HARDWARE(5, 0xc08);
    HARDWARE(6, 0xc09);
    HARDWARE(7, 0xc0a);
    HARDWARE(8, 0xc0b);
    HARDWARE(9, 0xc0c);
    HARDWARE(10, 0xc0d);
    HARDWARE(11, 0xc0e);
    HARDWARE(12, 0xc0f);
    HARDWARE(13, 0xc10);
    HARDWARE(14, 0xc11);
    HARDWARE(15, 0xc12);
    HARDWARE(16, 0xc13);
    HARDWARE(17, 0xc14);
    HARDWARE(18, 0xc15);
    HARDWARE(19, 0xc16);
    HARDWARE(20, 0xc17);
    HARDWARE(21, 0xc18);
    HARDWARE(22, 0xc19);
    HARDWARE(23, 0xc1a);
    HARDWARE(24, 0xc1b);
    HARDWARE(25, 0xc1c);
    HARDWARE(26, 0xc1d);
    HARDWARE(27, 0xc1e);
    HARDWARE(28, 0xc1f);
#if MEASURE_SOFTWARE_COUNTERS > 0
    for (unsigned n = 0; n < MEASURE_SOFTWARE_COUNTERS; n++)
        record[2 + MEASURE_HARDWARE_COUNTERS + n] = __measure_counters[n * MEASURE_COUNTER_STRIDE];
#endif
    if (++records == MEASURE_BUFFER_RECORDS)
        flush();
}

static void on_timer(int signal)
{
    (void)signal;
    int saved_errno = errno;
    CONTROL(0);
    take_record();
    errno = saved_errno;
    CONTROL(3);
}

static void finish(void)
{
    if (trace < 0 || getpid() != owner) /* a child after fork has a copy of the records, which are not its own */
        return;
    signal(SIGPROF, SIG_IGN);
    CONTROL(0);
    take_record();
    flush();
    if (trace >= 0)
        close(trace);
    trace = -1;
}

/* The C library ends every process here, for exit, _exit and quick_exit. This definition takes the place of its own,
 * since _exit and quick_exit do nothing of what atexit was told, and the records in the buffer would be lost. */
__attribute__((weak)) void _Exit(int status)
{
    finish();
    for (;;)
        syscall(SYS_exit_group, status);
}

__attribute__((constructor)) static void start(void)
{
    struct sigaction action;
    struct sigevent event;
    int timer;
    struct itimerspec interval;
    uint32_t header[2] = {COLUMNS, MEASURE_HARDWARE_COUNTERS};

    if (getppid() != FIRST_PARENT) /* a child executes the same program: the trace is the first process's */
        return;
    owner = getpid();
    trace = open(MEASURE_TRACE_PATH, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (trace < 0 || write(trace, MEASURE_MAGIC, 8) != 8 || write(trace, header, sizeof header) != sizeof header) {
        complain("cannot create " MEASURE_TRACE_PATH);
        exit(125);
    }
    memset(&action, 0, sizeof action);
    action.sa_handler = on_timer;
    action.sa_flags = SA_RESTART;
    sigfillset(&action.sa_mask); /* a handler that ends the program must not do so while a record is written */
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGPROF;
    interval.it_value.tv_sec = interval.it_interval.tv_sec = MEASURE_INTERVAL_NANOSECONDS / 1000000000;
    interval.it_value.tv_nsec = interval.it_interval.tv_nsec = MEASURE_INTERVAL_NANOSECONDS % 1000000000;
    /* By the kernel's calls: the C library's timer_create has code that starts threads, and so would the program. */
    if (sigaction(SIGPROF, &action, 0) || syscall(SYS_timer_create, CLOCK_PROCESS_CPUTIME_ID, &event, &timer) ||
        syscall(SYS_timer_settime, timer, 0, &interval, 0) || atexit(finish)) {
        complain("cannot start the sampling timer");
        exit(125);
    }
    CONTROL(3);
}
#endif
