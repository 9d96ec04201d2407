"""The ground-truth experiment: its campaigns, what is counted from recorded tables, its figures and page."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

from experiments.ground_truth import figures, tables
from experiments.ground_truth.run import PROGRAMS
from experiments.ground_truth.run import main as run
from measure.runs.campaign_file import load_campaign
from measure.runs.campaign_model import DEFAULT_RUNS

FOLDER = Path(__file__).parents[2] / "experiments" / "ground_truth"
RECORDED = sorted(FOLDER.glob("*.csv"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_campaigns_are_comparable(program: str) -> None:
    campaign, _ = load_campaign(FOLDER / f"{program}.yaml")
    assert campaign.pairs == DEFAULT_RUNS
    assert campaign.sampling.mode == "ideal"
    assert len(campaign.variant_sets()) == 6
    assert set(campaign.variant_sets()["all"]) == set(campaign.software_metrics)
    first, _ = load_campaign(FOLDER / f"{PROGRAMS[0]}.yaml")
    assert campaign.hardware_metrics == first.hardware_metrics
    assert campaign.sampling.interval[1] == "cycles"


def test_what_stays_hidden_with_fewer_counters() -> None:
    rows = [
        ("hardware-hardware", "A", "B", "perturbed"),
        ("hardware-hardware", "A", "C", "equivalent"),
        ("hardware-hardware", "B", "C", "equivalent"),
        ("software-hardware", "C", "s", "perturbed"),
        ("software-hardware", "A", "s", "equivalent"),
    ]
    pairs = pd.DataFrame(rows, columns=["kind", "a", "b", "verdict"]).assign(program="p", variant="v")
    found = tables.hidden_by_counters(pairs).set_index("counters")
    assert found.loc[[2], ["choices", "perturbed", "hidden"]].to_numpy().tolist() == [[3, 2, 2]]  # A C and B C
    assert found.loc[[3], ["choices", "perturbed", "hidden"]].to_numpy().tolist() == [[1, 1, 0]]
    both = pd.concat([pairs, pairs.iloc[-1:].assign(kind="software-software", a="s", b="t", verdict="perturbed")])
    assert tables.hidden_by_counters(both).set_index("counters").loc[2, "hidden"] == 2


def test_the_figures_and_the_page_are_those_of_the_recorded_tables(tmp_path: Path) -> None:
    for path in [*RECORDED, FOLDER / "README.md"]:
        shutil.copy(path, tmp_path)
    assert run(["--redraw", "--out", str(tmp_path)]) == 0
    for name in ("sampler", "software", "alignment", "penalty"):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
        assert (FOLDER / f"{name}.png").exists()
    assert (tmp_path / "README.md").read_text() == (FOLDER / "README.md").read_text()
    assert (tmp_path / "hidden.csv").read_text() == (FOLDER / "hidden.csv").read_text()


def test_recorded_tables_are_whole() -> None:
    for name in (
        "programs",
        "sampler",
        "software",
        "pairs",
        "alignment",
        "channels",
        "metrics",
        "penalty",
        "across",
    ):
        table = pd.read_csv(FOLDER / f"{name}.csv")
        assert set(table["program"]) == set(PROGRAMS), name
    programs = pd.read_csv(FOLDER / "programs.csv")
    assert (programs["out_of_order"] == 0).all()
    assert (programs["control_largest"] <= 1).all()
    assert load_campaign(FOLDER / "chess.yaml")[0].delta == figures.DELTA


def test_what_is_no_program() -> None:
    with pytest.raises(SystemExit):
        run(["sjeng"])
