"""Time and memory of clustering 10,000 intervals for k = 1 to 30 from 5 starts, ours beside scikit-learn's.

    python experiments/benchmarks/kmeans_speed.py [--intervals 10000] [--out results.md]

Each in a process of its own, on one thread, on the same points (15 dimensions, 12 true phases that overlap);
seconds of the clustering alone, after the kernel is compiled, and the peak memory beyond that at its start.
scikit-learn is not needed by anything else; without it ours is measured alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

MAX_K, STARTS = 30, 5


def run(engine: str, n: int) -> dict[str, float]:
    """Seconds, peak memory [MB], and the sum over k of the best distortion."""
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(12, 15))
    points = centres[rng.integers(12, size=n)] + 0.5 * rng.normal(size=(n, 15))
    if engine == "ours":
        from measure.simpoint.cluster import kmeans

        kmeans(points[:50], 3, 1)

        def best(k: int) -> float:
            return min(kmeans(points, k, seed).distortion for seed in range(STARTS))
    else:
        from sklearn.cluster import KMeans

        KMeans(3, n_init=1).fit(points[:50])

        def best(k: int) -> float:
            return float(KMeans(k, n_init=STARTS, max_iter=100, random_state=1).fit(points).inertia_)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    distortion = sum(best(k) for k in range(1, MAX_K + 1))
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "megabytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        "distortion": distortion,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--intervals", type=int, default=10_000)
    parser.add_argument("--out", type=Path, help="write the table as Markdown, too")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(run(options.run, options.intervals)))
        return
    engines = ["ours"] + (["scikit-learn"] if importlib.util.find_spec("sklearn") else [])
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    told = {}
    for engine in engines:
        command = [sys.executable, __file__, "--intervals", str(options.intervals), "--run", engine]
        done = subprocess.run(command, env={**os.environ, **threads}, stdout=subprocess.PIPE, check=True)
        told[engine] = json.loads(done.stdout)
    lines = [f"{options.intervals:,} intervals, k = 1 to {MAX_K}, {STARTS} starts, one thread.", ""]
    lines += ["| engine | seconds | over ours | memory [MB] | sum of distortions |", "|---|---|---|---|---|"]
    for engine, one in told.items():
        lines.append(
            f"| {engine} | {one['seconds']:.2f} | {one['seconds'] / told['ours']['seconds']:.2f} | "
            f"{one['megabytes']:.1f} | {one['distortion']:.0f} |"
        )
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
