"""The tracing experiment: its campaign, its levels, what it makes of runs, and a small run of the real thing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import emulator.engine.translator
import emulator.linux.vfs.files
from emulator.analyzers.analysis_session import Session
from emulator.machine import Machine
from experiments.shade import run as command
from experiments.shade.campaign import Campaign, load_campaign
from experiments.shade.levels import LEVELS
from experiments.shade.others import TOOLS, Place
from experiments.shade.profiling import PLACES, place_of, profiled
from experiments.shade.tables import MEAN, PAPER, redraw, write_tables
from instrumenter.building.program_build import build_program
from measure.errors import CampaignError, MeasureError

FOLDER = Path(__file__).parents[2] / "experiments" / "shade"
GUEST = """
volatile long data[512];
int main(int argc, char **argv) {
  unsigned long s = argc;
  for (long i = 0; i < 3000000; i++) s += data[s & 511] += s ^ i;
  return (int)(s & 0);
}
"""


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("shade") / "guest.c"
    source.write_text(GUEST)
    return build_program([source], ["-O2"]).elf_path


def test_the_campaign_has_all_levels_and_tools() -> None:
    campaign = load_campaign(FOLDER / "shade.yaml")
    assert campaign.levels == (0, 1, 2, 3, 4, 5)
    assert set(campaign.others) == set(TOOLS)
    assert len(campaign.programs) == 5


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("programs: [bwtzi]", r"c.yaml:1: programs: no program 'bwtzi'.*bwtzip"),
        ("programs: [chess]\nsize: huge", r"c.yaml:2: size: got 'huge', expected one of tiny, small"),
        (
            "programs: [chess]\nlevels: [1, 2]",
            r"c.yaml:2: levels: got \[1, 2\], expected 0 and others up to 5",
        ),
        ("programs: [chess]\nothers: [qemo]", r"c.yaml:2: others: no tool 'qemo'.*qemu"),
        ("programs: [chess]\nround: 1", r"c.yaml:2: .*round"),
    ],
)
def test_mistakes_are_refused_with_their_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "c.yaml"
    rest = "" if "levels" in line else "\nlevels: [0]"
    path.write_text(f"{line}{rest}\nshows: x\n")
    with pytest.raises(CampaignError, match=message):
        load_campaign(path)


@pytest.mark.parametrize("level", range(len(LEVELS) - 1))
def test_a_level_records_what_it_says(guest: Path, level: int) -> None:
    words, analyzer = LEVELS[level][0], LEVELS[level][1]()
    seen: list[tuple[int, ...]] = []

    def note(state: object, *columns: np.ndarray) -> None:
        seen.append(tuple(len(column) for column in columns))

    if analyzer.function is not None:
        analyzer.function = note
    with Machine(guest, background=False) as machine:
        session = Session(machine, [analyzer])
        session.run()
        counted = session.block_counts() @ machine.facts.blocks["n_instructions"].astype(np.int64)
        session.finish()
        instructions = machine.instructions
    fields = {2: 2, 3: 5, 4: 9}.get(level, 0)
    assert {len(lengths) for lengths in seen} == ({fields} if fields else set())
    assert sum(lengths[0] for lengths in seen) == (instructions if fields else 0)
    assert counted == (instructions if level == 1 else 0), words


def test_the_last_level_calls_functions_around_each_instruction(guest: Path) -> None:
    def count_before(state: np.ndarray, pc: int) -> None:
        state[0] += 1

    def count_after(state: np.ndarray, pc: int) -> None:
        state[1] += 1

    analyzer = LEVELS[5][1]()
    analyzer.state = np.zeros(2, np.int64)
    analyzer.inline_before, analyzer.inline_after = count_before, count_after
    with Machine(guest, background=False) as machine:
        session = Session(machine, [analyzer])
        session.run()
        session.finish()
        # What ends the program is not over.
        assert analyzer.state.tolist() == [machine.instructions, machine.instructions - 1]


@pytest.mark.parametrize("level", [0, 2, 5])
def test_a_profile_tells_where_time_goes(
    guest: Path, level: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emulator.native_code.compiler.checked_or_made", lambda path, make: make())  # an empty cache
    told = json.loads(json.dumps(profiled(level, str(guest), [])))
    assert told["instructions"] > 3_000_000
    assert set(told["places"]) == set(PLACES)
    assert 0 < sum(told["places"].values()) <= 1.1 * told["seconds"]
    assert told["places"]["translations"] > 0
    cost = told["costs"]["optimised"]
    assert cost["regions"] >= 1
    assert cost["instructions"] >= 8
    assert 0 < cost["text_seconds"] < cost["seconds"]
    assert cost["host_bytes"] > 2 * cost["instructions"]
    assert 2 < told["block_instructions"] < 30
    assert told["host_bytes"] > told["guest_bytes"] > 4
    assert 0 < told["translated"] <= 1


def test_places_are_by_the_innermost_function_of_ours() -> None:
    def inside(file: str, name: str) -> str:
        scope: dict[str, object] = {"look": lambda: place_of(sys._getframe(1)), "found": []}
        exec(compile(f"def {name}(): return look()\nfound.append({name}())", file, "exec"), scope)
        found = scope["found"]
        assert isinstance(found, list)
        return str(found[0])

    base = Path(emulator.engine.translator.__file__).parents[1]
    assert inside(str(base / "execution" / "translated_runner.py"), "_run_slice") == "translations"
    assert inside(str(base / "machine.py"), "observe") == "Python"
    assert inside(str(base / "engine" / "region.py"), "emit") == "translating"
    assert inside(str(base / "analyzers" / "expand.py"), "batches") == "delivery"
    assert inside(str(base / "linux" / "files.py"), "open") == "system calls"
    assert place_of(None) == "Python"


def small_campaign(**changes: object) -> Campaign:
    about = {
        "shows": "a test",
        "programs": ("chess", "nbody"),
        "size": "small",
        "slow_size": "tiny",
        "rounds": 2,
    }
    return Campaign.model_validate({**about, "levels": (0, 2), "others": ("qemu", "qemu-execlog"), **changes})


def made_up_results(directory: Path, campaign: Campaign) -> None:
    rows = []
    for program in campaign.programs:
        for n in range(2):  # the second round is the slower one
            for way, size, seconds, inside, instructions in (
                ("native", "small", 1.0, "", ""), ("cold", "small", 3.0, 2.5, 1000),
                ("level-0", "small", 2.0, 1.5, 1000), ("level-2", "small", 8.0, 7.0, 1000),
                ("qemu", "small", 4.0, "", ""), ("qemu-execlog", "tiny", 10.0, "", ""),
            ):  # fmt: skip
                rows.append((program, way, size, n, seconds + n, inside, instructions))
        rows.append((program, "level-0", "tiny", 0, 1.0, 0.5, 100))
    (directory / "profiles").mkdir(parents=True)
    pd.DataFrame(rows, columns=command.COLUMNS).to_csv(directory / "runs.csv", index=False)
    cost = {"regions": 2, "instructions": 100, "seconds": 0.02, "text_seconds": 0.005, "host_bytes": 3000}
    for program in campaign.programs:
        for level in campaign.levels:
            told = {
                "instructions": 1000, "seconds": 4.0, "processor_seconds": 5.0, "guest_bytes": 10.0,
                "host_bytes": 50.0 * (1 + level), "block_instructions": 5.0, "translated": 0.9,
                "places": dict(zip(PLACES, (2.0, 1.0, 0.5, 0.25, 0.25), strict=True)),
                "costs": {"templates": {**cost, "instructions": 0, "regions": 0}, "optimised": cost},
            }  # fmt: skip
            (directory / "profiles" / f"{program}-{level}.json").write_text(json.dumps(told))


def test_tables_of_made_up_runs(tmp_path: Path) -> None:
    campaign = small_campaign()
    made_up_results(tmp_path, campaign)
    write_tables(campaign, tmp_path, tmp_path / "out")
    first = pd.read_csv(tmp_path / "out" / "table1.csv").set_index(["program", "way"])
    assert first["slowdown"][MEAN, "level-2"] == pytest.approx(8)
    assert first["inside"]["chess", "level-0"] == pytest.approx(1.5)
    assert first["slowdown"]["nbody", "qemu-execlog"] == pytest.approx(100)  # a tenth of the instructions
    assert first["level"]["chess", "qemu-execlog"] == 4
    second = pd.read_csv(tmp_path / "out" / "table2.csv")
    assert second["expansion"].tolist() == [5, 15, 5, 15]
    third = pd.read_csv(tmp_path / "out" / "table3.csv")
    assert third[list(PLACES)].iloc[0].tolist() == [50, 25, 12.5, 6.25, 6.25]
    assert third["in the background"][0] == pytest.approx(0.5)
    fourth = pd.read_csv(tmp_path / "out" / "table4.csv").set_index(["program", "level", "tier"])
    assert fourth["microseconds_each"]["chess", 0, "optimised"] == pytest.approx(200)
    page = (tmp_path / "out" / "tables.md").read_text()
    assert "| **geometric mean** | 2.00 | 8.00 |" in page
    assert "| *the paper's gcc* | 6.1 | 14.3 |" in page
    assert "| plug-in execlog: a line of text an instruction | tiny | 4 | 100.0 | 100.0 | 100.0 | - |" in page
    assert "| chess, optimised (instructions) | 200 (100) | 200 (100) |" in page
    assert (tmp_path / "out" / "slowdown.png").stat().st_size < 150_000
    (tmp_path / "out" / "tables.md").unlink()
    redraw(campaign, tmp_path / "out")
    assert (tmp_path / "out" / "tables.md").read_text() == page


def test_results_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(MeasureError, match=r"runs.csv: run `python -m experiments.shade.run` first"):
        write_tables(small_campaign(), tmp_path, tmp_path)


def test_the_papers_numbers_are_whole() -> None:
    assert {len(numbers) for one in PAPER.values() for numbers in one.values()} == {6}
    assert all(list(one["slowdown"]) == sorted(one["slowdown"]) for one in PAPER.values())


def test_slow_tools_have_the_same_instructions_to_compare_with() -> None:
    runs = list(command.runs_of(small_campaign()))
    assert len(runs) == len(set(runs)) == 2 * 2 * 6 + 2
    assert {run.size for run in runs if run.way == "qemu-execlog"} == {"tiny"}
    assert [run.way for run in runs if run.size == "tiny" and run.way != "qemu-execlog"] == ["level-0"] * 2


def test_tools_that_are_not_there_are_left_out(tmp_path: Path) -> None:
    place = Place(tmp_path / "n", tmp_path / "p", tmp_path / "g")
    assert TOOLS["qemu-cache"].command(place) is None
    library = tmp_path / "libcache.so"
    library.write_bytes(b"")
    found = TOOLS["qemu-cache"].command(Place(place.native, place.plain, place.guest, tmp_path))
    assert found is None or found[2] == f"{library},l2=on"


@pytest.mark.slow
def test_the_command_on_a_tiny_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    short = ["--programs", "ooosim", "--size", "tiny", "--rounds", "1", "--levels", "0"]
    monkeypatch.setattr(command, "load_campaign", lambda path: small_campaign(others=()))
    assert command.main(short) == 0
    results = Path("results/shade")
    runs = pd.read_csv(results / "runs.csv")
    assert runs["way"].tolist() == ["native", "cold", "level-0"]
    assert (runs["seconds"] > 0).all()
    assert (results / "tables.md").read_text().count("ooosim") >= 9
    before = (results / "runs.csv").read_text()
    assert command.main([*short, "--keep"]) == 0
    assert (results / "runs.csv").read_text() == before
    assert not (FOLDER / "table1.csv").exists() or "ooosim" in (FOLDER / "table1.csv").read_text()
