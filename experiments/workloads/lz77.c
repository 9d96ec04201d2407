/*
 * lz77 - a dictionary compressor that undoes and checks its own work.
 *
 * Input is generated from a seed: stretches of log lines, source code, gene letters, samples of a
 * signal, noise, and copies of what came before. The compressor finds matches in a window of 32 KiB by
 * chains of equal hashes, puts a match off when the next position has a longer one, and writes blocks
 * of literals, lengths and distances with Huffman codes limited by package-merge; blocks that would
 * grow are stored. Everything is then decompressed, and bytes and checksums are compared.
 *
 * Usage: lz77 [tiny|small|medium|large|KIB [SEED]]
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
    WINDOW = 32 * 1024,
    HASH_BITS = 14,
    HASHED_BYTES = 4,
    MIN_MATCH = 4,
    MAX_MATCH = MIN_MATCH + 255,
    FAR = 4096,        /* the shortest matches must be nearer: their distances cost too much */
    CHAIN_LIMIT = 96,  /* candidates tried a position; a quarter of them when a good match is at hand */
    GOOD_LENGTH = 16,
    LAZY_LENGTH = 48,  /* matches as long as this are taken at once */
    BLOCK_TOKENS = 8192,
    END_OF_BLOCK = 256,
    FIRST_LENGTH = 257,
    LENGTH_CLASSES = 28,   /* of 255 and less, a quarter of a power of two each */
    DISTANCE_CLASSES = 30, /* of 32767 and less, half a power of two each */
    MAIN_SYMBOLS = FIRST_LENGTH + LENGTH_CLASSES,
    MAX_CODE_BITS = 15,
    LOOKUP_BITS = 9, /* longer codes are read bit by bit */
    STRETCHES = 16,  /* of input, of one kind each; more when they would be too long */
    MIN_STRETCH = 2 * 1024,
    MAX_STRETCH = 1024 * 1024,
    MAX_KIB = 1024 * 1024
};

/* What a run did; every field is a candidate for a software metric. */
struct statistics {
    uint64_t blocks, stored_blocks;
    uint64_t literals, matches;
    uint64_t postponed; /* matches given up for a longer one a byte later */
    uint64_t candidates, compared_bytes;
    uint64_t copied_bytes;
    uint64_t long_codes; /* beyond the look-up table */
    uint64_t bits_written;
};

static struct statistics stats;

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("lz77: ", stderr);
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

/* A place to write that ends at `limit`; what does not fit is dropped. */
struct page {
    uint8_t *bytes;
    size_t length, limit;
};

static void put_char(struct page *page, char letter)
{
    if (page->length < page->limit)
        page->bytes[page->length++] = (uint8_t)letter;
}

static void put_text(struct page *page, const char *text)
{
    while (*text)
        put_char(page, *text++);
}

static void put_number(struct page *page, uint32_t number, int digits)
{
    uint32_t unit = 1;
    while (--digits > 0)
        unit *= 10;
    for (; unit > 0; unit /= 10)
        put_char(page, (char)('0' + number / unit % 10));
}

enum { NAMES = 96, NAME_MAX_LETTERS = 9 };

static char names[NAMES][NAME_MAX_LETTERS + 1];

static void build_names(void)
{
    static const char syllables[][3] = {"ba", "co", "de", "fu", "gi", "lo", "ma", "ne",
                                        "pi", "ra", "se", "to", "un", "ve", "xi", "ze"};
    for (int name = 0; name < NAMES; name++) {
        int letters = 0;
        for (uint32_t count = 1 + random_below(4); count > 0; count--) {
            const char *syllable = syllables[random_below(16)];
            names[name][letters++] = syllable[0];
            names[name][letters++] = syllable[1];
        }
    }
}

/* Low numbers are the most frequent names. */
static const char *pick_name(void)
{
    return names[random_below(1 + random_below(NAMES))];
}

/* Lines of one form: a clock that advances, a level, a part, a message with numbers. */
static void write_log(struct page *page)
{
    static const char *const levels[] = {"INFO", "INFO", "INFO", "DEBUG", "WARN", "ERROR"};
    static const char *const events[] = {"request served", "cache refreshed", "connection closed by peer",
                                         "retry scheduled", "slow query"};
    uint32_t clock = random_below(86400000);
    while (page->length < page->limit) {
        clock = (clock + random_below(900)) % 86400000;
        put_number(page, clock / 3600000, 2);
        put_char(page, ':');
        put_number(page, clock / 60000 % 60, 2);
        put_char(page, ':');
        put_number(page, clock / 1000 % 60, 2);
        put_char(page, '.');
        put_number(page, clock % 1000, 3);
        put_char(page, ' ');
        put_text(page, levels[random_below(6)]);
        put_text(page, " [");
        put_text(page, pick_name());
        put_text(page, "] ");
        put_text(page, events[random_below(5)]);
        put_text(page, " id=");
        put_number(page, random_below(1000000), 6);
        put_text(page, " ms=");
        int digits = 1 + (int)random_below(4);
        put_number(page, random_below(10000), digits);
        put_char(page, '\n');
    }
}

static void write_expression(struct page *page, int depth)
{
    static const char *const operators[] = {" + ", " - ", " * ", " == ", " < ", " && "};
    switch (depth > 0 ? random_below(5) : random_below(2)) {
    case 0:
        put_number(page, random_below(100), 2);
        break;
    case 1:
    case 2:
        put_text(page, pick_name());
        break;
    case 3:
        put_text(page, pick_name());
        put_char(page, '(');
        write_expression(page, depth - 1);
        put_char(page, ')');
        break;
    default:
        write_expression(page, depth - 1);
        put_text(page, operators[random_below(6)]);
        write_expression(page, depth - 1);
    }
}

static void write_statements(struct page *page, int indent)
{
    for (uint32_t count = 1 + random_below(5); count > 0 && page->length < page->limit; count--) {
        for (int i = 0; i < indent; i++)
            put_text(page, "    ");
        uint32_t form = random_below(indent < 4 ? 8 : 6);
        put_text(page, form < 4 ? pick_name() : form < 6 ? "return" : form == 6 ? "if" : "while");
        put_text(page, form < 4 ? " = " : form < 6 ? " " : " (");
        write_expression(page, 3);
        put_text(page, form < 6 ? ";\n" : ") {\n");
        if (form < 6)
            continue;
        write_statements(page, indent + 1);
        for (int i = 0; i < indent; i++)
            put_text(page, "    ");
        put_text(page, "}\n");
    }
}

/* Functions of an invented language, nested a few levels deep. */
static void write_code(struct page *page)
{
    while (page->length < page->limit) {
        put_text(page, "int ");
        put_text(page, pick_name());
        put_text(page, "(int ");
        put_text(page, pick_name());
        put_text(page, ")\n{\n");
        write_statements(page, 1);
        put_text(page, "}\n\n");
    }
}

/* Four letters with long chains of equal hashes: the costliest kind to search. */
static void write_genes(struct page *page)
{
    while (page->length < page->limit) {
        uint64_t letters = random_next();
        for (int i = 0; i < 32; i++, letters >>= 2)
            put_char(page, "ACGT"[letters & 3]);
        if (page->length > 4096 && random_below(24) == 0) /* a repeat, with a changed letter here and there */
            for (uint32_t from = (uint32_t)page->length - 64 - random_below(4000), n = 64; n > 0; n--, from++)
                put_char(page, random_below(40) ? (char)page->bytes[from] : 'A');
    }
}

/* Samples of 16 bits: two triangles of different periods and a little noise; then silence. */
static void write_signal(struct page *page)
{
    uint32_t period = 40 + random_below(200), slow = 1000 + random_below(3000), silence = 0;
    for (uint32_t time = 0; page->length < page->limit; time++) {
        uint32_t fast_part = time % period, slow_part = time % slow;
        if (slow_part == 0 && random_below(3) == 0)
            silence = slow / 2;
        fast_part = fast_part * 2 < period ? fast_part : period - fast_part;
        slow_part = slow_part * 2 < slow ? slow_part : slow - slow_part;
        uint32_t sample = silence ? 2048 : fast_part * 64 + slow_part + random_below(4);
        silence -= silence > 0;
        put_char(page, (char)(sample & 0x7f));
        put_char(page, (char)(sample >> 7 & 0x7f));
    }
}

static void write_noise(struct page *page)
{
    while (page->length < page->limit) {
        uint64_t bits = random_next();
        for (int i = 0; i < 8 && page->length < page->limit; i++, bits >>= 8)
            page->bytes[page->length++] = (uint8_t)bits;
    }
}

/* Pieces of earlier input, of any kind, from near and from beyond the window. */
static void write_copies(struct page *page)
{
    while (page->length < page->limit) {
        if (page->length < 16 || random_below(8) == 0) {
            put_text(page, pick_name());
            continue;
        }
        uint32_t reach = page->length < 2 * WINDOW ? (uint32_t)page->length : 2 * WINDOW;
        size_t from = page->length - 1 - random_below(reach);
        for (uint32_t n = 8 + random_below(1 + random_below(1500)); n > 0 && page->length < page->limit; n--)
            page->bytes[page->length++] = page->bytes[from++];
    }
}

static size_t stretch_bytes_for(size_t bytes)
{
    size_t share = bytes / STRETCHES;
    return share < MIN_STRETCH ? MIN_STRETCH : share > MAX_STRETCH ? MAX_STRETCH : share;
}

/* The kinds in turn, each for half to one and a half of the usual length. */
static void generate_input(uint8_t *out, size_t bytes)
{
    static void (*const writers[])(struct page *) = {write_log,    write_signal, write_code,
                                                     write_noise, write_genes,  write_copies};
    const size_t usual = stretch_bytes_for(bytes);
    struct page page = {.bytes = out};
    build_names();
    for (size_t turn = 0; page.length < bytes; turn++) {
        size_t stretch = usual / 2 + random_below((uint32_t)usual);
        page.limit = stretch < bytes - page.length ? page.length + stretch : bytes;
        writers[turn % (sizeof writers / sizeof *writers)](&page);
    }
}

/* ---- checksum ------------------------------------------------------------------------------ */

/* Two sums, of the bytes and of the sums so far; reduced before 32 bits could overflow. */
static uint32_t checksum_of(const uint8_t *data, size_t bytes)
{
    uint32_t sum = 1, sums = 0;
    while (bytes > 0) {
        size_t chunk = bytes < 4096 ? bytes : 4096;
        bytes -= chunk;
        for (; chunk > 0; chunk--) {
            sum += *data++;
            sums += sum;
        }
        sum %= 65479;
        sums %= 65479;
    }
    return sums << 16 | sum;
}

/* ---- bit streams --------------------------------------------------------------------------- */

struct bit_writer {
    uint8_t *bytes;
    size_t length, capacity;
    uint64_t pending;
    int pending_bits;
};

struct bit_reader {
    const uint8_t *bytes;
    size_t length, position;
    uint64_t pending;
    int pending_bits;
};

static void put_bits(struct bit_writer *out, uint32_t value, int bits)
{
    out->pending = out->pending << bits | value;
    out->pending_bits += bits;
    stats.bits_written += (uint64_t)bits;
    while (out->pending_bits >= 8) {
        if (out->length == out->capacity) {
            out->capacity = out->capacity ? 2 * out->capacity : 65536;
            out->bytes = realloc(out->bytes, out->capacity);
            if (!out->bytes)
                fail("out of memory (%zu bytes of output)", out->capacity);
        }
        out->pending_bits -= 8;
        out->bytes[out->length++] = (uint8_t)(out->pending >> out->pending_bits);
    }
}

static void put_word(struct bit_writer *out, uint32_t word)
{
    put_bits(out, word >> 16, 16);
    put_bits(out, word & 0xffff, 16);
}

static void flush_bits(struct bit_writer *out)
{
    if (out->pending_bits > 0)
        put_bits(out, 0, 8 - out->pending_bits);
}

/* The next bits, left where they are; zeros after the end of the stream. */
static uint32_t peek_bits(struct bit_reader *in, int bits)
{
    while (in->pending_bits < bits) {
        in->pending = in->pending << 8 | (in->position < in->length ? in->bytes[in->position] : 0);
        in->position++;
        in->pending_bits += 8;
    }
    return (uint32_t)(in->pending >> (in->pending_bits - bits)) & ((UINT32_C(1) << bits) - 1);
}

static void skip_bits(struct bit_reader *in, int bits)
{
    in->pending_bits -= bits;
    if (in->position > in->length + sizeof in->pending)
        fail("the stream of %zu bytes ends early", in->length);
}

static uint32_t get_bits(struct bit_reader *in, int bits)
{
    uint32_t value = peek_bits(in, bits);
    skip_bits(in, bits);
    return value;
}

static uint32_t get_word(struct bit_reader *in)
{
    uint32_t high = get_bits(in, 16);
    return high << 16 | get_bits(in, 16);
}

/* ---- classes of lengths and distances ------------------------------------------------------ */

struct number_class {
    uint16_t base;
    uint8_t extra_bits;
};

static struct number_class length_classes[LENGTH_CLASSES], distance_classes[DISTANCE_CLASSES];
static uint8_t class_of_length[MAX_MATCH - MIN_MATCH + 1];
static uint8_t class_of_distance[WINDOW];

/* Classes start at 0, 1, 2, ...; after the first 2 * parts each is 1/parts of its power of two. */
static void build_classes(struct number_class *classes, int count, int parts, uint8_t *class_of)
{
    int base = 0;
    for (int i = 0; i < count; i++) {
        int extra_bits = i < 2 * parts ? 0 : i / parts - 1;
        classes[i].base = (uint16_t)base;
        classes[i].extra_bits = (uint8_t)extra_bits;
        for (int end = base + (1 << extra_bits); base < end; base++)
            class_of[base] = (uint8_t)i;
    }
}

/* ---- Huffman codes ------------------------------------------------------------------------- */

struct code_table {
    int symbols;
    uint32_t frequencies[MAIN_SYMBOLS];
    uint8_t lengths[MAIN_SYMBOLS]; /* 0 for symbols that do not occur */
    uint16_t codes[MAIN_SYMBOLS];
    uint16_t sorted[MAIN_SYMBOLS];     /* symbols by code */
    int32_t limits[MAX_CODE_BITS + 1]; /* first code past those of each length */
    int32_t offsets[MAX_CODE_BITS + 1];
    uint16_t lookup[1 << LOOKUP_BITS]; /* symbol * 16 + length, or 0 */
};

static struct code_table main_table = {.symbols = MAIN_SYMBOLS};
static struct code_table distance_table = {.symbols = DISTANCE_CLASSES};

/* Occurring symbols, rarest first, by Shell's method. */
static int sort_symbols(const struct code_table *table, uint16_t *sorted)
{
    int count = 0;
    for (int symbol = 0; symbol < table->symbols; symbol++)
        if (table->frequencies[symbol] > 0)
            sorted[count++] = (uint16_t)symbol;
    for (int gap = 121; gap > 0; gap /= 3)
        for (int i = gap; i < count; i++) {
            uint16_t moving = sorted[i];
            int at = i;
            for (; at >= gap; at -= gap) {
                uint16_t other = sorted[at - gap];
                if (table->frequencies[other] < table->frequencies[moving] ||
                    (table->frequencies[other] == table->frequencies[moving] && other < moving))
                    break;
                sorted[at] = other;
            }
            sorted[at] = moving;
        }
    return count;
}

/*
 * Package-merge: a list a bit of code, the longest first, each of the symbols and of the pairs of the
 * list before it. The 2 * count - 2 lightest of the last list are taken, and what they are made of;
 * a symbol's code has as many bits as there are lists in which it is taken.
 */
static void package_merge(struct code_table *table, const uint16_t *sorted, int count)
{
    static uint64_t weights[2][2 * MAIN_SYMBOLS];
    static bool is_package[MAX_CODE_BITS][2 * MAIN_SYMBOLS];
    int items = 0;
    for (int list = 0; list < MAX_CODE_BITS; list++) {
        const uint64_t *before = weights[(list + 1) % 2];
        uint64_t *now = weights[list % 2];
        int packages = items / 2, package = 0, symbol = 0;
        for (items = 0; symbol < count || package < packages; items++) {
            uint64_t pair = package < packages ? before[2 * package] + before[2 * package + 1] : UINT64_MAX;
            uint64_t leaf = symbol < count ? table->frequencies[sorted[symbol]] : UINT64_MAX;
            is_package[list][items] = pair < leaf;
            now[items] = pair < leaf ? pair : leaf;
            package += pair < leaf;
            symbol += pair >= leaf;
        }
    }
    int taken = 2 * count - 2;
    for (int list = MAX_CODE_BITS - 1; list >= 0 && taken > 0; list--) {
        int packages = 0;
        for (int i = 0; i < taken; i++)
            packages += is_package[list][i];
        for (int i = 0; i < taken - packages; i++)
            table->lengths[sorted[i]]++;
        taken = 2 * packages;
    }
}

static void assign_lengths(struct code_table *table)
{
    uint16_t sorted[MAIN_SYMBOLS];
    int count = sort_symbols(table, sorted);
    memset(table->lengths, 0, sizeof table->lengths);
    if (count == 1)
        table->lengths[sorted[0]] = 1;
    else if (count > 1)
        package_merge(table, sorted, count);
}

/* Canonical codes, and what a decoder needs to read them at once or a bit at a time. */
static void assign_codes(struct code_table *table)
{
    int32_t code = 0, index = 0;
    memset(table->lookup, 0, sizeof table->lookup);
    for (int length = 1; length <= MAX_CODE_BITS; length++) {
        table->offsets[length] = index - code;
        for (int symbol = 0; symbol < table->symbols; symbol++) {
            if (table->lengths[symbol] != length)
                continue;
            if (code >> length)
                fail("a code table has too many codes of %d bits", length);
            for (int i = 0; length <= LOOKUP_BITS && i < 1 << (LOOKUP_BITS - length); i++)
                table->lookup[(code << (LOOKUP_BITS - length)) + i] = (uint16_t)(symbol << 4 | length);
            table->codes[symbol] = (uint16_t)code++;
            table->sorted[index++] = (uint16_t)symbol;
        }
        table->limits[length] = code;
        code <<= 1;
    }
}

/* Lengths as four bits each; after a 0, six bits say how many more symbols are absent. */
static void write_table(struct bit_writer *out, const struct code_table *table)
{
    for (int symbol = 0; symbol < table->symbols; symbol++) {
        put_bits(out, table->lengths[symbol], 4);
        if (table->lengths[symbol] > 0)
            continue;
        int more = 0;
        while (more < 63 && symbol + 1 < table->symbols && table->lengths[symbol + 1] == 0) {
            symbol++;
            more++;
        }
        put_bits(out, (uint32_t)more, 6);
    }
}

static uint64_t table_cost(const struct code_table *table)
{
    uint64_t bits = 0;
    int absent = 0; /* in a row */
    for (int symbol = 0; symbol < table->symbols; symbol++) {
        absent = table->lengths[symbol] > 0 ? 0 : absent + 1;
        bits += absent == 0 ? 4 : absent % 64 == 1 ? 4 + 6 : 0;
    }
    return bits;
}

static void read_table(struct bit_reader *in, struct code_table *table)
{
    memset(table->lengths, 0, sizeof table->lengths);
    for (int symbol = 0; symbol < table->symbols; symbol++) {
        table->lengths[symbol] = (uint8_t)get_bits(in, 4);
        if (table->lengths[symbol] == 0)
            symbol += (int)get_bits(in, 6);
    }
    assign_codes(table);
}

static void put_symbol(struct bit_writer *out, const struct code_table *table, int symbol)
{
    put_bits(out, table->codes[symbol], table->lengths[symbol]);
}

static int read_symbol(struct bit_reader *in, const struct code_table *table)
{
    uint32_t window = peek_bits(in, MAX_CODE_BITS);
    uint16_t entry = table->lookup[window >> (MAX_CODE_BITS - LOOKUP_BITS)];
    if (entry) {
        skip_bits(in, entry & 15);
        return entry >> 4;
    }
    stats.long_codes++;
    for (int length = LOOKUP_BITS + 1; length <= MAX_CODE_BITS; length++) {
        int32_t code = (int32_t)(window >> (MAX_CODE_BITS - length));
        if (code < table->limits[length]) {
            skip_bits(in, length);
            return table->sorted[code + table->offsets[length]];
        }
    }
    fail("the stream has an impossible code before byte %zu", in->position);
    return END_OF_BLOCK;
}

/* ---- matches ------------------------------------------------------------------------------- */

struct match {
    int32_t length, distance; /* length 0: none */
};

struct finder {
    const uint8_t *data;
    int32_t bytes;
    int32_t heads[1 << HASH_BITS]; /* last position of each hash, or -1 */
    int32_t previous[WINDOW];      /* the one before it, by position modulo the window */
};

static struct finder finder;

static void open_finder(const uint8_t *data, size_t bytes)
{
    finder.data = data;
    finder.bytes = (int32_t)bytes;
    for (int i = 0; i < 1 << HASH_BITS; i++)
        finder.heads[i] = -1;
}

static uint32_t hash_at(const uint8_t *bytes)
{
    uint32_t word = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                    (uint32_t)bytes[3] << 24;
    return word * UINT32_C(0x9e3779b1) >> (32 - HASH_BITS);
}

static void insert(int32_t position)
{
    if (position + HASHED_BYTES > finder.bytes)
        return;
    uint32_t hash = hash_at(finder.data + position);
    finder.previous[position % WINDOW] = finder.heads[hash];
    finder.heads[hash] = position;
}

static int32_t common_length(const uint8_t *a, const uint8_t *b, int32_t limit)
{
    int32_t length = 0;
    while (length < limit && a[length] == b[length])
        length++;
    stats.compared_bytes += (uint64_t)length;
    return length;
}

/* The longest match at a position not yet inserted; of equal ones the nearest. Only longer than `beat`. */
static struct match find_match(int32_t position, int32_t beat)
{
    struct match best = {0, 0};
    const uint8_t *here = finder.data + position;
    int32_t limit = finder.bytes - position < MAX_MATCH ? finder.bytes - position : MAX_MATCH;
    int32_t longest = beat < MIN_MATCH - 1 ? MIN_MATCH - 1 : beat;
    if (limit <= longest)
        return best;
    int32_t candidate = finder.heads[hash_at(here)];
    int tries = beat < GOOD_LENGTH ? CHAIN_LIMIT : CHAIN_LIMIT / 4;
    for (; candidate >= 0 && position - candidate < WINDOW && tries > 0; tries--) {
        const uint8_t *there = finder.data + candidate;
        stats.candidates++;
        if (there[longest] == here[longest]) {
            int32_t length = common_length(here, there, limit);
            if (length > longest && (length > MIN_MATCH || position - candidate <= FAR)) {
                best = (struct match){length, position - candidate};
                longest = length;
                if (length == limit)
                    break;
            }
        }
        candidate = finder.previous[candidate % WINDOW];
    }
    return best;
}

/* ---- blocks -------------------------------------------------------------------------------- */

struct token {
    uint16_t length;   /* 0 for a literal */
    uint16_t distance; /* or the literal */
};

struct block {
    int32_t start, bytes; /* of input */
    int32_t tokens;
    struct token token[BLOCK_TOKENS];
};

static struct block block;

static void add_literal(uint8_t byte)
{
    block.token[block.tokens++] = (struct token){0, byte};
    block.bytes++;
    stats.literals++;
}

static void add_match(struct match match)
{
    block.token[block.tokens++] = (struct token){(uint16_t)match.length, (uint16_t)match.distance};
    block.bytes += match.length;
    stats.matches++;
}

static void count_symbols(void)
{
    memset(main_table.frequencies, 0, sizeof main_table.frequencies);
    memset(distance_table.frequencies, 0, sizeof distance_table.frequencies);
    for (int32_t i = 0; i < block.tokens; i++) {
        const struct token *token = &block.token[i];
        if (token->length == 0) {
            main_table.frequencies[token->distance]++;
            continue;
        }
        main_table.frequencies[FIRST_LENGTH + class_of_length[token->length - MIN_MATCH]]++;
        distance_table.frequencies[class_of_distance[token->distance - 1]]++;
    }
    main_table.frequencies[END_OF_BLOCK]++;
}

/* Bits that the tables and the tokens will take. */
static uint64_t block_cost(void)
{
    uint64_t bits = table_cost(&main_table) + table_cost(&distance_table);
    for (int symbol = 0; symbol < MAIN_SYMBOLS; symbol++) {
        int extra = symbol < FIRST_LENGTH ? 0 : length_classes[symbol - FIRST_LENGTH].extra_bits;
        bits += (uint64_t)main_table.frequencies[symbol] * (uint64_t)(main_table.lengths[symbol] + extra);
    }
    for (int i = 0; i < DISTANCE_CLASSES; i++)
        bits += (uint64_t)distance_table.frequencies[i] *
                (uint64_t)(distance_table.lengths[i] + distance_classes[i].extra_bits);
    return bits;
}

static void write_tokens(struct bit_writer *out)
{
    for (int32_t i = 0; i < block.tokens; i++) {
        const struct token *token = &block.token[i];
        if (token->length == 0) {
            put_symbol(out, &main_table, token->distance);
            continue;
        }
        int length = token->length - MIN_MATCH, distance = token->distance - 1;
        int length_class = class_of_length[length], distance_class = class_of_distance[distance];
        put_symbol(out, &main_table, FIRST_LENGTH + length_class);
        put_bits(out, (uint32_t)(length - length_classes[length_class].base),
                 length_classes[length_class].extra_bits);
        put_symbol(out, &distance_table, distance_class);
        put_bits(out, (uint32_t)(distance - distance_classes[distance_class].base),
                 distance_classes[distance_class].extra_bits);
    }
    put_symbol(out, &main_table, END_OF_BLOCK);
}

static void write_block(struct bit_writer *out)
{
    const uint8_t *data = finder.data + block.start;
    count_symbols();
    assign_lengths(&main_table);
    assign_lengths(&distance_table);
    bool stored = block_cost() >= 8 * (uint64_t)block.bytes;
    put_bits(out, stored, 1);
    put_word(out, (uint32_t)block.bytes);
    put_word(out, checksum_of(data, (size_t)block.bytes));
    if (stored) {
        for (int32_t i = 0; i < block.bytes; i++)
            put_bits(out, data[i], 8);
        stats.stored_blocks++;
    } else {
        assign_codes(&main_table);
        assign_codes(&distance_table);
        write_table(out, &main_table);
        write_table(out, &distance_table);
        write_tokens(out);
    }
    stats.blocks++;
    block.start += block.bytes;
    block.bytes = block.tokens = 0;
}

/* A match waits a byte: when the next position has a longer one, its first byte becomes a literal. */
static void compress(const uint8_t *data, size_t bytes, struct bit_writer *out)
{
    struct match waiting = {0, 0};
    int32_t position = 0;
    open_finder(data, bytes);
    block = (struct block){0};
    while (position < finder.bytes || waiting.length > 0) {
        struct match match = {0, 0};
        if (waiting.length < LAZY_LENGTH && position < finder.bytes)
            match = find_match(position, waiting.length);
        if (waiting.length > 0 && match.length == 0) {
            add_match(waiting); /* it began a byte ago, and that byte is inserted */
            for (int32_t end = position - 1 + waiting.length; position < end; position++)
                insert(position);
            waiting.length = 0;
        } else {
            if (waiting.length > 0)
                stats.postponed++;
            if (waiting.length > 0)
                add_literal(data[position - 1]);
            if (match.length == 0)
                add_literal(data[position]);
            waiting = match;
            insert(position++);
        }
        if (block.tokens >= BLOCK_TOKENS - 1)
            write_block(out);
    }
    if (block.tokens > 0)
        write_block(out);
    flush_bits(out);
}

/* ---- decompression ------------------------------------------------------------------------- */

static int32_t read_number(struct bit_reader *in, const struct number_class *number_class)
{
    return number_class->base + (int32_t)get_bits(in, number_class->extra_bits);
}

static void copy_match(uint8_t *out, int32_t distance, int32_t length)
{
    const uint8_t *from = out - distance;
    for (int32_t i = 0; i < length; i++) /* forwards: the two may overlap */
        out[i] = from[i];
    stats.copied_bytes += (uint64_t)length;
}

/* Writes from `at`, and returns where the block ends. */
static int32_t read_tokens(struct bit_reader *in, uint8_t *out, int32_t at, int32_t end)
{
    for (;;) {
        int symbol = read_symbol(in, &main_table);
        if (symbol == END_OF_BLOCK)
            return at;
        int32_t length = symbol < END_OF_BLOCK
                             ? 1
                             : MIN_MATCH + read_number(in, &length_classes[symbol - FIRST_LENGTH]);
        if (length > end - at)
            fail("a block holds more bytes than it claims, at byte %d", at);
        if (symbol < END_OF_BLOCK) {
            out[at++] = (uint8_t)symbol;
            continue;
        }
        int32_t distance = 1 + read_number(in, &distance_classes[read_symbol(in, &distance_table)]);
        if (distance > at)
            fail("a match at byte %d reaches back %d", at, distance);
        copy_match(out + at, distance, length);
        at += length;
    }
}

static void decompress(const struct bit_writer *stream, uint8_t *out, size_t bytes)
{
    struct bit_reader in = {.bytes = stream->bytes, .length = stream->length};
    for (int32_t at = 0, end; at < (int32_t)bytes; at = end) {
        bool stored = get_bits(&in, 1);
        uint32_t length = get_word(&in), expected = get_word(&in);
        if (length == 0 || length > bytes - (size_t)at)
            fail("a block claims %u bytes where %zu are left", (unsigned)length, bytes - (size_t)at);
        end = at + (int32_t)length;
        if (stored) {
            for (int32_t i = at; i < end; i++)
                out[i] = (uint8_t)get_bits(&in, 8);
        } else {
            read_table(&in, &main_table);
            read_table(&in, &distance_table);
            int32_t reached = read_tokens(&in, out, at, end);
            if (reached != end)
                fail("a block ends at byte %d, not %d", reached, end);
        }
        uint32_t found = checksum_of(out + at, length);
        if (found != expected)
            fail("a block's checksum is %08x, not %08x", (unsigned)found, (unsigned)expected);
    }
}

static void round_trip(size_t bytes)
{
    uint8_t *input = allocate(bytes, 1), *output = allocate(bytes, 1);
    struct bit_writer stream = {0};
    generate_input(input, bytes);
    compress(input, bytes, &stream);
    decompress(&stream, output, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (input[i] != output[i])
            fail("byte %zu came back as %02x, not %02x", i, output[i], input[i]);

    printf("lz77: %zu bytes in %llu blocks (%llu stored) -> %zu bytes\n", bytes,
           (unsigned long long)stats.blocks, (unsigned long long)stats.stored_blocks, stream.length);
    printf("lz77: %llu literals, %llu matches, %llu postponed, %llu candidates, %llu long codes\n",
           (unsigned long long)stats.literals, (unsigned long long)stats.matches,
           (unsigned long long)stats.postponed, (unsigned long long)stats.candidates,
           (unsigned long long)stats.long_codes);
    printf("lz77: input checksum %08x, output checksum %08x\n", (unsigned)checksum_of(input, bytes),
           (unsigned)checksum_of(stream.bytes, stream.length));
    free(input);
    free(output);
    free(stream.bytes);
}

/* ---- command line -------------------------------------------------------------------------- */

static int usage(void)
{
    fputs("usage: lz77 [tiny|small|medium|large|KIB [SEED]]\n"
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
    } named[] = {{"tiny", 24}, {"small", 120}, {"medium", 880}, {"large", 4800}};
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
    build_classes(length_classes, LENGTH_CLASSES, 4, class_of_length);
    build_classes(distance_classes, DISTANCE_CLASSES, 2, class_of_distance);
    round_trip((size_t)kib * 1024);
    return 0;
}
