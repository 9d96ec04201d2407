"""Compares the stored results of two campaigns: verdicts of each, the test of their difference, and their designs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.listed_names import listed
from measure.analysis.analysis import baselines_of
from measure.analysis.stored_runs import load_results
from measure.console.command_words import shown_path
from measure.errors import CampaignError, MeasureError
from measure.judging.comparison import Compared, compared, runs_of
from measure.perturbation.analysis_types import VERDICTS, Perturbation, Verdict, gravest
from measure.perturbation.outer import Memo
from measure.perturbation.perturbation import inner_perturbation
from measure.perturbation.verdict import overall_verdict
from measure.perturbation.wording import counted
from measure.report.style import short
from measure.run_types import BASELINE, Run
from measure.runs.campaign_model import FEWEST_PAIRS
from measure.runs.plan import Plan
from measure.runs.program_identity import different_programs
from measure.stats.correlation import MOST_AT_CEILING, RHO_CEILING, fisher_z, share_at_ceiling, spearman
from measure.two_campaigns.across import AcrossRuns, common_duplicates
from measure.two_campaigns.change_test import FEWEST_RUNS, compare_changes, smallest_p
from measure.two_campaigns.design_facts import DesignFact, differing_facts, unlike_designs
from measure.two_campaigns.repeated_runs import repeated_variants
from measure.two_campaigns.variant_change import NotCompared, PairChange, SideVerdicts, VariantChange
from measure.verdict_files.summary_file import read_summary

NULL_HYPOTHESIS = (
    "the instrumentation changes the relation of the two metrics, or of a metric with itself across aligned runs, by "
    "the same amount of z, in the mean over runs, in both campaigns"
)


@dataclass(frozen=True)
class CampaignsCompared:
    """Two campaigns compared. ``only_before``, ``only_after``: variants that the other campaign does not have;
    ``notes``: sentences on runs and metrics that are left out; ``campaign_file``: of the second campaign; ``unlike``:
    sentences on what alone makes relations differ, such as another program; ``repeated``: variants of which, and of
    whose baselines, one campaign has only runs that the other has, too; ``invalidating``: what makes figures or
    verdicts of either campaign wrong, such as a control that failed; ``without_runs``: variants of both campaigns that
    ``variants`` lacks because either has no run of them; ``failed_controls``: the sentences of ``invalidating`` on
    controls that failed, by directory and name of the control."""

    before: str
    after: str
    metrics: tuple[str, ...]
    variants: tuple[VariantChange, ...]
    facts: tuple[DesignFact, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    notes: tuple[str, ...]
    delta: float
    alpha: float
    campaign_file: str = ""
    unlike: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    invalidating: tuple[str, ...] = ()
    without_runs: tuple[NotCompared, ...] = ()
    failed_controls: Mapping[str, str] = field(default_factory=dict)

    @property
    def notice(self) -> str:
        """A sentence to be read first where all runs of one campaign are the other's, or ""."""
        if not self.variants or len(self.repeated) < len(self.variants):
            return ""
        return (
            f"All compared runs of {self.before} and {self.after}, baselines included, have the same numbers: they are "
            "the same runs, and no evidence of their own, so that nothing is shown. One directory may be a copy of the "
            "other, or a change did not reach the program: build it again and repeat `measure run`. If program, "
            "counters and machine are meant to be the same, another seed (`measure run --set seed=2`) makes other runs."
        )

    @property
    def findings(self) -> tuple[str, ...]:
        """Sentences: what makes a campaign wrong, that the runs are the same, or what alone makes relations differ, the
        variants, the gravest first, then what is left out."""
        alone = [
            f"{', '.join(names)}: only in {side}, so not compared."
            for names, side in ((self.only_before, self.before), (self.only_after, self.after))
            if names
        ]
        same = [
            f"{', '.join(self.repeated)}: runs and baselines have the same numbers in both campaigns, as the program "
            "is the same, so that no difference can show."
        ] if self.repeated and not self.notice else []  # fmt: skip
        first = [self.notice] if self.notice else []
        variants = [*(one.text for one in self.variants), *(one.text for one in self.without_runs)]
        return (*self.invalidating, *first, *self.unlike, *variants, *same, *alone, *self.notes)


@dataclass(frozen=True)
class _Side:
    """The results in one directory. ``missing``, ``failed``: numbers of runs that were never made, and that failed."""

    directory: Path
    plan: Plan
    runs: Sequence[Run]
    summary: Mapping[str, Any]
    missing: int
    failed: int

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.plan.campaign.hardware_metrics

    @property
    def remedy(self) -> str:
        """What makes runs that are missing."""
        return f"`measure run {self.plan.campaign_words}` makes them"


@dataclass(frozen=True)
class _Setting:
    """What the tests of all variants share. ``repeated``: variants of which both campaigns have the same runs;
    ``memo``: alignments of baselines, which variants share."""

    sides: Sequence[_Side]
    metrics: tuple[str, ...]
    paired: bool
    delta: float
    alpha: float
    n_variants: int
    repeated: Collection[str]
    memo: Memo = field(default_factory=dict)


def compare_results(
    before: Path, after: Path, *, delta: float | None = None, alpha: float | None = None
) -> CampaignsCompared:
    """Compare two directories of results. ``delta``, ``alpha``: default: the smaller of the two campaigns'.

    Raises `CampaignError` for a directory without results or without a report, and for campaigns with no variant or
    fewer than two hardware metrics in common.
    """
    sides = [_side(directory) for directory in (before, after)]
    first, second = sides
    metrics = tuple(metric for metric in first.metrics if metric in second.metrics)
    if len(metrics) < 2:
        raise CampaignError(
            f"{before} and {after} have {len(metrics)} hardware metrics in common, expected at least two: their "
            "relations are what is compared"
        )
    campaigns = [side.plan.campaign for side in sides]
    sets = [campaign.variant_sets() for campaign in campaigns]
    in_both = [name for name in sets[0] if name in sets[1]]
    if not in_both:
        raise CampaignError(
            f"{before} has the variants {', '.join(sets[0]) or 'none'}, {after} {', '.join(sets[1]) or 'none'}: "
            "expected at least one of the same name"
        )
    without_runs = _without_runs(sides, in_both)
    names = [name for name in in_both if name not in {one.name for one in without_runs}]
    if not names:
        raise CampaignError(" ".join(one.text for one in without_runs))
    delta = delta if delta is not None else min(campaign.delta for campaign in campaigns)
    alpha = alpha if alpha is not None else min(campaign.alpha_of_a_look for campaign in campaigns)
    same_noise = (campaigns[0].seed, campaigns[0].noise) == (campaigns[1].seed, campaigns[1].noise)
    same_machine = campaigns[0].host is None and campaigns[1].host is None  # a host's pairs share no noise with others
    paired = same_noise and same_machine and all(campaign.pairs for campaign in campaigns)
    repeated = repeated_variants(first.runs, second.runs, names, metrics, paired)
    setting = _Setting(sides, metrics, paired, delta, alpha, len(names), repeated)
    variants = [_variant(name, setting) for name in names]
    order = {verdict: n for n, verdict in enumerate(VERDICTS)}
    notes = [
        *(f"{side.directory} lacks {counted(side.missing, 'run')}: {side.remedy}." for side in sides if side.missing),
        *(
            f"{counted(side.failed, 'run')} of {side.directory} failed: `measure report "
            f"{shown_path(str(side.directory))}` says why."
            for side in sides
            if side.failed
        ),
    ]
    if apart := [one.name for one in variants if one.is_paired_by_design and not one.paired]:
        notes.append(
            f"{', '.join(apart)}: fewer than {FEWEST_PAIRS} runs with the same seed are there in both campaigns, so "
            "that they are compared without pairs, as runs with other seeds are."
        )
    cut_off = [f"{one.name}: {listed(one.at_ceiling, 3)}" for one in variants if one.at_ceiling]
    if cut_off:
        notes.append(
            f"Not compared within a run, as rho is at its ceiling of {RHO_CEILING:g}, where changes have no size: "
            f"{'; '.join(cut_off)}."
        )
    if any(pair.is_across for one in variants for pair in one.pairs):
        notes.append(
            "Across runs, changes are computed anew: each run is aligned with half of the baselines, so that changes "
            "are independent, and metrics that nearly duplicate one another in either campaign are left out of each "
            "other's alignment in both. So they are not those of the campaigns' own reports, and intervals are wider."
        )
    notes += _agreement(variants)
    left_out = [metric for side in sides for metric in side.metrics if metric not in metrics]
    if left_out:
        notes.append(f"Hardware metrics of one campaign only, left out: {', '.join(left_out)}.")
    return CampaignsCompared(
        str(before), str(after), metrics, tuple(sorted(variants, key=lambda one: order[one.verdict])),
        differing_facts(first.plan, second.plan),
        tuple(name for name in sets[0] if name not in sets[1]), tuple(name for name in sets[1] if name not in sets[0]),
        tuple(notes), delta, alpha, second.plan.campaign_file,
        unlike_designs(
            first.plan, second.plan, (str(before), str(after)),
            baselines_of_two_programs([(side.plan, side.runs) for side in sides], metrics, paired, delta, alpha),
        ),
        repeated,
        tuple(f"{side.directory}: {one}" for side in sides for one in side.summary.get("invalidating", ())),
        without_runs,
        {
            f"{side.directory}: {control}": f"{side.directory}: {text}"
            for side in sides
            for control, text in side.summary.get("failed_controls", {}).items()
        },
    )  # fmt: skip


def baselines_of_two_programs(
    sides: Sequence[tuple[Plan, Sequence[Run]]], metrics: Sequence[str], paired: bool, delta: float, alpha: float
) -> Perturbation | None:
    """The baselines of the second campaign against those of the first, as instrumented runs are compared with
    baselines within runs; None where both measure one program. ``sides``: plan and runs of each; ``paired``: runs with
    one number share their noise."""
    (before, _), (after, _) = sides
    if not different_programs(before, after):
        return None
    found = [{run.spec.replicate: run for run in runs_of(runs, BASELINE)} for _, runs in sides]
    both = sorted(found[0].keys() & found[1].keys())
    in_pairs = paired and bool(both)
    chosen = [[side[number] for number in (both if in_pairs else sorted(side))] for side in found]
    first, second = [[spearman(run.trace.counts(tuple(metrics)), metrics) for run in side] for side in chosen]
    return inner_perturbation(first, second, delta=delta, alpha=alpha, paired=in_pairs, seed=before.campaign.seed)


def _without_runs(sides: Sequence[_Side], names: Sequence[str]) -> tuple[NotCompared, ...]:
    """The variants of ``names`` of which a campaign has no runs, each with the campaigns that lack them."""
    lacking = {name: [side for side in sides if not runs_of(side.runs, name)] for name in names}
    return tuple(
        NotCompared(
            name,
            _verdict_alone(sides[0], name),
            _verdict_alone(sides[1], name),
            "not compared, as " + " and ".join(f"{one.directory} has no run of it ({one.remedy})" for one in without),
        )
        for name, without in lacking.items()
        if without
    )


def _agreement(variants: Sequence[VariantChange]) -> list[str]:
    """On how many variants and pairs of metrics the two campaigns have the same verdict."""
    same = [one.name for one in variants if one.before.verdict == one.after.verdict]
    others = [one.name for one in variants if one.name not in same]
    assessed = [
        pair
        for one in variants
        for pair in one.pairs
        if not pair.is_across and "not assessable" not in (pair.before, pair.after)
    ]
    n_same = sum(pair.before == pair.after for pair in assessed)
    which = f" (not on {', '.join(others)})" if others else ""
    return [
        f"The two campaigns' own verdicts agree on {len(same)} of {len(variants)} variants{which}, and within a run on "
        f"{n_same} of {len(assessed)} pairs of metrics that both can assess."
    ]


def _side(directory: Path) -> _Side:
    if not directory.is_dir():
        raise CampaignError(f"{directory}: no such directory; expected one that `measure run` left")
    result, outcome = load_results(directory)
    try:
        baselines_of(result.plan, outcome)
    except MeasureError as error:
        raise CampaignError(f"{directory}: {error}") from None
    return _Side(
        directory, result.plan, outcome.runs, read_summary(directory), len(outcome.untried), len(outcome.failures)
    )  # fmt: skip


def _variant(name: str, setting: _Setting) -> VariantChange:
    """The test of the difference of the changes of one variant."""
    sides, metrics, paired = setting.sides, setting.metrics, setting.paired
    anew = len(setting.repeated) < setting.n_variants  # runs that are all the same show nothing
    compared_runs = [
        compared(side.plan.campaign, runs_of(side.runs, BASELINE), runs_of(side.runs, name)) for side in sides
    ]
    numbers = [[run.spec.replicate for run, _ in zip(one.runs, one.baselines, strict=False)] for one in compared_runs]
    both = sorted(set(numbers[0]) & set(numbers[1]))
    by_design, paired = paired, paired and len(both) >= FEWEST_PAIRS
    rows = [[mine.index(number) for number in (both if paired else sorted(mine))] for mine in numbers]
    verdicts = [_verdicts(side, name) for side in sides]
    outer = all(one.across is not None for one in verdicts)
    couples_within = list(combinations(metrics, 2))
    rhos = [(_rho(one.baselines, metrics), _rho(one.runs, metrics)) for one in compared_runs]
    at_ceiling = np.any([share_at_ceiling(*both) > MOST_AT_CEILING for both in rhos], axis=0)
    within = [np.where(at_ceiling, np.nan, _changes_within(*both)) for both in rhos]
    scopes = [(couples_within, within)]
    if outer:
        scopes.append(([(metric, metric) for metric in metrics], _changes_across(setting, compared_runs)))
    pairs: list[PairChange] = []
    found_verdicts: list[Verdict] = []
    comparisons = setting.n_variants * len(scopes)
    for couples, changes in scopes:
        tables = [mine[chosen] for mine, chosen in zip(changes, rows, strict=True)]
        assessable = [
            anew
            and all(one.of(*couple) != "not assessable" for one in verdicts)
            and bool(np.isfinite(np.concatenate(tables)[:, n]).all())
            for n, couple in enumerate(couples)
        ]
        tests = compare_changes(
            *tables, paired=paired, delta=setting.delta, alpha=setting.alpha,
            comparisons=comparisons, assessable=assessable,
            seed=sides[0].plan.campaign.seed,
        )  # fmt: skip
        found = [
            PairChange(a, b, verdicts[0].of(a, b), verdicts[1].of(a, b), test)
            for (a, b), test in zip(couples, tests, strict=True)
        ]
        found_verdicts.append(overall_verdict([one.test.verdict for one in found]))
        pairs += found
    order = {verdict: n for n, verdict in enumerate(VERDICTS)}
    pairs.sort(key=lambda one: (order[one.test.verdict], -np.nan_to_num(abs(one.test.difference))))
    tested = [one.test.p_adjusted for one in pairs if np.isfinite(one.test.p_adjusted)]
    enough = min(map(len, rows)) >= FEWEST_RUNS
    verdict: Verdict = gravest(found_verdicts) if enough else "inconclusive"
    n_before, n_after = map(len, rows)
    shared = [one.on(metrics, outer) for one in verdicts]
    return VariantChange(
        name, verdicts[0], verdicts[1], verdict, min(tested, default=float("nan")), tuple(pairs),
        n_before, n_after, paired, setting.alpha, comparisons,
        smallest_p(n_before, n_after, paired=paired, comparisons=comparisons) if enough else 1.0,
        tuple(f"{short(a)} - {short(b)}" for (a, b), high in zip(couples_within, at_ceiling, strict=True) if high),
        by_design, name in setting.repeated, shared[0] == shared[1],
    )  # fmt: skip


def _changes_within(baseline_rho: NDArray[np.float64], run_rho: NDArray[np.float64]) -> NDArray[np.float64]:
    """The change of z of each of P pairs of metrics in each run, ``(n, P)``, from the correlations of both.

    In a paired campaign, against the baseline of the same replicate; otherwise against the one with the same place in
    order, so that no baseline is used twice and changes are independent.
    """
    n = min(len(baseline_rho), len(run_rho))
    return np.asarray(fisher_z(run_rho[:n]) - fisher_z(baseline_rho[:n]))


def _rho(runs: Sequence[Run], metrics: Sequence[str]) -> NDArray[np.float64]:
    """Correlations of each pair of ``metrics`` in each of ``runs``, ``(n, P)``."""
    first, second = np.triu_indices(len(metrics), 1)
    found = [spearman(run.trace.counts(tuple(metrics)), metrics).rho[first, second] for run in runs]
    return np.array(found).reshape(-1, len(first))


def _changes_across(setting: _Setting, found: Sequence[Compared]) -> list[NDArray[np.float64]]:
    """The change of z of each metric with itself across runs, in each run of each campaign, ``(R, m)``."""

    def tables(runs: Sequence[Run]) -> list[NDArray[np.int64]]:
        return [run.trace.counts(setting.metrics) for run in runs]

    baselines = [
        AcrossRuns(tables(one.baselines), setting.metrics, side.plan.campaign.alignment_setting, memo=setting.memo)
        for side, one in zip(setting.sides, found, strict=True)
    ]
    duplicates = common_duplicates(baselines)
    return [
        mine.changes(tables(one.runs[: len(one.baselines)]), duplicates)
        for mine, one in zip(baselines, found, strict=True)
    ]


def _verdict_alone(side: _Side, name: str) -> Verdict:
    """The verdict of one campaign on a variant that the other may have no runs of."""
    try:
        found: Verdict = side.summary["variants"][name]["verdict"]
    except (KeyError, TypeError):
        raise _no_verdict(side, name) from None
    return found


def _no_verdict(side: _Side, name: str) -> CampaignError:
    return CampaignError(
        f"{side.directory / 'summary.json'} has no verdict on {name}: `measure report {side.directory}` writes it from "
        "the stored runs"
    )


def _verdicts(side: _Side, name: str) -> SideVerdicts:
    try:
        stored = side.summary["variants"][name]
        across = stored.get("outer_held_out")
        return SideVerdicts(
            stored["verdict"], stored["inner"]["verdict"], across["verdict"] if across else None,
            {
                frozenset((pair["a"], pair["b"])): pair["verdict"]
                for scope in (stored["inner"], across or {"pairs": []})
                for pair in scope["pairs"]
            },
        )  # fmt: skip
    except (KeyError, TypeError):
        raise _no_verdict(side, name) from None
