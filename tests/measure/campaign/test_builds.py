"""Programs of a campaign: those that runs draw, in several processes, mistakes told in the campaign's terms."""

from __future__ import annotations

from pathlib import Path

import pytest

from measure.campaign import build_notices
from measure.campaign.build_notices import unfinished, waiting
from measure.campaign.builds import Builds, make_all
from measure.campaign.campaign_file import load_campaign
from measure.campaign.executor import Workers
from measure.campaign.run_types import BASELINE
from measure.errors import CampaignError

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
    assert unfinished(["light", "heavy", "all"], [True, False, False]) == "heavy, all (1 of 3 are built)"
    assert unfinished(list("abcdef"), [False] * 6) == "a, b, c, d and 2 more (0 of 6 are built)"
    long = "the program with " + ", ".join(f"function_{number}_entries" for number in range(5))
    assert unfinished([long] * 4, [True, False, False, False]) == "3 programs (1 of 4 are built)"
    assert unfinished([long], [False]) == f"{long} (0 of 1 are built)"
    said: list[str] = []
    with waiting(said.append, "nothing"):
        pass
    assert said == []
