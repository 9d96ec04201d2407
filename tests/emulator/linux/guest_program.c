/* What C programs ask of the kernel, one subject a subcommand; run as `guest SUBJECT`. Prints what it saw. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t caught, order;
static double fp_kept = 1.25;
static void *handler_stack;

static void on_signal(int number) {
    caught = number;
    order++;
}

static void on_info(int number, siginfo_t *info, void *context) {
    ucontext_t *uc = context;
    volatile double scratch = 3.0; /* clobbers floating-point registers */
    scratch *= fp_kept;
    caught = number;
    order++;
    handler_stack = &uc;
    printf("info %d code %d value %d\n", info->si_signo, info->si_code, info->si_value.sival_int);
}

static int memory(void) {
    size_t total = 0;
    char *blocks[64];
    for (int i = 0; i < 64; i++) {
        size_t size = (size_t)1 << (4 + i % 15);
        blocks[i] = malloc(size);
        memset(blocks[i], i, size);
        total += size;
    }
    char *grown = malloc(1 << 18);
    for (int i = 0; i < 1 << 18; i++) grown[i] = (char)(i * 7);
    grown = realloc(grown, 4 << 20); /* mremap */
    int wrong = 0;
    for (int i = 0; i < 1 << 18; i++) wrong += grown[i] != (char)(i * 7);
    for (int i = 0; i < 64; i++) {
        wrong += blocks[i][0] != i;
        free(blocks[i]);
    }
    free(grown);
    char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[5000] = 1;
    wrong += mprotect(page, 4096, PROT_READ) != 0;
    wrong += madvise(page + 4096, 4096, MADV_DONTNEED) != 0 || page[5000] != 0;
    wrong += munmap(page, 8192) != 0;
    wrong += mmap(0, (size_t)1 << 40, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED || errno != ENOMEM;
    printf("allocated %zu wrong %d\n", total, wrong);
    return wrong;
}

static int files(void) {
    FILE *out = fopen("/out/result.txt", "w");
    if (!out) return perror("/out/result.txt"), 1;
    for (int i = 0; i < 1000; i++) fprintf(out, "line %d\n", i);
    fclose(out);
    out = fopen("/out/result.txt", "r+");
    fseek(out, 5, SEEK_SET);
    fputs("X", out);
    fclose(out);
    struct stat status;
    stat("/out/result.txt", &status);
    printf("size %ld regular %d\n", (long)status.st_size, S_ISREG(status.st_mode));
    printf("input %s", fgets((char[64]){0}, 64, fopen("/data/in/hello.txt", "r")));
    DIR *directory = opendir("/data/in");
    for (struct dirent *entry; (entry = readdir(directory));) printf("entry %s %d\n", entry->d_name, entry->d_type);
    closedir(directory);
    printf("absent %d %s\n", open("/etc/passwd", O_RDONLY), strerror(errno));
    printf("refused %d %s\n", open("/data/in/hello.txt", O_RDWR), strerror(errno));
    printf("access %d %d\n", access("/data/in/hello.txt", R_OK), access("/data/in/none", R_OK));
    char *map = mmap(0, 100, PROT_READ, MAP_PRIVATE, open("/data/in/hello.txt", O_RDONLY), 0);
    printf("mapped %.5s\n", map);
    chdir("/data");
    char here[100];
    printf("cwd %s\n", getcwd(here, sizeof here));
    printf("relative %d\n", open("in/hello.txt", O_RDONLY) > 2);
    int ends[2];
    pipe(ends);
    write(ends[1], "piped", 5);
    char text[6] = {0};
    read(ends[0], text, 5);
    printf("pipe %s\n", text);
    mkdir("/out/sub", 0755);
    rename("/out/result.txt", "/out/sub/moved.txt");
    printf("moved %d gone %d\n", access("/out/sub/moved.txt", F_OK), access("/out/result.txt", F_OK));
    int byte = getchar();
    printf("stdin %c", byte);
    for (char line[64]; fgets(line, sizeof line, stdin);) printf("|%s", line);
    dup2(1, 9);
    dprintf(9, "duplicated\n");
    fprintf(stderr, "to stderr\n");
    return 0;
}

static long long nanoseconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int times_(void) {
    long long start = nanoseconds(CLOCK_MONOTONIC), cpu = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
    usleep(1500000);
    long long slept = nanoseconds(CLOCK_MONOTONIC) - start, used = nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    printf("slept %lld used_little %d\n", slept / 100000000, used < 10000000);
    printf("year %ld\n", 1970 + (long)(time(0) / 31556952));
    struct timeval soon = {0, 250000};
    printf("select %d\n", select(0, 0, 0, 0, &soon));
    printf("poll %d\n", poll(0, 0, 30));
    struct pollfd ready = {1, POLLOUT | POLLIN, 0};
    printf("poll %d %d\n", poll(&ready, 1, -1), ready.revents == POLLOUT);
    struct rusage usage;
    printf("rusage %d\n", getrusage(RUSAGE_SELF, &usage));
    printf("clock %d\n", clock() >= 0);
    return 0;
}

static int signals(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, 0);
    raise(SIGUSR1);
    printf("raised %d\n", caught);

    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &old);
    order = 0;
    raise(SIGUSR1);
    raise(SIGUSR1);
    int before = order;
    sigprocmask(SIG_SETMASK, &old, 0);
    printf("blocked %d then %d\n", before, order);

    static char stack[32768];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alternate, 0);
    action.sa_handler = 0;
    action.sa_sigaction = on_info;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGUSR2, &action, 0);
    volatile double kept = fp_kept * 2;
    register double in_register = kept;
    kill(getpid(), SIGUSR2);
    int on_stack = (char *)handler_stack > stack && (char *)handler_stack < stack + sizeof stack;
    printf("on alternate stack %d kept %.2f\n", on_stack, in_register);

    sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_signal}, 0);
    caught = 0;
    alarm(2);
    int left = sleep(10);
    printf("alarm %d left %d\n", caught, left);

    order = 0;
    struct itimerval period = {{0, 1000}, {0, 1000}};
    sigaction(SIGPROF, &(struct sigaction){.sa_handler = on_signal, .sa_flags = SA_RESTART}, 0);
    setitimer(ITIMER_PROF, &period, 0);
    while (order < 5) {
    }
    setitimer(ITIMER_PROF, &(struct itimerval){0}, 0);
    printf("profiled %d\n", caught);

    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2, .sigev_value.sival_int = 77};
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    timer_settime(timer, 0, &(struct itimerspec){.it_value = {0, 5000000}}, 0);
    sigset_t none;
    sigemptyset(&none);
    printf("suspend %d\n", sigsuspend(&none));
    timer_delete(timer);

    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, 0);
    raise(SIGUSR1);
    printf("waited %d\n", sigwaitinfo(&set, 0));
    signal(SIGPIPE, SIG_IGN);
    int ends[2];
    pipe(ends);
    close(ends[0]);
    printf("broken %zd %s\n", write(ends[1], "x", 1), strerror(errno));
    abort();
}

static int identity(int argc, char **argv) {
    struct utsname name;
    uname(&name);
    printf("%s %s %d %s\n", name.sysname, name.machine, argc, argv[argc - 1]);
    printf("VARIABLE=%s\n", getenv("VARIABLE"));
    printf("page %lu secure %lu hwcap %lx execfn %s\n", getauxval(AT_PAGESZ), getauxval(AT_SECURE),
           getauxval(AT_HWCAP), (char *)getauxval(AT_EXECFN));
    printf("processors %ld\n", sysconf(_SC_NPROCESSORS_ONLN));
    unsigned char bytes[4];
    getrandom(bytes, 4, 0);
    printf("random %02x%02x%02x%02x\n", bytes[0], bytes[1], bytes[2], bytes[3]);
    struct rlimit limit;
    getrlimit(RLIMIT_STACK, &limit);
    printf("stack %ld\n", (long)limit.rlim_cur);
    jmp_buf place;
    if (!setjmp(place)) longjmp(place, 1);
    return 7;
}

int main(int argc, char **argv) {
    setvbuf(stdout, 0, _IOLBF, 1024);
    const char *subject = argc > 1 ? argv[1] : "";
    if (!strcmp(subject, "memory")) return memory();
    if (!strcmp(subject, "files")) return files();
    if (!strcmp(subject, "times")) return times_();
    if (!strcmp(subject, "signals")) return signals();
    return identity(argc, argv);
}
