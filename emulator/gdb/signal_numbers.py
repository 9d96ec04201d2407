"""Numbers of signals in gdb's protocol, which are its own: SIGUSR1 is 30 for gdb on every system, and 10 in Linux.

Source: include/gdb/signals.def of gdb, the enumeration ``gdb_signal``.
"""

from __future__ import annotations

from emulator.linux.abi.numbers import N_SIGNALS, Signal

_UNKNOWN = 143
_BY_NAME = {
    "SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGILL": 4, "SIGTRAP": 5, "SIGABRT": 6, "SIGFPE": 8, "SIGKILL": 9,
    "SIGBUS": 10, "SIGSEGV": 11, "SIGSYS": 12, "SIGPIPE": 13, "SIGALRM": 14, "SIGTERM": 15, "SIGURG": 16,
    "SIGSTOP": 17, "SIGTSTP": 18, "SIGCONT": 19, "SIGCHLD": 20, "SIGTTIN": 21, "SIGTTOU": 22, "SIGIO": 23,
    "SIGXCPU": 24, "SIGXFSZ": 25, "SIGVTALRM": 26, "SIGPROF": 27, "SIGWINCH": 28, "SIGUSR1": 30, "SIGUSR2": 31,
    "SIGPWR": 32,
}  # fmt: skip
# SIGRTMIN + 1 and on; the first and the last came later.
_REAL_TIME = {32: 77, **{number: number + 12 for number in range(33, 64)}, 64: 78}
_OF_LINUX = {int(signal): _BY_NAME[signal.name] for signal in Signal if signal.name in _BY_NAME} | _REAL_TIME
_TO_LINUX = {number: signal for signal, number in _OF_LINUX.items() if signal <= N_SIGNALS}


def gdb_number(signal: int) -> int:
    """gdb's number of the signal with the Linux number ``signal``; 0 for 0."""
    return _OF_LINUX.get(signal, _UNKNOWN) if signal else 0


def linux_number(number: int) -> int:
    """The Linux number of the signal that gdb calls ``number``; 0 for none, and for one that Linux does not have."""
    return _TO_LINUX.get(number, 0)
