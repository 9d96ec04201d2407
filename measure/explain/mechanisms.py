"""By which mechanism counters change relations: counterfactual runs of the same binary, one intervention after another.

The instrumented run becomes the plain one in steps, and the change of z at each step is the part of what the step takes
away: the cut of the records, the counters' accesses to caches, their execution, the layout of code and data, and at
last what the compiler made otherwise. The parts add up to the whole change in every pair of runs. The cut of records
is taken away first in one chain and last in another; parts are means over both, and their difference is interaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from measure.campaign.run_types import Intervention, Run
from measure.explain.code_layout import LayoutMoves, layout_moves
from measure.explain.counter_code import CounterCode
from measure.explain.explanation_types import Change, Part, direction, estimate, ordered
from measure.explain.paired_runs import PLAIN, PairedRuns, ProgramChoice

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
    chains: list[list[Intervention]] = [[] for _ in range(_N_STATES)]
    for pair, code in enumerate(codes):
        for state, intervention in enumerate(_interventions(code, base[pair], moves[paired.layout(pair)])):
            chains[state].append(intervention)
    specs = [paired.spec(ideal, pair, one) for state in chains for pair, one in enumerate(state)]
    runs = paired.make(specs)
    n = paired.n_pairs
    states = [runs[k * n : (k + 1) * n] for k in range(_N_STATES)]

    def z(of: Sequence[Run]) -> NDArray[np.float64]:
        return paired.z(of)[:, list(kept)]

    whole_ideal = z(full) - z(base)
    change = _parts(z(full), [z(state) for state in states], z(base))
    if signal:
        whole = z(made[choice]) - z(made[replace(PLAIN, sampling=choice.sampling)])
        sampler = Part(SAMPLER, _ABOUT[SAMPLER], whole - whole_ideal)
        change = ordered(whole, [*change.parts, sampler], change.interactions)
    return Mechanisms(change, states[4], codes[0], moves[paired.layout(0)], codes[0].own / base[0].total_instructions)


_N_STATES = 7


def _interventions(code: CounterCode, base: Run, moves: LayoutMoves) -> tuple[Intervention, ...]:
    """The states of one pair: three with the plain run's cuts, three without, and the common end of both chains."""
    cuts = base.trace.boundaries_instructions * (code.own / base.total_instructions)
    boundaries = tuple(int(cut) for cut in np.round(cuts))
    plain = Intervention(instructions=code.instructions)
    cut = replace(plain, boundaries=boundaries)
    moved = {"free": True, "code_moves": moves.code, "data_moves": moves.data}
    return (
        cut, replace(cut, uncached=True), replace(cut, free=True), replace(plain, uncached=True),
        replace(plain, free=True), replace(plain, **moved), replace(cut, **moved),  # type: ignore[arg-type]
    )  # fmt: skip


def _parts(
    full: NDArray[np.float64], states: Sequence[NDArray[np.float64]], base: NDArray[np.float64]
) -> Change:  # fmt: skip
    """The parts, as means over the chain that takes the cuts away first and the one that does it last."""
    cut, cut_uncached, cut_free, uncached, free, free_moved, end = states
    first = {
        BOUNDARIES: full - cut, ACCESSES: cut - cut_uncached, EXECUTED: cut_uncached - cut_free, LAYOUT: cut_free - end
    }  # fmt: skip
    last = {
        ACCESSES: full - uncached, EXECUTED: uncached - free, LAYOUT: free - free_moved, BOUNDARIES: free_moved - end
    }  # fmt: skip
    parts = [Part(name, _ABOUT[name], (first[name] + last[name]) / 2) for name in first]
    parts.append(Part(COMPILER, _ABOUT[COMPILER], end - base))
    weights = direction(full - base)
    interactions = []
    late = estimate(np.nansum((first[BOUNDARIES] - last[BOUNDARIES]) * weights, axis=1))
    if late.excludes_zero and abs(late.mean) > _INTERACTION:
        partner = max((n for n in first if n != BOUNDARIES), key=lambda n: _size((first[n] - last[n]) * weights))
        interactions.append(
            f"{partner} and {BOUNDARIES} interact: {abs(late.mean):.0%} of the change belong to both, half of it is "
            "given to each"
        )
    return ordered(full - base, parts, interactions)


def _size(values: NDArray[np.float64]) -> float:
    return abs(float(np.nansum(values, axis=1).mean()))
