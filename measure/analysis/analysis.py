"""Analyses the runs of a campaign: correlations, perturbation of each variant, overhead, findings."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from common.plain_json import plain_json
from measure.analysis.advice import Counted, advice, even_records, more_runs
from measure.analysis.explained import FOLDER
from measure.analysis.invalid_figures import invalid_figures
from measure.analysis.provenance import provenance_of
from measure.console.command_words import shown_path
from measure.errors import MeasureError
from measure.host.description import parse_host
from measure.host.disturbances import disturbances
from measure.host.processor import warnings as warnings_about
from measure.judging.comparison import VariantComparison, compared, percent_over, runs_of
from measure.judging.controls import Controls, judge_controls
from measure.judging.outlying_runs import how_to_look, runs_that_stand_out
from measure.perturbation.analysis_types import BROKEN, VERDICTS, Perturbation
from measure.perturbation.finding import Finding
from measure.perturbation.similarity import Aligner, align_in_threads
from measure.perturbation.uninformative_metrics import PROBLEMS, MetricFinding, metric_findings
from measure.report.model import ReportData, Signals, VariantReport, VariantWithoutRuns, findings_on_comparisons
from measure.run_types import BASELINE, NULL_CONTROL, Run
from measure.runs.executor import Outcome
from measure.runs.plan import Plan
from measure.stats.correlation import Correlations, spearman
from measure.verdict_files.summary_file import PERTURB_FORMAT, SUMMARY_FORMAT, SUMMARY_SCHEMA

_NO_CONTROLS_YET = "they are judged when all planned runs are made"


def baselines_of(plan: Plan, outcome: Outcome) -> list[Run]:
    """The runs of the baseline. Raises `MeasureError` with fewer than 2."""
    baselines = runs_of(outcome.runs, BASELINE)
    if len(baselines) < 2:
        failed = next((one for one in outcome.failures if one.spec.variant == BASELINE), None)
        why = (
            f"; the first that failed: {failed.reason}"
            if failed is not None
            else f". `measure run {plan.campaign_words}` makes them"
        )
        raise MeasureError(
            f"{len(baselines)} baseline runs succeeded, expected at least 2: nothing to compare with{why}"
        )
    return baselines


def analyse(
    plan: Plan, outcome: Outcome, progress: Callable[[str], None] = lambda what: None,
    aligner: Aligner = align_in_threads,
) -> ReportData:  # fmt: skip
    """Compare every variant with the baselines. ``aligner``: computes the similarities of pairs of runs.

    Raises `MeasureError` with fewer than 2 baselines.
    """
    campaign = plan.campaign
    hardware = campaign.hardware_metrics
    baselines = baselines_of(plan, outcome)
    baseline_correlations = [_correlations(run, hardware) for run in baselines]
    uninformative = _metric_findings(plan, outcome)
    outlying = runs_that_stand_out(campaign, outcome.runs)
    variants = []
    by_variant = _runs_of_variants(plan, outcome)
    comparison = VariantComparison(campaign, baselines, by_variant, progress, aligner)
    for name, runs in by_variant.items():
        metrics = campaign.variant_sets()[name]
        judged, sides = comparison.judged(name), compared(campaign, baselines, runs)
        if len(metrics) == 1:
            judged = judged.of_one_metric()
        variants.append(
            VariantReport(
                name=name,
                software_metrics=metrics,
                descriptions=tuple(f"{m}: {campaign.software_metrics[m].describe()}" for m in metrics),
                rho=np.array([_correlations(run, hardware).rho for run in runs]),
                instructions_percent=percent_over(sides, "total_instructions"),
                cycles_percent=percent_over(sides, "total_cycles"),
                code_percent=_code_percent(plan, name),
                inner=judged.inner,
                outer_joint=judged.outer_joint,
                outer_held_out=judged.outer_held_out,
                example=_signals(name, runs[0]),
                metric_findings=findings_of_variant(uninformative, name),
                time_name="cycles" if campaign.host is None else "time",
            )
        )
    controls = None
    if campaign.has_controls and not outcome.untried and runs_of(outcome.runs, NULL_CONTROL):
        progress("controls")
        controls = judge_controls(comparison, runs_of(outcome.runs, NULL_CONTROL))
    without_runs = _variants_without_runs(plan, outcome)
    counts = f"{len(baselines)} baselines"
    counts += f", {_numbers_of_runs(plan, outcome)} of each variant" if campaign.variant_sets() else ""
    records = int(np.median([run.trace.n_records for run in outcome.runs]))
    return ReportData(
        title=campaign.name,
        subtitle=f"{counts}; about {records:,} records of {campaign.sampling.described} a run, "
        f"{campaign.sampling.mode} sampling",
        hardware_metrics=hardware,
        baseline_rho=np.array([one.rho for one in baseline_correlations]),
        baseline_example=_signals("baseline", baselines[0]),
        variants=tuple(variants),
        invalidating=(
            *outcome.incomplete,
            *(f"{one.name} has no verdict: {one.reason}." for one in without_runs),
            *invalid_figures(plan, outcome, controls),
        ),
        said=(
            *map(Finding, (*outcome.warnings, *plan.history.warnings(campaign))),
            *how_to_look(outlying, plan),
            *_findings(variants, uninformative, plan, outcome, controls),
        ),
        provenance=provenance_of(plan, outcome),
        interval=campaign.sampling.described,
        metric_findings=uninformative,
        outlying_runs=outlying,
        controls=controls.text if controls else _NO_CONTROLS_YET if campaign.has_controls and outcome.untried else "",
        without_runs=without_runs,
        failed_controls=controls.failures if controls else {},
    )


def with_explanation(data: ReportData, explained: Mapping[str, Sequence[Finding]]) -> ReportData:
    """The report with what was found out about variants, by name, in place of advice to find it out.

    Where some broken variant was not explained, its own advice and that for all variants stay.
    """
    if not explained:
        return data
    all_explained = all(one.name in explained for one in data.variants if one.verdict in BROKEN)
    old = [one for one in data.said if one.until_explained and (all_explained or one.variant in explained)]
    at = data.said.index(old[0]) if old else 0
    new = [finding for findings in explained.values() for finding in findings]
    if new:
        new.append(Finding(f"{FOLDER}/explain.html, beside this report, has figures, lines of code and all remedies."))
    kept = [finding for finding in data.said if finding not in old]
    return replace(data, said=(*kept[:at], *new, *kept[at:]))


def verdicts_of_variants(
    plan: Plan, outcome: Outcome, aligner: Aligner = align_in_threads
) -> dict[str, tuple[Perturbation, Perturbation | None]]:
    """The perturbation within a run, and across runs if the campaign aligns them, of each variant that has runs."""
    by_variant = _runs_of_variants(plan, outcome)
    comparison = VariantComparison(plan.campaign, runs_of(outcome.runs, BASELINE), by_variant, aligner=aligner)
    return {
        name: (comparison.within_runs(name), comparison.across_runs(name) if plan.campaign.outer else None)
        for name in by_variant
    }


def _runs_of_variants(plan: Plan, outcome: Outcome) -> dict[str, list[Run]]:
    """The runs of each variant that has any."""
    found = {name: runs_of(outcome.runs, name) for name in plan.campaign.variant_sets()}
    return {name: runs for name, runs in found.items() if runs}


def _variants_without_runs(plan: Plan, outcome: Outcome) -> tuple[VariantWithoutRuns, ...]:
    """The variants of which no run is there, with the reason."""
    found = []
    for name, metrics in plan.campaign.variant_sets().items():
        if runs_of(outcome.runs, name):
            continue
        failed = sum(one.spec.variant == name for one in outcome.failures)
        untried = sum(spec.variant == name for spec in outcome.untried)
        why = ", ".join([*([f"{failed} failed"] if failed else []), *([f"{untried} not made yet"] if untried else [])])
        found.append(VariantWithoutRuns(name, metrics, f"none of its {failed + untried} runs is there ({why})"))
    return tuple(found)


def findings_of_variant(found: Sequence[MetricFinding], variant: str) -> tuple[MetricFinding, ...]:
    """The findings on metrics that concern the verdict of ``variant``: found in its runs or in the baselines."""
    return tuple(one for one in found if variant in one.variants or BASELINE in one.variants)


def _metric_findings(plan: Plan, outcome: Outcome) -> tuple[MetricFinding, ...]:
    """Findings on uninformative hardware and software metrics, the gravest first."""
    sets = plan.campaign.variant_sets()
    by_variant = {variant: runs_of(outcome.runs, variant) for variant in (BASELINE, *sets)}
    by_variant = {variant: runs for variant, runs in by_variant.items() if runs}
    hardware = plan.campaign.hardware_metrics
    tables = {variant: [run.trace.columns(hardware) for run in runs] for variant, runs in by_variant.items()}
    found = metric_findings(tables, hardware, "hardware")
    for metric in plan.campaign.software_metrics:
        counted = {
            variant: [run.trace.columns((metric,)) for run in runs]
            for variant, runs in by_variant.items()
            if metric in sets.get(variant, ())
        }
        found += metric_findings(counted, (metric,), "software")
    return tuple(sorted(found, key=lambda one: one.rank))


def _counted(plan: Plan, outcome: Outcome) -> dict[str, Counted]:
    """The counts of each variant's counters, by variant."""
    specs = plan.campaign.software_metrics
    baselines = runs_of(outcome.runs, BASELINE)
    found = {}
    for variant, metrics in plan.campaign.variant_sets().items():
        runs = runs_of(outcome.runs, variant)
        free = tuple(m for m in metrics if specs[m].method != "counter")
        counters = [m for m in metrics if m not in free]
        sums = tuple(m for m in counters if specs[m].add is not None or specs[m].event == "alloc_bytes")
        events = {
            metric: float(np.mean([run.trace.columns((metric,)).sum() for run in runs]))
            for metric in counters
            if runs and metric not in sums
        }
        sides = compared(plan.campaign, baselines, runs)
        before = sides.baselines[: len(sides.runs)] if sides.paired else sides.baselines
        totals = [float(np.mean([run.total_instructions for run in group])) for group in (before, sides.runs) if group]
        added = totals[1] - totals[0] if sides.runs else 0.0
        found[variant] = Counted(events, sums, added, free, any(run.starts_tasks for run in outcome.runs))
    return found


def _correlations(run: Run, hardware: tuple[str, ...]) -> Correlations:
    return spearman(run.trace.counts(hardware), hardware)


def _code_percent(plan: Plan, variant: str) -> float:
    before = plan.builds[BASELINE][0].static_instructions
    return 100 * (plan.builds[variant][0].static_instructions / before - 1) if before else float("nan")


def _numbers_of_runs(plan: Plan, outcome: Outcome) -> str:
    """How many runs each variant has: ``8 runs``, or ``5 to 8 runs`` where some are missing."""
    numbers = sorted({len(runs_of(outcome.runs, name)) for name in plan.campaign.variant_sets()})
    return f"{f'{numbers[0]} to ' if len(numbers) > 1 else ''}{numbers[-1]} run{'' if numbers == [1] else 's'}"


def _signals(label: str, run: Run) -> Signals:
    return Signals(label, run.trace.metrics, run.trace.values.astype(np.float64))


def _findings(
    variants: Sequence[VariantReport], uninformative: Sequence[MetricFinding], plan: Plan, outcome: Outcome,
    controls: Controls | None,
) -> tuple[Finding, ...]:  # fmt: skip
    """The findings, the gravest first, each with the next step."""
    shown, given, on_host = shown_path(plan.campaign_file), plan.campaign_words, plan.campaign.host is not None
    run_seconds = float(np.mean([run.seconds for run in outcome.runs])) / (1 if on_host else os.cpu_count() or 1)
    found = even_records(plan.campaign, outcome.runs, given, run_seconds)
    more = not found  # runs with uneven records would say as little
    if not plan.campaign.variant_sets():
        found.append(
            Finding(
                f"No software metrics are given, so there is nothing to compare the baselines with: name some under "
                f"`software_metrics:` in {shown}; `measure run --counts {shown}` then says how often they fire."
            )
        )
    if any(one.kind == "software" and one.problem == "no events" for one in uninformative):
        found.append(
            Finding(
                f"`measure run --counts {given}` shows where the metrics without events in the records count, and "
                "whether they do so outside of records (before the first, or after the last): give the program an "
                "input with which they happen in between, or take them out.",
                "next",
            )
        )
    for verdict in VERDICTS:
        found += findings_on_comparisons(variants, verdict)
        if verdict == "changed":
            found += advice(variants, _counted(plan, outcome), plan.campaign, given)
            looks, missing = len(plan.history.looks), len(outcome.runs) < len(plan.specs)
            if more:
                found += more_runs(variants, plan.campaign, given, looks, missing, run_seconds, controls)
    sentences = [f"A run of {failure.spec.variant} failed: {failure.reason}" for failure in outcome.failures[:3]]
    if plan.campaign.host is not None:
        sentences += disturbances(outcome.runs)
        sentences += [f"Noise: {warning}." for warning in warnings_about(parse_host(plan.machine_text).processor)]
    return *found, *map(Finding, sentences)


def summary(data: ReportData, outcome: Outcome) -> dict[str, Any]:
    """The analysis as plain JSON types, nan as null (see `SUMMARY_JSON_SCHEMA`)."""
    return {
        "format": SUMMARY_FORMAT,
        "schema": SUMMARY_SCHEMA,
        "campaign": data.title,
        "controls": data.controls or None,
        "metric_findings": [plain_json(asdict(one)) | {"text": one.text} for one in data.metric_findings],
        "outlying_runs": [plain_json(asdict(one)) | {"text": one.text} for one in data.outlying_runs],
        "hardware_metrics": list(data.hardware_metrics),
        "runs": {"done": len(outcome.runs), "reused": outcome.reused, "failed": len(outcome.failures)},
        "failures": [
            {"variant": f.spec.variant, "replicate": f.spec.replicate, "reason": f.reason} for f in outcome.failures
        ],
        "variants": {variant.name: _variant_summary(variant) for variant in data.variants}
        | {variant.name: _summary_without_runs(variant) for variant in data.without_runs},
        "invalidating": list(data.invalidating),
        "failed_controls": dict(data.failed_controls),
        "findings": list(data.all_findings),
        "provenance": dict(data.provenance),
    }


def _variant_summary(variant: VariantReport) -> dict[str, Any]:
    """The entry of one variant in summary.json."""
    compared = ("inner", "outer_joint", "outer_held_out")
    found = {kind: getattr(variant, kind) for kind in compared}
    return {
        "verdict": variant.verdict,
        "caveat": variant.caveat or None,
        "in_words": {kind: variant.in_words(one) if one else None for kind, one in found.items()},
        "software_metrics": list(variant.software_metrics),
        "overhead_percent": {
            "instructions": plain_json(variant.instructions_percent.mean()),
            "cycles": plain_json(variant.cycles_percent.mean()),
            "code": plain_json(variant.code_percent),
        },
        **{kind: plain_json(one.as_fields()) if one else None for kind, one in found.items()},
    }


def _summary_without_runs(variant: VariantWithoutRuns) -> dict[str, Any]:
    """The entry in summary.json of a variant that could not be compared."""
    compared = ("inner", "outer_joint", "outer_held_out")
    return {
        "verdict": variant.verdict,
        "caveat": None,
        "in_words": {kind: f"no verdict: {variant.reason}" if kind == "inner" else None for kind in compared},
        "software_metrics": list(variant.software_metrics),
        "overhead_percent": dict.fromkeys(("instructions", "cycles", "code")),
        **dict.fromkeys(compared),
    }


_PERTURBATION_JSON = {
    "type": ["object", "null"],
    "description": f"null: not compared; kind, verdict ({' | '.join(VERDICTS)}), p_value (familywise), "
    "delta, alpha (a chance of a false alarm that all comparisons share), comparisons (their number), together (how "
    "many of them were tested together with this one: familywise is over the pairs of all of these, at alpha * "
    "together / comparisons; in a paired campaign all are), paired, run counts, findings, and pairs, the worst first: "
    "a, b, baseline_rho, run_rho, delta_z with ci (for equivalence) and simultaneous (familywise; null: unbounded, or "
    "unknown), p_adjusted (familywise), q_value, p_spread (that runs scatter as much as "
    "baselines), detectable_dz (called perturbed in 80% of such campaigns), verdict, note",
    "required": ["kind", "verdict", "pairs", "p_value", "delta", "alpha"],
}
SUMMARY_JSON_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "summary.json of a campaign",
    "type": "object",
    "required": [
        "schema",
        "campaign",
        "metric_findings",
        "hardware_metrics",
        "runs",
        "variants",
        "findings",
        "provenance",
    ],
    "properties": {
        "format": {
            "type": "string",
            "description": f"Which command wrote it: {SUMMARY_FORMAT}; {PERTURB_FORMAT} for `measure perturb`",
        },
        "schema": {"const": SUMMARY_SCHEMA, "description": "Version of this schema"},
        "campaign": {"type": "string"},
        "controls": {
            "type": ["string", "null"],
            "description": "Verdicts of the null control and the positive control; null without controls",
        },
        "metric_findings": {
            "type": "array",
            "description": "Metrics that tell little, to be read before any verdict, the gravest first",
            "items": {
                "type": "object",
                "required": [
                    "metric",
                    "kind",
                    "problem",
                    "variants",
                    "share",
                    "runs",
                    "records",
                    "events",
                    "text",
                ],
                "properties": {
                    "metric": {"type": "string"},
                    "kind": {"enum": ["hardware", "software"]},
                    "problem": {
                        "enum": ["no events", "constant", "tied", "nearly constant"],
                        "description": PROBLEMS,
                    },
                    "variants": {"type": "array", "items": {"type": "string"}},
                    "share": {
                        "type": "number",
                        "description": "Of records that hold the most frequent value",
                    },
                    "runs": {"type": "integer", "description": "Number of runs of these variants"},
                    "records": {"type": "integer", "description": "Number of records in these runs"},
                    "events": {"type": "number", "description": "Sum over these records"},
                    "text": {"type": "string"},
                },
            },
        },
        "outlying_runs": {
            "type": "array",
            "description": "Runs whose total of a metric is far from those of the other runs of their variant: "
            "variant, metric, runs, numbers (of replicates), totals, low and high (of the others), ratio (to the "
            "median), further (metrics); relation, changed (its variant), change and change_without (of z, with and "
            "without these runs)",
            "items": {"type": "object", "required": ["variant", "metric", "runs", "totals", "ratio", "text"]},
        },
        "hardware_metrics": {"type": "array", "items": {"type": "string"}},
        "runs": {"type": "object", "description": "Number of runs done, reused from before, and failed"},
        "failures": {"type": "array", "description": "Variant, replicate and reason of each failed run"},
        "variants": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": [
                    "verdict",
                    "caveat",
                    "in_words",
                    "software_metrics",
                    "overhead_percent",
                    "inner",
                ],
                "properties": {
                    "verdict": {"enum": list(VERDICTS)},
                    "caveat": {
                        "type": ["string", "null"],
                        "description": "To be read beside an equivalent verdict: metrics without events, constant or "
                        "tied that it leaves out, rests on or collects, and pairs that are not assessable",
                    },
                    "in_words": {
                        "type": "object",
                        "description": "Each comparison's verdict as the report says it",
                    },
                    "software_metrics": {"type": "array", "items": {"type": "string"}},
                    "overhead_percent": {
                        "type": "object",
                        "description": "Mean over runs, in percent of the baseline that shares the run's noise, "
                        "without pairs of the mean baseline; null: unknown",
                    },
                    "inner": _PERTURBATION_JSON,
                    "outer_joint": _PERTURBATION_JSON,
                    "outer_held_out": _PERTURBATION_JSON,
                },
            },
        },
        "invalidating": {
            "type": "array",
            "description": "What makes figures or verdicts wrong: runs that are missing or failed, variants that have "
            "no runs, events that no record has, counts that are too low, OpenMP that was left out, controls that "
            "failed; to be read before everything else",
            "items": {"type": "string"},
        },
        "failed_controls": {
            "type": "object",
            "description": "The sentences of `invalidating` on the null control and the positive control, by these "
            "names; empty if neither failed",
            "additionalProperties": {"type": "string"},
        },
        "findings": {
            "type": "array",
            "description": "All findings, the gravest first, those of `invalidating`, `metric_findings` and "
            "`outlying_runs` included",
            "items": {"type": "string"},
        },
        "provenance": {"type": "object"},
        "ground_truth": {
            "type": "object",
            "description": "With `ground_truth: true`: the sampler's own perturbation, pairs with software metrics by "
            "variant, errors of alignments in records",
        },
    },
}
