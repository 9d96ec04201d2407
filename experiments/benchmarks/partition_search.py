"""Partition search over synthetic oracles: groups found and tests spent, against exhaustive search.

    python experiments/benchmarks/partition_search.py [--seeds N] [--csv partition_search.csv]

Up to 12 metrics the fewest groups are known from all 2**n - 1 groups, by dynamic programming. Beyond that, conflicts
are planted between classes of metrics, so that a number of groups is known to be enough (fewer may do: a metric
without conflicts can go anywhere). Cells are groups/tests at the end of each stage, means over seeds. "budget" is the
best after as many tests as a plain dissolve-and-swap search was seen to spend on oracles like these (562 for 100
metrics, 1231 for 200; it ended with 5.1 and 5.7 groups).
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.atomic_files import filling

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from measure.partitioning.cover import as_group, cover_by_table  # noqa: E402
from measure.partitioning.search import PartitionSearch  # noqa: E402
from measure.partitioning.synthetic import SyntheticOracle  # noqa: E402

SMALL, LARGE = (8, 10, 12), (20, 50, 100, 200)
BUDGETS = {100: 562, 200: 1231}
STAGES = ("bisect", "merge", "first-fit", "local")


@dataclass(frozen=True)
class Row:
    """One search: ``stages`` maps a stage to the groups and tests at its end."""

    n: int
    seed: int
    reference: int  # exhaustive: the fewest; else planted
    groups: int
    calls: int
    proof: str
    at_budget: int | None
    seconds: float
    stages: dict[str, tuple[int, int]]


def oracle_for(n: int, seed: int) -> SyntheticOracle:
    """Conflicts so many that bisecting 100 metrics ends with about 27 groups; some triples, some cures."""
    if n <= max(SMALL):
        return SyntheticOracle(n, seed, planted=3, pairs=0.45, triples=n // 3, cured=3)
    return SyntheticOracle(n, seed, planted=5, pairs=min(0.2, 5 / n), triples=n // 2, cured=n // 10)


def exhaustive(oracle: SyntheticOracle) -> int:
    """The fewest groups, from all of them."""
    allowed = np.array([bits > 0 and oracle.is_good(as_group(bits)) for bits in range(1 << oracle.n)])
    return len(cover_by_table(oracle.n, allowed).groups)


def search(n: int, seed: int, exact: bool) -> Row:
    """One search to its end."""
    oracle = oracle_for(n, seed)
    reference = exhaustive(oracle) if n <= max(SMALL) else oracle.planted
    started = time.perf_counter()
    stages: dict[str, tuple[int, int]] = {}
    at_budget = None
    for progress in (running := PartitionSearch(n, oracle, seed=seed, exact=exact)).run():
        groups = len(progress.best.groups)
        stages[progress.stage] = (groups, progress.calls)
        if progress.calls <= BUDGETS.get(n, 0):
            at_budget = groups
    if not all(oracle.is_good(group) for group in progress.best.groups) or progress.best.uncovered:
        raise AssertionError(f"n = {n}, seed {seed}: not a partition into good groups")
    seconds = time.perf_counter() - started
    return Row(n, seed, reference, groups, running.calls, progress.proof, at_budget, seconds, stages)


def mean(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    rows: list[tuple[str, Row]] = []
    print("mode      n   reference  " + "".join(f"{stage:>15}" for stage in STAGES) + "      end       budget  seconds")
    for mode, sizes in (("exact", SMALL), ("anytime", SMALL + LARGE)):
        for n in sizes:
            found = [search(n, seed, mode == "exact") for seed in range(options.seeds)]
            rows += [(mode, row) for row in found]
            kind = "fewest" if n <= max(SMALL) else "enough"
            line = f"{mode:<8}{n:>4}  {mean([r.reference for r in found]):>4} {kind}  "
            for stage in STAGES:
                there = [r.stages[stage] for r in found if stage in r.stages]
                cell = f"{mean([g for g, _ in there])}/{mean([c for _, c in there])}" if there else "-"
                line += f"{cell:>15}"
            budget = [r.at_budget for r in found if r.at_budget is not None]
            end = f"{mean([r.groups for r in found])}/{mean([r.calls for r in found])}"
            line += f"{end:>13}{mean(budget) if budget else '-':>7}{mean([r.seconds for r in found]):>9}"
            print(line)
            sys.stdout.flush()
    if options.csv:
        with filling(options.csv) as part, part.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["mode", "n", "seed", "reference", "groups", "calls", "proof", "at_budget", "seconds"])
            for mode, row in rows:
                writer.writerow(
                    [mode, row.n, row.seed, row.reference, row.groups, row.calls, row.proof, row.at_budget,
                     f"{row.seconds:.2f}"]
                )  # fmt: skip


if __name__ == "__main__":
    main()
