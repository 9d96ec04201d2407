"""The machine on real programs: one record whatever the engine, faults that say where, the host unharmed."""

from __future__ import annotations

import gc
import hashlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.startup import starting
from emulator.errors import GuestImageError, InstructionLimit
from emulator.events import FULL_RECORD, BlockFacts, TraceSelection
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from emulator.probes import BlockCounter, EventCounter
from instrumenter.building.program_build import build_program

GUEST = Path(__file__).parents[1] / "guest"
FEW = ("1", "500")
"""Arguments of the mixture with which it executes 300,000 instructions: the oracle takes 2 s for them."""
ROOT = Path(__file__).parents[3]
MACHINE = "configs/machines/strongarm.yaml"


@pytest.fixture(scope="module")
def faults() -> Path:
    return build_program([GUEST / "faults.c"], ["-O1"]).elf_path


@pytest.fixture(scope="module")
def mixture() -> Path:
    return build_program([GUEST / "mixture.c"], ["-O2"], libraries=["-lm"]).elf_path


class Digest:
    """A consumer that remembers the record by its hash; ``cut`` further cuts it up."""

    selection = FULL_RECORD

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self.words = 0

    def consume(self, facts: BlockFacts, stream: Any) -> None:
        # Block numbers depend on the order of discovery, which is the order of execution: the same everywhere.
        self.hash.update(np.ascontiguousarray(stream).tobytes())
        self.words += len(stream)


def record_of(
    program: Path, arguments: Sequence[str], step: int | None = None, **options: Any
) -> tuple[str, int, bytes]:  # fmt: skip
    digest = Digest()
    with Machine(program, arguments, consumers=[digest], **options) as machine:
        if step is None:
            machine.run()
        else:
            while machine.ending is None:
                machine.advance(step)
        assert machine.ending is not None
        assert machine.ending.status == 0
        return digest.hash.hexdigest(), machine.instructions, machine.files.output(1)


def test_the_record_does_not_depend_on_the_engine(mixture: Path) -> None:
    reference = record_of(mixture, FEW, engine="oracle")
    assert reference[1] > 100_000
    for options in (
        {"templates": False},  # interpreted only
        {"background": False, "optimise_executions": 1 << 30},
        {"background": False, "optimise_executions": 4},
        {},
        {"step": 777},
    ):
        assert record_of(mixture, FEW, **options) == reference, options


def test_output_equals_the_hosts(mixture: Path, tmp_path: Path) -> None:
    native = build_program([GUEST / "mixture.c"], ["-O2", "-ffp-contract=off"], libraries=["-lm"], target=None)
    expected = subprocess.run([native.elf_path, "30"], capture_output=True, check=True).stdout
    for options in ({}, {"background": False, "optimise_executions": 50}):
        with Machine(mixture, ["30"], **options) as machine:  # type: ignore[arg-type]
            machine.run()
            assert machine.files.output(1) == expected
    assert expected.split()[2:] == [b"2584", b"1", b"1", b"1", b"1"]


def test_probes_count_what_the_oracle_counts(mixture: Path) -> None:
    def counts(**options: Any) -> tuple[dict[int, int], list[int]]:
        with Machine(mixture, FEW) as plain:
            state = plain.image.find_symbol("__stdout_FILE")
        assert state is not None
        counter = BlockCounter(with_addresses=True)
        stores = EventCounter([((), [(state.address, state.address + 8)])])
        with Machine(mixture, FEW, consumers=[counter, stores], **options) as machine:
            machine.run()
            fib = machine.image.find_symbol("main")
            assert fib is not None
            by_pc = counter.executions_by_pc(machine.facts)
            assert by_pc[fib.address] == 1
            assert sum(by_pc.values()) == machine.instructions
            return by_pc, stores.totals().tolist()

    expected = counts(engine="oracle")
    assert counts() == expected
    assert expected[1][0] > 0


@pytest.mark.parametrize(
    ("what", "status", "words"),
    [
        ("null-store", 139, ["SIGSEGV: store to 0x0: nothing is mapped there", "main+", "faults.c:", "sw "]),
        ("null-load", 139, ["SIGSEGV: load from 0x8: nothing is mapped there", "lw "]),
        ("wild", 139, ["SIGSEGV: store to 0xdeadbeef12345678: nothing is mapped there", "sd "]),
        ("stack", 139, ["the stack of 8 MiB has overflowed (endless recursion", "deep+"]),
        ("illegal", 132, ["SIGILL: illegal instruction 0x0", "main+", ".half 0x0000"]),
        ("jump", 139, ["SIGSEGV: jump to 0x1234: nothing is mapped there", "(no code there)"]),
        ("code", 139, ["SIGSEGV: store to ", "the page does not allow it"]),
        ("hot", 139, ["SIGSEGV: ", "nothing is mapped there", "faults.c:3"]),
        ("abort", 134, ["ended by signal 6 (SIGABRT)"]),
        ("", 42, []),
    ],
)
def test_how_a_guest_ends(faults: Path, what: str, status: int, words: list[str]) -> None:
    for options in ({}, {"background": False, "optimise_executions": 10}):
        with Machine(faults, [what], **options) as machine:  # type: ignore[arg-type]
            ending = machine.run()
        assert ending.status == status
        for word in words:
            assert ending.message is not None
            assert word in ending.message


@pytest.mark.parametrize("what", ["hot", "stack", "null-store"])
def test_what_a_guest_did_before_a_fault_is_told_to_the_end(faults: Path, what: str) -> None:
    def told(**options: Any) -> tuple[str, int, int, int]:
        digest = Digest()
        with Machine(faults, [what], consumers=[digest], **options) as machine:
            assert machine.run().status == 139
        with Machine(faults, [what], **options) as counted:
            counted.observe(TraceSelection(counts=True))
            counted.run()
            executed = int(counted.block_counts @ counted.facts.blocks["n_instructions"].astype(np.int64))
        return digest.hash.hexdigest(), digest.words, machine.instructions, executed

    expected = told(background=False, optimise_executions=1 << 30)
    assert expected[2] == expected[3]
    assert told(background=False, optimise_executions=10) == expected
    if what == "null-store":  # the others take the oracle long
        assert told(engine="oracle") == expected


def test_a_guest_that_catches_its_faults(faults: Path) -> None:
    with Machine(faults, ["caught"]) as machine:
        assert machine.run().status == 0
        assert machine.files.output(1) == b"1000 427\n"


def test_endless_programs_are_stopped(faults: Path) -> None:
    with Machine(faults, ["forever"], limit_instructions=1_000_000) as machine:
        with pytest.raises(InstructionLimit, match=r"did not end within 1,000,000 instructions.*main\+"):
            machine.run()
        assert machine.ending is None


def test_an_instruction_of_the_vector_extension_is_named(tmp_path: Path) -> None:
    for word, is_vector in ((0x0D0075D7, True), (0x02056407, True), (0x0000000B, False)):  # vsetvli, vle32.v, custom
        (tmp_path / "a.c").write_text(f'int main(void) {{ __asm__ volatile(".4byte {word}"); return 0; }}\n')
        with Machine(build_program([tmp_path / "a.c"], ["-O1"]).elf_path) as machine:
            told = machine.run().message
        assert told is not None
        assert f"SIGILL: illegal instruction {word:#x}" in told
        assert (
            "of the vector extension, which the machine does not have: compile with -march=rv64gc" in told
        ) == is_vector


def test_same_seed_same_time_other_seed_other_time(mixture: Path) -> None:
    from emulator.timing.inorder import InOrderCore
    from emulator.timing.machine_file import load_machine

    config = load_machine(ROOT / "configs" / "machines" / "desktop.yaml")

    def cycles(seed: int) -> int:
        core = InOrderCore(config, seed, initial_state="random")
        with Machine(mixture, ["2"], core=core, clock_hz=config.clock_hz, seed=seed) as machine:
            machine.run()
            return machine.cycles

    assert cycles(1) == cycles(1)
    assert len({cycles(seed) for seed in range(4)}) > 1


EMULATE = (sys.executable, "-c", "from emulator.cli import main; main()")


def emulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*EMULATE, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def test_starting_undoes_what_it_does_for_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "freeze", lambda: None)  # the other tests' objects are to go some day
    monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", "20")
    with starting():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(SystemExit), starting():
        raise SystemExit(2)
    assert gc.isenabled()
    assert os.environ["OPENBLAS_THREAD_TIMEOUT"] == "20"  # the user's own


def test_emulate_gives_the_guests_output_and_status(faults: Path, mixture: Path, tmp_path: Path) -> None:
    assert emulate("--", str(faults)).returncode == 42
    done = emulate("--stats", "--", str(mixture), "1")
    assert done.returncode == 0
    assert done.stdout.count("\n") == 1
    assert "instructions" in done.stderr
    assert "loads" in done.stderr
    bad = emulate("--", str(faults), "null-load")
    assert bad.returncode == 139
    assert bad.stderr.startswith("emulate: SIGSEGV: load from 0x8: nothing is mapped there\n  at 0x")
    (tmp_path / "text").write_text("not a program\n")
    for program, words in (
        (str(tmp_path / "text"), "text"), (sys.executable, "x86-64"), (str(tmp_path / "gone"), "gone"),
    ):  # fmt: skip
        refused = emulate("--", program)
        assert refused.returncode == 2
        assert words.lower() in refused.stderr.lower()
        assert "Traceback" not in refused.stderr
    limited = emulate("--limit", "1M", "--", str(faults), "forever")
    assert limited.returncode == 1
    assert "did not end within 1,000,000 instructions" in limited.stderr


@pytest.mark.parametrize(("number", "name"), [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "Ctrl-C")])
def test_emulate_ended_by_a_signal_tells_its_counts(tmp_path: Path, number: signal.Signals, name: str) -> None:
    # `timeout 60 emulate --stats` printed nothing.
    source = tmp_path / "endless.c"
    source.write_text(
        '#include <unistd.h>\nint main(void) { write(1, "on\\n", 3); for (volatile long n = 0;; n++); }\n'
    )
    words = [*EMULATE, "--stats", "--", str(build_program([source]).elf_path)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        process.send_signal(number)
        said = process.communicate()[1]
    assert process.returncode == 128 + number
    assert said.startswith(f"emulate: ended by {name}\n")
    assert "  instructions\n" in said


def test_emulate_changes_values_of_the_machine_file(mixture: Path) -> None:
    def misses(*settings: str) -> int:
        done = emulate("--machine", MACHINE, *settings, "--stats", "--", str(mixture), "1")
        assert done.returncode == 0
        (found,) = re.findall(r"([0-9,]+)  l1d misses\n", done.stderr)
        return int(found.replace(",", ""))

    assert misses("--set", "l1d.size_bytes=2048") > misses("--set", "l1d.size_bytes=4096") > misses()
    alone = emulate("--set", "l1d.size_bytes=4096", "--", str(mixture), "1")
    assert alone.returncode == 2
    assert "--set: got it without --machine" in alone.stderr
    unknown = emulate("--machine", MACHINE, "--set", "l1d.size=4096", "--", str(mixture), "1")
    assert unknown.returncode == 2
    assert "l1d.size: unknown key" in unknown.stderr


def test_emulate_says_which_files_are_gone(tmp_path: Path) -> None:
    source = tmp_path / "writer.c"
    source.write_text(
        "#include <stdio.h>\nint main(int n, char **paths) {\n"
        '  for (int i = 1; i < n; i++) { FILE *file = fopen(paths[i], "w"); fputs("text", file); fclose(file); }\n'
        "  return 0;\n}\n"
    )
    program = str(build_program([source]).elf_path)
    done = emulate("--", program, "/a", "b", "/tmp/c", "/d", "/e")
    assert done.returncode == 0
    assert "gone now: /a, /b, /d and 1 more; to keep files" in done.stderr
    assert emulate("--", program, "/tmp/c", "/dev/shm/d").stderr == ""
    kept = emulate("--map", f"/out={tmp_path}", "--writable", "/out", "--", program, "/out/a")
    assert (kept.returncode, kept.stderr) == (0, "")
    assert (tmp_path / "a").read_text() == "text"


def test_emulate_says_how_a_program_sees_the_files_that_it_did_not_find(tmp_path: Path) -> None:
    source = tmp_path / "reader.c"
    source.write_text(
        "#include <stdio.h>\nint main(int n, char **paths) {\n  int found = 0;\n"
        '  for (int i = 1; i < n; i++) found += fopen(paths[i], "r") != NULL;\n  return found;\n}\n'
    )
    program = str(build_program([source]).elf_path)
    there, spaced = str(tmp_path / "a=b.txt"), str(tmp_path / "in put")
    for path in (there, spaced):
        Path(path).touch()
    missed = emulate("--", program, there, "pyproject.toml", spaced, "absent.txt")
    assert missed.returncode == 0
    assert missed.stderr == (
        f"emulate: the program did not find {there}, pyproject.toml, {spaced}: it sees no file of this machine without "
        f"`--map {there} --map pyproject.toml --map '{spaced}'`\n"
    )
    seen = emulate("--map", there, "--map", "pyproject.toml", "--map", spaced, "--", program, there, "pyproject.toml")
    assert (seen.returncode, seen.stderr) == (2, "")
    assert emulate("--map", f"/in={there}", "--", program, "/in").returncode == 1
    refused = emulate("--map", "in=pyproject.toml", "--", program)
    assert refused.returncode == 2
    assert "expected an absolute one: --map /in=pyproject.toml" in refused.stderr


def test_the_guest_sees_only_mapped_files(mixture: Path) -> None:
    files = VirtualFiles()
    with pytest.raises(FileNotFoundError):
        files.open("/etc/passwd", 0, 0)


def test_a_program_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(GuestImageError):
        Machine(b"\x7fELF")


@pytest.fixture(scope="module")
def executions_by_pc(mixture: Path) -> dict[int, int]:
    """Executions of each block of the mixture, as the oracle's record has them."""
    counter = BlockCounter()
    with Machine(mixture, FEW, consumers=[counter], engine="oracle") as machine:
        machine.run()
        return counter.executions_by_pc(machine.facts)


@pytest.mark.parametrize("hot", [{"templates": False}, {"optimise_executions": 4}, {}])
def test_counts_are_those_of_the_record(
    mixture: Path, executions_by_pc: dict[int, int], hot: dict[str, int]
) -> None:  # fmt: skip
    with Machine(mixture, FEW, background=False, **hot) as machine:  # type: ignore[arg-type]
        machine.observe(TraceSelection(counts=True))
        machine.run()
        counted = BlockCounter()
        counted.executions = machine.block_counts.copy()
        assert counted.executions_by_pc(machine.facts) == executions_by_pc


SHORT_LOOPS = """
#include <stdlib.h>
unsigned char from[700], to[700];
int main(int n, char **arguments) {
    int rounds = atoi(arguments[1]), found = 0;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < 600 + round % 7; i++) to[i] = from[i] + i;
        const unsigned char *at = to;
        while (*at != 99) at++;
        found += at - to;
        for (unsigned bits = round; bits; bits &= bits - 1) found++;
    }
    return found & 63;
}
"""


@pytest.mark.parametrize(
    "selection",
    [
        TraceSelection(counts=True),
        TraceSelection(counts=True, blocks=True),
        replace(FULL_RECORD, counts=True),
        TraceSelection(counts=True, exact_faults=True),
    ],
    ids=["alone", "blocks", "record", "faults"],
)
def test_short_loops_are_counted_with_whatever_else_is_selected(selection: TraceSelection, tmp_path: Path) -> None:
    """Regions have copies of them."""
    (tmp_path / "loops.c").write_text(SHORT_LOOPS)
    program = build_program([tmp_path / "loops.c"], ["-O2", "-fno-vectorize", "-fno-unroll-loops"]).elf_path
    expected = executions(program, TraceSelection(counts=True), engine="oracle")
    assert max(expected.values()) > 20_000
    assert executions(program, selection, background=False, optimise_executions=500) == expected


def executions(program: Path, selection: TraceSelection, **options: Any) -> dict[int, int]:
    """Executions of each block, by pc, of a program that is run for 40 rounds."""
    with Machine(program, ["40"], **options) as machine:
        machine.observe(selection)
        machine.run()
        counted = BlockCounter()
        counted.executions = machine.block_counts.copy()
        return counted.executions_by_pc(machine.facts)


def test_intervals_end_at_the_same_instruction_in_every_tier(mixture: Path) -> None:
    def boundaries(selection: TraceSelection, **options: Any) -> list[tuple[int, int]]:
        found = []
        with Machine(mixture, FEW, background=False, **options) as machine:
            machine.observe(selection)
            target = 5000
            while machine.advance_to_instructions(target):
                found.append((machine.instructions, machine.hart.pc))
                target += 5000
            return [*found, (machine.instructions, machine.hart.pc)]

    reference = boundaries(TraceSelection(), engine="oracle")
    assert len(reference) > 20
    for selection in (TraceSelection(), TraceSelection(counts=True), FULL_RECORD):
        for options in ({"templates": False}, {"optimise_executions": 4}):
            assert boundaries(selection, **options) == reference


def test_observers_come_and_go(mixture: Path) -> None:
    """What an observer that joins sees is the rest of what one from the start sees."""
    whole = Digest()
    parts = [Digest(), Digest()]
    with Machine(mixture, FEW, consumers=[whole], background=False) as machine:
        machine.observe(TraceSelection(), [whole, parts[0]])
        machine.advance_to_instructions(60_000)
        machine.observe(TraceSelection(counts=True), [whole])
        machine.advance_to_instructions(90_000)
        machine.drain()
        before = whole.words
        machine.observe(TraceSelection(), [whole, parts[1]])
        machine.run()
    assert parts[0].words > 0
    assert parts[1].words == whole.words - before


@pytest.mark.parametrize("how", ["run", "intervals"])
def test_limits_hold_in_a_rounding_mode_that_the_host_has_not(how: str) -> None:
    away = build_program([GUEST / "away.c"], ["-O1"]).elf_path

    def endless(machine: Machine) -> None:
        if how == "run":
            machine.run()
        while True:
            machine.run_intervals(5_000, 2)

    with (
        Machine(away, limit_instructions=20_000) as machine,
        pytest.raises(InstructionLimit, match="did not end within 20,000 instructions"),
    ):
        endless(machine)
    ends = []
    for engine in ("translated", "oracle"):
        with Machine(away, ["300"], engine=engine) as machine:
            assert machine.run().status == 0
            ends.append((machine.files.output(1), machine.instructions))
    assert ends[0] == ends[1]
