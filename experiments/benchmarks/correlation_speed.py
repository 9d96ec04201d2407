"""Seconds to correlate all metrics of many traces: ours, scipy and pandas; and of a whole outer analysis.

    python experiments/benchmarks/correlation_speed.py [--traces 700] [--records 3000] [--out correlation_speed.md]

Processor seconds. A few traces are correlated, and scaled up. The results are compared, so that speed is not bought
with another answer.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from common.atomic_files import write_text
from measure.perturbation.perturbation import outer_perturbation
from measure.stats.correlation import spearman
from measure.stats.synthetic import synthetic_program


def correlate(n_traces: int, records: int, n_metrics: int) -> list[str]:
    """Seconds of the three on counts with ties; rows of a table."""
    rng = np.random.default_rng(0)
    names = [f"metric_{index}" for index in range(n_metrics)]
    traces = [rng.poisson(30, (records, n_metrics)).astype(float) for _ in range(min(n_traces, 4))]
    ways = {
        "measure": lambda table: spearman(table, names).rho,
        "scipy": lambda table: np.asarray(stats.spearmanr(table)[0]),
        "pandas": lambda table: pd.DataFrame(table).corr("spearman").to_numpy(),
    }
    seconds, answers = {}, {}
    for name, way in ways.items():
        way(traces[0][:100])  # what is loaded or compiled at the first use
        start = time.process_time()
        answers[name] = np.array([way(table) for table in traces])
        seconds[name] = (time.process_time() - start) * n_traces / len(traces)
    for name in ("scipy", "pandas"):
        np.testing.assert_allclose(answers["measure"], answers[name], atol=1e-12)
    fastest = min(seconds["scipy"], seconds["pandas"])
    return [
        f"| {n_traces} x {records:,} x {n_metrics} | {name} | {value:.2f} | {fastest / value:.1f} |"
        for name, value in seconds.items()
    ]


def outer(records: int, n_metrics: int, sizes: tuple[int, int]) -> list[str]:
    """Seconds of an outer analysis, kernels compiled beforehand; rows of a table."""
    program = synthetic_program(1, n_records=records, n_metrics=n_metrics)
    rng = np.random.default_rng(1)
    tables = [program.run(rng) for _ in range(sum(sizes))]
    rows = []
    for held_out in (False, True):
        outer_perturbation(tables[:2], tables[2:3], program.metrics, held_out=held_out, seed=0)
        start = time.process_time()
        outer_perturbation(tables[: sizes[0]], tables[sizes[0] :], program.metrics, held_out=held_out, seed=0)
        seconds = time.process_time() - start
        kind = "held-out" if held_out else "joint"
        rows.append(f"| {kind} | {sizes[0]} + {sizes[1]} x {records:,} x {n_metrics} | {seconds:.2f} |")
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--traces", type=int, default=700)
    parser.add_argument("--records", type=int, default=3000)
    parser.add_argument("--out", type=Path, help="write the tables as Markdown, too")
    arguments = parser.parse_args()
    lines = [
        "`times faster`: than the faster of scipy and pandas.", "",
        "| traces x records x metrics | | processor s | times faster |", "|---|---|---|---|",
    ]  # fmt: skip
    for n_metrics in (8, 200):
        lines += correlate(arguments.traces, arguments.records, n_metrics)
    lines += ["", "| outer analysis | runs x records x metrics | processor s |", "|---|---|---|"]
    for records in (1000, arguments.records):
        for sizes in ((20, 5), (20, 10)):
            lines += outer(records, 8, sizes)
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    if arguments.out:
        write_text(arguments.out, text)


if __name__ == "__main__":
    main()
