/*
 * Compresses generated text with zstd, decompresses it and compares.
 *
 * Usage: zstd_driver BYTES LEVEL
 * Exit status: 0 fine, 1 the text did not come back, 2 bad arguments.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zstd.h>

/* Lines of a log: a time that grows, words drawn from a vocabulary, numbers. */
static void generate(char *text, size_t bytes)
{
    uint64_t state = 1;
    char line[96];
    for (size_t at = 0, time = 1700000000; at < bytes; time++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        unsigned draw = (unsigned)(state >> 33);
        int length = snprintf(line, sizeof line, "%zu host%u service-%c%c[%u]: request %u took %u us\n", time, draw % 7,
                              'a' + (char)(draw / 7 % 5), 'k' + (char)(draw / 35 % 9), draw / 315 % 400, draw % 100000,
                              draw / 1024 % 3000);
        size_t n = (size_t)length < bytes - at ? (size_t)length : bytes - at;
        memcpy(text + at, line, n);
        at += n;
    }
}

int main(int argc, char **argv)
{
    char *end_bytes, *end_level;
    long bytes = argc == 3 ? strtol(argv[1], &end_bytes, 10) : 0;
    long level = argc == 3 ? strtol(argv[2], &end_level, 10) : 0;
    if (argc != 3 || *end_bytes || *end_level || bytes < 1 || bytes > 1 << 30 || level < 1 || level > 22) {
        fputs("usage: zstd_driver BYTES LEVEL(1 to 22)\n", stderr);
        return 2;
    }
    size_t room = ZSTD_compressBound((size_t)bytes);
    char *text = malloc((size_t)bytes), *packed = malloc(room), *back = malloc((size_t)bytes);
    if (!text || !packed || !back)
        return 1;
    generate(text, (size_t)bytes);
    size_t packed_bytes = ZSTD_compress(packed, room, text, (size_t)bytes, (int)level);
    if (ZSTD_isError(packed_bytes))
        return 1;
    size_t back_bytes = ZSTD_decompress(back, (size_t)bytes, packed, packed_bytes);
    if (back_bytes != (size_t)bytes || memcmp(text, back, (size_t)bytes) != 0) {
        fputs("the text did not come back\n", stderr);
        return 1;
    }
    printf("%ld bytes to %zu at level %ld\n", bytes, packed_bytes, level);
    return 0;
}
