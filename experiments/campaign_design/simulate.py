"""How many baselines and replicates, paired or not, at the cost of 20 baselines and 5 runs of each variant.

    python experiments/campaign_design/simulate.py [--campaigns 2000]

z of 28 pairs of metrics is normal with the standard deviation `SPREAD` between runs, alike in all pairs to `ALIKE`; a
baseline and the run paired with it are alike to the correlation that gives the ratio of variances of real_runs.csv.
Instrumentation changes three of the pairs. Designs of the same number of runs are compared for campaigns of 1 to 8
variants. Writes simulate.csv beside itself: significant campaigns at 5% over all pairs.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))

from common.atomic_files import filling
from experiments.campaign_design.real_runs import max_t, sign_flips

HERE = Path(__file__).parent
PAIRS, CHANGED, SPREAD, ALIKE = 28, 3, 0.09, 0.3
CHANGES = (0.0, 0.10, 0.15, 0.20)
RATIOS = (1.0, 1.5, 2.0, 2.65)
VARIANTS = (1, 2, 4, 8)
HEADER = ["variants", "design", "runs", "ratio", "change", "campaigns", "significant"]


def draw(count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Noise of z of ``count`` runs, (count, pairs)."""
    common, own = rng.normal(size=(count, 1)), rng.normal(size=(count, PAIRS))
    return SPREAD * (np.sqrt(ALIKE) * common + np.sqrt(1 - ALIKE) * own)


def designs(variants: int) -> Iterator[tuple[str, int, int]]:
    """Kind, baselines and replicates of designs that cost at most 20 + 5 runs a variant."""
    yield "unpaired", 20, 5
    equal = (20 + 5 * variants) // (1 + variants)
    yield "unpaired", equal, equal
    yield "paired", equal, equal
    if equal < 10:
        yield "paired", 10, 10  # the default, which costs more here


def significant(kind: str, baselines: int, replicates: int, ratio: float, change: float, campaigns: int) -> int:
    """Of so many campaigns, those with p <= 5%."""
    rng = np.random.default_rng(1)
    effect = np.zeros(PAIRS)
    effect[:CHANGED] = change
    shared = 1 - 1 / ratio
    count = 0
    for _ in range(campaigns):
        if kind == "unpaired":
            p = max_t(draw(baselines, rng), draw(replicates, rng) + effect, rng)
        else:
            both = np.sqrt(shared) * draw(replicates, rng)
            before, after = (both + np.sqrt(1 - shared) * draw(replicates, rng) for _ in range(2))
            p = sign_flips(after + effect - before, rng)
        count += p <= 0.05
    return count


def main() -> None:
    """Simulate and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--campaigns", type=int, default=2000)
    campaigns = parser.parse_args().campaigns
    rows = []
    for variants in VARIANTS:
        for kind, baselines, replicates in designs(variants):
            runs = baselines + variants * replicates
            for ratio in RATIOS if kind == "paired" else (1.0,):
                for change in CHANGES:
                    found = significant(kind, baselines, replicates, ratio, change, campaigns)
                    row = [variants, f"{kind} {baselines} + {replicates}", runs, ratio, change, campaigns, found]
                    rows.append(row)
                    print(*row, flush=True)
    with filling(HERE / "simulate.csv") as made, made.open("w", newline="") as file:
        csv.writer(file).writerows([HEADER, *rows])


if __name__ == "__main__":
    main()
