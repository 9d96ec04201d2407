"""The paper's numbers beside ours, from the recorded tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from experiments.program_phases.figure4 import COMPAT, DATA, MANY, POINTS, SKIP, START

Row = tuple[str, str, str]
# What the paper's programs are set beside: the compressor beside gzip, the large irregular one beside gcc.
_THEIRS = {"lz77": "gzip", "sqlite": "gcc"}
_PHASES = {"gzip": 4, "gcc": 8}
# Of the paper's Table 1: the whole program's relative standard deviation, and the largest in the five phases [%].
_SPREAD: dict[str, dict[str, tuple[float | None, float]]] = {
    "gzip": {"ipc": (16.3, 4.3), "energy": (13.5, 4.4), "l1d_mpki": (58.2, 11.9), "l2_mpki": (112.0, 15.6)},
    "gcc": {"ipc": (43.4, 1.6), "energy": (90.0, 1.8), "l1d_mpki": (110.7, 15.1), "l2_mpki": (None, 12.6)},
}
_WORDS = {"ipc": "IPC", "energy": "energy", "l1d_mpki": "L1D misses", "l2_mpki": "L2 misses"}


def rows(recorded: Path) -> list[Row]:
    """What, the paper's, ours; for the tables in ``recorded``."""
    return [
        *_programs(recorded),
        *_ranges(recorded),
        *_phases(recorded),
        *_errors(recorded),
        *_spreads(recorded),
    ]


def _programs(recorded: Path) -> list[Row]:
    table = pd.read_csv(recorded / "figure4.csv")
    counts = table.groupby("program")["intervals"].first().dropna()
    ours = f"{len(counts)} of our catalogue, {counts.min():.0f} to {counts.max():.0f} intervals of 2 M"
    return [("Programs and intervals (Figures 3, 4)", "SPEC 2000, hundreds of intervals of 100 M", ours)]


def _ranges(recorded: Path) -> list[Row]:
    table = pd.read_csv(recorded / "figure1.csv")
    found = []
    for program, mine in table.groupby("program", sort=False):
        low, high = mine["ipc_mean"].quantile([0.05, 0.95])
        few, many = mine["l1d_mpki_mean"].quantile([0.05, 0.95])
        theirs = (
            "1.2 to 1.7; data misses by almost 10 times" if _THEIRS.get(str(program)) == "gzip" else "not in the text"
        )
        ours = f"{low:.2f} to {high:.2f}; data misses {few:.2g} to {many:.2g} per 1,000"
        found.append((f"Figure 1: range of IPC, {_THEIRS.get(str(program), '')} / {program}", theirs, ours))
    return found


def _phases(recorded: Path) -> list[Row]:
    table = pd.read_csv(recorded / "figure3.csv")
    counts = table.groupby("program", sort=False)["phase"].max()
    return [
        (
            f"Figure 3: phases at M = 10, {_THEIRS[name]} / {name}",
            str(_PHASES[_THEIRS[name]]),
            str(count),
        )
        for name, count in counts.items()
        if name in _THEIRS
    ]


def _errors(recorded: Path) -> list[Row]:
    table = pd.read_csv(recorded / "figure4.csv").set_index(["configuration", "program"])["ipc_error_percent"]
    theirs = {START: "median 58%", SKIP: "median 23%", POINTS: "median 2%, mean 3%"}
    words = {
        START: "from the start",
        SKIP: "after a skip",
        POINTS: "simulation points",
        COMPAT: "by SimPoint 3.2's rules",
        MANY: "with as many points as the next",
        DATA: "points by code and waiting for memory",
    }
    return [
        (
            f"Figure 4: error of IPC, {words[configuration]}",
            theirs.get(configuration, "-"),
            ", ".join(f"{name} {table[(configuration, key)]:.1f}%" for key, name in _SUMMARIES.items()),
        )
        for configuration in words
    ]


_SUMMARIES = {"median": "median", "mean": "mean", "max": "largest"}


def _spreads(recorded: Path) -> list[Row]:
    table = pd.read_csv(recorded / "table1.csv")
    found = []
    for keys, mine in table.groupby(["program", "classification"], sort=False):
        program, how = map(str, keys)
        theirs = _SPREAD[_THEIRS[program]]
        spread: Any = mine.set_index("phase")
        top = spread.drop(index=["full", "all phases"])
        cells = []
        for metric, (whole, largest) in theirs.items():
            column = f"{metric}_std_percent"
            name = _WORDS[metric]
            known = f"{whole:g}%" if whole is not None else "?"
            cells.append(
                (
                    f"{name} {known} to {largest:g}%",
                    f"{name} {spread.loc['full', column]:.1f}% to {top[column].max():.1f}% "
                    f"(all phases {spread.loc['all phases', column]:.1f}%)",
                )
            )
        what = f"Table 1: spread of the program, and largest of five phases, {_THEIRS[program]} / {program}, {how}"
        ours = f"{mine['phases'].iloc[0]} phases; " + "; ".join(cell[1] for cell in cells)
        found.append((what, "; ".join(cell[0] for cell in cells) if how == "online" else "online only", ours))
    return found
