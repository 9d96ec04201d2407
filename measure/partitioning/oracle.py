"""Tests groups of software metrics by measuring: builds, runs, and the verdict of the perturbation analysis.

A group becomes a variant of the campaign that collects its metrics. It starts with few replicates and gets more
while the verdict is open. Each look at the data gets its share of alpha, so that several looks do not make chance
findings likelier. Inner perturbation is decided first, because aligning runs costs most.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from common.yaml_document import YamlDocument
from measure.campaign.campaign_model import Campaign
from measure.campaign.executor import Outcome, Workers, execute_plan
from measure.campaign.plan import make_plan
from measure.campaign.run_types import BASELINE, Run, RunSpec
from measure.campaign.store import Store
from measure.errors import RunError
from measure.partitioning.search_types import Group, Verdict
from measure.partitioning.verdict_memory import digest
from measure.perturbation.analysis_types import Perturbation
from measure.perturbation.perturbation import Memo, inner_perturbation, outer_perturbation
from measure.perturbation.uninformative_metrics import metric_findings
from measure.perturbation.wording import p_text
from measure.stats.correlation import Correlations, spearman

FIRST_REPLICATES = 3
SEED_STEP = 1_000_003  # between the seeds of a search and of its validations
ORACLE_VERSION = 3

Accept = Literal["equivalent", "not perturbed"]
OPEN = ("changed", "inconclusive")
"""Verdicts that further runs may settle."""
UNSHOWN = ("inconclusive", "not assessable")
"""Verdicts that show neither a change nor that there is none."""


@dataclass(frozen=True)
class Settings:
    """How groups are judged.

    ``most_replicates``: limit of instrumented runs of a group. ``accept``: a group is good if it is shown to be
    equivalent, or if it is only not perturbed, which may be due to noise. ``first_replicates``: before the first look.
    """

    most_replicates: int
    accept: Accept = "equivalent"
    first_replicates: int = FIRST_REPLICATES

    @property
    def looks(self) -> tuple[int, ...]:
        """Numbers of replicates at which the data are analysed: doubled each time."""
        counts = [min(self.first_replicates, self.most_replicates)]
        while counts[-1] < self.most_replicates:
            counts.append(min(2 * counts[-1], self.most_replicates))
        return tuple(counts)


@dataclass
class _GroupTest:
    """A group under test."""

    group: Group
    runs: list[Run] = field(default_factory=list)
    verdict: Verdict | None = None


class CampaignOracle:
    """Judges groups of ``campaign.software_metrics``, as indices in its order, against the campaign's baselines.

    ``round_``: 0 for the search; other numbers measure anew with other seeds, baselines included. The first test
    makes the baselines. Raises `CampaignError` for programs and metrics that do not build, `RunError` when
    baselines fail; a group whose runs fail is bad.
    """

    def __init__(
        self,
        campaign: Campaign,
        document: YamlDocument,
        store: Store,
        settings: Settings,
        *,
        round_: int = 0,
        workers: Workers | int | None = None,
        target: str = "emulated",
        notify: Callable[[str], None] = lambda message: None,
    ) -> None:
        self.names = tuple(campaign.software_metrics)
        self.round = round_
        self.runs_made = 0
        self._campaign = campaign.model_copy(update={"seed": campaign.seed + SEED_STEP * round_})
        self._document = document
        self._store = store
        self._settings = settings
        self._workers = workers
        self._target = target
        self._notify = notify
        self._baselines: list[Run] = []
        self._correlations: list[Correlations] = []
        self._values: list[NDArray[np.float64]] = []
        self._memo: Memo = {}
        self._running_seconds = 0.0
        self._judging_seconds = 0.0
        self._judged = 0
        self._baseline_plan = self._plan({}, self._campaign.replicates)

    @property
    def definitions(self) -> list[Mapping[str, Any]]:
        """The definition of each metric, as plain data."""
        return [spec.model_dump(mode="json") for spec in self._campaign.software_metrics.values()]

    def context(self) -> str:
        """Hash of everything but the group that verdicts depend on: program, machine, noise, seeds, levels."""
        campaign = self._campaign
        return digest(
            {
                "version": ORACLE_VERSION,
                "baselines": sorted(key for _, key in self._baseline_plan),
                "placement": campaign.placement,
                "volatile": campaign.volatile,
                "delta": campaign.delta,
                "alpha": campaign.alpha,
                "outer": campaign.outer,
                "seed": campaign.seed,
                "looks": self._settings.looks,
                "accept": self._settings.accept,
                "limit": campaign.limits.instructions,
            }
        )

    def variant_of(self, group: Group) -> tuple[str, tuple[str, ...]]:
        """Name and metrics of a group's variant; the same metrics have the same name in every campaign."""
        specs = self._campaign.software_metrics
        metrics = sorted(
            (self.names[metric] for metric in group),
            key=lambda name: json.dumps(specs[name].model_dump(mode="json"), sort_keys=True),
        )
        definitions = json.dumps([specs[name].model_dump(mode="json") for name in metrics], sort_keys=True)
        return f"group-{hashlib.sha256(definitions.encode()).hexdigest()[:12]}", tuple(metrics)

    def test(self, groups: Sequence[Group]) -> list[Verdict]:
        """See `measure.partitioning.search_types.Oracle`."""
        if not self._baselines:
            self._measure_baselines()
        tests = [_GroupTest(group) for group in groups]
        for look, replicates in enumerate(self._settings.looks):
            pending = [one for one in tests if one.verdict is None]
            if not pending:
                break
            self._measure(pending, replicates)
            last = look == len(self._settings.looks) - 1
            started = time.perf_counter()
            for one in pending:
                if one.verdict is None:
                    one.verdict = self._judge(one, look, last)
            self._judging_seconds += time.perf_counter() - started
        self._judged += len(tests)
        return [one.verdict for one in tests if one.verdict is not None]

    def seconds_of(self, groups: int, runs: int, at_once: int) -> float:
        """Estimated duration of testing ``groups`` groups by ``runs`` runs in all, from the tests so far."""
        if self.runs_made:
            each = self._running_seconds / self.runs_made
        else:  # all runs came from the store
            each = sum(run.seconds for run in self._baselines) / max(1, len(self._baselines)) / at_once
        return runs * each + groups * self._judging_seconds / max(1, self._judged)

    # -- measuring ---------------------------------------------------------------------------------------------

    def _plan(self, variants: Mapping[str, tuple[str, ...]], replicates: int) -> list[tuple[RunSpec, str]]:
        """The runs of baselines and ``variants`` with their keys."""
        changes: dict[str, Any] = {
            "variants": dict(variants),
            "cumulative": None,
            "replicates": replicates,
            "controls": False,
            "variance_runs": 0,
            "paired": False,  # groups are tested one look after another against the same baselines
        }
        if not variants:  # without variants a plan would have one with all software metrics
            changes["software_metrics"] = {}
        campaign = self._campaign.model_copy(update=changes)
        plan = make_plan(campaign, self._document, self._notify, self._target)
        return list(zip(plan.specs, plan.keys, strict=True))

    def _measure_baselines(self) -> None:
        outcome = self._execute([spec for spec, _ in self._baseline_plan])
        runs = sorted(outcome.runs, key=lambda run: run.spec.replicate)
        if outcome.failures:
            first = outcome.failures[0]
            raise RunError(f"{len(outcome.failures)} baselines failed, the first: {first.reason}")
        hardware = self._campaign.hardware_metrics
        self._values = [run.trace.columns(hardware) for run in runs]
        self._correlations = [spearman(values, hardware) for values in self._values]
        self._baselines = runs

    def _execute(self, specs: Sequence[RunSpec]) -> Outcome:
        """Make the runs that are not in the store."""
        started = time.perf_counter()
        try:
            return execute_plan(specs, self._store, workers=self._workers, progress=self._ended)
        finally:
            self._running_seconds += time.perf_counter() - started

    def _ended(self) -> None:
        self.runs_made += 1

    def _measure(self, tests: Sequence[_GroupTest], replicates: int) -> None:
        """Make runs until every test has ``replicates``."""

        variants = dict(self.variant_of(one.group) for one in tests)
        for one in tests:
            one.runs.clear()
        by_group = {self.variant_of(one.group)[0]: one for one in tests}
        missing = [spec for spec, _ in self._plan(variants, replicates) if spec.variant != BASELINE]
        while missing:
            outcome = self._execute(missing)
            for run in outcome.runs:
                by_group[run.spec.variant].runs.append(run)
            for failure in outcome.failures:
                one = by_group[failure.spec.variant]
                one.verdict = Verdict("bad", f"a run failed: {failure.reason}", runs=len(one.runs))
            if len(outcome.runs) + len(outcome.failures) == len(missing):
                return
            # The executor gave up after failures of one group; the runs of the other groups are still needed.
            done = {(run.spec.variant, run.spec.replicate) for run in outcome.runs}
            missing = [
                spec
                for spec in missing
                if (spec.variant, spec.replicate) not in done and by_group[spec.variant].verdict is None
            ]

    # -- judging -----------------------------------------------------------------------------------------------

    def _judge(self, one: _GroupTest, look: int, last: bool) -> Verdict | None:
        """The verdict, or None while it is open and more replicates may decide it."""
        one.runs.sort(key=lambda run: run.spec.replicate)
        campaign = self._campaign
        alpha = campaign.alpha / len(self._settings.looks)
        hardware = campaign.hardware_metrics
        values = [run.trace.columns(hardware) for run in one.runs]
        perturbations = [
            inner_perturbation(
                self._correlations, [spearman(v, hardware) for v in values],
                delta=campaign.delta, alpha=alpha, seed=campaign.seed,
            )
        ]  # fmt: skip
        if perturbations[0].verdict in OPEN and look and perturbations[0].extra_runs_needed is None:
            last = True  # no reasonable number of runs would decide it
        lenient = self._settings.accept == "not perturbed"
        hopeful = perturbations[0].verdict == "equivalent" or (last and lenient and perturbations[0].verdict in UNSHOWN)
        if campaign.outer and hopeful:
            perturbations.append(
                outer_perturbation(
                    self._values, values, hardware, held_out=True, alignment=campaign.alignment_setting,
                    delta=campaign.delta, alpha=alpha, seed=campaign.seed, memo=self._memo,
                )
            )  # fmt: skip
        verdict = decide(perturbations, last, self._settings.accept, campaign.outer, len(one.runs))
        if verdict is None or verdict.state == "bad":
            return verdict
        _, metrics = self.variant_of(one.group)
        return with_caveat(verdict, [run.trace.columns(metrics) for run in one.runs], metrics)


def with_caveat(verdict: Verdict, counted: Sequence[NDArray[np.float64]], metrics: Sequence[str]) -> Verdict:
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


def decide(found: Sequence[Perturbation], last: bool, accept: Accept, outer: bool, runs: int) -> Verdict | None:
    """The verdict on a group from its analyses; None: open, and more runs may be made.

    ``found``: the inner perturbation and, if ``outer``, the outer one, unless the inner one was open before the
    ``last`` look. A group that is changed, by a size still open at the last look, is bad: something is shown to change.
    """
    complete = len(found) == (2 if outer else 1)
    for one in found:
        if one.verdict == "perturbed" or (last and one.verdict == "changed"):
            return _verdict("bad", one, runs)
    if complete and all(one.verdict == "equivalent" for one in found):
        return _verdict("good", _closest(found), runs)
    if not last:
        return None
    undecided = next(one for one in found if one.verdict != "equivalent")
    verdict = _verdict("undecided", undecided, runs)
    return replace(verdict, state="good") if accept == "not perturbed" and complete else verdict


def _closest(found: Sequence[Perturbation]) -> Perturbation:
    return max(found, key=lambda one: abs(_largest_change(one)))


def _largest_change(one: Perturbation) -> float:
    return max((abs(p.delta_z) for p in one.pairs if np.isfinite(p.delta_z)), default=0.0)


def _verdict(state: Literal["good", "bad", "undecided"], one: Perturbation, runs: int) -> Verdict:
    """A verdict whose reason names the worst pair and its change."""
    kind = "inner" if one.kind == "inner" else "outer"
    if not one.pairs:
        return Verdict(state, "every metric is constant: nothing to compare", None, float("nan"), kind, runs)
    pair = one.pairs[0]
    where = "within a run" if kind == "inner" else "across aligned runs"
    change = (
        f"rho of {pair.name} {pair.baseline_rho:.2f} to {pair.run_rho:.2f}, change of z {pair.delta_z:+.3f}"
        if np.isfinite(pair.delta_z)
        else f"{pair.name}: {pair.note}"
    )
    p = "" if np.isnan(pair.p_adjusted) else f", {p_text(pair.p_adjusted)} over all pairs"
    word = {"bad": one.verdict, "good": "largest", "undecided": "open"}[state]
    reason = f"{where}, {word}: {change} (limit {one.delta:g}{p}; {runs} runs)"
    return Verdict(state, reason, (pair.a, pair.b), pair.delta_z, kind, runs)
