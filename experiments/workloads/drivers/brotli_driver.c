/*
 * Compresses generated text with brotli, decompresses it and compares.
 *
 * Usage: brotli_driver BYTES QUALITY
 * Exit status: 0 fine, 1 the text did not come back, 2 bad arguments.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <brotli/decode.h>
#include <brotli/encode.h>

/* Words drawn from a small vocabulary, the first ones most often. */
static void generate(uint8_t *text, size_t bytes)
{
    uint64_t state = 1;
    for (size_t at = 0; at < bytes;) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        unsigned draw = (unsigned)(state >> 40), word = draw % 61 * (draw / 64 % 61) / 60;
        for (unsigned letter = 0; letter < 2 + word % 7 && at < bytes; letter++)
            text[at++] = (uint8_t)('a' + (word * 7 + letter * (word % 5 + 3)) % 26);
        if (at < bytes)
            text[at++] = draw / 4096 % 9 == 0 ? '\n' : ' ';
    }
}

int main(int argc, char **argv)
{
    char *end_bytes, *end_quality;
    long bytes = argc == 3 ? strtol(argv[1], &end_bytes, 10) : 0;
    long quality = argc == 3 ? strtol(argv[2], &end_quality, 10) : 0;
    if (argc != 3 || *end_bytes || *end_quality || bytes < 1 || bytes > 1 << 30 || quality < 0 ||
        quality > 11) {
        fputs("usage: brotli_driver BYTES QUALITY(0 to 11)\n", stderr);
        return 2;
    }
    size_t packed_bytes = BrotliEncoderMaxCompressedSize((size_t)bytes), back_bytes = (size_t)bytes;
    uint8_t *text = malloc((size_t)bytes), *packed = malloc(packed_bytes), *back = malloc((size_t)bytes);
    if (!text || !packed || !back) {
        fputs("brotli_driver: out of memory\n", stderr);
        return 1;
    }
    generate(text, (size_t)bytes);
    if (!BrotliEncoderCompress((int)quality, BROTLI_DEFAULT_WINDOW, BROTLI_MODE_TEXT, (size_t)bytes, text,
                               &packed_bytes, packed) ||
        BrotliDecoderDecompress(packed_bytes, packed, &back_bytes, back) != BROTLI_DECODER_RESULT_SUCCESS ||
        back_bytes != (size_t)bytes || memcmp(text, back, back_bytes) != 0) {
        fputs("brotli_driver: the text did not come back\n", stderr);
        return 1;
    }
    uint64_t checksum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < packed_bytes; i++)
        checksum = (checksum ^ packed[i]) * UINT64_C(0x100000001b3);
    printf("brotli: %ld bytes -> %zu bytes, checksum %016llx\n", bytes, packed_bytes,
           (unsigned long long)checksum);
    free(text);
    free(packed);
    free(back);
    return 0;
}
