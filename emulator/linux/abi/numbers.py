"""Numbers of the riscv64 Linux ABI: system call names, signals, the guest's identity.

Error numbers come from Python's `errno`: the host is Linux too, and they are the same on x86-64. Structures
are packed where they are used.
"""

from __future__ import annotations

from enum import IntEnum

MASK_64 = (1 << 64) - 1


def signed(value: int, bits: int) -> int:
    """The low ``bits`` of ``value`` as a signed number."""
    value &= (1 << bits) - 1
    return value - (value >> (bits - 1) << bits)


class Signal(IntEnum):
    """Signal numbers."""

    SIGHUP = 1
    SIGINT = 2
    SIGQUIT = 3
    SIGILL = 4
    SIGTRAP = 5
    SIGABRT = 6
    SIGBUS = 7
    SIGFPE = 8
    SIGKILL = 9
    SIGUSR1 = 10
    SIGSEGV = 11
    SIGUSR2 = 12
    SIGPIPE = 13
    SIGALRM = 14
    SIGTERM = 15
    SIGSTKFLT = 16
    SIGCHLD = 17
    SIGCONT = 18
    SIGSTOP = 19
    SIGTSTP = 20
    SIGTTIN = 21
    SIGTTOU = 22
    SIGURG = 23
    SIGXCPU = 24
    SIGXFSZ = 25
    SIGVTALRM = 26
    SIGPROF = 27
    SIGWINCH = 28
    SIGIO = 29
    SIGPWR = 30
    SIGSYS = 31


N_SIGNALS = 64
FIRST_REAL_TIME_SIGNAL = 32


def signal_name(number: int) -> str:
    """A name such as ``SIGSEGV``; for real-time signals, such as ``SIGRTMIN+2``."""
    if number < FIRST_REAL_TIME_SIGNAL:
        return Signal(number).name
    return f"SIGRTMIN+{number - FIRST_REAL_TIME_SIGNAL}"


# The guest's identity: the first process, and its first thread.
PID = TID = 1000
PARENT_PID = 1
UID = GID = 1000

CLOCK_TICKS_PER_SECOND = 100

# (first number, names of consecutive calls)
_NAMES = (
    (
        0,
        "io_setup io_destroy io_submit io_cancel io_getevents setxattr lsetxattr fsetxattr getxattr "
        "lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr getcwd "
        "lookup_dcookie eventfd2 epoll_create1 epoll_ctl epoll_pwait dup dup3 fcntl inotify_init1 "
        "inotify_add_watch inotify_rm_watch ioctl ioprio_set ioprio_get flock mknodat mkdirat unlinkat "
        "symlinkat linkat",
    ),
    (
        39,
        "umount2 mount pivot_root nfsservctl statfs fstatfs truncate ftruncate fallocate faccessat chdir "
        "fchdir chroot fchmod fchmodat fchownat fchown openat close vhangup pipe2 quotactl getdents64 "
        "lseek read write readv writev pread64 pwrite64 preadv pwritev sendfile pselect6 ppoll signalfd4 "
        "vmsplice splice tee readlinkat newfstatat fstat sync fsync fdatasync sync_file_range "
        "timerfd_create timerfd_settime timerfd_gettime utimensat acct capget capset personality exit "
        "exit_group waitid set_tid_address unshare futex set_robust_list get_robust_list nanosleep "
        "getitimer setitimer kexec_load init_module delete_module timer_create timer_gettime "
        "timer_getoverrun timer_settime timer_delete clock_settime clock_gettime clock_getres "
        "clock_nanosleep syslog ptrace sched_setparam sched_setscheduler sched_getscheduler "
        "sched_getparam sched_setaffinity sched_getaffinity sched_yield sched_get_priority_max "
        "sched_get_priority_min sched_rr_get_interval restart_syscall kill tkill tgkill sigaltstack "
        "rt_sigsuspend rt_sigaction rt_sigprocmask rt_sigpending rt_sigtimedwait rt_sigqueueinfo "
        "rt_sigreturn setpriority getpriority reboot setregid setgid setreuid setuid setresuid getresuid "
        "setresgid getresgid setfsuid setfsgid times setpgid getpgid getsid setsid getgroups setgroups "
        "uname sethostname setdomainname getrlimit setrlimit getrusage umask prctl getcpu gettimeofday "
        "settimeofday adjtimex getpid getppid getuid geteuid getgid getegid gettid sysinfo mq_open "
        "mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr msgget msgctl msgrcv msgsnd "
        "semget semctl semtimedop semop shmget shmctl shmat shmdt socket socketpair bind listen accept "
        "connect getsockname getpeername sendto recvfrom setsockopt getsockopt shutdown sendmsg recvmsg "
        "readahead brk munmap mremap add_key request_key keyctl clone execve mmap fadvise64 swapon "
        "swapoff mprotect msync mlock munlock mlockall munlockall mincore madvise remap_file_pages mbind "
        "get_mempolicy set_mempolicy migrate_pages move_pages rt_tgsigqueueinfo perf_event_open accept4 "
        "recvmmsg",
    ),
    (
        258,
        "riscv_hwprobe riscv_flush_icache wait4 prlimit64 fanotify_init fanotify_mark name_to_handle_at "
        "open_by_handle_at clock_adjtime syncfs setns sendmmsg process_vm_readv process_vm_writev kcmp "
        "finit_module sched_setattr sched_getattr renameat2 seccomp getrandom memfd_create bpf execveat "
        "userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect pkey_alloc "
        "pkey_free statx io_pgetevents rseq kexec_file_load",
    ),
    (
        424,
        "pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen "
        "fsconfig fsmount fspick pidfd_open clone3",
    ),
    (
        436,
        "close_range openat2 pidfd_getfd faccessat2 process_madvise epoll_pwait2 mount_setattr "
        "quotactl_fd landlock_create_ruleset landlock_add_rule landlock_restrict_self memfd_secret "
        "process_mrelease futex_waitv set_mempolicy_home_node cachestat "
        "fchmodat2",
    ),
)

SYSTEM_CALL_NAMES: dict[int, str] = {
    first + offset: name for first, names in _NAMES for offset, name in enumerate(names.split())
}
