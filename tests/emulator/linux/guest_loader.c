// A program and the smallest dynamic linker: it says what it was given and goes on at the program's entry point.
#define CALL(number, a, b, c)                                                                       \
  ({                                                                                                \
    register long x0 __asm__("a0") = (long)(a), x1 __asm__("a1") = (long)(b), x2 __asm__("a2") = (long)(c); \
    register long n __asm__("a7") = (number);                                                       \
    __asm__ volatile("ecall" : "+r"(x0) : "r"(x1), "r"(x2), "r"(n) : "memory");                     \
    x0;                                                                                             \
  })

static void say(const char *text) {
  long length = 0;
  while (text[length]) length++;
  CALL(64, 1, text, length);
}

#ifdef LOADER
__asm__(".hidden load\n.globl _start\n_start: mv a0, sp\n call load\n jr a0\n");
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
__attribute__((visibility("hidden"))) long load(long *stack) {
  long count = *stack++, entry = 0, base = 0, headers = 0;
  say(count == 2 && ((char *)stack[1])[0] == 'x' ? "loader\n" : "arguments lost\n");
  for (stack += count + 1; *stack; stack++) continue;
  for (stack++; stack[0]; stack += 2) {
    if (stack[0] == 3) headers = stack[1];
    if (stack[0] == 7) base = stack[1];
    if (stack[0] == 9) entry = stack[1];
  }
  say(base == (long)__ehdr_start ? "based\n" : "at the wrong base\n");
  say(headers && *(unsigned *)headers == 6 ? "headers\n" : "no headers\n");  // PT_PHDR comes first
  return entry;
}
#else
static char text[] = "program\n";
void _start(void) {
  say(text);
  CALL(94, 5, 0, 0);
}
#endif
