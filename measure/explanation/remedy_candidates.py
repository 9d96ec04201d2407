"""What may help against a perturbation: other ways to count the same events, other runs, another metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from instrumenter.spec.software_metrics import MetricSpec
from measure.explanation.keep_inlining import Edited
from measure.explanation.mechanisms import ACCESSES, BESIDE_PROBES, COMPILER, LAYOUT
from measure.explanation.paired_runs import PairedRuns, ProgramChoice
from measure.run_types import standard_error
from measure.stats.correlation import spearman

PERIOD = 16
"""Events of which a sampled counter counts one."""
FEWEST_SAMPLED = 64 * PERIOD
"""Events of a run from which counting one in `PERIOD` estimates them."""
SECOND_RUN = "counts from a second run"
_STANDS_IN = 0.9  # rank correlation from which a hardware metric carries the same information


@dataclass(frozen=True)
class Candidate:
    """A remedy to try. ``runs_of``: programs that all have to be run, each in runs of its own; the worst verdict
    counts; ``gives_up``: what is lost, in words that can follow "it gives up"; ``campaign``: changes of the campaign
    file, empty where no software metric is left; ``against``: mechanisms that it may help against, () for any;
    ``unless``: it is not tried when the remedy of this name helps, which is better in all that it gives up; ``unfit``:
    why it is not tried at all, "" if it is."""

    name: str
    about: str
    runs_of: tuple[ProgramChoice, ...]
    gives_up: str
    campaign: Mapping[str, object] = field(default_factory=dict)
    against: tuple[str, ...] = ()
    unless: str = ""
    unfit: str = ""

    @property
    def counts(self) -> bool:
        """Whether a software metric is left that it counts."""
        return any(choice.metrics for choice in self.runs_of)


def candidates(
    paired: PairedRuns, variant: str, choice: ProgramChoice, guilty: Sequence[str], edited: Edited | None
) -> list[Candidate]:  # fmt: skip
    """Remedies that may help ``choice``; ``guilty``: its metrics that cause the change, the one that matters most
    first; ``edited``: sources that keep the plain program's inlining, if that differs."""
    campaign = paired.campaign
    first = guilty[0]
    rest = tuple(metric for metric in choice.metrics if metric != first)
    kept = [metric for metric in campaign.variant_sets().get(variant, choice.metrics) if metric != first]
    without, alone = choice.only(rest), choice.only((first,))
    guilty_seen = any(metric not in choice.unseen for metric in guilty)
    found = _second_runs(paired, choice, guilty) + (_probes(choice, first) if guilty_seen else [])
    if first in choice.unseen:
        found += _in_place_of_a_probe(paired, variant, choice, first, kept)
    if rest:
        found.append(
            Candidate(
                f"{first} in a run of its own",
                f"{', '.join(rest)} in one run, {first} in another",
                (without, alone),
                "one trace with all metrics, unless runs are merged",
                {"variants": {f"{variant}-rest": kept, f"{variant}-{first}": [first]}},
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
                (ACCESSES, LAYOUT, BESIDE_PROBES),
            )
        )
    found += _entry_instead_of_call(paired, choice)
    found += _cheaper_counters(paired, choice, first) if guilty_seen else []
    found += _stand_in(paired, choice, first, {"variants": {variant: kept}} if kept else {})
    if edited is not None:
        found.append(
            Candidate(
                "the plain program's inlining",
                edited.about,
                (replace(choice, sources=edited.sources, flags=edited.flags, libraries=edited.libraries),),
                "sources as they are: they get attributes",
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
                (COMPILER,),
            )
        )
    if campaign.volatile and not paired.build(choice).starts_threads:  # atomic counters stay where they are
        found.append(
            Candidate(
                "counters in registers over loops",
                "the compiler may keep a count in a register until a loop ends",
                (replace(choice, volatile=False),),
                "the times of counts: they arrive at the ends of loops, perhaps records late",
                {"volatile": False},
            )
        )
    return found


def _second_runs(paired: PairedRuns, choice: ProgramChoice, guilty: Sequence[str]) -> list[Candidate]:
    """Counting in a second run: all metrics, and those that cause the change."""
    if paired.samples_by_signal(choice):
        return []
    chosen = {SECOND_RUN: choice.metrics}
    if 0 < len(guilty) < len(choice.metrics):
        chosen[f"{SECOND_RUN} for {', '.join(guilty)}"] = tuple(m for m in choice.metrics if m in guilty)
    method = {"method": "second_run", "local": None, "sampled": None}
    return [
        Candidate(
            name,
            f"the measured program has no counter of {', '.join(metrics)}; a second run, without timing, counts",
            (replace(choice, second_run=metrics),),
            "real machines, as it works on the emulated one only",
            {"software_metrics": dict.fromkeys(metrics, method)},
            unless="" if metrics == choice.metrics else SECOND_RUN,
        )
        for name, metrics in chosen.items()
    ]


def _probes(choice: ProgramChoice, first: str) -> list[Candidate]:
    """Probes in place of the counters that the machine sees: for the metric ``first``, and for all."""
    seen = tuple(metric for metric in choice.metrics if metric not in choice.unseen)
    sets: dict[str, tuple[str, ...]] = {f"probe for {first}": (first,)} if first in seen else {}
    if seen and len(choice.metrics) > 1:
        sets["probes for all metrics"] = seen
    return [
        Candidate(
            name,
            f"the emulated machine does not see the counter of {first}"
            if metrics == (first,) else "the emulated machine does not see the counters",
            (replace(choice, unseen=tuple(m for m in choice.metrics if m in (*choice.unseen, *metrics))),),
            "real machines, as it works on the emulated one only",
            {"software_metrics": {metric: {"method": "probe"} for metric in metrics}},
            unless=SECOND_RUN,
        )
        for name, metrics in sets.items()
    ]  # fmt: skip


def _in_place_of_a_probe(
    paired: PairedRuns, variant: str, choice: ProgramChoice, first: str, kept: Sequence[str]
) -> list[Candidate]:
    """What may help where the compiler's decisions beside the probe of ``first`` change relations: to probe another
    place, and to leave the metric out. ``kept``: the variant's other metrics."""
    found = []
    spec = _specs(paired, choice)[first]
    if spec.event in ("loop", "branch", "write") and spec.function:
        entries = MetricSpec(event="entry", function=spec.function, file=spec.file, method="probe")
        no_others = {key: None for key in ("variable", "field", "line", "add") if getattr(spec, key) is not None}
        found.append(
            Candidate(
                f"entries of {spec.function} in place of {first}",
                f"a probe where {spec.function} begins leaves its loops to the compiler",
                (_with_specs(choice, {first: entries}),),
                f"the counts of {first}: entries of {spec.function} are counted in their place",
                {"software_metrics": {first: {"event": "entry", **no_others}}},
                unless=SECOND_RUN,
            )
        )
    if len(choice.metrics) > 1:
        others = tuple(metric for metric in choice.metrics if metric != first)
        found.append(
            Candidate(
                f"{variant} without {first}",
                f"{first} is not collected",
                (choice.only(others),),
                f"the counts of {first}",
                {"variants": {variant: list(kept)}},
                unless=SECOND_RUN,
            )
        )
    return found


def _entry_instead_of_call(paired: PairedRuns, choice: ProgramChoice) -> list[Candidate]:
    """Counting entries of a function instead of its calls, where all calls come from the program's own code."""
    specs = _specs(paired, choice)
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
    return [
        Candidate(
            "entries instead of calls",
            names,
            (_with_specs(choice, changed),),
            "nothing if all calls come from the program's own code",
            campaign,
        )
    ]


def _specs(paired: PairedRuns, choice: ProgramChoice) -> dict[str, MetricSpec]:
    """The specifications of all software metrics."""
    return paired.campaign.software_metrics | dict(choice.specs)


def _with_specs(choice: ProgramChoice, changed: Mapping[str, MetricSpec]) -> ProgramChoice:
    return replace(
        choice, specs=(*(item for item in choice.specs if item[0] not in changed), *changed.items())
    )  # fmt: skip


def _cheaper_counters(paired: PairedRuns, choice: ProgramChoice, first: str) -> list[Candidate]:
    """Counting in local variables, and counting every Nth event of the metric ``first``."""
    specs = _specs(paired, choice)
    plain = {
        metric: specs[metric] for metric in choice.metrics
        if metric not in choice.unseen  # these keys mean nothing beside a probe
        and not specs[metric].local and specs[metric].sampled is None and specs[metric].event != "alloc_bytes"
    }  # fmt: skip
    found = []
    local = {metric: spec.model_copy(update={"local": True}) for metric, spec in plain.items()}
    if local:
        found.append(
            Candidate(
                "counters in local variables",
                "each function counts in a local variable, and adds it to the counter when it returns",
                (_with_specs(choice, local),),
                "the times of counts: they arrive at the ends of functions, perhaps records late; exit and longjmp "
                "lose them",
                {"software_metrics": {metric: {"local": True} for metric in local}},
            )
        )
    if first in plain and plain[first].add is None:
        sampled = {first: plain[first].model_copy(update={"sampled": PERIOD})}
        found.append(
            Candidate(
                f"one in {PERIOD} events of {first}",
                f"{PERIOD} is added at every {PERIOD}th event",
                (_with_specs(choice, sampled),),
                f"exact counts: they are estimates, with a standard error of {standard_error(PERIOD):.1f} events in a "
                "record",
                {"software_metrics": {first: {"sampled": PERIOD}}},
                unfit=_too_rare(paired, choice, first),
            )
        )
    return found


def _too_rare(paired: PairedRuns, choice: ProgramChoice, metric: str) -> str:
    """Why every `PERIOD`-th event of ``metric`` says nothing of their number, "" if it does."""
    counts = [run.trace.columns((metric,))[:, 0] for run in paired.runs([choice])[choice]]
    events, in_record = (float(np.mean([of(column) for column in counts])) for of in (np.sum, np.mean))
    if events >= FEWEST_SAMPLED and in_record >= standard_error(PERIOD):
        return ""
    return (
        f"{metric} has {events:,.0f} events in a run, {in_record:.2g} in a record, expected at least "
        f"{FEWEST_SAMPLED:,} and the standard error of {standard_error(PERIOD):.1f}: few records would have a count"
    )


def _stand_in(paired: PairedRuns, choice: ProgramChoice, first: str, campaign: Mapping[str, object]) -> list[Candidate]:
    """The hardware metric whose ranks follow those of ``first`` within runs that do not see its counter. ``campaign``:
    changes of the campaign file that leave ``first`` out."""
    unseen = replace(choice, unseen=choice.metrics)
    names = (first, *paired.hardware)
    found = [
        spearman(run.trace.columns(names), names).rho[0, 1:] for run in paired.runs([unseen])[unseen]
    ]  # fmt: skip
    rho = np.nan_to_num(np.mean(found, axis=0))
    best = int(np.argmax(np.abs(rho)))
    if abs(rho[best]) < _STANDS_IN:
        return []
    others = tuple(metric for metric in choice.metrics if metric != first)
    follows = "rises" if rho[best] > 0 else "falls"
    return [
        Candidate(
            f"{paired.hardware[best]} in place of {first}",
            f"its rank correlation with {first} is {rho[best]:+.2f} within a run",
            (choice.only(others),),
            f"the counts of {first}: {paired.hardware[best]} {follows} as they rise, with a rank correlation of "
            f"{rho[best]:+.2f}",
            campaign,
        )
    ]
