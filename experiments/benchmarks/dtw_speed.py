"""Seconds and memory of aligning two traces of four metrics: our methods, tslearn, and others where installed.

    python experiments/benchmarks/dtw_speed.py [--records 1000 3000 10000] [--out results.csv]

Each measurement is a process of its own, with kernels compiled beforehand; it gives CPU seconds (best of several
for short ones), the growth of its peak memory, and the cost of the path, which exact methods must agree on.
dtaidistance and dtw-python are measured if they can be imported. A method that would need more memory than
``--most-gb`` is not tried.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CHANNELS = 4
OURS = ("full", "checkpoint", "band", "multiresolution")
BYTES_PER_CELL = {"full": 1, "tslearn": 9, "tslearn band 5%": 9, "dtaidistance": 8, "dtw-python": 26}
Aligner = Callable[[NDArray[np.float64], NDArray[np.float64]], float]


def traces(records: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two runs of one made-up program: phases and drivers shared, pace and noise not."""
    from measure.stats.synthetic import synthetic_program

    program = synthetic_program(1, n_records=records, n_metrics=CHANNELS)
    first, second = (program.run(np.random.default_rng(seed)) for seed in (1, 2))
    return first, second


def aligner(method: str) -> Aligner:
    """The function to measure: takes two traces, gives the cost of its path."""
    from measure.align.dtw import align, normalised_channels

    if method in OURS:
        return lambda a, b: align(a, b, method=method).cost
    if method.startswith("tslearn"):
        from tslearn.metrics import dtw_path

        def by_tslearn(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
            radius = int(0.05 * max(len(a), len(b))) if method.endswith("5%") else None
            return float(
                dtw_path(normalised_channels(a).T, normalised_channels(b).T, sakoe_chiba_radius=radius)[1]
            )

        return by_tslearn
    if method == "dtaidistance":
        from dtaidistance import dtw_ndim

        def by_dtaidistance(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
            first, second = (np.ascontiguousarray(normalised_channels(values).T) for values in (a, b))
            path = np.array(dtw_ndim.warping_path(first, second))
            return float(np.sqrt(((first[path[:, 0]] - second[path[:, 1]]) ** 2).sum()))

        return by_dtaidistance
    from dtw import dtw

    def by_dtw_python(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
        first, second = normalised_channels(a).T, normalised_channels(b).T
        found = dtw(first, second, dist_method="sqeuclidean", step_pattern="symmetric1")
        return float(np.sqrt(found.distance))

    return by_dtw_python


def measure(method: str, records: int, answer: multiprocessing.connection.Connection) -> None:
    """In a process of its own: send seconds, megabytes and cost."""
    run = aligner(method)
    run(*traces(64))  # compile
    first, second = traces(records)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    best, cost, spent = float("inf"), 0.0, 0.0
    while spent < 0.5:
        start = time.process_time()
        cost = run(first, second)
        best = min(best, time.process_time() - start)
        spent += best
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    answer.send((best, grown, cost))


def main() -> None:
    """Measure everything and print it as a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, nargs="+", default=[1000, 3000, 10_000])
    parser.add_argument("--most-gb", type=float, default=4.0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    methods = [*OURS, "tslearn", "tslearn band 5%"]
    methods += [
        name
        for name, module in (("dtaidistance", "dtaidistance"), ("dtw-python", "dtw"))
        if find_spec(module)
    ]
    context = multiprocessing.get_context("spawn")
    table = [("method", "records", "cpu_seconds", "extra_megabytes", "cost")]
    for records in arguments.records:
        for method in methods:
            if BYTES_PER_CELL.get(method, 0) * records**2 > arguments.most_gb * 1e9:
                continue
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=measure, args=(method, records, sender))
            process.start()
            sender.close()
            seconds, megabytes, cost = receiver.recv()
            process.join()
            table.append((method, str(records), f"{seconds:.4f}", f"{megabytes:.0f}", f"{cost:.4f}"))
            sys.stdout.write("{:18s} {:>7s} {:>9s} s {:>6s} MB  cost {}\n".format(*table[-1]))
    if arguments.out:
        with arguments.out.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(table)


if __name__ == "__main__":
    main()
