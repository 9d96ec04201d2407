"""Decides whether a group of software metrics is good, from the analyses of its runs; makes no runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from measure.partitioning.search_types import GroupVerdict, State
from measure.perturbation.analysis_types import Perturbation
from measure.perturbation.outlying_runs import OutlyingRuns
from measure.perturbation.uninformative_metrics import metric_findings
from measure.perturbation.wording import p_text

Accept = Literal["equivalent", "not perturbed"]


def with_caveat(verdict: GroupVerdict, counted: Sequence[NDArray[np.float64]], metrics: Sequence[str]) -> GroupVerdict:
    """``verdict`` with the number of ``metrics`` that counted no event in its reason: silent metrics perturb nothing.

    ``counted``: events per record of each run, ``(n_i, m)``. Metrics are not named, because campaigns that share the
    verdict memory may have other names for them.
    """
    silent = [one for one in metric_findings({"": counted}, metrics, "software") if one.problem == "no events"]
    if not silent:
        return verdict
    count = f"{len(silent)} of its {len(metrics)} metrics" if len(metrics) > 1 else "its metric"
    return replace(
        verdict, reason=f"{verdict.reason}; but {count} counted no event (`measure run --counts` lists them)"
    )


def with_outlying(verdict: GroupVerdict, found: Sequence[OutlyingRuns]) -> GroupVerdict:
    """``verdict`` with the group's runs that stand out from its others in its reason; these are of one variant, whose
    name people do not know."""
    told = [one.brief.replace(f" of {one.variant} stand", " stand", 1) for one in found]
    return replace(verdict, reason="; ".join([verdict.reason, *told])) if told else verdict


def decide(
    found: Sequence[Perturbation], last: bool, accept: Accept, outer: bool, runs: int, all_baselines: bool = True
) -> GroupVerdict | None:
    """The verdict on a group from its analyses; None: open, and more runs may be made.

    ``found``: the inner perturbation and, if ``outer``, the outer one, unless the inner one was open before the
    ``last`` look. A group that is changed, by a size still open at the last look, is bad: something is shown to change.
    A comparison that is not assessable by ``all_baselines`` is so with any number of runs: as in a campaign, the other
    one decides.
    """
    complete = len(found) == (2 if outer else 1)
    for one in found:
        if one.verdict == "perturbed" or (last and one.verdict == "changed"):
            return _verdict("bad", one, runs)
    unseen = [one for one in found if one.verdict == "not assessable" and all_baselines]
    shown = [one for one in found if one.verdict == "equivalent"]
    if complete and shown and len(shown) + len(unseen) == len(found):
        verdict = _verdict("good", _closest(shown), runs)
        beside = "; ".join(f"but it is not assessable {_where(one)}" for one in unseen)
        return replace(verdict, reason=f"{verdict.reason}; {beside}") if beside else verdict
    blind = complete and len(unseen) == len(found)
    if not last and not blind:
        return None
    undecided = next(one for one in found if one.verdict != "equivalent")
    verdict = _verdict("not assessable" if blind else "undecided", undecided, runs)
    return replace(verdict, state="good") if accept == "not perturbed" and complete else verdict


def open_verdict(found: Sequence[Perturbation], runs: int) -> GroupVerdict:
    """The verdict on a group that its analyses ``found`` leave open, and that may get no more runs."""
    return _verdict("undecided", next((one for one in found if one.verdict != "equivalent"), _closest(found)), runs)


def _where(one: Perturbation) -> str:
    return "within a run" if one.kind == "inner" else "across aligned runs"


def _closest(found: Sequence[Perturbation]) -> Perturbation:
    return max(found, key=lambda one: abs(_largest_change(one)))


def _largest_change(one: Perturbation) -> float:
    return max((abs(p.delta_z) for p in one.pairs if np.isfinite(p.delta_z)), default=0.0)


def _verdict(state: State, one: Perturbation, runs: int) -> GroupVerdict:
    """A verdict whose reason names the worst pair and its change."""
    kind = "inner" if one.kind == "inner" else "outer"
    if not one.pairs:
        return GroupVerdict(state, "every metric is constant: nothing to compare", None, float("nan"), kind, runs)
    sought = {"undecided": ("inconclusive", "changed"), "not assessable": ("not assessable",)}.get(state, ())
    concerned = [pair for pair in one.pairs if pair.verdict in sought]
    pair = (concerned or one.pairs)[0]
    if state == "not assessable":
        share = f"{len(concerned)} of {len(one.pairs)} pairs, as {pair.name}: {pair.note}"
        reason = f"not assessable {_where(one)}, with more runs neither: {share} ({runs} runs)"
        return GroupVerdict(state, reason, (pair.a, pair.b), pair.delta_z, kind, runs)
    change = (
        f"rho of {pair.name} {pair.baseline_rho:.2f} to {pair.run_rho:.2f}, change of z {pair.delta_z:+.3f}"
        if np.isfinite(pair.delta_z)
        else f"{pair.name}: {pair.note}"
    )
    p = "" if np.isnan(pair.p_adjusted) else f", {p_text(pair.p_adjusted)} over all pairs"
    word = {"bad": one.verdict, "good": "largest", "undecided": "open"}[state]
    reason = f"{_where(one)}, {word}: {change} (limit {one.delta:g}{p}; {runs} runs)"
    return GroupVerdict(state, reason, (pair.a, pair.b), pair.delta_z, kind, runs)
