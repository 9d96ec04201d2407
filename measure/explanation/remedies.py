"""Remedies, tried: each is built and run in pairs with the plain program, and judged as the variant was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from instrumenter.spec.software_metrics import MetricSpec
from measure.campaign.run_types import Run
from measure.errors import MeasureError
from measure.explanation.explanation_types import BEST_FIRST, Remedy
from measure.explanation.keep_inlining import Edited
from measure.explanation.paired_runs import PLAIN, PairedRuns, ProgramChoice
from measure.explanation.relations import Relations, broken_relations
from measure.perturbation.analysis_types import Perturbation
from measure.perturbation.perturbation import Memo, inner_perturbation, outer_perturbation


@dataclass(frozen=True)
class Candidate:
    """A remedy to try. ``runs_of``: programs that all have to be run, each in runs of its own; the worst verdict
    counts; ``campaign``: changes of the campaign file."""

    name: str
    about: str
    runs_of: tuple[ProgramChoice, ...]
    gives_up: str
    campaign: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Tried:
    """Remedies that were tried, the best first, and why others could not be."""

    remedies: tuple[Remedy, ...]
    refused: tuple[str, ...]


class Judge:
    """Judges runs in pairs with those of the plain program, by the campaign's delta and level: within a run and across
    runs where the variant's relations are broken, and elsewhere if a remedy breaks them.

    ``relations``: those that are broken in the variant.
    """

    def __init__(self, paired: PairedRuns, relations: Relations) -> None:
        self._paired, self._relations = paired, relations
        self._plain = paired.runs([PLAIN])[PLAIN]
        self._memo: Memo = {}

    def __call__(self, runs: Sequence[Run]) -> Perturbation:
        """The worse of both verdicts that count."""
        inner, broken = self._inner(runs), self._relations.chosen
        outer = self._outer(runs) if self._paired.campaign.outer else None
        counted = [
            one for one, found in ((inner, any(a != b for a, b in broken)), (outer, any(a == b for a, b in broken)))
            if one is not None and (found or broken_relations(one))
        ]  # fmt: skip
        return max(counted, key=lambda one: (BEST_FIRST.index(one.verdict), largest_change(one)))

    def _inner(self, runs: Sequence[Run]) -> Perturbation:
        campaign, correlations = self._paired.campaign, self._paired.correlations
        return inner_perturbation(
            correlations(self._plain), correlations(runs), paired=True, delta=campaign.delta, alpha=campaign.alpha,
            seed=campaign.seed,
        )  # fmt: skip

    def _outer(self, runs: Sequence[Run]) -> Perturbation:
        campaign = self._paired.campaign
        plain, others = (
            [run.trace.counts(self._paired.hardware) for run in side] for side in (self._plain, runs)
        )  # fmt: skip
        return outer_perturbation(
            plain, others, self._paired.hardware, held_out=True, paired=True,
            delta=campaign.delta, alpha=campaign.alpha, seed=campaign.seed, memo=self._memo,
        )  # fmt: skip


def candidates(
    paired: PairedRuns, variant: str, choice: ProgramChoice, guilty: Sequence[str], edited: Edited | None
) -> list[Candidate]:  # fmt: skip
    """Remedies that may help ``choice``; ``guilty``: its metrics, the one that matters most first; ``edited``: sources
    that keep the plain program's inlining, if that differs."""
    campaign = paired.campaign
    first = guilty[0]
    rest = tuple(metric for metric in choice.metrics if metric != first)
    without = replace(choice, metrics=rest)
    probe = {"software_metrics": {first: {"method": "probe"}}}
    found = [
        Candidate(
            f"probe for {first}",
            f"the emulated machine does not see the counter of {first}",
            (replace(choice, unseen=(first,)),),
            "works on the emulated machine only",
            probe,
        )
    ]
    if len(choice.metrics) > 1:
        everything = {"software_metrics": {metric: {"method": "probe"} for metric in choice.metrics}}
        found.append(
            Candidate(
                "probes for all metrics",
                "the emulated machine does not see the counters",
                (replace(choice, unseen=choice.metrics),),
                "works on the emulated machine only",
                everything,
            )
        )
    if rest:
        alone = replace(choice, metrics=(first,))
        found.append(
            Candidate(
                f"{first} in a run of its own",
                f"{', '.join(rest)} in one run, {first} in another",
                (without, alone),
                "the metrics are no longer in one trace, unless runs are merged",
                {"variants": {f"{variant}-rest": list(rest), f"{variant}-{first}": [first]}},
            )
        )
    if campaign.placement == "packed":
        found.append(
            Candidate(
                "a cache line for each counter",
                "counters do not share lines with one another or with data",
                (replace(choice, placement="cache_line"),),
                "memory",
                {"placement": "cache_line"},
            )
        )
    found += _entry_instead_of_call(paired, choice)
    if edited is not None:
        found.append(
            Candidate(
                "the plain program's inlining",
                edited.about,
                (replace(choice, sources=edited.sources, flags=edited.flags, libraries=edited.libraries),),
                "the sources have attributes that they did not have",
                {
                    "program": {
                        "source": None,
                        "catalogue": None,
                        "catalogue_file": None,
                        "size": None,
                        "sources": [str(path) for path in edited.sources],
                        "flags": list(edited.flags),
                        "libraries": list(edited.libraries),
                    }
                },
            )
        )
    if campaign.volatile:
        found.append(
            Candidate(
                "counters in registers over loops",
                "the compiler may keep a count in a register until a loop ends",
                (replace(choice, volatile=False),),
                "counts arrive at the ends of loops, perhaps records late",
                {"volatile": False},
            )
        )
    return found


def _entry_instead_of_call(paired: PairedRuns, choice: ProgramChoice) -> list[Candidate]:
    """Counting entries of a function instead of its calls, where all calls come from the program's own code."""
    specs = paired.campaign.software_metrics | dict(choice.specs)
    changed: dict[str, MetricSpec] = {}
    for metric in choice.metrics:
        spec = specs[metric]
        if spec.event == "call" and spec.callee and not (spec.function or spec.file or spec.line or spec.add):
            changed[metric] = MetricSpec(event="entry", function=spec.callee)
    if not changed:
        return []
    names = ", ".join(f"{metric}: entry of {spec.function}" for metric, spec in changed.items())
    campaign = {
        "software_metrics": {m: {"event": "entry", "function": s.function, "callee": None} for m, s in changed.items()}
    }
    specs_of = (*(item for item in choice.specs if item[0] not in changed), *changed.items())
    return [
        Candidate(
            "entries instead of calls",
            names,
            (replace(choice, specs=specs_of),),
            "nothing if all calls come from the program's own code",
            campaign,
        )
    ]


def try_remedies(
    paired: PairedRuns, judge: Judge, choice: ProgramChoice, wanted: Sequence[Candidate]
) -> Tried:  # fmt: skip
    """Run and judge each candidate. One whose program cannot be built or run is refused with the reason."""
    remedies: list[Remedy] = []
    refused: list[str] = []
    plain = paired.runs([PLAIN])[PLAIN]
    counted = paired.runs([choice])[choice]
    for candidate in wanted:
        try:
            made = paired.runs(candidate.runs_of)
        except MeasureError as error:
            refused.append(f"{candidate.name}: {error}")
            continue
        judged = [judge(made[one]) for one in candidate.runs_of]
        worst = max(judged, key=lambda one: (BEST_FIRST.index(one.verdict), largest_change(one)))
        cycles = [
            100 * (run.total_cycles / base.total_cycles - 1)
            for one in candidate.runs_of
            for run, base in zip(made[one], plain, strict=True)
        ]
        gives_up = candidate.gives_up
        for one in candidate.runs_of:
            lost = _other_counts(counted[0], made[one][0])
            gives_up += f"; {lost}" if lost else ""
        remedies.append(
            Remedy(
                candidate.name,
                candidate.about,
                worst.verdict,
                worst,
                largest_change(worst),
                float(np.mean(cycles)),
                gives_up,
                candidate.campaign,
            )
        )
    return Tried(tuple(sorted(remedies, key=lambda one: one.rank)), tuple(refused))


def largest_change(perturbation: Perturbation) -> float:
    """The largest change of z."""
    changes = [abs(pair.delta_z) for pair in perturbation.pairs if np.isfinite(pair.delta_z)]
    return max(changes, default=float("nan"))


def _other_counts(counted: Run, remedied: Run) -> str:
    """A sentence on counters whose totals or times differ from those of the variant; "" if all agree.

    Records of both runs have the same program between them only in part, so that times are compared by cumulative
    counts over the fraction of the run that is over.
    """
    sentences = []
    for metric in (counter.metric for counter in remedied.spec.counters):
        if metric not in counted.trace.metrics:
            continue
        before, after = (run.trace.columns((metric,))[:, 0] for run in (counted, remedied))
        if not before.sum() or not after.sum():
            continue
        ratio = after.sum() / before.sum()
        if abs(ratio - 1) > _SAME_TOTAL:
            sentences.append(f"{metric} counts {100 * (ratio - 1):+.1f}%")
        late = np.abs(_progress(before) - _progress(after)).max()
        if late > _SAME_TIME:
            sentences.append(f"counts of {metric} are up to {100 * late:.0f}% of the run late or early")
    return "; ".join(sentences)


_SAME_TOTAL = 0.02  # the records before the first and after the last boundary differ
_SAME_TIME = 0.1


def _progress(counts: np.ndarray) -> np.ndarray:
    """The fraction of all events at each hundredth of the run, (101,)."""
    total = np.concatenate([[0.0], np.cumsum(counts)])
    return np.interp(np.linspace(0, 1, 101), np.linspace(0, 1, len(total)), total / total[-1])
