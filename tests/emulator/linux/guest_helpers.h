// Children, and waiting for them: what several guest programs need.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t guarded_fork(void) {  // nobody is left behind when the test goes wrong
  fflush(stdout);
  pid_t child = fork();
  if (!child) alarm(20);
  return child;
}

static void asleep(pid_t child) {  // until it waits for something
  char path[40], state[400];
  sprintf(path, "/proc/%d/stat", child);
  do {
    usleep(1000);
    int file = open(path, O_RDONLY);
    memset(state, 0, sizeof state);
    read(file, state, 300);
    close(file);
  } while (strrchr(state, ')')[2] != 'S');
}

static const char *what(int status) {
  static char text[40];
  if (WIFEXITED(status)) sprintf(text, "exited %d", WEXITSTATUS(status));
  else if (WIFSTOPPED(status)) sprintf(text, "stopped %d", WSTOPSIG(status));
  else if (WIFCONTINUED(status)) sprintf(text, "continued");
  else sprintf(text, "killed %d", WTERMSIG(status));
  return text;
}

static void wait_for(pid_t child, int options) {
  int status = 0;
  errno = 0;
  pid_t found = waitpid(child, &status, options);
  if (found > 0) printf("%s\n", what(status));
  else printf("%d errno %d\n", found, errno);
}
