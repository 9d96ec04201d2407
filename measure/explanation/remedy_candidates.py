"""What may help against a perturbation: other ways to count the same events, other runs, another metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from instrumenter.spec.software_metrics import MetricSpec
from measure.explanation.keep_inlining import Edited
from measure.explanation.mechanisms import ACCESSES, COMPILER, LAYOUT
from measure.explanation.paired_runs import PairedRuns, ProgramChoice
from measure.run_types import standard_error
from measure.stats.correlation import spearman

PERIOD = 16
"""Events of which a sampled counter counts one."""
SECOND_RUN = "counts from a second run"
_STANDS_IN = 0.9  # rank correlation from which a hardware metric carries the same information


@dataclass(frozen=True)
class Candidate:
    """A remedy to try. ``runs_of``: programs that all have to be run, each in runs of its own; the worst verdict
    counts; ``gives_up``: what is lost, in words that can follow "it gives up"; ``campaign``: changes of the campaign
    file, empty where no software metric is left; ``against``: mechanisms that it may help against, () for any;
    ``unless``: it is not tried when the remedy of this name helps, which is better in all that it gives up."""

    name: str
    about: str
    runs_of: tuple[ProgramChoice, ...]
    gives_up: str
    campaign: Mapping[str, object] = field(default_factory=dict)
    against: tuple[str, ...] = ()
    unless: str = ""

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
    without = replace(choice, metrics=rest)
    probe = {"software_metrics": {first: {"method": "probe"}}}
    found = _second_runs(paired, choice, guilty)
    found.append(
        Candidate(
            f"probe for {first}",
            f"the emulated machine does not see the counter of {first}",
            (replace(choice, unseen=(first,)),),
            "real machines, as it works on the emulated one only",
            probe,
            unless=SECOND_RUN,
        )
    )
    if len(choice.metrics) > 1:
        everything = {"software_metrics": {metric: {"method": "probe"} for metric in choice.metrics}}
        found.append(
            Candidate(
                "probes for all metrics",
                "the emulated machine does not see the counters",
                (replace(choice, unseen=choice.metrics),),
                "real machines, as it works on the emulated one only",
                everything,
                unless=SECOND_RUN,
            )
        )
    if rest:
        alone = replace(choice, metrics=(first,))
        found.append(
            Candidate(
                f"{first} in a run of its own",
                f"{', '.join(rest)} in one run, {first} in another",
                (without, alone),
                "one trace with all metrics, unless runs are merged",
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
                (ACCESSES, LAYOUT),
            )
        )
    found += _entry_instead_of_call(paired, choice)
    found += _cheaper_counters(paired, choice, first)
    found += _stand_in(paired, variant, choice, first)
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
        if not specs[metric].local and specs[metric].sampled is None and specs[metric].event != "alloc_bytes"
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
            )
        )
    return found


def _stand_in(paired: PairedRuns, variant: str, choice: ProgramChoice, first: str) -> list[Candidate]:
    """The hardware metric whose ranks follow those of ``first`` within runs that do not see its counter."""
    unseen = replace(choice, unseen=choice.metrics)
    names = (first, *paired.hardware)
    found = [
        spearman(run.trace.columns(names), names).rho[0, 1:] for run in paired.runs([unseen])[unseen]
    ]  # fmt: skip
    rho = np.nan_to_num(np.mean(found, axis=0))
    best = int(np.argmax(np.abs(rho)))
    if abs(rho[best]) < _STANDS_IN:
        return []
    rest = tuple(metric for metric in choice.metrics if metric != first)
    follows = "rises" if rho[best] > 0 else "falls"
    return [
        Candidate(
            f"{paired.hardware[best]} in place of {first}",
            f"its rank correlation with {first} is {rho[best]:+.2f} within a run",
            (replace(choice, metrics=rest),),
            f"the counts of {first}: {paired.hardware[best]} {follows} as they rise, with a rank correlation of "
            f"{rho[best]:+.2f}",
            {"variants": {variant: list(rest)}} if rest else {},
        )
    ]
