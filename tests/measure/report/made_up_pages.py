"""Pages of every command from made-up values: nothing is emulated, and each takes a fraction of a second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from measure.cycle_close import trace_page
from measure.cycle_close.tracer import BY_DEFAULT
from measure.explanation.page import render_page as explanation_page
from measure.merging.merge_runs import Merged, merge_runs
from measure.merging.page import render_page as merged_page
from measure.merging.variant_verdict import VariantVerdict
from measure.partitioning.page import NextCommands
from measure.partitioning.page import next_steps as partition_steps
from measure.partitioning.page import render_page as partition_page
from measure.partitioning.result import PartitionResult
from measure.partitioning.search_types import GroupVerdict, Outlook, Partition
from measure.program_phases.bbv import from_dense
from measure.program_phases.choose import find_phases
from measure.program_phases.homogeneity import homogeneity
from measure.program_phases.page import Shown
from measure.program_phases.page import render_page as phases_page
from measure.program_phases.points import simulation_points
from measure.report.html import render
from measure.sampling_check.check import SamplingResult, load_check
from measure.sampling_check.page import render_check
from measure.two_campaigns.change_test import ChangeTest
from measure.two_campaigns.comparison import CampaignsCompared
from measure.two_campaigns.design_facts import DesignFact
from measure.two_campaigns.page import render_page as comparison_page
from measure.two_campaigns.variant_change import PairChange, SideVerdicts, VariantChange
from tests.measure.explanation.made_up import explanation
from tests.measure.merging.test_merge import make_run, signal
from tests.measure.report.synthetic_report import synthetic_report

ROOT = Path(__file__).parents[3]
INTERVALS = 240
NAN = float("nan")
CYCLE_CLOSE: dict[str, Any] = {
    "program": "dir/made<up>.c", "arguments": ["a b"], "machine": "m.yaml", "machine_settings": ["l1d.size=4k"],
    "options": [],
    "seed": 7, "samples_per_phase": None, "complete": True, "intervals": INTERVALS, "instructions": 1000 * INTERVALS,
    "phases": 4, "share": {"simulated": 0.1, "matched": 0.8, "unsampled": 0.1}, "blank_intervals": 0, "seconds": 0.5,
    "estimate": {"cycles": 2e5, "cpi": 1.5}, "frequent_branches": 12,
    "sampled_again": {"intervals": 9, "cpi_off_percent": 30.0},
    "settings": asdict(replace(BY_DEFAULT, interval_instructions=1000)),
}  # fmt: skip
"""What summary.json of `measure cycleclose` has."""


def cycle_close_columns(n: int = INTERVALS) -> dict[str, np.ndarray]:
    """The columns of a trace of four phases; interval 5 has no estimate."""
    number = np.arange(n)
    phase = number // 10 % 4
    cpi = 1.0 + phase + 0.01 * (number % 10)
    cpi[5] = np.nan
    category = np.array(["matched", "simulated", "unsampled"], object)[np.where(number % 10 == 0, 1, 2 * (number == 5))]
    return {
        "begin_instructions": 1000 * number, "end_instructions": 1000 * (number + 1), "phase": phase,
        "category": category, "cpi": cpi, "l1d_hit_rate": 1 - cpi / 10, "l2_hit_rate": np.full(n, np.nan),
        "cycles": 1000 * cpi, "instructions": np.full(n, 1000.0),
    }  # fmt: skip


def cycle_close(validated: bool = True) -> str:
    """The page of `measure cycleclose`."""
    estimated, about = cycle_close_columns(), dict(CYCLE_CLOSE)
    if not validated:
        return trace_page.render_page(about, estimated, None)
    actual = {**estimated, "cpi": np.nan_to_num(estimated["cpi"], nan=2.0) * 1.02}
    actual["cycles"] = actual["cpi"] * 1000
    percent = dict.fromkeys(("deviation_percent", "simulated_percent", "matched_percent", "whole_run_percent"), 2.0)
    percent |= {
        "percentile_99_percent": 5.0,
        "largest_percent": 31.0,
        "absolute": 0.02,
        "accesses_per_1000_instructions": 250.0,
    }
    metrics = {name: {**percent, "unsampled_percent": None} for name in ("cpi", "l1d_hit_rate")}
    totals = {"memory_writes": (5000.0, 2000.0), "cycles": (2e6, 1.99e6), "instructions": (1e6, 1e6)}
    events = {
        name: {"full": full, "estimated": guess, "off_percent": 100 * (guess / full - 1)}
        for name, (full, guess) in totals.items()
    }
    about["validation"] = {"full_seconds": 2.0, "speedup": 4.0, "metrics": metrics, "events": events}
    return trace_page.render_page(about, estimated, actual)


def phases_shown(simulated: bool = True) -> Shown:
    """What the page of `measure phases` shows of a run of three phases."""
    labels = np.arange(INTERVALS) // 20 % 3
    dense = np.zeros((INTERVALS, 6))
    dense[np.arange(INTERVALS), 2 * labels] = 900
    dense[:, 1] = 100
    vectors = from_dense(dense)
    found = find_phases(dense / 1000, max_k=5)
    points = simulation_points(found)
    cpi = 1.0 + labels + 0.05 * np.sin(np.arange(INTERVALS))
    metrics = pd.DataFrame({"cpi": cpi, "l1d_hit_rate": 1 - cpi / 10})
    about: dict[str, Any] = {
        "program": "dir/made<up>.c", "arguments": ["medium"], "interval_instructions": 1000,
        "options": [], "seed": 1, "machine_settings": [],
        "simulation_points": [
            {"phase": int(phase), "interval": int(interval), "weight": float(weight)}
            for phase, interval, weight in zip(points.phases, points.intervals, points.weights, strict=True)
        ],
    }  # fmt: skip
    if simulated:
        errors = {
            "full simulation": 0.0, "simulation points": 0.5, "first N": 30.0, "simulation points, no warm-up": 9.0,
            "simulation points, exact lines": 6.0,
        }  # fmt: skip
        about["estimates"] = {
            method: {"cpi": {"value": 2.0 + error / 50, "error_percent": error}} for method, error in errors.items()
        }
    return Shown(
        about, 1000 * np.arange(INTERVALS + 1), "results/phases", ["summary.json"],
        "m.yaml" if simulated else None, vectors, found, metrics if simulated else None,
        homogeneity(found.labels, metrics) if simulated else None,
    )  # fmt: skip


def merged_trace() -> Merged:
    """A merged trace with a metric of a perturbed run, whose alignment stretches."""
    hardware = signal(200)
    times = np.ones(200, np.int64)
    times[100] = 8
    index = np.repeat(np.arange(200), times)
    work = np.arange(len(index), dtype=np.int64)
    run = make_run(hardware[index], {"work<b>": work}, variant="heavy")
    return merge_runs(make_run(hardware), [run], verdicts={"heavy": VariantVerdict("perturbed")})


def comparison() -> str:
    """The page of `measure compare`."""

    def side(verdict: Any) -> SideVerdicts:
        return SideVerdicts(verdict, verdict, None, {})

    pairs = (
        PairChange("PAPI_A", "PAPI_B", "perturbed", "equivalent",
                   ChangeTest(0.5, 0.1, -0.4, (-0.5, -0.3), (-0.55, -0.25), 0.001, "perturbed")),
        PairChange("PAPI_A", "PAPI_C", "not assessable", "not assessable",
                   ChangeTest(NAN, NAN, NAN, (NAN, NAN), (NAN, NAN), NAN, "not assessable")),
    )  # fmt: skip
    variant = VariantChange(
        "light & <b>", side("perturbed"), side("equivalent"), "perturbed", 0.001, pairs, 10, 10, True, 0.05, 2, 0.002
    )
    return comparison_page(
        CampaignsCompared(
            before="results/a", after="results/b", metrics=("PAPI_A", "PAPI_B", "PAPI_C"), variants=(variant,),
            only_before=(), only_after=(), facts=(DesignFact("seed", "1", "2"),), notes=(), delta=0.2, alpha=0.05,
            campaign_file="c.yaml",
        )
    )  # fmt: skip


def partition() -> str:
    """Of four metrics in a validated group, in one that is not, and in none that was tested."""
    good, other, bad = frozenset({0, 1}), frozenset({2}), frozenset({0, 1, 2})
    tested = {
        good: GroupVerdict("good", "within <delta>", ("PAPI_A", "PAPI_B"), 0.04, "inner", 10),
        other: GroupVerdict("good", "", ("PAPI_A", "PAPI_B"), 0.11, "outer", 10),
        bad: GroupVerdict("bad", "too much", ("PAPI_A", "PAPI_B"), 0.9, "inner", 5),
    }
    found = PartitionResult(
        "made <up>", ("calls", "loops", "writes", "entries"), Partition((good, other), frozenset({3})), "upper bound",
        "searching", Outlook(2, 5, 0.4, 3.0, 7), tested, {good: tested[good]}, 3, 1, 40, (("PAPI_A", "PAPI_B"),), 0.2,
        0.05, "good", "the minutes were over",
    )  # fmt: skip
    commands = NextCommands(
        "measure partition mine.yaml --minutes 3", ("measure run results/mine-partition/partition.yaml",),
        "measure merge results/mine-partition --out merged.parquet",
    )  # fmt: skip
    return partition_page(found, partition_steps(found, commands))


def sampling_check() -> str:
    """Of a configuration that is equivalent, and of one that is perturbed."""
    check, _ = load_check(ROOT / "configs" / "campaigns" / "sampling.yaml", ["sweep={warm: [0, 2k]}"])
    alike, changed = synthetic_report(4).variants
    results = [
        SamplingResult(name, configuration, 0.031, 1.2, 3.4, one.inner, one.outer_held_out or one.inner)
        for (name, configuration), one in zip(
            [("<all>", check.configurations["data too"]), ("warm=2000", check.configurations["paper"])],
            (alike, changed), strict=True,
        )
    ]  # fmt: skip
    return render_check(check, results)


PAGES: dict[str, Callable[[], str]] = {
    "report": lambda: render(synthetic_report(5), "results/drawn"),
    "explanation": lambda: explanation_page("made up", [explanation()], {"light": "equivalent"}),
    "comparison": comparison,
    "merged": lambda: merged_page(merged_trace(), [Path("results/mine")], Path("merged.parquet"), ["One <more>."]),
    "phases": lambda: phases_page(phases_shown()),
    "vectors": lambda: phases_page(phases_shown(simulated=False)),
    "cycle-close": cycle_close,
    "cycle-close, not validated": lambda: cycle_close(validated=False),
    "partition": partition,
    "sampling check": sampling_check,
}
