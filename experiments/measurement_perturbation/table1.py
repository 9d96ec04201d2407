"""Table 1: programs, input, sampling interval; and what ours add: lengths, metrics, overhead, traces."""

from __future__ import annotations

import pandas as pd

from emulator.timing.machine_file import load_machine
from experiments.drawing import markdown_table
from experiments.measurement_perturbation.figures import Figure
from experiments.measurement_perturbation.results import Results
from measure.run_types import BASELINE

PAPERS = {"bwtzip": "bzip", "netsimplex": "mcf", "ooosim": "sim-outorder", "chess": "sjeng"}
_HEADER = (
    "program", "the paper's", "argument", "instructions", "interval", "records", "traces", "metrics", "all add"
)  # fmt: skip


def tabulate(figure: Figure, results: Results) -> pd.DataFrame:
    """One row a program."""
    rows = []
    for name, campaign in results.campaigns.items():
        runs = results.table("runs", name)
        baselines = runs[runs["group"] == BASELINE]
        most = runs[runs["step"] == runs["step"].max()]
        clock_hz = load_machine(campaign.machine_file).clock_hz
        interval, _ = campaign.sampling.interval
        rows.append(
            (name, PAPERS.get(name, ""), " ".join(map(str, campaign.program.args)), baselines["instructions"].mean(),
             baselines["cycles"].mean(), interval, 1e6 * interval / clock_hz, int(baselines["records"].median()),
             len(runs), len(campaign.software_metrics), most["instructions_percent"].mean())
        )  # fmt: skip
    columns = ["program", "paper", "argument", "instructions", "cycles", "interval_cycles", "interval_microseconds",
               "records", "traces", "metrics", "instructions_percent"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def draw(figure: Figure, table: pd.DataFrame) -> str:
    """The table as Markdown."""
    rows = [
        (row["program"], row["paper"], row["argument"], f"{row['instructions'] / 1e6:.0f} M",
         f"{row['interval_cycles']:,} cycles ({row['interval_microseconds']:.0f} us)", f"{row['records']:,}",
         row["traces"], row["metrics"], f"{row['instructions_percent']:.1f}%")
        for _, row in table.iterrows()
    ]  # fmt: skip
    return markdown_table(_HEADER, rows)
