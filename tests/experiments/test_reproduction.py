"""The campaigns of the reproductions, the runner on tiny programs, and the figures from what is recorded."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from emulator.timing.machine_file import load_machine
from experiments.drawing import save_small
from experiments.reproduction import Reproduction, Task, load_reproduction, short_count, tasks_of
from experiments.results import (
    ResultError,
    Results,
    elf_of,
    file_of,
    full_traces,
    missing,
    perform,
    provenance,
)
from experiments.runner import record, run_folder, run_tasks
from measure.cycle_close.command import Job, trace_job
from measure.cycle_close.tracer import TracerSettings
from measure.errors import CampaignError
from measure.programs.catalogue import load_catalogue
from measure.report.style import new_figure

ROOT = Path(__file__).parent.parent.parent
FOLDERS = [ROOT / "experiments" / name for name in ("program_phases", "cycle_close")]
CAMPAIGNS = [path for folder in FOLDERS for path in sorted(folder.glob("*.yaml"))]
MACHINE = ROOT / "configs" / "machines" / "strongarm.yaml"
CATALOGUE = ROOT / "configs" / "programs.yaml"


def campaign_text(**changes: str) -> str:
    lines = {
        "shows": "Tiny",
        "runs": "[full, trace, vectors, online]",
        "programs": "{nbody: tiny}",
        "catalogue": str(CATALOGUE),
        "machine": str(MACHINE),
        "interval_instructions": "[100_000, 400_000]",
        "configurations": "{paper: {}, two runs: {samples: 1, base: L}}",
        **changes,
    }
    return "".join(f"{key}: {value}\n" for key, value in lines.items())


def tiny(folder: Path, **changes: str) -> Reproduction:
    path = folder / "tiny.yaml"
    path.write_text(campaign_text(**changes))
    return load_reproduction(path)


def figure_of(path: Path) -> Any:
    return importlib.import_module(f"experiments.{path.parent.name}.{path.stem}")


@pytest.mark.parametrize("path", CAMPAIGNS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_campaigns_are_valid_and_have_a_script(path: Path) -> None:
    campaign = load_reproduction(path)
    assert tasks_of([campaign])
    script = figure_of(path)
    assert callable(script.tabulate)
    assert callable(script.draw)


def test_every_figure_of_the_papers_has_a_campaign() -> None:
    names = {(path.parent.name, path.stem) for path in CAMPAIGNS}
    phases = {("program_phases", name) for name in ("figure1", "figure2", "figure3", "figure4", "table1")}
    assert names >= phases | {("cycle_close", f"figure{number}") for number in range(2, 7)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"programs": "{nbodi: tiny}"}, "3: no program 'nbodi' in the catalogue; did you mean 'nbody'?"),
        ({"programs": "{nbody: huge}"}, "3: nbody has no size 'huge', expected one of: tiny, small,"),
        ({"interval_instructions": "[10]"}, "6: interval_instructions: got [10], expected different lengths"),
        (
            {"configurations": "{a: {bass: L}}"},
            "7: configurations.a.bass: unknown setting 'bass'; did you mean 'base",
        ),
        ({"configurations": "{a: {base: 3L}}"}, "7: configurations.a.base: got '3L': Input should be 'L' or '2L'"),
        ({"configurations": "{a: {threshold: 0.5}}"}, "7: configurations.a.threshold: unknown setting 'threshold'"),
        (
            {"configurations": "{a: {samples: 0}}"},
            "7: configurations.a.samples: got 0, expected the samples of a phase, 1 or more",
        ),
        ({"machine": "nothing.yaml"}, "5: no such file: nothing.yaml"),
        ({"figure": "2"}, "8: figure: unknown key, expected one of: shows, runs, programs"),
    ],
)
def test_mistakes_are_refused_with_their_line(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    with pytest.raises(CampaignError) as refused:
        tiny(tmp_path, **changes)
    assert f"tiny.yaml:{message}" in str(refused.value)


def test_campaigns_share_runs(tmp_path: Path) -> None:
    one = tiny(tmp_path, interval_instructions="[100_000]", runs="[full, trace]")
    both = tiny(tmp_path, runs="[full, trace]")
    tasks = tasks_of([one, both])
    assert [task.lengths for task in tasks if task.kind == "full"] == [(100_000, 400_000)]
    assert len([task for task in tasks if task.kind == "trace"]) == 4  # two lengths, two configurations
    assert len(set(tasks)) == len(tasks)


def test_one_full_simulation_serves_every_length() -> None:
    elf, config = elf_of(CATALOGUE, "nbody"), load_machine(MACHINE)
    job = Job(elf, ("tiny",), MACHINE)
    together = full_traces(job, elf, config, (30_000, 100_000, 700_000))
    for length, table in together.items():
        alone = trace_job(job, elf, config, TracerSettings(length, everything=True), None).table
        for name in (
            "begin_instructions",
            "end_instructions",
            "cycles",
            "l1d_misses",
            "branches_mispredicted",
        ):
            np.testing.assert_allclose(table[name], alone[name], rtol=0, atol=1e-6)


def test_runner_keeps_results_resumes_and_notices_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign, directory = tiny(tmp_path), tmp_path / "results"
    tasks = tasks_of([campaign])
    performed: list[Task] = []

    def counting(task: Task, where: Path) -> None:
        if len(performed) == 3:
            raise KeyboardInterrupt
        performed.append(task)
        perform(task, where)

    monkeypatch.setattr("experiments.runner.perform", counting)
    with pytest.raises(KeyboardInterrupt):
        run_tasks(tasks, directory)
    kept = {path: path.stat().st_mtime_ns for path in directory.glob("*/*.*")}
    assert len(kept) == 4  # the full simulation of two lengths, and two more

    monkeypatch.setattr("experiments.runner.perform", perform)
    assert run_tasks(tasks, directory) == len(tasks) - 3
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert run_tasks(tasks, directory) == 0

    results = Results(directory, campaign)
    full, trace = results.full("nbody", 100_000), results.trace("nbody", 100_000, 0.25, "two runs")
    vectors, online = results.vectors("nbody", 100_000), results.online("nbody", 100_000, 0.25, "paper")
    for ends in (trace["end_instructions"], vectors.ends[1:], online["end_instructions"]):
        np.testing.assert_array_equal(ends, full["end_instructions"])
    np.testing.assert_array_equal(vectors.blocks.instructions, full["instructions"])
    assert full.attrs["seconds"] > 0
    assert trace.attrs["phases"] == trace["phase"].nunique()

    one = replace(tasks[0], lengths=(100_000,))
    made_by = provenance(one)
    monkeypatch.setattr("experiments.results.provenance", lambda task: made_by | {"code": "other"})
    assert missing(one, directory) == one
    assert missing(one, directory, keep=True) is None


def test_damaged_results_are_made_again_and_absent_ones_named(tmp_path: Path) -> None:
    campaign, directory = tiny(tmp_path, runs="[vectors]"), tmp_path / "results"
    first, second = tasks_of([campaign])
    perform(first, directory)
    path = file_of(first, 100_000, directory)
    assert missing(first, directory) is None
    path.write_bytes(path.read_bytes()[:100])
    assert missing(first, directory) == first
    with pytest.raises(ResultError, match=r"for 'nbody vectors \(400k\)': run this folder's `run` first"):
        Results(directory, campaign).vectors("nbody", second.lengths[0])


def test_settings_have_files_of_their_own(tmp_path: Path) -> None:
    tasks = tasks_of([tiny(tmp_path)])
    places = [file_of(task, length, tmp_path) for task in tasks for length in task.lengths]
    assert len(set(places)) == len(places)


def test_the_command_runs_a_campaign_and_makes_its_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = campaign_text(thresholds="[0.25]", runs="[full, trace, online]", programs="{nbody: small}")
    (tmp_path / "figure2.yaml").write_text(text)
    arguments = ["figure2.yaml", "--size", "tiny", "--jobs", "2"]
    assert run_folder(FOLDERS[1], arguments) == 0
    made = tmp_path / "results" / "cycle_close"
    table = pd.read_csv(made / "figure2.csv")
    assert set(table["program"]) == {"nbody", "geometric mean"}
    whole = table[table["configuration"] == "full"]
    assert whole["instructions"].between(3e6, 4e6).all()
    assert (made / "figure2.png").stat().st_size > 5_000
    assert run_folder(FOLDERS[1], ["nowhere.yaml"]) == 2
    assert "nowhere.yaml: cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "path",
    [path for path in CAMPAIGNS if path.with_suffix(".csv").is_file()],
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_figures_are_drawn_from_what_is_recorded(path: Path, tmp_path: Path) -> None:
    script, campaign = figure_of(path), load_reproduction(path)
    (tmp_path / f"{path.stem}.csv").write_bytes(path.with_suffix(".csv").read_bytes())
    record(path.stem, campaign, None, script.tabulate, script.draw, tmp_path)
    picture, words = tmp_path / f"{path.stem}.png", tmp_path / f"{path.stem}.md"
    if picture.exists():
        assert 5_000 < picture.stat().st_size <= 150_000
    else:
        assert words.read_text() == path.with_suffix(".md").read_text()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_pages_hold_what_the_recorded_tables_say(folder: Path) -> None:
    compare = importlib.import_module(f"experiments.{folder.name}.compare")
    page = (folder / "README.md").read_text()
    for row in compare.rows(folder):
        assert f"| {' | '.join(row)} |" in page


def test_pictures_are_kept_small(tmp_path: Path) -> None:
    figure, axis = new_figure(8, 8)
    noise = np.random.default_rng(1).random((700, 700))
    axis.imshow(noise, cmap="gray")
    save_small(figure, tmp_path / "noise.png")
    figure.savefig(tmp_path / "whole.png", dpi=120)
    assert (tmp_path / "noise.png").stat().st_size < 0.7 * (tmp_path / "whole.png").stat().st_size


def test_lengths_are_written_short() -> None:
    assert [short_count(count) for count in (100_000, 1_000_000, 2_500_000)] == ["100k", "1M", "2.5M"]


def test_catalogue_has_every_program_at_a_billion_instructions_where_the_papers_do() -> None:
    known = load_catalogue(CATALOGUE)
    for path in CAMPAIGNS:
        for program, size in load_reproduction(path).programs.items():
            assert known[program].instructions[size] >= 1e9
