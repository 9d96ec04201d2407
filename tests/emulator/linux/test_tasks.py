"""Threads, processes, events and code made at run time: the same on every engine."""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.engine.decode import block_table as known
from emulator.engine.decode import discovery
from emulator.errors import EmulatorError, TooMuchCode
from emulator.events import FULL_RECORD, TraceSelection
from emulator.linux.kernel import scheduler
from emulator.linux.kernel.clock import Deadlock
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine

INTERPRETED = {"templates": False}
TEMPLATES = {"background": False, "optimise_executions": 1 << 30}
OPTIMISED: dict[str, Any] = {"background": False, "optimise_executions": 4}
ENGINES: dict[str, dict[str, Any]] = {
    "default": {}, "interpreted": INTERPRETED, "templates": TEMPLATES, "optimised": OPTIMISED,
    "oracle": {"engine": "oracle"},
}  # fmt: skip


@pytest.fixture(scope="module")
def program(compile_guest: Callable[[str], Path]) -> Path:
    return compile_guest("guest_tasks.c")


class Digest:
    """A consumer that remembers the record by its hash."""

    selection = FULL_RECORD

    def __init__(self) -> None:
        self.hash = hashlib.sha256()

    def consume(self, facts: Any, stream: Any) -> None:
        self.hash.update(stream.tobytes())


def ended(program: Path, *arguments: str, step: int | None = None, **options: Any) -> tuple[int, str, int, list[str]]:
    """Status, output, instructions, and what was not supported."""
    files = VirtualFiles(mapped={"/script": b"#!/proc/self/exe print\n"})
    with Machine(program, arguments, files=files, limit_instructions=300_000_000, **options) as machine:
        while machine.ending is None:
            machine.advance(step or 1 << 40)
        text = machine.files.output(1).decode()
        return machine.ending.status, text, machine.instructions, machine.kernel.unsupported


EXPECTED = {
    "threads": """turn 0 of 0
turn 1 of 1
turn 2 of 2
turn 3 of 0
turn 4 of 1
turn 5 of 2
joined 0
joined 10
joined 20
timed out -1 1
""",
    "forks": """read 100000 from 1, status 3, value 5
print: spawned
spawned 0 status 0
spawn of nothing 1
still there 0
killed by 15
no more 1
print: after vfork
print: /script
and argument
""",
    "shared": "sum 3000 0\n",
    "crash": "crashed by 11\n",
    "signals": """handled 10 in it 1 on its stack 1
read 1 x
interrupted -1 1
child 1 code 1 status 5
waited for 1 status 5
""",
    "events": """nothing yet 0
1 ready: 1 gives 1
1 ready: 0 gives 2
1 ready: 1 gives 1
edge 1 again 0 new 1
poll 1 11
self 1
empty 1
""",
    "code": """rewritten 750
protected 1050
in the child 50000
in the parent 250
mapped anew 350
""",
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("what", EXPECTED)
def test_what_programs_do(program: Path, what: str, engine: str) -> None:
    status, text, _, unsupported = ended(program, what, **ENGINES[engine])
    assert text == EXPECTED[what]
    assert status == 0
    assert unsupported == []


def test_files_of_the_system(program: Path) -> None:
    _, text, _, unsupported = ended(program, "files")
    assert text.splitlines() == [
        "exe 1", "maps 1 1 1", f"cmdline 1 {str(program)[:12]}", "comm 1 guest_tasks", "", "stat 1 ", "statm 1 ",
        "status 1 ", "mounts 1 ", "fd 4 outside -1 write -1",
    ]  # fmt: skip
    assert unsupported == []


def test_turns_end_at_the_same_instruction_in_every_engine(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that race: what comes out depends on each switch."""
    monkeypatch.setattr(scheduler, "TIME_SLICE_INSTRUCTIONS", 4000)
    reference = ended(program, "race", engine="oracle")
    assert reference[0] == 0
    for options in ({}, INTERPRETED, TEMPLATES, OPTIMISED, {**OPTIMISED, "step": 777}):
        assert ended(program, "race", **options) == reference, options
    monkeypatch.setattr(scheduler, "TIME_SLICE_INSTRUCTIONS", 4321)
    assert ended(program, "race")[1] != reference[1]


@pytest.mark.parametrize("what", ["threads", "forks", "signals", "events", "code"])
def test_one_record_whatever_the_engine(program: Path, what: str) -> None:
    def record(**options: Any) -> tuple[str, int]:
        digest = Digest()
        files = VirtualFiles(mapped={"/script": b"#!/proc/self/exe print\n"})
        with Machine(program, [what], files=files, consumers=[digest], **options) as machine:
            machine.run()
            return digest.hash.hexdigest(), machine.instructions

    reference = record(engine="oracle")
    for options in ({}, {}, OPTIMISED):
        assert record(**options) == reference


@pytest.mark.parametrize("engine", ENGINES)
def test_blocks_have_one_number_in_all_processes(program: Path, engine: str) -> None:
    """However often a guest copies itself and executes itself anew, it discovers its code once."""

    def blocks(times: int) -> Any:
        with Machine(program, ["starts", str(times)], **ENGINES[engine]) as machine:
            machine.run()
            assert machine.files.output(1) == f"fine {2 * times}\n".encode()
            facts = machine.facts
            numbers = np.arange(facts.n_blocks)
            words = facts.instructions_of(numbers)["word"]
            ends = np.cumsum(facts.blocks["n_instructions"])
            whole = [
                (pc, part.tobytes())
                for pc, part in zip(facts.blocks["pc"].tolist(), np.split(words, ends[:-1]), strict=True)
            ]
            assert len(set(whole)) == len(whole)
            return whole

    assert blocks(4) == blocks(2)


def test_processes_that_have_ended_take_no_memory(program: Path) -> None:
    def resident_after(times: int) -> int:
        with Machine(program, ["starts", str(times)]) as machine:
            gc.disable()  # it comes when it wants
            try:
                machine.run()
            finally:
                gc.enable()
            return 4096 * int(Path("/proc/self/statm").read_text().split()[1])

    resident_after(2)
    few = resident_after(2)
    many = resident_after(42)
    assert (many - few) / 80 < 200_000  # tables and templates of each were a megabyte and more


@pytest.mark.parametrize("options", [INTERPRETED, TEMPLATES, {}])
def test_more_code_than_can_be_numbered(
    program: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    for module in (discovery, known):
        monkeypatch.setattr(module, "MAX_BLOCKS", 300)
    with Machine(program, ["starts", "1"], **options) as machine:
        with pytest.raises(TooMuchCode, match=r"got more than 300 basic blocks .* several runs"):
            machine.run()
        assert machine.facts.n_blocks <= 301


def test_counts_of_several_processes_add_up(program: Path) -> None:
    with Machine(program, ["forks"], **OPTIMISED) as machine:
        machine.observe(TraceSelection(counts=True))
        machine.run()
        sizes = machine.facts.blocks["n_instructions"]
        assert int((machine.block_counts * sizes).sum()) == machine.instructions


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("processes", "stopped 1\n"), ("threads", "stopped 1\n"), ("memory", "second fork refused 1\n"),
        ("descriptors", "stopped 1\n"), ("execution", ""),
    ],
)  # fmt: skip
def test_a_guest_cannot_have_as_much_as_it_wants(program: Path, what: str, expected: str) -> None:
    status, text, _, _ = ended(program, "bomb", what)
    assert (status, text) == (0, expected)


def test_processes_that_wait_for_each_other(program: Path) -> None:
    with (
        Machine(program, ["wait"]) as machine,
        pytest.raises(Deadlock, match=r"child that does not end \(2 threads"),
    ):
        machine.run()


def test_a_program_without_a_path_starts_itself_by_its_name(program: Path) -> None:
    with Machine(program.read_bytes(), ["again"]) as machine:
        machine.run()
        assert b"found in PATH" in machine.files.output(1)


def test_a_guest_with_several_processes_cannot_go_back(program: Path) -> None:
    with Machine(program, ["threads"]) as machine:
        machine.advance(20_000)
        saved = machine.snapshot()
        machine.run()
        first = machine.files.output(1), machine.instructions
        machine.restore(saved)
        machine.run()
        assert (machine.files.output(1), machine.instructions) == first
    with Machine(program, ["forks"]) as machine:
        machine.run()
        with pytest.raises(EmulatorError, match="cannot go back"):
            machine.snapshot()
