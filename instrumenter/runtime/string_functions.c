/* memcpy, memmove, memset and strlen a word at a time, as the C libraries of other systems have them. -DMAKE_NAME says
 * which of them is compiled: each is an object of its own.
 *
 * Of a word only a part of which is asked for, all is read: a word is never in two pages. Nothing else is written. */
#include <stddef.h>
#include <stdint.h>

typedef uintptr_t __attribute__((may_alias)) word;
enum { WORD = sizeof(word) };
#define FEWEST_FOR_WORDS (2 * WORD)
/* Weak and hidden, as in the compiler's own library: a function of the same name in the program takes its place. */
#define LIBRARY __attribute__((weak, visibility("hidden")))
#define PAST_WORD(p) ((uintptr_t)(p) % WORD)

/* Copies from low to high addresses: the right order where `to` is below `from`, too. */
static inline void copy_upwards(unsigned char *to, const unsigned char *from, size_t size)
{
    if (size >= FEWEST_FOR_WORDS || PAST_WORD((uintptr_t)to | (uintptr_t)from) == 0) {
        for (; PAST_WORD(to); size--)
            *to++ = *from++;
        if (PAST_WORD(from) == 0) {
            for (; size >= 4 * WORD; size -= 4 * WORD, to += 4 * WORD, from += 4 * WORD) {
                const word *source = (const word *)from;
                word a = source[0], b = source[1], c = source[2], d = source[3];
                word *target = (word *)to;
                target[0] = a, target[1] = b, target[2] = c, target[3] = d;
            }
            for (; size >= WORD; size -= WORD, to += WORD, from += WORD)
                *(word *)to = *(const word *)from;
        } else {
            unsigned low_bits = 8 * PAST_WORD(from), high_bits = 8 * WORD - low_bits;
            const word *source = (const word *)(from - PAST_WORD(from));
            word low = *source++;
            for (; size >= 2 * WORD; size -= 2 * WORD, to += 2 * WORD, from += 2 * WORD) {
                word middle = *source++, high = *source++;
                ((word *)to)[0] = low >> low_bits | middle << high_bits;
                ((word *)to)[1] = middle >> low_bits | high << high_bits;
                low = high;
            }
            for (; size >= WORD; size -= WORD, to += WORD, from += WORD) {
                word high = *source++;
                *(word *)to = low >> low_bits | high << high_bits;
                low = high;
            }
        }
    }
    for (; size; size--)
        *to++ = *from++;
}

/* Copies from high to low addresses, for `to` above `from`; both are the ends. */
static inline void copy_downwards(unsigned char *to, const unsigned char *from, size_t size)
{
    if (size >= FEWEST_FOR_WORDS || PAST_WORD((uintptr_t)to | (uintptr_t)from) == 0) {
        for (; PAST_WORD(to); size--)
            *--to = *--from;
        if (PAST_WORD(from) == 0) {
            for (; size >= 4 * WORD; size -= 4 * WORD) {
                from -= 4 * WORD, to -= 4 * WORD;
                const word *source = (const word *)from;
                word a = source[0], b = source[1], c = source[2], d = source[3];
                word *target = (word *)to;
                target[0] = a, target[1] = b, target[2] = c, target[3] = d;
            }
            for (; size >= WORD; size -= WORD) {
                from -= WORD, to -= WORD;
                *(word *)to = *(const word *)from;
            }
        } else {
            unsigned low_bits = 8 * PAST_WORD(from), high_bits = 8 * WORD - low_bits;
            const word *source = (const word *)(from - PAST_WORD(from));
            word high = *source;
            for (; size >= 2 * WORD; size -= 2 * WORD) {
                word middle = *--source, low = *--source;
                from -= 2 * WORD, to -= 2 * WORD;
                ((word *)to)[1] = middle >> low_bits | high << high_bits;
                ((word *)to)[0] = low >> low_bits | middle << high_bits;
                high = low;
            }
            for (; size >= WORD; size -= WORD) {
                word low = *--source;
                from -= WORD, to -= WORD;
                *(word *)to = low >> low_bits | high << high_bits;
                high = low;
            }
        }
    }
    for (; size; size--)
        *--to = *--from;
}

#ifdef MAKE_memcpy
LIBRARY void *memcpy(void *restrict to, const void *restrict from, size_t size)
{
    copy_upwards(to, from, size);
    return to;
}
#endif

#ifdef MAKE_memmove
LIBRARY void *memmove(void *to, const void *from, size_t size)
{
    if ((uintptr_t)to - (uintptr_t)from >= size)
        copy_upwards(to, from, size);
    else
        copy_downwards((unsigned char *)to + size, (const unsigned char *)from + size, size);
    return to;
}
#endif

#ifdef MAKE_memset
LIBRARY void *memset(void *memory, int value, size_t size)
{
    unsigned char *to = memory;
    if (size >= FEWEST_FOR_WORDS || PAST_WORD(to) == 0) {
        word filled = (word)-1 / 255 * (unsigned char)value;
        for (; PAST_WORD(to); size--)
            *to++ = value;
        for (; size >= 4 * WORD; size -= 4 * WORD, to += 4 * WORD) {
            word *target = (word *)to;
            target[0] = filled, target[1] = filled, target[2] = filled, target[3] = filled;
        }
        for (; size >= WORD; size -= WORD, to += WORD)
            *(word *)to = filled;
    }
    for (; size; size--)
        *to++ = value;
    return memory;
}
#endif

#ifdef MAKE_strlen
LIBRARY size_t strlen(const char *text)
{
    const word ones = (word)-1 / 255, highest_bits = ones * 128;
    const char *end = text;
    for (; PAST_WORD(end); end++)
        if (!*end)
            return end - text;
    const word *words = (const word *)end;
    while (!((*words - ones) & ~*words & highest_bits))
        words++;
    for (end = (const char *)words; *end; end++)
        ;
    return end - text;
}
#endif
