/*
 * nbody - floating-point kernels, one after the other.
 *
 * Gravitating bodies (divisions and square roots), a blocked matrix product, a Mandelbrot set in
 * single precision (data-dependent loops) and a fast Fourier transform there and back. Each kernel
 * checks itself: energy drift, product against a random vector, symmetry, and the signal returned.
 * Only operations that IEEE 754 rounds correctly are used, so checksums agree between machines.
 *
 * Usage: nbody [tiny|small|medium|large|ROUNDS [SEED]]
 * Exit status: 0 fine, 1 a check failed, 2 bad arguments.
 */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* a fused multiply-add would round otherwise on machines that have one */
#endif

enum {
    BODIES = 24,
    STEPS = 60, /* a round */
    MATRIX = 48,
    TILE = 16,
    IMAGE_WIDTH = 64,
    IMAGE_HEIGHT = 48, /* even: the set is symmetric about the real axis */
    ITERATIONS = 96,
    SIGNAL_BITS = 11,
    SIGNAL = 1 << SIGNAL_BITS,
    MAX_ROUNDS = 1000000
};

/* What a run did; every field is a candidate for a software metric. */
struct statistics {
    uint64_t interactions;
    uint64_t steps;
    uint64_t tiles;
    uint64_t escapes, iterations;
    uint64_t butterflies;
};

static struct statistics stats;

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("nbody: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static uint64_t random_state;

static uint64_t random_next(void)
{
    uint64_t z = (random_state += UINT64_C(0x9e3779b97f4a7c15)); /* splitmix64 */
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Uniform in [-1, 1). */
static double random_unit(void) { return (double)(int64_t)(random_next() >> 10) * 0x1p-53 - 1.0; }

static uint64_t checksum = UINT64_C(0xcbf29ce484222325);

/* FNV-1a over the bits of every result. */
static void add_to_checksum(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    checksum = (checksum ^ bits) * UINT64_C(0x100000001b3);
}

/* ---- bodies -------------------------------------------------------------------------------- */

struct body {
    double position[3], velocity[3], acceleration[3], mass;
};

static struct body bodies[BODIES];

static void place_bodies(void)
{
    for (int i = 0; i < BODIES; i++) {
        struct body *body = &bodies[i];
        body->mass = 1.5 + random_unit();
        for (int axis = 0; axis < 3; axis++) {
            body->position[axis] = 10.0 * random_unit();
            body->velocity[axis] = 0.3 * random_unit();
        }
    }
}

/* Squared distance, softened so that close encounters stay finite. */
static double separation(const struct body *a, const struct body *b, double *towards)
{
    double squared = 0.05;
    for (int axis = 0; axis < 3; axis++) {
        towards[axis] = b->position[axis] - a->position[axis];
        squared += towards[axis] * towards[axis];
    }
    return squared;
}

static void attract(struct body *a, struct body *b)
{
    double towards[3], squared = separation(a, b, towards);
    double inverse = 1.0 / (squared * sqrt(squared));
    stats.interactions++;
    for (int axis = 0; axis < 3; axis++) {
        a->acceleration[axis] += b->mass * inverse * towards[axis];
        b->acceleration[axis] -= a->mass * inverse * towards[axis];
    }
}

static void accelerate(void)
{
    for (int i = 0; i < BODIES; i++)
        memset(bodies[i].acceleration, 0, sizeof bodies[i].acceleration);
    for (int i = 0; i < BODIES; i++)
        for (int j = i + 1; j < BODIES; j++)
            attract(&bodies[i], &bodies[j]);
}

static void kick(double seconds)
{
    for (int i = 0; i < BODIES; i++)
        for (int axis = 0; axis < 3; axis++)
            bodies[i].velocity[axis] += seconds * bodies[i].acceleration[axis];
}

static void drift(double seconds)
{
    for (int i = 0; i < BODIES; i++)
        for (int axis = 0; axis < 3; axis++)
            bodies[i].position[axis] += seconds * bodies[i].velocity[axis];
}

static double energy(void)
{
    double total = 0.0, towards[3];
    for (int i = 0; i < BODIES; i++) {
        const double *v = bodies[i].velocity;
        total += 0.5 * bodies[i].mass * (v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
        for (int j = i + 1; j < BODIES; j++)
            total -= bodies[i].mass * bodies[j].mass / sqrt(separation(&bodies[i], &bodies[j], towards));
    }
    return total;
}

/* Leapfrog integration. */
static void move_bodies(void)
{
    const double step_seconds = 0.002;
    place_bodies();
    double before = energy();
    accelerate();
    for (int step = 0; step < STEPS; step++) {
        kick(0.5 * step_seconds);
        drift(step_seconds);
        accelerate();
        kick(0.5 * step_seconds);
        stats.steps++;
    }
    double after = energy();
    if (!(fabs(after - before) <= 1e-3 * fabs(before)))
        fail("energy went from %.9g to %.9g", before, after);
    for (int i = 0; i < BODIES; i++)
        add_to_checksum(bodies[i].position[i % 3]);
}

/* ---- matrices ------------------------------------------------------------------------------ */

static double left[MATRIX][MATRIX], right[MATRIX][MATRIX], product[MATRIX][MATRIX];

static void multiply_tile(int row, int column, int inner)
{
    stats.tiles++;
    for (int i = row; i < row + TILE; i++)
        for (int k = inner; k < inner + TILE; k++) {
            double factor = left[i][k];
            for (int j = column; j < column + TILE; j++)
                product[i][j] += factor * right[k][j];
        }
}

static void transform_vector(double (*matrix)[MATRIX], const double *from, double *to)
{
    for (int i = 0; i < MATRIX; i++) {
        to[i] = 0.0;
        for (int j = 0; j < MATRIX; j++)
            to[i] += matrix[i][j] * from[j];
    }
}

/* (left * right) * v must be left * (right * v). */
static void check_product(void)
{
    double vector[MATRIX], direct[MATRIX], inner[MATRIX], nested[MATRIX];
    for (int i = 0; i < MATRIX; i++)
        vector[i] = random_unit();
    transform_vector(product, vector, direct);
    transform_vector(right, vector, inner);
    transform_vector(left, inner, nested);
    for (int i = 0; i < MATRIX; i++)
        if (!(fabs(direct[i] - nested[i]) < 1e-10))
            fail("row %d of the product gives %.17g, not %.17g", i, direct[i], nested[i]);
}

static void multiply_matrices(void)
{
    for (int i = 0; i < MATRIX; i++)
        for (int j = 0; j < MATRIX; j++) {
            left[i][j] = random_unit();
            right[i][j] = random_unit();
            product[i][j] = 0.0;
        }
    for (int row = 0; row < MATRIX; row += TILE)
        for (int column = 0; column < MATRIX; column += TILE)
            for (int inner = 0; inner < MATRIX; inner += TILE)
                multiply_tile(row, column, inner);
    check_product();
    for (int i = 0; i < MATRIX; i++)
        add_to_checksum(product[i][(7 * i) % MATRIX]);
}

/* ---- Mandelbrot set ------------------------------------------------------------------------ */

static uint8_t image[IMAGE_HEIGHT][IMAGE_WIDTH];

static int escape_time(float real, float imaginary)
{
    float x = 0.0f, y = 0.0f;
    int iteration = 0;
    for (; iteration < ITERATIONS; iteration++) {
        float squared_x = x * x, squared_y = y * y;
        if (squared_x + squared_y > 4.0f) {
            stats.escapes++;
            break;
        }
        y = 2.0f * x * y + imaginary;
        x = squared_x - squared_y + real;
    }
    stats.iterations += (uint64_t)iteration;
    return iteration;
}

static void draw_set(void)
{
    float offset = (float)random_unit() * 0.01f;
    for (int row = 0; row < IMAGE_HEIGHT; row++)
        for (int column = 0; column < IMAGE_WIDTH; column++) {
            float imaginary = ((float)row - (IMAGE_HEIGHT - 1) * 0.5f) * (2.5f / IMAGE_HEIGHT);
            float real = -2.2f + offset + (float)column * (3.0f / IMAGE_WIDTH);
            image[row][column] = (uint8_t)escape_time(real, imaginary);
        }
    for (int row = 0; row < IMAGE_HEIGHT; row++) {
        if (memcmp(image[row], image[IMAGE_HEIGHT - 1 - row], IMAGE_WIDTH) != 0)
            fail("row %d of the image is not the mirror of row %d", row, IMAGE_HEIGHT - 1 - row);
        add_to_checksum((double)image[row][(5 * row) % IMAGE_WIDTH]);
    }
}

/* ---- Fourier transform --------------------------------------------------------------------- */

struct complex_number {
    double real, imaginary;
};

static struct complex_number signal_values[SIGNAL], original[SIGNAL], roots[SIGNAL / 2];

static struct complex_number multiply(struct complex_number a, struct complex_number b)
{
    return (struct complex_number){a.real * b.real - a.imaginary * b.imaginary,
                                   a.real * b.imaginary + a.imaginary * b.real};
}

/* Roots of unity, clockwise, by halving angles: the square root is the only function needed. */
static void build_roots(void)
{
    struct complex_number unit = {0.0, -1.0}; /* a quarter turn */
    roots[0] = (struct complex_number){1.0, 0.0};
    roots[SIGNAL / 4] = unit;
    for (int stride = SIGNAL / 8; stride > 0; stride /= 2) {
        double real = sqrt(0.5 * (1.0 + unit.real));
        unit = (struct complex_number){real, unit.imaginary / (2.0 * real)};
        for (int i = stride; i < SIGNAL / 2; i += 2 * stride)
            roots[i] = multiply(roots[i - stride], unit);
    }
}

static void reverse_order(void)
{
    for (int i = 1, j = 0; i < SIGNAL; i++) {
        int bit = SIGNAL / 2;
        for (; j & bit; bit /= 2)
            j ^= bit;
        j ^= bit;
        if (i < j) {
            struct complex_number kept = signal_values[i];
            signal_values[i] = signal_values[j];
            signal_values[j] = kept;
        }
    }
}

static void butterfly(int i, int j, struct complex_number root)
{
    struct complex_number a = signal_values[i], b = multiply(signal_values[j], root);
    stats.butterflies++;
    signal_values[i] = (struct complex_number){a.real + b.real, a.imaginary + b.imaginary};
    signal_values[j] = (struct complex_number){a.real - b.real, a.imaginary - b.imaginary};
}

static void transform(bool inverse)
{
    reverse_order();
    for (int half = 1; half < SIGNAL; half *= 2)
        for (int start = 0; start < SIGNAL; start += 2 * half)
            for (int i = 0; i < half; i++) {
                struct complex_number root = roots[i * (SIGNAL / 2 / half)];
                if (inverse)
                    root.imaginary = -root.imaginary;
                butterfly(start + i, start + i + half, root);
            }
}

static void transform_signal(void)
{
    for (int i = 0; i < SIGNAL; i++) {
        original[i].real = random_unit();
        original[i].imaginary = random_unit();
    }
    memcpy(signal_values, original, sizeof signal_values);
    transform(false);
    for (int i = 0; i < SIGNAL; i += 64)
        add_to_checksum(signal_values[i].real);
    transform(true);
    for (int i = 0; i < SIGNAL; i++) {
        double real = signal_values[i].real / SIGNAL - original[i].real;
        double imaginary = signal_values[i].imaginary / SIGNAL - original[i].imaginary;
        if (!(real * real + imaginary * imaginary < 1e-26))
            fail("sample %d came back off by (%.3g, %.3g)", i, real, imaginary);
    }
}

/* ---- command line -------------------------------------------------------------------------- */

static int usage(void)
{
    fputs("usage: nbody [tiny|small|medium|large|ROUNDS [SEED]]\n"
          "  ROUNDS  times to run each kernel, 1 to 1000000 (default: medium)\n"
          "  SEED    unsigned 64-bit seed of the data (default: 1)\n",
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

static bool parse_size(const char *text, uint64_t *rounds)
{
    static const struct {
        const char *name;
        uint64_t rounds;
    } named[] = {{"tiny", 1}, {"small", 8}, {"medium", 60}, {"large", 600}};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strcmp(text, named[i].name) == 0) {
            *rounds = named[i].rounds;
            return true;
        }
    return parse_number(text, 1, MAX_ROUNDS, rounds);
}

int main(int argc, char **argv)
{
    uint64_t rounds, seed = 1;
    if (argc > 3 || !parse_size(argc > 1 ? argv[1] : "medium", &rounds))
        return usage();
    if (argc > 2 && !parse_number(argv[2], 0, UINT64_MAX, &seed))
        return usage();
    random_state = seed;
    build_roots();
    for (uint64_t round = 0; round < rounds; round++) {
        move_bodies();
        multiply_matrices();
        draw_set();
        transform_signal();
    }
    printf("nbody: %llu interactions, %llu tiles, %llu iterations, %llu butterflies\n",
           (unsigned long long)stats.interactions, (unsigned long long)stats.tiles,
           (unsigned long long)stats.iterations, (unsigned long long)stats.butterflies);
    printf("nbody: %llu rounds, checksum %016llx\n", (unsigned long long)rounds, (unsigned long long)checksum);
    return 0;
}
