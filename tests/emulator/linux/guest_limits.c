// Limits, and executing programs by other names than their paths. The first argument says which part.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "guest_helpers.h"

static volatile sig_atomic_t warnings;
static double warned_at[8];

static double used(void) {
  struct timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return time.tv_sec + time.tv_nsec / 1e9;
}

static void on_limit(int signal) {
  if (warnings < 8) warned_at[warnings] = used();
  warnings++;
}

static void set(int resource, rlim_t soft, rlim_t hard) {
  struct rlimit limit = {soft, hard};
  if (setrlimit(resource, &limit)) printf("setrlimit: %s\n", strerror(errno));
}

static void tell(int resource) {
  struct rlimit limit;
  getrlimit(resource, &limit);
  printf("limit %lld %lld\n", (long long)limit.rlim_cur, (long long)limit.rlim_max);
}

static void spin(double seconds) {
  while (used() < seconds) {
    for (volatile int i = 0; i < 100000; i++) continue;
  }
}

static void processor_time(void) {
  pid_t child = guarded_fork();
  if (!child) {  // not caught: the soft limit ends it
    set(RLIMIT_CPU, 1, 3);
    spin(5);
    _exit(0);
  }
  wait_for(child, 0);
  child = guarded_fork();
  if (!child) {  // caught each second until the hard limit
    signal(SIGXCPU, on_limit);
    set(RLIMIT_CPU, 1, 3);
    spin(2.5);
    printf("warned %d: %.0f %.0f\n", warnings, warned_at[0], warned_at[1]);
    tell(RLIMIT_CPU);
    fflush(stdout);
    signal(SIGXCPU, SIG_IGN);
    spin(5);
    _exit(0);
  }
  wait_for(child, 0);
  set(RLIMIT_CPU, 1, 1);
  child = guarded_fork();  // it inherits the limit, and not the time; a sleep costs nothing
  if (!child) {
    struct timespec long_time = {3, 0};
    nanosleep(&long_time, 0);
    execl("/proc/self/exe", "guest", "spin", (char *)0);
  }
  wait_for(child, 0);
}

static int starts(int wanted, pid_t *children) {  // how many children can be had
  int count = 0;
  while (count < wanted) {
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) break;
    if (!child) {
      pause();
      _exit(0);
    }
    children[count++] = child;
  }
  return count;
}

static void many(int wanted) {
  static pid_t children[8192];
  struct rlimit limit;
  getrlimit(RLIMIT_NPROC, &limit);
  printf("allowed %d\n", limit.rlim_cur >= 4096 && limit.rlim_cur != RLIM_INFINITY);
  int count = starts(wanted, children);
  printf("started %d\n", count);
  for (int i = 0; i < count; i++) kill(children[i], SIGKILL);
  int ended = 0;
  while (wait(0) > 0) ended++;
  printf("ended %d\n", ended);
}

static void at_limit(void) {
  static pid_t children[100];
  set(RLIMIT_NPROC, 10, 20);
  int count = starts(100, children), error = errno;
  printf("at the limit %d %s\n", count, strerror(error));
  for (int i = 0; i < count; i++) kill(children[i], SIGKILL);
  count = starts(100, children);
  printf("not waited for %d\n", count);
  while (wait(0) > 0) continue;
  set(RLIMIT_NPROC, 15, 20);
  count = starts(100, children);
  printf("raised %d\n", count);
  for (int i = 0; i < count; i++) kill(children[i], SIGKILL);
  while (wait(0) > 0) continue;
  struct rlimit limit = {3, 20}, old;
  pid_t child = guarded_fork();
  if (!child) {
    pause();
    _exit(0);
  }
  printf("of a child %d", prlimit(child, RLIMIT_NPROC, &limit, &old));
  printf(" was %d", (int)old.rlim_cur);
  prlimit(child, RLIMIT_NPROC, 0, &old);
  printf(" is %d\n", (int)old.rlim_cur);
  tell(RLIMIT_NPROC);
  kill(child, SIGKILL);
  wait_for(child, 0);
}

// --- executing

static void executed(const char *path, int descriptor) {
  char *arguments[] = {"guest", "say", (char *)path, 0}, *nothing[] = {0};
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    if (descriptor < 0) execve(path, arguments, nothing);
    else syscall(SYS_execveat, descriptor, "", arguments, nothing, AT_EMPTY_PATH);
    printf("%s: %s\n", path, strerror(errno));
    fflush(stdout);
    _exit(9);
  }
  wait_for(child, 0);
}

static void copy_to(int target) {
  static char data[1 << 16];
  int source = open("/proc/self/exe", O_RDONLY);
  for (ssize_t n; (n = read(source, data, sizeof data)) > 0;) write(target, data, n);
  close(source);
}

static void executes(void) {
  char path[40];
  if (chdir("/tmp")) printf("no /tmp\n");
  executed("/proc/self/exe", -1);
  sprintf(path, "/proc/%d/exe", getpid());
  executed(path, -1);
  int own = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  dup2(own, 50);
  executed("/proc/self/fd/50", -1);
  executed("/dev/fd/50", -1);
  executed("(descriptor)", own);
  int memory = memfd_create("program", MFD_CLOEXEC);
  copy_to(memory);
  executed("(memory)", memory);
  int file = open("/tmp/program", O_RDWR | O_CREAT | O_TRUNC, 0755);
  copy_to(file);
  close(file);
  file = open("/tmp/program", O_RDONLY | O_CLOEXEC);
  unlink("/tmp/program");
  executed("(no name)", file);
  file = open("/tmp/script", O_RDWR | O_CREAT | O_TRUNC, 0755);
  write(file, "#!/proc/self/exe say\n", 21);
  close(file);
  file = open("/tmp/script", O_RDONLY);
  executed("(script)", file);
  int ends[2];
  pipe(ends);
  executed("(pipe)", ends[0]);
  executed("(none)", 77);
  file = open("/tmp/data", O_RDWR | O_CREAT | O_TRUNC, 0644);
  executed("(not executable)", file);
  executed("", -1);
}

static const char *said(long result) {
  static char text[60];
  sprintf(text, "%ld%s%s", result, result < 0 ? " " : "", result < 0 ? strerror(errno) : "");
  return text;
}

static void priorities(void) {
  struct sched_param none = {0}, high = {5};
  printf("at first %s\n", said(getpriority(PRIO_PROCESS, 0)));
  printf("lower %s", said(setpriority(PRIO_PROCESS, 0, 5)));
  printf(" is %s", said(getpriority(PRIO_PROCESS, getpid())));
  printf(" of the group %s\n", said(getpriority(PRIO_PGRP, 0)));
  pid_t child = guarded_fork();
  if (!child) {
    printf("inherited %s", said(getpriority(PRIO_PROCESS, 0)));
    printf(" most %s", said(setpriority(PRIO_PROCESS, 0, 99)));
    printf(" is %s\n", said(getpriority(PRIO_PROCESS, 0)));
    fflush(stdout);
    _exit(0);
  }
  wait_for(child, 0);
  printf("whose %s", said(getpriority(7, 0)));
  printf(" nobody's %s", said(getpriority(PRIO_PROCESS, 4000000)));
  printf(" %s\n", said(setpriority(PRIO_PGRP, 4000000, 5)));
  printf("policy %s", said(syscall(SYS_sched_setscheduler, 0, SCHED_BATCH, &none)));
  printf(" is %s", said(syscall(SYS_sched_getscheduler, 0)));
  printf(" bad %s", said(syscall(SYS_sched_setscheduler, 0, 77, &none)));
  printf(" priority %s", said(syscall(SYS_sched_setscheduler, 0, SCHED_BATCH, &high)));
  printf(" nobody's %s", said(syscall(SYS_sched_getscheduler, 4000000)));
  printf(" %s\n", said(syscall(SYS_sched_getparam, -1, &none)));
  printf("real time %s", said(sched_get_priority_min(SCHED_RR)));
  printf(" %s", said(sched_get_priority_max(SCHED_FIFO)));
  printf(" others %s", said(sched_get_priority_max(SCHED_OTHER)));
  printf(" bad %s\n", said(sched_get_priority_max(-23)));
  unsigned long mask[16];
  printf("processors %s", said(syscall(SYS_sched_getaffinity, -1, sizeof mask, mask)));
  printf(" of a process %s", said(syscall(SYS_pidfd_open, -1, 0)));
  printf(" %s\n", said(syscall(SYS_pidfd_open, 4000000, 0)));
  printf("init %s", said(syscall(SYS_sched_getscheduler, 1)));
  signal(SIGUSR1, SIG_IGN);
  signal(SIGUSR2, on_limit);
  int own = open("/proc/self", O_RDONLY | O_DIRECTORY), file = open("/proc/self/status", O_RDONLY);
  printf(" by the directory %s", said(syscall(SYS_pidfd_send_signal, own, SIGUSR2, 0, 0)));
  printf(" came %d", warnings);
  printf(" by another %s", said(syscall(SYS_pidfd_send_signal, file, SIGUSR2, 0, 0)));
  static char text[4096];
  read(file, text, sizeof text - 1);
  unsigned long long ignored = 0, caught = 0;
  sscanf(strstr(text, "SigIgn:"), "SigIgn: %llx\nSigCgt: %llx", &ignored, &caught);
  printf(" ignored %d caught %d\n", !!(ignored & 1 << (SIGUSR1 - 1)), !!(caught & 1 << (SIGUSR2 - 1)));
}

int main(int count, char **arguments) {
  const char *what = arguments[1];
  if (!strcmp(what, "spin")) spin(5);
  else if (!strcmp(what, "processor")) processor_time();
  else if (!strcmp(what, "many")) many(atoi(arguments[2]));
  else if (!strcmp(what, "limit")) at_limit();
  else if (!strcmp(what, "executes")) executes();
  else if (!strcmp(what, "priorities")) priorities();
  else if (!strcmp(what, "say")) printf("executed %s\n", arguments[count - 1]);
  return 0;
}
