"""What programs do with files, locks, sockets and mappings together.

Compiled for the host, the same program says the same on Linux but for what cannot be the same: there the set-user bit
is kept, sockets take more at once, and the network is there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine

SCRIPT = b"not the guest's"
EXPECTED = {
    "names": """link 0 symlink 0 again 1
same 1 links 2 mode 640
link 1
mode 751 owner 0 1
read at 1000.5 written as before 1
later 2
exists 1
rename 0 into 0 noreplace 1
full 1 gone 0
attributes 1 0
read-only 1
""",
    "copies": """copied 3 to 5
sent 5 at 5
tee 3 splice 5 back 2
01256, 01234
empty 1
allocate 0 punch 0 size 16 hole 16
00 345678
/memfd:m (deleted) 4
""",
    "mapped": """stored stored
wrote
child
moved
Mov
refused 1
still shared 7
by name 0 0
""",
    "locks": """in the way 1 free 0
refused 1
released
got it
whole 0 other 1 shared 0 0
alone 0
""",
    "pipe": """fifo 1 no reader 1
read 7 through
end 0
p 1
unlink 0 -1
""",
    "sockets": """peek 3 recv 4 abcd
nothing 1
sent 1
received 9 by socket
part 1
rest 1 2005
broken 1
packet 3 of 6
none 1 bind 0 refused 1 listen 0
accepted 1 from 2: 6 parent
left 1
loopback 1 0 taken 1 3 tcp
datagram 5 dgram from its port 1
outside 1
""",
    "processes": """runs 0 ended 1 waited 0 status 4
mine 1 the child's 1
signal 0 killed 9 gone 1
""",
    "inheritance": """sum 120
dead owner 1 consistent 0 0
""",
    "replaced": "alarm after exec 1\n",
}
NETWORK = "the network: the guest has a loopback of its own and nothing else"


@pytest.fixture(scope="module")
def program(compile_guest: Callable[[str], Path]) -> Path:
    return compile_guest("guest_files.c")


def shown(work: Path) -> VirtualFiles:
    files = VirtualFiles(mapped={"/work": work, "/script": SCRIPT}, writable=["/work"])
    files.working_directory = "/work"
    return files


@pytest.mark.parametrize("what", EXPECTED)
def test_what_programs_do(program: Path, tmp_path: Path, what: str) -> None:
    with Machine(program, [what], files=shown(tmp_path), limit_instructions=100_000_000) as machine:
        assert machine.run().status == 0
        assert machine.files.output(1).decode() == EXPECTED[what]
        assert machine.kernel.unsupported == ([NETWORK] if what == "sockets" else [])


def test_the_same_with_the_oracle(program: Path, tmp_path: Path) -> None:
    with Machine(program, ["mapped"], files=shown(tmp_path), engine="oracle") as machine:
        assert machine.run().status == 0
        assert machine.files.output(1).decode() == EXPECTED["mapped"]


def test_what_was_left_on_the_host(program: Path, tmp_path: Path) -> None:
    with Machine(program, ["mapped"], files=shown(tmp_path)) as machine:
        machine.run()
        assert (tmp_path / "left").read_bytes() == b"AT the end"  # mapped to the end, and never unmapped
    with Machine(program, ["names"], files=shown(tmp_path)) as machine:
        machine.run()
    assert (tmp_path / "a").stat().st_mode & 0o7777 == 0o751
    assert (tmp_path / "a").stat().st_ino == (tmp_path / "b").stat().st_ino
    assert not (tmp_path / "stolen").exists()
    with Machine(program, ["pipe"], files=shown(tmp_path)) as machine:
        machine.run()
    with Machine(program, ["sockets"], files=shown(tmp_path)) as machine:
        machine.run()
    assert not (tmp_path / "p").exists()  # pipes and sockets are the guest's own
    assert not (tmp_path / "socket").exists()


@pytest.mark.parametrize("crash", [False, True])
def test_mapped_files_are_written_however_the_guest_ends(program: Path, tmp_path: Path, crash: bool) -> None:
    (tmp_path / "stored").write_bytes(b"stored")
    with Machine(program, ["store", *["x"] * crash], files=shown(tmp_path)) as machine:
        assert machine.run().status == (139 if crash else 0)
        assert (tmp_path / "stored").read_bytes() == b"Stored"


def test_captured_files_can_be_mapped(program: Path) -> None:
    files = VirtualFiles(capture=["/work/"])
    files.working_directory = "/work"
    file = files.open("/work/stored", 0o102, 0o644)
    file.write(b"stored")
    file.close()
    with Machine(program, ["store"], files=files) as machine:
        assert machine.run().status == 0
        assert machine.files.captured() == {"/work/stored": b"Stored"}


def test_the_same_twice(program: Path, tmp_path: Path) -> None:
    counts = []
    for number in range(2):
        work = tmp_path / str(number)
        work.mkdir()
        with Machine(program, ["sockets"], files=shown(work)) as machine:
            machine.run()
            counts.append(machine.instructions)
    assert counts[0] == counts[1]
