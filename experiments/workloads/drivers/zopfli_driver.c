/*
 * Compresses generated text with zopfli and prints the size and a checksum of what comes out.
 *
 * Usage: zopfli_driver BYTES
 * Exit status: 0 fine, 1 out of memory, 2 bad arguments.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "zopfli.h"

/* Letters of unequal frequency, and now and then a stretch copied from before. */
static void generate(unsigned char *text, size_t bytes)
{
    uint64_t state = 1;
    for (size_t at = 0; at < bytes;) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        unsigned draw = (unsigned)(state >> 33);
        if (draw % 8 == 0 && at > 600) {
            size_t from = at - 1 - draw / 512 % 500;
            for (size_t length = 4 + draw / 8 % 40; length > 0 && at < bytes; length--)
                text[at++] = text[from++];
        } else {
            text[at++] = (unsigned char)("etaoinshrdlu \n"[draw / 8 % 14 * (draw / 512 % 14) / 13]);
        }
    }
}

int main(int argc, char **argv)
{
    char *end;
    long bytes = argc == 2 ? strtol(argv[1], &end, 10) : 0;
    if (argc != 2 || *end != '\0' || bytes < 1 || bytes > 1 << 30) {
        fputs("usage: zopfli_driver BYTES\n", stderr);
        return 2;
    }
    unsigned char *text = malloc((size_t)bytes), *out = NULL;
    size_t out_bytes = 0;
    ZopfliOptions options;
    if (!text) {
        fputs("zopfli_driver: out of memory\n", stderr);
        return 1;
    }
    generate(text, (size_t)bytes);
    ZopfliInitOptions(&options);
    options.numiterations = 5;
    options.blocksplitting = 0; /* its cost jumps about with the size */
    ZopfliCompress(&options, ZOPFLI_FORMAT_ZLIB, text, (size_t)bytes, &out, &out_bytes);
    uint64_t checksum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < out_bytes; i++)
        checksum = (checksum ^ out[i]) * UINT64_C(0x100000001b3);
    printf("zopfli: %ld bytes -> %zu bytes, checksum %016llx\n", bytes, out_bytes,
           (unsigned long long)checksum);
    free(text);
    free(out);
    return 0;
}
