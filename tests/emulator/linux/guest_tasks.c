// Threads, processes, events and code made at run time: what the tests of many tasks run.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn;
static __thread long own;

static void *take_turns(void *number) {
  own = (long)number;
  for (int round = 0; round < 2; round++) {
    pthread_mutex_lock(&lock);
    while (turn % 3 != own) pthread_cond_wait(&changed, &lock);
    printf("turn %d of %ld\n", turn++, own);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
  }
  return (void *)(own * 10);
}

static void threads(void) {
  pthread_t all[3];
  for (long i = 0; i < 3; i++) pthread_create(&all[i], 0, take_turns, (void *)i);
  for (int i = 0; i < 3; i++) {
    void *result;
    pthread_join(all[i], &result);
    printf("joined %ld\n", (long)result);
  }
  sem_t nobody;
  sem_init(&nobody, 0, 0);
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 2;
  int status = sem_timedwait(&nobody, &until);
  printf("timed out %d %d\n", status, errno == ETIMEDOUT);
}

// What these threads leave behind depends on where each turn ends.
static volatile long contended;
static long trail[4096];
static atomic_int n_trail;
static void *contend(void *number) {
  for (int i = 0; i < 3000; i++) {
    long seen = contended;
    for (int k = 0; k < (int)(long)number; k++) seen += k & 1;
    contended = seen + (long)number;
    if (i % 64 == 0) trail[n_trail++] = contended;
  }
  return 0;
}

static void race(void) {
  pthread_t all[4];
  for (long i = 0; i < 4; i++) pthread_create(&all[i], 0, contend, (void *)(i + 1));
  for (int i = 0; i < 4; i++) pthread_join(all[i], 0);
  unsigned long hash = 5381;
  for (int i = 0; i < n_trail; i++) hash = hash * 33 + trail[i];
  printf("%ld %d %lx\n", contended, n_trail, hash);
}

static void forks(const char *self) {
  int ends[2], status, value = 5;
  pipe(ends);
  pid_t child = fork();
  if (!child) {
    static char block[100000];
    value = 9;
    memset(block, 'a', sizeof block);
    long n = write(ends[1], block, sizeof block);
    _exit(n == sizeof block ? 3 : 4);
  }
  close(ends[1]);
  char buffer[4096];
  long n, total = 0;
  while ((n = read(ends[0], buffer, sizeof buffer)) > 0) total += n;
  pid_t ended = wait(&status);
  printf("read %ld from %d, status %d, value %d\n", total, ended == child, WEXITSTATUS(status), value);
  fflush(stdout);
  char *arguments[] = {(char *)self, "print", "spawned", 0};
  int error = posix_spawn(&child, "/proc/self/exe", 0, 0, arguments, environ);
  waitpid(child, &status, 0);
  printf("spawned %d status %d\n", error, WEXITSTATUS(status));
  printf("spawn of nothing %d\n", posix_spawn(&child, "/nothing", 0, 0, arguments, environ) == ENOENT);
  fflush(stdout);
  if (!(child = fork())) pause();
  printf("still there %d\n", waitpid(child, &status, WNOHANG));
  kill(child, SIGTERM);
  waitpid(child, &status, 0);
  printf("killed by %d\n", WTERMSIG(status));
  printf("no more %d\n", wait(&status) == -1 && errno == ECHILD);
  fflush(stdout);
  if (!(child = vfork())) execl(self, self, "print", "after vfork", (char *)0);
  waitpid(child, &status, 0);
  if (!(child = fork())) {
    if (!fork()) {  // an orphan that nobody waits for
      usleep(1000);
      _exit(0);
    }
    _exit(1);
  }
  waitpid(child, &status, 0);
  execl("/script", "script", "argument", (char *)0);
  printf("not executed %d\n", errno);
}

static void shared(void) {
  struct {
    pthread_mutex_t lock;
    sem_t done;
    long sum;
  } *both = mmap(0, 65536, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&both->lock, &kind);
  sem_init(&both->done, 1, 0);
  for (int n = 0; n < 3; n++)
    if (!fork()) {
      for (int i = 0; i < 500; i++) {
        pthread_mutex_lock(&both->lock);
        both->sum += n + 1;
        pthread_mutex_unlock(&both->lock);
      }
      munmap((char *)both + 32768, 32768);
      sem_post(&both->done);
      _exit(0);
    }
  for (int n = 0; n < 3; n++) sem_wait(&both->done);
  printf("sum %ld %d\n", both->sum, ((char *)both)[40000]);
  while (wait(0) > 0) continue;
}

static void crash(void) {
  int status;
  pid_t child = fork();
  if (!child) *(volatile int *)8 = 1;
  waitpid(child, &status, 0);
  printf("crashed by %d\n", WTERMSIG(status));
}

static volatile sig_atomic_t signalled, on_own_stack;
static pthread_t signalled_thread;
static char own_stack[16384];
static void note(int number) {
  char here;
  signalled += number;
  signalled_thread = pthread_self();
  on_own_stack = &here >= own_stack && &here < own_stack + sizeof own_stack;
}
static int wakeup[2];
static void *read_restarted(void *unused) {
  stack_t stack = {.ss_sp = own_stack, .ss_size = sizeof own_stack};
  sigaltstack(&stack, 0);
  char byte = 0;
  long n = read(wakeup[0], &byte, 1);  // interrupted, and issued again
  printf("read %ld %c\n", n, byte);
  n = read(wakeup[0], &byte, 1);
  printf("interrupted %ld %d\n", n, errno == EINTR);
  return 0;
}

static void signals(void) {
  struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART | SA_ONSTACK};
  sigaction(SIGUSR1, &action, 0);
  action.sa_flags = 0;
  sigaction(SIGUSR2, &action, 0);
  pipe(wakeup);
  pthread_t thread;
  pthread_create(&thread, 0, read_restarted, 0);
  usleep(1000);
  pthread_kill(thread, SIGUSR1);
  usleep(1000);
  printf("handled %d in it %d on its stack %d\n", signalled, pthread_equal(signalled_thread, thread), on_own_stack);
  write(wakeup[1], "x", 1);
  usleep(1000);
  pthread_kill(thread, SIGUSR2);
  pthread_join(thread, 0);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  sigprocmask(SIG_BLOCK, &set, 0);
  pid_t child = fork();
  if (!child) _exit(5);
  siginfo_t info;
  sigwaitinfo(&set, &info);
  printf("child %d code %d status %d\n", info.si_pid == child, info.si_code, info.si_status);
  memset(&info, 0, sizeof info);
  waitid(P_ALL, 0, &info, WEXITED);
  printf("waited for %d status %d\n", info.si_pid == child, info.si_status);
}

static void *stir(void *descriptor) {
  usleep(3000);
  uint64_t two = 2;
  write((int)(long)descriptor, &two, 8);
  return 0;
}

static void events(void) {
  int counter = eventfd(0, 0), timer = timerfd_create(CLOCK_MONOTONIC, 0), set = epoll_create1(0), ends[2];
  socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
  struct itimerspec each = {{0, 2000000}, {0, 2000000}};
  timerfd_settime(timer, 0, &each, 0);
  int watched[] = {counter, timer, ends[0]};
  for (int i = 0; i < 3; i++) {
    struct epoll_event event = {EPOLLIN | (i == 2 ? EPOLLET : 0), {.u32 = i}};
    epoll_ctl(set, EPOLL_CTL_ADD, watched[i], &event);
  }
  pthread_t thread;
  pthread_create(&thread, 0, stir, (void *)(long)counter);
  struct epoll_event found[4];
  printf("nothing yet %d\n", epoll_wait(set, found, 4, 1));
  for (int i = 0; i < 3; i++) {
    int n = epoll_wait(set, found, 4, -1);
    uint64_t value = 0;
    read(watched[found[0].data.u32], &value, 8);
    printf("%d ready: %d gives %lu\n", n, (int)found[0].data.u32, (unsigned long)value);
  }
  pthread_join(thread, 0);
  close(timer);
  write(ends[1], "ab", 2);
  printf("edge %d", epoll_wait(set, found, 4, 0));
  printf(" again %d", epoll_wait(set, found, 4, 0));
  write(ends[1], "c", 1);
  printf(" new %d\n", epoll_wait(set, found, 4, 0));
  close(ends[1]);
  struct pollfd one = {ends[0], POLLIN | POLLOUT, 0};
  printf("poll %d %x\n", poll(&one, 1, -1), one.revents & (POLLIN | POLLHUP));
  printf("self %d\n", epoll_ctl(set, EPOLL_CTL_ADD, set, found) == -1);
  fcntl(counter, F_SETFL, O_NONBLOCK);
  uint64_t value;
  printf("empty %d\n", read(counter, &value, 8) == -1 && errno == EAGAIN);
}

static void put_function(uint32_t *at, int added) {
  at[0] = (uint32_t)added << 20 | 10 << 15 | 10 << 7 | 0x13;  // addi a0, a0, added
  at[1] = 0x8067;                                             // ret
}
static long call_often(uint32_t *code, long sum) {
  for (int i = 0; i < 50; i++) sum = ((long (*)(long))code)(sum);
  return sum;
}

static void made_code(void) {
  uint32_t *open_page = mmap(0, 8192, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *page;
  long sum = 0;
  for (int i = 0; i < 6; i++) {
    put_function(open_page, i);
    if (i % 2) __builtin___clear_cache((char *)open_page, (char *)(open_page + 2));
    else __asm__ volatile("fence.i" ::: "memory");
    sum = call_often(open_page, sum);
  }
  printf("rewritten %ld\n", sum);
  page = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < 4; i++) {
    mprotect(page, 4096, 3);
    put_function(page, i);
    mprotect(page, 4096, 5);
    __builtin___clear_cache((char *)page, (char *)(page + 2));
    sum = call_often(page, sum);
  }
  printf("protected %ld\n", sum);
  fflush(stdout);
  if (!fork()) {
    put_function(open_page, 1000);
    __asm__ volatile("fence.i" ::: "memory");
    printf("in the child %ld\n", call_often(open_page, 0));
    fflush(stdout);
    _exit(0);
  }
  wait(0);
  printf("in the parent %ld\n", call_often(open_page, 0));
  munmap(page, 4096);
  page = mmap(page, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  put_function(page, 7);
  printf("mapped anew %ld\n", call_often(page, 0));
}

static void own_files(const char *self) {
  char link[256] = {0}, text[4096] = {0};
  readlink("/proc/self/exe", link, sizeof link - 1);
  printf("exe %d\n", strcmp(link, self) == 0);
  FILE *maps = fopen("/proc/self/maps", "r");
  int n_stack = 0, n_heap = 0, n_program = 0;
  free(malloc(10));
  while (fgets(text, sizeof text, maps)) {
    n_stack += strstr(text, "[stack]") != 0;
    n_heap += strstr(text, "[heap]") != 0;
    n_program += strstr(text, self) != 0;
  }
  printf("maps %d %d %d\n", n_stack, n_heap >= 0, n_program > 0);
  for (const char **path = (const char *[]){"cmdline", "comm", "stat", "statm", "status", "mounts", 0}; *path; path++) {
    snprintf(link, sizeof link, "/proc/self/%s", *path);
    int file = open(link, O_RDONLY);
    memset(text, 0, sizeof text);
    long n = read(file, text, sizeof text - 1);
    printf("%s %d %.12s\n", *path, n > 0, *path[0] == 'c' ? text : "");
    close(file);
  }
  int file = open("/proc/self/fd/1", O_WRONLY);
  printf("fd %d outside %d write %d\n", file, open("/proc/1/mem", O_RDONLY), open("/proc/self/maps", O_WRONLY));
}

static int bomb(const char *what) {
  int n = 0;
  struct rlimit tasks = {what[0] == 't' ? 300 : 60, 4000};  // what all of them are limited to would take long to reach
  setrlimit(RLIMIT_NPROC, &tasks);
  if (!strcmp(what, "processes")) {
    while (fork() >= 0 && n < 1000) n++;  // the children go on, too
    if (getpid() == 1000) printf("stopped %d\n", errno == EAGAIN), fflush(stdout);
    _exit(0);
  }
  if (!strcmp(what, "threads")) {
    pthread_attr_t small;
    pthread_t thread;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    while (!pthread_create(&thread, &small, (void *(*)(void *))pause, 0) && n < 5000) n++;
    printf("stopped %d\n", n < 5000);
  }
  if (!strcmp(what, "memory")) {
    size_t size = 700 << 20;
    char *whole = mmap(0, size, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    whole[0] = 1;
    pid_t first = fork();
    if (!first) pause();
    printf("second fork refused %d\n", fork() == -1 && errno == ENOMEM);
    kill(first, SIGKILL);
  }
  if (!strcmp(what, "descriptors")) {
    while (eventfd(0, 0) >= 0) n++;
    printf("stopped %d\n", errno == EMFILE);
  }
  if (!strcmp(what, "execution")) {
    const char *more = getenv("MORE");
    if (more && atoi(more) > 20) return 0;
    char next[32];
    snprintf(next, sizeof next, "%d", more ? atoi(more) + 1 : 0);
    setenv("MORE", next, 1);
    execl("/proc/self/exe", "guest", "bomb", "execution", (char *)0);
  }
  return 0;
}

// Copies of this process that end, and copies that execute it anew, one after the other; the answer is how many were fine.
static int starts(int times) {
  int status, fine = 0;
  for (int n = 0; n < times; n++) {
    if (!fork()) _exit(n % 7);
    fine += wait(&status) > 0 && WEXITSTATUS(status) == n % 7;
    if (!fork()) execl("/proc/self/exe", "guest", "count", "3", (char *)0);
    fine += wait(&status) > 0 && WEXITSTATUS(status) == 3;
  }
  printf("fine %d\n", fine);
  return 0;
}

int main(int count, char **values) {
  if (count < 2) return 1;
  if (!strcmp(values[1], "threads")) threads();
  if (!strcmp(values[1], "race")) race();
  if (!strcmp(values[1], "forks")) forks(values[0]);
  if (!strcmp(values[1], "shared")) shared();
  if (!strcmp(values[1], "crash")) crash();
  if (!strcmp(values[1], "signals")) signals();
  if (!strcmp(values[1], "events")) events();
  if (!strcmp(values[1], "code")) made_code();
  if (!strcmp(values[1], "files")) own_files(values[0]);
  if (!strcmp(values[1], "starts")) return starts(atoi(values[2]));
  if (!strcmp(values[1], "count")) return atoi(values[2]);
  if (!strcmp(values[1], "bomb")) return bomb(values[2]);
  if (!strcmp(values[1], "wait")) { int nothing[2]; pipe(nothing); if (fork()) wait(0); else read(nothing[0], values, 1); }
  if (!strcmp(values[1], "again")) return execlp(values[0], values[0], "print", "found in PATH", (char *)0);
  if (!strcmp(values[1], "print")) {
    printf("%s: %s\n", values[1], values[2]);
    for (int i = 3; i < count; i++) printf("and %s\n", values[i]);
  }
  return 0;
}
