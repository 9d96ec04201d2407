"""Campaigns whose program is made by a build command of its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from common.file_cache import cache_directory
from emulator.linux.loader.elf import ElfImage, load_image
from measure.campaign.event_counts import count_events
from measure.cli import main
from measure.errors import CampaignError
from measure.run_types import BASELINE, NULL_CONTROL
from measure.runs.builds import Builds
from measure.runs.campaign_file import load_campaign
from measure.runs.plan_file import load_plan
from measure.targets.program_file import program_of

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")

ROOT = Path(__file__).parents[3]
CAMPAIGN = """\
name: own-build
program: {program}
machine: {machine}
sampling: {{mode: {mode}, every: 4000 cycles}}
hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS]
software_metrics:
  rounds: {{event: entry, function: {function}}}
baselines: 3
replicates: 2
noise: {{code_layouts: {layouts}}}
"""
PROGRAM = "{build: make CC=$CC program, directory: demo, binary: program, args: [3]}"
MAKEFILE = """\
program: main.o libwork.a
\t$(CC) -o program main.o libwork.a
libwork.a: work.o
\t$(AR) rc $@ work.o
%.o: %.c
\t$(CC) -O2 -c $<
"""
MAIN = """\
#include <stdio.h>
#include <stdlib.h>
void work(int n);
extern unsigned table[4096];
int main(int argc, char **argv)
{
    for (int round = 0; round < 10 * atoi(argv[1]); round++)
        work(500 + 400 * (round % 5));
    printf("%u\\n", table[5]);
    return 0;
}
"""
WORK = """\
unsigned table[4096], state = 1;
unsigned next(void) { state = state * 1664525u + 1013904223u; return state >> 8; }
void work(int n) { for (int i = 0; i < n; i++) table[next() % 4096] += i; }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A campaign and its project; builds go to an empty cache, what takes long to make stays where it is."""
    (tmp_path / "cache/perturbation").mkdir(parents=True)
    for part in ("zig", "numba", "translations"):
        kept = cache_directory() / part
        kept.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cache/perturbation" / part).symlink_to(kept)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "demo").mkdir()
    for name, text in {"Makefile": MAKEFILE, "main.c": MAIN, "work.c": WORK}.items():
        (tmp_path / "demo" / name).write_text(text)
    write_campaign(tmp_path)
    return tmp_path


def write_campaign(
    folder: Path, program: str = PROGRAM, mode: str = "ideal", function: str = "work", layouts: object = 2
) -> Path:
    machine = ROOT / "configs/machines/desktop.yaml"
    path = folder / "c.yaml"
    path.write_text(CAMPAIGN.format(program=program, machine=machine, mode=mode, function=function, layouts=layouts))
    return path


def run(folder: Path) -> Result:
    arguments = ["run", str(folder / "c.yaml"), "--out", str(folder / "out"), "--workers", "1"]
    return CliRunner().invoke(main, arguments)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ideal", "signal"])
def test_a_project_is_linked_anew_for_every_run(folder: Path, mode: str) -> None:
    write_campaign(folder, mode=mode, layouts="each run")
    result = run(folder)
    assert result.exit_code == 0, result.output
    summary = json.loads((folder / "out/summary.json").read_text())
    assert summary["runs"] == {"done": 7, "reused": 0, "failed": 0}
    assert summary["provenance"]["code layouts"].startswith("7 orders of functions and data, linked anew")
    assert " within a run, " in summary["controls"]
    plan = load_plan(folder / "out")
    images: dict[str, list[ElfImage]] = {spec.variant: [] for spec in plan.specs}
    for spec in plan.specs:
        images[spec.variant].append(load_image(program_of(spec)))
    assert {variant: len(found) for variant, found in images.items()} == {BASELINE: 3, "all": 2, NULL_CONTROL: 2}
    places = [image.find_symbol("work") for found in images.values() for image in found]
    assert len({place.address for place in places if place is not None}) == 7
    assert all(image.find_symbol("__measure_null_control") is not None for image in images[NULL_CONTROL])
    assert all(image.find_symbol("__measure_null_control") is None for image in images[BASELINE])


@pytest.mark.slow
def test_a_program_that_tells_by_its_name_what_it_is_wanted_for_has_its_name(folder: Path) -> None:
    """toybox and busybox: "Unknown command program"."""
    demo = folder / "demo"
    (demo / "Makefile").write_text(MAKEFILE.replace("program: main", "count: main").replace("-o program", "-o count"))
    by_name = MAIN.replace("{\n    for", '{\n    if (strcmp(argv[0], "count")) return 9;\n    for', 1)
    (demo / "main.c").write_text("#include <string.h>\n" + by_name)
    write_campaign(folder, program=PROGRAM.replace("CC=$CC program", "CC=$CC count").replace("y: program", "y: count"))
    assert [one.events for one in count_events(*load_campaign(folder / "c.yaml")).metrics] == [30]
    campaign = folder / "c.yaml"
    campaign.write_text(campaign.read_text().replace("function: work", "function: work, method: second_run"))
    result = run(folder)
    assert result.exit_code == 0, result.output


@pytest.mark.slow
def test_a_project_that_changes_its_program_after_linking_is_shifted(folder: Path) -> None:
    makefile = folder / "demo/Makefile"
    makefile.write_text(makefile.read_text().replace(
        "main.o libwork.a\nlibwork", "main.o libwork.a\n\techo changed >> program\nlibwork"
    ))  # fmt: skip
    write_campaign(folder, layouts="each run")
    result = run(folder)
    assert result.exit_code == 0, result.output
    provenance = json.loads((folder / "out/summary.json").read_text())["provenance"]
    assert "as the program cannot be linked anew" in provenance["code layouts"]


@pytest.mark.slow
def test_from_makefile_to_report(folder: Path) -> None:
    write_campaign(folder)
    result = run(folder)
    assert result.exit_code == 0, result.output
    summary = json.loads((folder / "out/summary.json").read_text())
    assert summary["runs"] == {"done": 7, "reused": 0, "failed": 0}
    assert sorted(path.name for path in (folder / "demo").iterdir()) == ["Makefile", "main.c", "work.c"]
    for command in ("report", "merge"):
        done = CliRunner().invoke(main, [command, str(folder / "out")])
        assert done.exit_code == 0, done.output
    assert (folder / "out/merged.parquet").exists()
    counts = count_events(*load_campaign(folder / "c.yaml")).metrics
    assert [(one.metric, one.events, one.places) for one in counts] == [("rounds", 30, {"work.c:3": 1})]
    again = run(folder)
    assert json.loads((folder / "out/summary.json").read_text())["runs"]["reused"] == 7
    assert "Building" not in again.output
    source = folder / "demo/work.c"
    source.write_text(source.read_text().replace("4096] += i", "4096] -= i"))
    run(folder)
    assert json.loads((folder / "out/summary.json").read_text())["runs"]["reused"] == 0


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("{build: make}", "c.yaml:2: program: `build` needs `directory`"),
        ("{build: make, directory: demo}", "c.yaml:2: program: `build` needs `binary`"),
        ("{source: demo/main.c, binary: x}", "c.yaml:2: program: `binary` means nothing without `build`"),
        (
            "{build: make, source: demo/main.c}",
            "c.yaml:2: program: expected exactly one of source, sources, catalogue",
        ),
        ("{build: make, directory: demos, binary: x}", "c.yaml:2: no such directory: demos (looked for"),
        (
            "{build: make, directory: demo, binary: ../x}",
            "c.yaml:2: program.binary: got '../x', expected a path",
        ),
        (
            "{build: make, directory: demo, binary: x, flags: [-O1]}",
            "say it in the command, such as make CC=$CC CFLAGS",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(folder: Path, program: str, problem: str) -> None:
    with pytest.raises(CampaignError) as caught:
        load_campaign(write_campaign(folder, program))
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("program", "function", "problem"),
    [
        (PROGRAM.replace("make CC", "make all CC"), "work",
         "c.yaml:2: the build command failed with exit status 2: make all CC=$CC program"),
        (PROGRAM.replace("CC=$CC", "CC=cc"), "work",
         "c.yaml:2: 'program' is for x86-64, expected RISC-V: the build did not use $CC"),
        (PROGRAM, "wrok", "c.yaml:7: metric 'rounds': no function 'wrok' in main.c, work.c; did you mean 'work'?"),
    ],
)  # fmt: skip
def test_a_build_that_goes_wrong_is_told_with_its_place(
    folder: Path, program: str, function: str, problem: str
) -> None:
    write_campaign(folder, program, function=function)
    result = run(folder)
    assert result.exit_code == 2
    assert problem in " ".join(result.output.split())
    assert not (folder / "out/traces").exists()


def test_the_build_of_each_variant_is_named_and_numbered(folder: Path) -> None:
    campaign, document = load_campaign(folder / "c.yaml")
    said: list[str] = []
    builds = Builds(campaign, document, 100_000_000, said.append)
    builds.make([(BASELINE, 0), ("all", 0)])
    assert [text for text in said if text.startswith("Building the project")] == [
        "Building the project for the plain program (1 of 2) by its own command: make CC=$CC program",
        "Building the project for all (2 of 2) by its own command, counting 1 metric: make CC=$CC program",
    ]
