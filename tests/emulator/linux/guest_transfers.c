// Transfers that signals interrupt, sizes of pipes, and addresses of sockets. The first argument says which part.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "guest_helpers.h"

enum { TOTAL = 1 << 22 };
static char data[TOTAL], received[TOTAL];
static volatile sig_atomic_t alarms, broken;

static void on_alarm(int signal) {
  if (signal == SIGPIPE) broken++;
  else alarms++;
}

static void handle(int signal, int flags) {
  struct sigaction action = {.sa_handler = on_alarm, .sa_flags = flags};
  sigaction(signal, &action, 0);
}

static void alarm_soon(int flags) {
  handle(SIGALRM, flags);
  struct itimerval soon = {{0, 0}, {0, 50000}};
  setitimer(ITIMER_REAL, &soon, 0);
}

static const char *count_of(ssize_t count) {
  static char text[40];
  if (count < 0) sprintf(text, "%s", strerror(errno));
  else if (count > 0 && count < TOTAL) sprintf(text, "a part");
  else sprintf(text, "%zd", count);
  return text;
}

// What was told to be written must be what can be read, and no more.
static void check(const char *name, ssize_t count, int from) {
  printf("%s: %s", name, count_of(count));
  fcntl(from, F_SETFL, O_NONBLOCK);
  ssize_t total = 0, n;
  while ((n = read(from, received + total, TOTAL - total)) > 0) total += n;
  printf(", there %d, the same %d\n", total == count, count < 0 || !memcmp(received, data, count));
  fcntl(from, F_SETFL, 0);
}

static void interrupted(void) {
  int ends[2];
  struct iovec parts[2] = {{data, TOTAL / 2}, {data + TOTAL / 2, TOTAL / 2}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
  for (long i = 0; i < TOTAL; i++) data[i] = i * 7 + i / 1000;
  for (int flags = 0; flags <= SA_RESTART; flags += SA_RESTART) {
    pipe(ends);
    alarm_soon(flags);
    ssize_t count = write(ends[1], data, TOTAL);
    printf("%zd ", count);
    check("pipe", count, ends[0]);
    alarm_soon(flags);
    check("pipe, vectors", writev(ends[1], parts, 2), ends[0]);
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    alarm_soon(flags);
    check("socket", write(ends[1], data, TOTAL), ends[0]);
    alarm_soon(flags);
    check("socket, message", sendmsg(ends[1], &message, 0), ends[0]);
    struct mmsghdr several = {message, 0};
    alarm_soon(flags);
    int sent = sendmmsg(ends[1], &several, 1, 0);
    printf("sent %d ", sent);
    check("socket, messages", several.msg_len, ends[0]);
  }
  printf("alarms %d\n", alarms);

  pipe(ends);  // nothing written yet: an error, or again
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  while (write(ends[1], data, 4096) > 0) continue;
  fcntl(ends[1], F_SETFL, 0);
  alarm_soon(0);
  printf("full: %s\n", count_of(write(ends[1], data, 5)));
  alarm_soon(SA_RESTART);
  pid_t child = guarded_fork();
  if (!child) {
    usleep(200000);
    read(ends[0], received, 9000);
    _exit(0);
  }
  printf("restarted: %zd\n", write(ends[1], "again", 5));
  wait_for(child, 0);

  handle(SIGPIPE, 0);  // a reader that goes after a part
  pipe(ends);
  child = guarded_fork();
  if (!child) {
    close(ends[1]);
    usleep(100000);
    _exit(0);
  }
  close(ends[0]);
  printf("left alone: %zd", write(ends[1], data, TOTAL));
  printf(" signals %d, then %s", broken, count_of(write(ends[1], data, 1)));
  printf(" signals %d\n", broken);
  wait_for(child, 0);
}

static void reading(void) {
  int ends[2];
  pipe(ends);
  write(ends[1], "12345", 5);
  char first[5], second[5];
  struct iovec parts[2] = {{first, 5}, {second, 5}};
  printf("vectors %zd %.5s\n", readv(ends[0], parts, 2), first);
  alarm_soon(0);
  printf("nothing: %s\n", count_of(read(ends[0], first, 5)));
  socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
  write(ends[1], "123", 3);
  alarm_soon(SA_RESTART);
  printf("all of 5: %zd %.3s\n", recv(ends[0], first, 5, MSG_WAITALL), first);
  pid_t child = guarded_fork();
  if (!child) {
    for (int i = 0; i < 300; i++) write(ends[1], data, 1000);
    _exit(0);
  }
  printf("all of 300000: %zd\n", recv(ends[0], received, 300000, MSG_WAITALL));
  wait_for(child, 0);
  close(ends[1]);
  printf("at the end: %zd\n", recv(ends[0], received, 300000, MSG_WAITALL));
}

static void sizes(void) {
  int ends[2];
  static const int wanted[] = {1, 4096, 4097, 10000, 65536, 70000, 1 << 20, 0};
  pipe(ends);
  printf("default %d\n", fcntl(ends[0], F_GETPIPE_SZ));
  for (int i = 0; i < 8; i++) {
    int given = fcntl(ends[i % 2], F_SETPIPE_SZ, wanted[i]);
    printf("%d: %d %d\n", wanted[i], given, fcntl(ends[1], F_GETPIPE_SZ));
  }
  fcntl(ends[1], F_SETPIPE_SZ, 65536);
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  int count = 0;
  while (write(ends[1], data, 3000) == 3000) count++;
  struct pollfd out = {ends[1], POLLOUT, 0};
  printf("of 3000: %d, room %d", count, poll(&out, 1, 0));
  printf(", a few more %zd", write(ends[1], data, 1000));
  printf(", smaller %s", count_of(fcntl(ends[1], F_SETPIPE_SZ, 32768)));
  printf(", larger %d\n", fcntl(ends[1], F_SETPIPE_SZ, 100000));
  read(ends[0], received, 7000);
  printf("part of three: room %d\n", poll(&out, 1, 0));
  while (read(ends[0], received, 4096) == 4096) continue;
  fcntl(ends[1], F_SETPIPE_SZ, 8192);
  count = 0;
  while (write(ends[1], data, 1) == 1) count++;
  printf("single ones %d", count);
  fcntl(ends[1], F_SETPIPE_SZ, 4096);
  printf(" still %d\n", fcntl(ends[1], F_GETPIPE_SZ));
  printf("not a pipe: %s\n", count_of(fcntl(socket(AF_UNIX, SOCK_STREAM, 0), F_GETPIPE_SZ)));
}

static void too_large(void) {
  int ends[2];
  pipe(ends);
  printf("%s\n", count_of(fcntl(ends[0], F_SETPIPE_SZ, (1 << 20) + 1)));
  printf("%s\n", count_of(fcntl(ends[0], F_SETPIPE_SZ, -1)));
}

// --- addresses

static int last;

static int bound(const char *host, int port, int v6_only, int reuse) {
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
  int is_6 = strchr(host, ':') != 0, one = 1;
  if (is_6) inet_pton(AF_INET6, host, &v6.sin6_addr);
  else inet_pton(AF_INET, host, &v4.sin_addr);
  last = socket(is_6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
  if (is_6) setsockopt(last, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof v6_only);
  if (reuse) setsockopt(last, SOL_SOCKET, reuse, &one, sizeof one);
  int failed = is_6 ? bind(last, (void *)&v6, sizeof v6) : bind(last, (void *)&v4, sizeof v4);
  if (failed) close(last);
  return failed ? errno : 0;
}

static int port_of(int one) {
  struct sockaddr_in6 here = {0};
  socklen_t length = sizeof here;
  getsockname(one, (void *)&here, &length);
  return ntohs(here.sin6_port);
}

static void told(const char *name, int one, int (*ask)(int, struct sockaddr *, socklen_t *)) {
  struct sockaddr_in6 here = {0};
  socklen_t length = sizeof here;
  char text[64] = "";
  ask(one, (void *)&here, &length);
  if (here.sin6_family == AF_INET) inet_ntop(AF_INET, &((struct sockaddr_in *)&here)->sin_addr, text, sizeof text);
  else inet_ntop(AF_INET6, &here.sin6_addr, text, sizeof text);
  printf("%s %s", name, text);
}

static const char *reached(const char *host, int port) {  // who accepts a connection to it
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
  int is_6 = strchr(host, ':') != 0;
  if (is_6) inet_pton(AF_INET6, host, &v6.sin6_addr);
  else inet_pton(AF_INET, host, &v4.sin_addr);
  last = socket(is_6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
  int failed = is_6 ? connect(last, (void *)&v6, sizeof v6) : connect(last, (void *)&v4, sizeof v4);
  return failed ? strerror(errno) : "connected";
}

static int waiting(int listener) {
  struct pollfd in = {listener, POLLIN, 0};
  if (!poll(&in, 1, 0)) return 0;
  close(accept(listener, 0, 0));
  return 1;
}

static void addresses(void) {
  // As a server does that listens on both families by two sockets.
  bound("0.0.0.0", 0, 0, SO_REUSEADDR);
  int v4 = last, port = port_of(v4);
  printf("second without %d", bound("::", port, 0, SO_REUSEADDR));
  int without = last;
  close(without);
  printf(" with V6ONLY %d", bound("::", port, 1, SO_REUSEADDR));
  int v6 = last;
  printf(" listen %d", listen(v4, 5));
  printf(" %d\n", listen(v6, 5));
  printf("127.0.0.1 %s", reached("127.0.0.1", port));
  printf(" v4 %d v6 %d\n", waiting(v4), waiting(v6));
  printf("::1 %s", reached("::1", port));
  printf(" v4 %d v6 %d\n", waiting(v4), waiting(v6));
  printf("127.0.0.9 %s", reached("127.0.0.9", port));
  printf(" v4 %d v6 %d\n", waiting(v4), waiting(v6));
  printf("taken: %d", bound("127.0.0.1", port, 0, 0));
  printf(" %d", bound("0.0.0.0", port, 0, SO_REUSEADDR));
  printf(" %d\n", bound("::1", port, 0, 0));
  close(v4);
  close(v6);

  bound("::", 0, 0, 0);  // one socket for both
  v6 = last, port = port_of(v6);
  listen(v6, 5);
  printf("both: %s", reached("127.0.0.1", port));
  struct sockaddr_in6 peer;
  socklen_t length = sizeof peer;
  int accepted = accept(v6, (void *)&peer, &length);
  told(", accepted at", accepted, getsockname);
  told(" from", accepted, getpeername);
  told(", client at", last, getsockname);
  told(" to", last, getpeername);
  printf("\n%s", reached("::1", port));
  printf(" %d", waiting(v6));
  printf(", %s", reached("::ffff:127.0.0.1", port));
  printf(" %d, listens at", waiting(v6));
  told("", v6, getsockname);
  printf(", taken %d\n", bound("0.0.0.0", port, 0, 0));
  close(v6);

  bound("127.0.0.1", 0, 0, 0);  // several addresses, one port
  int first = last;
  port = port_of(first);
  printf("another address %d", bound("127.0.0.2", port, 0, 0));
  int second = last;
  printf(" any %d\n", bound("0.0.0.0", port, 0, 0));
  listen(first, 5);
  listen(second, 5);
  printf("127.0.0.2 %s", reached("127.0.0.2", port));
  printf(" %d %d", waiting(first), waiting(second));
  printf(", 127.0.0.3 %s\n", reached("127.0.0.3", port));
  printf("shared %d", bound("127.0.0.7", port, 0, SO_REUSEPORT));
  printf(" %d", bound("127.0.0.7", port, 0, SO_REUSEPORT));
  printf(" %d\n", bound("127.0.0.7", port, 0, 0));

  int later = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);  // without waiting
  struct sockaddr_in to = {AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}};
  struct pollfd out = {later, POLLOUT, 0};
  printf("later %d", connect(later, (void *)&to, sizeof to) ? errno : 0);
  printf(" ready %d", poll(&out, 1, 1000));
  printf(" then %d", connect(later, (void *)&to, sizeof to) ? errno : 0);
  printf(" %d", connect(later, (void *)&to, sizeof to) ? errno : 0);
  close(first);
  later = out.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  printf(", to nobody %d", connect(later, (void *)&to, sizeof to) ? errno : 0);
  poll(&out, 1, 1000);
  int error = 0;
  length = sizeof error;
  getsockopt(later, SOL_SOCKET, SO_ERROR, &error, &length);
  printf(" %d", error);
  getsockopt(later, SOL_SOCKET, SO_ERROR, &error, &length);
  printf(" %d\n", error);
  printf("protocols %d", socket(AF_INET, SOCK_STREAM, 136) < 0 ? errno : 0);
  printf(" %d", socket(AF_INET, SOCK_DGRAM, IPPROTO_TCP) < 0 ? errno : 0);
  printf(" %d\n", socket(AF_INET, SOCK_STREAM, IPPROTO_TCP) < 0 ? errno : 0);
}

static void of_datagram(const char *name, int from, size_t room) {
  union {
    struct cmsghdr head;
    char bytes[256];
  } control;
  struct iovec part = {received, 100};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = room};
  recvmsg(from, &message, 0);
  printf("%s: %.*s cut %d", name, 5, received, !!(message.msg_flags & MSG_CTRUNC));
  for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one)) {
    printf(", %d %d of %d", one->cmsg_level, one->cmsg_type, (int)one->cmsg_len);
    if (one->cmsg_len >= CMSG_LEN(4)) printf(" is %d", *(int *)CMSG_DATA(one));
  }
  printf("\n");
}

static void messages(void) {
  int a = socket(AF_INET6, SOCK_DGRAM, 0), b = socket(AF_INET6, SOCK_DGRAM, IPPROTO_UDP), on = 1;
  struct sockaddr_in6 here = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  socklen_t length = sizeof here;
  bind(a, (void *)&here, sizeof here);
  getsockname(a, (void *)&here, &length);
  connect(b, (void *)&here, sizeof here);
  send(b, "first", 5, 0);
  of_datagram("nothing asked for", a, 256);
  setsockopt(a, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, &on, sizeof on);
  setsockopt(a, IPPROTO_IPV6, IPV6_RECVTCLASS, &on, sizeof on);
  for (size_t room = 256; room; room = room > 60 ? 44 : room > 40 ? 20 : room > 15 ? 10 : 0) {
    send(b, "other", 5, 0);
    of_datagram("defaults", a, room);
  }
  char control[CMSG_SPACE(4)] = {0};
  struct iovec part = {"third", 5};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr *one = CMSG_FIRSTHDR(&message);
  one->cmsg_level = IPPROTO_IPV6, one->cmsg_type = IPV6_HOPLIMIT, one->cmsg_len = CMSG_LEN(4);
  *(int *)CMSG_DATA(one) = 7;
  int class = 3;
  setsockopt(b, IPPROTO_IPV6, IPV6_TCLASS, &class, sizeof class);
  sendmsg(b, &message, 0);
  of_datagram("chosen", a, 256);
  *(int *)CMSG_DATA(one) = 256;
  printf("too large: %s\n", count_of(sendmsg(b, &message, 0)));
  close(a);

  int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);  // the other side goes
  struct sockaddr_in v4 = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}};
  length = sizeof v4;
  bind(listener, (void *)&v4, sizeof v4);
  getsockname(listener, (void *)&v4, &length);
  listen(listener, 1);
  connect(client, (void *)&v4, sizeof v4);
  close(accept(listener, 0, 0));
  signal(SIGPIPE, SIG_IGN);
  printf("closed: read %zd", read(client, received, 5));
  printf(" nothing %zd", send(client, "", 0, 0));
  printf(" once %zd", send(client, "x", 1, 0));
  usleep(20000);
  printf(" again %s\n", count_of(send(client, "x", 1, 0)));

  struct sockaddr_un own = {AF_UNIX}, other = {AF_UNIX};  // names that the kernel chooses
  int first = socket(AF_UNIX, SOCK_DGRAM, 0), second = socket(AF_UNIX, SOCK_DGRAM, 0);
  printf("named %d %d", bind(first, (void *)&own, 2), bind(second, (void *)&other, 2));
  length = sizeof own;
  getsockname(first, (void *)&own, &length);
  printf(" of %d starts %d", (int)length, own.sun_path[0]);
  length = sizeof other;
  getsockname(second, (void *)&other, &length);
  printf(" differ %d", memcmp(own.sun_path, other.sun_path, 6) != 0);
  sendto(second, "named", 5, 0, (void *)&own, length);
  length = sizeof own;
  printf(" got %zd", recvfrom(first, received, 99, 0, (void *)&own, &length));
  printf(" from it %d\n", !memcmp(own.sun_path, other.sun_path, 6));

  int lite = socket(AF_INET, SOCK_DGRAM, 136), plain = socket(AF_INET, SOCK_DGRAM, 0), protocol = 0;
  v4.sin_port = 0;
  length = sizeof v4;
  bind(lite, (void *)&v4, sizeof v4);
  getsockname(lite, (void *)&v4, &length);
  printf("another protocol, the same port %d", bind(plain, (void *)&v4, sizeof v4));
  sendto(socket(AF_INET, SOCK_DGRAM, 136), "light", 5, 0, (void *)&v4, sizeof v4);
  printf(" got %zd", recv(lite, received, 99, MSG_DONTWAIT));
  printf(" %s", count_of(recv(plain, received, 99, MSG_DONTWAIT)));
  length = sizeof protocol;
  getsockopt(lite, SOL_SOCKET, SO_PROTOCOL, &protocol, &length);
  printf(" protocol %d\n", protocol);
}

int main(int count, char **arguments) {
  const char *what = arguments[1];
  setbuf(stdout, 0);
  if (!strcmp(what, "interrupted")) interrupted();
  else if (!strcmp(what, "reading")) reading();
  else if (!strcmp(what, "sizes")) sizes();
  else if (!strcmp(what, "large")) too_large();
  else if (!strcmp(what, "addresses")) addresses();
  else if (!strcmp(what, "messages")) messages();
  return 0;
}
