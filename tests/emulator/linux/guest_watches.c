// Files that are watched (inotify), in the directory that is the argument.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int fd;
static unsigned cookies[16], n_cookies;

static const char *kinds[] = {"access", "modify", "attrib", "close-write", "close-nowrite", "open", "moved-from",
                              "moved-to", "create", "delete", "delete-self", "move-self", "-", "unmount", "overflow",
                              "ignored"};

static void show(const char *what) {
  static char buffer[1 << 16] __attribute__((aligned(8)));
  printf("%s:\n", what);
  for (;;) {
    long n = read(fd, buffer, sizeof buffer);
    if (n <= 0) break;
    for (long at = 0; at < n;) {
      struct inotify_event *event = (void *)(buffer + at);
      printf("  %d", event->wd);
      for (int bit = 0; bit < 16; bit++)
        if (event->mask >> bit & 1) printf(" %s", kinds[bit]);
      if (event->mask & IN_ISDIR) printf(" dir");
      if (event->len) printf(" %s [%d]", event->name, event->len);
      if (event->cookie) {
        unsigned i = 0;
        while (i < n_cookies && cookies[i] != event->cookie) i++;
        if (i == n_cookies) cookies[n_cookies++] = event->cookie;
        printf(" cookie %d", i);
      }
      printf("\n");
      at += sizeof *event + event->len;
    }
  }
}

static int make(const char *name) {
  int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
  return file;
}

static void result(const char *what, long value) { printf("%s %ld errno %d\n", what, value, value < 0 ? errno : 0); }

static void arguments(void) {
  result("flags", inotify_init1(1));
  result("no events", inotify_add_watch(fd, ".", 0));
  result("nothing known", inotify_add_watch(fd, ".", 0x00100000));
  result("no file", inotify_add_watch(fd, "nothing", IN_OPEN));
  result("no descriptor", inotify_add_watch(77, ".", IN_OPEN));
  result("not inotify", inotify_add_watch(1, ".", IN_OPEN));
  result("both", inotify_add_watch(fd, ".", IN_OPEN | IN_MASK_ADD | IN_MASK_CREATE));
  result("path", inotify_add_watch(fd, (char *)16, IN_OPEN));
  close(make("file"));
  result("only directories", inotify_add_watch(fd, "file", IN_OPEN | IN_ONLYDIR));
  int file = inotify_add_watch(fd, "file", IN_OPEN);
  result("again", inotify_add_watch(fd, "./file", IN_CLOSE) - file);
  result("new only", inotify_add_watch(fd, "file", IN_CLOSE | IN_MASK_CREATE));
  close(open("file", O_RDONLY));
  show("replaced");
  inotify_add_watch(fd, "file", IN_OPEN | IN_MASK_ADD);
  close(open("file", O_RDONLY));
  show("added");
  result("remove", inotify_rm_watch(fd, file));
  result("remove", inotify_rm_watch(fd, file));
  result("remove", inotify_rm_watch(1, file));
  show("removed");
  result("next", inotify_add_watch(fd, "file", IN_OPEN | IN_ONESHOT) - file);
  close(open("file", O_RDONLY));
  close(open("file", O_RDONLY));
  show("one shot");
  char one[16];
  inotify_add_watch(fd, ".", IN_OPEN);
  close(open("file", O_RDONLY));
  result("small", read(fd, one, 16));
  int waiting = 0;
  result("waiting", ioctl(fd, FIONREAD, &waiting));
  printf("%d bytes\n", waiting);
  result("write", write(fd, one, 16));
  show("rest");
  result("empty", read(fd, one, 16));
  unlink("file");
}

static void changes(void) {
  struct stat status;
  inotify_add_watch(fd, ".", IN_ALL_EVENTS);
  int file = make("file");
  show("made");
  inotify_add_watch(fd, "file", IN_ALL_EVENTS);
  write(file, "12345", 5);
  pwrite(file, "678", 3, 2);
  write(file, "", 0);
  show("written");
  lseek(file, 0, SEEK_SET);
  char some[8];
  read(file, some, 2);
  read(file, some, 8);
  read(file, some, 8);
  show("read");
  ftruncate(file, 2);
  truncate("file", 7);
  fstat(file, &status);
  show("cut");
  fchmod(file, 0600);
  chmod("file", 0640);
  utimes("file", 0);
  utimensat(AT_FDCWD, "file", (struct timespec[]){{5, 0}, {0, UTIME_OMIT}}, 0);
  futimens(file, (struct timespec[]){{0, UTIME_OMIT}, {5, 0}});
  chown("file", -1, -1);
  chown("file", getuid(), -1);
  show("attributes");
  int other = dup(file);
  close(file);
  show("not closed");
  close(other);
  close(open("file", O_RDONLY));
  close(open("file", O_WRONLY));
  show("closed");
  link("file", "second");
  show("linked");
  unlink("second");
  show("second name gone");
  int target = make("copy");
  file = open("file", O_RDWR);
  write(file, "abc", 3);
  lseek(file, 0, SEEK_SET);
  sendfile(target, file, 0, 3);
  close(target);
  close(file);
  show("copied");
  mkdir("directory", 0755);
  symlink("file", "link");
  mknod("fifo", S_IFIFO | 0600, 0);
  mknod("node", S_IFREG | 0600, 0);
  show("more kinds");
  unlink("link");
  unlink("fifo");
  unlink("node");
  unlink("copy");
  show("gone");
  rmdir("directory");
  rename("nothing", "something");
  unlink("nothing");
  mkdir("file", 0755);
  show("failed");
  file = open("file", O_RDONLY);
  unlink("file");
  show("unlinked");
  read(file, some, 1);
  close(file);
  show("closed");
}

// Later kernels tell that a file is opened before they tell that it is emptied.
static void emptied(void) {
  inotify_add_watch(fd, ".", IN_ALL_EVENTS);
  close(make("file"));
  close(open("file", O_WRONLY | O_TRUNC));
  show("emptied");
}

static void moves(void) {
  mkdir("a", 0755);
  mkdir("b", 0755);
  close(make("a/file"));
  close(make("b/other"));
  inotify_add_watch(fd, "a", IN_ALL_EVENTS);
  inotify_add_watch(fd, "b", IN_ALL_EVENTS);
  inotify_add_watch(fd, "a/file", IN_ALL_EVENTS);
  inotify_add_watch(fd, "b/other", IN_ALL_EVENTS);
  int file = open("a/file", O_RDWR);
  rename("a/file", "a/moved");
  show("moved");
  write(file, "1", 1);
  show("by its new name");
  rename("a/moved", "b/other");
  show("over another one");
  write(file, "1", 1);
  close(file);
  show("by its new name");
  rename("b/other", "b/other");
  show("nothing");
  unlink("b/other");
  show("gone");
}

static void directories(void) {
  mkdir("a", 0755);
  mkdir("a/inner", 0755);
  inotify_add_watch(fd, ".", IN_ALL_EVENTS);
  inotify_add_watch(fd, "a", IN_ALL_EVENTS);
  inotify_add_watch(fd, "a/inner", IN_ALL_EVENTS);
  int file = make("a/inner/file");
  show("in it");
  rename("a", "c");
  show("moved");
  write(file, "1", 1);
  close(file);
  unlink("c/inner/file");
  show("still watched");
  chmod("c/inner", 0700);
  rmdir("c/inner");
  rmdir("c");
  show("gone");
}

static void more(void) {
  // events of files that have lost their name, wanted and not
  int file = make("file");
  int w = inotify_add_watch(fd, ".", IN_MODIFY | IN_EXCL_UNLINK);
  write(file, "1", 1);
  unlink("file");
  write(file, "1", 1);
  show("not wanted");
  inotify_add_watch(fd, ".", IN_MODIFY);
  write(file, "1", 1);
  show("wanted");
  inotify_rm_watch(fd, w);
  show("off");
  // a link is watched itself, or what it leads to
  close(make("file"));
  if (!symlink("file", "link")) {
    inotify_add_watch(fd, "link", IN_ATTRIB | IN_DELETE_SELF | IN_DONT_FOLLOW);
    unlink("link");
    show("link");
    symlink("file", "link");
    w = inotify_add_watch(fd, "link", IN_OPEN | IN_ATTRIB);
    close(open("file", O_RDONLY));
    unlink("link");
    show("followed");
    inotify_rm_watch(fd, w);
    show("off");
  }
  // the same event again is one; others come between, and too many are lost
  inotify_add_watch(fd, ".", IN_OPEN | IN_CLOSE);
  inotify_add_watch(fd, "file", IN_ATTRIB);
  for (int i = 0; i < 3; i++) chmod("file", 0644);
  show("once");
  for (int i = 0; i < 20000; i++) close(open("file", O_RDONLY));
  int waiting = 0;
  ioctl(fd, FIONREAD, &waiting);
  printf("waiting %d\n", waiting);
  char *all = malloc(waiting);
  result("read", read(fd, all, waiting));
  struct inotify_event *last = (void *)(all + waiting - sizeof *last);
  printf("last %d %x %d\n", last->wd, last->mask, last->len);
  // another process's changes, with poll and edges
  struct pollfd one = {fd, POLLIN, 0};
  printf("poll %d\n", poll(&one, 1, 0));
  int epoll = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN | EPOLLET}, found;
  epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    usleep(20000);
    close(open("file", O_RDWR));
    _exit(0);
  }
  printf("epoll %d", epoll_wait(epoll, &found, 1, -1));
  waitpid(child, 0, 0);
  epoll_wait(epoll, &found, 1, 0);
  printf(" %d", epoll_wait(epoll, &found, 1, 0));
  chmod("file", 0600);
  printf(" %d poll %d\n", epoll_wait(epoll, &found, 1, 0), poll(&one, 1, 0));
  show("by the child");
  // a read that waits
  int flags = fcntl(fd, F_GETFL);
  fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
  fflush(stdout);
  if (!(child = fork())) {
    usleep(20000);
    chmod("file", 0644);
    _exit(0);
  }
  result("waited", read(fd, all, 100));
  waitpid(child, 0, 0);
  fcntl(fd, F_SETFL, flags);
  unlink("file");
  show("end");
}

int main(int count, char **arguments_) {
  setvbuf(stdout, 0, _IOFBF, 1 << 16);
  if (chdir(arguments_[2])) return 2;
  fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  printf("flags %d %d\n", fcntl(fd, F_GETFD), !!(fcntl(fd, F_GETFL) & O_NONBLOCK));
  if (!strcmp(arguments_[1], "arguments")) arguments();
  if (!strcmp(arguments_[1], "changes")) changes();
  if (!strcmp(arguments_[1], "emptied")) emptied();
  if (!strcmp(arguments_[1], "moves")) moves();
  if (!strcmp(arguments_[1], "directories")) directories();
  if (!strcmp(arguments_[1], "more")) more();
  return 0;
}
