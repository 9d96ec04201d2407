/* Loops over the libm's rounding functions and over fenv: one kind a run. */
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 1024
static double in[N];
static double sum;

#define LOOP(name, expression)                                    \
    if (!strcmp(argv[1], name))                                   \
        for (long k = 0; k < turns; k++)                          \
            for (int i = 0; i < N; i++) {                         \
                double x = in[i];                                 \
                float f = (float)x;                               \
                (void)f;                                          \
                sum += (double)(expression);                      \
            }

static double held(double x) {
    fenv_t env;
    feholdexcept(&env);
    x = x / 3;
    feupdateenv(&env);
    return x;
}
static double directed(double x) {
    int old = fegetround();
    fesetround(FE_UPWARD);
    x = x / 3;
    fesetround(old);
    return x;
}
static double tested(double x) {
    feclearexcept(FE_ALL_EXCEPT);
    x = x / 3;
    return x + fetestexcept(FE_INEXACT);
}

int main(int argc, char **argv) {
    long turns = atol(argv[2]);
    for (int i = 0; i < N; i++) in[i] = (i - N / 2) * 1.37 + (i % 7) * 1e-3;
    LOOP("floor", floor(x)) LOOP("ceil", ceil(x)) LOOP("trunc", trunc(x)) LOOP("round", round(x))
    LOOP("rint", rint(x)) LOOP("nearbyint", nearbyint(x)) LOOP("lrint", lrint(x)) LOOP("lround", lround(x))
    LOOP("floorf", floorf(f)) LOOP("roundf", roundf(f)) LOOP("nearbyintf", nearbyintf(f)) LOOP("lrintf", lrintf(f))
    LOOP("hold", held(x)) LOOP("fesetround", directed(x)) LOOP("fetestexcept", tested(x))
    printf("%.17g\n", sum);
    return 0;
}
