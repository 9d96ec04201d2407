/* Lets a build start the programs that it has just made for the emulated machine, as it would start its own.
 *
 * The dynamic linker loads this library (LD_PRELOAD) into the shell, make, cmake ... of a build command. It stands in
 * for the C library's functions that start programs, and looks at the file first: for a RISC-V program it starts the
 * command $INSTRUMENT_EMULATOR instead, with the file and the arguments. Everything else is passed on unchanged.
 *
 * Many projects make a program and run it, to generate sources or as a first test; compiled for another machine, they
 * would fail there. It refers to nothing that differs between C libraries, and so works with each of them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LONGEST_PATH 4096

typedef int execute_function(const char *, char *const[], char *const[]);
typedef int spawn_function(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
                           char *const[], char *const[]);

extern char **environ;

static execute_function *real_execve, *real_execvpe;
static spawn_function *real_spawn, *real_spawnp;
static const char *emulator;

/* At the start, since between fork and exec nothing may be looked up. */
__attribute__((constructor)) static void find_functions(void)
{
    emulator = getenv("INSTRUMENT_EMULATOR");
    real_execve = (execute_function *)dlsym(RTLD_NEXT, "execve");
    real_execvpe = (execute_function *)dlsym(RTLD_NEXT, "execvpe");
    real_spawn = (spawn_function *)dlsym(RTLD_NEXT, "posix_spawn");
    real_spawnp = (spawn_function *)dlsym(RTLD_NEXT, "posix_spawnp");
}

static int is_guest_program(const char *path)
{
    Elf64_Ehdr header;
    int file = emulator ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (file < 0)
        return 0;
    ssize_t n = read(file, &header, sizeof header);
    close(file);
    return n == sizeof header && !memcmp(header.e_ident, ELFMAG, SELFMAG) && header.e_machine == EM_RISCV &&
           (header.e_type == ET_EXEC || header.e_type == ET_DYN) && !access(path, X_OK);
}

/* The file that NAME means: itself with a slash, otherwise the first of $PATH; 0 if that is no program of the guest. */
static const char *guest_program(const char *name, char *place)
{
    if (strchr(name, '/'))
        return is_guest_program(name) ? name : 0;
    for (const char *folder = getenv("PATH"); folder; folder = *folder ? folder + 1 : 0) {
        size_t n = strcspn(folder, ":");
        if (n + 1 + strlen(name) < LONGEST_PATH) {
            memcpy(place, folder, n);
            strcpy(place + n, n ? "/" : "./");
            strcat(place, name);
            if (!access(place, X_OK))
                return is_guest_program(place) ? place : 0;
        }
        folder += n;
    }
    return 0;
}

static size_t length(char *const arguments[])
{
    size_t n = 0;
    while (arguments && arguments[n])
        n++;
    return n;
}

/* Fill WORDS, of two more than the arguments and their end, with the emulator's command line. */
static char *const *emulated(char **words, const char *program, char *const arguments[])
{
    size_t n = length(arguments);
    words[0] = (char *)emulator;
    words[1] = (char *)program;
    for (size_t i = 1; i < n; i++)
        words[i + 1] = arguments[i];
    words[n > 1 ? n + 1 : 2] = 0;
    return words;
}

#define ROOM(arguments) __builtin_alloca((length(arguments) + 3) * sizeof(char *))

int execve(const char *path, char *const arguments[], char *const environment[])
{
    if (!is_guest_program(path))
        return real_execve(path, arguments, environment);
    return real_execve(emulator, emulated(ROOM(arguments), path, arguments), environment);
}

int execv(const char *path, char *const arguments[])
{
    return execve(path, arguments, environ);
}

int execvpe(const char *name, char *const arguments[], char *const environment[])
{
    char place[LONGEST_PATH];
    const char *program = guest_program(name, place);
    if (!program)
        return real_execvpe(name, arguments, environment);
    return real_execve(emulator, emulated(ROOM(arguments), program, arguments), environment);
}

int execvp(const char *name, char *const arguments[])
{
    return execvpe(name, arguments, environ);
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[])
{
    if (!is_guest_program(path))
        return real_spawn(pid, path, actions, attributes, arguments, environment);
    char *const *words = emulated(ROOM(arguments), path, arguments);
    return real_spawn(pid, emulator, actions, attributes, words, environment);
}

int posix_spawnp(pid_t *pid, const char *name, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[])
{
    char place[LONGEST_PATH];
    const char *program = guest_program(name, place);
    if (!program)
        return real_spawnp(pid, name, actions, attributes, arguments, environment);
    return real_spawn(pid, emulator, actions, attributes, emulated(ROOM(arguments), program, arguments), environment);
}
