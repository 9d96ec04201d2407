"""Counters against ground truth: every kind of counter over the workloads, and the emulator's view of the same.

Three views of one event must agree: the counter in the instrumented program, the executions (or stores) that a
probe counts in the plain program, and the stores into the counter's own place in the instrumented program.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from emulator.machine import Machine
from emulator.probes import BlockCounter, EventCounter
from instrumenter.building.generated_sources import preprocess_all
from instrumenter.building.program_build import build_program
from instrumenter.compiler.toolchain import GUEST_TARGET, Toolchain
from instrumenter.find.probes import Probe, ProbeError, ProbeFinder
from instrumenter.spec.software_metrics import MetricSpec
from tests.instrumenter.native_counters import every_metric

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the emulator runs on Linux")

WORKLOADS = Path(__file__).parents[2] / "experiments" / "workloads"
PROGRAMS = ("bwtzip", "chess", "jpegish", "lz77", "nbody", "netsimplex", "ooosim")
LIMIT_INSTRUCTIONS = 200_000_000
# What is left without an exact probe, and why, in words of the refusal.
REASONS = {
    "missed": "a probe would see what the counter misses",  # writes through pointers, calls through pointers
    "folded": "the event has no code of its own",  # `c ? 1 : 2`, or one copy of a struct for two events
}


@dataclass(frozen=True)
class Seen:
    """A run: standard output, executions by address, stores by watched range, memory words asked for."""

    output: bytes
    executions: dict[int, int]
    stores: dict[tuple[int, int], int]
    words: dict[int, int]


def run(program: Path, ranges: list[tuple[int, int]], words: list[int]) -> Seen:
    blocks, stores = BlockCounter(with_addresses=True), EventCounter([((), [one]) for one in ranges])
    with Machine(
        program, ["tiny"], consumers=[blocks, stores], limit_instructions=LIMIT_INSTRUCTIONS, background=False
    ) as machine:
        ending = machine.run()
        assert ending.status == 0, ending.message
        return Seen(
            machine.files.output(1),
            blocks.executions_by_pc(machine.facts),
            dict(zip(ranges, stores.totals().tolist(), strict=True)),
            {address: machine.memory.read_int(address, 8) for address in words},
        )


def find_probes(
    source: Path, flags: list[str], metrics: dict[str, MetricSpec]
) -> tuple[Path, dict[str, Probe], dict[str, str]]:
    """The plain program, its probes, and why there is none for the other metrics."""
    plain = build_program([source], flags, libraries=["-lm"])
    preprocessed = preprocess_all([source], flags, Toolchain())
    finder = ProbeFinder(plain.elf_path, preprocessed, flags, metrics)
    probes, refused = {}, {}
    for metric in metrics:
        try:
            probes[metric] = finder.probe_for(metric)
        except ProbeError as error:
            refused[metric] = str(error)
    return plain.elf_path, probes, refused


def compare(source: Path, flags: list[str]) -> tuple[dict[str, MetricSpec], dict[str, Probe], dict[str, str], int]:
    metrics = every_metric(source, Toolchain().preprocess(source, flags), GUEST_TARGET)
    plain, probes, refused = find_probes(source, flags, metrics)
    ranges = sorted({each for probe in probes.values() for each in probe.store_ranges})
    truth = run(plain, ranges, [])

    instrumented = build_program([source], flags, metrics, libraries=["-lm"])
    with Machine(instrumented.elf_path) as machine:
        symbol = machine.image.find_symbol("__measure_counters")
    assert symbol is not None
    places = {metric: symbol.address + at.offset_bytes for metric, at in instrumented.counters.items()}
    seen = run(instrumented.elf_path, [(place, place + 8) for place in places.values()], list(places.values()))

    assert seen.output == truth.output != b""
    counted = {metric: seen.words[place] for metric, place in places.items()}
    assert counted == {metric: seen.stores[place, place + 8] for metric, place in places.items()}
    expected = {
        metric: sum(truth.executions.get(pc, 0) for pc in probe.pcs)
        + sum(truth.stores[each] for each in probe.store_ranges)
        for metric, probe in probes.items()
    }
    assert {metric: counted[metric] for metric in probes} == expected
    return metrics, probes, refused, sum(expected.values())


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_counter_equals_its_probe(name: str) -> None:
    metrics, probes, refused, events = compare(WORKLOADS / f"{name}.c", ["-O0"])
    assert events > 100_000, "the run is long enough to tell anything"
    kinds = Counter(metric.split(".")[0] for metric in probes)
    assert {"entry", "exit", "loop", "branch", "call", "write", "field"} <= set(kinds)
    assert any(probe.store_ranges for probe in probes.values())
    assert len(probes) >= 0.9 * len(metrics)
    for metric, reason in refused.items():
        kind = metric.split(".")[0]
        assert kind in ("write", "field", "call", "branch"), (metric, reason)
        assert any(text in reason for text in (REASONS["missed"], REASONS["folded"])), (metric, reason)


@pytest.mark.parametrize("name", ["chess", "netsimplex"])
def test_what_stays_exact_in_optimised_code(name: str) -> None:
    _, probes, refused, events = compare(WORKLOADS / f"{name}.c", ["-O2"])
    assert events > 100
    kinds = Counter(metric.split(".")[0] for metric in probes)
    assert set(kinds) <= {"entry", "call"}
    assert kinds["entry"] >= 5
    assert all("optimised code" in reason or "is inlined" in reason or "special version" in reason
               or "calls itself" in reason or "outside these sources" in reason or "may leave by a jump" in reason
               or REASONS["missed"] in reason for reason in refused.values())  # fmt: skip
