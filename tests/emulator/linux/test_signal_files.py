"""signalfd: what a program reads is what QEMU, on the host's kernel, has it read."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emulator.linux.kernel.signals import SignalInfo
from emulator.linux.syscalls.optional.signalfd import RECORD_BYTES, _record
from emulator.machine import Machine
from tests.emulator.linux.conftest import Guest

SOURCE = "guest_signal_files.c"


def run(program: Path, *arguments: str, **options: Any) -> str:
    with Machine(program, arguments, limit_instructions=50_000_000, **options) as machine:
        machine.run()
        assert machine.kernel.unsupported == []
        return machine.files.output(1).decode()


@pytest.mark.parametrize("options", [{}, {"engine": "oracle"}], ids=["translated", "oracle"])
def test_a_program_sees_what_it_sees_on_linux(
    compile_guest: Callable[[str], Path], by_qemu: Callable[..., str], options: dict[str, Any]
) -> None:
    program = compile_guest(SOURCE)
    expected = by_qemu(program)
    assert expected.endswith("main: 128\n  12 code -6 mine 1 value 0 pointer 0 status 0 rest 0\n")
    assert run(program, **options) == expected


def test_the_file_is_there_after_exec(compile_guest: Callable[[str], Path]) -> None:
    assert run(compile_guest(SOURCE), "more").splitlines() == [
        "flags 1 1", "size -1 22", "executed: 128", "  12 code 0 mine 1 value 0 pointer 0 status 0 rest 0", "closed 1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("signal", "code", "fields", "told"),
    [
        # kill, tkill, sigqueue, a timer, a child, a fault, a ready file, the kernel; names of signalfd_siginfo
        (10, 0, struct.pack("<iI", 7, 8), {"pid": 7, "uid": 8}),
        (10, -6, struct.pack("<iI", 7, 8), {"pid": 7, "uid": 8}),
        (40, -1, struct.pack("<iIQ", 7, 8, 1 << 40 | 9), {"pid": 7, "uid": 8, "ptr": 1 << 40 | 9, "int": 9}),
        (14, -2, struct.pack("<iiQ", 3, 4, 5), {"tid": 3, "overrun": 4, "ptr": 5, "int": 5}),
        (17, 1, struct.pack("<iIi4xQQ", 7, 8, 2, 30, 40), {"pid": 7, "uid": 8, "status": 2, "utime": 30, "stime": 40}),
        (11, 1, struct.pack("<Q", 0xABCD), {"addr": 0xABCD}),
        (29, 1, struct.pack("<Ii4x", 5, 0), {"band": 5}),
        (29, -5, struct.pack("<Q i", 5, 6), {"band": 5, "fd": 6}),
        (27, 0x80, b"", {}),
    ],
)  # fmt: skip
def test_each_kind_of_signal_tells_what_belongs_to_it(signal: int, code: int, fields: Any, told: Any) -> None:
    names = [
        "signo",
        "errno",
        "code",
        "pid",
        "uid",
        "fd",
        "tid",
        "band",
        "overrun",
        "trapno",
        "status",
        "int",
        "ptr",
    ]
    names += ["utime", "stime", "addr"]
    record = _record(SignalInfo(signal, code, fields))
    assert len(record) == RECORD_BYTES
    found = dict(zip(names, struct.unpack_from("<IiiIIiIIIIiIQQQQ", record), strict=True))
    expected = dict.fromkeys(names, 0) | {"signo": signal, "code": code} | told
    assert found == expected


def test_a_machine_with_such_a_file_goes_back(make_guest: Callable[..., Guest]) -> None:
    from emulator.execution.snapshot import ObjectsState

    guest = make_guest()
    fd = guest.call("signalfd4", -1, struct.pack("<Q", 1 << 9), 8, 0)
    guest.call("rt_sigprocmask", 0, struct.pack("<Q", 1 << 9), 0, 8)
    guest.call("kill", 1000, 10)
    saved = ObjectsState([guest.kernel, guest.files], [guest.memory, guest.image, guest.process])
    for _ in range(2):
        assert guest.call("read", fd, guest.space(128), 128) == 128
        assert guest.call("signalfd4", fd, struct.pack("<Q", 0), 8, 0) == fd
        saved.restore()
