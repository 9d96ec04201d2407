// System V IPC: shared memory, semaphores, message queues.
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <time.h>

#include "guest_helpers.h"

static key_t key;

static void result(const char *what, long value) { printf("%s %ld errno %d\n", what, value, value < 0 ? errno : 0); }

static void ends(pid_t child) {
  int status;
  waitpid(child, &status, 0);
  printf("child %d %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static void permissions(struct ipc_perm *p, key_t expected) {
  printf("  key %d mode %o owner %d %d\n", p->__key == expected, p->mode & 0xFFFF, p->uid == getuid(), p->cgid == getgid());
}

static void segment(const char *what, int id, key_t expected) {
  struct shmid_ds s;
  memset(&s, 0xEE, sizeof s);
  result(what, shmctl(id, IPC_STAT, &s));
  permissions(&s.shm_perm, expected);
  printf("  size %ld attached %ld creator %d last %d times %d %d %d\n", (long)s.shm_segsz, (long)s.shm_nattch,
         s.shm_cpid == getpid(), s.shm_lpid == getpid() ? 1 : s.shm_lpid ? 2 : 0, s.shm_atime != 0, s.shm_dtime != 0,
         s.shm_ctime != 0);
}

static void memory(void) {
  result("none", shmget(key, 4096, 0600));
  result("no size", shmget(key, 0, IPC_CREAT | 0600));
  int id = shmget(key, 10000, IPC_CREAT | IPC_EXCL | 0640);
  segment("made", id, key);
  result("exists", shmget(key, 10000, IPC_CREAT | IPC_EXCL | 0640));
  result("same", shmget(key, 0, 0) - id);
  result("smaller", shmget(key, 9999, IPC_CREAT) - id);
  result("greater", shmget(key, 20000, 0));
  volatile char *a = shmat(id, 0, 0), *b = shmat(id, 0, SHM_RDONLY);
  a[9000] = 'x';
  a[12000] = 'y';
  printf("same %c %c %d\n", b[9000], b[12000], b[0]);
  segment("twice", id, key);
  result("where", (long)shmat(id, (char *)a + 1, 0));
  result("where", (long)shmat(id, (void *)a, 0));
  result("rounded", (long)shmat(id, (char *)b + 1, SHM_RND | SHM_REMAP) - (long)b);
  segment("mapped over", id, key);
  b[5] = 'z';
  printf("writable now %c\n", a[5]);
  result("detach", shmdt((char *)a + 4096));
  result("detach", shmdt((char *)a + 1));
  munmap((char *)a + 4096, 4096);
  segment("with a hole", id, key);
  result("detach", shmdt((void *)a));
  segment("detached", id, key);
  result("detach", shmdt((void *)a));
  pid_t child = guarded_fork();
  if (!child) {
    struct shmid_ds s;
    shmctl(id, IPC_STAT, &s);
    int before = s.shm_nattch;
    char *c = shmat(id, 0, 0);
    c[100] = b[5] + before;
    shmctl(id, IPC_RMID, 0);
    _exit(shmget(key, 0, 0) == -1 && errno == ENOENT ? 3 : 4);
  }
  ends(child);
  printf("by the child %d\n", b[100] - b[5]);
  segment("removed", id, IPC_PRIVATE);
  volatile char *again = shmat(id, 0, 0);
  printf("attached again %d\n", again != (void *)-1 && again[100] == b[100]);
  shmdt((void *)again);
  result("the last", shmdt((void *)b));
  result("gone", shmctl(id, IPC_STAT, &(struct shmid_ds){0}));
  id = shmget(IPC_PRIVATE, 100, 0400);
  int other = shmget(IPC_PRIVATE, 100, 0400);
  result("two private ones", other == id);
  shmctl(other, IPC_RMID, 0);
  segment("private", id, IPC_PRIVATE);
  result("nothing known", shmctl(id, 99, 0));
  result("negative", shmctl(-1, IPC_RMID, 0));
  struct shmid_ds set;
  shmctl(id, IPC_STAT, &set);
  set.shm_perm.mode = 0621;
  result("set", shmctl(id, IPC_SET, &set));
  segment("set", id, IPC_PRIVATE);
  result("status at", shmctl(id, IPC_STAT, (void *)16));
  result("lock", shmctl(id, SHM_LOCK, 0));
  segment("locked", id, IPC_PRIVATE);
  result("unlock", shmctl(id, SHM_UNLOCK, 0));
  result("remove", shmctl(id, IPC_RMID, 0));
  result("remove", shmctl(id, IPC_RMID, 0));
  result("attach", (long)shmat(id, 0, 0));
}

static int operate(int id, int n, ...) {
  struct sembuf all[4];
  __builtin_va_list more;
  __builtin_va_start(more, n);
  for (int i = 0; i < n; i++) {
    all[i].sem_num = __builtin_va_arg(more, int);
    all[i].sem_op = __builtin_va_arg(more, int);
    all[i].sem_flg = __builtin_va_arg(more, int);
  }
  return semop(id, all, n);
}

static void values(const char *what, int id) {
  unsigned short all[3];
  int status = semctl(id, 0, GETALL, all);
  printf("%s %d: %d %d %d\n", what, status, all[0], all[1], all[2]);
}

static void handler(int signal) {}

static void semaphores(void) {
  result("none", semget(key, 3, 0600));
  result("too many", semget(key, 100000, IPC_CREAT | 0600));
  result("of nothing", semget(key, 0, IPC_CREAT | 0600));
  int id = semget(key, 3, IPC_CREAT | 0600);
  result("same", semget(key, 0, 0) - id);
  result("more", semget(key, 4, 0));
  result("exists", semget(key, 3, IPC_CREAT | IPC_EXCL | 0600));
  values("made", id);
  unsigned short start[3] = {5, 0, 1};
  result("set", semctl(id, 0, SETALL, start));
  result("set", semctl(id, 1, SETVAL, 2));
  result("negative", semctl(id, 1, SETVAL, -1));
  result("too great", semctl(id, 1, SETVAL, 40000));
  result("number", semctl(id, 3, GETVAL));
  result("number", semctl(id, 3, SETVAL, 1));
  result("value", semctl(id, 0, GETVAL));
  result("who", semctl(id, 0, GETPID) == getpid());
  result("all", operate(id, 3, 0, -5, 0, 1, 3, 0, 2, 0, IPC_NOWAIT));
  values("nothing done", id);
  result("all", operate(id, 3, 0, -5, 0, 1, 3, 0, 2, -1, IPC_NOWAIT));
  values("done", id);
  result("zero", operate(id, 1, 0, 0, 0));
  result("number", operate(id, 1, 3, 1, 0));
  result("too great", operate(id, 2, 0, 1, 0, 1, 32767, 0));
  values("nothing done", id);
  result("too many", semop(id, (void *)start, 501));
  result("where", semop(id, (void *)16, 1));
  struct timespec soon = {0, 20000000}, wrong = {0, 1000000000};
  struct sembuf down = {0, -1, 0};
  result("time out", semtimedop(id, &down, 1, &soon));
  result("time", semtimedop(id, &down, 1, &wrong));
  // others wait, and are counted
  pid_t children[3];
  for (int i = 0; i < 3; i++)
    if (!(children[i] = guarded_fork())) _exit(i < 2 ? operate(id, 1, 0, -2, 0) : operate(id, 1, 1, 0, 0));
  while (semctl(id, 0, GETNCNT) < 2 || semctl(id, 1, GETZCNT) < 1) usleep(1000);
  printf("waiting %d %d %d %d\n", semctl(id, 0, GETNCNT), semctl(id, 0, GETZCNT), semctl(id, 1, GETNCNT),
         semctl(id, 1, GETZCNT));
  operate(id, 1, 0, 1, 0);
  usleep(5000);
  printf("still %d\n", semctl(id, 0, GETNCNT));
  operate(id, 1, 0, 3, 0);
  ends(children[0]);
  ends(children[1]);
  semctl(id, 1, SETVAL, 0);
  ends(children[2]);
  values("taken", id);
  // what is done with SEM_UNDO is undone at the end, but for what was set since
  pid_t child = guarded_fork();
  if (!child) {
    operate(id, 3, 0, 4, SEM_UNDO, 1, 2, SEM_UNDO, 2, 1, SEM_UNDO);
    operate(id, 1, 0, -1, SEM_UNDO);
    semctl(id, 1, SETVAL, 9);
    operate(id, 1, 2, -1, 0);
    _exit(semctl(id, 0, GETVAL));
  }
  ends(child);
  values("undone", id);
  child = guarded_fork();
  if (!child) {
    operate(id, 1, 0, 2, SEM_UNDO);
    kill(getpid(), SIGKILL);
  }
  ends(child);
  values("undone", id);
  // signals and stops end a wait
  child = guarded_fork();
  if (!child) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, 0);
    int first = operate(id, 1, 0, -1, 0) == -1 && errno == EINTR;
    _exit(first);
  }
  while (semctl(id, 0, GETNCNT) < 1) usleep(1000);
  kill(child, SIGUSR1);
  ends(child);
  printf("waiting %d\n", semctl(id, 0, GETNCNT));
  struct semid_ds s;
  memset(&s, 0xEE, sizeof s);
  result("status", semctl(id, 0, IPC_STAT, &s));
  permissions(&s.sem_perm, key);
  printf("  count %ld times %d %d\n", (long)s.sem_nsems, s.sem_otime != 0, s.sem_ctime != 0);
  s.sem_perm.mode = 0640;
  result("set", semctl(id, 0, IPC_SET, &s));
  semctl(id, 0, IPC_STAT, &s);
  permissions(&s.sem_perm, key);
  child = guarded_fork();
  if (!child) _exit(operate(id, 1, 0, -1, 0) == -1 && errno == EIDRM);
  while (semctl(id, 0, GETNCNT) < 1) usleep(1000);
  result("nothing known", semctl(id, 0, 99));
  result("remove", semctl(id, 0, IPC_RMID));
  ends(child);
  result("removed", operate(id, 1, 0, 1, 0));
  result("removed", semctl(id, 0, GETVAL));
}

static struct {
  long kind;
  char text[9000];
} message;

static long send(int id, long kind, const char *text, int flags) {
  message.kind = kind;
  strcpy(message.text, text);
  return msgsnd(id, &message, strlen(text), flags);
}

static void receive(const char *what, int id, long size, long kind, int flags) {
  memset(&message, '.', sizeof message);
  long n = msgrcv(id, &message, size, kind, flags);
  printf("%s %ld", what, n);
  if (n < 0) printf(" errno %d\n", errno);
  else printf(" kind %ld %.*s%c\n", message.kind, (int)n, message.text, message.text[n]);
}

static void messages(void) {
  result("none", msgget(key, 0600));
  int id = msgget(key, IPC_CREAT | 0600);
  result("same", msgget(key, 0) - id);
  result("exists", msgget(key, IPC_CREAT | IPC_EXCL));
  result("kind", send(id, 0, "x", 0));
  result("size", msgsnd(id, &message, 8193, 0));
  result("where", msgsnd(id, (void *)16, 1, 0));
  result("negative", msgsnd(-1, &message, 1, 0));
  for (int i = 1; i < 7; i++) send(id, i % 3 + 1, (const char *[]){"", "one", "two", "three", "four", "five", ""}[i], 0);
  struct msqid_ds s;
  memset(&s, 0xEE, sizeof s);
  result("status", msgctl(id, IPC_STAT, &s));
  permissions(&s.msg_perm, key);
  printf("  number %ld bytes %ld of %ld sender %d receiver %d times %d %d %d\n", (long)s.msg_qnum,
         (long)s.__msg_cbytes, (long)s.msg_qbytes, s.msg_lspid == getpid(), s.msg_lrpid, s.msg_stime != 0,
         s.msg_rtime != 0, s.msg_ctime != 0);
  receive("first", id, 100, 0, 0);
  receive("of kind 1", id, 100, 1, 0);
  receive("lowest", id, 100, -2, 0);
  receive("not of kind 3", id, 100, 3, MSG_EXCEPT | IPC_NOWAIT);
  receive("too long", id, 2, 3, 0);
  receive("cut", id, 2, 3, MSG_NOERROR);
  receive("none", id, 100, 3, IPC_NOWAIT);
  receive("negative", id, -1, 0, IPC_NOWAIT);
  receive("empty", id, 0, 1, IPC_NOWAIT);
  receive("nothing", id, 100, 0, IPC_NOWAIT);
  // the queue fills, and who sends waits
  msgctl(id, IPC_STAT, &s);
  s.msg_qbytes = 10;
  s.msg_perm.mode = 0660;
  result("set", msgctl(id, IPC_SET, &s));
  result("room", send(id, 1, "12345678", 0));
  result("full", send(id, 2, "123", IPC_NOWAIT));
  result("room", send(id, 2, "12", IPC_NOWAIT));
  result("full", send(id, 2, "1", IPC_NOWAIT));
  pid_t child = guarded_fork();
  if (!child) {
    send(id, 5, "waited", 0);
    receive("the child's", id, 100, 7, 0);
    fflush(stdout);
    _exit(0);
  }
  usleep(20000);
  receive("first", id, 100, 0, 0);
  receive("the child's", id, 100, 5, 0);
  send(id, 6, "other", 0);
  send(id, 7, "yes", 0);
  ends(child);
  child = guarded_fork();
  if (!child) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, 0);
    long n = msgrcv(id, &message, 10, 99, 0);
    _exit(n == -1 && errno == EINTR);
  }
  asleep(child);
  kill(child, SIGUSR1);
  ends(child);
  child = guarded_fork();
  if (!child) _exit(msgrcv(id, &message, 10, 99, 0) == -1 && errno == EIDRM);
  asleep(child);
  result("nothing known", msgctl(id, 99, 0));
  result("remove", msgctl(id, IPC_RMID, 0));
  ends(child);
  result("removed", msgctl(id, IPC_RMID, 0));
}

// What can be known of this machine only.
static void facts(void) {
  struct sembuf none;
  int segment_ = shmget(IPC_PRIVATE, 1, 0400), set_ = semget(IPC_PRIVATE, 1, 0400);
  int queue_ = msgget(key, IPC_CREAT | 0200);
  result("over nothing", (long)shmat(segment_, 0, SHM_REMAP));
  result("not to write", (long)shmat(segment_, 0, 0));
  result("not to write", operate(set_, 1, 0, 1, 0));
  result("not to write", semctl(set_, 0, SETVAL, 1));
  result("to read", operate(set_, 1, 0, 0, 0));
  result("no operation", semop(set_, &none, 0));
  result("to write", send(queue_, 1, "x", 0));
  result("not to read", msgrcv(queue_, &message, 1, 0, 0));
  result("more rights", msgget(key, 0600));
  shmctl(segment_, IPC_RMID, 0);
  semctl(set_, 0, IPC_RMID);
  msgctl(queue_, IPC_RMID, 0);
  struct shminfo limits;
  struct shm_info used;
  struct seminfo semaphores;
  struct msginfo queues;
  int first = shmget(key, 5000, IPC_CREAT | 0600), second = shmget(IPC_PRIVATE, 1, 0600);
  printf("identifiers %d %d\n", first, second);
  result("limits", shmctl(0, IPC_INFO, (void *)&limits));
  printf("  %ld %ld %ld\n", (long)limits.shmmin, (long)limits.shmmni, (long)limits.shmall);
  result("used", shmctl(0, SHM_INFO, (void *)&used));
  printf("  %d %ld\n", used.used_ids, (long)used.shm_tot);
  shmctl(first, IPC_RMID, 0);
  first = shmget(key, 5000, IPC_CREAT | 0);
  printf("identifier %d\n", first);
  result("old one", shmctl(0, IPC_RMID, 0));
  result("not to read", (long)shmat(first, 0, SHM_RDONLY));
  result("at", shmctl(1, SHM_STAT, (void *)&(struct shmid_ds){0}));
  result("at", shmctl(0, SHM_STAT, (void *)&(struct shmid_ds){0}));
  result("at", shmctl(0, SHM_STAT_ANY, (void *)&(struct shmid_ds){0}));
  result("at", shmctl(2, SHM_STAT, (void *)&(struct shmid_ds){0}));
  int n = 0;
  while (shmget(IPC_PRIVATE, 1, 0600) >= 0) n++;
  printf("segments %d errno %d\n", n, errno);
  int set = semget(IPC_PRIVATE, 30000, 0600);
  result("too many", semget(IPC_PRIVATE, 3000, 0600));
  result("limits", semctl(0, 0, IPC_INFO, &semaphores));
  printf("  %d %d %d %d\n", semaphores.semmni, semaphores.semmns, semaphores.semopm, semaphores.semvmx);
  result("used", semctl(0, 0, SEM_INFO, &semaphores));
  printf("  %d %d\n", semaphores.semusz, semaphores.semaem);
  result("at", semctl(0, 0, SEM_STAT, &(struct semid_ds){0}) - set);
  n = 0;
  int queue = msgget(IPC_PRIVATE, 0600);
  while (msgget(IPC_PRIVATE, 0600) >= 0) n++;
  printf("queues %d errno %d\n", n, errno);
  for (n = 0; send(queue, 1, "", IPC_NOWAIT) == 0;) n++;
  printf("messages %d\n", n);
  result("used", msgctl(0, MSG_INFO, (void *)&queues));
  printf("  %d %d %d\n", queues.msgpool, queues.msgmap, queues.msgtql);
  result("limits", msgctl(0, IPC_INFO, (void *)&queues));
  printf("  %d %d %d\n", queues.msgmax, queues.msgmnb, queues.msgmni);
  result("at", msgctl(1, MSG_STAT, (void *)&(struct msqid_ds){0}));
  struct msqid_ds s;
  msgctl(queue, IPC_STAT, &s);
  s.msg_qbytes = 20000;
  result("more bytes", msgctl(queue, IPC_SET, &s));
  result("shared", shmget(IPC_PRIVATE, 1L << 40, 0600));
}

int main(int count, char **arguments) {
  setvbuf(stdout, 0, _IOFBF, 1 << 16);
  key = 0x53000000 | getpid();
  if (!strcmp(arguments[1], "memory")) memory();
  if (!strcmp(arguments[1], "semaphores")) semaphores();
  if (!strcmp(arguments[1], "messages")) messages();
  if (!strcmp(arguments[1], "facts")) facts();
  if (!strcmp(arguments[1], "wait")) operate(semget(IPC_PRIVATE, 1, 0600), 1, 0, -1, 0);
  if (!strcmp(arguments[1], "receive")) msgrcv(msgget(IPC_PRIVATE, 0600), &message, 1, 0, 0);
  if (!strcmp(arguments[1], "attach")) *(volatile char *)shmat(shmget(IPC_PRIVATE, 1, 0600), 0, 0) = 1;
  return 0;
}
