"""Which parts of the C library most programs are linked with: a third of its sources, which are compiled first.

They are what the functions of the C standard, and of POSIX for files, time, signals and threads need; not regular
expressions, the network, users and groups, wide streams, complex numbers, and `popen`. What a member of this list needs
of the library is in the list, for machines of all our targets. Functions that are not here, such as `malloc` and
`strchr`, come from the compiler's other libraries, and `strlen` from `instrumenter.compiler.string_functions`.
"""

from __future__ import annotations

from pathlib import PurePath

_STEMS = {
    "conf": """sysconf""",
    "ctype": """__ctype_b_loc __ctype_get_mb_cur_max __ctype_tolower_loc __ctype_toupper_loc""",
    "dirent": """closedir opendir readdir""",
    "env": """__environ __init_tls __libc_start_main __stack_chk_fail getenv putenv setenv unsetenv""",
    "errno": """__errno_location strerror""",
    "exit": """_Exit abort abort_lock assert atexit exit""",
    "fcntl": """creat fcntl open""",
    "fenv": """fenv fesetround""",
    "internal": """defsysinfo floatscan intscan libc procfdname shgetc syscall_ret vdso""",
    "legacy": """err getpagesize""",
    "linux": """sbrk sysinfo""",
    "locale": """__lctrans __mo_lookup c_locale langinfo locale_map localeconv setlocale""",
    "math": """__cos __expo2 __fpclassify __fpclassifyf __fpclassifyl __math_invalid __math_invalidf __math_oflow
        __math_oflowf __math_uflow __math_uflowf __math_xflow __math_xflowf __signbit __signbitf __signbitl __sin
        asinf atan2 atan2f erf exp2f_data exp2l exp_data expl expm1 fma fmaf fmal ilogb ilogbl ldexp ldexpf ldexpl
        lgamma lgamma_r llrint llround log10l log2l logb logl nearbyint nextafter nextafterl pow pow_data powf
        powf_data remainder remquo scalbn scalbnf scalbnl signgam sinh tgamma""",
    "misc": """basename dirname getauxval getopt getopt_long getrlimit getrusage ioctl realpath setrlimit syscall""",
    "mman": """mmap mremap munmap""",
    "multibyte": """internal mblen mbrtowc mbsinit mbsrtowcs mbstowcs mbtowc wcrtomb wcsrtombs wcstombs wctomb""",
    "prng": """random""",
    "process": """_Fork fork wait waitpid""",
    "sched": """affinity sched_yield""",
    "select": """poll select""",
    "setjmp": """longjmp setjmp""",
    "signal": """block kill raise restore setitimer sigaction sigaddset sigemptyset sigfillset siglongjmp signal
        sigprocmask sigsetjmp sigsetjmp_tail""",
    "stat": """chmod fchmod fstat fstatat lstat mkdir stat umask utimensat""",
    "stdio": """__fdopen __fmodeflags __lockfile __overflow __stdio_close __stdio_exit __stdio_read __stdio_seek
        __stdio_write __stdout_write __toread __towrite __uflow asprintf clearerr fclose feof ferror fflush fgetc
        fgets fileno flockfile fopen fprintf fputc fputs fread freopen fscanf fseek ftell ftrylockfile funlockfile
        fwrite getc getc_unlocked getchar getchar_unlocked getdelim getline ofl ofl_add perror printf putc
        putc_unlocked putchar putchar_unlocked puts remove rename rewind scanf setbuf setlinebuf setvbuf snprintf
        sprintf sscanf stderr stdin stdout tmpfile ungetc vasprintf vfprintf vfscanf vprintf vscanf vsnprintf
        vsprintf vsscanf""",
    "stdlib": """atof strtod""",
    "temp": """__randname mkostemps mkstemp""",
    "thread": """__lock __set_thread_area __syscall_cp __timedwait __unmapself __wait clone default_attr lock_ptc
        pthread_attr_destroy pthread_attr_init pthread_attr_setdetachstate pthread_attr_setstacksize
        pthread_barrier_destroy pthread_barrier_init pthread_barrier_wait pthread_cleanup_push
        pthread_cond_broadcast pthread_cond_destroy pthread_cond_init pthread_cond_signal pthread_cond_timedwait
        pthread_cond_wait pthread_create pthread_detach pthread_equal pthread_getspecific pthread_join
        pthread_key_create pthread_mutex_destroy pthread_mutex_init pthread_mutex_lock pthread_mutex_timedlock
        pthread_mutex_trylock pthread_mutex_unlock pthread_once pthread_rwlock_destroy pthread_rwlock_init
        pthread_rwlock_rdlock pthread_rwlock_timedrdlock pthread_rwlock_timedwrlock pthread_rwlock_tryrdlock
        pthread_rwlock_trywrlock pthread_rwlock_unlock pthread_rwlock_wrlock pthread_self pthread_setcancelstate
        pthread_setspecific pthread_sigmask pthread_testcancel sem_destroy sem_init sem_post sem_timedwait
        sem_trywait sem_wait synccall vmlock""",
    "time": """__map_file __month_to_secs __secs_to_tm __tm_to_secs __tz __year_to_secs asctime asctime_r clock
        clock_gettime clock_nanosleep ctime difftime gettimeofday gmtime gmtime_r localtime localtime_r mktime
        nanosleep strftime time times utime""",
    "unistd": """alarm fsync ftruncate getcwd isatty lseek pread pwrite read readlink readv sleep truncate usleep
        write writev""",
}
"""Names of sources without their endings, by folder."""

_COMMON = frozenset((folder, stem) for folder, stems in _STEMS.items() for stem in stems.split())


def is_common(source: PurePath) -> bool:
    """Whether ``source``, its path from the library's own folder, is in the list: ``src/math/riscv64/fma.c`` is."""
    return (source.parts[1], source.stem) in _COMMON
