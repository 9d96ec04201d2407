"""What SimPoint 3.2 itself found in vectors that are made here, kept in ``golden/simpoint32.json``.

To make the file again, build SimPoint 3.2 (from its authors, not part of this project) and give its executable:

    PYTHONPATH=. python tests/measure/program_phases/golden_simpoint.py PATH/TO/simpoint
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from measure.program_phases.bbv import BasicBlockVectors, from_dense
from measure.program_phases.bbv_files import read_simpoints, read_weights, write_bb

GOLDEN = Path(__file__).parent / "golden" / "simpoint32.json"
# Name: SimPoint's arguments, ours, and the coverage of the points.
CASES: dict[str, tuple[list[str], dict[str, Any], float]] = {
    "bisection": (["-maxK", "30"], {}, 1.0),
    "every k": (["-k", "1:12"], {"max_k": 12, "search": "all"}, 1.0),
    "furthest first": (["-maxK", "20", "-initkm", "ff"], {"max_k": 20, "starts": "furthest"}, 1.0),
    "variable length": (
        ["-k", "1:8", "-initkm", "ff", "-fixedLength", "off"],
        {"max_k": 8, "search": "all", "starts": "furthest", "fixed_length": False},
        1.0,
    ),
    "one k, two starts": (["-k", "7", "-numInitSeeds", "2"], {"k": 7, "seeds": 2}, 1.0),
    "other seeds, dimensions and threshold": (
        ["-maxK", "25", "-dim", "20", "-bicThreshold", "0.8", "-seedkm", "77", "-seedproj", "99"],
        {"max_k": 25, "dimensions": 20, "threshold": 0.8, "seed_kmeans": 77, "seed_projection": 99},
        1.0,
    ),
    "cut off": (["-maxK", "30", "-iters", "4"], {"max_iterations": 4}, 1.0),
    "coverage": (["-maxK", "30", "-coveragePct", "0.7"], {}, 0.7),
}


def golden_vectors() -> BasicBlockVectors:
    """240 intervals of unequal length of five mixes of 40 blocks, some in between, from numbers that never change."""
    rng = np.random.RandomState(20)  # its sequence is frozen, unlike a Generator's
    mixes = rng.randint(0, 1000, (5, 40)) * (rng.randint(0, 3, (5, 40)) == 0)
    phase = np.arange(240) // 12 % 5
    counts = mixes[phase] * rng.randint(90, 111, (240, 40)) // 100
    between = phase != np.roll(phase, -1)
    counts[between] = (counts[between] + mixes[np.roll(phase, -1)[between]]) // 2
    return from_dense(counts * rng.randint(1, 4, (240, 1)) + (np.arange(40) == 3))


def ask(simpoint: str) -> dict[str, Any]:
    """The answers of SimPoint 3.2 for all of `CASES`."""
    told = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_bb(folder / "x.bb", golden_vectors())
        for case, (arguments, _, coverage) in CASES.items():
            files = [
                "-saveLabels",
                "x.labels",
                "-saveSimpoints",
                "x.simpoints",
                "-saveSimpointWeights",
                "x.weights",
            ]
            command = [simpoint, "-loadFVFile", "x.bb", *files, *arguments]
            text = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
            scores = {}
            for run in text.split("Run number ")[1:]:
                tried = re.findall(r"BIC score: (\S+)", run)
                scores[re.findall(r"k = (\d+)", run)[0]] = max(map(float, tried))
            chosen = re.findall(r"best clustering was run \d+ \(k = (\d+)\)", text)
            suffix = f".lpt{coverage:g}" if coverage < 1 else ""
            labels, distances = np.loadtxt(folder / "x.labels", ndmin=2).T
            intervals, phases = read_simpoints(folder / f"x.simpoints{suffix}")
            told[case] = {
                "k": int(chosen[0]),
                "scores": scores,
                "labels": labels.astype(int).tolist(),
                "distances": distances.tolist(),
                "simpoints": np.column_stack([intervals, phases]).tolist(),
                "weights": read_weights(folder / f"x.weights{suffix}")[0].tolist(),
            }
    return told


if __name__ == "__main__":
    answers = {case: json.dumps(answer) for case, answer in ask(str(Path(sys.argv[1]).resolve())).items()}
    lines = ",\n".join(f"{json.dumps(case)}: {answer}" for case, answer in answers.items())
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text("{\n" + lines + "\n}\n")
