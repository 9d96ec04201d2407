"""Remedies, tried: each is built and run in pairs with the plain program, and judged as the variant was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from measure.errors import MeasureError
from measure.explanation.explanation_types import BEST_FIRST, CAUSE, Change, Remedy
from measure.explanation.paired_runs import PLAIN, PairedRuns, ProgramChoice
from measure.explanation.relations import Relations, broken_relations
from measure.explanation.remedy_candidates import Candidate
from measure.perturbation.analysis_types import BROKEN, Perturbation
from measure.perturbation.perturbation import Memo, inner_perturbation, outer_perturbation
from measure.run_types import PLACE_GAP, Run, Trace

CONFIRMING_PAIRS = 10
"""Further pairs of runs for the best remedies: as many as a campaign has by default."""
CONFIRMING_SHARES = (0.5, 0.25, 0.25)
"""Shares of the campaign's level that the best remedies have when they are judged again, the first, the second and the
third. Few pairs rank remedies; the later ones are judged again only if none before is equivalent."""
HOPELESS = 2.0  # times delta


@dataclass(frozen=True)
class Tried:
    """Remedies that were tried, the best first, and why others could not be."""

    remedies: tuple[Remedy, ...]
    refused: tuple[str, ...]


class Judge:
    """Judges runs in pairs with those of the plain program, by the campaign's delta and level: within a run and across
    runs where the variant's relations are broken, and elsewhere if a remedy breaks them.

    ``relations``: the relations that are broken in the variant.
    """

    def __init__(self, paired: PairedRuns, relations: Relations) -> None:
        self._paired, self._relations = paired, relations
        self._plain = paired.runs([PLAIN])[PLAIN]
        self._memo: Memo = {}

    def __call__(self, runs: Sequence[Run], share: float = 1) -> Perturbation:
        """The worse of both verdicts that count; ``share``: of the campaign's level."""
        alpha, broken = share * self._paired.campaign.alpha, self._relations.chosen
        inner = self._inner(runs, alpha)
        outer = self._outer(runs, alpha) if self._paired.campaign.outer else None
        counted = [
            one for one, found in ((inner, any(a != b for a, b in broken)), (outer, any(a == b for a, b in broken)))
            if one is not None and (found or broken_relations(one))
        ]  # fmt: skip
        return max(counted, key=lambda one: (BEST_FIRST.index(one.verdict), largest_change(one)))

    def _inner(self, runs: Sequence[Run], alpha: float) -> Perturbation:
        campaign, correlations = self._paired.campaign, self._paired.correlations
        return inner_perturbation(
            correlations(self._plain), correlations(runs), paired=True, delta=campaign.delta, alpha=alpha,
            seed=campaign.seed,
        )  # fmt: skip

    def _outer(self, runs: Sequence[Run], alpha: float) -> Perturbation:
        campaign = self._paired.campaign
        plain, others = (
            [run.trace.counts(self._paired.hardware) for run in side] for side in (self._plain, runs)
        )  # fmt: skip
        return outer_perturbation(
            plain, others, self._paired.hardware, held_out=True, paired=True,
            alignment=campaign.alignment_setting, delta=campaign.delta, alpha=alpha, seed=campaign.seed,
            memo=self._memo,
        )  # fmt: skip


def try_remedies(
    paired: PairedRuns, relations: Relations, choice: ProgramChoice, wanted: Sequence[Candidate], mechanisms: Change,
    confirming: Callable[[], None] = lambda: None,
) -> Tried:  # fmt: skip
    """Run and judge each candidate. One whose program cannot be built or run is refused with the reason, and so is one
    against what is no cause of the change, ``mechanisms``.

    The best of many looks better than it is. It is judged again, in further pairs of runs, and if it is not equivalent
    there, so are the next ones; these share the campaign's level (`CONFIRMING_SHARES`). None is judged again that
    leaves more than `HOPELESS` times delta: the first pairs, which may be too few for verdicts, only choose. Where the
    relations are equivalent by construction with a remedy, that is not judged again, and of those for any machine only
    the best, if the first pairs show it to be equivalent, and none if one of them is so by construction. What leaves no
    software metric to count is equivalent by construction, too, but spares no judging: it has no campaign.
    ``confirming`` is called before remedies are judged again.
    """
    known = [(candidate, _needless(candidate, mechanisms)) for candidate in wanted]
    refused = [f"{candidate.name}: {reason}" for candidate, reason in known if reason]
    wanted = [candidate for candidate, reason in known if not reason]
    ranked: list[tuple[Remedy, Candidate]] = []
    judge = Judge(paired, relations)
    (counted,) = paired.runs([choice]).values()
    named = {candidate.unless for candidate in wanted}
    for first in (True, False):
        helping = {remedy.name for remedy, _ in ranked if remedy.helps}
        batch = [candidate for candidate in wanted if (candidate.name in named) == first]
        refused += [f"{one.name}: {one.unless} gives up less" for one in batch if one.unless in helping]
        batch = [one for one in batch if one.unless not in helping]
        _make_together(paired, batch)
        for candidate in batch:
            try:
                ranked.append((_tried(paired, judge, candidate, counted[0]), candidate))
            except MeasureError as error:
                refused.append(f"{candidate.name}: {error}")
    ranked.sort(key=lambda one: one[0].rank)
    remedies = [remedy for remedy, _ in ranked]
    solved = any(one.by_construction and candidate.counts for one, candidate in ranked)
    most = HOPELESS * paired.campaign.delta
    promising = [
        n for n, (one, candidate) in enumerate(ranked)
        if one.verdict not in BROKEN and not one.left > most and (candidate.counts or not one.by_construction)
    ]  # fmt: skip
    if solved:
        promising = [n for n in promising if remedies[n].on_any_machine and remedies[n].verdict == "equivalent"]
        if any(remedies[n].by_construction for n in promising):
            promising = []
    if promising:
        confirming()
        further = paired.further(CONFIRMING_PAIRS)
        judge = Judge(further, relations)
        shares = (1.0,) if solved else CONFIRMING_SHARES
        for n, share in zip(promising, shares, strict=False):
            again = _tried(further, judge, ranked[n][1], share=share)
            remedies[n] = replace(
                again, gives_up=remedies[n].gives_up, confirming_pairs=CONFIRMING_PAIRS, by_construction=False
            )
            if remedies[n].helps:
                break
    return Tried(tuple(sorted(remedies, key=lambda one: one.rank)), tuple(refused))


def _needless(candidate: Candidate, mechanisms: Change) -> str:
    """Why ``candidate`` cannot help, or not be used, "" if it may."""
    if candidate.unfit:
        return candidate.unfit
    known = {part.name: mechanisms.share(part).mean for part in mechanisms.parts}
    named = [name for name in candidate.against if name in known] or candidate.against[:1]
    shares = {name: known.get(name, 0.0) for name in named}
    if not candidate.against or any(abs(share) >= CAUSE for share in shares.values()):
        return ""
    return "it is against " + " and ".join(f"{name} ({share:z.0%} of the change)" for name, share in shares.items())


def _make_together(paired: PairedRuns, wanted: Sequence[Candidate]) -> None:
    """Make the runs of all candidates, at once; an error is left to the candidate by itself."""
    with suppress(MeasureError):
        paired.runs([one for candidate in wanted for one in candidate.runs_of])


def _tried(
    paired: PairedRuns, judge: Judge, candidate: Candidate, counted: Run | None = None, share: float = 1
) -> Remedy:  # fmt: skip
    """Run a candidate in the pairs of ``paired`` and judge it. Raises `MeasureError` when it cannot be run.

    ``counted``: the variant's first run, with whose counts the candidate's are compared; ``share``: of the campaign's
    level.
    """
    made = paired.runs([*candidate.runs_of, PLAIN])
    same = all(
        np.array_equal(run.trace.counts(paired.hardware), base.trace.counts(paired.hardware))
        for one in candidate.runs_of
        for run, base in zip(made[one], made[PLAIN], strict=True)
    )
    judged = [judge(made[one], share) for one in candidate.runs_of]
    worst = max(judged, key=lambda one: (BEST_FIRST.index(one.verdict), largest_change(one)))
    cycles = max(_overhead_percent(made[one], made[PLAIN]) for one in candidate.runs_of)
    lost = [_placed(made[one], made[PLAIN]) for one in candidate.runs_of]
    lost += [] if counted is None else [_other_counts(counted, made[one][0]) for one in candidate.runs_of]
    return Remedy(
        candidate.name, candidate.about, "equivalent" if same else worst.verdict, worst, largest_change(worst),
        cycles, "; ".join([candidate.gives_up, *filter(None, lost)]), candidate.campaign,
        by_construction=same, on_any_machine=not any(one.second_run or one.unseen for one in candidate.runs_of),
    )  # fmt: skip


def _overhead_percent(runs: Sequence[Run], plain: Sequence[Run]) -> float:
    """Cycles over those of the plain program, the mean over pairs of runs."""
    return 100 * float(
        np.mean([run.total_cycles / base.total_cycles - 1 for run, base in zip(runs, plain, strict=True)])
    )


def _placed(runs: Sequence[Run], plain: Sequence[Run]) -> str:
    """A sentence on what counts from a second run give up; "" for runs without."""
    if not all(run.spec.second_run for run in runs):
        return ""
    gaps = np.concatenate([run.trace.counts((PLACE_GAP,))[:, 0] for run in runs])
    seconds = min(run.seconds for run in runs) - min(run.seconds for run in plain)  # other work only adds to either
    return (
        f"the end of a record among the counts is known to {np.median(gaps):.0f} instructions in half of the records, "
        f"to {gaps.max():,} in the worst; "
        f"a second run of about {max(seconds, 0.1):.1f} s beside each run"
    )


def largest_change(perturbation: Perturbation) -> float:
    """The largest change of z."""
    changes = [abs(pair.delta_z) for pair in perturbation.pairs if np.isfinite(pair.delta_z)]
    return max(changes, default=float("nan"))


def _other_counts(counted: Run, remedied: Run) -> str:
    """A sentence on counters whose totals or times differ from those of the variant; "" if all agree.

    Records of both runs have the same program between them only in part: counters take time where the events are. So
    times are compared by a clock that counters leave alone, see `_clock`; without one nothing is said of them.
    """
    sentences = []
    second = remedied.spec.second_run
    clock = _clock(counted, remedied)
    for metric in (counter.metric for counter in remedied.spec.counters):
        if metric not in counted.trace.metrics:
            continue
        before, after = (run.trace.columns((metric,))[:, 0] for run in (counted, remedied))
        if not before.sum():
            continue
        outside = _outside(before, after)
        difference, events = int(after.sum() - before.sum()), int(before.sum())
        if abs(difference) > max(_SAME_TOTAL * events, outside):
            sentences.append(
                f"{metric} counts {100 * difference / events:+.1f}% ({int(after.sum()):,} events for {events:,})"
            )
        if not after.sum() or not clock or (second is not None and metric in second.metrics):  # has the better times
            continue
        at_clock = [_progress(run.trace, metric, clock) for run in (counted, remedied)]
        late = max((a[:-_SAME_STEPS] - b[_SAME_STEPS:]).max() for a, b in (at_clock, at_clock[::-1]))
        if late > max(_SAME_TIME, outside / events):
            sentences.append(
                f"up to {100 * late:.0f}% of the counts of {metric} are late or early, by more than {_SAME_STEPS}% of "
                "the run's conditional branches"
            )
    return "; ".join(sentences)


def _outside(*counts: np.ndarray) -> float:
    """Events that may be before the first or after the last boundary of one run, and in a record of another: what two
    records with events have, as a rule."""
    return max((2 * float(np.median(column[column > 0])) for column in counts if column.any()), default=0.0)


_SAME_TOTAL = 0.02
_SAME_TIME = 0.1
_SAME_STEPS = 2  # hundredths of the run within which counts have the same time, as long as the clocks differ by less
_CLOCKS = ("PAPI_BR_CN", "PAPI_BR_TKN")  # counters have no branches, but for those that count one event in several


def _clock(counted: Run, remedied: Run) -> str | None:
    """The hardware metric by which a place of the program is found in both runs; None if they have none in common, or
    if its totals differ."""
    for metric in _CLOCKS:
        if metric in counted.spec.hardware_metrics:
            totals = [int(run.trace.counts((metric,)).sum()) for run in (counted, remedied)]
            if min(totals) > 0 and max(totals) <= (1 + _SAME_TOTAL) * min(totals):
                return metric
    return None


def _progress(trace: Trace, metric: str, clock: str) -> np.ndarray:
    """The fraction of all events of ``metric`` at each hundredth of the events of ``clock``, (101,)."""
    totals = np.concatenate([np.zeros((1, 2)), np.cumsum(trace.columns((clock, metric)), axis=0)])
    time, events = (totals / totals[-1]).T
    return np.interp(np.linspace(0, 1, 101), time, events)
