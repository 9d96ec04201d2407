"""Seconds to correlate all metrics of many traces: ours, scipy and pandas; and of a whole outer analysis.

    python experiments/benchmarks/correlation_speed.py [--traces 100] [--records 3000]

scipy and pandas are measured on fewer traces and scaled up. The results are compared, so that speed is not bought
with another answer.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import pandas as pd
from scipy import stats

from measure.perturbation import outer_perturbation
from measure.stats.correlation import spearman
from measure.stats.synthetic import synthetic_program


def correlate(n_traces: int, records: int, n_metrics: int) -> None:
    """Print seconds of the three on counts with ties."""
    rng = np.random.default_rng(0)
    names = [f"metric_{index}" for index in range(n_metrics)]
    traces = [rng.poisson(30, (records, n_metrics)).astype(float) for _ in range(min(n_traces, 4))]
    ways = {
        "measure": lambda table: spearman(table, names).rho,
        "scipy": lambda table: np.asarray(stats.spearmanr(table)[0]),
        "pandas": lambda table: pd.DataFrame(table).corr("spearman").to_numpy(),
    }
    answers = {}
    for name, way in ways.items():
        start = time.perf_counter()
        answers[name] = np.array([way(table) for table in traces])
        seconds = (time.perf_counter() - start) * n_traces / len(traces)
        sys.stdout.write(f"{n_traces} traces x {records} x {n_metrics} metrics: {name:8s} {seconds:8.2f} s\n")
    for name in ("scipy", "pandas"):
        np.testing.assert_allclose(answers["measure"], answers[name], atol=1e-12)


def outer(records: int, n_metrics: int, sizes: tuple[int, int]) -> None:
    """Print wall seconds of an outer analysis, kernels compiled beforehand."""
    program = synthetic_program(1, n_records=records, n_metrics=n_metrics)
    rng = np.random.default_rng(1)
    tables = [program.run(rng) for _ in range(sum(sizes))]
    for held_out in (False, True):
        outer_perturbation(tables[:2], tables[2:3], program.metrics, held_out=held_out, seed=0)
        start = time.perf_counter()
        outer_perturbation(tables[: sizes[0]], tables[sizes[0] :], program.metrics, held_out=held_out, seed=0)
        seconds = time.perf_counter() - start
        kind = "held-out" if held_out else "joint"
        sys.stdout.write(
            f"outer {kind:8s}, {sizes[0]} + {sizes[1]} runs x {records} x {n_metrics} metrics: {seconds:6.2f} s\n"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=int, default=100)
    parser.add_argument("--records", type=int, default=3000)
    arguments = parser.parse_args()
    for n_metrics in (8, 200):
        correlate(arguments.traces, arguments.records, n_metrics)
    for records in (1000, arguments.records):
        outer(records, 8, (20, 5))
        outer(records, 8, (20, 10))


if __name__ == "__main__":
    main()
