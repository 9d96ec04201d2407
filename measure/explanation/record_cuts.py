"""Records cut where the plain run has its cuts: by the program's own progress instead of time.

Progress is counted in the program's own instructions. Where the compiler made these otherwise, it is counted in entries
of functions that both programs enter equally often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from measure.explanation.paired_runs import PLAIN, PairedRuns, ProgramChoice
from measure.explanation.relations import Relations
from measure.program_code.counter_code import CounterCode, program_image
from measure.run_types import BEFORE, PROBE, Intervention, ProbePlaces, Run, RunSpec

_CLOCK = "entries of shared functions"
_FEWEST_EVENTS = 8  # of the clock in a record


def change_by_cuts(
    paired: PairedRuns, choice: ProgramChoice, relations: Relations, codes: Sequence[CounterCode]
) -> NDArray[np.float64]:
    """The part of the change, (n_pairs, n_relations), that goes when the records of ``choice`` are cut where the plain
    run has its cuts and nothing else differs. ``codes``: the counters' code in each pair's program."""
    plain = paired.runs([PLAIN])[PLAIN]
    full = paired.runs([choice])[choice]
    clock = _shared_entries(codes[0], paired.code(PLAIN, 0, ()), plain[0])
    plain_cut = plain
    cut_base = plain
    if clock:
        specs = [paired.placed(PLAIN, pair) for pair in range(paired.n_pairs)]
        cut_base = paired.make([_clocked(spec, clock) for spec in specs])
        nothing = replace(codes[0], instructions=(), executed=())
        cuts = [_cut(nothing, run, spec, clock) for run, spec in zip(cut_base, specs, strict=True)]
        plain_cut = paired.make([replace(spec, intervention=cut) for spec, cut in zip(specs, cuts, strict=True)])
    wanted = []
    for pair, code in enumerate(codes):
        spec = paired.spec(choice, pair) if choice.unseen else paired.placed(choice, pair)
        cut = _cut(code, cut_base[pair], spec, clock)
        wanted.append(paired.spec(choice, pair, cut))
    made = paired.make(wanted)
    # What the clock itself changes is in both programs.
    return (relations.values(full, plain) - relations.values(plain, plain)) - (
        relations.values(made, plain_cut) - relations.values(plain_cut, plain_cut)
    )


def _shared_entries(code: CounterCode, plain: CounterCode, base: Run) -> tuple[str, ...]:
    """Functions whose entries are the clock by which records are cut: entered equally often in both programs.

    None where both execute the same instructions beside the counters', which are then the finer clock, and where
    entries are too rare.
    """
    if code.own == plain.total:
        return ()
    found = [name for name, count in plain.entries.items() if code.entries.get(name) == count]
    enough = sum(plain.entries[name] for name in found) >= _FEWEST_EVENTS * base.trace.n_records
    return tuple(found) if enough else ()


def _clocked(spec: RunSpec, clock: Sequence[str]) -> RunSpec:
    """``spec`` with a probe of the entries of the functions ``clock``."""
    return replace(spec, probes=(ProbePlaces(_CLOCK, _places(spec, clock), ()),))


def _places(spec: RunSpec, functions: Sequence[str]) -> tuple[int, ...]:
    image = program_image(Path(spec.binary))
    symbols = [image.find_symbol(name) for name in functions]
    return tuple(sorted(symbol.address for symbol in symbols if symbol is not None))


def _cut(code: CounterCode, base: Run, spec: RunSpec, clock: Sequence[str]) -> Intervention:
    """The intervention that cuts the records of ``spec`` where the plain run ``base`` has its cuts, beside the one that
    it has.

    By the entries of ``clock``; without, by instructions, in proportion to the whole run.
    """
    plain = spec.intervention or Intervention(instructions=code.instructions)
    if clock:
        before, within = base.trace.columns((f"{BEFORE}{_CLOCK}", f"{PROBE}{_CLOCK}")).T
        boundaries = tuple(int(count) for count in [*before, before[-1] + within[-1]])
        return replace(plain, boundaries=boundaries, progress_at=_places(spec, clock))
    cuts = base.trace.boundaries_instructions * (code.own / base.total_instructions)
    return replace(plain, boundaries=tuple(int(cut) for cut in np.round(cuts)))
