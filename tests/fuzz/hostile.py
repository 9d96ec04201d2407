"""Guests that nobody meant to run: damaged executables, and random system calls. The host must not notice.

Either a program runs to some end, or an `EmulatorError` says why not; nothing else is right. Around the root of a
guest's files lie others that it must neither see nor change.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from emulator.errors import EmulatorError
from emulator.isa.decode import assemble
from emulator.linux.abi.numbers import SYSTEM_CALL_NAMES
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from emulator.memory import READ
from tests.fuzz.programs import DATA, elf, random_program

LIMIT_INSTRUCTIONS = 20_000
N_CALLS = 60
_CALL_BYTES = 56  # number and six arguments
_BUFFERS = 4096  # where calls write, after the table of calls
_TABLE, _POINTER, _LEFT = 18, 8, 9  # registers
_DATA_BYTES = 16384
_MOST_SEARCHED_BYTES = 1 << 20
SECRET = b"nobody may read this"
# They end the guest before it has done anything: one of them is at the end.
_ENDINGS = ("exit", "exit_group")

_BY_NAME = {name: number for number, name in SYSTEM_CALL_NAMES.items()}
_NUMBERS = [number for number, name in SYSTEM_CALL_NAMES.items() if name not in _ENDINGS]
# Calls and the kinds of their arguments: d a directory, p a path, o flags and m a mode to open with, f a descriptor,
# b a buffer, n a small size, e a number at the edges, a a page's address, q a small number, g flags of a mapping,
# x anything.
SENSIBLE = {
    "openat": "dpom", "read": "fbn", "write": "fbn", "pread64": "fbne", "pwrite64": "fbne", "readv": "fbq",
    "writev": "fbq", "lseek": "feq", "ftruncate": "fe", "fallocate": "fqee", "close": "f", "dup": "f", "dup3": "ffx",
    "fcntl": "fqe", "ioctl": "fxb", "fstat": "fb", "newfstatat": "dpbq", "statx": "dpxxb", "readlinkat": "dpbn",
    "unlinkat": "dpq", "mkdirat": "dpm", "symlinkat": "pdp", "linkat": "dpdp", "renameat2": "dpdpq",
    "faccessat": "dpq",
    "fchmodat": "dpm", "chdir": "p", "truncate": "pe", "getdents64": "fbn", "sendfile": "ffbn", "pipe2": "bx",
    "mmap": "anqgfa", "munmap": "an", "mprotect": "anq", "mremap": "anexa", "madvise": "anq", "brk": "a",
    "clone": "xaxxx",
    "execve": "pbb", "wait4": "xbx", "kill": "xq", "rt_sigaction": "qbbx", "rt_sigprocmask": "qbbx",
    "sigaltstack": "bb", "rt_sigtimedwait": "bbbx", "futex": "bqebbe", "nanosleep": "bb", "clock_gettime": "qb",
    "clock_nanosleep": "qqbb",
    "setitimer": "qbb", "timer_create": "qbb", "timer_settime": "qqbb", "ppoll": "bqbb", "pselect6": "qbbbbb",
    "epoll_create1": "x", "epoll_ctl": "fqfb", "epoll_pwait": "fbqqb", "eventfd2": "ex", "timerfd_create": "qx",
    "socketpair": "xxxb", "getrandom": "bnx", "prlimit64": "xqbb", "getcwd": "bn", "sysinfo": "b", "uname": "b",
    "socket": "xxx", "bind": "fbn", "listen": "fq", "accept4": "fbbx", "connect": "fbn", "getsockname": "fbb",
    "getpeername": "fbb", "sendto": "fbnxbn", "recvfrom": "fbnxbb", "sendmsg": "fbx", "recvmsg": "fbx",
    "sendmmsg": "fbqx", "recvmmsg": "fbqxb", "setsockopt": "fqqbn", "getsockopt": "fqqbb", "shutdown": "fq",
    "splice": "fbfbnx", "tee": "ffnx", "vmsplice": "fbqx", "copy_file_range": "fbfbnq", "memfd_create": "px",
    "mknodat": "dpxx", "flock": "fx", "openat2": "dpbn", "utimensat": "dpbx", "fchmod": "fm", "fchownat": "dpxxx",
    "getxattr": "ppbn", "setxattr": "ppbnx", "mincore": "anb", "get_mempolicy": "bbe", "preadv2": "fbqeex",
    "pwritev2": "fbqeex", "msync": "anx", "pidfd_open": "xx", "pidfd_send_signal": "fxbx", "waitid": "qxbxb",
    "capget": "bb", "capset": "bb", "sched_setattr": "xbx", "sched_getattr": "xbex", "getrusage": "xb",
    "umask": "m", "signalfd4": "fbqx", "setpgid": "xx", "getpgid": "x", "getsid": "x",
    "inotify_init1": "x", "inotify_add_watch": "fpe", "inotify_rm_watch": "fq",
    "shmget": "xex", "shmat": "qax", "shmdt": "a", "shmctl": "qqb", "semget": "xqx", "semop": "qbq",
    "semtimedop": "qbqb", "semctl": "qqqb", "msgget": "xx", "msgsnd": "qbnx", "msgrcv": "qbnqx", "msgctl": "qqb",
}  # fmt: skip
SENSIBLE = {name: kinds for name, kinds in SENSIBLE.items() if name in _BY_NAME}

EDGES = [0, 1, 2, 3, 4, 7, 8, 16, 100, 255, 4095, 4096, 4097, 65536, 1 << 20, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
         1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 22, (1 << 64) - 100]  # fmt: skip
PATHS = [b"/", b".", b"..", b"", b"/file", b"file", b"new", b"/new", b"/directory", b"/directory/new",
         b"/readonly/file",
         b"/../outside/secret", b"../../../outside/secret", b"/link/secret", b"/link", b"/linked", b"/absolute",
         b"/dev/null", b"/dev/zero", b"/dev/urandom", b"/proc/self/exe", b"/proc/self/maps", b"/proc/self/fd/1",
         b"/proc/1/mem", b"/proc/self/mem", b"/tmp/x", b"/etc/passwd", b"a" * 300, b"/" * 200, b"\xff\xfe"]  # fmt: skip


@dataclass
class Surroundings:
    """A directory with a guest's root in it, and what is not the guest's."""

    base: Path

    def __post_init__(self) -> None:
        self.root, self.outside = self.base / "root", self.base / "outside"
        for folder in (self.root / "directory", self.root / "readonly", self.outside):
            folder.mkdir(parents=True)
        (self.outside / "secret").write_bytes(SECRET)
        (self.root / "file").write_bytes(b"contents\n" * 100)
        (self.root / "readonly" / "file").write_bytes(b"stays\n")
        (self.root / "link").symlink_to("../outside")
        (self.root / "linked").symlink_to("../outside/secret")
        (self.root / "absolute").symlink_to(self.outside / "secret")
        self._before = self._seen()

    def files(self) -> VirtualFiles:
        return VirtualFiles(root=self.root, writable=("/directory", "/file"))

    def changes(self) -> list[str]:
        """What has become of the files that no guest may change."""
        after = self._seen()
        return [
            str(path)
            for path in sorted(self._before.keys() | after.keys())
            if self._before.get(path) != after.get(path)
        ]

    def _seen(self) -> dict[Path, object]:
        mine = (self.root / "directory", self.root / "file")
        found: dict[Path, object] = {}
        for path in self.base.rglob("*"):
            if not any(path == one or one in path.parents for one in mine):
                about = path.lstat()
                found[path] = (about.st_mode, path.is_file() and not path.is_symlink() and path.read_bytes())
        return found


def run(program: bytes, files: VirtualFiles | None = None) -> tuple[str, bytes]:
    """How it went, and what the guest had in its smaller areas of memory. Raises what must not be raised."""
    try:
        with Machine(program, files=files, background=False, limit_instructions=LIMIT_INSTRUCTIONS) as machine:
            try:
                ending = machine.run()
                said = f"status {ending.status} {ending.message or ''}"
            except EmulatorError as error:
                said = f"{type(error).__name__}: {error}"
            memory = machine.memory
            return said, b"".join(
                memory.read(start, n_bytes)
                for start, n_bytes, permissions in memory.areas()
                if permissions & READ and n_bytes <= _MOST_SEARCHED_BYTES
            )
    except EmulatorError as error:
        return f"{type(error).__name__}: {error}", b""


# --- executables
def damaged_elf(seed: int) -> bytes:
    """An executable with some fields of its headers, or bytes anywhere, changed."""
    rng = np.random.default_rng([seed, 1])
    whole = bytearray(random_program(seed, 12).elf())
    fields = [*((offset, size) for offset, size in _HEADER_FIELDS)]
    for n in range(2):
        fields += [(64 + 56 * n + offset, size) for offset, size in _SEGMENT_FIELDS]
    for _ in range(int(rng.integers(1, 5))):
        draw = rng.random()
        if draw < 0.7:
            offset, size = fields[rng.integers(len(fields))]
            value = EDGES[rng.integers(len(EDGES))]
            if rng.random() < 0.4:  # something near what it was
                value = int.from_bytes(whole[offset : offset + size], "little") + int(rng.integers(-16, 17))
            whole[offset : offset + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
        elif draw < 0.9:
            whole[rng.integers(len(whole))] = int(rng.integers(256))
        else:
            del whole[int(rng.integers(1, len(whole))) :]
            break
    return bytes(whole)


_HEADER_FIELDS = ((4, 1), (5, 1), (16, 2), (18, 2), (24, 8), (32, 8), (40, 8), (48, 4), (52, 2), (54, 2), (56, 2),
                  (58, 2), (60, 2), (62, 2))  # fmt: skip
_SEGMENT_FIELDS = ((0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 8), (40, 8), (48, 8))


# --- system calls
def calling_program(seed: int) -> bytes:
    """A guest that makes random calls out of a table, and keeps what they returned."""
    rng = np.random.default_rng([seed, 2])
    data = bytearray(rng.integers(0, 256, _DATA_BYTES, np.uint8).tobytes())
    texts: list[int] = []
    position = _BUFFERS + 4096
    for path in PATHS:
        data[position : position + len(path) + 1] = path + b"\0"
        texts.append(DATA + position)
        position += len(path) + 1
    for n in range(64):  # pointers in the buffers: iovec, argv, times
        struct.pack_into("<QQ", data, _BUFFERS + 16 * n, _argument(rng, texts), EDGES[rng.integers(len(EDGES))])
    for n in range(N_CALLS):
        struct.pack_into("<7Q", data, _CALL_BYTES * n, *_call(rng, texts))
    code = [
        assemble("lui", _TABLE, imm=DATA), assemble("addi", _LEFT, 0, imm=N_CALLS),
        # The next call of the table, and back.
        assemble("ld", 17, _TABLE, imm=0),
        *(assemble("ld", 10 + n, _TABLE, imm=8 + 8 * n) for n in range(6)),
        assemble("ecall"),
        assemble("sd", rs1=_TABLE, rs2=10, imm=0),
        assemble("addi", _TABLE, _TABLE, imm=_CALL_BYTES), assemble("addi", _LEFT, _LEFT, imm=-1),
        assemble("bne", rs1=_LEFT, rs2=0, imm=-44),
        assemble("addi", 10, 0, imm=0), assemble("addi", 17, 0, imm=94), assemble("ecall"),
    ]  # fmt: skip
    return elf(b"".join(word.to_bytes(4, "little") for word in code), bytes(data))


def _call(rng: np.random.Generator, texts: list[int]) -> list[int]:
    """Number and arguments: mostly of a call that makes sense, with an argument in ten that does not."""
    draw = rng.random()
    if draw < 0.02:
        return [int(rng.integers(1 << 12)), *(_argument(rng, texts) for _ in range(6))]
    if draw < 0.35:
        return [_NUMBERS[rng.integers(len(_NUMBERS))], *(_argument(rng, texts) for _ in range(6))]
    name = list(SENSIBLE)[rng.integers(len(SENSIBLE))]
    kinds = SENSIBLE[name].ljust(6, "x")
    return [_BY_NAME[name], *(_sensible(rng, kind, texts) for kind in kinds)]


def _sensible(rng: np.random.Generator, kind: str, texts: list[int]) -> int:
    """An argument of a kind: see SENSIBLE."""
    if kind == "x" or rng.random() < 0.1:
        return _argument(rng, texts)
    if kind == "d":
        return (1 << 64) - 100
    if kind == "p":
        return texts[rng.integers(len(texts))]
    if kind == "f":
        return int(rng.integers(10))
    if kind == "b":
        return DATA + _BUFFERS + 8 * int(rng.integers(256))
    if kind == "n":
        return int(rng.integers(1, 600))
    if kind == "e":
        return EDGES[rng.integers(len(EDGES))]
    if kind == "o":
        return int(rng.choice([0, 1, 2, 0o102, 0o1102, 0o2101, 0o200000, 0o302]))
    if kind == "m":
        return 0o644
    if kind == "q":
        return int(rng.integers(8))
    if kind == "g":
        return int(rng.choice([0x22, 0x21, 0x02, 0x01, 0x32]))
    assert kind == "a", kind
    return int(rng.choice([0, DATA, 0x10000, 0x30000, 0x40000000, 0x7FFFF000])) + 4096 * int(rng.integers(3))


def _argument(rng: np.random.Generator, texts: list[int]) -> int:
    draw = rng.random()
    if draw < 0.25:
        return texts[rng.integers(len(texts))]
    if draw < 0.45:
        return DATA + _BUFFERS + int(rng.integers(512)) * (8 if rng.random() < 0.8 else 1)
    if draw < 0.60:
        return int(rng.integers(8))  # descriptors, signals
    if draw < 0.65:
        return (1 << 64) - 100  # AT_FDCWD
    if draw < 0.75:
        return (0x1000, DATA + _DATA_BYTES - 4, 0x7FFFF000, 0x40000000, 0x10000)[rng.integers(5)]
    if draw < 0.95:
        return EDGES[rng.integers(len(EDGES))]
    return int(rng.integers(1 << 63))


def check_calls(seed: int, base: Path) -> list[str]:
    """Run the calls of ``seed`` with a root below ``base`` (an empty directory); what is wrong with it."""
    surroundings = Surroundings(base)
    said, memory = run(calling_program(seed), surroundings.files())
    found = [f"{path} has changed ({said})" for path in surroundings.changes()]
    return found + (["the guest has read what lies outside its root"] if SECRET in memory else [])
