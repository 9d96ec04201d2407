"""The tables that are recorded of the campaigns' ground truth, and the numbers of the page."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from measure.alignment.setting import AlignmentSetting
from measure.analysis.stored_runs import load_results
from measure.perturbation.analysis_types import VERDICTS, gravest
from measure.report.ground_truth_section import largest_change
from measure.report.model import GroundTruth, ReportData
from measure.result_files import write_text_atomically
from measure.run_types import BASELINE, Run
from measure.runs.program_progress import EventCurve
from measure.truth_checks.alignment import choose_channels, typical_error
from measure.truth_checks.merge_truth import Algorithm

PENALTIES = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Of a step, for each channel, in variances."""
_PAIRS_EACH = 4
_BEGIN, _END = "<!-- comparison -->", "<!-- end -->"
KINDS = ("hardware-hardware", "software-hardware", "software-software")

Pair = tuple[Run, Run, EventCurve]


def of_program(program: str, data: ReportData, directory: Path) -> dict[str, pd.DataFrame]:
    """The tables of one campaign, by name."""
    truth = data.ground_truth
    assert truth is not None
    found = {
        "programs": [_facts(data, truth)],
        "sampler": _sampler(truth),
        "software": _software(data, truth),
        "pairs": _pairs(truth),
        "alignment": [
            {
                "group": one.variant, "algorithm": one.algorithm, "channels": one.channels, "runs": one.runs,
                "mean_records": one.mean, "median_records": one.median, "p95_records": one.p95,
                "largest_records": one.largest,
            }
            for one in truth.alignment.errors
        ],
        "channels": [
            {
                "algorithm": one.algorithm, "channels": " ".join(one.channels), "error_records": one.error,
                "error_of_all_records": one.error_of_all,
            }
            for one in truth.alignment.choices
        ],
        "metrics": [
            {
                "metric": one.metric, "exact_probe": not one.why_not, "anchors_error_percent": one.error_percent,
                "anchors_rho": one.rho, "why_not": one.why_not,
            }
            for one in truth.sources
        ],
        "penalty": _penalties(directory),
    }  # fmt: skip
    return {name: pd.DataFrame(rows).assign(program=program) for name, rows in found.items()}


def _facts(data: ReportData, truth: GroundTruth) -> dict[str, Any]:
    checked = truth.controls
    return {
        "instructions": truth.instructions,
        "records": data.baseline_example.values.shape[0],
        "anchor_kinds": truth.reference_events,
        "anchor_events": truth.events,
        "out_of_order": truth.out_of_order,
        "truth_median_records": truth.alignment.resolution_median,
        "truth_p95_records": truth.alignment.resolution_p95,
        "estimate_error_records": float(np.mean([error for _, error in truth.alignment.estimate_error])),
        "controlled_metrics": len(checked),
        "controlled_events": sum(one.events for one in checked),
        "control_difference": sum(one.difference for one in checked),
        "control_largest": max((one.largest for one in checked), default=0),
    }


def _sampler(truth: GroundTruth) -> list[dict[str, Any]]:
    sampler = truth.sampler
    if sampler is None:
        return []
    rows = []
    for kind, found in (("within", sampler.inner), ("across", sampler.outer_held_out)):
        if found is not None:
            rows += [
                {
                    "kind": kind, "verdict": found.verdict,
                    "instructions_percent": float(sampler.instructions_percent.mean()),
                    "cycles_percent": float(sampler.cycles_percent.mean()), "pair": pair.name,
                    "ideal_rho": pair.baseline_rho, "signal_rho": pair.run_rho, "delta_z": pair.delta_z,
                    "p_adjusted": pair.p_adjusted, "pair_verdict": pair.verdict,
                }
                for pair in found.pairs
            ]  # fmt: skip
    return rows


def _software(data: ReportData, truth: GroundTruth) -> list[dict[str, Any]]:
    rows = []
    overhead = {variant.name: variant for variant in data.variants}
    for one in truth.software:
        row: dict[str, Any] = {
            "variant": one.variant,
            "instructions_percent": float(overhead[one.variant].instructions_percent.mean()),
            "metrics": len(one.metrics),
            "hardware_verdict": one.hardware.verdict,
            "software_verdict": one.software.verdict,
            "hidden": one.hidden,
        }
        for kind, pairs in zip(KINDS, (one.hardware.pairs, one.of_kind(False), one.of_kind(True)), strict=True):
            row |= {
                f"{kind}_pairs": len(pairs),
                f"{kind}_perturbed": sum(pair.verdict == "perturbed" for pair in pairs),
                f"{kind}_verdict": gravest(pair.verdict for pair in pairs) if pairs else "",
                f"{kind}_largest": largest_change(pairs),
            }
        rows.append(row)
    return rows


def _pairs(truth: GroundTruth) -> list[dict[str, Any]]:
    rows = []
    for one in truth.software:
        kinds = zip(KINDS, (one.hardware.pairs, one.of_kind(False), one.of_kind(True)), strict=True)
        rows += [
            {
                "variant": one.variant, "kind": kind, "a": pair.a, "b": pair.b, "baseline_rho": pair.baseline_rho,
                "run_rho": pair.run_rho, "delta_z": pair.delta_z, "low": pair.ci[0], "high": pair.ci[1],
                "p_adjusted": pair.p_adjusted, "verdict": pair.verdict,
            }
            for kind, pairs in kinds
            for pair in pairs
        ]  # fmt: skip
    return rows


def hidden_by_counters(pairs: pd.DataFrame) -> pd.DataFrame:
    """How often perturbation of pairs with software metrics stays hidden when fewer hardware metrics are watched.

    ``pairs``: the recorded table of that name. For every variant and number of hardware metrics: the share of all
    choices of so many in which no hardware pair is perturbed but a pair of a software metric is, be it with one of
    these or with another software metric. The verdicts are those over all pairs.
    """
    rows = []
    for (program, variant), mine in pairs.groupby(["program", "variant"], sort=False):
        bad = mine[mine["verdict"] == "perturbed"]
        within = {frozenset(pair) for pair in bad[bad["kind"] == KINDS[0]][["a", "b"]].to_numpy().tolist()}
        software = bad[bad["kind"] == KINDS[1]]
        reached = set(software["a"]) | set(software["b"])
        always = bool((bad["kind"] == KINDS[2]).any())
        hardware = mine[mine["kind"] == KINDS[0]]
        metrics = sorted(set(hardware["a"]) | set(hardware["b"]))
        for count in range(2, len(metrics) + 1):
            choices = [frozenset(choice) for choice in combinations(metrics, count)]
            shown = [choice for choice in choices if always or choice & reached]
            hidden = [choice for choice in shown if not any(pair <= choice for pair in within)]
            rows.append(
                {
                    "program": program, "variant": variant, "counters": count, "choices": len(choices),
                    "perturbed": len(shown), "hidden": len(hidden),
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def _some_pairs(directory: Path, reference: int) -> list[Pair]:
    """A baseline with another one and with a run of each variant."""
    made, outcome = load_results(directory)
    assert made.truth is not None
    runs = sorted(outcome.runs, key=lambda run: run.spec.replicate)
    baselines = [run for run in runs if run.spec.variant == BASELINE]
    curve = made.truth.calibration.curve
    others = [baselines[reference + 2]]
    for variant in made.plan.campaign.variant_sets():
        group = [run for run in runs if run.spec.variant == variant]
        others.append(group[reference % len(group)])
    return [(baselines[reference], other, curve) for other in others]


def _penalties(directory: Path) -> list[dict[str, Any]]:
    pairs = _some_pairs(directory, 0)
    hardware = pairs[0][0].spec.hardware_metrics
    return [
        {
            "group": pair[1].spec.variant, "penalty": penalty,
            "error_records": typical_error([pair], hardware, "penalty", AlignmentSetting(penalty)),
        }
        for pair in pairs
        for penalty in PENALTIES
    ]  # fmt: skip


def across_programs(directories: dict[str, Path]) -> pd.DataFrame:
    """Channels chosen on all programs but one, judged on that one: does a recommendation hold elsewhere?"""
    seen = {program: _some_pairs(directory, 0)[:_PAIRS_EACH] for program, directory in directories.items()}
    fresh = {program: _some_pairs(directory, 1) for program, directory in directories.items()}
    rows = []
    for program in directories:
        hardware = seen[program][0][0].spec.hardware_metrics
        elsewhere = [pair for other, pairs in seen.items() if other != program for pair in pairs]
        algorithms: tuple[Algorithm, ...] = ("full", "penalty")
        for algorithm in algorithms:
            for where, pairs in (("other programs", elsewhere), ("this program", seen[program])):
                channels = choose_channels(pairs, hardware, algorithm)[-1][0]
                rows.append(
                    {
                        "program": program, "algorithm": algorithm, "chosen_on": where, "channels": " ".join(channels),
                        "error_records": typical_error(fresh[program], channels, algorithm),
                        "error_of_all_records": typical_error(fresh[program], hardware, algorithm),
                        "linear_records": typical_error(fresh[program], hardware, "linear"),
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)


def write_page(folder: Path) -> None:
    """Put the numbers of the recorded tables into README.md of ``folder``, if it has one."""
    path = folder / "README.md"
    if not path.exists():
        return
    text = path.read_text(encoding="utf-8")
    before, rest = text.split(_BEGIN)
    after = rest.split(_END)[1]
    body = "\n".join(_page_rows(folder))
    new = f"{before}{_BEGIN}\n{body}\n{_END}{after}"
    if new != text:
        write_text_atomically(path, new)


def _page_rows(folder: Path) -> list[str]:
    def read(name: str) -> pd.DataFrame:
        return pd.read_csv(folder / f"{name}.csv")

    software, programs, alignment, sampler = map(read, ("software", "programs", "alignment", "sampler"))
    rows = ["|  | " + " | ".join(programs["program"]) + " |", "| --- " * (len(programs) + 1) + "|"]

    def row(name: str, tell: Any) -> None:
        rows.append(f"| {name} | " + " | ".join(tell(program) for program in programs["program"]) + " |")

    def of(table: pd.DataFrame, program: str) -> pd.DataFrame:
        return table[table["program"] == program]

    def verdict(program: str, kind: str) -> str:
        found = of(sampler, program)
        found = found[found["kind"] == kind]
        return f"{found['verdict'].iloc[0]} (largest change of z {found['delta_z'].abs().max():.2f})"

    def mean_error(program: str, algorithm: str, baselines: bool) -> str:
        found = of(alignment, program)
        found = found[(found["algorithm"] == algorithm) & (found["channels"].isin(["all"]) | found["channels"].isna())]
        found = found[(found["group"] == BASELINE) == baselines]
        return f"{found['mean_records'].mean():.2f}"

    row("Records of a run", lambda p: f"{of(programs, p)['records'].iloc[0]}")
    row(
        "Instructions for each anchor",
        lambda p: f"{(of(programs, p)['instructions'] / of(programs, p)['anchor_events']).iloc[0]:.0f}",
    )
    row(
        "Truth is certain within, records (median / 95%)",
        lambda p: (
            f"{of(programs, p)['truth_median_records'].iloc[0]:.2g} / "
            f"{of(programs, p)['truth_p95_records'].iloc[0]:.2g}"
        ),
    )
    row(
        "Signal sampler: added instructions / cycles",
        lambda p: (
            f"{of(sampler, p)['instructions_percent'].iloc[0]:.2f}% / {of(sampler, p)['cycles_percent'].iloc[0]:.2f}%"
        ),
    )
    row("Signal sampler: within a run", lambda p: verdict(p, "within"))
    row("Signal sampler: across runs", lambda p: verdict(p, "across"))
    for state in VERDICTS:
        row(
            f"Sets whose hardware pairs are {state}: verdicts of their pairs with software metrics",
            lambda p, state=state: _counts(of(software, p), state),
        )
    row("Sets with hidden perturbation", lambda p: _hidden(of(software, p)))
    fewer = read("hidden").groupby(["program", "counters"])[["perturbed", "hidden"]].sum()
    for count in sorted(set(fewer.index.get_level_values("counters")))[:4]:
        row(
            f"If only {count} hardware metrics are watched: hidden in so many of the choices",
            lambda p, n=count: _share(fewer.loc[(p, n)]),
        )
    for algorithm, name in (
        ("full", "exact warping"), ("penalty", "warping with a step penalty"), ("linear", "straight line"),
        ("none", "record by record"),
    ):  # fmt: skip
        row(
            f"Records misplaced by, {name}: baselines / variants",
            lambda p, a=algorithm: f"{mean_error(p, a, True)} / {mean_error(p, a, False)}",
        )
    return rows


def _counts(table: pd.DataFrame, state: str) -> str:
    found = table[table["hardware_verdict"] == state]["software_verdict"].value_counts()
    return ", ".join(f"{count} {verdict}" for verdict, count in found.items()) or "none"


def _share(found: pd.Series) -> str:
    return f"{100 * found['hidden'] / found['perturbed']:.0f}%" if found["perturbed"] else "none is"


def _hidden(table: pd.DataFrame) -> str:
    return ", ".join(table[table["hidden"]]["variant"]) or "none"
