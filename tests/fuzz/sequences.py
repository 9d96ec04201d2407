"""System calls that follow one another as a program's do, mixed with arguments that make no sense.

A few stories are told at once - a file is opened, written, mapped and closed; a pipe feeds a child that executes
another program; an epoll waits for an event - each call (`script`) with what earlier ones returned. Now and then an
argument is something else. The guest must come to an end, the same on the oracle and on translations, and the host must
not notice.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from emulator.engine.translator import OPTIMISE_EXECUTIONS
from emulator.errors import EmulatorError
from emulator.isa.decode import assemble
from emulator.machine import Machine
from tests.fuzz.hostile import LIMIT_INSTRUCTIONS, Surroundings
from tests.fuzz.programs import CODE, DATA, elf
from tests.fuzz.script import A0, A7, NUMBERS, RESULTS, Script, Story, Word

_MOST_CALLS = 70
_HERE = (1 << 64) - 100  # AT_FDCWD
_PROGRAM = "/directory/program"
_STATUS = 7  # of the program that children execute
_HANDLED = 10  # SIGUSR1
HOT_EXECUTIONS = 2


def file_story(s: Script) -> Iterator[None]:
    path = s.text((b"/directory/new", b"/file", b"/directory/other", b"/readonly/file")[s.rng.integers(4)])
    fd = s.call("openat", _HERE, path, s.pick(0, 2, 0o102, 0o1102, 0o2102), 0o644)
    yield
    text = s.buffer(b"written by a guest\n" * 8, 160)
    for _ in range(int(s.rng.integers(1, 6))):
        which = int(s.rng.integers(8))
        if which == 0:
            s.call("write", fd, text, s.pick(0, 1, 19, 152))
        elif which == 1:
            s.call("pread64", fd, s.buffer(n_bytes=128), s.pick(1, 128), s.pick(0, 10, 4096))
        elif which == 2:
            s.call("lseek", fd, s.pick(0, 5, 4096, -1), s.pick(0, 1, 2))
        elif which == 3:
            s.call("ftruncate", fd, s.pick(0, 100, 5000, 1 << 20))
        elif which == 4:
            s.call("fstat", fd, s.buffer(n_bytes=128))
        elif which == 5:
            vector = s.buffer(struct.pack("<4Q", text, 7, text + 7, 12))
            s.call(("readv", "writev")[s.rng.integers(2)], fd, vector, 2)
        elif which == 6:
            s.call("pwrite64", fd, text, 60, s.pick(0, 3, 8000))
        else:
            s.call("read", fd, s.buffer(n_bytes=256), 200)
        yield
    size = s.pick(100, 4096, 12288)
    memory = s.call("mmap", 0, size, s.pick(1, 3, 3, 5), s.pick(1, 2), fd, s.pick(0, 0, 4096))
    yield
    if s.rng.random() < 0.4:
        s.touch(memory, write=s.rng.random() < 0.5)
        yield
    s.call("read", fd, memory, 50)
    yield
    other = s.call("dup3", fd, s.pick(9, 10, 11), s.pick(0, 0o2000000)) if s.rng.random() < 0.4 else s.call("dup", fd)
    s.call("close", fd)
    yield
    s.call("write", other, memory, s.pick(8, 64))
    s.call("munmap", memory, size)
    s.call("fcntl", other, s.pick(1, 3), 0)
    s.call("close", other)
    s.call("close", other)
    if s.rng.random() < 0.5:
        s.call("unlinkat", _HERE, path, 0)


def pipe_story(s: Script) -> Iterator[None]:
    ends = s.buffer()
    s.call("pipe2", ends, s.pick(0, 0o4000, 0o2000000))
    reading, writing = Word(ends), Word(ends + 4)
    yield
    text = s.buffer(b"through a pipe", 16)
    s.call("write", writing, text, s.pick(1, 14))
    yield
    poll = s.buffer(bytes(4) + struct.pack("<Hxx", 5))
    s.store(reading, poll)
    s.call("ppoll", poll, 1, s.buffer(struct.pack("<QQ", 0, 1000)), 0, 8)
    yield
    s.call("read", reading, s.buffer(n_bytes=64), s.pick(1, 64))
    s.call("fcntl", reading, 4, 0o4000)
    s.call("read", reading, s.buffer(n_bytes=64), 64)
    yield
    s.call("close", writing)
    s.call("read", reading, s.buffer(n_bytes=64), 64)
    s.call("close", reading)


def child_story(s: Script) -> Iterator[None]:
    ends = s.buffer()
    s.call("pipe2", ends, 0)
    reading, writing = Word(ends), Word(ends + 4)
    yield

    def child() -> None:
        s.call("write", writing, s.text(b"child"), 5)
        if s.rng.random() < 0.3:
            s.call("mmap", 0, 1 << 16, 3, 0x22, -1, 0)
        if s.rng.random() < 0.2:
            s.fork(lambda: None)
        if s.rng.random() < 0.5:
            path = s.text((_PROGRAM.encode(), b"/file", b"/nothing")[s.rng.integers(3)])
            arguments = s.buffer(struct.pack("<3Q", path, s.text(b"argument"), 0))
            s.call("execve", path, arguments, s.buffer(bytes(8)))
        if s.rng.random() < 0.1:
            s.touch(0x1000, write=False)

    pid = s.fork(child)
    yield
    s.call("close", writing)
    s.call("read", reading, s.buffer(n_bytes=16), 16)
    yield
    if s.rng.random() < 0.2:
        s.call("kill", pid, s.pick(0, 9, 15))
    if s.rng.random() < 0.3:
        s.call("setpgid", pid, s.pick(0, 0, 1000))
        s.call("kill", pid, s.pick(19, 20))
        s.call("wait4", pid, s.buffer(), s.pick(2, 3), 0)
        s.call("kill", pid, 18)
        s.call("wait4", pid, s.buffer(), s.pick(8, 9), 0)
    s.call("wait4", pid, s.buffer(), s.pick(0, 0, 1), 0)
    s.call("wait4", -1, s.buffer(), s.pick(0, 1), 0)
    s.call("close", reading)


def event_story(s: Script) -> Iterator[None]:
    epoll = s.call("epoll_create1", 0)
    event = s.call("eventfd2", s.pick(0, 3), s.pick(0, 0o4000))
    yield
    about = s.buffer(struct.pack("<IxxxxQ", s.pick(1, 5, 0x80000001), 42))
    s.call("epoll_ctl", epoll, s.pick(1, 1, 1, 2, 3), event, about)
    yield
    s.call("write", event, s.buffer(struct.pack("<Q", 5)), 8)
    s.call("epoll_pwait", epoll, s.buffer(n_bytes=128), 8, s.pick(0, 0, 3), 0, 8)
    yield
    s.call("read", event, s.buffer(), 8)
    timer = s.call("timerfd_create", s.pick(0, 1), s.pick(0, 0o4000))
    s.call("timerfd_settime", timer, 0, s.buffer(struct.pack("<4Q", 0, 0, 0, 2000)), 0)
    yield
    s.call("epoll_ctl", epoll, 1, timer, about)
    s.call("epoll_pwait", epoll, s.buffer(n_bytes=128), 8, 1, 0, 8)
    s.call("read", timer, s.buffer(), 8)
    yield
    watches = s.call("inotify_init1", 0o4000)
    s.call("inotify_add_watch", watches, s.text(b"/directory"), s.pick(0xFFF, 0x80000FFF))
    s.call("epoll_ctl", epoll, 1, watches, about)
    yield
    s.call("renameat2", _HERE, s.text(b"/directory/new"), _HERE, s.text(b"/directory/newer"), 0)
    s.call("mkdirat", _HERE, s.text(b"/directory/made"), 0o755)
    s.call("read", watches, s.buffer(n_bytes=256), s.pick(16, 256))
    for fd in (event, epoll, timer, watches):
        s.call("close", fd)
    s.call("epoll_ctl", epoll, 2, event, 0)


def signal_story(s: Script) -> Iterator[None]:
    action = s.buffer(struct.pack("<3Q", s.pick(CODE, CODE, 1, 0x10), s.pick(0, 4, 0x10000000, 0x40000000), 0))
    s.call("rt_sigaction", _HANDLED, action, s.buffer(), 8)
    own = s.call("getpid")
    yield
    handled = s.buffer(struct.pack("<Q", 1 << _HANDLED - 1))
    s.call("rt_sigprocmask", s.pick(0, 1, 2), handled, s.buffer(), 8)
    s.call("kill", own, s.pick(0, _HANDLED, _HANDLED, 17))
    yield
    s.call("rt_sigpending", s.buffer(), 8)
    signals = s.call("signalfd4", -1, handled, 8, 0o4000)
    s.call("read", signals, s.buffer(n_bytes=256), s.pick(128, 256))
    s.call("close", signals)
    s.call("rt_sigtimedwait", handled, s.buffer(n_bytes=128), s.buffer(struct.pack("<QQ", 0, 500)), 8)
    yield
    s.call("rt_sigprocmask", 1, handled, 0, 8)
    s.call("setitimer", 0, s.buffer(struct.pack("<4Q", 0, 0, 0, s.pick(0, 0, 3))), s.buffer())
    s.call("nanosleep", s.buffer(struct.pack("<QQ", 0, 700)), s.buffer())
    s.call("sigaltstack", s.buffer(struct.pack("<3Q", DATA, s.pick(0, 2), 8192)), s.buffer())


def ipc_story(s: Script) -> Iterator[None]:
    key = s.pick(0, 5)
    memory = s.call("shmget", key, s.pick(100, 5000), 0o1600)
    attached = s.call("shmat", memory, 0, s.pick(0, 0, 0o10000))
    yield
    s.touch(attached, write=False)
    s.fork(lambda: s.touch(attached, write=True))
    semaphores = s.call("semget", key, 2, 0o1600)
    s.call("semctl", semaphores, 0, 16, s.pick(1, 3))
    yield
    s.call("semop", semaphores, s.buffer(struct.pack("<6h", 0, -1, s.pick(0, 0x1000), 1, 1, 0)), s.pick(1, 2))
    until = s.buffer(struct.pack("<2Q", 0, 900))
    s.call("semtimedop", semaphores, s.buffer(struct.pack("<3h", 0, s.pick(-5, 0), 0)), 1, until)
    queue = s.call("msgget", key, 0o1600)
    yield
    s.call("msgsnd", queue, s.buffer(struct.pack("<Q", s.pick(1, 2)) + b"text"), 4, 0o4000)
    s.call("msgrcv", queue, s.buffer(), s.pick(4, 4, 2), s.pick(0, 1), s.pick(0o4000, 0o14000))
    yield
    for name, identifier, arguments in (
        ("sem", semaphores, (0, 0)),
        ("msg", queue, (0, 0)),
        ("shm", memory, (0, 0)),
    ):
        s.call(f"{name}ctl", identifier, *arguments, s.buffer(n_bytes=128))
    s.call("shmdt", attached)


def memory_story(s: Script) -> Iterator[None]:
    size = s.pick(4096, 8192, 1 << 16)
    memory = s.call("mmap", 0, size, s.pick(0, 1, 3, 7), 0x22, -1, 0)
    yield
    s.call("mprotect", memory, s.pick(4096, size), s.pick(0, 1, 3))
    yield
    s.call("madvise", memory, size, s.pick(0, 4, 8))
    if s.rng.random() < 0.3:
        s.touch(memory, write=True)
    moved = s.call("mremap", memory, size, s.pick(4096, 2 * size), s.pick(0, 1), 0)
    yield
    s.call("getrandom", moved, 16, 0)
    s.call("munmap", memory, 4096)
    s.call("brk", s.call("brk", 0))


STORIES: tuple[Story, ...] = (
    file_story,
    file_story,
    pipe_story,
    child_story,
    event_story,
    signal_story,
    memory_story,
    ipc_story,
)


def sequence(seed: int) -> Script:
    """The program of ``seed``: a few stories, told alternately."""
    script = Script(np.random.default_rng([seed, 5]))
    told = [STORIES[script.rng.integers(len(STORIES))](script) for _ in range(int(script.rng.integers(1, 6)))]
    while told and script.n_results < _MOST_CALLS:
        story = told[script.rng.integers(len(told))]
        if next(story, "over") == "over":
            told.remove(story)
    return script


def _executed() -> bytes:
    """What children execute: it ends with _STATUS."""
    words = (
        assemble("addi", A0, 0, imm=_STATUS),
        assemble("addi", A7, 0, imm=NUMBERS["exit_group"]),
        assemble("ecall"),
    )
    return elf(b"".join(word.to_bytes(4, "little") for word in words), bytes(16))


def run(script: Script, base: Path, engine: str, hot: bool = False) -> tuple[str, tuple[int, ...], list[str]]:
    """How it ended, what its calls returned, and what it changed that it must not; ``base``: a directory to make.

    ``hot``: translate everything at once, which takes its time.
    """
    surroundings = Surroundings(base)
    program = surroundings.root / _PROGRAM[1:]
    program.write_bytes(_executed())
    program.chmod(0o755)
    with Machine(
        script.program(), files=surroundings.files(), background=False, limit_instructions=LIMIT_INSTRUCTIONS,
        engine=engine, optimise_executions=HOT_EXECUTIONS if hot else OPTIMISE_EXECUTIONS,
    ) as machine:  # fmt: skip
        try:
            ending = machine.run()
            said = f"status {ending.status}"
        except EmulatorError as error:
            said = type(error).__name__
        try:
            results = machine.memory.read(RESULTS, 8 * script.n_results)
        except EmulatorError:
            results = b""  # it has unmapped them
    return said, struct.unpack(f"<{len(results) // 8}q", results), surroundings.changes()


def check_sequence(seed: int, base: Path) -> list[str]:
    """What is wrong with the sequence of ``seed``."""
    script = sequence(seed)
    right = run(script, base / "oracle", "oracle")
    mine = run(script, base / "translated", "translated", hot=seed % 4 == 0)
    found = [f"{path} has changed" for path in (*right[2], *mine[2])]
    if right[0] != mine[0]:
        found.append(f"ends with {mine[0]}, on the oracle with {right[0]}")
    found += [
        f"call {n} returns {ours}, on the oracle {theirs}"
        for n, (ours, theirs) in enumerate(zip(mine[1], right[1], strict=False))
        if ours != theirs
    ]
    return found
