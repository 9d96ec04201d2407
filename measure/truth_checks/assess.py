"""Computes a campaign's ground truth from its runs: sampler, software pairs, alignment errors, and the findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from common.plain_json import plain_json
from measure.errors import MeasureError
from measure.ground_truth.prepare import SAMPLED, Prepared
from measure.ground_truth.sampler import assess_sampler
from measure.perturbation.analysis_types import Perturbation
from measure.perturbation.finding import Finding
from measure.perturbation.perturbation import inner_perturbation
from measure.perturbation.wording import rhos_text
from measure.report.model import (
    AlignmentTruth,
    Control,
    GroundTruth,
    MetricSource,
    ReportData,
    SamplerTruth,
    Signals,
    SoftwareTruth,
)
from measure.run_types import BASELINE, Run
from measure.stats.correlation import Correlations
from measure.truth_checks.alignment import assess_alignment
from measure.truth_checks.software import (
    controls,
    errors_of_derived,
    software_column,
    transfer_error,
    with_software,
    without_unreliable,
)

RUNS_READ = 3
"""Runs of each group on which values derived from reference events are compared with counted ones."""
WORTH_CHOOSING = 0.9
"""Fewer channels are recommended when their error is at most this fraction of the error on all channels."""


def assess(prepared: Prepared, runs: Sequence[Run], progress: Callable[[str], None] = lambda what: None) -> GroundTruth:
    """The ground truth that the ``runs`` of ``prepared`` show.

    Raises `MeasureError` with fewer than two baselines or without an instrumented run.
    """
    campaign, calibration = prepared.plan.campaign, prepared.calibration
    ordered = sorted(runs, key=lambda run: run.spec.replicate)
    baselines = [run for run in ordered if run.spec.variant == BASELINE]
    sampled = [run for run in ordered if run.spec.variant == SAMPLED]
    variants = campaign.variant_sets()
    instrumented = [run for name in variants for run in ordered if run.spec.variant == name]
    if len(baselines) < 2 or not instrumented:
        raise MeasureError(
            f"got {len(baselines)} successful baselines and {len(instrumented)} successful instrumented runs, expected "
            "at least two and one: the ground truth cannot be computed"
        )
    progress("ground truth: the sampler")
    sampler, why_not = None, prepared.sampler_why_not
    if len(sampled) > 1:
        ideal = campaign.sampling.mode == "ideal"
        sampler = assess_sampler(
            campaign, baselines if ideal else sampled, sampled if ideal else baselines
        )  # fmt: skip
    elif not why_not:
        why_not = f"{len(sampled)} of the runs by the other sampler succeeded"
    progress("ground truth: pairs with software metrics")
    exact = frozenset(prepared.exact)
    some = [*baselines[:RUNS_READ], *(run for run in instrumented if run.spec.replicate < RUNS_READ)]
    errors = transfer_error(some, calibration, tuple(campaign.software_metrics), exact)
    rhos = {metric: rho for metric, (_, rho) in errors.items() if metric not in exact}
    derived = errors_of_derived(
        instrumented, campaign.hardware_metrics, tuple(campaign.software_metrics), calibration, exact
    )
    software = []
    for name, metrics in variants.items():
        group = [run for run in instrumented if run.spec.variant == name]
        if group:
            software.append(_software(prepared, name, metrics, baselines, group, exact, derived, rhos))
    sources = tuple(
        MetricSource(metric, prepared.refused.get(metric, ""), *errors[metric]) for metric in campaign.software_metrics
    )
    progress("ground truth: errors of alignments")
    alignment = assess_alignment(baselines, instrumented, calibration.curve, campaign.alignment_setting)
    checked = controls(instrumented)
    return GroundTruth(
        sampler=sampler,
        sampler_why_not=why_not,
        software=tuple(software),
        sources=sources,
        controls=checked,
        alignment=alignment,
        reference_events=len(calibration.reference_events),
        rejected=calibration.rejected,
        events=calibration.total_events,
        instructions=int(calibration.curve.instructions[-1]),
        out_of_order=calibration.out_of_order,
        findings=(
            *_sampler_findings(sampler, why_not), *_software_findings(software, sources),
            *_alignment_findings(alignment), *_control_findings(checked),
            *_reference_event_findings(prepared, baselines, instrumented),
        ),
    )  # fmt: skip


def with_ground_truth(
    data: ReportData,
    prepared: Prepared,
    runs: Sequence[Run],
    progress: Callable[[str], None] = lambda what: None,
) -> ReportData:
    """``data`` with the ground truth, and with the undisturbed software metrics of the first baseline.

    Perturbation that no hardware pair shows is put first among the findings of the whole campaign; counters that do not
    agree with their probes make its figures wrong.
    """
    truth = assess(prepared, runs, progress)
    first = min(
        (run for run in runs if run.spec.variant == BASELINE), key=lambda run: run.spec.replicate
    )  # fmt: skip
    campaign, exact = prepared.plan.campaign, frozenset(prepared.exact)
    software = [
        software_column(first, metric, prepared.calibration, metric in exact) for metric in campaign.software_metrics
    ]
    values = np.column_stack([first.trace.columns(campaign.hardware_metrics), *software])
    names = (*campaign.hardware_metrics, *campaign.software_metrics)
    example = Signals(data.baseline_example.label, names, values)
    hidden = tuple(Finding(_hidden_finding(one)) for one in truth.software if one.hidden)
    wrong = _control_findings(truth.controls) if _disagreeing(truth.controls) else ()
    return replace(
        data, ground_truth=truth, baseline_example=example, said=(*hidden, *data.said),
        invalidating=(*wrong, *data.invalidating),
    )  # fmt: skip


def _software(
    prepared: Prepared, name: str, metrics: tuple[str, ...], baselines: Sequence[Run], runs: Sequence[Run],
    exact: frozenset[str], derived: Mapping[frozenset[str], float], rhos: Mapping[str, float],
) -> SoftwareTruth:  # fmt: skip
    """Perturbation of one variant's pairs: hardware pairs, and pairs that involve its software metrics, but for those
    that errors of derived values make unreliable (`without_unreliable`)."""
    campaign = prepared.plan.campaign
    hardware = campaign.hardware_metrics
    before, after = (
        [with_software(run, hardware, metrics, prepared.calibration, exact) for run in group]
        for group in (baselines, runs)
    )
    levels: dict[str, Any] = {"delta": campaign.delta, "alpha": campaign.alpha, "seed": campaign.seed}
    all_pairs = without_unreliable(inner_perturbation(before, after, concerning=metrics, **levels), derived, rhos)
    h = len(hardware)
    hardware_pairs = inner_perturbation([_first(one, h) for one in before], [_first(one, h) for one in after], **levels)
    return SoftwareTruth(name, metrics, hardware_pairs, all_pairs)


def _first(one: Correlations, count: int) -> Correlations:
    """The correlations of the first ``count`` metrics."""
    return Correlations(
        one.metrics[:count],
        one.rho[:count, :count],
        one.constant[:count],
        one.tie_fraction[:count],
        one.n_records,
    )


def _sampler_findings(sampler: SamplerTruth | None, why_not: str) -> list[str]:
    if sampler is None:
        return [f"What the sampler itself changes was not compared: {why_not}."]
    sentence = (
        f"Sampling by signals adds {sampler.instructions_percent.mean():.2f}% of instructions and "
        f"{sampler.cycles_percent.mean():+.2f}% of cycles; within a run that is {sampler.inner.verdict}"
    )
    if sampler.outer_held_out is not None:
        sentence += f", across runs {sampler.outer_held_out.verdict}"
    worst = _worst(sampler.inner)
    return [f"{sentence}{f' ({worst})' if worst else ''}."]


def _worst(perturbation: Perturbation) -> str:
    """The pair that changed most, in words; "" when no pair is defined."""
    pair = next((pair for pair in perturbation.pairs if np.isfinite(pair.delta_z)), None)
    if pair is None:
        return ""
    return f"{pair.name}: rho {rhos_text(pair.baseline_rho, pair.run_rho)}"


def _software_findings(software: Sequence[SoftwareTruth], sources: Sequence[MetricSource]) -> list[str]:
    """Sentences on variants by verdict, and on metrics without an exact probe."""
    findings = [_hidden_finding(one) for one in software if one.hidden]
    equivalent = [one.variant for one in software if one.software.verdict == "equivalent"]
    if equivalent:
        findings.append(f"Pairs with software metrics are equivalent in {', '.join(equivalent)}.")
    inconclusive = [one.variant for one in software if one.software.verdict == "inconclusive"]
    if inconclusive:
        findings.append(f"Pairs with software metrics are undecided in {', '.join(inconclusive)}: add runs.")
    changed = [one.variant for one in software if one.software.verdict == "changed"]
    if changed:
        findings.append(f"Pairs with software metrics changed, by an open amount, in {', '.join(changed)}: add runs.")
    unknown = [one.variant for one in software if one.software.verdict == "not assessable"]
    if unknown:
        findings.append(f"Pairs with software metrics are not assessable in {', '.join(unknown)}.")
    both = [
        one.variant for one in software if one.software.verdict == "perturbed" and one.hardware.verdict == "perturbed"
    ]
    if both:
        findings.append(f"Both hardware pairs and pairs with software metrics are perturbed in {', '.join(both)}.")
    without = [source for source in sources if source.why_not]
    if without:
        findings.append(
            f"No exact probe for {', '.join(source.metric for source in without)}: their undisturbed values are "
            "derived from reference events. Pairs whose values are so far off are not assessable: the error would "
            "look like a change."
        )
    return findings


def _hidden_finding(one: SoftwareTruth) -> str:
    perturbed = sum(pair.verdict == "perturbed" for pair in one.software.pairs)
    return (
        f"{one.variant}: perturbation that no hardware pair shows (hardware pairs: {one.hardware.verdict}): "
        f"{perturbed} of {len(one.software.pairs)} pairs with a software metric, the worst {_worst(one.software)}. "
        "Collect its metrics in several runs."
    )


def _alignment_findings(alignment: AlignmentTruth) -> list[str]:
    """Sentences on the errors of the algorithms, and the recommended algorithm and channels."""
    groups = [group for group, _ in alignment.estimate_error]
    means = {
        algorithm: float(np.mean([alignment.error(group, algorithm) for group in groups]))
        for algorithm in ("full", "penalty", "linear")
    }
    findings = [
        f"Aligned on all hardware metrics, exact warping misplaces a record by {means['full']:.2f} records on average "
        f"(baselines: {alignment.error(BASELINE, 'full'):.2f}); with a step penalty by {means['penalty']:.2f}, and a "
        f"straight line by {means['linear']:.2f}."
    ]
    best = min(alignment.choices, key=lambda one: min(one.error, one.error_of_all))
    named = {"full": "exact warping", "penalty": "warping with a step penalty"}[best.algorithm]
    if best.error < WORTH_CHOOSING * best.error_of_all:
        findings.append(
            f"Align by {named} on {', '.join(best.channels)}: on pairs of runs that the choice has not seen it "
            f"typically errs by {best.error:.2f} records, on all channels by {best.error_of_all:.2f}."
        )
    else:
        findings.append(
            f"Align by {named} on all channels: it typically errs by {best.error_of_all:.2f} records, and a choice "
            f"of fewer by {best.error:.2f} on pairs of runs that it had not seen."
        )
    return findings


def _control_findings(checked: Sequence[Control]) -> list[str]:
    if not checked:
        return ["No metric has a probe in an instrumented program: counters were not checked against probes."]
    wrong = _disagreeing(checked)
    if wrong:
        return [f"Counter and probe of one program differ: {', '.join(wrong)}; see the controls."]
    events = sum(one.events for one in checked)
    split = sum(1 for one in checked if one.largest)
    exception = ", but for single events that a boundary cuts in two," if split else ""
    named = ", ".join(one.metric for one in checked)
    return [f"Control: counter and probe agree in every record{exception} for {named} ({events:,} events)."]


def _disagreeing(checked: Sequence[Control]) -> list[str]:
    """The metrics whose counter and probe counted different events of one program."""
    # A boundary may fall between the counter's increment at a call and the entry that the probe sees.
    return [one.metric for one in checked if one.largest > 1 or one.difference > one.runs]


def _reference_event_findings(prepared: Prepared, baselines: Sequence[Run], instrumented: Sequence[Run]) -> list[str]:
    """Warnings that true positions are rough or not to be trusted."""
    calibration = prepared.calibration
    findings = []
    if calibration.out_of_order:
        findings.append(
            f"At {calibration.out_of_order:.2%} of the observed moments, the instrumented program's reference events "
            "came in another order: true positions are rough there."
        )
    endings = {run.stdout_tail for run in [*baselines, *instrumented]}
    if len(endings) > 1:
        findings.append(
            "The program's output differs between runs: the program does not do the same in each run, so do not trust "
            "the true positions."
        )
    return findings


def plain(truth: GroundTruth | None) -> dict[str, Any]:
    """The entry of summary.json: plain JSON types, nan as null; empty without a ground truth."""
    if truth is None:
        return {}
    found = asdict(truth)
    if truth.sampler is not None:
        for key in ("instructions_percent", "cycles_percent"):
            found["sampler"][key] = float(found["sampler"][key].mean())
        outer = truth.sampler.outer_held_out
        found["sampler"] |= {
            "inner": truth.sampler.inner.as_fields(), "outer_held_out": outer.as_fields() if outer else None
        }  # fmt: skip
    for entry, one in zip(found["software"], truth.software, strict=True):
        entry["hidden"] = one.hidden
        entry["software"] = one.software.as_fields()
        entry["hardware"] = one.hardware.verdict  # the hardware pairs themselves are in the variant's own entry
    return {"ground_truth": plain_json(found)}
