/* The interval sampler on the processor that compiles the program, by Linux's perf_event_open.
 *
 * As the guest's sampler (sampler.c; Mytkowicz et al., section 3.1): at the end of each interval the counters stop, a
 * handler reads and resets them and starts them again. Intervals are of the main thread's processor time. The leader of
 * the group of counters is a clock that overflows at the end of an interval, which stops the whole group at once; so what the
 * handler does is not counted. Other threads and child processes are not counted, but how many processes are started is:
 * the kernel writes a record of each into a ring (perf_event_open(2), attribute `task`), whether by fork, vfork or clone, as
 * posix_spawn and system do it. Of other threads fork alone is seen. The processor time that others take is recorded: of
 * other threads, whose software counters are the same; of processes; and of the main thread until the handler comes, which is
 * long after the interval where the program blocks SIGPROF or handles it itself.
 *
 * A program that replaces itself by exec has one trace, of the program before: an instrumented one fails when it finds the
 * trace, and after any other the trace is not marked as complete.
 *
 * The environment variable MEASURE_HOST has, separated by spaces:
 *   path of the trace file, length of the first interval and of the others [ns], bytes to move the heap by,
 *   whether to leave out the kernel (0 or 1), number of the process to measure, then TYPE:CONFIG of each event, for
 *   perf_event_open.
 * Without the variable the program runs unsampled: many builds make a program and run it, to generate sources or as a test.
 * Compiled with
 *   MEASURE_SOFTWARE_COUNTERS     length of __measure_counters
 *   MEASURE_COUNTER_STRIDE        its stride in 8-byte words
 *   MEASURE_BUFFER_RECORDS        records held in memory before they are written to the file
 *
 * The file, little-endian as the processor: magic "MSRHST3\n", u32 columns, u32 events, u32 whether the trace is complete
 * (0 or 1), u32 unused, then a record of u64 an interval:
 *   time-stamp counter [ticks], processor time [ns]: of this interval
 *   context switches of the thread, time for which the group was enabled, and for which it was counting [ns]: totals
 *   number of the processor
 *   processes that this one has started: total
 *   processor time of other threads, and of processes that this one waited for [ns]: totals
 *   processor time of the main thread in this interval and after it, until the handler came [ns]: by a clock that has no
 *   time for which a virtual machine stood still, as the processor time above has
 *   events: in this interval
 *   software counters: totals
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST_EVENTS 32
#define FIXED 10
#define COLUMNS (FIXED + n_events + MEASURE_SOFTWARE_COUNTERS)
#define MOST_COLUMNS (FIXED + MOST_EVENTS + MEASURE_SOFTWARE_COUNTERS)
#define RING_PAGES 16  /* a power of two; 2048 records of 32 bytes, between two ends of intervals */
#define COMPLETE_AT 16 /* in the file */
#define FIRST_FILE 900 /* the program gets the low numbers, as without the sampler */

#if MEASURE_SOFTWARE_COUNTERS > 0
extern volatile unsigned long long __measure_counters[];
#endif

static uint64_t buffer[MEASURE_BUFFER_RECORDS * MOST_COLUMNS];
static unsigned records, n_events;
static int trace = -1, group = -1;
static uint64_t period, started, time_at_start, time_of_others;
static pid_t owner;
static struct perf_event_mmap_page *ring;
static uint64_t forks_in_ring, ring_bytes;
static volatile uint64_t forks_elsewhere; /* by other threads */

static uint64_t ticks(void)
{
#if defined(__x86_64__)
    uint32_t low, high;
    __asm__ volatile("lfence\n\trdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
#elif defined(__aarch64__)
    uint64_t now;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(now));
    return now;
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
#endif
}

/* Processor time [ns]; 0 for a clock that is not there. */
static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    return clock_gettime(clock, &now) ? 0 : (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Processor time of the main thread [ns], whichever thread asks: the number of the clock is as in pthread_getcpuclockid. */
static uint64_t main_thread_ns(void)
{
    return clock_ns((clockid_t)((-(unsigned)owner - 1) * 8 + 6));
}

/* Processor time of all threads but the main one so far [ns]: exactly 0 with one thread, as its clock is read last. */
static uint64_t other_threads_ns(void)
{
    uint64_t process = clock_ns(CLOCK_PROCESS_CPUTIME_ID), main_thread = main_thread_ns();
    if (process > main_thread && process - main_thread > time_of_others)
        time_of_others = process - main_thread;
    return time_of_others;
}

static uint64_t children_ns(void)
{
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    return 1000 * (1000000 * (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                   (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec));
}

static void fail(const char *message)
{
    if (write(2, "measure: ", 9) > 0 && write(2, message, strlen(message)) > 0)
        (void)!write(2, "\n", 1);
    for (;;) /* not _exit, which writes the last records */
        syscall(SYS_exit_group, 125);
}

static void flush(void)
{
    const char *from = (const char *)buffer;
    size_t left = (size_t)records * COLUMNS * sizeof buffer[0];
    while (left > 0) {
        ssize_t written = write(trace, from, left);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            fail("the trace file cannot be written");
        from += written;
        left -= (size_t)written;
    }
    records = 0;
}

static void from_ring(void *to, uint64_t at, size_t size)
{
    const unsigned char *data = (const unsigned char *)ring + ring->data_offset;
    for (size_t n = 0; n < size; n++)
        ((unsigned char *)to)[n] = data[(at + n) % ring_bytes];
}

/* The processes that this one has started, by the records that the kernel has written since the last call, too. */
static uint64_t forks(void)
{
    uint64_t head = __atomic_load_n(&ring->data_head, __ATOMIC_ACQUIRE), at = ring->data_tail;
    while (at < head) {
        struct {
            struct perf_event_header header;
            union {
                struct {
                    uint32_t process, parent;
                } task;
                struct {
                    uint64_t event, count;
                } lost;
            } of;
        } one;
        from_ring(&one, at, sizeof one);
        if (one.header.type == PERF_RECORD_FORK && one.of.task.process != one.of.task.parent) /* not a thread */
            forks_in_ring++;
        if (one.header.type == PERF_RECORD_LOST)
            forks_in_ring += one.of.lost.count;
        at += one.header.size;
    }
    __atomic_store_n(&ring->data_tail, at, __ATOMIC_RELEASE);
    return forks_in_ring + forks_elsewhere;
}

static void take_record(void)
{
    struct {
        uint64_t count, enabled, running, values[1 + MOST_EVENTS];
    } read_group;
    struct rusage usage;
    unsigned processor = 0;
    uint64_t *record = buffer + (size_t)records * COLUMNS;
    uint64_t now = ticks(), ran = main_thread_ns() - time_at_start;
    if (read(group, &read_group, sizeof read_group) < 0)
        fail("the counters cannot be read: expected a program that closes no files that it has not opened");
    record[0] = now - started;
    record[1] = read_group.values[0];
    getrusage(RUSAGE_THREAD, &usage);
    syscall(SYS_getcpu, &processor, 0, 0);
    record[2] = (uint64_t)usage.ru_nvcsw + (uint64_t)usage.ru_nivcsw;
    record[3] = read_group.enabled;
    record[4] = read_group.running;
    record[5] = processor;
    record[6] = forks();
    record[7] = other_threads_ns();
    record[8] = children_ns();
    record[9] = ran;
    memcpy(record + FIXED, read_group.values + 1, n_events * sizeof record[0]);
#if MEASURE_SOFTWARE_COUNTERS > 0
    for (unsigned n = 0; n < MEASURE_SOFTWARE_COUNTERS; n++)
        record[FIXED + n_events + n] = __measure_counters[n * MEASURE_COUNTER_STRIDE];
#endif
    if (++records == MEASURE_BUFFER_RECORDS)
        flush();
}

/* Let the group count until its clock overflows once. */
static void resume(void)
{
    ioctl(group, PERF_EVENT_IOC_RESET, PERF_IOC_FLAG_GROUP);
    time_at_start = main_thread_ns();
    started = ticks();
    if (ioctl(group, PERF_EVENT_IOC_REFRESH, 1) < 0)
        fail("the counters cannot be started");
}

static void on_overflow(int signal)
{
    static int began;
    int saved_errno = errno;
    (void)signal;
    if (trace < 0 || getpid() != owner)
        return;
    take_record();
    if (!began) {
        ioctl(group, PERF_EVENT_IOC_PERIOD, &period);
        began = 1;
    }
    resume();
    errno = saved_errno;
}

static void finish(void)
{
    static const uint32_t complete = 1;
    if (trace < 0 || getpid() != owner) /* a child after fork has no trace */
        return;
    signal(SIGPROF, SIG_IGN);
    ioctl(group, PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP);
    take_record();
    flush();
    if (pwrite(trace, &complete, sizeof complete, COMPLETE_AT) != sizeof complete)
        fail("the trace file cannot be written");
    close(trace);
    trace = -1;
}

/* See sampler.c: _exit and quick_exit do nothing of what atexit was told, and the records in the buffer would be lost. */
__attribute__((weak)) void _Exit(int status)
{
    finish();
    for (;;)
        syscall(SYS_exit_group, status);
}

/* In place of the C library's, by which all its functions replace a program: an interval that ended meanwhile would send
 * SIGPROF to a program that has no handler for it. */
__attribute__((weak)) int execve(const char *path, char *const arguments[], char *const environment[])
{
    int sampled = trace >= 0 && getpid() == owner, failure;
    if (sampled)
        ioctl(group, PERF_EVENT_IOC_DISABLE, 0);
    syscall(SYS_execve, path, arguments, environment);
    failure = errno;
    if (sampled)
        ioctl(group, PERF_EVENT_IOC_ENABLE, 0);
    errno = failure;
    return -1;
}

static void on_fork(void)
{
    if ((pid_t)syscall(SYS_gettid) != owner)
        forks_elsewhere++;
}

static int high(int file)
{
    int moved = file < 0 ? -1 : fcntl(file, F_DUPFD_CLOEXEC, FIRST_FILE);
    if (file >= 0 && moved < 0)
        fail("the limit of open files is too low: expected at least 1000 (`ulimit -n 1000`)");
    if (file >= 0)
        close(file);
    return moved;
}

static int open_event(uint32_t type, uint64_t config, uint64_t first, int without_kernel)
{
    struct perf_event_attr wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.size = sizeof wanted;
    wanted.type = type;
    wanted.config = config;
    wanted.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    wanted.exclude_kernel = (unsigned)without_kernel & 1;
    wanted.exclude_hv = 1;
    if (group < 0) {
        wanted.disabled = 1;
        wanted.sample_period = first;
        wanted.wakeup_events = 1;
    }
    return high((int)syscall(SYS_perf_event_open, &wanted, 0, -1, group, PERF_FLAG_FD_CLOEXEC));
}

static void open_ring(void)
{
    struct perf_event_attr wanted;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    int event;
    void *mapped;
    memset(&wanted, 0, sizeof wanted);
    wanted.size = sizeof wanted;
    wanted.type = PERF_TYPE_SOFTWARE;
    wanted.config = PERF_COUNT_SW_DUMMY;
    wanted.task = 1;
    wanted.exclude_kernel = 1;
    wanted.exclude_hv = 1;
    event = high((int)syscall(SYS_perf_event_open, &wanted, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
    ring_bytes = RING_PAGES * page;
    mapped = event < 0 ? MAP_FAILED : mmap(0, page + ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, event, 0);
    if (mapped == MAP_FAILED)
        fail("Linux refuses to record which processes are started (kernel.perf_event_mlock_kb)");
    madvise(mapped, page + ring_bytes, MADV_DONTFORK);
    ring = mapped;
}

static uint64_t number(char **text)
{
    char *end;
    uint64_t value = strtoull(*text, &end, 0);
    if (end == *text)
        fail("MEASURE_HOST is damaged");
    *text = *end ? end + 1 : end;
    return value;
}

__attribute__((constructor)) static void start(void)
{
    struct sigaction action;
    struct f_owner_ex thread;
    uint32_t header[4] = {0};
    char *text = getenv("MEASURE_HOST"), *space = text ? strchr(text, ' ') : 0;
    char path[256];
    uint64_t first, heap;
    int without_kernel;

    if (!text) /* a build runs what it has made, or somebody starts the program by hand: nothing is sampled */
        return;
    if (!space || (size_t)(space - text) >= sizeof path)
        fail("MEASURE_HOST is damaged");
    memcpy(path, text, (size_t)(space - text));
    path[space - text] = 0;
    text = space + 1;
    first = number(&text);
    period = number(&text);
    heap = number(&text);
    without_kernel = (int)number(&text);
    owner = (pid_t)number(&text);
    if (getpid() != owner) /* a child executes the same program: the trace is the first process's */
        return;
    trace = high(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (trace < 0 && access(path, F_OK) == 0)
        fail("the program has replaced itself by exec, and what it counted before is lost. Expected a "
             "program that stays the same until it ends: measure the program that it executes, or use an emulated machine");
    if (trace < 0)
        fail("the trace file cannot be created");
    if (heap) { /* musl's allocator begins at the break, and takes more from below the last mapping */
        syscall(SYS_brk, (uint64_t)syscall(SYS_brk, 0) + heap);
        mmap(0, heap, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    group = open_event(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, first, without_kernel);
    if (group < 0)
        fail("Linux refuses perf_event_open");
    while (*text) {
        uint32_t type = (uint32_t)number(&text);
        uint64_t config = number(&text);
        if (n_events == MOST_EVENTS || open_event(type, config, 0, without_kernel) < 0)
            fail("Linux refuses one of the events");
        n_events++;
    }
    open_ring();
    header[0] = COLUMNS;
    header[1] = n_events;
    if (write(trace, "MSRHST3\n", 8) != 8 || write(trace, header, sizeof header) != sizeof header)
        fail("the trace file cannot be written");
    memset(&action, 0, sizeof action);
    action.sa_handler = on_overflow;
    action.sa_flags = SA_RESTART;
    sigfillset(&action.sa_mask); /* a handler that ends the program must not do so while a record is written */
    thread.type = F_OWNER_TID;
    thread.pid = (pid_t)syscall(SYS_gettid);
    if (sigaction(SIGPROF, &action, 0) || fcntl(group, F_SETFL, O_ASYNC) || fcntl(group, F_SETSIG, SIGPROF) ||
        fcntl(group, F_SETOWN_EX, &thread) || pthread_atfork(0, on_fork, 0) || atexit(finish))
        fail("the sampling clock cannot be started");
    resume();
}
