"""Explanations as plain JSON values, and the sentences that terminal and page share."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.listed_names import listed
from common.plain_json import plain_json
from measure.analysis.explained import FOLDER
from measure.explanation.explanation_types import (
    CAUSE,
    Change,
    Estimate,
    Explanation,
    Part,
    Remedy,
    estimate,
    share_text,
)
from measure.explanation.mechanisms import ACCESSES, BESIDE_PROBES, EXECUTED
from measure.explanation.orders import INTERACTION
from measure.explanation.relations import relation_text
from measure.perturbation.finding import RESULTS, Finding
from measure.perturbation.wording import in_words, p_text, percent

SCHEMA = "perturbation-explanation-1"
CYCLES_ARE = "the overhead over the plain program; of a remedy that takes several runs, that of the costliest one"
_MOST_DECISIONS = 3
_MOST_UNSEEN = 3
_OF_INSTRUCTIONS = (EXECUTED, ACCESSES, BESIDE_PROBES)


def as_json(explanations: Sequence[Explanation], fine: Mapping[str, str], plan: str) -> dict[str, Any]:
    """The content of explain.json; numbers that are not known are null.

    ``cycles_percent`` of a remedy that takes several runs, each with some of the metrics, is that of the costliest one.
    ``plan``: hash of the design of the explained campaign."""
    return {
        "format": SCHEMA,
        "schema": SCHEMA,
        "plan": plan,
        "variants": {one.variant: _variant(one) for one in explanations},
        "without_a_perturbed_relation": dict(fine),
    }


def _variant(one: Explanation) -> dict[str, Any]:
    return {
        "verdict": one.verdict,
        "where": one.where,
        "pairs": one.n_pairs,
        "runs": one.runs,
        "seconds": round(one.seconds, 1),
        "relations": [
            {
                "metrics": list(relation),
                "across_runs": relation[0] == relation[1],
                "baseline_rho": _number(rho(one.baseline_z[:, n])),
                "run_rho": _number(rho(one.run_z[:, n])),
                "by_metric": {part.name: _interval(part.of(n)) for part in one.metrics.parts},
                "by_mechanism": {part.name: _interval(part.of(n)) for part in one.mechanisms.parts},
            }
            for n, relation in enumerate(one.relations)
        ],
        "reproduced": {
            "change": _interval(one.reproduction.share),
            "instructions_percent": _interval(one.reproduction.instructions_percent),
            "judged_instructions_percent": _number(one.reproduction.judged_instructions_percent),
            "failed": one.reproduction.failed,
        },
        "probes": list(one.probes),
        "metrics": _shares(one.metrics),
        "mechanisms": _shares(one.mechanisms),
        "made_by_added_counts": _interval_of(one, one.added_counts),
        "goes_with_cuts_by_progress": _interval_of(one, one.cuts),
        "sites": [{"metric": s.metric, "place": s.place, "change_of_z": _means(s.values)} for s in one.sites],
        "interactions": [*one.metrics.interactions, *one.mechanisms.interactions],
        "compiler_decisions": [vars(decision) for decision in one.decisions],
        "counter_lines": [{"place": place, "instructions": count} for place, count in one.counter_lines],
        "remedies": [_remedy(remedy) for remedy in one.remedies],
        "refused": list(one.refused),
        "sentences": sentences(one),
        "remedy": _helping(one),
    }


def _helping(one: Explanation) -> dict[str, Any] | None:
    """The sentence that names a remedy which helps, by its place among the sentences; None without one."""
    helping = [(n, finding) for n, finding in enumerate(findings(one)) if finding.kind == "remedy"]
    return next(({"sentence": n, "in_results": finding.in_results} for n, finding in helping), None)


def _interval_of(one: Explanation, values: NDArray[np.float64] | None) -> list[float | None] | None:
    """The share of the change that ``values`` make, which are no part of it; None if they were not measured."""
    return None if values is None else _interval(one.mechanisms.share_of(values))


def _shares(change: Change) -> dict[str, Any]:
    return {part.name: _interval(change.share(part)) for part in change.parts}


def _remedy(remedy: Remedy) -> dict[str, Any]:
    return {
        "name": remedy.name, "about": remedy.about, "verdict": remedy.verdict, "left_dz": _number(remedy.left),
        "cycles_percent": _number(remedy.cycles_percent), "gives_up": remedy.gives_up,
        "confirming_pairs": remedy.confirming_pairs, "by_construction": remedy.by_construction,
    }  # fmt: skip


def _interval(estimate: Estimate) -> list[float | None]:
    return [_number(estimate.mean), _number(estimate.low), _number(estimate.high)]


def _means(values: Any) -> list[float | None]:
    return [_number(float(value)) for value in np.nanmean(values, axis=0)]


def _number(value: float) -> float | None:
    number: float | None = plain_json(round(value, 6))
    return number


def short_place(place: str) -> str:
    """``file:line`` without the file's directories."""
    return Path(place).name


def rho(z: Any) -> float:
    """The correlation of a mean z."""
    return float(np.tanh(np.nanmean(z)))


def pairs_text(remedy: Remedy) -> str:
    """What the verdict on a remedy rests on, where that is not the pairs of runs by which remedies were ranked."""
    if remedy.by_construction:
        return " by construction"
    return f" in {remedy.confirming_pairs} further pairs" if remedy.confirming_pairs else ""


def remedy_words(remedy: Remedy) -> str:
    """The meaning of a remedy's verdict, and what it rests on."""
    if remedy.by_construction:
        return pairs_text(remedy).strip()
    found = remedy.perturbation
    smallest = 2.0 ** (1 - found.n_runs)  # of a test that flips the signs of so many pairs
    if found.verdict == "inconclusive" and found.level < smallest and found.p_value <= smallest:
        return f"{found.n_runs} pairs are too few to show a change ({p_text(found.p_value)}, the smallest possible)"
    return in_words(found) + pairs_text(remedy)


def _grounds(remedy: Remedy) -> str:
    """What the verdict on a remedy that helps rests on, and what it costs."""
    if remedy.by_construction:
        return f"by construction: the machine counts what it counts in the plain run; it gives up {remedy.gives_up}"
    return (
        f"in {remedy.confirming_pairs} further pairs of runs, at {remedy.cycles_percent:+.1f}% cycles over the plain "
        "program"
    )


def _without_the_compiler(one: Explanation) -> list[str]:
    """A sentence on what counters' instructions would change beside nothing, where that is more than their part."""
    if one.added_counts is None:
        return []
    alone = one.mechanisms.share_of(one.added_counts)
    part = sum(one.mechanisms.share(part).mean for part in one.mechanisms.parts if part.name in _OF_INSTRUCTIONS)
    if not (alone.low > 0 and alone.mean >= part + INTERACTION):
        return []
    return [
        f"Without these decisions {share_text(alone)} of the change is there, too: it appears when the counters' "
        "instructions, loads and stores are added, by arithmetic, to the records of the plain program."
    ]


def _place(one: Explanation, metric: Part) -> str:
    """Where most of what ``metric`` changes comes from; "" where its places were not told apart."""
    if not one.sites or one.sites[0].metric != metric.name:
        return ""
    place = f", most at {short_place(one.sites[0].place)}"
    if len(one.sites) == 1:
        return place
    alone = one.metrics.share_of(one.sites[0].values)
    return f"{place}, which alone makes {share_text(alone)}" if not alone.includes_zero else ""


def _not_shown(noun: str, what: str, change: Change, n_pairs: int) -> str:
    """That no part of ``change`` is shown to make ``what``, and the largest share."""
    part = change.parts[0]
    return (
        f"No {noun} is shown to make {what} in {n_pairs} pairs of runs; the largest share is that of {part.name}, "
        f"{share_text(change.share(part))}"
    )


def sentences(one: Explanation) -> list[str]:
    """The explanation in sentences, the most important first."""
    return [finding.sentence for finding in findings(one)]


def findings(one: Explanation) -> list[Finding]:
    """The explanation as findings, the most important first; a remedy that helps is marked."""
    if one.reproduction.failed:
        return [Finding(_not_reproduced(one)), *map(Finding, _causes(one))]
    return [*map(Finding, [*_causes(one), *_unseen(one)]), *_remedies(one)]


def _not_reproduced(one: Explanation) -> str:
    """That the explanation's runs do not show what the campaign judged."""
    found, differences = one.reproduction, []
    if found.lacks_change:
        differences.append(f"the relations change by {share_text(found.share)} of what they change in the campaign")
    if found.differs_in_instructions:
        differences.append(
            f"the instrumented program executes {percent(found.instructions_percent.mean)} instructions over the plain "
            f"one, in the campaign {percent(found.judged_instructions_percent)}"
        )
    return (
        f"This does not explain the campaign's verdict: in these {one.n_pairs} pairs of runs, other ones than the "
        f"campaign judged, {' and '.join(differences)}. The shares are of another change than the campaign's, the "
        "remedies were tried against that, and none is recommended. Look whether more runs of the campaign confirm its "
        "verdict; if they do, report this as a defect of `measure explain`."
    )


def _of_probes(one: Explanation) -> list[str]:
    """A sentence on what probes can change, beside those on shares."""
    if not one.probes:
        return []
    return [
        f"The machine does not see what a probe ({listed(one.probes, _MOST_UNSEEN)}) executes. The program has its "
        "counter, though, so the compiler decides by it what becomes of the code around: only by these decisions can a "
        "probe change relations."
    ]


def _causes(one: Explanation) -> list[str]:
    """Sentences on what makes the change."""
    metrics, causes = one.metrics.causes, one.mechanisms.causes
    found = [
        f"{share_text(one.metrics.share(part))} of the change comes from {part.name}{_place(one, part)}."
        for part in metrics[:1]
    ] or [_not_shown("metric", "the change", one.metrics, one.n_pairs) + "."]
    found += [f"{share_text(one.mechanisms.share(part))} of it by {part.name}: {part.about}." for part in causes]
    if not causes:
        said = _not_shown("mechanism", "it" if metrics else "the change", one.mechanisms, one.n_pairs)
        found.append(f"{said}: {one.mechanisms.parts[0].about}.")
    found += _of_probes(one)
    found += _without_the_compiler(one)
    if one.cuts is not None:
        moved = one.mechanisms.share_of(one.cuts)
        if moved.mean >= CAUSE and moved.low > 0:
            found.append(
                f"{share_text(moved)} of the change goes when nothing but the ends of records is moved, to where the "
                "plain run has them: that much is a matter of where the trace is cut, whatever moves the cuts."
            )
    decided = [decision.text for decision in one.decisions if decision.kind != "size" and not decision.is_idle]
    if decided:
        found.append("The compiler decided otherwise: " + "; ".join(decided[:_MOST_DECISIONS]) + ".")
    found += [f"{sentence}." for sentence in one.metrics.interactions]  # begin with the name of a metric
    found += [f"{sentence[0].upper()}{sentence[1:]}." for sentence in one.mechanisms.interactions]
    return found


def _unseen(one: Explanation) -> list[str]:
    """A sentence on the relations whose change, shown by the campaign, is not seen in the explanation's own runs."""
    changes = [(relation, estimate(one.metrics.whole[:, n])) for n, relation in enumerate(one.relations)]
    unseen = [
        f"{relation_text(relation)} ({change.mean:+.2f} in z, {change.low:+.2f} to {change.high:+.2f})"
        for relation, change in changes
        if change.includes_zero
    ]
    if not unseen:
        return []
    return [
        f"In these {one.n_pairs} pairs of runs, other ones than the campaign judged, no change is shown of "
        f"{listed(unseen, _MOST_UNSEEN)}: the shares say little of that."
    ]


def _remedies(one: Explanation) -> list[Finding]:
    """What helps, or that nothing does; empty where nothing was tried."""
    if not one.remedies:
        return []
    best = one.remedies[0]
    if not best.helps:
        return [
            Finding(
                f"No remedy that was tried is shown to make the relations equivalent; the best is {best.name} "
                f"({best.verdict}{pairs_text(best)}, largest change of z {best.left:.2f})."
            )
        ]
    text = (
        f"Best remedy that was tried: {best.name} ({best.about}); the relations are equivalent with it, "
        f"{_grounds(best)}"
    )
    if not best.campaign:
        text += ". It leaves no software metric to collect, so there is no campaign with it to write"
        if one.written is not None:
            text += f". The next that helps is {one.written.name} ({one.written.about}), {_grounds(one.written)}"
    file = f"{one.variant}.yaml"
    unknown = f"; {FOLDER}/{file} is the campaign with it" if one.written else ""
    known = f"; `measure run {RESULTS}/{FOLDER}/{shlex.quote(file)}` runs the campaign with it" if one.written else ""
    found = [Finding(f"{text}{unknown}.", "remedy", in_results=f"{text}{known}.")]
    others = [remedy for remedy in one.remedies if remedy.on_any_machine]
    if not best.on_any_machine and others:
        found.append(
            Finding(
                f"Of what a real machine can do, too, the best is {others[0].name} ({others[0].about}; "
                f"{others[0].verdict}{pairs_text(others[0])}, largest change of z {others[0].left:.2f}, at "
                f"{others[0].cycles_percent:+.1f}% cycles)."
            )
        )
    return found
