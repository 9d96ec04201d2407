/*
 * jpegish - a picture codec in the manner of JPEG that checks what it loses.
 *
 * Pictures of four kinds are generated from a seed: smooth gradients, noise, text, hard edges. The
 * encoder turns RGB into luma and halved chroma, transforms 8x8 blocks (discrete cosine transform in
 * integers), quantises them, and writes zig-zag runs and sizes with Huffman codes made for the
 * picture. The decoder goes all the way back. The coefficients must return exactly, and no block may
 * differ from its original by more than its quantiser's steps allow. The stream's format is our own.
 *
 * Usage: jpegish [tiny|small|medium|large|KPIXELS [SEED [both|encode|decode]]]
 * Exit status: 0 fine, 1 a check failed, 2 bad arguments.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIDE = 8, /* of a block */
    BLOCK = SIDE * SIDE,
    PLANES = 3, /* luma, two of chroma at half the width and height */
    LEVELS = 4, /* of quantisation, from fine to coarse */
    PICTURES = 16, /* as many, unless they would be smaller or larger than the next two say */
    MIN_PIXELS = 4096,
    MAX_PIXELS = 1024 * 1024,
    COSINE_BITS = 14,
    FRACTION_BITS = 3, /* kept between the passes of a transform, and up to the quantiser */
    ALPHABET = 256,
    END_OF_BLOCK = 0x00, /* symbols are zeros skipped * 16 + bits of the value */
    SIXTEEN_ZEROS = 0xf0,
    MAX_SIZE = 11, /* bits of the largest value, a difference of two averages */
    MAX_CODE_BITS = 15,
    LOOKUP_BITS = 8, /* longer codes are read bit by bit */
    MAX_KPIXELS = 1000 * 1000
};

enum kind { SMOOTH, NOISE, TEXT, EDGES, KINDS };
enum mode { BOTH, ENCODE, DECODE, MODES };

/* What a run did; every field is a candidate for a software metric. */
struct statistics {
    uint64_t pictures;
    uint64_t pixels;
    uint64_t blocks_encoded, blocks_decoded;
    uint64_t symbols;
    uint64_t long_zero_runs;
    uint64_t long_codes;   /* beyond the look-up table */
    uint64_t flat_columns; /* that the inverse transform need not compute */
    uint64_t bits_written;
};

static struct statistics stats;

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("jpegish: ", stderr);
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

static uint64_t random_state;

static uint64_t random_next(void)
{
    uint64_t z = (random_state += UINT64_C(0x9e3779b97f4a7c15)); /* splitmix64 */
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static int random_below(int bound)
{
    return (int)(((random_next() >> 32) * (uint64_t)bound) >> 32);
}

static uint64_t checksum = UINT64_C(0xcbf29ce484222325);

static void add_to_checksum(const uint8_t *data, size_t bytes)
{
    uint64_t sum = checksum; /* FNV-1a */
    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ data[i]) * UINT64_C(0x100000001b3);
    checksum = sum;
}

static int integer_root(int square)
{
    int root = 0;
    for (int bit = 1 << 15; bit > 0; bit /= 2)
        if ((int64_t)(root + bit) * (root + bit) <= square)
            root += bit;
    return root;
}

static uint8_t clamp(int value)
{
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* value / 2^bits, to the nearest; the shift of a negative number keeps its sign on all our compilers. */
static int32_t descale(int32_t value, int bits)
{
    return (value + (1 << (bits - 1))) >> bits;
}

/* ---- pictures ------------------------------------------------------------------------------ */

struct picture {
    int width, height;
    uint8_t *pixels; /* red, green, blue */
};

static void open_picture(struct picture *picture, int width, int height)
{
    picture->width = width;
    picture->height = height;
    picture->pixels = allocate((size_t)width * (size_t)height, 3);
}

static void set_pixel(struct picture *picture, int x, int y, const uint8_t *colour)
{
    if (x >= 0 && x < picture->width && y >= 0 && y < picture->height)
        memcpy(picture->pixels + 3 * ((size_t)y * (size_t)picture->width + (size_t)x), colour, 3);
}

static void pick_colour(uint8_t *colour, int low, int high)
{
    for (int channel = 0; channel < 3; channel++)
        colour[channel] = (uint8_t)(low + random_below(high - low));
}

/* A sine made of parabolas: -128 to 128, a period every 65536. */
static int wave(uint32_t phase)
{
    int along = (int)(phase & 0x7fff);
    int height = along * (0x8000 - along) >> 21;
    return phase & 0x8000 ? -height : height;
}

/* Two plane waves a channel, of half a period to one and a half a picture. */
static void draw_smooth(struct picture *picture)
{
    uint32_t start[6], across[6], down[6];
    for (int i = 0; i < 6; i++) {
        start[i] = (uint32_t)random_below(65536);
        across[i] = (uint32_t)((32768 + random_below(65536)) / picture->width);
        down[i] = (uint32_t)((32768 + random_below(65536)) / picture->height);
    }
    uint8_t *out = picture->pixels;
    for (int y = 0; y < picture->height; y++)
        for (int x = 0; x < picture->width; x++)
            for (int i = 0; i < 6; i += 2) {
                uint32_t first = start[i] + (uint32_t)x * across[i] + (uint32_t)y * down[i];
                uint32_t second = start[i + 1] + (uint32_t)x * across[i + 1] - (uint32_t)y * down[i + 1];
                *out++ = clamp(128 + (2 * wave(first) + wave(second)) / 3);
            }
}

/* Grain of its own in each channel, on a slope. */
static void draw_noise(struct picture *picture)
{
    uint8_t *out = picture->pixels;
    for (int y = 0; y < picture->height; y++)
        for (int x = 0; x < picture->width; x++) {
            uint64_t grain = random_next();
            int base = 32 + 64 * x / picture->width + 64 * y / picture->height;
            for (int channel = 0; channel < 3; channel++, grain >>= 16)
                *out++ = (uint8_t)(base + (int)(grain & 0x3f) + (int)(grain >> 8 & 0x1f));
        }
}

enum { GLYPHS = 40, GLYPH_WIDTH = 5, GLYPH_HEIGHT = 7 };

static uint8_t glyphs[GLYPHS][GLYPH_HEIGHT];

/* Letters of no alphabet: each has two to four strokes across or down. */
static void build_glyphs(void)
{
    for (int glyph = 0; glyph < GLYPHS; glyph++)
        for (int strokes = 2 + random_below(3); strokes > 0; strokes--) {
            if (random_below(2)) {
                int row = 3 * random_below(3);
                glyphs[glyph][row] |= random_below(3) ? 0x1f : 0x07;
                continue;
            }
            int column = 2 * random_below(3), top = 3 * random_below(2);
            for (int row = top; row < GLYPH_HEIGHT; row++)
                glyphs[glyph][row] = (uint8_t)(glyphs[glyph][row] | 1 << column);
        }
}

static void draw_glyph(struct picture *picture, int glyph, int left, int top, int scale, const uint8_t *ink)
{
    for (int y = 0; y < GLYPH_HEIGHT * scale; y++)
        for (int x = 0; x < GLYPH_WIDTH * scale; x++)
            if (glyphs[glyph][y / scale] >> (x / scale) & 1)
                set_pixel(picture, left + x, top + y, ink);
}

/* Lines of words on paper, each line of its own ink and size; a paragraph ends here and there. */
static void draw_text(struct picture *picture)
{
    uint8_t paper[3], ink[3];
    pick_colour(paper, 224, 256);
    for (int y = 0; y < picture->height; y++)
        for (int x = 0; x < picture->width; x++)
            set_pixel(picture, x, y, paper);
    for (int top = 3; top < picture->height;) {
        int scale = random_below(8) ? 1 : 2;
        int end = random_below(5) ? picture->width : picture->width / 2;
        pick_colour(ink, 0, random_below(4) ? 32 : 160);
        for (int left = 4; left < end; left += (GLYPH_WIDTH + 1) * scale)
            if (random_below(6))
                draw_glyph(picture, random_below(GLYPHS), left, top, scale, ink);
        top += (GLYPH_HEIGHT + 3) * scale;
    }
}

/* Flat rectangles, discs and triangles, one over the other. */
static void draw_edges(struct picture *picture)
{
    uint8_t colour[3];
    int extent = (picture->width + picture->height) / 4;
    for (int shapes = 30; shapes > 0; shapes--) {
        int left = random_below(picture->width + extent) - extent;
        int top = random_below(picture->height + extent) - extent;
        int size = extent / 4 + random_below(extent), form = random_below(3), radius = size / 2;
        pick_colour(colour, 0, 256);
        for (int y = 0; y < size; y++)
            for (int x = 0; x < size; x++) {
                int dx = x - radius, dy = y - radius;
                if (form == 0 || (form == 1 && dx * dx + dy * dy <= radius * radius) || (form == 2 && x <= y))
                    set_pixel(picture, left + x, top + y, colour);
            }
    }
}

static void draw(struct picture *picture, enum kind kind)
{
    switch (kind) {
    case SMOOTH:
        draw_smooth(picture);
        break;
    case NOISE:
        draw_noise(picture);
        break;
    case TEXT:
        draw_text(picture);
        break;
    default:
        draw_edges(picture);
    }
}

/* ---- planes and colours -------------------------------------------------------------------- */

struct plane {
    int width, height; /* whole blocks; the last pixels are repeated to fill them */
    uint8_t *samples;
    int16_t *coefficients; /* 64 a block, in zig-zag order */
};

struct frame {
    int width, height;
    struct plane planes[PLANES];
};

static void open_frame(struct frame *frame, int width, int height)
{
    frame->width = width;
    frame->height = height;
    for (int p = 0; p < PLANES; p++) {
        struct plane *plane = &frame->planes[p];
        plane->width = (width + 15) / 16 * (p == 0 ? 16 : 8);
        plane->height = (height + 15) / 16 * (p == 0 ? 16 : 8);
        size_t samples = (size_t)plane->width * (size_t)plane->height;
        plane->samples = allocate(samples, 1);
        plane->coefficients = allocate(samples, sizeof(int16_t));
    }
}

static void close_frame(struct frame *frame)
{
    for (int p = 0; p < PLANES; p++) {
        free(frame->planes[p].samples);
        free(frame->planes[p].coefficients);
    }
}

/* Luma, and chroma averaged over squares of four pixels. */
static void split_colours(const struct picture *picture, struct frame *frame)
{
    struct plane *luma = &frame->planes[0], *blue = &frame->planes[1], *red = &frame->planes[2];
    for (int y = 0; y < blue->height; y++)
        for (int x = 0; x < blue->width; x++) {
            int blue_sum = 0, red_sum = 0;
            for (int corner = 0; corner < 4; corner++) {
                int column = 2 * x + (corner & 1), row = 2 * y + (corner >> 1);
                int from_x = column < picture->width ? column : picture->width - 1;
                int from_y = row < picture->height ? row : picture->height - 1;
                const uint8_t *rgb = picture->pixels + 3 * (from_y * picture->width + from_x);
                int grey = descale(19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2], 16);
                luma->samples[row * luma->width + column] = (uint8_t)grey;
                blue_sum += rgb[2] - grey;
                red_sum += rgb[0] - grey;
            }
            blue->samples[y * blue->width + x] = clamp(128 + descale(36984 * blue_sum, 18));
            red->samples[y * red->width + x] = clamp(128 + descale(46745 * red_sum, 18));
        }
}

static void join_colours(const struct frame *frame, struct picture *picture)
{
    const struct plane *luma = &frame->planes[0], *blue = &frame->planes[1], *red = &frame->planes[2];
    uint8_t *out = picture->pixels;
    for (int y = 0; y < picture->height; y++) {
        const uint8_t *greys = luma->samples + y * luma->width;
        const uint8_t *blues = blue->samples + y / 2 * blue->width;
        const uint8_t *reds = red->samples + y / 2 * red->width;
        for (int x = 0; x < picture->width; x++) {
            int grey = greys[x], b = blues[x / 2] - 128, r = reds[x / 2] - 128;
            *out++ = clamp(grey + descale(91881 * r, 16));
            *out++ = clamp(grey - descale(22554 * b + 46802 * r, 16));
            *out++ = clamp(grey + descale(116130 * b, 16));
        }
    }
}

/* ---- discrete cosine transform ------------------------------------------------------------- */

/* Half the cosine of k/16 of half a turn, times 2^14. */
static const int32_t C1 = 8035, C2 = 7568, C3 = 6811, C4 = 5793, C5 = 4551, C6 = 3135, C7 = 1598;

/* Eight values, `stride` apart, in place; the sums are of the even and the odd half of the basis. */
static void transform_line(int32_t *line, int stride, int shift)
{
    int32_t sums[4], differences[4];
    for (int i = 0; i < 4; i++) {
        sums[i] = line[i * stride] + line[(7 - i) * stride];
        differences[i] = line[i * stride] - line[(7 - i) * stride];
    }
    int32_t outer = sums[0] + sums[3], inner = sums[1] + sums[2];
    int32_t outer_slope = sums[0] - sums[3], inner_slope = sums[1] - sums[2];
    int32_t a = differences[0], b = differences[1], c = differences[2], d = differences[3];
    line[0] = descale(C4 * (outer + inner), shift);
    line[stride] = descale(C1 * a + C3 * b + C5 * c + C7 * d, shift);
    line[2 * stride] = descale(C2 * outer_slope + C6 * inner_slope, shift);
    line[3 * stride] = descale(C3 * a - C7 * b - C1 * c - C5 * d, shift);
    line[4 * stride] = descale(C4 * (outer - inner), shift);
    line[5 * stride] = descale(C5 * a - C1 * b + C7 * c + C3 * d, shift);
    line[6 * stride] = descale(C6 * outer_slope - C2 * inner_slope, shift);
    line[7 * stride] = descale(C7 * a - C5 * b + C3 * c - C1 * d, shift);
}

static void restore_line(int32_t *line, int stride, int shift)
{
    int32_t a = line[stride], b = line[3 * stride], c = line[5 * stride], d = line[7 * stride];
    int32_t mean = C4 * (line[0] + line[4 * stride]), inner_mean = C4 * (line[0] - line[4 * stride]);
    int32_t slope = C2 * line[2 * stride] + C6 * line[6 * stride];
    int32_t inner_slope = C6 * line[2 * stride] - C2 * line[6 * stride];
    int32_t even[4] = {mean + slope, inner_mean + inner_slope, inner_mean - inner_slope, mean - slope};
    int32_t odd[4] = {C1 * a + C3 * b + C5 * c + C7 * d, C3 * a - C7 * b - C1 * c - C5 * d,
                      C5 * a - C1 * b + C7 * c + C3 * d, C7 * a - C5 * b + C3 * c - C1 * d};
    for (int i = 0; i < 4; i++) {
        line[i * stride] = descale(even[i] + odd[i], shift);
        line[(7 - i) * stride] = descale(even[i] - odd[i], shift);
    }
}

/* Coefficients come out with FRACTION_BITS bits of fraction. */
static void forward_transform(int32_t *block)
{
    for (int row = 0; row < SIDE; row++)
        transform_line(block + row * SIDE, 1, COSINE_BITS - FRACTION_BITS);
    for (int column = 0; column < SIDE; column++)
        transform_line(block + column, SIDE, COSINE_BITS);
}

/* Columns with nothing below their first coefficient are common, and constant. */
static void inverse_transform(int32_t *block)
{
    for (int column = 0; column < SIDE; column++) {
        int32_t any = 0;
        for (int row = 1; row < SIDE; row++)
            any |= block[row * SIDE + column];
        if (any) {
            restore_line(block + column, SIDE, COSINE_BITS - FRACTION_BITS);
            continue;
        }
        stats.flat_columns++;
        int32_t level = descale(C4 * block[column], COSINE_BITS - FRACTION_BITS);
        for (int row = 0; row < SIDE; row++)
            block[row * SIDE + column] = level;
    }
    for (int row = 0; row < SIDE; row++)
        restore_line(block + row * SIDE, 1, COSINE_BITS + FRACTION_BITS);
}

/* ---- quantisation -------------------------------------------------------------------------- */

static uint8_t zigzag[BLOCK];            /* place in the block of each coefficient of the stream */
static int32_t steps[LEVELS][2][BLOCK]; /* of luma and of chroma, in zig-zag order */

/* Along the diagonals, in turn upwards and downwards. */
static void build_zigzag(void)
{
    int next = 0;
    for (int diagonal = 0; diagonal < 2 * SIDE - 1; diagonal++)
        for (int i = 0; i <= diagonal; i++) {
            int row = diagonal % 2 ? i : diagonal - i, column = diagonal - row;
            if (row < SIDE && column < SIDE)
                zigzag[next++] = (uint8_t)(row * SIDE + column);
        }
}

/* Steps grow with frequency, more so for chroma. */
static void build_steps(void)
{
    static const int coarseness[LEVELS] = {4, 10, 24, 56};
    for (int level = 0; level < LEVELS; level++)
        for (int i = 0; i < BLOCK; i++) {
            int row = zigzag[i] / SIDE, column = zigzag[i] % SIDE;
            steps[level][0][i] = coarseness[level] * (8 + 2 * (row + column) + row * column / 2) / 16;
            steps[level][1][i] = coarseness[level] * (10 + 5 * (row + column)) / 16;
        }
}

static void quantise(const int32_t *block, const int32_t *step, int16_t *coefficients)
{
    for (int i = 0; i < BLOCK; i++) {
        int32_t value = block[zigzag[i]], unit = step[i] << FRACTION_BITS;
        int32_t magnitude = ((value < 0 ? -value : value) + unit / 2) / unit;
        coefficients[i] = (int16_t)(value < 0 ? -magnitude : magnitude);
    }
}

static void analyse_plane(struct plane *plane, const int32_t *step)
{
    int32_t block[BLOCK];
    int16_t *coefficients = plane->coefficients;
    for (int top = 0; top < plane->height; top += SIDE)
        for (int left = 0; left < plane->width; left += SIDE, coefficients += BLOCK) {
            const uint8_t *corner = plane->samples + top * plane->width + left;
            for (int i = 0; i < BLOCK; i++)
                block[i] = corner[i / SIDE * plane->width + i % SIDE] - 128;
            forward_transform(block);
            quantise(block, step, coefficients);
            stats.blocks_encoded++;
        }
}

static void synthesise_plane(struct plane *plane, const int32_t *step)
{
    int32_t block[BLOCK];
    const int16_t *coefficients = plane->coefficients;
    for (int top = 0; top < plane->height; top += SIDE)
        for (int left = 0; left < plane->width; left += SIDE, coefficients += BLOCK) {
            uint8_t *corner = plane->samples + top * plane->width + left;
            for (int i = 0; i < BLOCK; i++)
                block[zigzag[i]] = coefficients[i] * step[i];
            inverse_transform(block);
            for (int i = 0; i < BLOCK; i++)
                corner[i / SIDE * plane->width + i % SIDE] = clamp(block[i] + 128);
            stats.blocks_decoded++;
        }
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
            out->capacity = out->capacity ? 2 * out->capacity : 16384;
            out->bytes = realloc(out->bytes, out->capacity);
            if (!out->bytes)
                fail("out of memory (%zu bytes of output)", out->capacity);
        }
        out->pending_bits -= 8;
        out->bytes[out->length++] = (uint8_t)(out->pending >> out->pending_bits);
    }
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

/* ---- Huffman codes ------------------------------------------------------------------------- */

struct code_table {
    uint32_t frequencies[ALPHABET];
    uint8_t lengths[ALPHABET]; /* 0 for symbols that do not occur */
    uint16_t codes[ALPHABET];
    uint8_t sorted[ALPHABET]; /* symbols by code */
    int32_t limits[MAX_CODE_BITS + 1]; /* first code past those of each length */
    int32_t offsets[MAX_CODE_BITS + 1];
    uint16_t lookup[1 << LOOKUP_BITS]; /* symbol * 16 + length, or 0 */
};

static struct code_table tables[4]; /* averages and the rest, of luma and of chroma */

/* Occurring symbols, rarest first (insertion: there are few, and neighbours often come in order). */
static int sort_symbols(const struct code_table *table, uint8_t *symbols)
{
    int count = 0;
    for (int symbol = 0; symbol < ALPHABET; symbol++) {
        uint32_t frequency = table->frequencies[symbol];
        int at = count;
        if (frequency == 0)
            continue;
        for (; at > 0 && table->frequencies[symbols[at - 1]] > frequency; at--)
            symbols[at] = symbols[at - 1];
        symbols[at] = (uint8_t)symbol;
        count++;
    }
    return count;
}

/* Two queues, leaves and trees, both rarest first: the next pair to join is at their heads. */
static void join_trees(const struct code_table *table, const uint8_t *symbols, int count, int *depths)
{
    uint64_t weights[2 * ALPHABET];
    int parents[2 * ALPHABET], leaf = 0, tree = count;
    for (int i = 0; i < count; i++)
        weights[i] = table->frequencies[symbols[i]];
    for (int node = count; node < 2 * count - 1; node++) {
        weights[node] = 0;
        for (int child = 0; child < 2; child++) {
            bool take_leaf = leaf < count && (tree == node || weights[leaf] <= weights[tree]);
            int taken = take_leaf ? leaf++ : tree++;
            weights[node] += weights[taken];
            parents[taken] = node;
        }
    }
    depths[2 * count - 2] = 0;
    for (int node = 2 * count - 3; node >= 0; node--)
        depths[node] = depths[parents[node]] + 1;
}

/* Cuts codes to MAX_CODE_BITS; what that overspends, the longest codes still short enough repay. */
static void limit_depths(int *depths, int count)
{
    int spent = 0;
    for (int i = 0; i < count; i++) {
        if (depths[i] > MAX_CODE_BITS)
            depths[i] = MAX_CODE_BITS;
        spent += 1 << (MAX_CODE_BITS - depths[i]);
    }
    while (spent > 1 << MAX_CODE_BITS) {
        int longest = 0;
        for (int i = 1; i < count; i++)
            if (depths[i] < MAX_CODE_BITS &&
                (depths[longest] == MAX_CODE_BITS || depths[i] > depths[longest]))
                longest = i;
        depths[longest]++;
        spent -= 1 << (MAX_CODE_BITS - depths[longest]);
    }
}

static void assign_lengths(struct code_table *table)
{
    uint8_t symbols[ALPHABET];
    int depths[2 * ALPHABET], count = sort_symbols(table, symbols);
    memset(table->lengths, 0, sizeof table->lengths);
    if (count == 1) {
        table->lengths[symbols[0]] = 1;
        return;
    }
    join_trees(table, symbols, count, depths);
    limit_depths(depths, count);
    for (int i = 0; i < count; i++)
        table->lengths[symbols[i]] = (uint8_t)depths[i];
}

/* Canonical codes, and what a decoder needs to read them at once or a bit at a time. */
static void assign_codes(struct code_table *table)
{
    int32_t code = 0, index = 0;
    memset(table->lookup, 0, sizeof table->lookup);
    for (int length = 1; length <= MAX_CODE_BITS; length++) {
        table->offsets[length] = index - code;
        for (int symbol = 0; symbol < ALPHABET; symbol++) {
            if (table->lengths[symbol] != length)
                continue;
            if (code >> length)
                fail("a code table has too many codes of %d bits", length);
            for (int i = 0; length <= LOOKUP_BITS && i < 1 << (LOOKUP_BITS - length); i++)
                table->lookup[(code << (LOOKUP_BITS - length)) + i] = (uint16_t)(symbol << 4 | length);
            table->codes[symbol] = (uint16_t)code++;
            table->sorted[index++] = (uint8_t)symbol;
        }
        table->limits[length] = code;
        code <<= 1;
    }
}

/* Lengths as four bits each; after a 0, six bits say how many more symbols are absent. */
static void write_table(struct bit_writer *out, const struct code_table *table)
{
    for (int symbol = 0; symbol < ALPHABET; symbol++) {
        put_bits(out, table->lengths[symbol], 4);
        if (table->lengths[symbol] > 0)
            continue;
        int more = 0;
        while (more < 63 && symbol + 1 < ALPHABET && table->lengths[symbol + 1] == 0) {
            symbol++;
            more++;
        }
        put_bits(out, (uint32_t)more, 6);
    }
}

static void read_table(struct bit_reader *in, struct code_table *table)
{
    memset(table->lengths, 0, sizeof table->lengths);
    for (int symbol = 0; symbol < ALPHABET; symbol++) {
        table->lengths[symbol] = (uint8_t)get_bits(in, 4);
        if (table->lengths[symbol] == 0)
            symbol += (int)get_bits(in, 6);
    }
    assign_codes(table);
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

/* ---- coefficients as symbols --------------------------------------------------------------- */

static int size_of(int value)
{
    int size = 0;
    for (int magnitude = value < 0 ? -value : value; magnitude > 0; magnitude >>= 1)
        size++;
    return size;
}

/* Counts the symbol when there is nowhere to write it. Negative values are written less one. */
static void put_value(struct bit_writer *out, struct code_table *table, int zeros, int value)
{
    int size = size_of(value), symbol = zeros << 4 | size;
    if (!out) {
        table->frequencies[symbol]++;
        return;
    }
    stats.symbols++;
    stats.long_zero_runs += symbol == SIXTEEN_ZEROS;
    put_bits(out, table->codes[symbol], table->lengths[symbol]);
    if (size > 0)
        put_bits(out, (uint32_t)(value < 0 ? value - 1 : value) & ((UINT32_C(1) << size) - 1), size);
}

static void put_block(struct bit_writer *out, struct code_table *pair, const int16_t *coefficients,
                      int average)
{
    int zeros = 0;
    put_value(out, &pair[0], 0, coefficients[0] - average);
    for (int i = 1; i < BLOCK; i++) {
        if (coefficients[i] == 0) {
            zeros++;
            continue;
        }
        for (; zeros > 15; zeros -= 16)
            put_value(out, &pair[1], SIXTEEN_ZEROS >> 4, 0);
        put_value(out, &pair[1], zeros, coefficients[i]);
        zeros = 0;
    }
    if (zeros > 0)
        put_value(out, &pair[1], 0, 0);
}

static int get_value(struct bit_reader *in, int size)
{
    if (size == 0)
        return 0;
    if (size > MAX_SIZE)
        fail("the stream has a value of %d bits before byte %zu", size, in->position);
    int value = (int)get_bits(in, size);
    return value >> (size - 1) ? value : value + 1 - (1 << size);
}

static void get_block(struct bit_reader *in, const struct code_table *pair, int16_t *coefficients,
                      int average)
{
    memset(coefficients, 0, BLOCK * sizeof *coefficients);
    coefficients[0] = (int16_t)(average + get_value(in, read_symbol(in, &pair[0])));
    for (int i = 1; i < BLOCK; i++) {
        int symbol = read_symbol(in, &pair[1]);
        if (symbol == END_OF_BLOCK)
            break;
        i += symbol >> 4;
        if (i >= BLOCK)
            fail("the stream has a coefficient %d in a block before byte %zu", i, in->position);
        coefficients[i] = (int16_t)get_value(in, symbol & 15);
    }
}

static void put_coefficients(struct bit_writer *out, const struct frame *frame)
{
    for (int p = 0; p < PLANES; p++) {
        const struct plane *plane = &frame->planes[p];
        const int16_t *coefficients = plane->coefficients;
        int average = 0;
        for (int blocks = plane->width * plane->height / BLOCK; blocks > 0; blocks--) {
            put_block(out, &tables[p == 0 ? 0 : 2], coefficients, average);
            average = coefficients[0];
            coefficients += BLOCK;
        }
    }
}

static uint32_t sum_coefficients(const struct frame *frame)
{
    uint32_t sum = 0;
    for (int p = 0; p < PLANES; p++)
        for (int i = 0; i < frame->planes[p].width * frame->planes[p].height; i++)
            sum = (sum ^ (uint16_t)frame->planes[p].coefficients[i]) * UINT32_C(0x01000193);
    return sum;
}

/* ---- the codec ----------------------------------------------------------------------------- */

static void encode(const struct picture *picture, struct frame *frame, int level, struct bit_writer *out)
{
    split_colours(picture, frame);
    for (int p = 0; p < PLANES; p++)
        analyse_plane(&frame->planes[p], steps[level][p > 0]);
    for (int t = 0; t < 4; t++)
        memset(tables[t].frequencies, 0, sizeof tables[t].frequencies);
    put_coefficients(NULL, frame);

    out->length = 0;
    put_bits(out, (uint32_t)picture->width, 16);
    put_bits(out, (uint32_t)picture->height, 16);
    put_bits(out, (uint32_t)level, 2);
    for (int t = 0; t < 4; t++) {
        assign_lengths(&tables[t]);
        assign_codes(&tables[t]);
        write_table(out, &tables[t]);
    }
    put_coefficients(out, frame);
    uint32_t sum = sum_coefficients(frame);
    put_bits(out, sum >> 16, 16);
    put_bits(out, sum & 0xffff, 16);
    flush_bits(out);
}

static void decode(const struct bit_writer *stream, struct frame *frame, struct picture *picture)
{
    struct bit_reader in = {.bytes = stream->bytes, .length = stream->length};
    int width = (int)get_bits(&in, 16), height = (int)get_bits(&in, 16), level = (int)get_bits(&in, 2);
    if (width != frame->width || height != frame->height)
        fail("the stream's picture is %d x %d, not %d x %d", width, height, frame->width, frame->height);
    for (int t = 0; t < 4; t++)
        read_table(&in, &tables[t]);
    for (int p = 0; p < PLANES; p++) {
        int16_t *coefficients = frame->planes[p].coefficients;
        int average = 0;
        for (int blocks = frame->planes[p].width * frame->planes[p].height / BLOCK; blocks > 0; blocks--) {
            get_block(&in, &tables[p == 0 ? 0 : 2], coefficients, average);
            average = coefficients[0];
            coefficients += BLOCK;
        }
    }
    uint32_t sum = get_bits(&in, 16) << 16;
    sum |= get_bits(&in, 16);
    if (sum != sum_coefficients(frame))
        fail("the coefficients' sum is %08x, not %08x", (unsigned)sum_coefficients(frame), (unsigned)sum);
    for (int p = 0; p < PLANES; p++)
        synthesise_plane(&frame->planes[p], steps[level][p > 0]);
    join_colours(frame, picture);
}

/* ---- checks -------------------------------------------------------------------------------- */

/*
 * The transform keeps lengths, so a block is off by no more than its coefficients are: half a step
 * each, and a quarter for arithmetic. Rounding samples adds less than 3/4 each, 6 a block. Clamping
 * brings samples nearer to their originals.
 */
static int largest_error(const int32_t *step)
{
    int sixteenths = 0;
    for (int i = 0; i < BLOCK; i++)
        sixteenths += (2 * step[i] + 1) * (2 * step[i] + 1);
    int length = integer_root(sixteenths / 16) + 1 + 6;
    return length * length;
}

static void check_planes(const struct frame *before, const struct frame *after, int level)
{
    for (int p = 0; p < PLANES; p++) {
        const struct plane *from = &before->planes[p], *to = &after->planes[p];
        int largest = largest_error(steps[level][p > 0]);
        for (int top = 0; top < from->height; top += SIDE)
            for (int left = 0; left < from->width; left += SIDE) {
                int error = 0;
                for (int i = 0; i < BLOCK; i++) {
                    int at = (top + i / SIDE) * from->width + left + i % SIDE;
                    error += (from->samples[at] - to->samples[at]) * (from->samples[at] - to->samples[at]);
                }
                if (error > largest)
                    fail("the block at %d, %d of plane %d has the squared error %d, not up to %d", left, top,
                         p, error, largest);
            }
    }
}

/*
 * Hundredths of the mean squared error of a channel. Most of it is detail of chroma, which has no bound
 * but the picture's own; the limits are half as large again, or more, as the largest of 400 seeds.
 */
static uint64_t check_colours(const struct picture *before, const struct picture *after, enum kind kind,
                              int level)
{
    static const uint64_t limits[KINDS][LEVELS] = {
        [SMOOTH] = {100, 110, 120, 160},
        [NOISE] = {500, 550, 650, 700},
        [TEXT] = {250, 300, 600, 1300},
        [EDGES] = {1000, 1000, 1100, 1800},
    };
    uint64_t error = 0;
    size_t values = (size_t)before->width * (size_t)before->height * 3;
    for (size_t i = 0; i < values; i++) {
        int difference = before->pixels[i] - after->pixels[i];
        error += (uint64_t)(difference * difference);
    }
    error = error * 100 / values;
    if (error > 100 * limits[kind][level])
        fail("the mean squared error of picture %llu is %llu.%02llu, not up to %llu",
             (unsigned long long)stats.pictures, (unsigned long long)(error / 100),
             (unsigned long long)(error % 100), (unsigned long long)limits[kind][level]);
    return error;
}

/* ---- runs ---------------------------------------------------------------------------------- */

/*
 * One picture there and back. To encode, it is encoded at every level, last at its own; to decode, it
 * is decoded as many times.
 */
static void process(enum kind kind, int level, int width, int height, enum mode mode)
{
    static const char *const names[KINDS] = {"smooth", "noise", "text", "edges"};
    struct picture original, returned;
    struct frame source, target;
    struct bit_writer stream = {0};
    open_picture(&original, width, height);
    open_picture(&returned, width, height);
    open_frame(&source, width, height);
    open_frame(&target, width, height);

    draw(&original, kind);
    stats.pictures++;
    stats.pixels += (uint64_t)width * (uint64_t)height;
    for (int others = mode == ENCODE ? LEVELS - 1 : 0; others > 0; others--) {
        encode(&original, &source, (level + others) % LEVELS, &stream);
        add_to_checksum(stream.bytes, stream.length);
    }
    encode(&original, &source, level, &stream);
    add_to_checksum(stream.bytes, stream.length);
    for (int times = mode == DECODE ? LEVELS : 1; times > 0; times--) {
        decode(&stream, &target, &returned);
        check_planes(&source, &target, level);
    }
    add_to_checksum(returned.pixels, (size_t)width * (size_t)height * 3);
    uint64_t error = check_colours(&original, &returned, kind, level);
    printf("jpegish: picture %llu, %s, %d x %d, level %d -> %zu bytes, squared error %llu.%02llu\n",
           (unsigned long long)stats.pictures, names[kind], width, height, level, stream.length,
           (unsigned long long)(error / 100), (unsigned long long)(error % 100));

    close_frame(&source);
    close_frame(&target);
    free(original.pixels);
    free(returned.pixels);
    free(stream.bytes);
}

/* Kinds in turn; each comes back at the next level. Widths vary, and so do heights. */
static void process_all(uint64_t pixels, enum mode mode)
{
    uint64_t share = pixels / PICTURES;
    int area = (int)(share < MIN_PIXELS ? MIN_PIXELS : share > MAX_PIXELS ? MAX_PIXELS : share);
    int root = integer_root(area);
    for (int turn = 0; stats.pixels < pixels; turn++) {
        int width = root * 3 / 4 + random_below(root / 2);
        int level = (turn + turn / KINDS) % LEVELS;
        process((enum kind)(turn % KINDS), level, width, area / width, mode);
    }
    printf("jpegish: %llu blocks encoded, %llu decoded, %llu symbols, %llu long codes, %llu flat columns\n",
           (unsigned long long)stats.blocks_encoded, (unsigned long long)stats.blocks_decoded,
           (unsigned long long)stats.symbols, (unsigned long long)stats.long_codes,
           (unsigned long long)stats.flat_columns);
    printf("jpegish: %llu pictures of %llu pixels, checksum %016llx\n", (unsigned long long)stats.pictures,
           (unsigned long long)stats.pixels, (unsigned long long)checksum);
}

/* ---- command line -------------------------------------------------------------------------- */

static int usage(void)
{
    fputs("usage: jpegish [tiny|small|medium|large|KPIXELS [SEED [both|encode|decode]]]\n"
          "  KPIXELS  thousands of pixels in all pictures, 1 to 1000000 (default: medium)\n"
          "  SEED     unsigned 64-bit seed of the pictures (default: 1)\n"
          "  encode   encode each picture four times, and decode it once\n"
          "  decode   encode each picture once, and decode it four times\n",
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

static bool parse_size(const char *text, uint64_t *kpixels)
{
    static const struct {
        const char *name;
        uint64_t kpixels;
    } named[] = {{"tiny", 16}, {"small", 50}, {"medium", 570}, {"large", 3050}};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strcmp(text, named[i].name) == 0) {
            *kpixels = named[i].kpixels;
            return true;
        }
    return parse_number(text, 1, MAX_KPIXELS, kpixels);
}

static bool parse_mode(const char *text, enum mode *mode)
{
    static const char *const names[MODES] = {"both", "encode", "decode"};
    for (int i = 0; i < MODES; i++)
        if (strcmp(text, names[i]) == 0) {
            *mode = (enum mode)i;
            return true;
        }
    return false;
}

int main(int argc, char **argv)
{
    uint64_t kpixels, seed = 1;
    enum mode mode = BOTH;
    if (argc > 4 || !parse_size(argc > 1 ? argv[1] : "medium", &kpixels))
        return usage();
    if (argc > 2 && !parse_number(argv[2], 0, UINT64_MAX, &seed))
        return usage();
    if (argc > 3 && !parse_mode(argv[3], &mode))
        return usage();
    random_state = seed;
    build_glyphs();
    build_zigzag();
    build_steps();
    process_all(kpixels * 1000, mode);
    return 0;
}
