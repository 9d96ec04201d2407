"""Plain data of a report: `measure.analysis.analysis` fills it, the figures and the page read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from measure.perturbation.analysis_types import Pair, Perturbation, Verdict, gravest
from measure.perturbation.finding import Finding
from measure.perturbation.outlying_runs import OutlyingRuns
from measure.perturbation.uninformative_metrics import MetricFinding, caveat
from measure.perturbation.wording import UNKNOWN, beside, in_words, percent


@dataclass(frozen=True)
class Signals:
    """One run's trace. ``values``: (n, m) events per interval, columns named by ``metrics``."""

    label: str
    metrics: tuple[str, ...]
    values: NDArray[np.float64]

    def series(self, metric: str) -> NDArray[np.float64]:
        """The column of ``metric``, (n,)."""
        return self.values[:, self.metrics.index(metric)]


@dataclass(frozen=True)
class VariantReport:
    """One set of software metrics collected together.

    ``rho``: (r, m, m) correlations of the hardware metrics, a matrix a run; overheads in percent of the mean
    baseline, (r,), nan where unknown. ``metric_findings``: findings on the metrics that the verdict involves, leaves
    out or collects.
    """

    name: str
    software_metrics: tuple[str, ...]
    descriptions: tuple[str, ...]
    rho: NDArray[np.float64]
    instructions_percent: NDArray[np.float64]
    cycles_percent: NDArray[np.float64]
    code_percent: float
    inner: Perturbation
    outer_joint: Perturbation | None
    outer_held_out: Perturbation | None
    example: Signals
    metric_findings: tuple[MetricFinding, ...] = ()
    time_name: str = "cycles"

    @property
    def overhead(self) -> str:
        """The mean overhead in instructions; in time, where instructions were not counted."""
        instructions, time = float(self.instructions_percent.mean()), float(self.cycles_percent.mean())
        if np.isfinite(time) and not np.isfinite(instructions):
            return f"{percent(time)} {self.time_name}"
        return f"{percent(instructions)} instructions"

    def heading(self, perturbation: Perturbation) -> str:
        """What sentences about one comparison of this variant begin with: its name, cost, and where it was compared."""
        overhead = self.overhead
        cost = "" if overhead.startswith(UNKNOWN) else f" ({overhead})"
        return f"{self.name}{cost}, {'within a run' if perturbation.kind == 'inner' else 'across aligned runs'}"

    def findings_of(self, perturbation: Perturbation) -> tuple[Finding, ...]:
        """The findings of one comparison under its heading."""
        heading = self.heading(perturbation)
        return tuple(replace(one, variant=self.name, heading=heading, of_comparison=True) for one in perturbation.said)

    @property
    def caveat(self) -> str:
        """Restriction of an *equivalent* verdict: metrics without events, constant or tied, pairs that are not
        assessable, verdicts that rest on one run. Empty without any."""
        if self.verdict != "equivalent":
            return ""
        parts = [caveat(self.metric_findings)]
        for one, where in ((self.inner, "within a run"), (self.outer_held_out, "across runs")):
            if one is not None and one.verdict == "not assessable":
                parts.append(f"it is not assessable {where}")
            elif one is not None and (restriction := beside(one)):
                parts.append(f"{where}, {restriction}")
        return "; ".join(filter(None, parts))

    def in_words(self, perturbation: Perturbation) -> str:
        """The verdict of one comparison in plain words, with its caveat."""
        restriction = caveat([one for one in self.metric_findings if one.kind == "hardware"])
        parts = [
            in_words(perturbation),
            restriction if perturbation.verdict == "equivalent" else "",
            beside(perturbation),
        ]
        return "; ".join(filter(None, parts))

    @property
    def verdict(self) -> Verdict:
        """The variant's verdict: the gravest of the inner and the held-out outer one."""
        return gravest(p.verdict for p in (self.inner, self.outer_held_out) if p is not None)


@dataclass(frozen=True)
class VariantWithoutRuns:
    """A variant of which no run is there to compare. ``reason``: why, in words."""

    name: str
    software_metrics: tuple[str, ...]
    reason: str

    @property
    def verdict(self) -> Verdict:
        """Nothing can be told of it."""
        return "not assessable"


def findings_on_comparisons(variants: Sequence[VariantReport], verdict: Verdict) -> list[Finding]:
    """The findings of all comparisons of ``variants`` that have this ``verdict``."""
    return [
        finding
        for variant in variants
        for compared in (variant.inner, variant.outer_held_out)
        if compared is not None and compared.verdict == verdict
        for finding in variant.findings_of(compared)
    ]


@dataclass(frozen=True)
class SamplerTruth:
    """Baselines sampled by signals compared with the same ones sampled ideally: what the sampler itself changes.

    Overheads in percent of the mean ideal run, ``(r,)``.
    """

    instructions_percent: NDArray[np.float64]
    cycles_percent: NDArray[np.float64]
    inner: Perturbation
    outer_held_out: Perturbation | None


@dataclass(frozen=True)
class SoftwareTruth:
    """Perturbation of a variant's pairs that involve software metrics, and that of its hardware pairs."""

    variant: str
    metrics: tuple[str, ...]
    hardware: Perturbation
    software: Perturbation

    @property
    def hidden(self) -> bool:
        """Whether software pairs are perturbed and no hardware pair shows that it changed."""
        return self.software.verdict == "perturbed" and self.hardware.verdict not in ("perturbed", "changed")

    def of_kind(self, both_software: bool) -> tuple[Pair, ...]:
        """The pairs of two software metrics, or those of one with a hardware metric."""
        return tuple(
            pair for pair in self.software.pairs if (pair.a in self.metrics and pair.b in self.metrics) == both_software
        )


@dataclass(frozen=True)
class MetricSource:
    """Source of the undisturbed values of a software metric.

    ``why_not``: why there is no exact probe, "" for an exact one. ``error_percent`` and ``rho``: how far values derived
    from reference events are from values counted by an exact probe or by the counters of instrumented runs: mean
    difference in percent of the mean count of a record, and Spearman's correlation; nan where nothing was counted.
    """

    metric: str
    why_not: str
    error_percent: float
    rho: float


@dataclass(frozen=True)
class Control:
    """Comparison of a metric's counter with its probe in the instrumented programs.

    ``runs``: number of runs compared; ``events``: counted by the counters in all records; ``difference``: of the sums;
    ``largest``: largest difference in one record.
    """

    metric: str
    runs: int
    events: int
    difference: int
    largest: int


@dataclass(frozen=True)
class AlignmentAccuracy:
    """Error of an algorithm on one set of channels, in records: means over ``runs`` runs of ``variant``."""

    variant: str
    algorithm: str
    channels: str
    runs: int
    mean: float
    median: float
    p95: float
    largest: float


@dataclass(frozen=True)
class ChannelChoice:
    """The channels to align on with ``algorithm``: ``channels``, chosen greedily on one set of pairs of runs.

    ``steps``: channels and typical error (geometric mean over pairs) in records after each addition; ``error``,
    ``error_of_all``: typical error with the chosen and with all channels on other pairs.
    """

    algorithm: str
    channels: tuple[str, ...]
    steps: tuple[tuple[tuple[str, ...], float], ...]
    error: float
    error_of_all: float


@dataclass(frozen=True)
class AlignmentTruth:
    """Errors of alignments against the true alignment, and the channels to align on.

    ``resolution_median``, ``resolution_p95``: width in records within which the truth is certain.
    ``estimate_error``: mean error of the estimate by instructions per event, by variant.
    """

    errors: tuple[AlignmentAccuracy, ...]
    choices: tuple[ChannelChoice, ...]
    resolution_median: float
    resolution_p95: float
    estimate_error: tuple[tuple[str, float], ...]

    def error(self, variant: str, algorithm: str) -> float:
        """Mean error in records on all channels, or of an algorithm without channels; nan where it was not measured."""
        for one in self.errors:
            if (one.variant, one.algorithm) == (variant, algorithm) and one.channels in ("all", ""):
                return one.mean
        return float("nan")


@dataclass(frozen=True)
class GroundTruth:
    """What only an emulated machine can measure. ``sampler`` is None if not compared, ``sampler_why_not`` says why.

    ``reference_events``: number of kinds of reference events; ``events``: number of reference events in a run;
    ``instructions``: of the program itself; ``out_of_order``: fraction of the observations at which their order
    differed.
    """

    sampler: SamplerTruth | None
    sampler_why_not: str
    software: tuple[SoftwareTruth, ...]
    sources: tuple[MetricSource, ...]
    controls: tuple[Control, ...]
    alignment: AlignmentTruth
    reference_events: int
    rejected: tuple[str, ...]
    events: int
    instructions: int
    out_of_order: float
    findings: tuple[str, ...]


@dataclass(frozen=True)
class ReportData:
    """Everything on the page. ``baseline_rho``: (b, m, m); ``said``: findings, the gravest first.

    ``invalidating``: what makes figures or verdicts wrong, to be read before everything else; ``metric_findings``:
    findings on metrics that tell little, to be read before any verdict; ``outlying_runs``: runs that differ from the
    other runs of their variant, of which verdicts and means tell nothing; ``controls``: the results of the campaign's
    controls in a sentence, empty without any; ``without_runs``: the variants that ``variants`` lacks for that reason;
    ``failed_controls``: the sentences of ``invalidating`` on controls that failed, by the control's name.
    """

    title: str
    subtitle: str
    hardware_metrics: tuple[str, ...]
    baseline_rho: NDArray[np.float64]
    baseline_example: Signals
    variants: tuple[VariantReport, ...]
    said: tuple[Finding, ...]
    provenance: tuple[tuple[str, str], ...]
    interval: str
    metric_findings: tuple[MetricFinding, ...] = ()
    ground_truth: GroundTruth | None = None
    controls: str = ""
    invalidating: tuple[str, ...] = ()
    outlying_runs: tuple[OutlyingRuns, ...] = ()
    without_runs: tuple[VariantWithoutRuns, ...] = ()
    failed_controls: Mapping[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """The gravest of all variants; *equivalent* only if each of them has runs."""
        found = gravest(variant.verdict for variant in self.variants)
        return "not assessable" if found == "equivalent" and self.without_runs else found

    @property
    def findings(self) -> tuple[str, ...]:
        """What is said after the verdicts, as sentences, the gravest first."""
        return tuple(one.text for one in self.said)

    @property
    def all_findings(self) -> tuple[str, ...]:
        """All findings as sentences, the gravest first."""
        return *self.invalidating, *self.before_verdicts, *self.findings

    @property
    def before_verdicts(self) -> tuple[str, ...]:
        """What to know before verdicts: metrics that tell little, runs that stand out."""
        return *(one.text for one in self.metric_findings), *(one.text for one in self.outlying_runs)

    @property
    def time_name(self) -> str:
        """What the time of runs is measured in: cycles, or processor time on the host."""
        return self.variants[0].time_name if self.variants else "cycles"
