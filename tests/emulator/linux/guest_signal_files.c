// Signals that are read from a file (signalfd).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int fd;

static int ready(void) {
  struct pollfd one = {fd, POLLIN | POLLOUT, 0};
  return poll(&one, 1, 0) * 100 + one.revents;
}

static void show(const char *what, long count) {
  struct signalfd_siginfo all[4];
  memset(all, 0xEE, sizeof all);
  long n = read(fd, all, count);
  printf("%s: %ld%s\n", what, n, n < 0 && errno == EAGAIN ? " again" : n < 0 && errno == EINVAL ? " invalid" : "");
  for (int i = 0; i < (int)(n / (long)sizeof *all); i++)
    printf("  %u code %d mine %d value %d pointer %d status %d rest %d\n", all[i].ssi_signo, all[i].ssi_code,
           all[i].ssi_pid == getpid(), all[i].ssi_int, (int)all[i].ssi_ptr, all[i].ssi_status,
           all[i].ssi_addr || all[i].ssi_band || all[i].ssi_fd || all[i].__pad[0]);
}

static void *other(void *main_thread) {
  show("thread", sizeof(struct signalfd_siginfo));
  pthread_kill(*(pthread_t *)main_thread, SIGUSR2);
  return 0;
}

int main(int count, char **arguments) {
  setvbuf(stdout, 0, _IONBF, 0);
  if (count > 1 && !strcmp(arguments[1], "executed")) {  // the pending signal and the descriptor are still there
    fd = 8;
    show("executed", 1000);
    printf("closed %d\n", fcntl(9, F_GETFD) == -1);
    return 0;
  }
  sigset_t set, none;
  sigemptyset(&none);
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigaddset(&set, SIGUSR2);
  sigaddset(&set, SIGCHLD);
  sigaddset(&set, SIGRTMIN + 2);
  sigaddset(&set, SIGKILL);
  sigprocmask(SIG_BLOCK, &set, 0);
  fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  printf("flags %d %d\n", fcntl(fd, F_GETFD), !!(fcntl(fd, F_GETFL) & O_NONBLOCK));
  if (count > 1) {  // what QEMU does not check, or cannot do
    printf("size %ld %d\n", syscall(SYS_signalfd4, -1, &set, 4, 0), errno);
    kill(getpid(), SIGUSR2);
    dup3(fd, 9, O_CLOEXEC);
    dup2(fd, 8);
    execl("/proc/self/exe", arguments[0], "executed", (char *)0);
  }
  char name[64] = {0}, link[32];
  sprintf(link, "/proc/self/fd/%d", fd);
  readlink(link, name, 60);
  printf("%s\n", name);
  show("nothing", 1000);
  show("short", 127);
  printf("ready %d\n", ready());
  kill(getpid(), SIGUSR2);
  sigqueue(getpid(), SIGRTMIN + 2, (union sigval){.sival_int = 7});
  sigqueue(getpid(), SIGRTMIN + 2, (union sigval){.sival_int = 8});
  raise(SIGUSR1);
  kill(getpid(), SIGUSR2);
  printf("ready %d\n", ready());
  show("two", 2 * sizeof(struct signalfd_siginfo) + 5);
  show("rest", 1000);
  printf("ready %d\n", ready());
  printf("write %ld %d\n", (long)write(fd, "12345678", 8), errno);
  int waiting;
  printf("waiting %d %d\n", ioctl(fd, FIONREAD, &waiting), errno);

  printf("flags %ld %d\n", syscall(SYS_signalfd4, -1, &set, 8, 1), errno);
  printf("address %ld %d\n", syscall(SYS_signalfd4, -1, (void *)16, 8, 0), errno);
  printf("closed %d %d\n", signalfd(77, &set, 0), errno);
  printf("no signals %d %d\n", signalfd(1, &set, 0), errno);

  // another mask in the same file; what it does not have stays pending
  printf("same %d\n", signalfd(fd, &none, 0) == fd);
  raise(SIGUSR1);
  printf("ready %d\n", ready());
  show("masked", 1000);
  signalfd(fd, &set, 0);
  show("unmasked", 1000);

  // edges: each signal that arrives is one
  int epoll = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = fd}, found;
  epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
  printf("epoll %d", epoll_wait(epoll, &found, 1, 0));
  kill(getpid(), SIGUSR1);
  printf(" %d", epoll_wait(epoll, &found, 1, 0));
  printf(" %d", epoll_wait(epoll, &found, 1, 0));
  kill(getpid(), SIGUSR2);
  printf(" %d\n", epoll_wait(epoll, &found, 1, 0));
  show("both", 1000);

  // a read that waits: for a signal, for a child's end, for the child's own signals
  fd = signalfd(-1, &set, 0);
  timer_t timer;
  struct sigevent by = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 5};
  struct itimerspec soon = {.it_value.tv_nsec = 2000000};
  timer_create(CLOCK_MONOTONIC, &by, &timer);
  timer_settime(timer, 0, &soon, 0);
  show("timer", 1000);
  pid_t child = fork();
  if (!child) {
    printf("nothing of the parent's %d\n", ready());
    raise(SIGUSR2);
    show("child", 1000);
    _exit(9);
  }
  struct pollfd one = {fd, POLLIN, 0};
  printf("polled %d\n", poll(&one, 1, -1));
  struct signalfd_siginfo info;
  read(fd, &info, sizeof info);
  printf("child %u code %d its %d status %d\n", info.ssi_signo, info.ssi_code, info.ssi_pid == (unsigned)child,
         info.ssi_status);
  waitpid(child, 0, 0);

  pthread_t self = pthread_self(), thread;
  pthread_create(&thread, 0, other, &self);
  pthread_kill(thread, SIGUSR1);
  show("main", 1000);
  pthread_join(thread, 0);

  return 0;
}
