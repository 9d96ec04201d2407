"""Applies the analysis of `measure run` to gathered traces: the same tests and report, without an emulator."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from measure.analysis.analysis import findings_of_variant, summary
from measure.analysis.provenance import installed
from measure.arguments import check_flag, check_number, check_word
from measure.foreign.alignment_cost import check_alignment_hours
from measure.foreign.copies import are_different_emulated_runs
from measure.foreign.gather import Gathered, measured
from measure.foreign.trace import ForeignTrace, names_of_files
from measure.perturbation.analysis_types import DEFAULT_DELTA, VERDICTS, Perturbation
from measure.perturbation.finding import Finding
from measure.perturbation.findings import of_one_metric
from measure.perturbation.outlying_runs import RunGroup, outlying_runs
from measure.perturbation.perturbation import Memo, comparisons, inner_perturbation, outer_perturbation
from measure.perturbation.run_order import Order, weighed
from measure.perturbation.uninformative_metrics import MetricFinding, metric_findings
from measure.report.model import ReportData, Signals, VariantReport, findings_on_comparisons
from measure.run_types import BASELINE
from measure.runs.executor import Outcome
from measure.stats.correlation import MIN_RECORDS, Correlations, spearman
from measure.verdict_files.summary_file import PERTURB_FORMAT

INSTRUCTIONS = ("PAPI_TOT_INS", "instructions", "INSTR_RETIRED_ANY", "inst_retired.any")
CYCLES = ("PAPI_TOT_CYC", "cycles", "cpu-cycles", "CPU_CLK_UNHALTED_CORE", "cpu_clk_unhalted.thread")
_EVENT = re.compile(r"(?:(?P<core>\w+)/)?(?P<event>[^/:]+)(?:/\w*)?(?::.*)?")
"""An event as perf names it, with the kind of core that counts it, and modifiers."""


@dataclass(frozen=True)
class Levels:
    """Levels of the comparison. ``align``: whether to compare across aligned runs, too; ``order``: in which runs were
    made, each group's traces being in the order of its runs. Raises `ArgumentError` for those out of range."""

    delta: float = DEFAULT_DELTA
    alpha: float = 0.05
    seed: int = 1
    align: bool = True
    order: Order = "unknown"

    def __post_init__(self) -> None:
        check_number("delta", self.delta, above=0, what="a change of z = atanh(rho)")
        check_number("alpha", self.alpha, above=0, below=0.5, what="the chance of any false alarm")
        check_number("seed", self.seed, whole=True)
        check_flag("align", self.align)
        check_word("order", self.order, get_args(Order))


def compare(
    gathered: Gathered, levels: Levels, title: str, progress: Callable[[str], None] = lambda what: None
) -> ReportData:
    """Compare every variant with the baselines, like `measure.analysis.analysis.analyse` for a campaign.

    ``progress`` is called with what is being compared. Raises `TraceFileError` for traces that take hours to align.
    """
    if levels.align:
        check_alignment_hours(gathered)
    metrics = gathered.metrics
    chosen: dict[str, Any] = {"delta": levels.delta, "alpha": levels.alpha, "seed": levels.seed}
    chosen["comparisons"] = comparisons(len(gathered.variants), levels.align)
    chosen["noise_expected"] = not are_different_emulated_runs(gathered.baseline_traces)
    baseline_correlations = [spearman(values, metrics) for values in gathered.baselines]
    only_after = _only_after(gathered)
    uninformative = _metric_findings(gathered, only_after)
    memo: Memo = {}  # alignments of baselines with one another, shared by all comparisons
    groups = {BASELINE: _run_group(gathered.baseline_traces, gathered.baselines, baseline_correlations)}
    variants = []
    for name, tables in gathered.variants.items():
        progress(f"{name}: within runs")
        correlations = [spearman(values, metrics) for values in tables]
        groups[name] = _run_group(gathered.variant_traces[name], tables, correlations)
        in_order = [(BASELINE, baseline_correlations), (name, correlations)]
        inner = inner_perturbation(baseline_correlations, correlations, **chosen)
        inner = weighed(inner, levels.order, in_order, levels.seed)
        outer: dict[bool, Perturbation | None] = {False: None, True: None}
        if levels.align:
            for held_out in (False, True):
                across = outer_perturbation(
                    gathered.baselines, tables, metrics, held_out=held_out, memo=memo,
                    progress=_across(name, held_out, progress), **chosen,
                )  # fmt: skip
                outer[held_out] = weighed(across, levels.order, in_order, levels.seed)
        if len(only_after[name]) == 1:
            inner = of_one_metric(inner)
            outer = {held_out: one and of_one_metric(one) for held_out, one in outer.items()}
        traces = gathered.variant_traces[name]
        variants.append(
            VariantReport(
                name=name,
                software_metrics=only_after[name],
                descriptions=only_after[name] or ("the same metrics as the baselines",),
                rho=np.array([one.rho for one in correlations]),
                instructions_percent=_percent(traces, gathered.baseline_traces, INSTRUCTIONS),
                cycles_percent=_percent(traces, gathered.baseline_traces, CYCLES),
                code_percent=float("nan"),
                inner=inner,
                outer_joint=outer[False],
                outer_held_out=outer[True],
                example=_signals(name, traces[0], (*metrics, *only_after[name]), metrics),
                metric_findings=findings_of_variant(uninformative, name),
            )
        )
    runs = ", ".join(f"{len(tables)} {name}" for name, tables in gathered.variants.items())
    records = int(np.median([trace.n_records for trace in gathered.traces]))
    return ReportData(
        title=title,
        subtitle=f"{len(gathered.baselines)} baselines; runs: {runs}; about {records:,} records a run",
        hardware_metrics=metrics,
        baseline_rho=np.array([one.rho for one in baseline_correlations]),
        baseline_example=_signals("baseline", gathered.baseline_traces[0], metrics, metrics),
        variants=tuple(variants),
        said=_findings(variants, gathered),
        provenance=_provenance(gathered, levels),
        interval=gathered.baseline_traces[0].interval,
        metric_findings=uninformative,
        outlying_runs=outlying_runs(groups, BASELINE, metrics),
        invalidating=gathered.invalidating,
    )


def _across(name: str, held_out: bool, progress: Callable[[str], None]) -> Callable[[int, int], None]:
    """Tells ``progress`` how many of the alignments of a variant are done."""
    what = f"{name}: across runs, aligned on {'the other' if held_out else 'all'} metrics"
    return lambda done, whole: progress(f"{what}: {done:,} of {whole:,} alignments")


def _run_group(
    traces: Sequence[ForeignTrace], tables: Sequence[NDArray[np.float64]], correlations: Sequence[Correlations]
) -> RunGroup:
    """The runs of a group, to be compared with one another; each is called after its file."""
    names = names_of_files(traces)
    return RunGroup(
        range(len(tables)), [f"file {names[trace.path]}" for trace in traces],
        np.array([table.sum(axis=0) for table in tables]), np.array([one.rho for one in correlations]),
    )  # fmt: skip


def _metric_findings(gathered: Gathered, only_after: dict[str, tuple[str, ...]]) -> tuple[MetricFinding, ...]:
    found = metric_findings({BASELINE: gathered.baselines, **gathered.variants}, gathered.metrics, "hardware")
    for metric in dict.fromkeys(metric for metrics in only_after.values() for metric in metrics):
        collected = {
            name: [trace.columns((metric,)) for trace in gathered.variant_traces[name]]
            for name, metrics in only_after.items()
            if metric in metrics
        }
        found += metric_findings(collected, (metric,), "software")
    return tuple(sorted(found, key=lambda one: one.rank))


def summary_of(data: ReportData, gathered: Gathered) -> dict[str, Any]:
    """`summary.json` as from `measure run`, with the files and formats in addition."""
    document = summary(data, Outcome((), (), 0, ())) | {"format": PERTURB_FORMAT}
    document["runs"] = {"done": len(gathered.traces), "reused": 0, "failed": 0}
    document["files"] = {
        group: [{"path": str(trace.path), "format": trace.format, "records": trace.n_records} for trace in traces]
        for group, traces in (("baseline", gathered.baseline_traces), *gathered.variant_traces.items())
    }
    document["warnings"] = list(gathered.warnings)
    return document


def _only_after(gathered: Gathered) -> dict[str, tuple[str, ...]]:
    """For each variant, the metrics that all its runs have and no baseline has: those that it collects."""
    before = {metric for trace in gathered.baseline_traces for metric in trace.metrics}
    found = {}
    for name, traces in gathered.variant_traces.items():
        every = set.intersection(*(set(measured(trace)) for trace in traces))
        found[name] = tuple(metric for metric in traces[0].metrics if metric in every - before)
    return found


def _signals(label: str, trace: ForeignTrace, metrics: Sequence[str], compared: Sequence[str]) -> Signals:
    """The intervals in which all of ``metrics`` were measured; of ``compared`` alone when these are too few."""
    values = trace.columns(metrics)
    whole = values[np.isfinite(values).all(axis=1)]
    if len(whole) >= MIN_RECORDS:
        return Signals(label, tuple(metrics), whole)
    return _signals(label, trace, compared, compared)


def _percent(
    traces: Sequence[ForeignTrace], baselines: Sequence[ForeignTrace], names: tuple[str, ...]
) -> NDArray[np.float64]:
    """Change [%] of a total against the mean baseline, (r,); nan unless it is known for every run.

    A total is unknown if some interval was not counted in it, or if traces count it on other kinds of cores.
    """
    everything = (*baselines, *traces)
    for name in names:
        counted_as = [_counted_as(trace, name) for trace in everything]
        if counted_as[0] and all(set(metrics) == set(counted_as[0]) for metrics in counted_as):
            totals = [_total(trace, metrics.values()) for trace, metrics in zip(everything, counted_as, strict=True)]
            mean = np.mean(totals[: len(baselines)])
            if np.isfinite(totals).all() and mean > 0:
                return 100 * (np.array(totals[len(baselines) :]) / mean - 1)
    return np.full(len(traces), np.nan)


def _counted_as(trace: ForeignTrace, name: str) -> dict[str, str]:
    """The metrics that count the event ``name``, by kind of core, empty where there is one kind only.

    perf calls them ``name``, ``name:modifiers``, and on processors with two kinds of cores ``cpu_core/name/`` and
    ``cpu_atom/name/``.
    """
    if name in trace.totals:
        return {"": name}
    found: dict[str, str] = {}
    for metric in trace.metrics:
        called = _EVENT.fullmatch(metric)
        if called and called["event"] == name:
            found.setdefault(called["core"] or "", metric)
    return {"": found[""]} if "" in found else found


def _total(trace: ForeignTrace, metrics: Iterable[str]) -> float:
    """Events of the whole run of all ``metrics``; nan if some interval was not counted in one."""
    known = trace.totals
    return sum(known[metric] if metric in known else float(trace.columns([metric]).sum()) for metric in metrics)


def _findings(variants: Sequence[VariantReport], gathered: Gathered) -> tuple[Finding, ...]:
    """The findings, the gravest first, each with what to do next."""
    sentences = []
    if any(np.isnan(variant.instructions_percent).any() for variant in variants):
        sentences.append(
            "Not every trace counts instructions in every interval, so the overhead is unknown: "
            f"count one of {', '.join(INSTRUCTIONS[:2])} to see it."
        )
    on_comparisons = (one for verdict in VERDICTS for one in findings_on_comparisons(variants, verdict))
    return tuple(dict.fromkeys([*on_comparisons, *map(Finding, [*sentences, *gathered.warnings])]))


def _provenance(gathered: Gathered, levels: Levels) -> tuple[tuple[str, str], ...]:
    """Pairs of name and text: files, formats, units, levels and software versions."""
    groups = (("baseline", gathered.baseline_traces), *gathered.variant_traces.items())
    return (
        *((f"traces of {group}", ", ".join(str(trace.path) for trace in traces)) for group, traces in groups),
        ("formats", ", ".join(dict.fromkeys(trace.format for trace in gathered.traces))),
        ("units", ", ".join(f"{m} [{u}]" for m, u in _units(gathered).items()) or "none given"),
        ("delta, alpha", f"{levels.delta}, {levels.alpha}"),
        ("seed", str(levels.seed)),
        ("order of runs", levels.order),
        ("software", ", ".join(map(installed, ("perturbation", "numpy", "pyarrow")))),
        ("host", f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"),
    )


def _units(gathered: Gathered) -> dict[str, str]:
    units = {m: unit for trace in gathered.traces for m, unit in trace.units.items()}
    return {metric: units[metric] for metric in gathered.metrics if metric in units}
