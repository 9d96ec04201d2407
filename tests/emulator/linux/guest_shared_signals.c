// Signals sent to a process of two threads: which one takes them, and what becomes of the calls that the other waits in.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pthread_t first;
static atomic_int by_first, by_second, stage;

static void note(int number) {
  if (pthread_equal(pthread_self(), first)) by_first++;
  else by_second++;
}

static void reach(int next) {
  stage = next;
  syscall(SYS_futex, &stage, FUTEX_WAKE, 1, 0, 0, 0);
}

static void be_interrupted(int times) {  // compute until this thread has handled so many signals of the timer
  by_second = 0;
  while (by_second < times) continue;
}

static void *compute(void *unused) {
  be_interrupted(20);
  reach(1);
  be_interrupted(20);
  reach(2);
  usleep(2000);
  kill(getpid(), SIGUSR1);
  return 0;
}

static long call_after_call(long rounds) {  // what a repeated instruction of a finished call would upset
  unsigned long sum = 0;
  for (long i = 0; i < rounds; i++) sum = sum * 31 + (unsigned long)getpid() + i;
  return (long)sum;
}

int main(void) {
  long expected = call_after_call(3000);
  struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
  sigaction(SIGPROF, &action, 0);
  sigaction(SIGUSR1, &action, 0);
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF};
  struct itimerspec each = {{0, 50000}, {0, 50000}}, never;
  timer_t timer;
  timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer);
  timer_settime(timer, 0, &each, 0);
  memset(&never, 0, sizeof never);
  first = pthread_self();
  pthread_t second;
  pthread_create(&second, 0, compute, 0);
  int before = by_first;
  long woken = syscall(SYS_futex, &stage, FUTEX_WAIT, 0, 0, 0, 0);
  printf("woken %ld, signals of the timer meanwhile %d\n", woken, by_first - before);
  printf("computes as before: %d\n", call_after_call(3000) == expected);
  while (stage < 2) {
    struct timespec pause_time = {0, 20000};
    if (nanosleep(&pause_time, 0)) printf("sleep interrupted: %s\n", strerror(errno));
  }
  timer_settime(timer, 0, &never, 0);
  by_first = 0;
  int result = pause();
  printf("pause %d %d, handled here %d\n", result, errno == EINTR, by_first);
  pthread_join(second, 0);
  return 0;
}
