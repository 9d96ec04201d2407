/*
 * bwtzip - a block-sorting compressor that undoes and checks its own work.
 *
 * Input is generated from a seed: stretches of Markov text, long runs, binary records and noise.
 * Each block goes through a Burrows-Wheeler transform (radix bucket sort, then multikey quicksort,
 * with prefix doubling when a block proves too repetitive), move-to-front with run-length coded
 * zeros, and several canonical Huffman tables per block. The stream is then decoded, and bytes and
 * CRC-32 are compared with the input.
 *
 * Usage: bwtzip [tiny|small|medium|large|KIB [SEED]]
 * Exit status: 0 fine, 1 the self-check failed, 2 bad arguments.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MIN_BLOCK_BYTES = 8 * 1024, /* rotations are sorted within one block, an eighth of the input */
    MAX_BLOCK_BYTES = 96 * 1024,
    WORK_PER_BYTE = 40,         /* comparisons a byte before prefix doubling takes over */
    INSERTION_LIMIT = 8,        /* ranges this short are sorted by insertion */
    RUN_A = 0,                  /* zero runs are written in bijective base 2 with digits A and B */
    RUN_B = 1,
    END_OF_BLOCK = 257,
    ALPHABET = 258,
    MAX_CODE_BITS = 15,
    MAX_TABLES = 6,
    GROUP_SYMBOLS = 50, /* symbols that share one choice of Huffman table */
    TABLE_PASSES = 4,
    MAX_KIB = 1024 * 1024
};

/* What a run did; every field is a candidate for a software metric. */
struct statistics {
    uint64_t blocks;
    uint64_t fallback_blocks;
    uint64_t comparisons;
    uint64_t doubling_rounds;
    uint64_t zero_runs;
    uint64_t symbols;
    uint64_t table_switches;
    uint64_t bits_written;
};

static struct statistics stats;

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("bwtzip: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        fail("out of memory (%zu x %zu bytes)", count, size);
    return memory;
}

/* ---- input --------------------------------------------------------------------------------- */

static uint64_t random_state;

static uint64_t random_next(void)
{
    uint64_t z = (random_state += UINT64_C(0x9e3779b97f4a7c15)); /* splitmix64 */
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint32_t random_below(uint32_t bound)
{
    return (uint32_t)(((random_next() >> 32) * bound) >> 32);
}

enum { VOCABULARY = 512, WORD_MAX = 11, SUCCESSORS = 8 };

static char vocabulary[VOCABULARY][WORD_MAX + 1];
static uint16_t successors[VOCABULARY][SUCCESSORS];

/* Invents pronounceable words, and for each the few words likely to follow it. */
static void build_vocabulary(void)
{
    static const char consonants[] = "bcdfghklmnprstvwz", vowels[] = "aeiou";
    for (int word = 0; word < VOCABULARY; word++) {
        int length = 2 + (int)random_below(WORD_MAX - 2);
        for (int i = 0; i < length; i++)
            vocabulary[word][i] = (i + word) % 2 ? vowels[random_below(sizeof vowels - 1)]
                                                 : consonants[random_below(sizeof consonants - 1)];
        vocabulary[word][length] = '\0';
        for (int i = 0; i < SUCCESSORS; i++)
            successors[word][i] = (uint16_t)random_below(VOCABULARY);
    }
}

static void generate_text(uint8_t *out, size_t bytes)
{
    uint32_t word = random_below(VOCABULARY);
    size_t at = 0;
    int words_in_sentence = 0;
    while (at < bytes) {
        for (const char *letter = vocabulary[word]; *letter && at < bytes; letter++)
            out[at++] = (uint8_t)*letter;
        if (at < bytes)
            out[at++] = ++words_in_sentence % 12 == 0 ? '\n' : ' ';
        uint32_t pick = random_below(16); /* mostly a likely successor, the first ones most often */
        word = pick < 15 ? successors[word][pick * pick / 32] : random_below(VOCABULARY);
    }
}

static void generate_runs(uint8_t *out, size_t bytes)
{
    size_t at = 0;
    while (at < bytes) {
        uint8_t value = (uint8_t)(random_below(3) * 0x55);
        size_t length = 16 + random_below(3000);
        for (; length > 0 && at < bytes; length--)
            out[at++] = value;
    }
}

/* Fixed-size records: a rising key, a small enumeration, a slowly varying reading, padding. */
static void generate_records(uint8_t *out, size_t bytes)
{
    uint32_t key = (uint32_t)random_next(), reading = 20000;
    for (size_t at = 0; at < bytes; at++) {
        switch (at % 16) {
        case 0:
            key += 1 + random_below(5);
            reading += random_below(65) - 32;
            /* fall through */
        case 1:
        case 2:
        case 3:
            out[at] = (uint8_t)(key >> (8 * (at % 16)));
            break;
        case 4:
            out[at] = (uint8_t)random_below(6);
            break;
        case 8:
        case 9:
            out[at] = (uint8_t)(reading >> (8 * (at % 16 - 8)));
            break;
        default:
            out[at] = 0;
        }
    }
}

static void generate_noise(uint8_t *out, size_t bytes)
{
    for (size_t at = 0; at < bytes; at++)
        out[at] = (uint8_t)(random_next() >> 40);
}

/* Stretches of one kind, from 1 KiB to a little more than a block. */
static void generate_input(uint8_t *out, size_t bytes, size_t block_bytes)
{
    build_vocabulary();
    for (size_t at = 0; at < bytes;) {
        size_t stretch = 1024 + random_below((uint32_t)block_bytes);
        if (stretch > bytes - at)
            stretch = bytes - at;
        switch (random_below(8)) {
        case 0:
            generate_runs(out + at, stretch);
            break;
        case 1:
        case 2:
            generate_records(out + at, stretch);
            break;
        case 3:
            generate_noise(out + at, stretch);
            break;
        default:
            generate_text(out + at, stretch);
        }
        at += stretch;
    }
}

/* ---- CRC-32 -------------------------------------------------------------------------------- */

static uint32_t crc_table[256];

static void build_crc_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
        crc_table[byte] = crc;
    }
}

static uint32_t crc32_of(const uint8_t *data, size_t bytes)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < bytes; i++)
        crc = crc_table[(crc ^ data[i]) & 0xff] ^ (crc >> 8);
    return ~crc;
}

/* ---- bit streams --------------------------------------------------------------------------- */

struct bit_writer {
    uint8_t *bytes;
    size_t length, capacity;
    uint64_t pending;
    unsigned pending_bits;
};

struct bit_reader {
    const uint8_t *bytes;
    size_t length, position;
    uint64_t pending;
    unsigned pending_bits;
};

static void put_byte(struct bit_writer *out, uint8_t byte)
{
    if (out->length == out->capacity) {
        out->capacity = out->capacity ? 2 * out->capacity : 65536;
        out->bytes = realloc(out->bytes, out->capacity);
        if (!out->bytes)
            fail("out of memory (%zu bytes of output)", out->capacity);
    }
    out->bytes[out->length++] = byte;
}

static void put_bits(struct bit_writer *out, uint32_t value, unsigned bits)
{
    out->pending = (out->pending << bits) | value;
    out->pending_bits += bits;
    stats.bits_written += bits;
    while (out->pending_bits >= 8) {
        out->pending_bits -= 8;
        put_byte(out, (uint8_t)(out->pending >> out->pending_bits));
    }
}

static void flush_bits(struct bit_writer *out)
{
    if (out->pending_bits > 0)
        put_bits(out, 0, 8 - out->pending_bits);
}

static uint32_t get_bits(struct bit_reader *in, unsigned bits)
{
    while (in->pending_bits < bits) {
        if (in->position == in->length)
            fail("the compressed stream ends early, at byte %zu", in->position);
        in->pending = (in->pending << 8) | in->bytes[in->position++];
        in->pending_bits += 8;
    }
    in->pending_bits -= bits;
    return (uint32_t)(in->pending >> in->pending_bits) & ((UINT32_C(1) << bits) - 1);
}

/* ---- Burrows-Wheeler transform ------------------------------------------------------------- */

struct block {
    int32_t length, capacity;
    uint8_t *text;      /* length bytes, then the same again so that rotations need no wrapping */
    int32_t *rotations; /* start of each rotation, in sorted order */
    int32_t *rank;
    int32_t *scratch;
    int32_t *buckets; /* 65536 + 1, or length + 1 while doubling */
    uint8_t *last;    /* last column of the sorted rotations */
};

static int64_t work_left;

static void swap_positions(int32_t *a, int32_t *b)
{
    int32_t kept = *a;
    *a = *b;
    *b = kept;
}

static bool rotation_less(const struct block *block, int32_t a, int32_t b, int32_t depth)
{
    const uint8_t *text = block->text;
    for (int32_t i = depth; i < block->length; i++) {
        if (--work_left < 0)
            return false;
        stats.comparisons++;
        if (text[a + i] != text[b + i])
            return text[a + i] < text[b + i];
    }
    return false;
}

static void insertion_sort(struct block *block, int32_t low, int32_t high, int32_t depth)
{
    int32_t *rotations = block->rotations;
    for (int32_t i = low + 1; i < high; i++) {
        int32_t moving = rotations[i], j = i;
        for (; j > low && rotation_less(block, moving, rotations[j - 1], depth); j--)
            rotations[j] = rotations[j - 1];
        rotations[j] = moving;
    }
}

static uint8_t median_of_three(uint8_t a, uint8_t b, uint8_t c)
{
    if (a < b)
        return b < c ? b : a < c ? c : a;
    return a < c ? a : b < c ? c : b;
}

/* Bentley and Sedgewick's multikey quicksort of rotations[low..high) that agree on depth bytes. */
static void multikey_quicksort(struct block *block, int32_t low, int32_t high, int32_t depth)
{
    const uint8_t *text = block->text;
    int32_t *rotations = block->rotations;
    while (high - low > INSERTION_LIMIT && depth < block->length && work_left > 0) {
        uint8_t pivot = median_of_three(text[rotations[low] + depth],
                                        text[rotations[low + (high - low) / 2] + depth],
                                        text[rotations[high - 1] + depth]);
        int32_t less = low, equal = low, greater = high;
        while (equal < greater) {
            uint8_t byte = text[rotations[equal] + depth];
            if (byte < pivot)
                swap_positions(&rotations[less++], &rotations[equal++]);
            else if (byte > pivot)
                swap_positions(&rotations[equal], &rotations[--greater]);
            else
                equal++;
        }
        work_left -= high - low;
        stats.comparisons += (uint64_t)(high - low);
        multikey_quicksort(block, low, less, depth);
        multikey_quicksort(block, greater, high, depth);
        low = less;
        high = greater;
        depth++;
    }
    if (depth < block->length)
        insertion_sort(block, low, high, depth);
}

/* Sorts by the first two bytes, then each bucket; returns false when the block was too costly. */
static bool main_sort(struct block *block)
{
    const int32_t n = block->length;
    const uint8_t *text = block->text;
    int32_t *buckets = block->buckets;
    memset(buckets, 0, (65536 + 1) * sizeof *buckets);
    for (int32_t i = 0; i < n; i++)
        buckets[(text[i] << 8 | text[i + 1]) + 1]++;
    for (int32_t pair = 0; pair < 65536; pair++)
        buckets[pair + 1] += buckets[pair];
    for (int32_t i = 0; i < n; i++)
        block->rotations[buckets[text[i] << 8 | text[i + 1]]++] = i;
    /* buckets[pair] is now the end of bucket pair */
    work_left = (int64_t)WORK_PER_BYTE * n;
    int32_t start = 0;
    for (int32_t pair = 0; pair < 65536; pair++) {
        if (buckets[pair] - start > 1)
            multikey_quicksort(block, start, buckets[pair], 2);
        if (work_left <= 0)
            return false;
        start = buckets[pair];
    }
    return true;
}

/* Counting sort of `from` into `to` by rank; ranks are below `ranks`. */
static void sort_by_rank(struct block *block, const int32_t *from, int32_t *to, int32_t ranks)
{
    int32_t *buckets = block->buckets;
    const int32_t n = block->length, *rank = block->rank;
    memset(buckets, 0, ((size_t)ranks + 1) * sizeof *buckets);
    for (int32_t i = 0; i < n; i++)
        buckets[rank[i] + 1]++;
    for (int32_t r = 0; r < ranks; r++)
        buckets[r + 1] += buckets[r];
    for (int32_t i = 0; i < n; i++)
        to[buckets[rank[from[i]]]++] = from[i];
}

/* Manber and Myers' prefix doubling: costs the same however repetitive the block is. */
static void fallback_sort(struct block *block)
{
    const int32_t n = block->length;
    int32_t *rotations = block->rotations, *rank = block->rank, *scratch = block->scratch;
    for (int32_t i = 0; i < n; i++) {
        rank[i] = block->text[i];
        scratch[i] = i;
    }
    sort_by_rank(block, scratch, rotations, 256);
    int32_t ranks = n > 256 ? n : 256;
    for (int32_t step = 1; step < n; step *= 2) {
        stats.doubling_rounds++;
        for (int32_t i = 0; i < n; i++) /* by second half: shift the order by step */
            scratch[i] = rotations[i] >= step ? rotations[i] - step : rotations[i] - step + n;
        sort_by_rank(block, scratch, rotations, ranks);
        int32_t next_rank = 0;
        scratch[rotations[0]] = 0;
        for (int32_t i = 1; i < n; i++) {
            int32_t here = rotations[i], before = rotations[i - 1];
            int32_t here_half = here + step < n ? here + step : here + step - n;
            int32_t before_half = before + step < n ? before + step : before + step - n;
            if (rank[here] != rank[before] || rank[here_half] != rank[before_half])
                next_rank++;
            scratch[here] = next_rank;
        }
        memcpy(rank, scratch, (size_t)n * sizeof *rank);
        if (next_rank == n - 1)
            break;
    }
}

/* Fills block->last and returns the row that holds the unrotated block. */
static int32_t forward_transform(struct block *block)
{
    const int32_t n = block->length;
    memcpy(block->text + n, block->text, (size_t)n);
    if (!main_sort(block)) {
        stats.fallback_blocks++;
        fallback_sort(block);
    }
    int32_t origin = -1;
    for (int32_t i = 0; i < n; i++) {
        int32_t start = block->rotations[i];
        if (start == 0)
            origin = i;
        block->last[i] = block->text[start == 0 ? n - 1 : start - 1];
    }
    return origin;
}

/* Follows the last-to-first mapping; the links are a random walk over the whole block. */
static void inverse_transform(struct block *block, int32_t origin, uint8_t *out)
{
    const int32_t n = block->length;
    int32_t starts[257] = {0};
    for (int32_t i = 0; i < n; i++)
        starts[block->last[i] + 1]++;
    for (int byte = 0; byte < 256; byte++)
        starts[byte + 1] += starts[byte];
    for (int32_t i = 0; i < n; i++)
        block->rank[starts[block->last[i]]++] = i;
    int32_t row = block->rank[origin];
    for (int32_t i = 0; i < n; i++) {
        out[i] = block->last[row];
        row = block->rank[row];
    }
}

/* ---- move to front and zero runs ----------------------------------------------------------- */

static uint8_t recency[256];

static void reset_recency(void)
{
    for (int i = 0; i < 256; i++)
        recency[i] = (uint8_t)i;
}

static uint8_t move_to_front(uint8_t byte)
{
    uint8_t carried = recency[0];
    int position = 0;
    while (carried != byte) {
        uint8_t next = recency[++position];
        recency[position] = carried;
        carried = next;
    }
    recency[0] = byte;
    return (uint8_t)position;
}

static uint8_t take_from(int position)
{
    uint8_t byte = recency[position];
    memmove(recency + 1, recency, (size_t)position);
    recency[0] = byte;
    return byte;
}

static int32_t put_zero_run(uint16_t *symbols, int32_t count, int32_t run)
{
    stats.zero_runs++;
    for (; run > 0; run = (run - 1) / 2)
        symbols[count++] = run & 1 ? RUN_A : RUN_B;
    return count;
}

/* Writes symbols 0 and 1 for zero runs, position + 1 for others, and the end mark. */
static int32_t encode_symbols(const struct block *block, uint16_t *symbols)
{
    int32_t count = 0, run = 0;
    reset_recency();
    for (int32_t i = 0; i < block->length; i++) {
        uint8_t position = move_to_front(block->last[i]);
        if (position == 0) {
            run++;
            continue;
        }
        if (run > 0)
            count = put_zero_run(symbols, count, run);
        run = 0;
        symbols[count++] = (uint16_t)(position + 1);
    }
    if (run > 0)
        count = put_zero_run(symbols, count, run);
    symbols[count++] = END_OF_BLOCK;
    stats.symbols += (uint64_t)count;
    return count;
}

/* ---- Huffman codes ------------------------------------------------------------------------- */

struct code_table {
    uint8_t lengths[ALPHABET];
    uint16_t codes[ALPHABET];
    uint16_t sorted[ALPHABET];        /* symbols by code */
    int32_t limits[MAX_CODE_BITS + 2]; /* first code value past each length, left-aligned per length */
    int32_t offsets[MAX_CODE_BITS + 2];
};

static struct code_table tables[MAX_TABLES];

struct heap {
    int32_t size;
    int32_t items[ALPHABET + 1];
    const uint32_t *weights;
};

static bool lighter(const struct heap *heap, int32_t a, int32_t b)
{
    uint32_t weight_a = heap->weights[a], weight_b = heap->weights[b];
    return weight_a < weight_b || (weight_a == weight_b && a < b);
}

static void sift_down(struct heap *heap, int32_t at)
{
    int32_t item = heap->items[at];
    for (;;) {
        int32_t child = 2 * at;
        if (child > heap->size)
            break;
        if (child < heap->size && lighter(heap, heap->items[child + 1], heap->items[child]))
            child++;
        if (!lighter(heap, heap->items[child], item))
            break;
        heap->items[at] = heap->items[child];
        at = child;
    }
    heap->items[at] = item;
}

static int32_t pop_lightest(struct heap *heap)
{
    int32_t lightest = heap->items[1];
    heap->items[1] = heap->items[heap->size--];
    if (heap->size > 0)
        sift_down(heap, 1);
    return lightest;
}

/* Code lengths for the frequencies; halves the differences until no code is too long. */
static void assign_lengths(const uint32_t *frequencies, uint8_t *lengths)
{
    uint32_t weights[2 * ALPHABET];
    int32_t parents[2 * ALPHABET];
    for (int i = 0; i < ALPHABET; i++)
        weights[i] = (frequencies[i] ? frequencies[i] : 1) << 4;
    for (;;) {
        struct heap heap = {.size = ALPHABET, .weights = weights};
        for (int i = 0; i < ALPHABET; i++)
            heap.items[i + 1] = i;
        for (int32_t i = ALPHABET / 2; i >= 1; i--)
            sift_down(&heap, i);
        int32_t nodes = ALPHABET;
        while (heap.size > 1) {
            int32_t a = pop_lightest(&heap), b = heap.items[1];
            weights[nodes] = weights[a] + weights[b];
            parents[a] = parents[b] = nodes;
            heap.items[1] = nodes++;
            sift_down(&heap, 1);
        }
        parents[nodes - 1] = -1;
        int longest = 0;
        for (int i = 0; i < ALPHABET; i++) {
            int length = 0;
            for (int32_t node = i; parents[node] >= 0; node = parents[node])
                length++;
            lengths[i] = (uint8_t)length;
            if (length > longest)
                longest = length;
        }
        if (longest <= MAX_CODE_BITS)
            return;
        for (int i = 0; i < ALPHABET; i++)
            weights[i] = ((weights[i] >> 5) + 1) << 4;
    }
}

/* Canonical codes, and what a decoder needs to read them a length at a time. */
static void assign_codes(struct code_table *table)
{
    int32_t code = 0, index = 0;
    for (int length = 1; length <= MAX_CODE_BITS; length++) {
        table->offsets[length] = index - code;
        for (int symbol = 0; symbol < ALPHABET; symbol++)
            if (table->lengths[symbol] == length) {
                table->codes[symbol] = (uint16_t)code++;
                table->sorted[index++] = (uint16_t)symbol;
            }
        table->limits[length] = code;
        code <<= 1;
    }
}

static uint32_t group_cost(const struct code_table *table, const uint16_t *symbols, int32_t count)
{
    uint32_t bits = 0;
    for (int32_t i = 0; i < count; i++)
        bits += table->lengths[symbols[i]];
    return bits;
}

static int cheapest_table(int table_count, const uint16_t *symbols, int32_t count)
{
    int best = 0;
    uint32_t best_bits = UINT32_MAX;
    for (int t = 0; t < table_count; t++) {
        uint32_t bits = group_cost(&tables[t], symbols, count);
        if (bits < best_bits) {
            best_bits = bits;
            best = t;
        }
    }
    return best;
}

static int32_t group_length(int32_t count, int32_t start)
{
    return count - start < GROUP_SYMBOLS ? count - start : GROUP_SYMBOLS;
}

/* First guess: each table owns a band of the alphabet that holds its share of the symbols. */
static void seed_tables(const uint16_t *symbols, int32_t count, int table_count)
{
    uint32_t frequencies[ALPHABET] = {0};
    for (int32_t i = 0; i < count; i++)
        frequencies[symbols[i]]++;
    int symbol = 0;
    uint32_t seen = 0;
    for (int t = 0; t < table_count; t++) {
        uint32_t until = (uint32_t)((uint64_t)count * (uint64_t)(t + 1) / (uint64_t)table_count);
        memset(tables[t].lengths, MAX_CODE_BITS, ALPHABET);
        while (symbol < ALPHABET && (seen < until || t == table_count - 1)) {
            tables[t].lengths[symbol] = 0;
            seen += frequencies[symbol++];
        }
    }
}

static void refine_tables(const uint16_t *symbols, int32_t count, int table_count, uint8_t *choices)
{
    static uint32_t frequencies[MAX_TABLES][ALPHABET];
    for (int pass = 0; pass < TABLE_PASSES; pass++) {
        memset(frequencies, 0, sizeof frequencies);
        for (int32_t start = 0, group = 0; start < count; start += GROUP_SYMBOLS, group++) {
            int32_t length = group_length(count, start);
            int table = cheapest_table(table_count, symbols + start, length);
            choices[group] = (uint8_t)table;
            for (int32_t i = 0; i < length; i++)
                frequencies[table][symbols[start + i]]++;
        }
        for (int t = 0; t < table_count; t++)
            assign_lengths(frequencies[t], tables[t].lengths);
    }
    for (int t = 0; t < table_count; t++)
        assign_codes(&tables[t]);
}

static int tables_for(int32_t count)
{
    return count < 200 ? 1 : count < 1200 ? 2 : count < 4800 ? 4 : MAX_TABLES;
}

static void write_symbols(struct bit_writer *out, const uint16_t *symbols, int32_t count, uint8_t *choices)
{
    int table_count = tables_for(count), current = 0;
    seed_tables(symbols, count, table_count);
    refine_tables(symbols, count, table_count, choices);
    put_bits(out, (uint32_t)table_count, 3);
    for (int t = 0; t < table_count; t++)
        for (int symbol = 0; symbol < ALPHABET; symbol++)
            put_bits(out, tables[t].lengths[symbol], 4);
    for (int32_t start = 0, group = 0; start < count; start += GROUP_SYMBOLS, group++) {
        const struct code_table *table = &tables[choices[group]];
        if (choices[group] != current) {
            current = choices[group];
            stats.table_switches++;
        }
        put_bits(out, (uint32_t)choices[group], 3);
        int32_t length = group_length(count, start);
        for (int32_t i = 0; i < length; i++) {
            uint16_t symbol = symbols[start + i];
            put_bits(out, table->codes[symbol], table->lengths[symbol]);
        }
    }
}

static uint16_t read_symbol(struct bit_reader *in, const struct code_table *table)
{
    int32_t code = 0;
    for (int length = 1; length <= MAX_CODE_BITS; length++) {
        code = code << 1 | (int32_t)get_bits(in, 1);
        if (code < table->limits[length])
            return table->sorted[code + table->offsets[length]];
    }
    fail("the compressed stream has an impossible code before byte %zu", in->position);
    return END_OF_BLOCK;
}

/* ---- blocks -------------------------------------------------------------------------------- */

struct coder {
    struct block block;
    uint16_t *symbols;
    uint8_t *choices;
};

static void open_coder(struct coder *coder, size_t n)
{
    coder->block.capacity = (int32_t)n;
    coder->block.text = allocate(2 * n, 1);
    coder->block.rotations = allocate(n, sizeof(int32_t));
    coder->block.rank = allocate(n, sizeof(int32_t));
    coder->block.scratch = allocate(n, sizeof(int32_t));
    coder->block.buckets = allocate((n > 65536 ? n : 65536) + 1, sizeof(int32_t));
    coder->block.last = allocate(n, 1);
    coder->symbols = allocate(n + 2, sizeof(uint16_t));
    coder->choices = allocate(n / GROUP_SYMBOLS + 2, 1);
}

static void close_coder(struct coder *coder)
{
    free(coder->block.text);
    free(coder->block.rotations);
    free(coder->block.rank);
    free(coder->block.scratch);
    free(coder->block.buckets);
    free(coder->block.last);
    free(coder->symbols);
    free(coder->choices);
}

static void compress_block(struct coder *coder, const uint8_t *data, int32_t bytes, struct bit_writer *out)
{
    coder->block.length = bytes;
    memcpy(coder->block.text, data, (size_t)bytes);
    int32_t origin = forward_transform(&coder->block);
    int32_t count = encode_symbols(&coder->block, coder->symbols);
    put_bits(out, (uint32_t)bytes, 20);
    put_bits(out, (uint32_t)origin, 20);
    put_bits(out, crc32_of(data, (size_t)bytes) >> 16, 16);
    put_bits(out, crc32_of(data, (size_t)bytes) & 0xffff, 16);
    write_symbols(out, coder->symbols, count, coder->choices);
    stats.blocks++;
}

static void read_tables(struct bit_reader *in, int table_count)
{
    if (table_count < 1 || table_count > MAX_TABLES)
        fail("the compressed stream asks for %d code tables, not 1 to %d", table_count, MAX_TABLES);
    for (int t = 0; t < table_count; t++) {
        for (int symbol = 0; symbol < ALPHABET; symbol++)
            tables[t].lengths[symbol] = (uint8_t)get_bits(in, 4);
        assign_codes(&tables[t]);
    }
}

/* Undoes run lengths and move-to-front into block->last. */
static void read_last_column(struct bit_reader *in, struct block *block)
{
    const struct code_table *table = &tables[0];
    int32_t filled = 0, run = 0, digit = 1, in_group = 0;
    reset_recency();
    for (;;) {
        if (in_group-- == 0) {
            table = &tables[get_bits(in, 3)];
            in_group = GROUP_SYMBOLS - 1;
        }
        uint16_t symbol = read_symbol(in, table);
        if (symbol <= RUN_B) {
            run += digit << symbol;
            digit *= 2;
            if (run > block->length - filled)
                fail("the compressed stream has a run of %d where %d bytes are left", run,
                     block->length - filled);
            continue;
        }
        memset(block->last + filled, recency[0], (size_t)run);
        filled += run;
        run = 0;
        digit = 1;
        if (symbol == END_OF_BLOCK)
            break;
        if (filled == block->length)
            fail("the compressed stream holds more than the %d bytes of its block", filled);
        block->last[filled++] = take_from(symbol - 1);
    }
    if (filled != block->length)
        fail("a block has %d bytes, not %d", filled, block->length);
}

static int32_t decompress_block(struct coder *coder, struct bit_reader *in, uint8_t *out)
{
    struct block *block = &coder->block;
    block->length = (int32_t)get_bits(in, 20);
    int32_t origin = (int32_t)get_bits(in, 20);
    uint32_t crc = get_bits(in, 16) << 16;
    crc |= get_bits(in, 16);
    if (block->length > block->capacity || origin >= block->length)
        fail("a block claims %d bytes and origin %d", block->length, origin);
    read_tables(in, (int)get_bits(in, 3));
    read_last_column(in, block);
    inverse_transform(block, origin, out);
    uint32_t found = crc32_of(out, (size_t)block->length);
    if (found != crc)
        fail("a block's CRC-32 is %08x, not %08x", (unsigned)found, (unsigned)crc);
    return block->length;
}

static size_t block_bytes_for(size_t bytes)
{
    size_t eighth = bytes / 8;
    return eighth < MIN_BLOCK_BYTES ? MIN_BLOCK_BYTES : eighth > MAX_BLOCK_BYTES ? MAX_BLOCK_BYTES : eighth;
}

static void round_trip(size_t bytes)
{
    const size_t block_bytes = block_bytes_for(bytes);
    struct coder coder;
    struct bit_writer out = {0};
    uint8_t *input = allocate(bytes, 1), *output = allocate(bytes, 1);
    open_coder(&coder, block_bytes);
    generate_input(input, bytes, block_bytes);

    for (size_t at = 0; at < bytes; at += block_bytes) {
        size_t length = bytes - at < block_bytes ? bytes - at : block_bytes;
        compress_block(&coder, input + at, (int32_t)length, &out);
    }
    flush_bits(&out);

    struct bit_reader in = {.bytes = out.bytes, .length = out.length};
    for (size_t at = 0; at < bytes;)
        at += (size_t)decompress_block(&coder, &in, output + at);
    for (size_t i = 0; i < bytes; i++)
        if (input[i] != output[i])
            fail("byte %zu came back as %02x, not %02x", i, output[i], input[i]);

    printf("bwtzip: %zu bytes in %llu blocks (%llu by prefix doubling) -> %zu bytes\n", bytes,
           (unsigned long long)stats.blocks, (unsigned long long)stats.fallback_blocks, out.length);
    printf("bwtzip: input crc %08x, output crc %08x\n", (unsigned)crc32_of(input, bytes),
           (unsigned)crc32_of(out.bytes, out.length));
    printf("bwtzip: %llu comparisons, %llu symbols, %llu zero runs, %llu table switches\n",
           (unsigned long long)stats.comparisons, (unsigned long long)stats.symbols,
           (unsigned long long)stats.zero_runs, (unsigned long long)stats.table_switches);
    close_coder(&coder);
    free(input);
    free(output);
    free(out.bytes);
}

/* ---- command line -------------------------------------------------------------------------- */

static int usage(void)
{
    fputs("usage: bwtzip [tiny|small|medium|large|KIB [SEED]]\n"
          "  KIB   input size in KiB, 1 to 1048576 (default: medium)\n"
          "  SEED  unsigned 64-bit seed of the input (default: 1)\n",
          stderr);
    return 2;
}

static bool parse_number(const char *text, uint64_t low, uint64_t high, uint64_t *value)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    unsigned long long parsed = strtoull(text, &end, 0);
    *value = parsed;
    return errno == 0 && *end == '\0' && parsed >= low && parsed <= high;
}

static bool parse_size(const char *text, uint64_t *kib)
{
    static const struct {
        const char *name;
        uint64_t kib;
    } named[] = {{"tiny", 2}, {"small", 28}, {"medium", 208}, {"large", 2048}};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strcmp(text, named[i].name) == 0) {
            *kib = named[i].kib;
            return true;
        }
    return parse_number(text, 1, MAX_KIB, kib);
}

int main(int argc, char **argv)
{
    uint64_t kib, seed = 1;
    if (argc > 3 || !parse_size(argc > 1 ? argv[1] : "medium", &kib))
        return usage();
    if (argc > 2 && !parse_number(argv[2], 0, UINT64_MAX, &seed))
        return usage();
    random_state = seed;
    build_crc_table();
    round_trip((size_t)kib * 1024);
    return 0;
}
