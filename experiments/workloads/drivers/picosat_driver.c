/*
 * Solves random 3-SAT formulas near the threshold with picosat and checks every model found.
 *
 * Usage: picosat_driver VARIABLES FORMULAS
 * Exit status: 0 fine, 1 a model does not satisfy its formula, 2 bad arguments.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "picosat.h"

static uint64_t random_state = 1;

static uint64_t random_below(uint64_t bound)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 33) % bound;
}

static int draw_literal(int variables)
{
    int variable = 1 + (int)random_below((uint64_t)variables);
    return random_below(2) ? variable : -variable;
}

/* 1 satisfiable, 0 not, -1 when the model is wrong. */
static int solve(int variables, int (*clauses)[3], int count)
{
    PicoSAT *solver = picosat_init();
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < 3; k++)
            picosat_add(solver, clauses[i][k] = draw_literal(variables));
        picosat_add(solver, 0);
    }
    int result = picosat_sat(solver, -1) == PICOSAT_SATISFIABLE;
    for (int i = 0; result == 1 && i < count; i++) {
        int satisfied = 0;
        for (int k = 0; k < 3; k++)
            satisfied |= picosat_deref(solver, clauses[i][k]) == 1;
        if (!satisfied)
            result = -1;
    }
    picosat_reset(solver);
    return result;
}

int main(int argc, char **argv)
{
    char *end_variables, *end_formulas;
    long variables = argc == 3 ? strtol(argv[1], &end_variables, 10) : 0;
    long formulas = argc == 3 ? strtol(argv[2], &end_formulas, 10) : 0;
    if (argc != 3 || *end_variables || *end_formulas || variables < 3 || variables > 100000 || formulas < 1) {
        fputs("usage: picosat_driver VARIABLES FORMULAS\n", stderr);
        return 2;
    }
    int count = (int)(variables * 426 / 100); /* where satisfiable and not are about as likely */
    int(*clauses)[3] = malloc((size_t)count * sizeof *clauses);
    long satisfiable = 0;
    for (long i = 0; clauses && i < formulas; i++) {
        int result = solve((int)variables, clauses, count);
        if (result < 0) {
            fprintf(stderr, "picosat_driver: the model of formula %ld is wrong\n", i);
            return 1;
        }
        satisfiable += result;
    }
    printf("picosat: %ld of %ld formulas of %ld variables are satisfiable\n", satisfiable, formulas,
           variables);
    free(clauses);
    return 0;
}
