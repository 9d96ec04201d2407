"""A report of drawn numbers, of any size: traces whose metrics share a course, and variants that change relations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from measure.perturbation.finding import RESULTS, Finding
from measure.perturbation.outer import outer_perturbation
from measure.perturbation.perturbation import inner_perturbation
from measure.report.model import ReportData, Signals, VariantReport
from measure.stats.correlation import spearman


def _trace(rng: np.random.Generator, mixture: NDArray[np.float64], records: int) -> NDArray[np.int64]:
    """Counts (records, m) of metrics that share courses by ``mixture`` (courses, m)."""
    time = np.linspace(0, 6 * np.pi, records)
    courses = np.array([np.sin((k + 1) * time) for k in range(len(mixture))]).T
    noise = rng.normal(size=(records, mixture.shape[1]))
    return np.round(10_000 + 800 * (courses @ mixture + noise)).astype(np.int64)


def synthetic_report(metrics: int, variants: int = 2, runs: int = 8, records: int = 300) -> ReportData:
    """A report with ``metrics`` hardware metrics; variant 0 is like the baselines, and others change some metrics."""
    rng = np.random.default_rng(1)
    names = tuple(f"PAPI_EVENT_{n:02d}" for n in range(metrics))
    mixture = rng.normal(size=(4, metrics))
    baselines = [_trace(rng, mixture, records) for _ in range(runs)]
    before = [spearman(one, names) for one in baselines]
    found = []
    for n in range(variants):
        changed = mixture.copy()
        changed[:, : min(n * 2, metrics)] *= -0.2
        tables = [_trace(rng, changed, records) for _ in range(runs)]
        after = [spearman(one, names) for one in tables]
        levels = {"seed": 1, "comparisons": 2 * variants, "n_permutations": 199}
        outer = outer_perturbation(baselines, tables, names, held_out=True, aligned=True, **levels)  # type: ignore[arg-type]
        found.append(
            VariantReport(
                name=f"variant {n}", software_metrics=("calls",), descriptions=("calls: entry of f",),
                rho=np.array([one.rho for one in after]), instructions_percent=np.full(runs, 1.5 * n),
                cycles_percent=np.full(runs, 2.0 * n), code_percent=0.4,
                inner=inner_perturbation(before, after, **levels),  # type: ignore[arg-type]
                outer_joint=outer, outer_held_out=outer,
                example=Signals(f"variant {n}", (*names, "calls"),
                                np.column_stack([tables[0], tables[0][:, 0] // 100]).astype(np.float64)),
            )
        )  # fmt: skip
    return ReportData(
        title="drawn", subtitle="numbers <of> no program", hardware_metrics=names,
        baseline_rho=np.array([one.rho for one in before]),
        baseline_example=Signals("baseline", names, baselines[0].astype(np.float64)), variants=tuple(found),
        said=(
            Finding(
                "`measure explain`, given the directory of these results, says why.", "next",
                in_results=f"`measure explain {RESULTS}` says why.",
            ),
            Finding("A <b>finding</b>."),
        ),
        provenance=(("seed", "1"),), interval="1,000 cycles",
    )  # fmt: skip
