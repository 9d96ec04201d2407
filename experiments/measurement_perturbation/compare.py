"""The paper's claims beside ours, every number from the recorded tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from experiments.measurement_perturbation.nulls import said_of
from measure.report.style import short

Row = tuple[str, str, str]
LOW_PERCENT = 3.0
"""Added instructions that the paper calls a low overhead (abstract)."""


def rows(out: Path) -> list[Row]:
    """What is claimed, the paper's words or numbers, ours."""
    table1, verdicts = pd.read_csv(out / "table1.csv"), pd.read_csv(out / "verdicts.csv")
    inner = verdicts[verdicts["kind"] == "inner"]
    traces = f"{table1['traces'].sum()}, {table1['records'].min():,} to {table1['records'].max():,} records each"
    found = [
        ("Traces (Table 1)", "about 700, of about 3,000 records", traces),
        ("Baselines vary little (Figure 3)", "the curve is largely flat", _flatness(out)),
        ("Runs below 3% perturbed, within", "some of sjeng and sim-outorder", _low(inner)),
        (
            "Runs below 3% perturbed, across",
            "sim-outorder from 0.2%",
            _low(_kind(verdicts, "held-out")),
        ),
        ("Most that a run adds", "2.5% to 3%", _each(table1, "instructions_percent", "{:.1f}%")),
    ]
    found += _within(out, pd.read_csv(out / "pairs.csv"), inner)
    found += _across(out, verdicts)
    if (out / "nulls.csv").is_file():
        found += _nulls(pd.read_csv(out / "nulls.csv"), verdicts)
    claim = "Steps to more metrics that lessen the largest change, "
    found += [
        (f"{claim}within", "more may even decrease it", _monotony(inner)),
        (f"{claim}across", "recovers after the drop", _monotony(_kind(verdicts, "held-out"))),
    ]
    return found + _mechanisms(pd.read_csv(out / "mechanisms.csv"), pd.read_csv(out / "mechanisms_outer.csv"))


def _nulls(nulls: pd.DataFrame, verdicts: pd.DataFrame) -> list[Row]:
    """Perturbed runs beside those among as many null runs, by kind of comparison."""
    found = []
    for kind, label in {"inner": "within", "outer-held-out": "across"}.items():
        counts = []
        for program, mine in nulls.groupby("campaign", sort=False):
            runs = verdicts[(verdicts["kind"] == kind) & (verdicts["campaign"] == program)]
            perturbed = (runs["verdict"] == "perturbed").sum()
            counts.append(f"{program} {perturbed} of {len(runs)}, null runs {said_of(mine, kind, len(runs))}")
        found.append((f"Runs perturbed {label} runs, beside null runs", "not said", "; ".join(counts)))
    return found


def _each(table: pd.DataFrame, column: str, form: str) -> str:
    return "; ".join(f"{row['program']} {form.format(row[column])}" for _, row in table.iterrows())


def _kind(verdicts: pd.DataFrame, ending: str) -> pd.DataFrame:
    return verdicts[verdicts["kind"].str.endswith(ending)]


def _flatness(out: Path) -> str:
    said = []
    for series, values in pd.read_csv(out / "figure3.csv").groupby("series", sort=False)["rho"]:
        said.append(f"{_named(series)} {values.min():.2f} to {values.max():.2f}")
    return "; ".join(said)


def _low(inner: pd.DataFrame) -> str:
    """Runs below 3% that are perturbed, and the least overhead of one, by program."""
    said = []
    for program, runs in inner.groupby("campaign", sort=False):
        low = runs[runs["instructions_percent"] < LOW_PERCENT]
        broken = low[low["verdict"] == "perturbed"]
        least = f" (from {broken['instructions_percent'].min():.2f}%)" if len(broken) else ""
        said.append(f"{program} {len(broken)} of {len(low)}{least}")
    return "; ".join(said)


def _within(out: Path, pairs: pd.DataFrame, inner: pd.DataFrame) -> list[Row]:
    found = []
    papers = {
        "PAPI_L1_DCM PAPI_L2_TCM": "0.8 to below 0.5 at 2.25%",
        "PAPI_L1_DCM PAPI_TLB_DM": "similar, less dramatic",
    }
    chess = pd.read_csv(out / "figure4.csv")
    for series, said in papers.items():
        found.append((f"sjeng, {_named(series)} (Figure 4)", said, _extreme(chess[chess["series"] == series])))
    bwtzip = pd.read_csv(out / "figure6.csv")
    for series in papers:
        found.append(
            (
                f"bzip, {_named(series)} (Figure 6)",
                "barely changes, up to 2.5%",
                _extreme(bwtzip[bwtzip["series"] == series]),
            )
        )
    words = {"chess": "two pairs of sjeng", "ooosim": "sim-outorder as sjeng", "bwtzip": "none of bzip",
             "netsimplex": "none of mcf"}  # fmt: skip
    for program, mine in pairs.groupby("campaign", sort=False):
        broken = mine[mine["perturbed_runs"] > 0].sort_values("perturbed_runs", ascending=False)
        names = ", ".join(
            f"{short(row['a'])} - {short(row['b'])} ({row['baseline_rho']:.2f} to {row['extreme_rho']:.2f})"
            for _, row in broken.head(3).iterrows()
        )
        ours = f"{len(broken)} of {len(mine)}" + (f", most often {names}" if names else "")
        found.append((f"Pairs that break within runs: {program}", words.get(str(program), ""), ours))
    return found


def _across(out: Path, verdicts: pd.DataFrame) -> list[Row]:
    found = []
    outer = pd.read_csv(out / "figure7.csv")
    joint = outer[outer["kind"] == "outer-joint"]
    for metric, said in {
        "PAPI_BR_MSP": "above 0.9 to 0.3 at 0.2%",
        "PAPI_TLB_DM": "0.85 to below 0.6",
    }.items():
        found.append(
            (
                f"sim-outorder, {short(metric)} across runs (Figure 7)",
                said,
                _extreme(joint[joint["series"] == metric]),
            )
        )
    bwtzip = pd.read_csv(out / "figure8.csv")
    bwtzip = bwtzip[bwtzip["kind"] == "outer-joint"]
    change = bwtzip.groupby("series", sort=False)["rho"].agg(["min", "max"])
    said = "; ".join(f"{short(str(metric))} {row['min']:.2f} to {row['max']:.2f}" for metric, row in change.iterrows())
    found.append(("bzip across runs (Figure 8)", "largely unaffected, up to 2.5%", said))
    counts = []
    for program, runs in _kind(verdicts, "joint").groupby("campaign", sort=False):
        counts.append(f"{program} {(runs['verdict'] == 'perturbed').sum()} of {len(runs)}")
    found.append(
        (
            "Runs perturbed across runs, aligned on all",
            "sim-outorder, sjeng, mcf; not bzip",
            "; ".join(counts),
        )
    )
    return found


def _mechanisms(within: pd.DataFrame, across: pd.DataFrame) -> list[Row]:
    """With all metrics, by setting: the paper's pair and metric, and how many pairs are perturbed."""
    inner = within[(within["kind"] == "inner") & (within["group"] == within["group"].iloc[0])]
    joint = across[(across["kind"] == "outer-joint") & (across["group"] == across["group"].iloc[0])]
    paper = ("PAPI_L1_DCM", "PAPI_L2_TCM")
    counts = [
        f"{setting} {(pairs['verdict'] == 'perturbed').sum()}"
        for setting, pairs in inner.groupby("setting", sort=False)
    ]
    pair = inner[inner["a"].isin(paper) & inner["b"].isin(paper)]
    return [
        ("sjeng, L1_DCM - L2_TCM, all metrics, by mechanism", "0.8 to below 0.5", _moves(pair)),
        ("sjeng, pairs of 28 perturbed, all metrics, by mechanism", "2", "; ".join(counts)),
        ("sim-outorder, BR_MSP across runs, all metrics, by mechanism", "above 0.9 to 0.3",
         _moves(joint[joint["a"] == "PAPI_BR_MSP"])),
    ]  # fmt: skip


def _moves(pairs: pd.DataFrame) -> str:
    """From baseline to run, by setting."""
    return "; ".join(
        f"{row['setting']} {row['baseline_rho']:.2f} to {row['run_rho']:.2f}" for _, row in pairs.iterrows()
    )


def _extreme(points: pd.DataFrame) -> str:
    """The baselines' range, the point farthest from its middle, and how many runs are perturbed."""
    low, high = points["baseline_low"].iloc[0], points["baseline_high"].iloc[0]
    runs = points[points["step"] > 0]
    far = runs.iloc[int(np.nanargmax((runs["rho"] - (low + high) / 2).abs()))]
    broken = (runs["verdict"] == "perturbed").sum()
    return (
        f"baselines {low:.2f} to {high:.2f}, farthest run {far['rho']:.2f} at {far['instructions_percent']:.2f}%; "
        f"{broken} of {len(runs)} runs perturbed"
    )


def _monotony(verdicts: pd.DataFrame) -> str:
    """Steps that lessen the largest change, verdicts that they undo, its rank correlation with overhead."""
    said = []
    for program, runs in verdicts.groupby("campaign", sort=False):
        less = recovered = steps = 0
        for _, order in runs.sort_values("step").groupby("order"):
            change, broken = order["change_z"].to_numpy(), (order["verdict"] == "perturbed").to_numpy()
            less += int((np.diff(change) < 0).sum())
            recovered += int((broken[:-1] & ~broken[1:]).sum())
            steps += len(order) - 1
        rank = runs["change_z"].corr(runs["instructions_percent"], method="spearman")
        said.append(f"{program} {less} of {steps} ({recovered} undo the verdict), with overhead {rank:.2f}")
    return "; ".join(said)


def _named(series: object) -> str:
    return " - ".join(short(metric) for metric in str(series).split())
