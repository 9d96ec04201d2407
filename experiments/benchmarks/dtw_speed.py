"""Seconds and memory of aligning two traces of four metrics: our methods, tslearn, and others where installed.

    python -m experiments.benchmarks.dtw_speed [--records 1000 3000 10000 30000] [--out dtw_speed.md]

Each measurement is kept as it is made: the same call goes on where one was stopped, --anew begins again.

Each measurement is a process of its own, with kernels compiled beforehand; it gives processor seconds (best of several
for short ones), the growth of its peak memory, and the cost of the path, which exact methods must agree on (it stops
otherwise). dtaidistance (its C part) and dtw-python are measured if they can be imported. A method that would need more
memory than ``--most-gb`` is not tried. At the end all pairs of 700 traces: a sample of them, one after the other on one
core, extrapolated.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.atomic_files import write_text
from experiments.benchmarks.host import described
from experiments.benchmarks.journal import Journal
from measure.alignment.dtw import Method

CHANNELS = 4
EXACT: tuple[Method, ...] = ("full", "checkpoint")
OURS: tuple[Method, ...] = (*EXACT, "band", "multiresolution")
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
    from measure.alignment.dtw import align, normalised_channels

    for ours in OURS:
        if method == ours:
            return lambda a, b: align(a, b, method=ours).cost
    if method.startswith("tslearn"):
        from tslearn.metrics import dtw_path

        def by_tslearn(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
            radius = int(0.05 * max(len(a), len(b))) if method.endswith("5%") else None
            return float(dtw_path(normalised_channels(a).T, normalised_channels(b).T, sakoe_chiba_radius=radius)[1])

        return by_tslearn
    if method == "dtaidistance":
        from dtaidistance import dtw_ndim

        def by_dtaidistance(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
            first, second = (np.ascontiguousarray(normalised_channels(values).T) for values in (a, b))
            path = np.array(dtw_ndim.warping_path(first, second, use_c=True))
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


def measured(method: str, records: int) -> tuple[float, float, float]:
    """What `measure` found in a process of its own."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=measure, args=(method, records, sender))
    process.start()
    sender.close()
    answer = receiver.recv()
    process.join()
    return answer


def size_table(records: int, most_bytes: float, journal: Journal) -> list[str]:
    """Measure every method at one length; rows of the table. Raises SystemExit when exact methods disagree."""
    installed = {"tslearn": "tslearn", "dtaidistance": "dtaidistance", "dtw-python": "dtw"}
    others = [name for name, module in installed.items() if find_spec(module)]
    found = {}
    banded = ["tslearn band 5%"] if "tslearn" in others else []
    for method in (*OURS, *others, *banded):
        if BYTES_PER_CELL.get(method, 0) * records**2 <= most_bytes:
            found[method] = journal.measured((method, records), partial(measured, method, records))
            sys.stdout.write(f"{method:16s} {records:6d} {found[method]}\n")
            sys.stdout.flush()
    exact = {method: found[method][2] for method in (*EXACT, *others) if method in found}
    if not np.allclose(list(exact.values()), exact["checkpoint"], rtol=1e-9):
        raise SystemExit(f"exact methods disagree at {records} records: {exact}")
    fastest = min(found[method][0] for method in others if method in found)
    optimal = exact["checkpoint"]
    return [
        f"| {method} | {records:,} | {seconds:.4f} | {megabytes:.0f} | {fastest / seconds:.1f} | "
        f"{100 * (cost / optimal - 1):.2f}% |"
        for method, (seconds, megabytes, cost) in found.items()
    ]


def all_pairs(n_traces: int, records: int, sample: int) -> list[str]:
    """Seconds to align all pairs of traces, from a sample of the pairs; rows of the table."""
    from measure.alignment.dtw import align
    from measure.stats.synthetic import synthetic_program

    program = synthetic_program(1, n_records=records, n_metrics=CHANNELS)
    tables = [program.run(np.random.default_rng(seed)) for seed in range(1 + int(np.sqrt(2 * sample)))]
    pairs = list(itertools.combinations(tables, 2))[:sample]
    rows = []
    for method in ("full", "band"):
        align(tables[0][:64], tables[1][:64], method=method)
        start = time.process_time()
        for first, second in pairs:
            align(first, second, method=method)
        each = (time.process_time() - start) / len(pairs)
        count = n_traces * (n_traces - 1) // 2
        rows.append(f"| {method} | {count:,} | {1000 * each:.2f} | {count * each / 60:.1f} |")
    return rows


def main() -> None:
    """Measure everything and print it as a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, nargs="+", default=[1000, 3000, 10_000, 30_000])
    parser.add_argument("--most-gb", type=float, default=9.0, help="of memory for one alignment (default: 9)")
    parser.add_argument("--pairs", type=int, default=1000, help="pairs to align for the last table")
    parser.add_argument("--out", type=Path, help="write the tables as Markdown, too")
    parser.add_argument("--anew", action="store_true", help="measure again what an earlier call measured")
    arguments = parser.parse_args()
    about = described()
    journal = Journal("dtw-speed", {"host": about}, anew=arguments.anew)
    lines = [
        f"{about}.", "",
        f"Two traces of {CHANNELS} metrics. `times faster`: than the fastest exact path of the other libraries.",
        "", "| method | records | processor s | MB | times faster | cost above the optimum |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for records in arguments.records:
        lines += size_table(records, arguments.most_gb * 1e9, journal)
    lines += [
        "", f"All pairs of 700 traces of 3,000 records, from {arguments.pairs} of them, one core:",
        "", "| method | pairs | ms a pair | minutes in all |", "|---|---|---|---|",
        *journal.measured(("pairs", arguments.pairs), partial(all_pairs, 700, 3000, arguments.pairs)),
    ]  # fmt: skip
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    if arguments.out:
        write_text(arguments.out, text)


if __name__ == "__main__":
    main()
