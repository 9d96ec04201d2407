"""By which mechanism counters change relations: counterfactual runs of the same binary, one intervention after another.

The instrumented run becomes the plain one in steps, and the change of z at each step is the part of what the step takes
away: the counters' accesses to caches, their execution, the layout of code and data, and what the compiler made
otherwise. In one chain records are cut by time all the way. In another the first step cuts them where the plain run has
its cuts, which is the part of interval boundaries. Parts are means over both chains; they add up to the whole change in
every pair of runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from emulator.linux.loader.elf import load_image
from measure.campaign.run_types import BEFORE, PROBE, Intervention, ProbePlaces, Run, RunSpec
from measure.explanation.code_layout import LayoutMoves, layout_moves
from measure.explanation.counter_code import CounterCode
from measure.explanation.explanation_types import Change, Part, direction, estimate, ordered
from measure.explanation.paired_runs import PLAIN, PairedRuns, ProgramChoice

EXECUTED = "executed instructions"
ACCESSES = "their memory accesses"
LAYOUT = "layout of code and data"
COMPILER = "compiler decisions"
BOUNDARIES = "interval boundaries"
SAMPLER = "the sampler"
_ABOUT = {
    EXECUTED: "the counters' instructions take cycles and count as events",
    ACCESSES: "the counters' loads and stores go through caches and TLBs",
    LAYOUT: "code and data lie at other addresses than in the plain program",
    COMPILER: "the compiler made the rest of the program otherwise",
    BOUNDARIES: "records end at other places of the program",
    SAMPLER: "the sampler runs in the program, in both",
}
_INTERACTION = 0.1  # of the whole change, from which an interaction is said


@dataclass(frozen=True)
class Mechanisms:
    """The parts of the change, and facts that the interventions rest on.

    ``free_runs``: runs whose counters cost nothing; ``code``: the counters' instructions, of the first layout;
    ``moves``: of the first layout; ``own_ratio``: instructions of the program without its counters', over those of the
    plain program.
    """

    change: Change
    free_runs: list[Run]
    code: CounterCode
    moves: LayoutMoves
    own_ratio: float


def find_mechanisms(paired: PairedRuns, choice: ProgramChoice, kept: Sequence[int]) -> Mechanisms:
    """The part of each mechanism in the change of the relations ``kept`` (indices) by the program ``choice``."""
    signal = (choice.sampling or paired.campaign.sampling.mode) == "signal"
    ideal, plain = (replace(one, sampling="ideal") if signal else one for one in (choice, PLAIN))
    made = paired.runs([ideal, plain, choice, replace(PLAIN, sampling=choice.sampling)])
    full, base = made[ideal], made[plain]
    codes = [paired.unseen.code(paired.spec(ideal, pair), ideal.metrics) for pair in range(paired.n_pairs)]
    moves: dict[int, LayoutMoves] = {}
    for pair in range(paired.n_pairs):
        if paired.layout(pair) not in moves:
            binaries = Path(paired.spec(ideal, pair).binary), Path(paired.spec(plain, pair).binary)
            moves[paired.layout(pair)] = layout_moves(*binaries, codes[pair].instructions)
    clock = _shared_entries(codes[0], paired.unseen.code(paired.spec(plain, 0), ()), base[0])
    cut_base = base
    if clock:
        cut_base = paired.make([_clocked(paired.spec(plain, pair), clock) for pair in range(paired.n_pairs)])
    nothing = replace(codes[0], instructions=(), executed=())
    base_at_events = base
    if clock:
        specs = [paired.spec(plain, pair) for pair in range(paired.n_pairs)]
        cuts = [_cut(nothing, run, spec, clock) for run, spec in zip(cut_base, specs, strict=True)]
        base_at_events = paired.make([replace(spec, intervention=cut) for spec, cut in zip(specs, cuts, strict=True)])
    chains: list[list[Intervention]] = [[] for _ in range(_N_STATES)]
    for pair, code in enumerate(codes):
        cut = _cut(code, cut_base[pair], paired.spec(ideal, pair), clock)
        for state, intervention in enumerate(_interventions(code, cut, moves[paired.layout(pair)])):
            chains[state].append(intervention)
    specs = [paired.spec(ideal, pair, one) for state in chains for pair, one in enumerate(state)]
    runs = paired.make(specs)
    n = paired.n_pairs
    states = [runs[k * n : (k + 1) * n] for k in range(_N_STATES)]

    def z(of: Sequence[Run]) -> NDArray[np.float64]:
        return paired.z(of)[:, list(kept)]

    whole_ideal = z(full) - z(base)
    change = _parts(z(full), [z(state) for state in states], z(base), z(base_at_events))
    if signal:
        whole = z(made[choice]) - z(made[replace(PLAIN, sampling=choice.sampling)])
        sampler = Part(SAMPLER, _ABOUT[SAMPLER], whole - whole_ideal)
        change = ordered(whole, [*change.parts, sampler], change.interactions)
    return Mechanisms(change, states[4], codes[0], moves[paired.layout(0)], codes[0].own / base[0].total_instructions)


_N_STATES = 7
_CLOCK = "entries of shared functions"
_FEWEST_EVENTS = 8  # of the clock in a record


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
    image = load_image(Path(spec.binary))
    symbols = [image.find_symbol(name) for name in functions]
    return tuple(sorted(symbol.address for symbol in symbols if symbol is not None))


def _cut(code: CounterCode, base: Run, spec: RunSpec, clock: Sequence[str]) -> Intervention:
    """The intervention that cuts the records of ``spec`` where the plain run ``base`` has its cuts.

    By the entries of ``clock``; without, by instructions, in proportion to the whole run.
    """
    plain = Intervention(instructions=code.instructions)
    if clock:
        before, within = base.trace.columns((f"{BEFORE}{_CLOCK}", f"{PROBE}{_CLOCK}")).T
        boundaries = tuple(int(count) for count in [*before, before[-1] + within[-1]])
        return replace(plain, boundaries=boundaries, progress_at=_places(spec, clock))
    cuts = base.trace.boundaries_instructions * (code.own / base.total_instructions)
    return replace(plain, boundaries=tuple(int(cut) for cut in np.round(cuts)))


def _interventions(code: CounterCode, cut: Intervention, moves: LayoutMoves) -> tuple[Intervention, ...]:
    """The states of one pair: three with the plain run's cuts, three without, and the common end of both chains."""
    plain = Intervention(instructions=code.instructions)
    moved = {"free": True, "code_moves": moves.code, "data_moves": moves.data}
    return (
        cut, replace(cut, uncached=True), replace(cut, free=True), replace(plain, uncached=True),
        replace(plain, free=True), replace(plain, **moved), replace(cut, **moved),  # type: ignore[arg-type]
    )  # fmt: skip


def _parts(
    full: NDArray[np.float64],
    states: Sequence[NDArray[np.float64]],
    base: NDArray[np.float64],
    base_cut: NDArray[np.float64],
) -> Change:
    """The parts, as means over the chain that takes the cuts away first and the one that does it last.

    ``base_cut``: the plain program, cut by the same clock as the states: what the clock itself changes is in both.
    """
    cut, cut_uncached, cut_free, uncached, free, free_moved, end = states
    clock = base - base_cut
    first = {
        BOUNDARIES: full - cut - clock, ACCESSES: cut - cut_uncached, EXECUTED: cut_uncached - cut_free,
        LAYOUT: cut_free - end, COMPILER: end - base_cut,
    }  # fmt: skip
    last = {
        ACCESSES: full - uncached, EXECUTED: uncached - free, LAYOUT: free - free_moved, COMPILER: free_moved - base,
        BOUNDARIES: np.zeros_like(full),
    }  # fmt: skip
    parts = [Part(name, _ABOUT[name], (first[name] + last[name]) / 2) for name in first]
    weights = direction(full - base)
    interactions = []
    late = estimate(np.nansum((first[BOUNDARIES] - last[BOUNDARIES]) * weights, axis=1))
    if late.excludes_zero and abs(late.mean) > _INTERACTION:
        partner = max((n for n in first if n != BOUNDARIES), key=lambda n: _size((first[n] - last[n]) * weights))
        interactions.append(
            f"{partner} and {BOUNDARIES} interact: {abs(late.mean):.0%} of the change goes when records are cut where "
            "the plain run has its cuts, and half of that is given to each"
        )
    return ordered(full - base, parts, interactions)


def _size(values: NDArray[np.float64]) -> float:
    return abs(float(np.nansum(values, axis=1).mean()))
