"""Outer perturbation: can instrumented runs be aligned with baselines as well as baselines with one another?

The paper's outer correlation is that of a metric with itself across two aligned traces. Time warping inflates it
(independent series aligned on the tested metric correlate at 0.8 and more), so it is not compared with 1 but with
the correlations among baselines, and ``held_out`` aligns each metric on the *other* metrics only.

Every pair of runs is aligned once, in an order that follows from their contents, and both directions of warping are
averaged in z, so that similarity is symmetric. The statistic of a metric is the mean z between instrumented runs and
baselines minus the mean z within baselines. It is computed anew from all pairs of runs for every labelling, which
keeps the dependence of pairs that share a run. The cost grows with the square of the runs: with many baselines, some
of them, drawn by the seed, only serve as references to align to and are held out of the test; given the references,
the other runs' similarities to them are exchangeable, and the inner test applies unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measure.alignment.setting import DEFAULT_ALIGNMENT, AlignmentSetting
from measure.perturbation.analysis_types import (
    DEFAULT_DELTA,
    DEFAULT_PERMUTATIONS,
    FEWEST_BASELINES,
    Perturbation,
)
from measure.perturbation.assay import assay, not_assessable
from measure.perturbation.shared_alignments import shared_by_baselines, shared_by_pairs
from measure.perturbation.similarity import (
    NEAR_DUPLICATE,
    Aligner,
    PreparedRun,
    SimilarityRule,
    align_in_threads,
    check_held_out,
    near_duplicates,
    prepare,
)
from measure.perturbation.uninformative_metrics import TIED, tied_reasons
from measure.perturbation.verdict import Evidence, check_levels, check_pairs, judge
from measure.perturbation.wording import listed_names
from measure.stats.correlation import MOST_AT_CEILING, share_at_ceiling
from measure.stats.permutation import (
    Labellings,
    cross_differences,
    labellings,
    paired_cross_differences,
    sign_flips,
)

ALL_PAIRS_RUNS = 45
"""Largest total number of runs (990 pairs) for which every pair of runs is aligned."""
DEFAULT_REFERENCES, FEWEST_REFERENCES = 12, 4

Progress = Callable[[int, int], None]
"""Called with the number of alignments done and their total."""


Memo = dict[tuple[str, bytes, bytes], NDArray[np.float64]]
"""Outer z of pairs of traces, and assays of baselines, by contents; share one among analyses of the same baselines."""


def outer_perturbation(
    baseline: Sequence[ArrayLike],
    runs: Sequence[ArrayLike],
    metrics: Sequence[str],
    *,
    held_out: bool,
    aligned: bool = False,
    delta: float = DEFAULT_DELTA,
    alpha: float = 0.05,
    comparisons: int = 1,
    paired: bool = False,
    noise_expected: bool = False,
    alignment: AlignmentSetting = DEFAULT_ALIGNMENT,
    max_reference_runs: int | None = None,
    n_permutations: int = DEFAULT_PERMUTATIONS,
    seed: int,
    progress: Progress | None = None,
    memo: Memo | None = None,
) -> Perturbation:
    """Compare how instrumented ``runs`` align with ``baseline`` runs and how these align with one another.

    Each trace is ``(n_i, m)``, one column a metric; lengths may differ. ``held_out`` False aligns on all
    metrics (as in the paper); True aligns each metric on the others, m alignments a pair of runs. ``aligned``: record i
    of one trace corresponds to record i of every other, as with intervals of equal progress, and nothing is warped.
    ``alignment``: a verdict holds for traces that are merged with the same one. ``max_reference_runs``: align with only
    so many baselines, which then are not part of the test; default: all pairs of runs up to 45 runs; beyond that 12
    references, or fewer so that 19 baselines are tested, but never fewer than 4. Only a loss of similarity is a
    perturbation: a rise is reported as a finding. ``comparisons``: how many share ``alpha``. ``memo`` keeps alignments
    for the next analysis with the same baselines.

    ``paired``: run i shares its noise with baseline i, and what is judged is how much less like the other baselines the
    run is than its baseline, by flipping signs (fewer than 6 pairs allow no two-sided p-value below 5%). Baselines
    beyond the last run are aligned to, but have no partner.

    ``noise_expected``: as of a real machine. A metric with the same values in all baselines then has no scale of noise
    and gets no p-value, nor have metrics that are aligned on it.

    Raises ValueError when there is no baseline or run, for values that are not finite (naming metric and
    record), shapes that do not fit the metrics, fewer than 4 records, fewer than two metrics to hold one
    out, or for aligned traces of different lengths.
    """
    evidence = outer_evidence(
        baseline, runs, metrics, held_out=held_out, aligned=aligned, delta=delta, alpha=alpha, paired=paired,
        noise_expected=noise_expected, alignment=alignment, max_reference_runs=max_reference_runs,
        n_permutations=n_permutations, seed=seed, progress=progress, memo=memo,
    )  # fmt: skip
    return judge(evidence, delta=delta, alpha=alpha, comparisons=comparisons)


def outer_evidence(
    baseline: Sequence[ArrayLike],
    runs: Sequence[ArrayLike],
    metrics: Sequence[str],
    *,
    held_out: bool,
    aligned: bool = False,
    delta: float = DEFAULT_DELTA,
    alpha: float = 0.05,
    paired: bool = False,
    noise_expected: bool = False,
    alignment: AlignmentSetting = DEFAULT_ALIGNMENT,
    max_reference_runs: int | None = None,
    n_permutations: int = DEFAULT_PERMUTATIONS,
    seed: int = 0,
    flips: Labellings | None = None,
    progress: Progress | None = None,
    memo: Memo | None = None,
    aligner: Aligner = align_in_threads,
) -> Evidence:
    """What `outer_perturbation` judges. ``flips``: of these pairs' signs, in place of those drawn with ``seed``;
    ``aligner``: computes similarities, such as on a cluster."""
    check_levels(delta, alpha)
    check_pairs(len(baseline), len(runs), paired)
    prepared = [prepare(values, metrics, f"baseline {i}") for i, values in enumerate(baseline)]
    prepared += [prepare(values, metrics, f"run {i}") for i, values in enumerate(runs)]
    if not len(baseline) or not len(runs):
        raise ValueError(f"{len(baseline)} baselines and {len(runs)} runs: expected at least one of each")
    check_held_out(metrics, held_out)
    lengths = {one.values.shape[1] for one in prepared}
    if aligned and len(lengths) > 1:
        raise ValueError(f"traces of {min(lengths)} to {max(lengths)} records are not aligned: expected as many in all")
    same = np.array([_same_values(prepared[: len(baseline)], metric) for metric in range(len(metrics))])
    identical = bool(same.all())
    references = _references(len(baseline), len(runs), max_reference_runs, seed, paired)
    tested = [k for k in range(len(prepared)) if k not in references]
    if references:
        cells = [(i, j) for i in sorted(references) for j in tested]
    else:
        cells = list(combinations(range(len(prepared)), 2))
    memo = {} if memo is None else memo
    how = SimilarityRule(held_out, None if aligned else alignment, near_duplicates(prepared[: len(baseline)]))
    found = similarities(prepared, cells, how, progress, memo, aligner)
    if flips is None:
        n_tested = len(runs) if paired else len(baseline) - len(references)
        flips = _labels(n_tested, len(runs), paired, n_permutations, seed)
    compared = compared_similarities(found, len(baseline), len(runs), references, paired, flips)
    n_baseline = len(compared.baseline_z)
    constant = np.array([one.constant for one in prepared])
    ties = [one.tie_fraction for one in prepared]
    tied = tied_reasons(metrics, ties[: len(baseline)], ties[len(baseline) :])
    unseen = not_assessable(_assay(prepared[: len(baseline)], how, memo), how, metrics, delta, alpha)
    return Evidence(
        kind="outer-held-out" if held_out else "outer-joint",
        names=[(metric, metric) for metric in metrics],
        baseline_z=compared.baseline_z,
        run_z=compared.run_z,
        undefined=np.vstack([constant[tested][:n_baseline], constant[len(baseline) :]]),
        labels=compared.labels,
        statistics=compared.statistics,
        losses_only=True,
        interval_scale=compared.interval_scale,
        shared_variance=compared.shared_variance,
        identical=identical,
        n_references=len(references),
        not_assessable=[tuple(filter(None, reasons)) for reasons in zip(tied, unseen, strict=True)],
        findings=_findings(prepared, len(baseline), references, how, metrics),
        spread_unknown=_spread_unknown(found, cells, len(baseline)),
        without_noise=noise_expected & _without_noise(prepared, len(baseline), same),
        paired=paired,
    )


def _same_values(baselines: Sequence[PreparedRun], metric: int) -> bool:
    """Whether several baselines have the same values of a metric, by its number."""
    first = baselines[0].values[metric]
    return len(baselines) > 1 and all(np.array_equal(one.values[metric], first) for one in baselines[1:])


def _without_noise(prepared: Sequence[PreparedRun], n_baseline: int, same: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which metrics ``(m,)`` have no scale of noise, where the metrics ``same``, which do not vary, have none.

    On such a metric, baselines are aligned better with one another than with runs in which it differs, however much the
    aligned metric varies. Ties hardly guide an alignment.
    """
    guides = same & (prepared[0].tie_fraction <= TIED)
    differs = [any(not _same_values((prepared[0], run), n) for run in prepared[n_baseline:]) for n in range(len(same))]
    return same | bool((guides & differs).any())


@dataclass(frozen=True)
class ComparedRuns:
    """What is judged: z of baselines and runs, and the statistics of the labellings, None to use those of z;
    ``shared_variance``: ``(m,)``, as in `Evidence`."""

    baseline_z: NDArray[np.float64]
    run_z: NDArray[np.float64]
    labels: Labellings
    statistics: NDArray[np.float64] | None
    interval_scale: float
    shared_variance: NDArray[np.float64]


def compared_similarities(
    similarity: NDArray[np.float64],
    n_baseline: int,
    n_runs: int,
    references: frozenset[int],
    paired: bool,
    labels: Labellings,
) -> ComparedRuns:
    """Each run's mean similarity to baselines: to the references if there are any, else to all other baselines.

    ``similarity``: ``(B + R, B + R, m)``. In a pair, run and baseline are compared with the same other baselines.
    """
    if references:
        tested = [k for k in range(len(similarity)) if k not in references]
        z = mean_defined(similarity[np.ix_(tested, sorted(references))])
        baseline_z, run_z = z[: len(tested) - n_runs], z[len(tested) - n_runs :]
        # In pairs, the references are baselines without a partner.
        # All are aligned with the same references, and with no other: given these, their similarities are independent.
        independent = np.zeros(similarity.shape[2])
        return ComparedRuns(baseline_z[:n_runs] if paired else baseline_z, run_z, labels, None, 1.0, independent)
    if paired:
        without_own = similarity.copy()
        own = np.arange(n_runs)
        without_own[n_baseline + own, own] = np.nan
        return ComparedRuns(
            mean_defined(similarity[:n_runs, :n_baseline]),
            mean_defined(without_own[n_baseline:, :n_baseline]),
            labels,
            paired_cross_differences(similarity, labels.labels),
            1.0,
            shared_by_pairs(similarity, n_baseline, n_runs),
        )
    # Leave-one-out means share all runs but one: their spread is (B - 2)/(B - 1) of a fresh run's.
    scale = (n_baseline - 1) / (n_baseline - 2) if n_baseline > 2 else float("inf")
    return ComparedRuns(
        mean_defined(similarity[:n_baseline, :n_baseline]),
        mean_defined(similarity[n_baseline:, :n_baseline]),
        labels,
        cross_differences(similarity, labels.labels),
        scale,
        shared_by_baselines(similarity[:n_baseline, :n_baseline]),
    )


def _spread_unknown(
    similarity: NDArray[np.float64], cells: Sequence[tuple[int, int]], n_baseline: int
) -> NDArray[np.bool_]:
    """For each of m metrics whether many similarities to baselines in ``cells`` are cut off, so that their spread is
    not known; ``similarity``: ``(N, N, m)``."""
    rho = np.tanh(similarity)
    within = [rho[cell] for cell in cells if max(cell) < n_baseline]
    across = [rho[cell] for cell in cells if min(cell) < n_baseline <= max(cell)]
    empty = np.empty((0, similarity.shape[2]))
    shares = share_at_ceiling(np.array(within or empty), np.array(across or empty))
    return np.asarray(shares > MOST_AT_CEILING)


def _labels(n_baseline: int, n_runs: int, paired: bool, n_permutations: int, seed: int) -> Labellings:
    """The labellings of the runs that are tested."""
    if paired:
        return sign_flips(n_runs, n_permutations, seed)
    return labellings(n_baseline, n_runs, n_permutations, seed)


def _references(n_baseline: int, n_runs: int, most: int | None, seed: int, paired: bool) -> frozenset[int]:
    """Indices of the baselines that only serve as references; empty when every pair of runs is to be aligned.

    ``paired``: baselines without a partner.
    """
    if paired:
        spare = min(DEFAULT_REFERENCES if most is None else most, n_baseline - n_runs)
        enough = spare >= FEWEST_REFERENCES and (most is not None or n_baseline + n_runs > ALL_PAIRS_RUNS)
        return frozenset(range(n_runs, n_runs + spare)) if enough else frozenset()
    if most is None:
        if n_baseline + n_runs <= ALL_PAIRS_RUNS:
            return frozenset()
        most = min(DEFAULT_REFERENCES, n_baseline - FEWEST_BASELINES)
        if most < FEWEST_REFERENCES:
            return frozenset()
    if most < 1:
        raise ValueError(f"max_reference_runs is {most}: expected at least 1")
    if most >= n_baseline:
        return frozenset()
    return frozenset(int(k) for k in np.random.default_rng(seed).choice(n_baseline, most, replace=False))


def similarities(
    prepared: Sequence[PreparedRun],
    cells: Sequence[tuple[int, int]],
    how: SimilarityRule,
    progress: Progress | None,
    memo: Memo,
    aligner: Aligner,
) -> NDArray[np.float64]:
    """Outer z, ``(N, N, m)`` and symmetric, of the pairs in ``cells``; nan elsewhere and where undefined."""
    n_metrics = len(prepared[0].values)
    keys = []
    missing: dict[tuple[str, bytes, bytes], tuple[PreparedRun, PreparedRun]] = {}
    for i, j in cells:
        first, second = sorted((prepared[i], prepared[j]), key=lambda one: one.digest)
        key = how.key, first.digest, second.digest
        keys.append(key)
        if key not in memo:
            missing[key] = first, second
    n_done = len(cells) - len(missing)
    alignments = n_metrics if how.held_out else 1

    def more_done(count: int) -> None:
        nonlocal n_done
        n_done += count
        if progress is not None:
            progress(n_done * alignments, len(cells) * alignments)

    more_done(0)
    memo.update(zip(missing, aligner(list(missing.values()), how, more_done), strict=True))
    result = np.full((len(prepared), len(prepared), n_metrics), np.nan)
    for (i, j), key in zip(cells, keys, strict=True):
        result[i, j] = result[j, i] = memo[key]
    return result


def _assay(baselines: Sequence[PreparedRun], how: SimilarityRule, memo: Memo) -> NDArray[np.float64]:
    """The assay of ``baselines``, from ``memo`` if it has it."""
    key = (f"assay {how.alignment} {how.duplicates}", b"".join(one.digest for one in baselines), b"")
    if key not in memo:
        memo[key] = assay(baselines, how)
    return memo[key]


def mean_defined(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over the second axis of ``(N, K, m)`` of the defined values; nan where all are undefined."""
    defined = np.isfinite(z)
    counts = defined.sum(axis=1)
    means = np.where(defined, z, 0.0).sum(axis=1) / np.maximum(counts, 1)
    return np.where(counts > 0, means, np.nan)


def _findings(
    prepared: Sequence[PreparedRun],
    n_baseline: int,
    references: frozenset[int],
    how: SimilarityRule,
    metrics: Sequence[str],
) -> tuple[str, ...]:
    """Warnings of traces of different lengths, near-duplicates, and the number of references."""
    sentences = []
    close = [
        f"{metrics[i]} with {metrics[j]}" for i, others in enumerate(how.duplicates) for j in others if i < j
    ]  # fmt: skip
    if how.held_out and close:
        sentences.append(
            f"Left out of each other's alignment, because they nearly duplicate one another (rho beyond "
            f"{NEAR_DUPLICATE:g}): {listed_names(close)}."
        )
    lengths = [one.values.shape[1] for one in prepared]
    before, after = np.median(lengths[:n_baseline]), np.median(lengths[n_baseline:])
    if max(before, after) > 1.25 * min(before, after):
        sentences.append(
            f"Instrumented traces have {after:.0f} records where baselines have {before:.0f}: alignment "
            "stretches a "
            "lot; sample both by the same progress of the program."
        )
    if references:
        sentences.append(
            f"{len(references)} of {n_baseline} baselines served as references to align to, and the other "
            f"{n_baseline - len(references)} as the standard."
        )
    return tuple(sentences)
