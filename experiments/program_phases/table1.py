"""Table 1: how alike the intervals of a phase are, for phases found online and offline, beside the whole program."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.program_phases.analysis import METRICS, check_same_intervals, metrics_of, phases_of
from experiments.reproduction import Reproduction, short_count
from experiments.results import Results
from experiments.runner import run_figure
from measure.program_phases.homogeneity import PROGRAM, homogeneity

_TOP = 5
_WHOLE, _WITHIN = "full", "all phases"
_HEADS = {
    "l2_mpki": "L2 misses",
    "energy": "energy [nJ]",
    "l1i_mpki": "L1I misses",
    "l1d_mpki": "L1D misses",
    "branch_mpki": "mispredicted",
    "ipc": "IPC",
}
_ORDER = ("ipc", "branch_mpki", "l1d_mpki", "l1i_mpki", "energy", "l2_mpki")  # the paper's columns


def tabulate(campaign: Reproduction, results: Results) -> pd.DataFrame:
    """Rows: the whole program, its five largest phases, and the mean spread within all phases, by their weight.

    Means; and standard deviations in percent of them.
    """
    (length,), (threshold,) = campaign.interval_instructions, campaign.thresholds
    tables = []
    for program in campaign.programs:
        full, vectors = results.full(program, length), results.vectors(program, length)
        online = results.online(program, length, threshold, next(iter(campaign.configurations)))
        check_same_intervals(program, full, vectors.ends[1:])
        check_same_intervals(program, full, online["end_instructions"].to_numpy())
        offline = phases_of(vectors, campaign.phases).labels
        for how, labels in (("online", online["phase"].to_numpy()), ("offline", offline)):
            table = _rows(full, labels)
            table.insert(0, "program", program)
            table.insert(1, "classification", how)
            table.insert(2, "phases", len(np.unique(labels)))
            tables.append(table)
    return pd.concat(tables)


def _rows(full: pd.DataFrame, labels: NDArray[Any]) -> pd.DataFrame:
    found: Any = homogeneity(labels, metrics_of(full), full["instructions"])
    phases = found.drop(index=PROGRAM).sort_values("share", ascending=False, kind="stable")
    chosen = pd.concat([found.loc[[PROGRAM]], phases[:_TOP]])
    ranks = [_WHOLE, *map(str, range(1, len(chosen)))]
    rows = pd.DataFrame({"phase": ranks, "share_percent": 100 * chosen["share"].to_numpy()})
    rows["intervals"] = chosen["intervals"].to_numpy()
    within: dict[str, Any] = {"phase": _WITHIN, "share_percent": 100.0, "intervals": len(full)}
    for metric in METRICS:
        rows[f"{metric}_mean"] = chosen[f"{metric}_mean"].to_numpy()
        rows[f"{metric}_std_percent"] = 100 * chosen[f"{metric}_cov"].to_numpy()
        mean = float(found.loc[PROGRAM, f"{metric}_mean"])
        inside = float(np.sqrt(phases["share"] @ phases[f"{metric}_std"] ** 2))
        within |= {f"{metric}_mean": mean, f"{metric}_std_percent": 100 * inside / mean if mean else 0.0}
    return pd.concat([rows, pd.DataFrame([within])])


def draw(campaign: Reproduction, table: pd.DataFrame) -> str:
    """The table as Markdown, in the paper's order of columns."""
    length = short_count(campaign.interval_instructions[0])
    lines = [
        f"Mean (standard deviation) of intervals of {length} instructions. Misses and mispredicted branches per 1,000 "
        "instructions, energy per instruction. *All phases*: the standard deviation within phases, over the "
        "program's mean.",
        "",
    ]
    for (program, how), mine in table.groupby(["program", "classification"], sort=False):
        lines += [f"**{program}, {how}: {mine['phases'].iloc[0]} phases**", ""]
        heads = ["phase", *(_HEADS[metric] for metric in _ORDER)]
        lines += ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * len(_ORDER)]
        for row in mine.to_dict("records"):
            name = row["phase"] if row["phase"] in (_WHOLE, _WITHIN) else f"{row['share_percent']:.1f}%"
            cells = [f"{row[f'{m}_mean']:.3g} ({row[f'{m}_std_percent']:.1f}%)" for m in _ORDER]
            lines.append("| " + " | ".join([str(name), *cells]) + " |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(run_figure(__file__, tabulate, draw))
