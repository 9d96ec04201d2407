"""System V IPC: what programs see is what they see by QEMU, which has the host's kernel do it."""

from __future__ import annotations

import errno
import itertools
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.errors import EmulatorError
from emulator.execution.snapshot import ObjectsState
from emulator.linux.kernel.clock import Deadlock
from emulator.linux.kernel.tasks import Process
from emulator.linux.syscalls.optional.sysv_ipc import IpcObject, IpcTable
from emulator.linux.syscalls.optional.sysv_messages import Message, MessageQueue
from emulator.linux.syscalls.optional.sysv_semaphores import MAX_VALUE, Operation, SemaphoreSet
from emulator.machine import Machine
from emulator.memory import PAGE_BYTES
from tests.emulator.linux.conftest import Guest

SOURCE = "guest_ipc.c"
IPC_PRIVATE, IPC_CREAT, IPC_RMID = 0, 0o1000, 0
NOWAIT, UNDO, EXCEPT = 0o4000, 0x1000, 0o20000
GETVAL, SETVAL = 12, 16


def run(program: Path, part: str, **options: Any) -> str:
    with Machine(program, [part], limit_instructions=200_000_000, **options) as machine:
        machine.run()
        assert machine.kernel.unsupported == []
        return machine.files.output(1).decode()


@pytest.mark.parametrize("part", ["memory", "semaphores", "messages"])
def test_programs_see_what_they_see_on_linux(
    compile_guest: Callable[[str], Path], by_qemu: Callable[..., str], part: str
) -> None:
    program = compile_guest(SOURCE)
    expected = by_qemu(program, part)
    if "errno 38" in expected:
        pytest.skip("the host has no System V IPC")
    assert len(expected.splitlines()) > 30
    assert run(program, part) == expected
    assert run(program, part, engine="oracle") == expected


def test_limits_identifiers_and_permissions(compile_guest: Callable[[str], Path]) -> None:
    assert run(compile_guest(SOURCE), "facts").splitlines() == [
        "over nothing -1 errno 22", "not to write -1 errno 13", "not to write -1 errno 13", "not to write -1 errno 13",
        "to read 0 errno 0", "no operation -1 errno 22", "to write 0 errno 0", "not to read -1 errno 13",
        "more rights -1 errno 13",
        "identifiers 32768 32769", "limits 1 errno 0", "  1 128 262144", "used 1 errno 0", "  2 3",
        "identifier 65536", "old one -1 errno 43", "not to read -1 errno 13", "at 32769 errno 0", "at -1 errno 13",
        "at 65536 errno 0", "at -1 errno 22", "segments 126 errno 28",
        "too many -1 errno 28", "limits 0 errno 0", "  128 32000 500 32767", "used 0 errno 0", "  1 30000",
        "at 0 errno 0",
        "queues 31 errno 28", "messages 16384", "used 31 errno 0", "  32 16384 0", "limits 31 errno 0",
        "  8192 16384 32", "at 32769 errno 0", "more bytes -1 errno 1", "shared -1 errno 22",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("wait", "the guest waits for ever for a semaphore that no other task changes"),
        ("receive", "the guest waits for ever: it receives from a queue that no other task sends to"),
    ],
)
def test_waiting_for_ever(compile_guest: Callable[[str], Path], what: str, message: str) -> None:
    with (
        Machine(compile_guest(SOURCE), [what]) as machine,
        pytest.raises(Deadlock, match=f"^{re.escape(message)}$"),
    ):
        machine.run()


def test_a_guest_with_shared_memory_cannot_go_back(compile_guest: Callable[[str], Path]) -> None:
    with Machine(compile_guest(SOURCE), ["attach"]) as machine:
        machine.snapshot()
        machine.run()
        with pytest.raises(EmulatorError, match="System V shared memory: it cannot go back"):
            machine.snapshot()


def test_semaphores_and_messages_go_back(make_guest: Callable[..., Guest]) -> None:
    guest = make_guest()
    semaphores = guest.call("semget", IPC_PRIVATE, 2, 0o600)
    queue = guest.call("msgget", IPC_PRIVATE, 0o600)
    guest.call("semctl", semaphores, 1, SETVAL, 7)
    guest.call("msgsnd", queue, struct.pack("<q4s", 3, b"text"), 4, 0)
    saved = ObjectsState([guest.kernel, guest.files], [guest.memory, guest.image, guest.process])
    for _ in range(2):
        assert guest.call("semop", semaphores, struct.pack("<Hhh", 1, -7, UNDO), 1) == 0
        assert guest.call("semctl", semaphores, 1, GETVAL) == 0
        assert guest.call("msgrcv", queue, guest.space(16), 8, 0, NOWAIT) == 4
        assert guest.call("msgrcv", queue, guest.space(16), 8, 0, NOWAIT) == -errno.ENOMSG
        assert guest.call("semctl", semaphores, 0, IPC_RMID) == 0
        saved.restore()


def test_memory_is_limited(make_guest: Callable[..., Guest]) -> None:
    guest = make_guest()
    guest.memory.limit_bytes = guest.memory.mapped_bytes + 100 * PAGE_BYTES
    most = guest.memory.limit_bytes // PAGE_BYTES
    assert guest.call("shmget", IPC_PRIVATE, (most + 1) * PAGE_BYTES, 0o600) == -errno.ENOSPC
    first = guest.call("shmget", IPC_PRIVATE, 60 * PAGE_BYTES, 0o600)
    assert guest.call("shmget", IPC_PRIVATE, (most - 59) * PAGE_BYTES, 0o600) == -errno.ENOSPC
    where = guest.call("shmat", first, 0, 0)
    assert where > 0
    assert guest.call("shmat", first, 0, 0) == -errno.ENOMEM
    assert guest.call("shmdt", where) == 0
    assert guest.call("shmat", first, 0, 0) == where
    assert guest.call("shmctl", first, IPC_RMID, 0) == 0
    assert guest.call("shmdt", where) == 0
    assert guest.call("shmctl", first, IPC_RMID, 0) == -errno.EINVAL


OPERATIONS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-4, 4), st.sampled_from([0, UNDO])), min_size=1, max_size=4
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from([0, MAX_VALUE - 2]), st.integers(0, 5)), min_size=3, max_size=3),
    st.lists(st.tuples(st.integers(0, 1), OPERATIONS), max_size=8),
)
def test_semaphores_do_what_a_simple_model_does(
    start: list[int], rounds: list[tuple[int, list[tuple[int, int, int]]]]
) -> None:
    """All or nothing, and what processes undo when they end."""
    semaphores = SemaphoreSet(0, 0o600, 0, 3)
    semaphores.values = list(start)
    processes = [Process(pid, None, pid, pid) for pid in (7, 8)]
    values, undo = list(start), [[0, 0, 0], [0, 0, 0]]
    for who, operations in rounds:
        after, change = list(values), list(undo[who])
        blocked = failed = None
        for number, amount, flags in operations:
            if (amount == 0 and after[number]) or after[number] + amount < 0:
                blocked = (number, amount, flags)
                break
            after[number] += amount
            change[number] -= amount if flags else 0
            if after[number] > MAX_VALUE:
                failed = True
                break
        if failed:
            with pytest.raises(OSError, match="semaphore"):
                semaphores.operate([Operation(*one) for one in operations], processes[who])
        else:
            assert semaphores.operate([Operation(*one) for one in operations], processes[who]) == blocked
        if not failed and blocked is None:
            values, undo[who] = after, change
        assert semaphores.values == values
    for process, changes in zip(processes, undo, strict=True):
        semaphores.undo_all(process)
        values = [min(max(0, value + change), MAX_VALUE) for value, change in zip(values, changes, strict=True)]
        assert semaphores.values == values
    assert semaphores.undo == {}


@given(st.lists(st.integers(1, 5), max_size=8), st.integers(-6, 6), st.booleans())
def test_which_message_is_received(kinds: Any, wanted: Any, other: Any) -> None:
    queue = MessageQueue(0, 0o600, 0)
    for at, kind in enumerate(kinds):
        queue.put(Message(kind, bytes([at])))
    if wanted < 0:
        lowest = min((kind for kind in kinds if kind <= -wanted), default=None)
        expected = None if lowest is None else kinds.index(lowest)
    else:
        fits = [at for at, kind in enumerate(kinds) if not wanted or (kind == wanted) != other]
        expected = fits[0] if fits else None
    found = queue.find(wanted, EXCEPT if other else 0)
    assert found == expected
    if found is not None:
        assert queue.take(found) == Message(kinds[found], bytes([found]))
        assert queue.n_bytes == len(kinds) - 1


@given(st.lists(st.integers(0, 5), max_size=30))
def test_identifiers_are_given_as_linux_gives_them(steps: Any) -> None:
    """The lowest free index, and a new sequence number whenever that is not above the last one."""
    table = IpcTable[IpcObject](4)
    alive: dict[int, tuple[int, IpcObject]] = {}
    last, sequence = -1, 0
    for step in steps:
        if step < 4:
            if step in alive:
                identifier, one = alive.pop(step)
                assert table.get(identifier) is one
                table.remove(one)
                with pytest.raises(OSError, match="no such identifier"):
                    table.get(identifier)
            continue
        one = IpcObject(0, 0o600, 0)
        if len(alive) == 4:
            with pytest.raises(OSError, match="too many"):
                table.add(one)
            continue
        index = next(number for number in itertools.count() if number not in alive)
        sequence += index <= last
        last = index
        identifier = table.add(one)
        assert identifier == sequence * 32768 + index
        alive[index] = identifier, one
        if sequence:
            with pytest.raises(OSError, match="removed"):
                table.get(identifier - 32768)
