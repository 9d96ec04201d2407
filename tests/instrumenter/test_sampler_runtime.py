"""The sampler inside the guest: its records add up, the program does not notice, bad traces are refused."""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from emulator.pmu import Pmu
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_file import load_machine
from instrumenter.building.program_build import Build, SamplerConfig, build_program
from instrumenter.errors import InstrumenterError
from instrumenter.sampler_format import MAGIC, TRACE_PATH, read_sampler_trace
from instrumenter.spec.counter_layout import Placement
from instrumenter.spec.software_metrics import MetricSpec

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the emulator runs on Linux")

MACHINE = Path(__file__).parents[2] / "configs" / "machines" / "strongarm.yaml"
HARDWARE = ("PAPI_TOT_INS", "PAPI_SR_INS", "PAPI_BR_INS")
METRICS = {
    "steps": MetricSpec(event="loop", function="work"),
    "rounds": MetricSpec(event="entry", function="work"),
}
ROUNDS, STEPS = 40, 1500
INTERVAL_NANOSECONDS = 20_000
PROGRAM = f"""\
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile int sink[64];
static void leave(int signal)
{{
    _exit(6);
}}
static int work(int seed)
{{
    for (int i = 0; i < {STEPS}; i++)
        sink[i & 63] += seed ^ i;
    return sink[seed & 63];
}}
int main(int argc, char **argv)
{{
    int total = 0;
    errno = 42;
    for (int round = 0; round < {ROUNDS}; round++)
        total += work(round);
    printf("%d %d\\n", total, errno);
    if (argc > 1 && argv[1][0] == 'e')
        exit(3);
    fflush(stdout);
    if (argc > 1 && argv[1][0] == '_')
        _exit(4);
    if (argc > 1 && argv[1][0] == 'q')
        quick_exit(5);
    if (argc > 1 && argv[1][0] == 's') {{
        signal(SIGALRM, leave);
        raise(SIGALRM);
    }}
    if (argc > 1 && argv[1][0] == 'c') {{
        if (fork() == 0)
            _exit(7);
        wait(0);
        _exit(8);
    }}
    return 0;
}}
"""


@dataclass(frozen=True)
class Outcome:
    """What a run left behind."""

    status: int
    output: bytes
    errors: bytes
    data: bytes | None
    counters: dict[str, int]
    instructions: int
    cycles: int

    @property
    def records(self) -> NDArray[np.uint64]:
        """The records of the trace, ``(n, 2 + hardware + software)``."""
        assert self.data is not None
        return read_sampler_trace(self.data)[1]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The measured program."""
    path = tmp_path_factory.mktemp("sampler") / "work.c"
    path.write_text(PROGRAM)
    return path


def execute(build: Build, *arguments: str, capture: bool = True) -> Outcome:
    core = InOrderCore(load_machine(MACHINE), 1)
    files = VirtualFiles(capture={TRACE_PATH} if capture else ())
    with Machine(
        build.elf_path, list(arguments), files=files, core=core, counters=Pmu(core, HARDWARE),
        clock_hz=core.config.clock_hz, limit_instructions=50_000_000, background=False,
    ) as machine:  # fmt: skip
        ending = machine.run()
        symbol = machine.image.find_symbol("__measure_counters")
        counters = {} if symbol is None else {
            name: machine.memory.read_int(symbol.address + at.offset_bytes, 8)
            for name, at in build.counters.items()
        }  # fmt: skip
        return Outcome(
            ending.status, files.output(1), files.output(2), files.captured().get(TRACE_PATH), counters,
            machine.instructions, core.cycles,
        )  # fmt: skip


@pytest.mark.parametrize("placement", ["packed", "cache_line"])
def test_records_add_up(source: Path, placement: Placement) -> None:
    plain = execute(build_program([source], ["-O1"]))
    config = SamplerConfig(INTERVAL_NANOSECONDS, len(HARDWARE))
    build = build_program([source], ["-O1"], METRICS, sampler=config, placement=placement)
    sampled = execute(build)
    assert (sampled.status, sampled.output, sampled.errors) == (0, plain.output, b"")
    assert sampled.counters == {"steps": ROUNDS * STEPS, "rounds": ROUNDS}

    assert sampled.data is not None
    columns, records = read_sampler_trace(sampled.data)
    assert columns == (
        "cycle",
        "instret",
        "hpmcounter3",
        "hpmcounter4",
        "hpmcounter5",
        "software0",
        "software1",
    )
    cycles, instructions = records[:, 0].astype(np.int64), records[:, 1].astype(np.int64)
    interval_cycles = INTERVAL_NANOSECONDS * 206e6 / 1e9
    assert len(records) == pytest.approx(sampled.cycles / interval_cycles, rel=0.1)
    np.testing.assert_array_equal(instructions, records[:, 2], "one event, read through two counters")
    totals = records[:, 5:].astype(np.int64)
    assert (np.diff(totals, axis=0) >= 0).all()
    assert totals[-1].tolist() == [ROUNDS * STEPS, ROUNDS]
    # What is outside the records is the sampler's own work, and the C library's before and after it.
    assert 0.8 * sampled.instructions < instructions.sum() < sampled.instructions
    assert plain.instructions < instructions.sum()
    assert 0.5 * sampled.cycles < cycles.sum() < sampled.cycles
    # A step stores once to memory and once to its counter.
    assert int(records[:, 3].sum()) == pytest.approx(2 * ROUNDS * STEPS, rel=0.1)


def test_buffers_of_any_size_lose_nothing(source: Path) -> None:
    for buffer in (1, 7, 1000):
        config = SamplerConfig(INTERVAL_NANOSECONDS, 1, buffer)
        sampled = execute(build_program([source], ["-O1"], METRICS, sampler=config))
        assert sampled.records[-1, 3:].tolist() == [ROUNDS * STEPS, ROUNDS]
        assert len(sampled.records) > 100


def test_without_software_counters(source: Path) -> None:
    sampled = execute(build_program([source], ["-O1"], sampler=SamplerConfig(INTERVAL_NANOSECONDS, 0)))
    assert sampled.records.shape[1] == 2
    assert (sampled.status, sampled.counters) == (0, {})


def test_no_record_is_lost_however_the_program_ends(source: Path) -> None:
    build = build_program([source], ["-O1"], METRICS, sampler=SamplerConfig(INTERVAL_NANOSECONDS, 1, 64))
    whole = len(execute(build).records)
    for argument, status in {"exit": 3, "_exit": 4, "quick": 5, "signal": 6, "child": 8}.items():
        ended = execute(build, argument)
        assert ended.status == status
        assert ended.records[-1, 3:].tolist() == [ROUNDS * STEPS, ROUNDS], argument
        assert abs(len(ended.records) - whole) <= 1, argument


def test_a_trace_that_cannot_be_written(source: Path) -> None:
    build = build_program([source], ["-O1"], sampler=SamplerConfig(INTERVAL_NANOSECONDS, 0))
    outcome = execute(build, capture=False)
    assert (outcome.status, outcome.output) == (125, b"")
    assert outcome.errors == f"measure: cannot create {TRACE_PATH}\n".encode()


def trace(columns: int, hardware: int, *words: int) -> bytes:
    return MAGIC + struct.pack(f"<II{len(words)}Q", columns, hardware, *words)


def test_reads_what_is_written() -> None:
    columns, records = read_sampler_trace(trace(4, 1, 1, 2, 3, 4, 5, 6, 7, 2**64 - 1))
    assert columns == ("cycle", "instret", "hpmcounter3", "software0")
    assert records.dtype == np.uint64
    assert records.tolist() == [[1, 2, 3, 4], [5, 6, 7, 2**64 - 1]]
    assert read_sampler_trace(trace(2, 0))[1].shape == (0, 2)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a sampler trace: got 0 bytes beginning b'', expected b'MSRTRC1\\n' and a header"),
        (b"MSRTRC2\n" + bytes(40),
         "not a sampler trace: got 48 bytes beginning b'MSRTRC2\\n', expected b'MSRTRC1\\n' and a header"),
        (MAGIC + bytes(7),
         "not a sampler trace: got 15 bytes beginning b'MSRTRC1\\n', expected b'MSRTRC1\\n' and a header"),
        (trace(2, 1, 1, 2), "corrupt sampler trace: 2 columns, of which 1 hardware"),
        (trace(5000, 1, 1, 2), "corrupt sampler trace: 5000 columns, of which 1 hardware"),
        (trace(3, 1, 1, 2, 3, 4),
         "the sampler trace is cut: 32 bytes of records, expected a multiple of 24; the program was ended before "
         "it wrote the rest"),
        (trace(2, 0, 1, 2)[:-3],
         "the sampler trace is cut: 13 bytes of records, expected a multiple of 16; the program was ended before "
         "it wrote the rest"),
    ],
)  # fmt: skip
def test_bad_traces_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(InstrumenterError) as caught:
        read_sampler_trace(data)
    assert str(caught.value) == message
