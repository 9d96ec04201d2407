"""The kernel's dispatch, and the calls on time, limits, the system and the process."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from emulator.linux.kernel.clock import Deadlock
from emulator.linux.kernel.hart_protocol import GuestExit
from emulator.linux.loader.process_image import Layout
from emulator.linux.syscalls.table import ALL_SYSTEM_CALLS
from emulator.linux.vfs.files import VirtualFiles
from tests.emulator.linux.conftest import Guest

SECOND = 1_000_000_000
UNMAPPED = 0x1000_0000
ALRM, USR1, PROF = 14, 10, 27


def handle(guest: Guest, signal: int, flags: int = 0) -> None:
    assert guest.call("rt_sigaction", signal, struct.pack("<QQQ", 0x1_0004, flags, 0), 0, 8) == 0


def timespec(nanoseconds: int) -> bytes:
    return struct.pack("<qq", *divmod(nanoseconds, SECOND))


def interval(value_microseconds: int, interval_microseconds: int) -> bytes:
    return struct.pack("<qqqq", *divmod(interval_microseconds, 1_000_000), *divmod(value_microseconds, 1_000_000))


# Dispatch


def test_unsupported_calls_are_answered_and_named_once(guest: Guest) -> None:
    for _ in range(2):
        assert guest.call("io_uring_setup", 0) == -errno.ENOSYS
    assert guest.call("unshare") == -errno.ENOSYS
    assert guest.call("socket", 16, 3, 0) == -errno.EAFNOSUPPORT
    assert guest.call("clone", 1 << 29, 0) == -errno.EINVAL
    guest.hart.x[17] = 99_999
    guest.kernel.syscall(guest.hart)
    assert guest.kernel.unsupported == [
        "io_uring_setup", "unshare", "a socket of family 16 and type 3", "clone with flags 0x20000000",
        "system call 99999",
    ]  # fmt: skip


def test_rseq_is_refused_silently(guest: Guest) -> None:
    assert guest.call("rseq") == -errno.ENOSYS
    assert guest.kernel.unsupported == []


def test_a_bad_address_is_efault_everywhere(guest: Guest) -> None:
    for name, arguments in [
        ("uname", (UNMAPPED,)),
        ("sysinfo", (UNMAPPED,)),
        ("clock_gettime", (1, UNMAPPED)),
        ("gettimeofday", (UNMAPPED, 0)),
        ("nanosleep", (UNMAPPED, 0)),
        ("getrusage", (0, UNMAPPED)),
        ("getrandom", (UNMAPPED, 8, 0)),
        ("rt_sigaction", (10, UNMAPPED, 0, 8)),
        ("rt_sigprocmask", (0, UNMAPPED, 0, 8)),
        ("sigaltstack", (UNMAPPED, 0)),
        ("setitimer", (0, UNMAPPED, 0)),
        ("prlimit64", (0, 3, 0, UNMAPPED)),
        ("futex", (UNMAPPED, 0, 0, 0)),
        ("readv", (0, UNMAPPED, 1)),
        ("ppoll", (UNMAPPED, 1, 0, 0, 8)),
        ("riscv_hwprobe", (UNMAPPED, 1, 0, 0, 0)),
    ]:
        assert guest.call(name, *arguments) == -errno.EFAULT, name


@pytest.mark.parametrize("value", [0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, UNMAPPED])
def test_no_argument_harms_the_host(make_guest: Callable[..., Guest], value: int) -> None:
    """Every call with the same strange value everywhere answers, ends the guest or is a deadlock."""
    guest = make_guest(files=VirtualFiles(capture=["/out/"]))
    for number in ALL_SYSTEM_CALLS:
        guest.hart.x[10:16] = value
        guest.hart.x[17] = number
        guest.hart.x[2] = guest.process.stack_pointer
        try:
            guest.kernel.syscall(guest.hart)
        except (GuestExit, Deadlock):
            continue
        assert int(guest.hart.x[10].astype(int)) > -4096 or guest.hart.x[10] == value


@pytest.mark.parametrize(("status", "expected"), [(0, 0), (7, 7), (256, 0), (2**64 - 1, 255)])
@pytest.mark.parametrize("name", ["exit", "exit_group"])
def test_exit(guest: Guest, name: str, status: int, expected: int) -> None:
    with pytest.raises(GuestExit) as caught:
        guest.call(name, status)
    assert (caught.value.status, caught.value.signal) == (expected, None)


# Time


def test_clocks(guest: Guest) -> None:
    now = guest.space(16)
    guest.now = 5 * SECOND + 7
    for clock, base in [(1, 0), (0, 1_700_000_000), (2, 0), (3, 0), (7, 0), (-6, 0)]:
        assert guest.call("clock_gettime", clock, now) == 0
        assert guest.words(now, 2) == (base + 5, 7)
    assert guest.call("gettimeofday", now, 0) == 0
    assert guest.words(now, 2) == (1_700_000_005, 0)
    assert guest.call("clock_getres", 1, now) == 0
    assert guest.words(now, 2) == (0, 1)
    for clock in (10, 99, ~4000 << 3 | 2):
        assert guest.call("clock_gettime", clock, now) == -errno.EINVAL
    ticks = guest.space(32)
    assert guest.call("times", ticks) == 500
    assert guest.words(ticks, 4) == (500, 0, 0, 0)


def test_usage_counts_processor_time(guest: Guest) -> None:
    guest.now = 3 * SECOND
    guest.call("nanosleep", timespec(SECOND), 0)
    usage = guest.space(144)
    assert guest.call("getrusage", 0, usage) == 0
    assert guest.words(usage, 5) == (3, 0, 0, 0, guest.memory.mapped_bytes // 1024)
    assert guest.call("getrusage", 5, usage) == -errno.EINVAL


def test_sleeping_costs_no_processor_time(guest: Guest) -> None:
    guest.now = 100
    now = guest.space(16)
    assert guest.call("nanosleep", timespec(2 * SECOND), 0) == 0
    assert guest.call("clock_nanosleep", 1, 1, timespec(5 * SECOND), 0) == 0
    assert guest.call("clock_gettime", 1, now) == 0
    assert guest.words(now, 2) == (5, 0)
    assert guest.call("clock_gettime", 2, now) == 0
    assert guest.words(now, 2) == (0, 100)
    assert guest.call("clock_nanosleep", 0, 1, timespec(1_700_000_009 * SECOND), 0) == 0
    assert guest.kernel.clock.elapsed() == 9 * SECOND
    for bad in (struct.pack("<qq", -1, 0), struct.pack("<qq", 0, SECOND)):
        assert guest.call("nanosleep", bad, 0) == -errno.EINVAL


def test_an_alarm_interrupts_a_sleep(guest: Guest) -> None:
    handle(guest, ALRM)
    remaining = guest.space(16)
    assert guest.call("setitimer", 0, interval(1_500_000, 0), 0) == 0
    assert guest.call("nanosleep", timespec(4 * SECOND), remaining) == -errno.EINTR
    assert guest.words(remaining, 2) == (2, SECOND // 2)
    assert guest.kernel.pending_signal() == ALRM


def test_interval_timers(guest: Guest) -> None:
    handle(guest, PROF)
    old = guest.space(32)
    assert guest.call("setitimer", 2, interval(100, 250), 0) == 0
    assert guest.kernel.scheduler.next_deadline() == 100_000
    guest.now = 40_000
    assert guest.call("getitimer", 2, old) == 0
    assert guest.words(old, 4) == (0, 250, 0, 60)
    guest.now = 100_000
    guest.kernel.fire_timers()
    assert guest.kernel.pending_signal() == PROF
    assert guest.kernel.scheduler.next_deadline() == 350_000
    assert guest.call("setitimer", 2, interval(0, 0), old) == 0
    assert guest.words(old, 4) == (0, 250, 0, 250)
    assert guest.kernel.scheduler.next_deadline() is None
    assert guest.call("setitimer", 3, interval(1, 1), 0) == -errno.EINVAL
    assert guest.call("setitimer", 0, interval(-1, 0), 0) == -errno.EINVAL


def test_timer_phase(make_guest: Callable[..., Guest]) -> None:
    guest = make_guest(timer_phase=0.5)
    assert guest.call("setitimer", 2, interval(100, 100), 0) == 0
    assert guest.kernel.scheduler.next_deadline() == 50_000


def test_posix_timers(guest: Guest) -> None:
    handle(guest, USR1)
    identifier, current = guest.space(4), guest.space(32)
    event = struct.pack("<Qii", 1234, USR1, 0).ljust(64, b"\0")
    assert guest.call("timer_create", 1, event, identifier) == 0
    assert guest.call("timer_create", 1, event, identifier) == 0
    timer = guest.memory.read_int(identifier, 4)
    assert timer == 1
    setting = timespec(10) + timespec(100)
    assert guest.call("timer_settime", timer, 0, setting, 0) == 0
    assert guest.call("timer_gettime", timer, current) == 0
    assert guest.words(current, 4) == (0, 10, 0, 100)
    guest.now = 135
    guest.kernel.fire_timers()
    assert guest.call("timer_getoverrun", timer) == 3
    guest.kernel.deliver(guest.hart)
    information = guest.memory.read(int(guest.hart.x[11]), 32)
    assert struct.unpack("<iiiiiiQ", information) == (USR1, 0, -2, 0, timer, 3, 1234)
    assert guest.call("timer_delete", timer) == 0
    assert guest.call("timer_delete", timer) == -errno.EINVAL
    assert guest.kernel.scheduler.next_deadline() is None
    absolute = timespec(0) + timespec(1_700_000_001 * SECOND)
    assert guest.call("timer_create", 0, 0, identifier) == 0
    assert guest.call("timer_settime", guest.memory.read_int(identifier, 4), 1, absolute, 0) == 0
    assert guest.kernel.scheduler.next_deadline() == SECOND
    by_thread = struct.pack("<Qii", 0, USR1, 2)
    assert guest.call("timer_create", 1, by_thread, identifier) == -errno.EINVAL


def test_polling_is_ready_at_once_or_takes_the_timeout(guest: Guest) -> None:
    request = guest.put(struct.pack("<ihhihhihh", 1, 5, 0, 99, 1, 0, -1, 1, 0))
    assert guest.call("ppoll", request, 3, 0, 0, 8) == 2
    assert struct.unpack("<ihhihhihh", guest.memory.read(request, 24)) == (1, 5, 4, 99, 1, 0x20, -1, 1, 0)
    assert guest.call("ppoll", 0, 0, timespec(SECOND), 0, 8) == 0
    assert guest.kernel.clock.elapsed() == SECOND
    with pytest.raises(Deadlock, match="waits for ever"):
        guest.call("ppoll", 0, 0, 0, 0, 8)
    bits = guest.put(struct.pack("<QQ", 0b111, 0b111))
    assert guest.call("pselect6", 3, bits, bits + 8, 0, 0, 0) == 3  # each descriptor is open for one of the two
    assert guest.words(bits, 2) == (0b001, 0b110)
    assert guest.call("pselect6", 0, 0, 0, 0, timespec(SECOND), 0) == 0
    assert guest.kernel.clock.elapsed() == 2 * SECOND
    assert guest.call("pselect6", 64, guest.put(struct.pack("<Q", 1 << 50)), 0, 0, 0, 0) == -errno.EBADF


# Waiting on memory


def test_futex(guest: Guest) -> None:
    word = guest.put(struct.pack("<I", 5))
    assert guest.call("futex", word, 128, 4, 0) == -errno.EAGAIN
    assert guest.call("futex", word, 129, 1, 0) == 0
    assert guest.call("futex", word, 128, 5, timespec(SECOND)) == -errno.ETIMEDOUT
    assert guest.call("futex", word, 9 | 128, 5, timespec(3 * SECOND), 0, 2**32 - 1) == -errno.ETIMEDOUT
    assert guest.kernel.clock.elapsed() == 3 * SECOND
    assert guest.call("futex", word, 9 | 256, 5, timespec(1_700_000_004 * SECOND), 0, 1) == -errno.ETIMEDOUT
    assert guest.kernel.clock.elapsed() == 4 * SECOND
    assert guest.call("futex", word + 1, 0, 5, 0) == -errno.EINVAL
    assert guest.call("futex", word, 11, 5, 0) == -errno.ENOSYS
    with pytest.raises(Deadlock, match=f"waits for a lock at {word:#x} that no task can release"):
        guest.call("futex", word, 0, 5, 0)


def test_locks_that_the_kernel_hands_over(guest: Guest) -> None:
    word = guest.put(struct.pack("<I", 0))
    own = guest.call("gettid")
    assert guest.call("futex", word, 6, 0, 0) == 0
    assert guest.memory.read_int(word, 4) == own
    assert guest.call("futex", word, 6, 0, 0) == -errno.EDEADLK
    assert guest.call("futex", word, 7, 0, 0) == 0
    assert guest.memory.read_int(word, 4) == 0
    assert guest.call("futex", word, 7, 0, 0) == -errno.EPERM
    guest.memory.write_int(word, 4, 77)  # somebody else's
    assert guest.call("futex", word, 8, 0, 0) == -errno.EAGAIN
    assert guest.call("futex", word, 13, 0, timespec(SECOND)) == -errno.ETIMEDOUT
    assert guest.memory.read_int(word, 4) == 77 | 1 << 31


@pytest.mark.parametrize(("flags", "restarted"), [(0x1000_0000, True), (0, False)])
def test_an_interrupted_wait_is_issued_again_only_with_sa_restart(guest: Guest, flags: int, restarted: bool) -> None:
    handle(guest, ALRM, flags)
    word = guest.put(struct.pack("<I", 5))
    guest.call("setitimer", 0, interval(10, 0), 0)
    guest.hart.pc = 0x1_000C  # after the ecall
    assert guest.call("futex", word, 0, 5, 0) == -errno.EINTR
    guest.kernel.deliver(guest.hart)
    guest.call("rt_sigreturn")
    if restarted:
        assert (guest.hart.pc, int(guest.hart.x[10])) == (0x1_0008, word)
    else:
        assert (guest.hart.pc, int(guest.hart.x[10].astype(int))) == (0x1_000C, -errno.EINTR)


# The system and the process


def test_uname_and_sysinfo(guest: Guest) -> None:
    address = guest.space(400)
    assert guest.call("uname", address) == 0
    fields = [guest.memory.read_cstring(address + 65 * k) for k in range(6)]
    assert (fields[0], fields[4]) == (b"Linux", b"riscv64")
    guest.now = 42 * SECOND
    assert guest.call("sysinfo", address) == 0
    words = guest.words(address, 14)
    assert (words[0], words[4]) == (42, guest.memory.limit_bytes)
    assert words[5] == guest.memory.limit_bytes - guest.memory.mapped_bytes
    assert guest.memory.read_int(address + 80, 2) == 1
    assert guest.memory.read_int(address + 104, 4) == 1


def test_identity(guest: Guest) -> None:
    assert [guest.call(name) for name in ("getpid", "gettid", "getppid")] == [1000, 1000, 1]
    assert {guest.call(name) for name in ("getuid", "geteuid", "getgid", "getegid")} == {1000}
    assert guest.call("set_tid_address", 0) == 1000
    assert guest.call("wait4") == -errno.ECHILD
    name = guest.space(16)
    assert guest.call("prctl", 16, name) == 0
    assert guest.memory.read_cstring(name) == b"guest"
    assert guest.call("prctl", 15, "a name that is too long") == 0
    assert guest.call("prctl", 16, name) == 0
    assert guest.memory.read_cstring(name) == b"a name that is "
    assert guest.call("prctl", 99, 0) == -errno.EINVAL


def test_random_bytes_come_from_the_seed(make_guest: Callable[..., Guest]) -> None:
    def drawn(seed: int) -> bytes:
        guest = make_guest(seed=seed)
        buffer = guest.space(32)
        assert guest.call("getrandom", buffer, 32, 0) == 32
        return guest.memory.read(buffer, 32)

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_hardware_probe(guest: Guest) -> None:
    pairs = guest.put(struct.pack("<qQqQqQ", 3, 0, 4, 0, 1234, 5))
    assert guest.call("riscv_hwprobe", pairs, 3, 0, 0, 0) == 0
    assert guest.words(pairs, 6) == (3, 1, 4, 0b111011, -1, 0)
    assert guest.call("riscv_hwprobe", pairs, 3, 0, 0, 1) == -errno.EINVAL


def test_flushing_instructions_is_announced(guest: Guest) -> None:
    seen = []
    guest.memory.attach(SimpleNamespace(code_changed=lambda address, length: seen.append((address, length))))
    assert guest.call("riscv_flush_icache", 0x1_0000, 0x1_0010, 0) == 0
    assert seen == [(0x1_0000, 16)]


def test_limits(make_guest: Callable[..., Guest]) -> None:
    guest = make_guest(layout=Layout(stack_bytes=1 << 20))
    limit = guest.space(16)
    assert guest.call("prlimit64", 0, 3, 0, limit) == 0
    assert guest.words(limit, 2) == (1 << 20, -1)
    assert guest.call("prlimit64", 0, 7, struct.pack("<QQ", 10, 1000), limit) == 0
    assert guest.words(limit, 2) == (1024, 1024)
    assert guest.call("getrlimit", 7, limit) == 0
    assert guest.words(limit, 2) == (10, 1000)
    assert guest.call("prlimit64", 0, 7, struct.pack("<QQ", 10, 2000), 0) == -errno.EPERM
    assert guest.call("prlimit64", 0, 7, struct.pack("<QQ", 10, 5), 0) == -errno.EINVAL
    assert guest.call("prlimit64", 0, 99, 0, limit) == -errno.EINVAL
    assert guest.call("prlimit64", 5, 7, 0, limit) == -errno.ESRCH


def test_one_processor(guest: Guest) -> None:
    mask = guest.space(16)
    assert guest.call("sched_getaffinity", 0, 16, mask) == 8
    assert guest.memory.read_int(mask, 16) == 1
    assert guest.call("sched_getaffinity", 0, 4, mask) == -errno.EINVAL
    assert guest.call("sched_setaffinity", 0, 8, struct.pack("<Q", 2)) == -errno.EINVAL
    assert guest.call("sched_yield") == 0
    assert guest.call("getcpu", mask, 0) == 0
