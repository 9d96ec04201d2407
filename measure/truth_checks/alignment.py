"""Measures how far alignment algorithms put a run's records from their true places in the baseline, and chooses the
channels (the metrics that are matched).

`measure.truth_checks.merge_truth` computes the errors. This module selects the pairs of runs to compare, and chooses
channels greedily: it starts with no channel and adds the one with which the algorithm errs least, as long as the error
falls. The choice is made on pairs with one reference run and judged on pairs with another, so that it does not flatter
itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from measure.alignment.setting import DEFAULT_ALIGNMENT, AlignmentSetting
from measure.report.model import AlignmentAccuracy, AlignmentTruth, ChannelChoice
from measure.run_types import BASELINE, Run
from measure.runs.program_progress import EventCurve, progress_boundaries
from measure.truth_checks.merge_truth import (
    Algorithm,
    aligned_positions,
    alignment_error,
    positions_by_progress,
    true_positions,
    truth_resolution,
    within_baseline,
)

RUNS_PER_GROUP = 3
PAIRS_PER_CHOICE = 6  # pairs of runs on which channels are chosen, and as many on which the choice is judged
ALGORITHMS_WITH_CHOICE: tuple[Algorithm, ...] = ("full", "penalty")
_SMALLEST_ERROR = 0.01
_ERRORS = ["mean_records", "median_records", "p95_records", "largest_records"]

Pairs = Sequence[tuple[Run, Run, EventCurve]]
"""A baseline, the run to align to it, and the curve of their program."""


def assess_alignment(
    baselines: Sequence[Run], runs: Sequence[Run], curve: EventCurve, setting: AlignmentSetting = DEFAULT_ALIGNMENT
) -> AlignmentTruth:
    """Errors by group, algorithm and channels, and the chosen channels. ``setting``: of the algorithm "penalty".

    Needs at least two baselines whose reference events were counted.
    """
    reference, second = baselines[0], baselines[1]
    groups = list(dict.fromkeys(run.spec.variant for run in runs))
    by_group = {BASELINE: list(baselines[1 : 1 + RUNS_PER_GROUP])}
    by_group |= {group: _first_runs(runs, group, RUNS_PER_GROUP) for group in groups}
    compared = [run for group in by_group.values() for run in group]
    table = alignment_error(reference, compared, curve=curve, alignment=setting)
    errors = []
    for (group, algorithm, channels), part in table.groupby(
        ["group", "algorithm", "channels"], sort=False
    ):  # fmt: skip
        means = part[_ERRORS].mean()
        errors.append(
            AlignmentAccuracy(str(group), str(algorithm), str(channels), len(part), *means.astype(float).tolist())
        )
    # The channels are chosen on some pairs and judged on others with another reference; both have all groups.
    training = _interleaved(reference, by_group, curve)[:PAIRS_PER_CHOICE]
    others = {BASELINE: list(baselines[2 : 2 + RUNS_PER_GROUP]) or [reference]}
    others |= {group: _first_runs(runs, group, RUNS_PER_GROUP)[::-1] for group in groups}
    test = _interleaved(second, others, curve)[:PAIRS_PER_CHOICE]
    hardware = reference.spec.hardware_metrics
    choices = []
    for algorithm in ALGORITHMS_WITH_CHOICE:
        steps = choose_channels(training, hardware, algorithm, setting)
        chosen = steps[-1][0]
        chosen_error, all_error = (typical_error(test, channels, algorithm, setting) for channels in (chosen, hardware))
        choices.append(ChannelChoice(algorithm, chosen, steps, chosen_error, all_error))
    widths = np.concatenate([truth_resolution(reference, run, curve) for run in compared])
    return AlignmentTruth(
        errors=tuple(errors),
        choices=tuple(choices),
        resolution_median=float(np.median(widths)),
        resolution_p95=float(np.quantile(widths, 0.95)),
        estimate_error=tuple(
            (group, float(np.mean([_estimate_error(reference, run, curve) for run in members])))
            for group, members in by_group.items()
        ),
    )


def typical_error(
    pairs: Pairs, channels: Sequence[str], algorithm: Algorithm, setting: AlignmentSetting = DEFAULT_ALIGNMENT
) -> float:
    """Geometric mean over ``pairs`` of the mean absolute error in records, so that hard pairs do not dominate."""
    errors = []
    for reference, run, curve in pairs:
        truth = true_positions(reference, run, curve)
        aligned = aligned_positions(reference, run, channels, algorithm, setting)
        errors.append(np.abs(aligned - truth)[within_baseline(reference, truth)].mean())
    return float(np.exp(np.mean(np.log(np.maximum(errors, _SMALLEST_ERROR)))))


def choose_channels(
    pairs: Pairs, metrics: Sequence[str], algorithm: Algorithm, setting: AlignmentSetting = DEFAULT_ALIGNMENT
) -> tuple[tuple[tuple[str, ...], float], ...]:
    """Greedy choice. One entry per added channel: the channels so far and their `typical_error`. Ends when no channel
    lowers it."""
    steps: list[tuple[tuple[str, ...], float]] = []
    chosen: tuple[str, ...] = ()
    while len(chosen) < len(metrics):
        tried = [
            ((*chosen, metric), typical_error(pairs, (*chosen, metric), algorithm, setting))
            for metric in metrics
            if metric not in chosen
        ]
        best = min(tried, key=lambda one: one[1])
        if steps and best[1] >= steps[-1][1]:
            break
        steps.append(best)
        chosen = best[0]
    return tuple(steps)


def _estimate_error(reference: Run, run: Run, curve: EventCurve) -> float:
    estimate = positions_by_progress(
        progress_boundaries(run, reference), progress_boundaries(reference, reference)
    )  # fmt: skip
    truth = true_positions(reference, run, curve)
    return float(np.abs(estimate - truth)[within_baseline(reference, truth)].mean())


def _first_runs(runs: Sequence[Run], group: str, most: int) -> list[Run]:
    return [run for run in runs if run.spec.variant == group][:most]


def _interleaved(reference: Run, groups: dict[str, list[Run]], curve: EventCurve) -> list[tuple[Run, Run, EventCurve]]:
    """Pairs taken in turn: the first run of each group, then the second of each, and so on."""
    longest = max(len(members) for members in groups.values())
    return [(reference, members[n], curve) for n in range(longest) for members in groups.values() if n < len(members)]
