"""Tests groups of software metrics by measuring: builds, runs, and the verdict of the perturbation analysis.

A group becomes a variant of the campaign that collects its metrics. It starts with few replicates and gets more
while the verdict is open. Each look at the data gets its share of alpha, so that several looks do not make chance
findings likelier. Inner perturbation is decided first, because aligning runs costs most.

The first groups' runs are made in turn with the baselines, so that a time limit that ends before all of these are made
leaves some of both, which can be compared.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, TypeVar

from common.listed_names import listed
from common.source_digest import source_digest
from common.yaml_document import YamlDocument
from measure.errors import RunError
from measure.judging.outlying_runs import outlying_of_groups
from measure.partitioning.group_verdicts import Accept, decide, open_verdict, with_caveat, with_outlying
from measure.partitioning.search_types import Group, GroupVerdict
from measure.partitioning.verdict_memory import digest
from measure.perturbation.analysis_types import Perturbation
from measure.perturbation.outlying_runs import OutlyingRuns
from measure.perturbation.perturbation import Memo, inner_perturbation, outer_perturbation
from measure.run_types import BASELINE, Run, RunSpec
from measure.runs.campaign_model import Campaign
from measure.runs.executor import Outcome, Workers, execute_plan
from measure.runs.looks import judging_design
from measure.runs.plan import make_plan
from measure.runs.store import Store
from measure.stats.correlation import spearman

FIRST_REPLICATES = 3
_GROUP = re.compile(r"group-[0-9a-f]{12}")  # the name of a group's variant
_MOST_NAMES = 3  # of metrics in a message
SEED_STEP = 1_000_003  # between the seeds of a search and of its validations
_MEASURE = Path(__file__).parents[1]
JUDGING_SOURCES = tuple(
    _MEASURE / place
    for place in (
        "alignment", "perturbation", "stats", "judging/outlying_runs.py", "partitioning/oracle.py",
        "partitioning/group_verdicts.py", "partitioning/search_types.py",
    )
)  # fmt: skip
"""The files and folders of sources that make verdicts of runs."""

T = TypeVar("T")
OPEN = ("changed", "inconclusive")
"""Verdicts that further runs may settle."""
UNSHOWN = ("inconclusive", "not assessable")
"""Verdicts that show neither a change nor that there is none."""
SETTLED = ("equivalent", "not assessable")
"""Verdicts that further runs do not change; what they leave open, the other comparison decides."""
_FEWEST_BASELINES = 2  # which show a spread


@dataclass(frozen=True)
class GroupSettings:
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
    """A group under test. ``open``: what the last look left open; ``planned``: runs up to the next look, with keys."""

    group: Group
    runs: list[Run] = field(default_factory=list)
    verdict: GroupVerdict | None = None
    open: GroupVerdict | None = None
    planned: list[tuple[RunSpec, str]] = field(default_factory=list)


class _Baselines:
    """Baselines, with what groups are compared with: their hardware metrics, and how these correlate."""

    def __init__(self, runs: Sequence[Run], hardware: tuple[str, ...]) -> None:
        self.runs = runs
        self.values = [run.trace.columns(hardware) for run in runs]
        self.correlations = [spearman(values, hardware) for values in self.values]


class CampaignOracle:
    """Judges groups of ``campaign.software_metrics``, as indices in its order, against the campaign's baselines.

    ``round_``: 0 for the search; other numbers measure anew with other seeds, baselines included. The first test
    makes the baselines. ``begin`` is called before a program is built, if one is missing (`Builds`). Raises
    `CampaignError` for programs and metrics that do not build, `RunError` when baselines fail; a group whose runs
    fail is bad.
    """

    def __init__(
        self,
        campaign: Campaign,
        document: YamlDocument,
        store: Store,
        settings: GroupSettings,
        *,
        round_: int = 0,
        workers: Workers | int | None = None,
        target: str = "emulated",
        notify: Callable[[str], None] = lambda message: None,
        begin: Callable[[bool], None] = lambda lacks_library: None,
    ) -> None:
        self.names = tuple(campaign.software_metrics)
        self.round = round_
        self.runs_made = 0
        self._campaign = campaign.model_copy(update={"seed": campaign.seed + SEED_STEP * round_})
        self._document = document
        self._store = store
        self.settings = settings
        self._workers = workers
        self._target = target
        self._notify, self._begin = lambda message: notify(_GROUP.sub(self._metrics_of, message)), begin
        self._baselines = _Baselines((), ())
        self._under_test: list[_GroupTest] = []
        self._group_metrics: dict[str, list[str]] = {}
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
        """Hash of everything but the group that verdicts depend on: program, machine, noise, seeds, levels, and the
        code that judges."""
        campaign = self._campaign
        return digest(
            {
                "sources": source_digest(JUDGING_SOURCES),
                "baselines": sorted(key for _, key in self._baseline_plan),
                "placement": campaign.placement,
                "volatile": campaign.volatile,
                "judged": judging_design(self._collecting({}, campaign.replicates)),
                "looks": self.settings.looks,
                "accept": self.settings.accept,
            }
        )

    def variant_of(self, group: Group) -> tuple[str, tuple[str, ...]]:
        """Name and metrics of a group's variant; the same metrics in the same order have the same name in every
        campaign.

        The order is that of the campaign's file, as in the campaign that is written for the groups: it decides which
        program is built, so another one would be judged than is run later.
        """
        specs = self._campaign.software_metrics
        metrics = [self.names[metric] for metric in sorted(group)]
        definitions = json.dumps([specs[name].model_dump(mode="json") for name in metrics], sort_keys=True)
        name = f"group-{hashlib.sha256(definitions.encode()).hexdigest()[:12]}"
        self._group_metrics[name] = metrics
        return name, tuple(metrics)

    def _metrics_of(self, group: re.Match[str]) -> str:
        """The metrics of the group that a message names."""
        metrics = self._group_metrics.get(group[0], [group[0]])
        if len(metrics) == len(self.names) > 1:
            return "all metrics together"
        return listed(metrics, _MOST_NAMES)

    def test(self, groups: Sequence[Group]) -> list[GroupVerdict]:
        """See `measure.partitioning.search_types.Oracle`."""
        tests = self._under_test = [_GroupTest(group) for group in groups]
        for look, replicates in enumerate(self.settings.looks):
            pending = [one for one in tests if one.verdict is None]
            if not pending:
                break
            self._measure(pending, replicates)
            last = look == len(self.settings.looks) - 1
            started = time.perf_counter()
            for one in pending:
                if one.verdict is None:
                    one.verdict = self._judge(one, look, last)
            self._judging_seconds += time.perf_counter() - started
        self._judged += len(tests)
        self._under_test = []
        return [one.verdict for one in tests if one.verdict is not None]

    def seconds_of(self, groups: int, runs: int, at_once: int) -> float:
        """Estimated duration of testing ``groups`` groups by ``runs`` runs in all, from the tests so far."""
        if self.runs_made:
            each = self._running_seconds / self.runs_made
        else:  # all runs came from the store
            runs_there = self._baselines.runs
            each = sum(run.seconds for run in runs_there) / max(1, len(runs_there)) / at_once
        return runs * each + groups * self._judging_seconds / max(1, self._judged)

    def first_runs(self) -> tuple[int, float, bool]:
        """The number of the baselines and of a group's first runs, estimated seconds of all of them from the runs so
        far, and whether it is at least so long because no run has ended yet."""
        count = len(self._baseline_plan) + self.settings.looks[0]
        each = self._running_seconds / max(1, self.runs_made)
        return count, count * each, not self.runs_made

    @property
    def running_seconds(self) -> float:
        """How long runs were being made."""
        return self._running_seconds

    # -- measuring ---------------------------------------------------------------------------------------------

    def _collecting(self, variants: Mapping[str, tuple[str, ...]], replicates: int) -> Campaign:
        """The campaign with ``variants`` in place of its own."""
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
        return self._campaign.model_copy(update=changes)

    def _plan(self, variants: Mapping[str, tuple[str, ...]], replicates: int) -> list[tuple[RunSpec, str]]:
        """The runs of baselines and ``variants`` with their keys."""
        plan = make_plan(
            self._collecting(variants, replicates), self._document, self._notify, self._target, self._begin
        )
        return list(zip(plan.specs, plan.keys, strict=True))

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
        """Make runs until every test has ``replicates``, and the baselines if there are none."""
        variants = dict(self.variant_of(one.group) for one in tests)
        for one in tests:
            one.runs.clear()
            one.planned.clear()
        by_group = {self.variant_of(one.group)[0]: one for one in tests}
        for spec, key in self._plan(variants, replicates):
            if spec.variant != BASELINE:
                by_group[spec.variant].planned.append((spec, key))
        kinds = [one.planned for one in tests]
        if not self._baselines.runs:
            kinds = [self._baseline_plan, *kinds]
        missing = in_turn([[spec for spec, _ in planned] for planned in kinds])
        baselines: list[Run] = []
        while missing:
            outcome = self._execute(missing)
            for run in outcome.runs:
                (baselines if run.spec.variant == BASELINE else by_group[run.spec.variant].runs).append(run)
            failed = [failure for failure in outcome.failures if failure.spec.variant == BASELINE]
            if failed:
                raise RunError(f"{len(failed)} baselines failed, the first: {failed[0].reason}")
            for failure in outcome.failures:
                one = by_group[failure.spec.variant]
                one.verdict = GroupVerdict("bad", f"a run failed: {failure.reason}", runs=len(one.runs))
            if len(outcome.runs) + len(outcome.failures) == len(missing):
                break
            # The executor gave up after failures of one group; the runs of the other groups are still needed.
            done = {(run.spec.variant, run.spec.replicate) for run in outcome.runs}
            missing = [
                spec
                for spec in missing
                if (spec.variant, spec.replicate) not in done
                and (spec.variant == BASELINE or by_group[spec.variant].verdict is None)
            ]
        if baselines:
            baselines.sort(key=lambda run: run.spec.replicate)
            self._baselines = _Baselines(baselines, self._campaign.hardware_metrics)

    # -- judging -----------------------------------------------------------------------------------------------

    def _judge(self, one: _GroupTest, look: int, last: bool) -> GroupVerdict | None:
        """The verdict, or None while it is open and more replicates may decide it."""
        one.runs.sort(key=lambda run: run.spec.replicate)
        found = [self._inner(self._baselines, one.runs)]
        if found[0].verdict in OPEN and look and found[0].extra_runs_needed is None:
            last = True  # no reasonable number of runs would decide it
        lenient = self.settings.accept == "not perturbed"
        seen = found[0].verdict in SETTLED
        hopeful = seen or (last and lenient and found[0].verdict in UNSHOWN)
        if self._campaign.outer and hopeful:
            found.append(self._outer(self._baselines, one.runs))
        return self._decided(one, found, one.runs, last)

    def _decided(
        self,
        one: _GroupTest,
        found: Sequence[Perturbation],
        runs: Sequence[Run],
        last: bool,
        all_baselines: bool = True,
    ) -> GroupVerdict | None:
        """As `decide`; what is left open is kept in the test."""
        accept, outer = self.settings.accept, self._campaign.outer
        verdict = decide(found, last, accept, outer, len(runs), all_baselines)
        if verdict is None:
            one.open = open_verdict(found, len(runs))
        if verdict is None:
            return verdict
        name, metrics = self.variant_of(one.group)
        verdict = with_outlying(verdict, [run for run in self._outlying(name, runs) if run.variant == name])
        if verdict.state == "bad":
            return verdict
        return with_caveat(verdict, [run.trace.columns(metrics) for run in runs], metrics)

    def _outlying(self, name: str = "", runs: Sequence[Run] = ()) -> tuple[OutlyingRuns, ...]:
        """The baselines and those of the ``runs`` of a group ``name`` that stand out from the others of theirs."""
        groups = {BASELINE: list(self._baselines.runs), **({name: list(runs)} if runs else {})}
        return outlying_of_groups(groups, self._campaign.hardware_metrics, paired=False) if groups[BASELINE] else ()

    @property
    def starts_tasks(self) -> bool:
        """Whether the program starts threads or processes, by its baselines."""
        return any(run.starts_tasks for run in self._baselines.runs or self._stored(self._baseline_plan))

    def outlying_baselines(self) -> list[str]:
        """Sentences on the baselines that stand out from the others; none before the first test."""
        return [one.text for one in self._outlying()]

    def _inner(self, baselines: _Baselines, runs: Sequence[Run]) -> Perturbation:
        """The comparison within runs."""
        campaign, hardware = self._campaign, self._campaign.hardware_metrics
        return inner_perturbation(
            baselines.correlations, [spearman(run.trace.columns(hardware), hardware) for run in runs],
            delta=campaign.delta, alpha=self._level, seed=campaign.seed,
        )  # fmt: skip

    def _outer(self, baselines: _Baselines, runs: Sequence[Run]) -> Perturbation:
        """The comparison across aligned runs."""
        campaign, hardware = self._campaign, self._campaign.hardware_metrics
        return outer_perturbation(
            baselines.values, [run.trace.columns(hardware) for run in runs], hardware, held_out=True,
            alignment=campaign.alignment_setting, delta=campaign.delta, alpha=self._level, seed=campaign.seed,
            memo=self._memo,
        )  # fmt: skip

    @property
    def _level(self) -> float:
        """The share of alpha of a look."""
        return self._campaign.alpha / len(self.settings.looks)

    def judge_unfinished(self, found: dict[Group, GroupVerdict]) -> None:
        """Add to ``found`` verdicts on the groups whose test was interrupted, by the runs that are there.

        A verdict is *undecided* unless these runs suffice for another. Verdicts within runs come first, for aligning
        takes long, and the caller may interrupt it. A group without two baselines and a run gets none.
        """
        baselines = self._baselines
        if not baselines.runs:
            baselines = _Baselines(self._stored(self._baseline_plan), self._campaign.hardware_metrics)
        there, planned = len(baselines.runs), self._campaign.baselines
        of = f"; by {there} of {planned} baselines, when the time was up" if there < planned else ""
        compared: list[tuple[_GroupTest, list[Run], Perturbation]] = []
        for one in self._under_test:
            runs = self._stored(one.planned)
            judged = one.verdict is not None or (one.open is not None and len(runs) <= one.open.runs)
            if judged or not runs or there < _FEWEST_BASELINES:
                continue
            inner = self._inner(baselines, runs)
            one.verdict = self._decided(one, [inner], runs, last=False, all_baselines=there >= planned)
            compared.append((one, runs, inner))
        for one in self._under_test:
            _add(found, one, of)
        for one, runs, inner in compared:
            if self._campaign.outer and inner.verdict in SETTLED:
                both = [inner, self._outer(baselines, runs)]
                one.verdict = self._decided(one, both, runs, last=False, all_baselines=there >= planned)
                _add(found, one, of)

    def _stored(self, planned: Sequence[tuple[RunSpec, str]]) -> list[Run]:
        """Those of the ``planned`` runs that were made."""
        return [run for spec, key in planned if (run := self._store.load(key, spec)[0]) is not None]


def in_turn(kinds: Sequence[Sequence[T]]) -> list[T]:
    """The items of all ``kinds``: the first of each, then the second of each, and so on."""
    return [item for item in chain.from_iterable(zip_longest(*kinds)) if item is not None]


def _add(found: dict[Group, GroupVerdict], one: _GroupTest, remark: str) -> None:
    """Add the verdict on a group, open or not, to ``found``, with a ``remark`` on the runs; nothing without one."""
    verdict = one.verdict or one.open
    if verdict is not None:
        found[one.group] = replace(verdict, reason=verdict.reason + remark)
