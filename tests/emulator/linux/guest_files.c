// Files, locks, sockets and mappings as programs use them together: what test_shared_files runs.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static int put(const char *path, const char *text) {
  int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
  write(file, text, strlen(text));
  return file;
}

static const char *get(const char *path) {
  static char text[64];
  int file = open(path, O_RDONLY);
  memset(text, 0, sizeof text);
  read(file, text, sizeof text - 1);
  close(file);
  return text;
}

static void names(void) {
  struct stat a, b;
  umask(027);
  close(put("a", "contents"));
  printf("link %d symlink %d again %d\n", link("a", "b"), symlink("b", "s"), symlink("b", "s") == -1 && errno == EEXIST);
  stat("a", &a);
  stat("s", &b);
  printf("same %d links %d mode %o\n", a.st_ino == b.st_ino, (int)a.st_nlink, a.st_mode & 07777);
  lstat("s", &b);
  printf("link %d\n", S_ISLNK(b.st_mode));
  chmod("b", 0640);
  int file = open("a", O_RDWR);
  fchmod(file, 04751);
  stat("s", &a);
  printf("mode %o owner %d %d\n", a.st_mode & 07777, fchown(file, getuid(), -1), fchown(file, 0, 0) == -1 && errno == EPERM);
  struct timespec times[2] = {{1000, 5}, {0, UTIME_OMIT}};
  futimens(file, times);
  stat("a", &b);
  printf("read at %ld.%ld written as before %d\n", (long)b.st_atim.tv_sec, b.st_atim.tv_nsec, a.st_mtim.tv_sec == b.st_mtim.tv_sec);
  usleep(2000000);
  write(file, "x", 1);
  fstat(file, &a);
  printf("later %ld\n", (long)(a.st_mtim.tv_sec - b.st_mtim.tv_sec));
  mkdir("d/", 0777);
  printf("exists %d\n", mkdir("d/", 0777) == -1 && errno == EEXIST);
  printf("rename %d into %d noreplace %d\n", rename("d/", "e/"), rename("s", "e/s"),
         syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "b", 1) == -1 && errno == EEXIST);
  printf("full %d gone %d\n", rmdir("e/") == -1 && errno == ENOTEMPTY, unlink("e/s") || rmdir("e/"));
  printf("attributes %d %d\n", (int)getxattr("a", "user.x", 0, 0) == -1 && errno == ENODATA, (int)listxattr("a", 0, 0));
  printf("read-only %d\n", link("/script", "stolen") == -1 && chmod("/script", 0) == -1 && symlink("a", "/s") == -1);
}

static void copies(void) {
  int from = put("from", "0123456789"), to = put("to", ""), ends[2], more[2];
  char text[32] = {0};
  off_t at = 4, where = 2;
  pipe(ends);
  pipe(more);
  printf("copied %zd to %ld\n", copy_file_range(from, &at, to, &where, 3, 0), (long)where);
  lseek(from, 0, SEEK_SET);
  printf("sent %zd at %ld\n", sendfile(ends[1], from, 0, 5), (long)lseek(from, 0, SEEK_CUR));
  printf("tee %zd", tee(ends[0], more[1], 3, 0));
  printf(" splice %zd", splice(ends[0], 0, to, 0, 100, 0));
  printf(" back %zd\n", splice(from, 0, more[1], 0, 2, 0));
  read(more[0], text, 31);
  printf("%s, %s\n", text, get("to"));
  printf("empty %d\n", splice(ends[0], 0, to, 0, 10, SPLICE_F_NONBLOCK) == -1 && errno == EAGAIN);
  printf("allocate %d", fallocate(from, 0, 8, 8));
  printf(" punch %d", fallocate(from, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1, 2));
  printf(" size %ld hole %ld\n", (long)lseek(from, 0, SEEK_END), (long)lseek(from, 3, SEEK_HOLE));
  memset(text, 0, sizeof text);
  pread(from, text, 9, 0);
  printf("%d%d %s\n", text[1], text[2], text + 3);
  int memory = memfd_create("m", MFD_CLOEXEC), waiting = 0;
  write(memory, "kept", 4);
  snprintf(text, sizeof text, "/proc/self/fd/%d", memory);
  write(ends[1], "four", 4);
  ioctl(ends[0], FIONREAD, &waiting);
  char name[64] = {0};
  readlink(text, name, 63);
  printf("%s %d\n", name, waiting);
}

static void mapped(void) {
  int file = put("m", ""), status;
  ftruncate(file, 6000);
  char *whole = mmap(0, 8192, 3, MAP_SHARED, file, 0), *view = mmap(0, 4096, 1, MAP_SHARED, file, 4096), text[8] = {0};
  memcpy(whole + 4096, "stored", 6);
  pread(file, text, 6, 4096);
  printf("%s %.6s\n", text, view);
  pwrite(file, "wrote", 5, 0);
  printf("%.5s\n", whole);
  if (!fork()) {
    memcpy(whole, "child", 5);
    _exit(0);
  }
  wait(&status);
  printf("%.5s\n", whole);
  char *moved = mremap(whole, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, mmap(0, 4096, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  memcpy(moved, "moved", 5);
  msync(moved, 4096, MS_SYNC);
  printf("%s\n", get("m"));
  munmap(view, 4096);
  ftruncate(file, 3);
  moved[0] = 'M';
  moved[5] = 'x';  // past the end: nobody sees it
  munmap(moved, 4096);
  munmap(whole + 4096, 4096);
  printf("%s\n", get("m"));
  int fixed = open("/script", O_RDONLY);
  printf("refused %d\n", mmap(0, 4096, 3, MAP_SHARED, fixed, 0) == MAP_FAILED && errno == EACCES);
  int *both = mmap(0, 4096, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int *elsewhere = mremap(both, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, mmap(0, 4096, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (!fork()) {
    *elsewhere = 7;
    _exit(0);
  }
  wait(&status);
  printf("still shared %d\n", *elsewhere);
  sem_t *turn = sem_open("/turn", O_CREAT, 0600, 0);
  int shared = shm_open("/area", O_CREAT | O_RDWR, 0600);
  ftruncate(shared, 4096);
  char *area = mmap(0, 4096, 3, MAP_SHARED, shared, 0);
  if (!fork()) {
    strcpy(area, "by name");
    sem_post(turn);
    _exit(0);
  }
  sem_wait(turn);
  wait(&status);
  printf("%s %d %d\n", area, shm_unlink("/area"), sem_unlink("/turn"));
  memcpy(mmap(0, 4096, 3, MAP_SHARED, put("left", "at the end"), 0), "AT", 2);
}

static int lock(int file, int command, int kind, long start, long length) {
  struct flock wanted = {kind, SEEK_SET, start, length, 0};
  int result = fcntl(file, command, &wanted);
  if (command == F_GETLK) return wanted.l_type == F_UNLCK ? 0 : wanted.l_pid;
  return result;
}

static void locks(void) {
  int file = put("l", "locked file"), ends[2], status;
  char byte;
  pipe(ends);
  lock(file, F_SETLK, F_WRLCK, 0, 100);
  lock(file, F_SETLK, F_UNLCK, 10, 10);
  pid_t child = fork();
  if (!child) {
    printf("in the way %d free %d\n", lock(file, F_GETLK, F_RDLCK, 5, 1) == getppid(), lock(file, F_GETLK, F_WRLCK, 10, 10));
    printf("refused %d\n", lock(file, F_SETLK, F_RDLCK, 0, 1) == -1 && errno == EAGAIN);
    fflush(stdout);
    write(ends[1], "x", 1);
    lock(file, F_SETLKW, F_WRLCK, 0, 0);
    printf("got it\n");
    fflush(stdout);
    _exit(0);
  }
  read(ends[0], &byte, 1);
  usleep(1000);
  printf("released\n");
  fflush(stdout);
  close(open("l", O_RDONLY));  // closing any descriptor of the file releases the process's locks
  wait(&status);
  int other = open("l", O_RDONLY);
  printf("whole %d other %d", flock(file, LOCK_EX), flock(other, LOCK_SH | LOCK_NB) == -1 && errno == EWOULDBLOCK);
  printf(" shared %d %d\n", flock(file, LOCK_SH), flock(other, LOCK_SH | LOCK_NB));
  close(file);
  printf("alone %d\n", flock(other, LOCK_EX | LOCK_NB));
}

static void named_pipe(void) {
  char text[16] = {0};
  struct stat about;
  mkfifo("p", 0600);
  stat("p", &about);
  printf("fifo %d no reader %d\n", S_ISFIFO(about.st_mode), open("p", O_WRONLY | O_NONBLOCK) == -1 && errno == ENXIO);
  if (!fork()) {
    int out = open("p", O_WRONLY);
    write(out, "through", 7);
    _exit(0);
  }
  int in = open("p", O_RDONLY);
  printf("read %zd %s\n", read(in, text, 16), text);
  printf("end %zd\n", read(in, text, 16));
  wait(0);
  DIR *here = opendir(".");
  for (struct dirent *one; (one = readdir(here));)
    if (one->d_name[0] == 'p') printf("%s %d\n", one->d_name, one->d_type == DT_FIFO);
  printf("unlink %d %d\n", unlink("p"), access("p", F_OK));
}

static void send_file(int socket, int file) {
  char room[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec data = {"f", 1};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  struct cmsghdr *part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(part), &file, sizeof file);
  printf("sent %zd\n", sendmsg(socket, &message, 0));
}

static int receive_file(int socket) {
  char room[CMSG_SPACE(sizeof(int))] = {0}, byte;
  struct iovec data = {&byte, 1};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  int file = -1;
  if (recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message)) memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
  return file;
}

static void sockets(void) {
  int ends[2], one = 1;
  char text[16] = {0}, big[70000];
  signal(SIGPIPE, SIG_IGN);
  socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
  send(ends[0], "ab", 2, 0);
  send(ends[0], "cd", 2, 0);
  printf("peek %zd recv %zd %s\n", recv(ends[1], text, 3, MSG_PEEK), recv(ends[1], text, 16, 0), text);
  printf("nothing %d\n", recv(ends[1], text, 16, MSG_DONTWAIT) == -1 && errno == EAGAIN);
  int file = put("passed", "by socket");
  send_file(ends[0], file);
  close(file);
  memset(text, 0, sizeof text);
  printf("received %zd %s\n", pread(receive_file(ends[1]), text, 15, 0), text);
  printf("part %d\n", send(ends[0], big, sizeof big, MSG_DONTWAIT) < (long)sizeof big);
  shutdown(ends[0], SHUT_WR);
  long n, total = 0;
  while ((n = read(ends[1], big, 4096)) > 0) total += n;
  struct pollfd both = {ends[1], POLLIN | POLLOUT | POLLRDHUP, 0};
  printf("rest %d %x\n", total > 0, poll(&both, 1, 0) == 1 ? both.revents : -1);
  close(ends[0]);
  printf("broken %d\n", send(ends[1], "x", 1, 0) == -1 && errno == EPIPE);
  socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends);
  send(ends[0], "first", 5, 0);
  send(ends[0], "second", 6, 0);
  memset(text, 0, sizeof text);
  printf("packet %zd of %zd\n", recv(ends[1], text, 3, 0), recv(ends[1], text, 3, MSG_TRUNC));

  struct sockaddr_un path = {AF_UNIX, "socket"}, peer;
  socklen_t length = sizeof peer;
  int listener = socket(AF_UNIX, SOCK_STREAM, 0), nobody = socket(AF_UNIX, SOCK_STREAM, 0);
  printf("none %d", connect(nobody, (void *)&path, sizeof path) == -1 && errno == ENOENT);
  printf(" bind %d", bind(listener, (void *)&path, sizeof path));
  printf(" refused %d", connect(nobody, (void *)&path, sizeof path) == -1 && errno == ECONNREFUSED);
  printf(" listen %d\n", listen(listener, 4));
  if (!fork()) {
    connect(nobody, (void *)&path, sizeof path);
    struct ucred who;
    socklen_t size = sizeof who;
    getsockopt(nobody, SOL_SOCKET, SO_PEERCRED, &who, &size);
    write(nobody, who.pid == getppid() ? "parent" : "nobody", 6);
    _exit(0);
  }
  int accepted = accept4(listener, (void *)&peer, &length, SOCK_CLOEXEC);
  memset(text, 0, sizeof text);
  printf("accepted %d from %d: %zd %s\n", accepted > 0, (int)length, read(accepted, text, 16), text);
  wait(0);
  close(listener);
  printf("left %d\n", connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&path, sizeof path) == -1 && errno == ECONNREFUSED);

  struct sockaddr_in here = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}}, out = {AF_INET, htons(80), {htonl(0x08080808)}};
  length = sizeof here;
  int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  bind(server, (void *)&here, sizeof here);
  getsockname(server, (void *)&here, &length);
  listen(server, 1);
  printf("loopback %d %d", ntohs(here.sin_port) >= 32768, connect(client, (void *)&here, sizeof here));
  printf(" taken %d", bind(socket(AF_INET, SOCK_STREAM, 0), (void *)&here, sizeof here) == -1 && errno == EADDRINUSE);
  accepted = accept(server, 0, 0);
  write(client, "tcp", 3);
  memset(text, 0, sizeof text);
  printf(" %zd %s\n", read(accepted, text, 16), text);
  int a = socket(AF_INET, SOCK_DGRAM, 0), b = socket(AF_INET, SOCK_DGRAM, 0);
  here.sin_port = 0;
  bind(a, (void *)&here, sizeof here);
  getsockname(a, (void *)&here, &length);
  sendto(b, "dgram", 5, 0, (void *)&here, sizeof here);
  memset(text, 0, sizeof text);
  printf("datagram %zd %s from its port %d\n", recvfrom(a, text, 16, 0, (void *)&here, &length), text, here.sin_port != 0);
  printf("outside %d\n", connect(client = socket(AF_INET, SOCK_STREAM, 0), (void *)&out, sizeof out) == -1 && errno == ENETUNREACH);
}

static double now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return time.tv_sec + time.tv_nsec / 1e9;
}

static void processes(void) {
  int status;
  double before = now(CLOCK_PROCESS_CPUTIME_ID);
  pid_t child = fork();
  if (!child) {
    for (volatile int i = 0; i < 1000000; i++) continue;
    _exit(4);
  }
  int handle = syscall(SYS_pidfd_open, child, 0);
  struct pollfd ended = {handle, POLLIN, 0};
  printf("runs %d", poll(&ended, 1, 0));
  printf(" ended %d", poll(&ended, 1, -1));
  siginfo_t info;
  printf(" waited %d status %d\n", waitid(P_PIDFD, handle, &info, WEXITED), info.si_status);
  struct rusage own, of_child;
  getrusage(RUSAGE_SELF, &own);
  getrusage(RUSAGE_CHILDREN, &of_child);
  printf("mine %d the child's %d\n", now(CLOCK_PROCESS_CPUTIME_ID) - before < 0.001, of_child.ru_utime.tv_usec > 1000);
  child = fork();
  if (!child) pause();
  handle = syscall(SYS_pidfd_open, child, 0);
  printf("signal %ld", syscall(SYS_pidfd_send_signal, handle, SIGKILL, 0, 0));
  waitpid(child, &status, 0);
  printf(" killed %d gone %d\n", WTERMSIG(status), syscall(SYS_pidfd_send_signal, handle, 0, 0, 0) == -1 && errno == ESRCH);
}

static pthread_mutex_t handed_over;
static volatile long sum;
static void *add(void *number) {
  for (int i = 0; i < 20; i++) {
    pthread_mutex_lock(&handed_over);
    long before = sum;
    usleep(10);
    sum = before + (long)number;
    pthread_mutex_unlock(&handed_over);
  }
  return 0;
}

static void *die_holding(void *unused) {
  pthread_mutex_lock(&handed_over);
  return 0;
}

static void inheritance(void) {
  pthread_mutexattr_t kind;
  pthread_t all[3];
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
  pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&handed_over, &kind);
  for (long i = 0; i < 3; i++) pthread_create(&all[i], 0, add, (void *)(i + 1));
  for (int i = 0; i < 3; i++) pthread_join(all[i], 0);
  printf("sum %ld\n", sum);
  pthread_create(&all[0], 0, die_holding, 0);
  pthread_join(all[0], 0);
  printf("dead owner %d", pthread_mutex_lock(&handed_over) == EOWNERDEAD);
  printf(" consistent %d %d\n", pthread_mutex_consistent(&handed_over), pthread_mutex_unlock(&handed_over));
}

static void replaced(const char *self) {
  int status;
  pid_t child = fork();
  if (!child) {
    signal(SIGUSR1, SIG_IGN);
    alarm(1);
    execl(self, self, "pause", (char *)0);
    _exit(9);
  }
  waitpid(child, &status, 0);
  printf("alarm after exec %d\n", WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
}

int main(int count, char **values) {
  if (count < 2) return 1;
  if (!strcmp(values[1], "names")) names();
  if (!strcmp(values[1], "copies")) copies();
  if (!strcmp(values[1], "mapped")) mapped();
  if (!strcmp(values[1], "locks")) locks();
  if (!strcmp(values[1], "pipe")) named_pipe();
  if (!strcmp(values[1], "sockets")) sockets();
  if (!strcmp(values[1], "processes")) processes();
  if (!strcmp(values[1], "inheritance")) inheritance();
  if (!strcmp(values[1], "replaced")) replaced("/proc/self/exe");
  if (!strcmp(values[1], "pause")) pause();
  if (!strcmp(values[1], "store")) {
    char *file = mmap(0, 4096, 3, MAP_SHARED, open("stored", O_RDWR), 0);
    file[0] = 'S';
    if (count > 2) *(volatile char *)8 = 1;
  }
  return 0;
}
