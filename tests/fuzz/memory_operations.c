// Random operations on a range of pages, each with its result and what can then be done with the pages around it. The
// same source runs in the guest and on the host: arguments are the seed and the number of operations.
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 32, SPARE = 24, MOST = 8 };
static const int PROTECTIONS[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE};
// normal, random, sequential, willneed, dontneed (twice), free, remove, dontfork, dofork, dontdump, dodump, wipeonfork,
// keeponfork, cold, populate, dontneed_locked, and two that are none
static const int ADVICE[] = {0, 1, 2, 3, 4, 4, 8, 9, 10, 11, 16, 17, 18, 19, 20, 22, 23, 24, 5, 99};

static uint64_t state;
static char *base;
static char is_shared[PAGES];  // by page, as far as what was mapped succeeded
static int ends[2];

static unsigned below(unsigned n) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (state >> 11) % n;
}

static char *at(long page) { return base + page * PAGE; }

static int is_hole(long page) {
  unsigned char vector;
  return mincore(at(page), PAGE, &vector) != 0;
}

static void show(long first, long last) {
  for (long page = first < 0 ? 0 : first; page < (last > PAGES ? PAGES : last); page++) {
    char byte = 0;
    if (is_hole(page)) putchar('.');
    else if (write(ends[1], at(page), 1) != 1) putchar('n');
    else {
      int is_writable = read(ends[0], at(page), 1) == 1;
      if (!is_writable) read(ends[0], &byte, 1);
      printf("%c%02x", is_writable ? 'w' : 'r', (unsigned char)*at(page));
    }
  }
}

static void show_in_child(void) {
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    printf("child ");
    show(0, PAGES);
    putchar('\n');
    fflush(stdout);
    _exit(0);
  }
  waitpid(child, 0, 0);
}

// Where a call's result is in the range; addresses elsewhere differ, and what is there is removed again.
static long place(void *result, size_t bytes) {
  if (result == MAP_FAILED) return -errno;
  char *where = result;
  if (where >= base && where < at(PAGES)) return (where - base) / PAGE;
  munmap(result, bytes);
  return 1000;
}

static void note(long page, long length, int shared) {
  for (long i = page; i < page + length && i < PAGES; i++) is_shared[i] = shared;
}

static long remap(long page, long length) {
  void *target = at(below(PAGES - MOST));
  long to = ((char *)target - base) / PAGE, result, new_length = 1 + below(4);
  int old_shared = is_shared[page];
  switch (below(6)) {
    case 0:  // one page: grow, move
      if (old_shared) new_length = 1;
      result = place(mremap(at(page), PAGE, new_length * PAGE, below(2) ? MREMAP_MAYMOVE : 0), new_length * PAGE);
      printf("remap one to %ld", new_length);
      if (result >= 0 && result < PAGES) note(page, new_length, old_shared);
      return result;
    case 1:  // to a place
      if (old_shared) new_length = 1;
      if (is_hole(page) && to <= page && page < to + new_length) return 0;  // which error depends on the version
      result = place(mremap(at(page), PAGE, new_length * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target), new_length * PAGE);
      printf("remap one to %ld at %ld", new_length, to);
      if (result >= 0) note(to, new_length, old_shared);
      return result;
    case 2:  // a second time
      result = place(mremap(at(page), 0, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target), PAGE);
      printf("remap none at %ld", to);
      if (result >= 0) note(to, 1, old_shared);
      return result;
    case 3:  // shrink
      new_length = 1 + below(length);
      printf("shrink to %ld", new_length);
      return place(mremap(at(page), length * PAGE, new_length * PAGE, below(2) ? MREMAP_MAYMOVE : 0), PAGE);
    case 4: {  // over a hole
      long hole = page;
      while (hole < page + length && !is_hole(hole)) hole++;
      if (hole == page + length) return 0;
      printf("grow");
      return place(mremap(at(page), length * PAGE, (length + 1) * PAGE, below(2) ? MREMAP_MAYMOVE : 0), PAGE);
    }
    default: {  // what was just mapped, so that it is one mapping whatever the kernel has merged
      if (page + length > PAGES - MOST) page = PAGES - MOST - length;
      char *made = mmap(at(page), length * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
      note(page, length, 0);
      for (long i = 0; i < length; i++) made[i * PAGE] = below(256);
      int stays = below(4) == 0;
      if (stays) {
        new_length = length;
        munlock(made, length * PAGE);  // else Linux unlocks the rest of a larger mapping that this is part of
      }
      result = place(mremap(made, length * PAGE, new_length * PAGE,
                            MREMAP_MAYMOVE | MREMAP_FIXED | (stays ? 4 : 0), target), new_length * PAGE);
      printf("remap new %ld+%ld to %ld at %ld%s", page, length, new_length, to, stays ? " and stay" : "");
      if (result >= 0) note(to, new_length, 0);
      return result;
    }
  }
}

static long operation(long page, long length, size_t odd_bytes) {
  char *where = at(page) + (below(24) ? 0 : 1 + below(PAGE - 1));
  size_t bytes = length * PAGE - odd_bytes;
  if (!below(40)) bytes = below(2) ? 0 : (size_t)-1 - below(2 * PAGE);
  int shared = !below(3), advice;
  long result;
  switch (below(14)) {
    case 0:
    case 1:
    case 2:
      if (bytes > PAGES * PAGE) bytes = PAGE;
      if (page + length > PAGES) bytes = PAGE;
      printf("map %d", shared);
      result = place(mmap(where, bytes, PROTECTIONS[below(4)],
                          (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | (below(6) ? MAP_FIXED : MAP_FIXED_NOREPLACE),
                          -1, 0), bytes);
      if (result >= 0) note(result, (bytes + PAGE - 1) / PAGE, shared);
      return result;
    case 3:
      printf("unmap");
      if (bytes > PAGES * PAGE) bytes = PAGE;
      return munmap(where, bytes) ? -errno : 0;
    case 4:
    case 5:
      printf("protect");
      return mprotect(where, bytes, below(30) ? PROTECTIONS[below(4)] : 0x100) ? -errno : 0;
    case 6:
    case 7:
      advice = ADVICE[below(sizeof ADVICE / sizeof *ADVICE)];
      printf("advice %d", advice);
      return madvise(where, bytes, advice) ? -errno : 0;
    case 8:
      printf("sync");
      return msync(where, bytes, below(8)) ? -errno : 0;
    case 9:
      printf("lock");
      return (below(3) ? mlock(where, bytes) : syscall(SYS_mlock2, where, bytes, below(3))) ? -errno : 0;
    case 10:
      if (!below(8)) {
        printf("lock all");
        return (below(2) ? munlockall() : mlockall(1 + below(3))) ? -errno : 0;
      }
      printf("unlock");
      return munlock(where, bytes) ? -errno : 0;
    case 11:
    case 12:
      return remap(page, length);
    default:
      printf("store");
      if (is_hole(page) || write(ends[1], at(page), 1) != 1) return -1;
      char byte;
      result = read(ends[0], at(page), 1);
      if (result != 1) read(ends[0], &byte, 1);
      else *at(page) = below(256);
      return result;
  }
}

int main(int count, char **arguments) {
  state = strtoull(arguments[1], 0, 10) * 0x9E3779B97F4A7C15u + 88172645463325252u;
  long operations = atol(arguments[2]);
  char *whole = mmap(0, (PAGES + 2 * SPARE) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  base = whole + SPARE * PAGE;
  munmap(base, (PAGES + SPARE) * PAGE);
  mmap(at(PAGES + MOST), PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  mmap(at(-1), PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  pipe(ends);
  for (long i = 0; i < operations; i++) {
    long page = below(PAGES - MOST), length = 1 + below(MOST);
    printf("%ld: %ld+%ld ", i, page, length);
    errno = 0;
    long result = operation(page, length, below(4) ? 0 : below(PAGE));
    printf(" = %ld ", result);
    if (i % 40 == 39) show(0, PAGES);
    else show(page - 1, page + length + 1);
    putchar('\n');
    if (i % 100 == 99) show_in_child();
  }
  return 0;
}
