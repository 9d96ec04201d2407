/*
 * Runs the SQL on standard input in a database in memory, and prints every row, columns joined by '|'.
 *
 * Usage: sqlite_driver SCALE < FILE.sql     the SQL sees SCALE as scale()
 * Exit status: 0 fine, 1 an SQL error, 2 bad arguments.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sqlite3.h"

static void scale_function(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count;
    (void)values;
    sqlite3_result_int64(context, *(sqlite3_int64 *)sqlite3_user_data(context));
}

static int print_row(void *unused, int columns, char **values, char **names)
{
    (void)unused;
    (void)names;
    for (int i = 0; i < columns; i++)
        printf("%s%s", i ? "|" : "", values[i] ? values[i] : "NULL");
    putchar('\n');
    return 0;
}

static char *read_all(FILE *in)
{
    size_t capacity = 4096, length = 0;
    char *text = malloc(capacity);
    while (text) {
        length += fread(text + length, 1, capacity - length - 1, in);
        if (length + 1 < capacity)
            break;
        char *larger = realloc(text, capacity *= 2);
        if (!larger)
            free(text);
        text = larger;
    }
    if (text)
        text[length] = '\0';
    return text;
}

int main(int argc, char **argv)
{
    char *end, *message = NULL;
    sqlite3_int64 scale = argc == 2 ? strtoll(argv[1], &end, 10) : 0;
    if (argc != 2 || *end != '\0' || scale < 1) {
        fputs("usage: sqlite_driver SCALE < FILE.sql\n", stderr);
        return 2;
    }
    sqlite3 *database = NULL;
    char *sql = read_all(stdin);
    /* A fixed seed: page and rowid choices would otherwise depend on the time of day. */
    sqlite3_test_control(SQLITE_TESTCTRL_PRNG_SEED, 1, NULL);
    if (!sql || sqlite3_open(":memory:", &database) != SQLITE_OK ||
        sqlite3_create_function(database, "scale", 0, SQLITE_UTF8, &scale, scale_function, NULL, NULL) !=
            SQLITE_OK) {
        fputs("sqlite_driver: cannot open a database in memory\n", stderr);
        return 1;
    }
    int status = sqlite3_exec(database, sql, print_row, NULL, &message);
    if (status != SQLITE_OK)
        fprintf(stderr, "sqlite_driver: %s\n", message ? message : sqlite3_errstr(status));
    sqlite3_free(message);
    sqlite3_close(database);
    free(sql);
    return status == SQLITE_OK ? 0 : 1;
}
