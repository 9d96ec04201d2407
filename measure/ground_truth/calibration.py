"""Calibrates a program: its own instructions and counter totals as functions of the number of reference events.

Done once for each program and input, without a timing model. Two runs are observed several times in every record: a
run of the plain program gives its instructions, and a run of a build with every software metric gives the counters,
both as functions of the reference events so far. In every run of every build the program does the same at the same
event. These curves therefore translate the reference events counted in any run into its true position and into the
values that the counters would have.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from emulator.linux.loader.elf import load_image
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from emulator.pmu import CSR_CONTROL, CSR_FIRST_HPM, CSR_LAST_HPM
from emulator.probes import EventCounter
from instrumenter.sampler_format import TRACE_PATH
from measure.errors import MeasureError, ended_with
from measure.ground_truth.reference_events import Kind, candidates, code_of_copies, kind_of, shared
from measure.result_files import write_atomically
from measure.run_types import RunSpec
from measure.runs.program_progress import EventCurve
from measure.targets.emulated import layout_of
from measure.targets.program_file import program_of

OBSERVATIONS = 50_000
"""Observations in a run: about 16 in each record of a trace of 3000 records."""
SHORTEST_STEP_INSTRUCTIONS = 200
ORDER_KINDS = 8
_FORMAT = 4


@dataclass(frozen=True)
class Calibration:
    """Reference events of a program, and the curves over them.

    ``reference_events``: names; ``rejected``: candidates that happen, but not equally often in all builds. ``curve``:
    of the plain program. ``metrics``: software metrics; ``software_progress`` ``(g,)`` and ``software`` ``(g, s)``:
    progress in the program's own instructions, and the counters' running totals at that progress. ``total_events``:
    reference events of a whole run. ``out_of_order``: fraction of the observations at which the most frequent kinds
    of reference events came in another order than in the other build; 0 unless something is wrong. ``file_name``:
    the file that keeps the calibration, "" for none.
    """

    reference_events: tuple[str, ...]
    rejected: tuple[str, ...]
    curve: EventCurve
    metrics: tuple[str, ...]
    software_progress: NDArray[np.float64]
    software: NDArray[np.int64]
    total_events: int
    out_of_order: float
    file_name: str = ""

    def counter_at(self, metric: str, progress: NDArray[np.float64]) -> NDArray[np.int64]:
        """Running total of a software metric at ``progress`` ``(n,)`` in the program's own instructions, ``(n,)``."""
        total = self.software[:, self.metrics.index(metric)]
        return np.floor(np.interp(progress, self.software_progress, total) + 0.5).astype(np.int64)


def calibrate(
    plain: RunSpec,
    counting: RunSpec,
    others: Sequence[RunSpec],
    *,
    binaries: Sequence[str] = (),
    place: Path | None = None,
    notify: Callable[[str], None] = lambda text: None,
) -> Calibration:
    """Find the reference events of a program and measure the curves over them.

    ``plain``: a run of the program itself; ``counting``: one of a build with all software metrics; ``others``: a run
    of each other build that must have the same reference events; ``binaries``: further programs that must have them.
    ``place``: directory that keeps the result. Raises `MeasureError` when a run fails or no event qualifies as a
    reference event.
    """
    key = _key([plain, counting, *others], binaries)
    kept = place / f"calibration-{key}.npz" if place is not None else None
    if kept is not None and kept.exists():
        try:
            return load_calibration(kept)
        except (OSError, ValueError, KeyError):
            pass  # damaged: calibrate again
    notify("Looking for events that are the same in all builds")
    specs = _different([plain, counting, *others])
    images = [load_image(program_of(spec)) for spec in specs]
    further = {Path(binary) for binary in binaries} - {Path(spec.binary) for spec in specs}
    names = shared([*images, *(load_image(binary) for binary in sorted(further))])
    counts = []
    length = 0
    for spec, image in zip(specs, images, strict=True):
        kinds = candidates(image)
        totals, instructions = count_events(spec, [kinds[name] for name in names])
        counts.append(dict(zip(names, totals, strict=True)))
        length = length or instructions
    happens = {name for name in names if any(one[name] for one in counts)}
    reference_events = tuple(n for n in names if n in happens and all(one[n] == counts[0][n] for one in counts))
    if not reference_events:
        raise MeasureError(
            "no call and no store happens equally often in all builds: expected a program that does the same in every "
            "run; without reference events true positions cannot be determined"
        )
    common = sorted(reference_events, key=lambda name: -counts[0][name])[:ORDER_KINDS]
    step = max(length // OBSERVATIONS, SHORTEST_STEP_INSTRUCTIONS)
    first, second = (_observe(spec, reference_events, common, step) for spec in (plain, counting))
    curve = EventCurve(first.events, first.instructions)
    result = Calibration(
        reference_events=reference_events,
        rejected=tuple(name for name in names if name in happens and name not in reference_events),
        curve=curve,
        metrics=tuple(counter.metric for counter in counting.counters),
        software_progress=curve.positions(second.events, second.instructions),
        software=second.counters,
        total_events=int(first.events[-1]),
        out_of_order=_out_of_order(first, second),
        file_name=kept.name if kept is not None else "",
    )
    if kept is not None:
        write_atomically(kept, lambda to: _save(result, to))
    return result


@dataclass(frozen=True)
class _Observed:
    """Running totals at each observation, ``(g, ...)``; the first is before the program starts, the last at its end."""

    instructions: NDArray[np.int64]
    events: NDArray[np.int64]
    kinds: NDArray[np.int64]
    counters: NDArray[np.int64]


class _NoCounters:
    """Hardware counters that an in-guest sampler may stop and read; all are 0."""

    def read_csr(self, number: int) -> int | None:
        return 0 if CSR_FIRST_HPM <= number <= CSR_LAST_HPM or number == CSR_CONTROL else None

    def write_control(self, value: int) -> None:
        """Ignored: nothing is counted."""


def _machine(spec: RunSpec, counter: EventCounter) -> Machine:
    stdin = Path(spec.stdin).read_bytes() if spec.stdin else b""
    mapped = {guest: Path(host) for guest, host in spec.files}
    files = VirtualFiles(mapped=mapped, capture={TRACE_PATH}, stdin=stdin, seed=spec.seed)
    # In the spec's own layout: what a program does at its start depends on its environment.
    layout, _ = layout_of(spec, np.random.default_rng([spec.seed, 7]))
    return Machine(
        program_of(spec), spec.arguments, files=files, layout=layout, consumers=[counter], counters=_NoCounters(),
        seed=spec.seed, name=spec.program_name,
        limit_instructions=spec.limit_instructions, background=False,
    )  # fmt: skip


def _check(machine: Machine, spec: RunSpec) -> None:
    assert machine.ending is not None
    if machine.ending.status != spec.exit_status:
        reason = machine.ending.message or ended_with(machine.ending.status, spec.exit_status)
        raise MeasureError(f"a run of {spec.variant} failed: {reason}")


def count_events(spec: RunSpec, kinds: Sequence[Kind]) -> tuple[list[int], int]:
    """Number of events of each kind in a whole run without a timing model, and the run's instructions."""
    counter = EventCounter(kinds, code_of_copies(load_image(program_of(spec))))
    with _machine(spec, counter) as machine:
        machine.run()
        _check(machine, spec)
        return counter.totals().tolist(), machine.instructions


def _observe(spec: RunSpec, reference_events: Sequence[str], common: Sequence[str], step: int) -> _Observed:
    """Run ``spec`` and observe it every ``step`` instructions; ``common``: kinds that are counted one by one, too."""
    image = load_image(program_of(spec))
    kinds = [kind_of(image, reference_events), *(kind_of(image, [name]) for name in common)]
    counter = EventCounter(kinds, code_of_copies(image))
    places = []
    for metric, symbol, offset in spec.counters:
        found = image.find_symbol(symbol)
        if found is None:
            raise MeasureError(f"the program has no symbol {symbol}: the counter of {metric} cannot be read")
        places.append(found.address + offset)
    observed: list[list[int]] = []
    counts = [counter.totals()]
    with _machine(spec, counter) as machine:
        software = machine.counter_totals(places)
        observed.append([0, *(0 for _ in places)])
        running = True
        while running:
            running = machine.advance_to_instructions(machine.instructions + step)
            machine.drain()
            counts.append(counter.totals())
            observed.append([machine.instructions, *software.read()])
        _check(machine, spec)
    values, totals = np.array(observed, np.int64), np.array(counts, np.int64)
    return _Observed(values[:, 0], totals[:, 0], totals[:, 1:], values[:, 1:])


def _out_of_order(first: _Observed, second: _Observed) -> float:
    """Fraction of the observations of ``second`` with a kind outside the neighbouring observations of ``first``."""
    after = np.minimum(np.searchsorted(first.events, second.events, "left"), len(first.events) - 1)
    before = np.searchsorted(first.events, second.events, "right") - 1
    low, high = first.kinds[np.minimum(before, after)], first.kinds[np.maximum(before, after)]
    wrong = ((second.kinds < low) | (second.kinds > high)).any(axis=1)
    return float(wrong.mean())


def _different(specs: Sequence[RunSpec]) -> list[RunSpec]:
    return list({(spec.binary, spec.layout_seed): spec for spec in specs}.values())


def _key(specs: Sequence[RunSpec], binaries: Sequence[str]) -> str:
    from measure.runs.plan import content_keys

    text = json.dumps([_FORMAT, OBSERVATIONS, *content_keys(specs), *sorted(binaries)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _save(result: Calibration, path: Path) -> None:
    with path.open("wb") as file:
        np.savez_compressed(
            file, reference_events=np.array(result.reference_events), rejected=np.array(result.rejected, np.str_),
            metrics=np.array(result.metrics, np.str_), curve_events=result.curve.events,
            curve_instructions=result.curve.instructions, software_progress=result.software_progress,
            software=result.software, facts=np.array([result.total_events, result.out_of_order]),
        )  # fmt: skip


def load_calibration(path: Path) -> Calibration:
    """The calibration that `calibrate` kept in a file. Raises OSError, ValueError or KeyError for a damaged file."""
    try:
        with np.load(path) as kept:
            total, out_of_order = kept["facts"]
            reference_events, rejected, metrics = (
                tuple(str(name) for name in kept[field]) for field in ("reference_events", "rejected", "metrics")
            )
            curve = EventCurve(kept["curve_events"], kept["curve_instructions"])
            return Calibration(
                reference_events, rejected, curve, metrics, kept["software_progress"], kept["software"], int(total),
                float(out_of_order), path.name,
            )  # fmt: skip
    except (EOFError, zipfile.BadZipFile, zlib.error) as error:  # an empty file, and a truncated or altered one
        raise ValueError(f"{path}: {error}") from error
