"""Programs of a campaign: those that runs draw, in several processes, mistakes told in the campaign's terms."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from common.compiler_cache import compiler_cache
from instrumenter.building.program_build import Build, CompiledProgram, Recipe
from instrumenter.compiler.toolchain import Toolchain
from measure.errors import CampaignError
from measure.run_types import BASELINE
from measure.runs import build_notices
from measure.runs.build_notices import PendingBuild, last_line, unfinished, waiting
from measure.runs.builds import Builds, make_all
from measure.runs.campaign_file import load_campaign
from measure.runs.executor import Workers

ROOT = Path(__file__).parents[3]
SOURCE = """
volatile int sink;
{functions}
int main(void) {{ for (int i = 0; i < 100; i++) {{ {calls} }} return 0; }}
"""
NAMES = [f"f{n}" for n in range(5)]


@pytest.fixture
def campaign_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    functions = "\n".join(f"void {name}(void) {{ sink += {n}; }}" for n, name in enumerate(NAMES))
    (tmp_path / "p.c").write_text(SOURCE.format(functions=functions, calls=" ".join(f"{name}();" for name in NAMES)))
    metrics = "".join(f"  {name}: {{event: entry, function: {name}}}\n" for name in NAMES)
    (tmp_path / "c.yaml").write_text(
        f"name: c\nprogram: {{source: p.c}}\nmachine: {ROOT}/configs/machines/strongarm.yaml\n"
        f"hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS]\nsoftware_metrics:\n{metrics}cumulative: {{orders: 1}}\n"
    )
    return tmp_path / "c.yaml"


def builds_of(path: Path) -> Builds:
    campaign, document = load_campaign(path)
    return Builds(campaign, document, 100_000_000, lambda message: None)


def test_a_variant_may_be_called_as_the_second_run_of_another_is_in_messages(campaign_file: Path) -> None:
    with campaign_file.open("a") as file:
        file.write('variants: {all: [f0, f1], "all, second run": [f2]}\n')
    campaign, document = load_campaign(campaign_file, ["cumulative=null", "software_metrics.f0.method=second_run"])
    builds = Builds(campaign, document, 100_000_000, lambda message: None)
    measured, counting, other = builds["all", 0], builds.second_program("all"), builds["all, second run", 0]
    assert counting is not None
    assert [list(build.counters) for build in (measured, counting, other)] == [["f1"], ["f0"], ["f2"]]
    assert builds.second_program("all, second run") is None
    assert {name: [one.key for one in found] for name, found in builds.facts().items()} == {
        BASELINE: [], "all": [measured.key], "all, second run": [other.key]
    }  # fmt: skip
    assert [one.key for one in builds.second_facts()["all"]] == [counting.key]


def test_only_what_is_asked_for_is_built_and_in_several_processes(campaign_file: Path) -> None:
    builds = builds_of(campaign_file)
    wanted = [(BASELINE, 0), *[(f"order1-{n}", n % 2) for n in range(1, 6)]]
    builds.make(wanted, workers=2)
    facts = builds.facts()
    assert {group: len(made) for group, made in facts.items()} == dict.fromkeys([group for group, _ in wanted], 1)
    assert [len(builds[one].counters) for one in wanted] == [0, 1, 2, 3, 4, 5]
    sizes = [facts[group][0].static_instructions for group, _ in wanted]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]
    again = builds_of(campaign_file)
    assert again[wanted[3]] == builds[wanted[3]]


def test_sources_are_compiled_until_the_library_is_there_and_then_linked(
    campaign_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [(BASELINE, 0), ("order1-1", 0), ("order1-2", 0)]
    usual = builds_of(campaign_file)
    usual.make(wanted)
    # An empty cache of builds beside the compiler's libraries.
    compilers = compiler_cache()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiler_cache().parent.mkdir()
    compiler_cache().symlink_to(compilers)
    monkeypatch.setattr(Toolchain, "lacks_c_library", property(lambda toolchain: "linked" not in done))
    done: list[str] = []
    compile_all, link = Recipe.compiled, CompiledProgram.link

    def compiled(recipe: Recipe, *arguments: Any) -> Any:
        done.append("compiled")
        return compile_all(recipe, *arguments)

    def linked(program: CompiledProgram) -> Build:
        done.append("linked")
        return link(program)

    monkeypatch.setattr(Recipe, "compiled", compiled)
    monkeypatch.setattr(CompiledProgram, "link", linked)
    ahead = builds_of(campaign_file)
    ahead.make(wanted)
    assert done == ["compiled"] * 3 + ["linked"] * 3
    for one in wanted:
        assert ahead[one].elf_path != usual[one].elf_path
        assert ahead[one].elf_path.read_bytes() == usual[one].elf_path.read_bytes()
        assert ahead[one].counters == usual[one].counters


def test_code_that_only_moves_the_program_is_not_counted(campaign_file: Path) -> None:
    builds = builds_of(campaign_file)
    builds.make([(BASELINE, 0), (BASELINE, 1)])
    first, second = builds.facts()[BASELINE]
    assert builds[BASELINE, 1].text_bytes > builds[BASELINE, 0].text_bytes
    assert first.static_instructions == second.static_instructions


def test_a_metric_without_events_is_told_with_its_line(campaign_file: Path) -> None:
    text = campaign_file.read_text().replace("function: f3}", "function: f9}")
    campaign_file.write_text(text)
    line = next(n for n, row in enumerate(text.splitlines(), 1) if row.startswith("  f3:"))
    builds = builds_of(campaign_file)
    with pytest.raises(CampaignError, match=rf"c\.yaml:{line}: .*no function 'f9'.*did you mean"):
        builds.make([(f"order1-{n}", 0) for n in range(1, 6)], workers=2)


def test_programs_of_several_campaigns_are_built_in_processes_at_hand(campaign_file: Path) -> None:
    first = builds_of(campaign_file)
    campaign, document = load_campaign(campaign_file, ["placement=cache_line"])
    second = Builds(campaign, document, 100_000_000, lambda message: None)
    wanted = [("order1-5", 0), ("order1-5", 1), ("order1-4", 0)]
    with Workers(2) as workers:
        make_all([(first, wanted), (second, wanted)], pool=workers.local_pool)
    for builds in (first, second):
        assert builds.missing(wanted) == []
        assert [len(builds[one].counters) for one in wanted] == [5, 5, 4]
    assert first[wanted[0]].key != second[wanted[0]].key
    assert len({first[one].key for one in wanted}) == 3


def test_a_mistake_is_told_from_processes_at_hand(campaign_file: Path) -> None:
    good = builds_of(campaign_file)
    text = campaign_file.read_text().replace("function: f3}", "function: f9}")
    campaign_file.write_text(text)
    wrong = builds_of(campaign_file)
    wanted = [("order1-5", 0)]
    with Workers(1) as workers:
        with pytest.raises(CampaignError, match=r"c\.yaml:\d+: .*no function 'f9'"):
            make_all([(good, wanted), (wrong, wanted)], pool=workers.local_pool)
        make_all([(good, wanted)], pool=workers.local_pool)  # they are not ended
    assert good.missing(wanted) == []


def test_long_builds_say_what_is_built_and_for_how_long(
    campaign_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(build_notices, "LINE_SECONDS", 0.01)
    said: list[str] = []
    campaign, document = load_campaign(campaign_file, ["seed=77", "program.flags=[-O1]"])
    Builds(campaign, document, 100_000_000, said.append).make([(BASELINE, 0), ("order1-1", 0)])
    still = [text.rpartition(", ")[0] for text in said if text.startswith("Still building")]
    assert list(dict.fromkeys(still)) == [
        "Still building the plain program (1 of 2)", "Still building order1-1 (2 of 2)",
    ]  # fmt: skip


def test_a_line_names_the_programs_that_are_not_built() -> None:
    ended = {"light"}

    def pending(*names: str) -> list[PendingBuild]:
        return [PendingBuild(name, ended=lambda name=name: name in ended) for name in names]  # type: ignore[misc]

    assert unfinished(pending("light", "heavy", "all")) == "heavy, all (1 of 3 are built)"
    assert unfinished(pending("light", "heavy", "all"), built=1) == "heavy, all (2 of 4 are built)"
    assert unfinished(pending(*"abcdef")) == "a, b, c, d and 2 more (0 of 6 are built)"
    assert unfinished(pending("heavy")) == "heavy"
    ended.add("all")
    long = [f"the program with {name} and {'function_entries ' * 4}" for name in ("light", "heavy", "some")]
    assert unfinished(pending("all", *long)) == "3 programs (1 of 4 are built)"
    said: list[str] = []
    with waiting(said.append, pending("nothing")):
        pass
    assert said == []


def test_a_line_ends_with_what_a_build_printed_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the build that printed latest, with its name where there are several; nothing of an earlier attempt."""
    monkeypatch.setattr(build_notices, "LINE_SECONDS", 0.01)
    monkeypatch.setattr(build_notices, "_MOST_PAUSE_SECONDS", 0.01)
    outputs = {name: tmp_path / f"{name}.log" for name in ("light", "heavy")}
    ended: set[str] = set()
    builds = [
        PendingBuild(name, lambda path=path: [path, tmp_path / "none"], lambda name=name: name in ended)  # type: ignore[misc]
        for name, path in outputs.items()
    ]
    said: list[str] = []

    def next_line() -> str:
        before, deadline = len(said), time.monotonic() + 30
        while len(said) < before + 2:  # the first may have been under way
            assert time.monotonic() < deadline
            time.sleep(0.005)
        return said[-1]

    outputs["light"].write_text("make: *** of yesterday")
    os.utime(outputs["light"], (1e9, 1e9))
    with waiting(said.append, builds):
        assert re.fullmatch(r"Still building light, heavy \(0 of 2 are built\), 0 s", next_line())
        outputs["light"].write_text("CC a.c\n")
        os.utime(outputs["light"], (later := time.time() + 1, later))
        outputs["heavy"].write_text("CC b.c\n")
        os.utime(outputs["heavy"], (later - 0.5, later - 0.5))
        assert next_line().endswith(", 0 s; light printed last: CC a.c")
        ended.add("light")
        assert next_line().endswith("heavy (1 of 2 are built), 0 s; heavy printed last: CC b.c")
    with waiting(said.append, builds[1:]):
        os.utime(outputs["heavy"], (later := time.time() + 1, later))  # clocks of files may be some ms late
        assert next_line() == "Still building heavy, 0 s; it printed last: CC b.c"


def test_the_last_line_of_an_output_is_printable_and_short(tmp_path: Path) -> None:
    output = tmp_path / "log"
    for text, expected in (
        ("test one: ok\n\033test two: \n\n", "test two:"), ("10%\r20%\r", "20%"), ("", ""),
        ("a" * 200, "..." + "a" * 120),
    ):  # fmt: skip
        output.write_text(text)
        assert last_line(output) == expected


def test_a_project_that_builds_for_long_shows_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_notices, "LINE_SECONDS", 0.2)
    monkeypatch.setattr(build_notices, "_MOST_PAUSE_SECONDS", 0.2)
    (tmp_path / "p").mkdir()
    # New each time: a build that is kept would print nothing.
    (tmp_path / "p" / "m.c").write_text(f"int main(void) {{ return 0; }} /* {time.time_ns()} */")
    (tmp_path / "c.yaml").write_text(
        "name: c\nprogram: {directory: p, build: 'echo checking seed 3; sleep 2; $CC m.c -o app', binary: app}\n"
        f"machine: {ROOT}/configs/machines/strongarm.yaml\nhardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS]\n"
    )
    campaign, document = load_campaign(tmp_path / "c.yaml")
    said: list[str] = []
    Builds(campaign, document, 100_000_000, said.append).make([(BASELINE, 0)])
    still = [text for text in said if "checking seed 3" in text and "its own command" not in text]
    assert still
    assert all(
        re.fullmatch(r"Still building the plain program, \d+ s; it printed last: checking seed 3", one) for one in still
    )
