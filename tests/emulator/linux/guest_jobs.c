// Groups of processes, sessions, stopping and continuing.
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <termios.h>
#include <time.h>

#include "guest_helpers.h"

static volatile int handled[65], codes[8], children_stopped;
static int to[2], from[2];  // pipes to and from a child

static void note(int signal, siginfo_t *info, void *context) {
  handled[signal]++;
  if (signal == SIGCHLD && info->si_code > 0 && info->si_code < 8) {
    codes[info->si_code]++;
    if (info->si_code == CLD_STOPPED) children_stopped = info->si_status;
  }
}

static void catch(int signal, int flags) {
  struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | flags};
  sigaction(signal, &action, 0);
}

static void say(char c) { write(from[1], &c, 1); }

static int heard(int milliseconds) {  // what the child said within that time, 0 for nothing
  struct pollfd one = {from[0], POLLIN, 0};
  char c = 0;
  int found;
  do found = poll(&one, 1, milliseconds);
  while (found == -1 && errno == EINTR);
  if (found > 0) read(from[0], &c, 1);
  return c ? c : '-';
}

static char listen_for(void) {
  char c = 0;
  return read(to[0], &c, 1) == 1 ? c : 0;
}

static void id_for(idtype_t kind, pid_t number, int options) {
  siginfo_t info;
  memset(&info, 0xEE, sizeof info);
  errno = 0;
  int result = waitid(kind, number, &info, options);
  printf("waitid %d errno %d", result, errno);
  if (!result) printf(" pid %d code %d status %d", info.si_pid != 0, info.si_pid ? info.si_code : 0,
                      info.si_pid ? info.si_status : 0);
  printf("\n");
}

static void *wait_for_events(void *nothing) {
  struct epoll_event event;
  say('w');
  int result = epoll_wait(epoll_create1(0), &event, 1, -1);
  return (void *)(long)(result == -1 && errno == EINTR);
}

// A child in a group of its own, which does what it is asked.
static pid_t start(void) {
  pid_t child = guarded_fork();
  if (!child) {
    setpgid(0, 0);
    say('r');
    for (;;) {
      char c = listen_for();
      if (c == 0) _exit(0);
      if (c == 'q') _exit(7);
      if (c == 't') {
        catch(SIGTSTP, 0);
        raise(SIGTSTP);
        say(handled[SIGTSTP] == 1 ? 'h' : '?');
      } else if (c == 'e') {
        struct epoll_event event;
        say('w');
        int result = epoll_wait(epoll_create1(0), &event, 1, -1);
        say(result == -1 && errno == EINTR ? 'i' : '?');
      } else if (c == 's') {
        say('w');
        struct timespec rest = {0, 300000000};
        say(nanosleep(&rest, 0) == 0 ? 'd' : '?');
      } else if (c == 'p') {
        say('w');
        say(poll(0, 0, 300) == 0 ? 'd' : '?');
      } else if (c == 'm') {
        pthread_t thread;
        pthread_create(&thread, 0, wait_for_events, 0);
        void *result;
        pthread_join(thread, &result);
        say(result ? 'i' : '?');
      } else if (c == 'u') {
        catch(SIGUSR1, 0);
        say('w');
        pause();
        say(handled[SIGUSR1] == 1 ? 'h' : '?');
      } else say(c + 1);
    }
  }
  heard(-1);
  return child;
}

static void ask(char c) { write(to[1], &c, 1); }

static void groups(void) {
  printf("leads %d %d\n", getpgid(0) == getpid(), getsid(0) == getpid());
  printf("setsid %d errno %d\n", setsid(), errno);
  printf("setpgid %d errno %d\n", setpgid(0, 0), errno);
  pid_t child = start();
  printf("its own %d %d %d\n", getpgid(child) == child, getsid(child) == getpid(), getpgrp() == getpid());
  printf("back %d %d\n", setpgid(child, getpid()), getpgid(child) == getpid());
  printf("again %d %d\n", setpgid(child, 0), getpgid(child) == child);
  printf("negative %d errno %d\n", setpgid(child, -1), errno);
  printf("nobody %d errno %d\n", setpgid(child, 0x3FFFFF), errno);
  printf("of whom %d errno %d\n", setpgid(0x3FFFFF, 0), errno);
  printf("getpgid %d errno %d\n", getpgid(0x3FFFFF), errno);
  printf("getsid %d errno %d\n", getsid(-5), errno);
  printf("parent %d errno %d\n", setpgid(getppid(), 0), errno);
  printf("kill %d errno %d\n", kill(-0x3FFFFF, 0), errno);
  printf("kill %d\n", kill(-child, 0));
  catch(SIGUSR2, 0);
  kill(0, SIGUSR2);
  printf("own group %d\n", handled[SIGUSR2]);
  ask('q');
  wait_for(0, WNOHANG);
  wait_for(-child, 0);
  wait_for(-child, 0);
  wait_for(-1, 4);
  id_for(P_ALL, 0, WNOHANG);
  id_for(9, 0, WEXITED);
  id_for(P_PID, 0, WEXITED);
}

static void stops(void) {
  catch(SIGCHLD, SA_RESTART);
  pid_t child = start();
  kill(-child, SIGSTOP);
  id_for(P_PID, child, WSTOPPED | WNOWAIT);
  id_for(P_PGID, child, WSTOPPED | WEXITED | WNOHANG);
  id_for(P_PID, child, WSTOPPED | WNOHANG);
  wait_for(child, WNOHANG | WUNTRACED);
  ask('a');
  printf("says %c\n", heard(30));
  kill(child, SIGCONT);
  printf("says %c\n", heard(-1));
  id_for(P_PID, child, WCONTINUED | WNOWAIT);
  wait_for(-child, WCONTINUED);
  wait_for(child, WCONTINUED | WNOHANG);
  while (!codes[CLD_CONTINUED]) usleep(1000);
  printf("told %d by %d, %d\n", codes[CLD_STOPPED], children_stopped, codes[CLD_CONTINUED]);

  ask('t');  // caught: no stop
  printf("says %c\n", heard(-1));
  catch(SIGCHLD, SA_RESTART | SA_NOCLDSTOP);
  kill(child, SIGSTOP);
  wait_for(child, WUNTRACED);
  kill(child, SIGSTOP);
  wait_for(child, WUNTRACED | WNOHANG);
  kill(child, SIGCONT);
  kill(child, SIGCONT);
  wait_for(child, WCONTINUED);

  // calls that wait: some are ended by being stopped
  ask('e');
  printf("says %c\n", heard(-1));
  asleep(child);
  kill(child, SIGSTOP);
  wait_for(child, WUNTRACED);
  kill(child, SIGCONT);
  printf("says %c\n", heard(-1));
  wait_for(child, WCONTINUED);
  ask('s');
  printf("says %c\n", heard(-1));
  asleep(child);
  kill(child, SIGSTOP);
  wait_for(child, WUNTRACED);
  printf("says %c\n", heard(400));
  kill(child, SIGCONT);
  printf("says %c\n", heard(-1));
  wait_for(child, WCONTINUED);
  ask('p');  // the time that it waits for stands still
  printf("says %c\n", heard(-1));
  asleep(child);
  kill(child, SIGSTOP);
  wait_for(child, WUNTRACED);
  printf("says %c\n", heard(400));
  kill(child, SIGCONT);
  printf("says %c\n", heard(100));
  printf("says %c\n", heard(-1));
  wait_for(child, WCONTINUED);
  ask('m');  // another thread's call is ended, too
  printf("says %c\n", heard(-1));
  usleep(200000);
  kill(child, SIGSTOP);
  wait_for(child, WUNTRACED);
  kill(child, SIGCONT);
  printf("says %c\n", heard(-1));
  wait_for(child, WCONTINUED);
  ask('u');
  printf("says %c\n", heard(-1));
  asleep(child);
  kill(child, SIGSTOP);
  wait_for(child, WUNTRACED);
  kill(child, SIGCONT);
  printf("says %c\n", heard(30));
  kill(child, SIGSTOP);
  wait_for(child, WUNTRACED);
  kill(child, SIGUSR1);
  printf("says %c\n", heard(30));
  kill(child, SIGCONT);
  printf("says %c\n", heard(-1));

  // what is sent while it is stopped waits, but for SIGKILL
  kill(child, SIGSTOP);
  wait_for(child, WUNTRACED);
  kill(child, SIGTERM);
  wait_for(child, WNOHANG);
  kill(child, SIGCONT);
  wait_for(child, 0);
  child = start();
  kill(child, SIGSTOP);
  wait_for(child, WUNTRACED);
  kill(-child, SIGKILL);
  wait_for(child, WCONTINUED);
}

static volatile long *counters;
static void *count(void *which) {
  for (;;) counters[(long)which]++;
  return 0;
}

static void threads(void) {
  counters = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t child = guarded_fork();
  if (!child) {
    pthread_t thread;
    pthread_create(&thread, 0, count, (void *)1);
    pthread_create(&thread, 0, count, (void *)2);
    count(0);
  }
  while (!counters[0] || !counters[1] || !counters[2]) usleep(1000);
  for (int i = 0; i < 2; i++) {
    kill(child, SIGSTOP);
    wait_for(child, WUNTRACED);
    long before = counters[0] + counters[1] + counters[2];
    usleep(5000);
    printf("stood still %d\n", before == counters[0] + counters[1] + counters[2]);
    kill(child, SIGCONT);
    wait_for(child, WCONTINUED);
    while (before == counters[0] + counters[1] + counters[2]) usleep(1000);
  }
  kill(child, SIGKILL);
  wait_for(child, 0);
}

// A group whose last connection to its session goes, with somebody stopped in it.
static void orphans(void) {
  pid_t middle = guarded_fork();
  if (!middle) {
    pid_t child = guarded_fork();
    if (!child) {
      setpgid(0, 0);
      catch(SIGHUP, 0);
      catch(SIGCONT, 0);
      raise(SIGSTOP);
      while (!handled[SIGHUP] || !handled[SIGCONT]) usleep(100);
      say(handled[SIGHUP] + handled[SIGCONT] == 2 ? 'o' : '?');
      _exit(0);
    }
    waitpid(child, 0, WUNTRACED);
    _exit(1);
  }
  wait_for(middle, 0);
  printf("says %c\n", heard(-1));
}

// What only job control of the kernel itself does: QEMU stops processes by SIGSTOP whatever the signal.
static void more(const char *self) {
  catch(SIGCHLD, SA_RESTART | SA_NOCLDSTOP);  // which QEMU does not pass on
  pid_t child = start();
  for (int signal = SIGTSTP; signal <= SIGTTOU; signal++) {
    kill(child, signal);
    wait_for(child, WUNTRACED);
    kill(child, SIGCONT);
    wait_for(child, WCONTINUED);
  }
  printf("not told %d %d\n", codes[CLD_STOPPED], codes[CLD_CONTINUED]);
  // stop signals and SIGCONT undo each other while they are blocked
  sigset_t set, pending;
  sigemptyset(&set);
  sigaddset(&set, SIGTSTP);
  sigaddset(&set, SIGCONT);
  sigprocmask(SIG_BLOCK, &set, 0);
  raise(SIGTSTP);
  raise(SIGCONT);
  sigpending(&pending);
  printf("pending %d %d\n", sigismember(&pending, SIGTSTP), sigismember(&pending, SIGCONT));
  raise(SIGTSTP);
  sigpending(&pending);
  printf("pending %d %d\n", sigismember(&pending, SIGTSTP), sigismember(&pending, SIGCONT));
  sigprocmask(SIG_UNBLOCK, &set, 0);  // nobody in the session could continue this group: ignored
  printf("goes on\n");
  id_for(P_PIDFD, syscall(SYS_pidfd_open, child, O_NONBLOCK), WEXITED);
  id_for(P_PIDFD, syscall(SYS_pidfd_open, child, O_NONBLOCK), WEXITED | WNOHANG);
  id_for(P_PIDFD, 1, WEXITED);
  ask('q');
  wait_for(child, 0);
  if (!(child = guarded_fork())) execl(self, self, "wait", (char *)0);
  usleep(50000);
  printf("executed %d errno %d\n", setpgid(child, 0), errno);
  char path[40], state[400] = {0};
  kill(child, SIGSTOP);
  wait_for(child, WUNTRACED);
  sprintf(path, "/proc/%d/stat", child);
  read(open(path, O_RDONLY), state, 300);
  printf("state %c\n", strrchr(state, ')')[2]);
  kill(child, SIGKILL);
  wait_for(child, 0);
}

static void terminal(void) {
  printf("foreground %d session %d\n", tcgetpgrp(0) == getpgrp(), tcgetsid(0) == getsid(0));
  pid_t child = guarded_fork();
  if (!child) {
    char c = 0;
    setpgid(0, 0);
    long n = read(0, &c, 1);  // stops it until it is in the foreground
    printf("read %ld %c\n", n, c);
    n = tcsetpgrp(0, getppid());
    printf("gave back %ld\n", n);
    n = tcsetpgrp(0, getpid());  // stops it again
    printf("took %ld\n", n);
    signal(SIGTTIN, SIG_IGN);
    signal(SIGTTOU, SIG_IGN);
    tcsetpgrp(0, getppid());
    n = read(0, &c, 1);
    printf("ignored %ld errno %d\n", n, errno);
    printf("nobody %d errno %d\n", tcsetpgrp(0, 12345), errno);
    if (!guarded_fork()) {
      setsid();
      printf("not its own %d errno %d\n", tcgetpgrp(0), errno);
      printf("not its own %d errno %d\n", tcsetpgrp(0, getpid()), errno);
      n = read(0, &c, 1);
      printf("read %ld %c\n", n, c);
      _exit(0);
    }
    wait(0);
    _exit(0);
  }
  setpgid(child, child);
  wait_for(child, WUNTRACED);
  tcsetpgrp(0, child);
  kill(child, SIGCONT);
  wait_for(child, WUNTRACED);
  signal(SIGTTOU, SIG_IGN);
  tcsetpgrp(0, child);
  kill(child, SIGCONT);
  wait_for(child, 0);
}

int main(int count, char **arguments) {
  setvbuf(stdout, 0, _IONBF, 0);
  const char *part = arguments[1];
  if (!strcmp(part, "wait")) pause();
  if (!strcmp(part, "for ever")) raise(SIGSTOP);
  if (!strcmp(part, "child for ever")) {
    if (!guarded_fork()) raise(SIGSTOP);
    wait(0);
  }
  pipe(to);
  pipe(from);
  if (!strcmp(part, "terminal")) {
    terminal();
    return 0;
  }
  pid_t child = guarded_fork();
  if (!child) {
    setsid();
    if (!strcmp(part, "groups")) groups();
    if (!strcmp(part, "stops")) stops();
    if (!strcmp(part, "threads")) threads();
    if (!strcmp(part, "orphans")) orphans();
    if (!strcmp(part, "more")) more(arguments[0]);
    _exit(3);
  }
  wait_for(child, 0);
  return 0;
}
