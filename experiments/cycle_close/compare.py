"""The paper's numbers beside ours, from the recorded tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from experiments.cycle_close.figure2 import MEAN
from experiments.cycle_close.figure6 import METRICS
from experiments.reproduction import short_count

_LENGTH = 200_000
Row = tuple[str, str, str]


def rows(recorded: Path) -> list[Row]:
    """What, the paper's, ours; for the tables in ``recorded``."""
    return [
        *_programs(recorded),
        *_time(recorded),
        *_shares(recorded),
        *_policies(recorded),
        *_deviations(recorded, "figure6", ""),
        *_deviations(recorded, "figure6_desktop", "desktop machine, "),
    ]


def _programs(recorded: Path) -> list[Row]:
    table = pd.read_csv(recorded / "figure2.csv")
    each = table[table["program"] != MEAN].groupby("program")["instructions"].first() / 1e9
    ours = f"{len(each)} of our catalogue, {each.min():.2g} to {each.max():.2g} G instructions, RISC-V"
    return [("Programs", "7 of MiBench and SPEC 2000, from 0.5 G instructions, Alpha", ours)]


def _time(recorded: Path) -> list[Row]:
    table = pd.read_csv(recorded / "figure2.csv")
    found = []
    for name in [name for name in table["configuration"].unique() if name != "full"]:
        mine = table[(table["configuration"] == name) & (table["interval_instructions"] == _LENGTH)]
        ratios = mine.set_index("program")["full_over_sampled"]
        limit = mine.set_index("program").loc[MEAN, "limit_full_over_sampled"]
        each = ratios.drop(MEAN)
        ours = f"{ratios[MEAN]:.1f} times ({each.min():.1f} to {each.max():.1f}); at most {limit:.1f} by 1/(s + r)"
        found.append((f"Figure 2: full simulation over cycle-close, 200k, 25%, {_words(name)}", "312 times", ours))
    return found


def _shares(recorded: Path) -> list[Row]:
    table = pd.read_csv(recorded / "figure3.csv")
    means: Any = table[table["program"] == "mean"].set_index(["threshold", "interval_instructions"])
    found = []
    for threshold, told in ((0.25, "0.8%"), (0.125, "1.9%")):
        for length in (_LENGTH, 1_000_000):
            row = means.loc[(threshold, length)]
            theirs = f"{told} / not in the text" if length > _LENGTH else "not in the text"
            what = f"Figure 3: intervals simulated / unsampled, {short_count(length)}, {100 * threshold:g}%"
            found.append((what, theirs, f"{row['simulated_percent']:.1f}% / {row['unsampled_percent']:.1f}%"))
    return found


def _policies(recorded: Path) -> list[Row]:
    table = pd.read_csv(recorded / "figure5.csv")
    mine = table[(table["program"] == "mean") & (table["metric"] == "cpi")]
    totals = (mine["sampled_part_percent"] + mine["unsampled_part_percent"]).to_list()
    named = zip(mine["threshold"], mine["unsampled_get"], totals, strict=True)
    ours = "; ".join(f"{100 * threshold:g}% {policy}: {total:.1f}%" for threshold, policy, total in named)
    theirs = "an estimate is needed; last and closest match differ little"
    return [("Figure 5: deviation of CPI by threshold and policy", theirs, ours)]


def _deviations(recorded: Path, figure: str, machine: str) -> list[Row]:
    table = pd.read_csv(recorded / f"{figure}.csv")
    found = []
    for name in table["configuration"].unique():
        mine = table[table["configuration"] == name]
        means = mine[mine["program"] == "mean"].set_index("metric")["deviation_percent"]
        each = mine[mine["program"] != "mean"]
        worst = each.loc[each["deviation_percent"].idxmax()]
        metric = METRICS[worst["metric"]].replace("\n", " ")
        found += [
            (f"Figure 6: deviation of CPI, mean, 200k, {machine}{_words(name)}", "3.2%", f"{means['cpi']:.1f}%"),
            (f"of all metrics, mean, {machine}{_words(name)}", "3.7%", f"{means.mean():.1f}%"),
            (
                f"largest of any metric, {machine}{_words(name)}",
                "10.3% (cjpeg, data cache hits)",
                f"{worst['deviation_percent']:.1f}% ({worst['program']}, {metric})",
            ),
        ]
    return found


def _words(name: str) -> str:
    return {"paper": "the paper's configuration", "of L": "the paper's configuration with 25% of L"}.get(name, name)
