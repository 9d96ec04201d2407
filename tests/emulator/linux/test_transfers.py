"""Transfers that signals interrupt, sizes of pipes, and who gets what is sent to an address: as Linux answers."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator.linux.vfs.pipes import make_pipe
from emulator.machine import Machine


def ended(program: Path, what: str) -> str:
    with Machine(program, [what], limit_instructions=200_000_000) as machine:
        machine.run()
        assert machine.kernel.unsupported == []
        return machine.files.output(1).decode()


@pytest.fixture(scope="module")
def program(compile_guest: Callable[[str], Path]) -> Path:
    return compile_guest("guest_transfers.c")


def has_both_families() -> bool:
    """Whether the host's loopback is there in both."""
    try:
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            with socket.socket(family) as one:
                one.bind((host, 0))
    except OSError:
        return False
    return True


PARTS = """pipe, vectors: a part, there 1, the same 1
socket: a part, there 1, the same 1
socket, message: a part, there 1, the same 1
sent 1 socket, messages: a part, there 1, the same 1
"""
EXPECTED = {
    "interrupted": f"""65536 pipe: a part, there 1, the same 1
{PARTS}65536 pipe: a part, there 1, the same 1
{PARTS}alarms 10
full: Interrupted system call
restarted: 5
exited 0
left alone: 65536 signals 1, then Broken pipe signals 2
exited 0
""",
    "reading": """vectors 5 12345
nothing: Interrupted system call
all of 5: 3 123
all of 300000: 300000
exited 0
at the end: 0
""",
    "sizes": """default 65536
1: 4096 4096
4096: 4096 4096
4097: 8192 8192
10000: 16384 16384
65536: 65536 65536
70000: 131072 131072
1048576: 1048576 1048576
0: 4096 4096
of 3000: 16, room 0, a few more 1000, smaller Resource busy, larger 131072
part of three: room 1
single ones 8192 still 8192
not a pipe: Bad file descriptor
""",
    "addresses": """second without 0 with V6ONLY 0 listen 0 0
127.0.0.1 connected v4 1 v6 0
::1 connected v4 0 v6 1
127.0.0.9 connected v4 1 v6 0
taken: 98 98 98
both: connected, accepted at ::ffff:127.0.0.1 from ::ffff:127.0.0.1, client at 127.0.0.1 to 127.0.0.1
connected 1, connected 1, listens at ::, taken 98
another address 0 any 98
127.0.0.2 connected 0 1, 127.0.0.3 Connection refused
shared 0 0 98
later 115 ready 1 then 0 106, to nobody 115 111 0
protocols 93 93 0
""",
    "messages": """nothing asked for: first cut 0
defaults: other cut 0, 41 52 of 20 is 64, 41 67 of 20 is 0
defaults: other cut 0, 41 52 of 20 is 64, 41 67 of 20 is 0
defaults: other cut 1, 41 52 of 20 is 64
defaults: other cut 1
chosen: third cut 0, 41 52 of 20 is 7, 41 67 of 20 is 3
too large: Invalid argument
closed: read 0 nothing 0 once 1 again Broken pipe
named 0 0 of 8 starts 0 differ 1 got 5 from it 1
another protocol, the same port 0 got 5 Resource temporarily unavailable protocol 136
""",
}


@pytest.mark.parametrize("what", EXPECTED)
def test_what_programs_are_told(program: Path, what: str) -> None:
    assert ended(program, what) == EXPECTED[what]


@pytest.mark.parametrize("what", EXPECTED)
def test_linux_answers_the_same(program: Path, what: str, by_qemu: Callable[..., str]) -> None:
    if what in ("addresses", "messages") and not has_both_families():
        pytest.skip("the host has no loopback for both families")
    assert by_qemu(program, what) == EXPECTED[what]


def test_a_pipe_of_more_than_a_megabyte_is_refused(program: Path) -> None:
    assert ended(program, "large") == "Operation not permitted\nInvalid argument\n"


def test_bytes_leave_a_pipe_as_they_came() -> None:
    """Whatever the sizes of reads and writes; nothing is taken that has no room."""
    source, target = make_pipe(0o4000, 1)
    sent, got, number = bytearray(), bytearray(), 1
    for _ in range(3000):
        number = number * 1103515245 + 12345 & 0x7FFF_FFFF
        size = number % 9000
        try:
            if number >> 20 & 1:
                data = number.to_bytes(4, "little") * (size // 4)
                sent += data[: target.write(data)]
            else:
                got += source.read(size)
        except BlockingIOError:
            pass
        assert source.waiting_bytes() == len(sent) - len(got) <= 65536
    while source.waiting_bytes():
        got += source.read(65536)
    assert sent == got
    assert len(sent) > 1_000_000
