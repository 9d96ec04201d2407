"""By which mechanism counters change relations: counterfactual runs of the same binary, in every combination.

Each mechanism is an intervention that is on or off. Counters' instructions execute, and either take issue slots and
count, or not. Their loads and stores go through caches and TLBs, or not. Code and data are seen where the instrumented
program has them, or where the plain one has. With sampling by signals, the sampler runs in the program, or not. The
combinations of one order of switching them on and its reverse are run; if a mechanism is shown to add otherwise in one
than in the other, all are, and the parts are Shapley values: no order of the interventions is preferred. With all of
them off, what differs from the plain program is what the compiler made otherwise, which cannot be switched off: it is
the first in every order, and the others' parts are what they add beside it. Parts add up to the whole change in every
pair of runs.

Probes are counters that the machine does not see, in the campaign's runs as here: none of their instructions, accesses
and addresses changes anything, so that what is left of them are the compiler's decisions. In a program with probes
and other counters, the instructions and the accesses of the others are one mechanism: an intervention has one set of
instructions, here those of the probes, whose time and accesses it hides; it cannot hide only the accesses of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from measure.explanation.explanation_types import LEVEL, Change, Part, direction, estimate, ordered, share_text
from measure.explanation.lattice import dividends, shapley_values, subsets
from measure.explanation.orders import INTERACTION, agree, sets_of, steps_of
from measure.explanation.paired_runs import PLAIN, PairedRuns, ProgramChoice
from measure.explanation.record_cuts import change_by_cuts
from measure.explanation.relations import Relations
from measure.program_code.code_layout import LayoutMoves, layout_moves
from measure.program_code.counter_code import CounterCode
from measure.run_types import Intervention, Run, RunSpec

EXECUTED = "executed instructions"
ACCESSES = "their memory accesses"
LAYOUT = "layout of code and data"
COMPILER = "compiler decisions"
SAMPLER = "the sampler"
BESIDE_PROBES = "executed instructions and their accesses"
_ABOUT = {
    EXECUTED: "the counters' instructions take cycles and count as events",
    ACCESSES: "the counters' loads and stores go through caches and TLBs",
    LAYOUT: "code and data lie at other addresses than in the plain program",
    COMPILER: "the compiler made the rest of the program otherwise; first in every order, as it cannot be switched off",
    SAMPLER: "the sampler runs in the program, and reads counters that the plain program lacks",
    BESIDE_PROBES: "counters that are no probes take cycles, count as events, and their accesses go through caches",
}
CUT_PAIRS = 3  # in which records are also cut by the program's progress
State = frozenset[str]


@dataclass(frozen=True)
class Mechanisms:
    """The parts of the change, and facts that the interventions rest on.

    ``cuts``: the part of the change, (n, n_relations), in the first n pairs, that goes when records are cut by the
    program's progress; it is not a further part, for other mechanisms move the cuts; None if that was not measured.
    ``code``: the counters' instructions, in the program as it was built; ``own_ratio``: instructions of the program
    without its counters', over those of the plain program.
    """

    change: Change
    cuts: NDArray[np.float64] | None
    code: CounterCode
    own_ratio: float


def find_mechanisms(
    paired: PairedRuns, choice: ProgramChoice, relations: Relations, *, with_cuts: bool = True
) -> Mechanisms:  # fmt: skip
    """The part of each mechanism in the change of ``relations`` by the program ``choice``. ``with_cuts``: also make the
    runs for `Mechanisms.cuts`."""
    signal = paired.samples_by_signal(choice)
    ideal = _Sampled(paired, replace(choice, sampling="ideal") if signal else choice)
    factors = [*ideal.factors, *([SAMPLER] if signal else [])]
    sampled = {False: ideal, True: _Sampled(paired, choice) if signal else ideal}
    values: dict[State, NDArray[np.float64]] = {}

    def measure(states: Iterable[State]) -> None:
        specs = {state: sampled[SAMPLER in state].specs(state) for state in states if state not in values}
        made = paired.make([spec for of_state in specs.values() for spec in of_state])
        for k, state in enumerate(specs):
            runs, plain = made[k * paired.n_pairs : (k + 1) * paired.n_pairs], sampled[SAMPLER in state].plain_runs
            values[state] = relations.values(runs, plain) - relations.values(plain, plain)

    orders = factors, factors[::-1]
    measure(sets_of(orders))
    if not agree(steps_of(values, orders), values[frozenset(factors)]):
        measure(subsets(factors))
    change = parts_of_states(values, factors)
    few = paired.first(min(paired.n_pairs, CUT_PAIRS))
    cuts = None
    if with_cuts and not signal and BESIDE_PROBES not in factors:  # where counters would count as progress
        cuts = change_by_cuts(few, choice, relations, ideal.codes[: few.n_pairs])
    own_ratio = ideal.codes[0].own / ideal.plain_runs[0].total_instructions
    return Mechanisms(change, cuts, ideal.as_built, own_ratio)


def parts_of_states(values: dict[State, NDArray[np.float64]], factors: Sequence[str]) -> Change:
    """The change and its parts, from the change of z, (n_pairs, n_relations), with sets of ``factors`` at work: all, or
    those of the order of ``factors`` and of its reverse.

    Where a relation is not defined with some set, as that of a metric without events, its change is nan.
    """
    undefined = np.any([np.isnan(one) for one in values.values()], axis=0)
    values = {state: np.where(undefined, np.nan, one) for state, one in values.items()}
    whole = values[frozenset(factors)]
    if len(values) == 2 ** len(factors):
        found = shapley_values(values, factors)
        interactions = _interactions(values, found)
    else:
        found = {name: np.mean(of, axis=0) for name, of in steps_of(values, (factors, factors[::-1])).items()}
        interactions = []
    parts = [Part(name, _ABOUT[name], part) for name, part in found.items()]
    parts.append(Part(COMPILER, _ABOUT[COMPILER], values[frozenset()]))
    return ordered(whole, parts, interactions)


def _interactions(
    values: dict[State, NDArray[np.float64]], parts: Mapping[str, NDArray[np.float64]]
) -> list[str]:  # fmt: skip
    """Sentences on what factors do only together, which share the error (Bonferroni). ``values``: of all sets of them;
    ``parts``: Shapley value of each."""
    weights, together_by_names = direction(values[frozenset(parts)]), dividends(values, list(parts))
    small = {name for name, part in parts.items() if estimate(np.nansum(part * weights, axis=1)).includes_zero}
    interactions = []
    for names, together in together_by_names.items():
        shares = np.nansum(together * weights, axis=1)
        share = estimate(shares)
        if estimate(shares, 1 - (1 - LEVEL) / len(together_by_names)).excludes_zero and abs(share.mean) > INTERACTION:
            listed = " and ".join(name for name in parts if name in names)
            what = "comes only with both" if share.mean > 0 else "goes when both are there"
            what = what.replace("both", "all of them") if len(names) > 2 else what
            size = share_text(estimate(np.sign(share.mean) * shares))
            unsure = [f"; the whole share of {name} cannot be told from 0" for name in parts if name in names & small]
            interactions.append(
                f"{listed} interact: {size} of the change {what}, and is given to them in equal parts{''.join(unsure)}"
            )
    return interactions


class _Sampled:
    """The program ``choice`` and the plain one with the same sampler; what interventions on the first need.

    ``factors``: the mechanisms by which counters that the machine sees can change relations, none without such; without
    probes, see the module.
    """

    def __init__(self, paired: PairedRuns, choice: ProgramChoice) -> None:
        self._paired, self._choice = paired, choice
        self._plain = replace(PLAIN, sampling=choice.sampling)
        self.plain_runs: list[Run] = paired.runs([choice, self._plain])[self._plain]
        self.as_built = paired.code_as_built(choice, choice.metrics)
        self.codes = self._codes(choice.metrics)
        self._unseen = self._codes(choice.unseen) if choice.unseen else []
        self._moves: dict[tuple[str, tuple[int, ...]], LayoutMoves] = {}
        seen = set(choice.metrics) - set(choice.unseen)
        self.factors = [EXECUTED, ACCESSES, LAYOUT]
        if choice.unseen:
            self.factors = [BESIDE_PROBES, LAYOUT] if seen else []

    def specs(self, state: State) -> list[RunSpec]:
        """The runs, a pair each, in which only the mechanisms of ``state`` are at work."""
        pairs = range(self._paired.n_pairs)
        untouched = state.issuperset(self.factors)
        changes = [None if untouched else self._change(state, pair) for pair in pairs]
        return [self._paired.spec(self._choice, pair, change) for pair, change in zip(pairs, changes, strict=True)]

    def _change(self, state: State, pair: int) -> Intervention:
        """The intervention that leaves only the mechanisms of ``state`` at work; probes are unseen in each."""
        probes = bool(self._unseen)
        code = self._unseen[pair] if BESIDE_PROBES in state else self.codes[pair]
        moves = LayoutMoves((), ()) if LAYOUT in state else self._moves_of(pair, code.instructions)
        return Intervention(
            instructions=code.instructions,
            free=probes or EXECUTED not in state,
            uncached=probes or ACCESSES not in state,
            code_moves=moves.code,
            data_moves=moves.data,
        )

    def _codes(self, metrics: Sequence[str]) -> list[CounterCode]:
        """The code of the counters of ``metrics`` in each pair's program."""
        return [self._paired.code(self._choice, pair, metrics) for pair in range(self._paired.n_pairs)]

    def _moves_of(self, pair: int, instructions: tuple[int, ...]) -> LayoutMoves:
        """The moves to the plain program's layout, where ``instructions`` take no space."""
        counted, plain = (self._paired.placed(one, pair).binary for one in (self._choice, self._plain))
        key = counted, instructions
        if key not in self._moves:
            self._moves[key] = layout_moves(Path(counted), Path(plain), instructions)
        return self._moves[key]
