/* Computed jumps of every kind that compilers make, and some that they do not. */
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t state = 88172645463325252u;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/* A switch that becomes a table, with a case that is gone on to from another one. */
static __attribute__((noinline)) uint64_t step(unsigned operation, uint64_t a, uint64_t b)
{
    switch (operation) {
    case 0: return a + b;
    case 1: return a - b;
    case 2: return a * b;
    case 3: return a ^ (b >> 3);
    case 4: a += 17; __attribute__((fallthrough));
    case 5: return a | b;
    case 6: return b ? a / b : a;
    case 7: return a << (b & 63);
    case 8: return a >> (b & 63);
    case 9: return ~a;
    case 10: return a & b;
    case 11: return b % (a | 1);
    default: return 0;
    }
}

/* Small functions with several callers, which call one another. */
static __attribute__((noinline)) uint64_t leaf(uint64_t a) { return a * 3 + (a >> 5); }
static __attribute__((noinline)) uint64_t middle(uint64_t a) { return leaf(a) + leaf(a ^ 7) + 1; }
static __attribute__((noinline)) uint64_t tail(uint64_t a) { return a & 1 ? middle(a >> 1) : leaf(a); }

static __attribute__((noinline)) uint64_t fibonacci(unsigned n)
{
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

/* Returns four bytes behind where it was called from. */
__asm__(".globl skip_one\n.type skip_one, @function\nskip_one:\n  addi ra, ra, 4\n  ret\n");

static __attribute__((noinline)) uint64_t skipping(uint64_t a)
{
    __asm__ volatile(".option push\n.option norvc\n  call skip_one\n  addi %0, %0, 1\n  addi %0, %0, 2\n.option pop\n"
                     : "+r"(a) : : "ra");
    return a;
}

static jmp_buf back;

static __attribute__((noinline)) uint64_t thrower(uint64_t a)
{
    if (a % 5 == 0)
        longjmp(back, 1);
    return a + 1;
}

static __attribute__((noinline)) uint64_t catcher(volatile uint64_t a)
{
    return setjmp(back) ? a : thrower(a);
}

/* The guest's own tables of code. */
static uint64_t (*const functions[])(uint64_t) = {leaf, middle, tail, skipping, catcher};

static __attribute__((noinline)) uint64_t threaded(unsigned n, uint64_t a)
{
    static void *const labels[] = {&&one, &&two, &&three, &&done};
    goto *labels[n ? a % 3 : 3];
one:
    a += n;
    goto *labels[--n ? a % 3 : 3];
two:
    a ^= n << 4;
    goto *labels[--n ? a % 3 : 3];
three:
    a = a * 5 + 1;
    goto *labels[--n ? a % 3 : 3];
done:
    return a;
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    uint64_t sum = 0;
    for (long i = 0; i < rounds; i++) {
        uint64_t a = next();
        sum = step(a % 13, sum, a >> 8) + middle(a) + tail(sum) + leaf(a);
        sum += functions[a % 5](a >> 16) + threaded(a % 8, sum);
    }
    printf("%llu %llu\n", (unsigned long long)sum, (unsigned long long)fibonacci(15));
    return 0;
}
