"""The perturbation paper reproduced: its campaigns, the command on tiny programs, figures from what is recorded."""

from __future__ import annotations

import importlib
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from experiments.drawing import between_marks, save_small
from experiments.measurement_perturbation import collect as collecting
from experiments.measurement_perturbation import compare
from experiments.measurement_perturbation.figures import load_figure, settings_of, slug
from experiments.measurement_perturbation.nulls import count_null_runs, said_of
from experiments.measurement_perturbation.panels import binned, draw_changes
from experiments.measurement_perturbation.results import Results
from experiments.measurement_perturbation.run import main, page_text
from measure.errors import CampaignError, MeasureError
from measure.runs.campaign_file import load_campaign
from tests.measure.demo_program import PROGRAM

FOLDER = Path(__file__).parents[2] / "experiments" / "measurement_perturbation"
CAMPAIGNS = sorted((FOLDER / "campaigns").glob("*.yaml"))
FIGURES = sorted(FOLDER.glob("*.yaml"))
BASELINES, METRICS = 3, 2


def tiny(folder: Path, *figures: str) -> Path:
    """Copies of the figures' files and campaigns whose runs take a second."""
    (folder / "campaigns").mkdir(parents=True)
    for path in CAMPAIGNS:
        data = yaml.safe_load(path.read_text())
        data["program"] = {
            "source": str((path.parent / data["program"]["source"]).resolve()),
            "args": ["tiny"],
        }
        data["machine"] = str((path.parent / data["machine"]).resolve())
        data["sampling"]["every"] = "20000 cycles"
        data["software_metrics"] = dict(list(data["software_metrics"].items())[:METRICS])
        data |= {"baselines": BASELINES, "cumulative": {"orders": 1}, "noise": {"code_layouts": 1}}
        (folder / "campaigns" / path.name).write_text(yaml.safe_dump(data, sort_keys=False))
    for name in figures:
        shutil.copy(FOLDER / f"{name}.yaml", folder)
    return folder


@pytest.mark.parametrize("path", CAMPAIGNS, ids=lambda path: path.stem)
def test_campaigns_are_as_the_paper_says(path: Path) -> None:
    campaign, _ = load_campaign(path)
    assert campaign.baselines == 26
    assert campaign.sampling.mode == "signal"
    orders = {collecting.order_and_step(name) for name in campaign.variant_sets()}
    assert len({order for order, _ in orders}) == 3
    assert len(orders) == 3 * len(campaign.software_metrics) == 150
    assert {"PAPI_L1_DCM", "PAPI_L2_TCM", "PAPI_TLB_DM", "PAPI_BR_MSP"} <= set(campaign.hardware_metrics)


def test_about_700_traces_in_all() -> None:
    campaigns = [load_campaign(path)[0] for path in CAMPAIGNS]
    assert sum(one.baselines + one.replicates * len(one.variant_sets()) for one in campaigns) == 704


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_figures_have_a_script(path: Path) -> None:
    figure = load_figure(path)
    assert figure.campaigns
    script = importlib.import_module(f"experiments.measurement_perturbation.{path.stem}")
    assert callable(script.tabulate)
    assert callable(script.draw)


def test_every_figure_of_the_paper_is_there() -> None:
    assert {path.stem for path in FIGURES} >= {"table1", *(f"figure{number}" for number in range(3, 9))}


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_recorded_tables_draw(path: Path, tmp_path: Path) -> None:
    script = importlib.import_module(f"experiments.measurement_perturbation.{path.stem}")
    drawn = script.draw(load_figure(path), pd.read_csv(path.with_suffix(".csv")))
    if isinstance(drawn, str):
        assert drawn == path.with_suffix(".md").read_text()
    else:
        save_small(drawn, tmp_path / "drawn.png")
        assert 5_000 < (tmp_path / "drawn.png").stat().st_size < 300_000
        assert path.with_suffix(".png").is_file()


def test_page_shows_what_the_recorded_tables_say() -> None:
    page = FOLDER / "README.md"
    assert page.read_text() == page_text(FOLDER)
    for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text()):
        assert (FOLDER / picture).is_file()


@pytest.mark.slow
def test_the_command_on_tiny_programs_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, results = (
        tiny(tmp_path / "figures", "figure3", "figure4", "figure5", "mechanisms"),
        tmp_path / "results",
    )
    data = yaml.safe_load((folder / "mechanisms.yaml").read_text())
    data["campaigns"] = ["campaigns/chess.yaml"]
    data["variants"] = {"all": []}
    data["common"] = {"baselines": 2, "replicates": 1}
    data["settings"] = {
        "ideal": {
            "sampling": {"mode": "ideal"},
            "machine": {"l1d": {"size_bytes": 8192}},
        }
    }
    (folder / "mechanisms.yaml").write_text(yaml.safe_dump(data))
    paths = [str(path) for path in sorted(folder.glob("*.yaml"))]
    arguments = [*paths, "--results", str(results), "--workers", "1"]
    assert main(arguments, folder) == 0

    runs = pd.read_parquet(results / "chess" / "runs.parquet")
    assert list(runs["group"]) == ["baseline"] * BASELINES + ["order1-1", "order1-2"]
    assert list(runs["step"][BASELINES:]) == [1, 2]
    assert (runs["instructions_percent"][BASELINES:].diff().dropna() > 0).all()
    figure4 = pd.read_csv(folder / "figure4.csv")
    assert set(figure4["series"]) == {" ".join(pair) for pair in load_figure(folder / "figure4.yaml").pairs}
    assert len(figure4) == 3 * len(load_figure(folder / "figure4.yaml").pairs)
    assert figure4["rho"].between(0, 1).all()
    assert set(figure4[figure4["step"] == 0]["verdict"]) == {"baseline"}
    outer = pd.read_parquet(results / "chess" / "outer.parquet")
    assert len(outer) == (BASELINES - 1 + METRICS) * 8
    mechanisms = pd.read_csv(folder / "mechanisms.csv")
    assert set(mechanisms["kind"]) == {"inner", "outer-joint", "outer-held-out"}

    before = {path: path.read_bytes() for path in folder.glob("*.csv")}
    kept = list((results / "chess" / "comparisons").glob("*.json"))
    monkeypatch.setattr(collecting, "_compare", _must_not_be_called)
    assert main(arguments, folder) == 0
    assert {path: path.read_bytes() for path in before} == before
    assert sorted(kept) == sorted((results / "chess" / "comparisons").glob("*.json"))


def test_null_runs_are_judged_by_the_campaign_s_baselines(tmp_path: Path) -> None:
    from rich.console import Console

    (tmp_path / "p.c").write_text(PROGRAM)
    (tmp_path / "c.yaml").write_text(
        f"name: c\nprogram: {{source: p.c}}\nmachine: {FOLDER.parents[1] / 'configs' / 'machines' / 'strongarm.yaml'}\n"
        "hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS, PAPI_L1_DCM]\nsampling: {every: 1000 cycles}\n"
        "software_metrics: {work: {event: entry, function: work}}\ncumulative: {orders: 1}\n"
        "baselines: 4\nreplicates: 1\n"
    )
    campaign, document = load_campaign(tmp_path / "c.yaml")
    options: Any = {"workers": 1, "console": Console(quiet=True), "splits": 3}
    found = count_null_runs(campaign, document, tmp_path / "out", 3, **options)
    assert list(found["kind"]) == ["inner", "outer-joint", "outer-held-out"] * 3
    assert set(found["runs"]) == {3}
    verdicts = ["perturbed", "changed", "inconclusive", "equivalent", "not_assessable"]
    assert (found[verdicts].sum(axis=1) == 3).all()
    traces = len(list((tmp_path / "out" / "traces").glob("*.parquet")))
    assert traces == 7  # 4 baselines and 3 null runs, made once
    again = count_null_runs(campaign, document, tmp_path / "out", 3, **options)
    pd.testing.assert_frame_equal(again, found)
    assert said_of(found.assign(perturbed=[3, 0, 0] * 3), "inner", 150) == "150 (95th percentile 150)"


def test_counts_of_perturbed_runs_stand_beside_those_of_null_runs(tmp_path: Path) -> None:
    for path in FOLDER.glob("*.csv"):
        shutil.copy(path, tmp_path)
    plain = compare.rows(tmp_path)
    programs = sorted(pd.read_csv(tmp_path / "verdicts.csv")["campaign"].unique())
    kinds = ("inner", "outer-joint", "outer-held-out")
    every = [(program, split, kind) for program in programs for split in range(20) for kind in kinds]
    nulls = [(*one, 100, one[1], 0, 0, 100 - one[1], 0) for one in every]
    columns = ["campaign", "split", "kind", "runs", "perturbed", "changed"]
    columns += ["inconclusive", "equivalent", "not_assessable"]
    pd.DataFrame(nulls, columns=columns).to_csv(tmp_path / "nulls.csv", index=False)
    added = [row for row in compare.rows(tmp_path) if row not in plain]
    assert [name for name, _, _ in added] == [
        "Runs perturbed within runs, beside null runs", "Runs perturbed across runs, beside null runs"
    ]  # fmt: skip
    assert added[0][2].count("null runs 14 (95th percentile 27)") == len(programs)


def test_figure_4_shows_signed_changes_with_their_intervals() -> None:
    table = pd.read_csv(FOLDER / "figure4.csv")
    drawn = table[table["step"] > 0]
    assert (drawn["delta_z"] < 0).any()
    assert (drawn["delta_z"] > 0).any()
    assert (drawn["low"] < drawn["delta_z"]).all()
    assert (drawn["delta_z"] < drawn["high"]).all()
    assert (drawn["band_low"] < 0).all()
    assert (drawn["band_high"] > 0).all()
    figure = draw_changes(table, 0.2)
    lowest = min(axis.get_ylim()[0] for axis in figure.axes)
    assert lowest < -0.2  # the largest loss is below, and not folded to the other side


def _must_not_be_called(*_: Any) -> Any:
    raise AssertionError("what is kept was compared again")


def test_results_that_are_missing_are_named(tmp_path: Path) -> None:
    results = Results(tmp_path, load_figure(FOLDER / "figure3.yaml"))
    with pytest.raises(MeasureError, match=r"inner\.parquet: no such table; `python -m experiments"):
        results.table("inner", "chess")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("campaigns: [campaigns/none.yaml]", r"figure\.yaml:2: no such file: campaigns/none\.yaml"),
        (
            "pairs: [[PAPI_L1_DCM, PAPI_L2_TCN]]",
            r"figure\.yaml:2: .* no hardware metric 'PAPI_L2_TCN'.*PAPI_L2_TCM",
        ),
        (
            "settings: {other: {volatile: false}}",
            r"figure\.yaml:2: .*expected settings and variants together",
        ),
    ],
)
def test_bad_figure_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    folder = tiny(tmp_path / "figures")
    known = "" if text.startswith("campaigns") else "campaigns: [campaigns/chess.yaml]\n"
    path = folder / "figure.yaml"
    path.write_text(f"shows: nothing\n{text}\n{known}")
    with pytest.raises(CampaignError, match=message):
        load_figure(path)


def test_settings_change_campaigns_and_machines(tmp_path: Path) -> None:
    made = settings_of(load_figure(FOLDER / "mechanisms.yaml"), tmp_path)
    names = {load_campaign(path)[0].name for path in load_figure(FOLDER / "mechanisms.yaml").campaigns}
    assert {name for name, _ in made} == names
    for (name, setting), (campaign, _) in made.items():
        assert campaign.cumulative is None
        assert campaign.variants
        if campaign.machine_file.parent == tmp_path:
            assert campaign.machine_file.stem == f"{name}_{slug(setting)}"
    machines = {campaign.machine_file for campaign, _ in made.values()}
    texts = [yaml.safe_load(machine.read_text()) for machine in machines]
    assert len({yaml.safe_dump(text) for text in texts}) == len(machines)


def test_marks_that_are_missing_are_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a <!-- one --> old <!-- end --> b")
    assert between_marks(page, "new", "one") == "a <!-- one -->\nnew<!-- end --> b"
    with pytest.raises(MeasureError, match=r"page\.md: expected the marks <!-- two --> and <!-- end -->"):
        between_marks(page, "new", "two")


def test_bins_keep_the_mean() -> None:
    values = np.random.default_rng(1).integers(0, 100, 3000)
    assert binned(values, 400).shape == (400,)
    assert np.allclose(binned(values, 300).mean(), values.mean())
    assert np.array_equal(binned(values[:10], 400), values[:10])
