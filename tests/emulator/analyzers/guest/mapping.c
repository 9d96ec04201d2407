// A dynamic linker that maps a library by itself, says so as real ones do, uses and unmaps it; the library; a program.
#define CALL(number, a, b, c, d, e, f)                                                              \
  ({                                                                                                \
    register long x0 __asm__("a0") = (long)(a), x1 __asm__("a1") = (long)(b), x2 __asm__("a2") = (long)(c); \
    register long x3 __asm__("a3") = (long)(d), x4 __asm__("a4") = (long)(e), x5 __asm__("a5") = (long)(f); \
    register long n __asm__("a7") = (number);                                                       \
    __asm__ volatile("ecall" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5), "r"(n) : "memory"); \
    x0;                                                                                             \
  })

#if defined(LOADER)
__asm__(".hidden load\n.globl _start\n_start: mv a0, sp\n call load\n jr a0\n");
__attribute__((noinline, visibility("protected"))) void _dl_debug_state(void) { __asm__ volatile(""); }

enum { OPENAT = 56, PREAD = 67, MUNMAP = 215, MMAP = 222, BASE = 0x40000000, PAGE = 4096 };

__attribute__((visibility("hidden"))) long load(long *stack) {
  long count = *stack++, entry = 0;
  unsigned char header[64 + 56 * 12];
  for (stack += count + 1; *stack; stack++) continue;
  for (stack++; stack[0]; stack += 2)
    if (stack[0] == 9) entry = stack[1];
  long file = CALL(OPENAT, -100, "/lib/part.so", 0, 0, 0, 0);
  CALL(PREAD, file, header, sizeof header, 0, 0, 0);
  long where = 0, size = 0;
  for (int n = 0; n < 12 && n < *(unsigned short *)(header + 56); n++) {
    long *part = (long *)(header + 64 + 56 * n);
    if ((int)part[0] == 1 && part[0] >> 32 & 1) {  // code
      long skip = part[2] % PAGE;
      where = BASE + part[2] - skip, size = part[5] + skip;
      CALL(MMAP, where, size, 5, 0x12, file, part[1] - part[1] % PAGE);
    }
  }
  _dl_debug_state();
  long (*triple)(long) = (long (*)(long))(BASE + *(long *)(header + 24)), sum = 0;
  for (int n = 0; n < 5; n++) sum += triple(n);
  CALL(MUNMAP, where, size, 0, 0, 0, 0);
  _dl_debug_state();
  return sum == 30 ? entry : 0;
}
#elif defined(PART)
long triple(long n) { return 3 * n; }
#else
void _start(void) { CALL(94, 5, 0, 0, 0, 0, 0); }
#endif
