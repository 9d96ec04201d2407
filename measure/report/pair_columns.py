"""The columns of a table of pairs, by which `pairs.csv`, `pairs.parquet` and the CSV file of report.html are made."""

from __future__ import annotations

from typing import Any

from measure.perturbation.analysis_types import Pair, Perturbation

OF_WHAT = {
    "campaign": "Name of the campaign",
    "variant": "Name of the variant",
    "relation": "inner: within a run; outer: of a metric with itself across aligned runs (held out)",
}
OF_A_PAIR = {
    "a": "First metric",
    "b": "Second metric; of an outer relation, the same",
    "baseline_rho": "Spearman's rho in baselines, from the mean z, which is cut off at 0.99: there it is 0.99 or more",
    "run_rho": "The same in instrumented runs",
    "baseline_z": "Mean of z = atanh(rho) over baselines",
    "baseline_z_sd": "Its standard deviation between baselines",
    "run_z": "Mean of z over instrumented runs",
    "run_z_sd": "Its standard deviation between runs",
    "delta_z": "run_z - baseline_z",
    "ci_low": "Lower end of its 1 - 2 alpha interval, on which `equivalent` rests",
    "ci_high": "Upper end",
    "simultaneous_low": "Lower end of the interval that holds for all pairs, on which `perturbed` rests; -inf: none; "
    "undefined: too few runs for any interval",
    "simultaneous_high": "Upper end",
    "p": "Of no change, familywise over all pairs of the comparisons that were tested together",
    "q": "False discovery rate over these pairs (Benjamini-Hochberg)",
    "p_spread": "That runs scatter as much as baselines, familywise and two-sided",
    "detectable_dz": "Change that is called perturbed with 80% probability (inner only)",
    "verdict": "perturbed, changed, inconclusive, equivalent or not assessable",
    "note": "Why values are undefined, or why the pair cannot be assessed",
}
"""Columns that say something of one pair, and their meaning."""
OF_A_COMPARISON = {
    "delta": "Change of z that counts as none",
    "level": "Level of this test: the share of alpha of the comparisons that were tested together",
    "together": "Number of comparisons (variants, within and across runs) that were tested together with this one",
    "baselines": "Number of baselines",
    "runs": "Number of instrumented runs",
    "paired": "Whether baselines and runs were compared in pairs",
}
RELATION_NAMES = {"inner": "inner", "outer_held_out": "outer", "outer_joint": "outer_joint"}
"""Values of the column ``relation``, by a comparison's name in `VariantReport`; files of results lack the joint one."""
PAIR_COLUMNS: dict[str, str] = {**OF_WHAT, **OF_A_PAIR, **OF_A_COMPARISON}
"""Columns of the table and their meaning; undefined numbers are null in Parquet and empty in CSV."""
TEXT_COLUMNS = ("campaign", "variant", "relation", "a", "b", "verdict", "note")
WHOLE_COLUMNS = ("together", "baselines", "runs")


def pair_values(pair: Pair) -> dict[str, Any]:
    """The values of `OF_A_PAIR` of ``pair``; undefined numbers are nan."""
    low, high = zip(pair.ci, pair.simultaneous, strict=True)
    return {
        "a": pair.a, "b": pair.b, "baseline_rho": pair.baseline_rho, "run_rho": pair.run_rho,
        "baseline_z": pair.baseline_z, "baseline_z_sd": pair.baseline_z_sd, "run_z": pair.run_z,
        "run_z_sd": pair.run_z_sd, "delta_z": pair.delta_z, "ci_low": low[0], "ci_high": high[0],
        "simultaneous_low": low[1], "simultaneous_high": high[1], "p": pair.p_adjusted, "q": pair.q_value,
        "p_spread": pair.p_spread, "detectable_dz": pair.detectable_dz, "verdict": pair.verdict, "note": pair.note,
    }  # fmt: skip


def comparison_values(one: Perturbation) -> dict[str, Any]:
    """The values of `OF_A_COMPARISON` of ``one``."""
    return {
        "delta": one.delta, "level": one.level, "together": one.together,
        "baselines": one.n_baseline, "runs": one.n_runs, "paired": one.paired,
    }  # fmt: skip
