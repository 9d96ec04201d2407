"""Compares runs of a variant with baselines: in pairs that share their noise, or all with all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measure.perturbation.analysis_types import Perturbation
from measure.perturbation.findings import of_one_metric
from measure.perturbation.outer import Memo, outer_evidence
from measure.perturbation.perturbation import affordable_permutations, inner_evidence
from measure.perturbation.similarity import Aligner, align_in_threads
from measure.perturbation.verdict import Evidence, Family
from measure.run_types import Run
from measure.runs.campaign_model import FEWEST_PAIRS, Campaign
from measure.stats.correlation import spearman
from measure.stats.permutation import sign_flips


@dataclass(frozen=True)
class Compared:
    """Runs to compare. ``paired``: run i and baseline i share their noise; baselines without a partner come last."""

    baselines: tuple[Run, ...]
    runs: tuple[Run, ...]
    paired: bool

    @property
    def has_few_pairs(self) -> bool:
        """Whether so many runs of a paired campaign are missing that its pairs allow no p-value below 5%."""
        return self.paired and len(self.runs) < FEWEST_PAIRS


def runs_of(runs: Sequence[Run], variant: str) -> list[Run]:
    """The runs of a variant by replicate."""
    return sorted((run for run in runs if run.spec.variant == variant), key=lambda run: run.spec.replicate)


def percent_over(sides: Compared, total: str) -> NDArray[np.float64]:
    """How much more than its baseline each run of ``sides`` has of a ``total``, the name of an attribute, in percent,
    ``(r,)``: than its partner in pairs, else than the mean of the baselines. nan where the baselines have none."""
    before, after = (np.array([getattr(run, total) for run in group]) for group in (sides.baselines, sides.runs))
    expected = before[: len(after)] if sides.paired else np.full(len(after), before.mean())
    if not expected.all():  # a host that does not count instructions
        return np.full(len(after), np.nan)
    return np.asarray(100 * (after / expected - 1))


def compared(campaign: Campaign, baselines: Sequence[Run], runs: Sequence[Run]) -> Compared:
    """The pairs of a paired campaign, as many as are left where runs failed; all runs if it is not paired, or if no
    pair is left, so that no run shares its noise with a baseline."""
    if campaign.pairs:
        before = {run.spec.replicate: run for run in baselines}
        after = {run.spec.replicate: run for run in runs}
        both = sorted(before.keys() & after.keys())
        if both:
            alone = [before[n] for n in sorted(before.keys() - after.keys())]
            return Compared((*(before[n] for n in both), *alone), tuple(after[n] for n in both), True)
    return Compared(tuple(baselines), tuple(runs), False)


@dataclass(frozen=True)
class Judged:
    """The verdicts on a variant: within a run, and across runs aligned on the other metrics and on all metrics, which
    are None if alignment is off."""

    inner: Perturbation
    outer_held_out: Perturbation | None
    outer_joint: Perturbation | None

    def of_one_metric(self) -> Judged:
        """The same of a variant that collects a single software metric."""
        outer = (None if one is None else of_one_metric(one) for one in (self.outer_held_out, self.outer_joint))
        return Judged(of_one_metric(self.inner), *outer)


class VariantComparison:
    """Compares the runs of all ``variants`` with ``baselines``, by the campaign's delta, level and seed.

    Variants, within and across runs, share one chance of a false alarm. Those that are compared in pairs are tested
    together: a flip exchanges baseline i with run i of every variant, within and across runs. The others have equal
    shares of alpha, and so have variants of which fewer than `FEWEST_PAIRS` pairs are left: in so few, all differences
    have one sign in many flips, whose large statistics would hide changes of the other variants. Controls and the
    comparison on all metrics are tested as strictly, and cost the variants nothing.
    ``progress``: called with what is computed. ``aligner``: computes the similarities of pairs of runs.
    """

    def __init__(
        self,
        campaign: Campaign,
        baselines: Sequence[Run],
        variants: Mapping[str, Sequence[Run]],
        progress: Callable[[str], None] = lambda what: None,
        aligner: Aligner = align_in_threads,
    ) -> None:
        self.campaign, self._baselines, self._aligner = campaign, baselines, aligner
        self._variants = {name: runs for name, runs in variants.items() if runs}
        self._progress = progress
        # Alignments of baselines with one another, shared by all comparisons with the same baselines.
        self._memos: dict[tuple[int, ...], Memo] = {}
        n_metrics = len(campaign.hardware_metrics)
        couples = n_metrics * (n_metrics - 1) // 2
        self._n_permutations = affordable_permutations(couples)
        self._flips = sign_flips(campaign.pairs, self._n_permutations, campaign.seed) if campaign.pairs else None

    def tables(self, runs: Sequence[Run]) -> list[NDArray[np.int64]]:
        """The hardware metrics of each run, ``(n, m)``."""
        return [run.trace.counts(self.campaign.hardware_metrics) for run in runs]

    def judged(self, variant: str) -> Judged:
        """The verdicts on a variant. Raises KeyError for one without runs."""
        inner, across = self._judgements[variant, "inner"], self._judgements.get((variant, "outer"))
        if across is None:
            return Judged(inner, None, None)
        self._progress(f"{variant}: across runs, aligned on all metrics")
        return Judged(inner, across, self.outer(self._variants[variant], held_out=False))

    def within_runs(self, variant: str) -> Perturbation:
        """The verdict on a variant within a run, as in `judged`. Raises KeyError for one without runs."""
        return self._judgements[variant, "inner"]

    def across_runs(self, variant: str) -> Perturbation:
        """The verdict on a variant across runs aligned on the other metrics. Raises KeyError if there is none."""
        return self._judgements[variant, "outer"]

    def inner(self, runs: Sequence[Run], changed: Sequence[NDArray[np.int64]] | None = None) -> Perturbation:
        """Perturbation within ``runs`` that are no variant. ``changed``: tables in place of those of ``runs``."""
        return self._beside(self._inner_evidence(runs, changed))

    def outer(self, runs: Sequence[Run], held_out: bool) -> Perturbation:
        """Perturbation across ``runs`` that are aligned with baselines, as a comparison of its own."""
        return self._beside(self._outer_evidence(runs, held_out))

    @cached_property
    def _evidence(self) -> dict[tuple[str, str], Evidence]:
        """The comparisons that share alpha, by variant and whether they are inner or outer."""
        found = {}
        for name, runs in self._variants.items():
            self._progress(f"{name}: within runs")
            found[name, "inner"] = self._inner_evidence(runs, None)
            if self.campaign.outer:
                self._progress(f"{name}: across runs, aligned on the other metrics")
                found[name, "outer"] = self._outer_evidence(runs, held_out=True)
        return found

    @cached_property
    def _family(self) -> Family:
        """The comparisons in pairs."""
        return self._tested_together([one for one in self._evidence.values() if _is_in_family(one)])

    @cached_property
    def _judgements(self) -> dict[tuple[str, str], Perturbation]:
        in_pairs = iter(self._family.judgements())
        return {
            name: next(in_pairs) if _is_in_family(one) else self._tested_together([one]).judgements()[0]
            for name, one in self._evidence.items()
        }

    def _tested_together(self, evidence: Sequence[Evidence]) -> Family:
        return Family(
            evidence, delta=self.campaign.delta, alpha=self.campaign.alpha_of_a_look,
            comparisons=max(1, len(self._evidence)),
        )  # fmt: skip

    def _beside(self, evidence: Evidence) -> Perturbation:
        if _is_in_family(evidence) and any(_is_in_family(one) for one in self._evidence.values()):
            return self._family.beside(evidence)
        return self._tested_together([evidence]).judgements()[0]

    def _inner_evidence(self, runs: Sequence[Run], changed: Sequence[NDArray[np.int64]] | None) -> Evidence:
        hardware = self.campaign.hardware_metrics
        given = {id(run): table for run, table in zip(runs, changed or self.tables(runs), strict=True)}
        sides = compared(self.campaign, self._baselines, runs)
        before, after = self.tables(sides.baselines), [given[id(run)] for run in sides.runs]
        evidence = inner_evidence(
            [spearman(table, hardware) for table in before],
            [spearman(table, hardware) for table in after],
            **self._how(sides),
        )
        return replace(evidence, unchanged=sides.paired and _are_equal(before, after))

    def _outer_evidence(self, runs: Sequence[Run], held_out: bool) -> Evidence:
        campaign = self.campaign
        sides = compared(campaign, self._baselines, runs)
        memo = self._memos.setdefault(tuple(run.spec.replicate for run in sides.baselines), {})
        before, after = self.tables(sides.baselines), self.tables(sides.runs)
        evidence = outer_evidence(
            before, after, campaign.hardware_metrics, held_out=held_out,
            alignment=campaign.alignment_setting, delta=campaign.delta, alpha=campaign.alpha_of_a_look, memo=memo,
            aligner=self._aligner,
            **self._how(sides),
        )  # fmt: skip
        return replace(evidence, unchanged=sides.paired and _are_equal(before, after))

    def _how(self, sides: Compared) -> dict[str, Any]:
        """How the labels of runs, or the signs of pairs, are exchanged."""
        how: dict[str, Any] = {"paired": sides.paired, "seed": self.campaign.seed}
        if sides.paired and not sides.has_few_pairs and self._flips is not None:
            how["flips"] = self._flips.of_pairs([run.spec.replicate for run in sides.runs])
        return how


def _is_in_family(evidence: Evidence) -> bool:
    """Whether a comparison is tested together with others, see `VariantComparison`."""
    return evidence.paired and len(evidence.run_z) >= FEWEST_PAIRS


def _are_equal(before: Sequence[NDArray[np.int64]], after: Sequence[NDArray[np.int64]]) -> bool:
    """Whether each of the tables ``after`` is that of its partner, to the unit."""
    return all(np.array_equal(one, other) for one, other in zip(before, after, strict=False))
