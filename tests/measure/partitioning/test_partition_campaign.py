"""The oracle over campaigns, its memory, hardware sets, and ``measure partition`` from end to end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from measure.console.command_words import shown_path
from measure.errors import CampaignError, RunError
from measure.partitioning import command
from measure.partitioning.cli import partition
from measure.partitioning.group_verdicts import Accept, decide, with_caveat
from measure.partitioning.hardware import split_hardware
from measure.partitioning.oracle import CampaignOracle, GroupSettings
from measure.partitioning.search_types import Group, GroupVerdict
from measure.partitioning.verdict_memory import Memory, RememberingOracle
from measure.perturbation.analysis_types import Perturbation
from measure.perturbation.perturbation import inner_perturbation
from measure.runs.campaign_file import load_campaign
from measure.runs.plan import make_plan
from measure.runs.plan_file import load_plan
from measure.runs.store import Store
from measure.stats.correlation import Correlations, spearman
from tests.measure.demo_program import PROGRAM, source_file
from tests.measure.fake_runs import fake_runs_in_this_process

ROOT = Path(__file__).parents[3]
CAMPAIGN = """\
name: demo
program: {{source: demo.c{arguments}}}
machine: {machine}
sampling: {{every: 4000 cycles}}
hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS, PAPI_BR_MSP]
software_metrics:
  rounds: {{event: entry, function: work}}
  perturbing: {{event: call, callee: next}}
  loops: {{event: loop, function: work}}
noise: {{code_layouts: 1}}
delta: {delta}
baselines: 20
replicates: 5
outer: {outer}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "demo.c").symlink_to(source_file(PROGRAM))
    write_campaign(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def _in_this_process() -> Iterator[None]:
    with fake_runs_in_this_process():
        yield


def write_campaign(folder: Path, arguments: str = "", delta: float = 0.2, outer: bool = False) -> None:
    """``outer``: runs are aligned, too, which takes most of a search's time."""
    machine = ROOT / "configs" / "machines" / "desktop.yaml"
    text = CAMPAIGN.format(machine=machine, arguments=arguments, delta=delta, outer=str(outer).lower())
    (folder / "c.yaml").write_text(text)


def run(folder: Path, *options: str, out: str = "out", target: str = "fake") -> Result:
    arguments = [folder / "c.yaml", "--out", folder / out, "--memory", folder / "memory.sqlite"]
    arguments += ["--target", target, "--workers", "2", *options]
    return CliRunner().invoke(partition, [str(one) for one in arguments], catch_exceptions=False)


def result_of(folder: Path, out: str = "out") -> dict:
    return json.loads((folder / out / "partition.json").read_text())


# -- the command -----------------------------------------------------------------------------------------------


def test_fake_campaign_from_search_to_campaign_file(folder: Path) -> None:
    write_campaign(folder, outer=True)
    result = run(folder)
    assert result.exit_code == 0, result.output
    found = result_of(folder)
    assert [group["metrics"] for group in found["groups"]] == [["rounds", "loops"]]
    assert found["uncovered"] == ["perturbing"]
    assert found["bad_alone"]["perturbing"]["state"] == "bad"
    assert "PAPI_TOT_INS" in found["bad_alone"]["perturbing"]["pair"]
    assert found["bad_alone"]["perturbing"]["change_of_z"] < -0.5
    assert found["proved"] == "optimal"
    assert found["confirmed"]
    lines = [line.strip() for line in result.output.splitlines()]
    assert "Collect the groups, with the verdict on each; they may still change relations, by" in " ".join(lines)
    assert f"measure run {shown_path(str(folder / 'out' / 'partition.yaml'))}" in lines
    assert f"measure merge results/{found['campaign']}-partition --out merged.parquet" in lines
    with pytest.raises(CampaignError, match=r"partition\.yaml` makes the runs"):
        load_plan(folder / "out")
    assert found["groups"][0]["fresh_runs"]["state"] == "good"
    assert len(found["tested"]) == found["tested_now"] == 7
    page = (folder / "out" / "partition.html").read_text()
    assert "2 of 3 software metrics in 1 run (optimal)" in page
    assert "rounds, perturbing, loops" in page  # a rejected group, with its reason
    assert "within runs and across aligned ones, changes by more than 0.2 in z." in page
    told = page[page.index("<h2>What to do</h2>") :]
    assert (
        "5 fresh runs confirmed group1. 5 runs may not show a change that happens in fewer than about 45% of all code "
        "layouts. Collect the groups" in told
    )
    assert found["groups"][0]["fresh_runs"]["runs"] == 5  # as many as the campaign's replicates
    assert f'data-copy="measure run {shown_path(str(folder / "out" / "partition.yaml"))}"' in told
    assert f'data-copy="measure merge results/{found["campaign"]}-partition --out merged.parquet"' in told
    assert "Not shown to be good even alone: perturbing." in told
    assert f"measure explain results/{found['campaign']}" in lines
    assert 'data-copy="measure partition' not in page  # the search has ended
    campaign, document = load_campaign(folder / "out" / "partition.yaml")
    assert campaign.variants == {"group1": ("rounds", "loops")}
    assert campaign.program.source == source_file(PROGRAM)
    assert make_plan(campaign, document, lambda _: None, "fake").specs

    again = run(folder)
    assert again.exit_code == 0
    second = result_of(folder)
    assert (second["tested_now"], second["remembered"], second["runs_made"]) == (0, 7, 0)
    assert second["groups"] == found["groups"]
    elsewhere = run(folder, out="elsewhere")  # another directory, the same knowledge
    assert elsewhere.exit_code == 0
    assert result_of(folder, "elsewhere")["runs_made"] == 0
    run(folder, "--no-resume")  # verdicts anew, from runs that are kept
    assert (result_of(folder)["tested_now"], result_of(folder)["runs_made"]) == (7, 0)


def test_without_a_good_group_there_is_no_campaign_to_run_but_what_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(folder)
    text = (folder / "c.yaml").read_text()
    start = text.index("  rounds:")
    perturbing = "  perturbing: {event: call, callee: next}\n"
    (folder / "c.yaml").write_text(text[:start] + perturbing + text[text.index("noise:") :])
    assert (folder / "out" / "partition.yaml").exists()
    result = run(folder)
    assert result.exit_code == 0, result.output
    lines = [line.strip() for line in result.output.splitlines()]
    assert "demo: no group of software metrics was shown to be good." in lines
    assert "closest to the limit" not in result.output  # heads a table of groups
    assert lines[-2:] == [f"measure run {shown_path(str(folder / 'c.yaml'))}", "measure explain results/demo"]
    told = " ".join(lines)
    assert "Not shown to be good even alone: perturbing." in told
    assert "What perturbs, and which remedy helps:" in told
    assert "Proved: by these verdicts no group of these metrics is good." in told
    assert "partition.yaml" not in told
    assert not (folder / "out" / "partition.yaml").exists()  # of the search before
    page = (folder / "out" / "partition.html").read_text()
    assert 'data-copy="measure explain results/demo"' in page
    monkeypatch.setattr(command, "_remedies", lambda campaign: ("measure run results/demo/explain/all.yaml",))
    lines = [line.strip() for line in run(folder).output.splitlines()]
    assert lines[-1] == "measure run results/demo/explain/all.yaml"
    assert lines[-2].endswith("With the remedies that `measure explain` found:")
    assert "measure explain results/demo" not in lines


def test_counters_split_the_hardware_metrics_over_campaign_files(folder: Path) -> None:
    result = run(folder, "--counters", "1", "--minutes", "5")
    assert result.exit_code == 0, result.output
    found = result_of(folder)
    assert found["hardware_sets"] == [["PAPI_TOT_INS", "PAPI_LD_INS"], ["PAPI_TOT_INS", "PAPI_BR_MSP"]]
    first, _ = load_campaign(folder / "out" / "partition-1.yaml")
    second, document = load_campaign(folder / "out" / "partition-2.yaml")
    assert first.variants == {"group1": ("rounds", "loops")}
    assert second.variant_sets() == {}
    assert second.hardware_metrics == ("PAPI_TOT_INS", "PAPI_BR_MSP")
    assert len(make_plan(second, document, lambda _: None, "fake").specs) == 20


def test_a_machine_with_few_counters_needs_several_campaigns(folder: Path) -> None:
    machine = (ROOT / "configs" / "machines" / "desktop.yaml").read_text()
    (folder / "few.yaml").write_text(machine.replace("programmable_counters: 8", "programmable_counters: 2"))
    text = (folder / "c.yaml").read_text()
    metrics = "hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS, PAPI_BR_MSP, PAPI_L1_DCM, PAPI_L1_DCA]"
    lines = [metrics if line.startswith("hardware_metrics") else line for line in text.splitlines()]
    lines = ["machine: few.yaml" if line.startswith("machine") else line for line in lines]
    (folder / "c.yaml").write_text("\n".join(lines) + "\n")
    with pytest.raises(CampaignError, match=r"counts 2 events at once .* `measure partition` splits them"):
        make_plan(*load_campaign(folder / "c.yaml"), lambda _: None, "fake")
    result = run(folder)
    assert result.exit_code == 0, result.output
    sets = result_of(folder)["hardware_sets"]
    assert len(sets) == 2
    assert {metric for one in sets for metric in one} == set(metrics.split("[")[1].rstrip("]").split(", "))
    for number in (1, 2):
        campaign, document = load_campaign(folder / "out" / f"partition-{number}.yaml")
        assert campaign.machine == folder / "few.yaml"
        assert make_plan(campaign, document, lambda _: None, "fake").specs


def test_interrupt_keeps_everything_and_reports_the_best(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = CampaignOracle.test
    asked = 0

    def interrupted(self: CampaignOracle, groups: Sequence[Group]) -> list[GroupVerdict]:
        nonlocal asked
        if asked >= 4:
            raise KeyboardInterrupt
        asked += len(groups)
        return real(self, groups)

    monkeypatch.setattr(CampaignOracle, "test", interrupted)
    result = run(folder)
    assert result.exit_code == 130, result.output
    assert "Interrupted" in result.output
    first = result_of(folder)
    assert first["tested_now"] >= 4
    assert not first["confirmed"]
    assert "not validated" in result.output
    monkeypatch.undo()
    result = run(folder)
    assert result.exit_code == 0
    second = result_of(folder)
    assert second["remembered"] == first["tested_now"]
    assert second["tested_now"] + second["remembered"] == 7
    assert second["confirmed"]


def test_a_group_that_does_not_stand_on_fresh_runs_is_marked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = CampaignOracle.test

    def doubted(self: CampaignOracle, groups: Sequence[Group]) -> list[GroupVerdict]:
        verdicts = real(self, groups)
        if self.round == command.VALIDATION:
            failed = GroupVerdict("bad", "luck is over", ("a", "b"), 0.5, "inner", 5)
            return [failed if len(g) > 1 else v for g, v in zip(groups, verdicts, strict=True)]
        return verdicts

    monkeypatch.setattr(CampaignOracle, "test", doubted)
    result = run(folder)
    assert result.exit_code == 0, result.output
    found = result_of(folder)
    assert sorted(group["metrics"] for group in found["groups"]) == [["loops"], ["rounds"]]
    assert found["confirmed"]
    marked = next(one for one in found["tested"] if one["metrics"] == ["rounds", "loops"])
    assert marked["state"] == "bad"
    assert marked["reason"] == "good at first, but not on fresh runs: luck is over"
    assert run(folder).exit_code == 0
    assert result_of(folder)["groups"] == found["groups"]


def test_a_program_that_fails_is_said_so(folder: Path) -> None:

    write_campaign(folder, ", args: [fail]")
    with pytest.raises(RunError, match="baselines failed, the first: the program ended with exit status 3"):
        run(folder)


def test_what_cannot_be_searched_is_refused(folder: Path) -> None:
    text = (folder / "c.yaml").read_text()
    start, end = text.index("software_metrics"), text.index("noise:")
    (folder / "c.yaml").write_text(text[:start] + text[end:])
    with pytest.raises(CampaignError, match="got no software metrics, expected some to split into runs"):
        run(folder)
    many = "software_metrics:\n" + "".join(
        f"  m{k}: {{event: entry, function: work, add: {k + 1}}}\n" for k in range(13)
    )
    (folder / "c.yaml").write_text(text[:start] + many + text[end:])
    with pytest.raises(CampaignError, match=r"c.yaml:6: 13 metrics: --exact is affordable for up to 12"):
        run(folder, "--exact")
    (folder / "c.yaml").write_text(text)
    with pytest.raises(CampaignError, match=r"c.yaml:\d+: shared metric PAPI_XX is not among the hardware metrics"):
        run(folder, "--shared", "PAPI_XX")


@pytest.mark.slow
def test_a_real_campaign_end_to_end(folder: Path) -> None:
    write_campaign(folder, delta=0.35, outer=True)
    text = (folder / "c.yaml").read_text()
    (folder / "c.yaml").write_text(text.replace("  loops: {event: loop, function: work}\n", ""))
    result = run(folder, "--most-replicates", "3", target="emulated")
    assert result.exit_code == 0, result.output
    found = result_of(folder)
    assert {tuple(one["metrics"]) for one in found["tested"]} == {
        ("rounds",),
        ("perturbing",),
        ("rounds", "perturbing"),
    }
    for one in found["tested"]:
        assert one["runs"] == 3
        assert one["pair"]
    for group in found["groups"]:
        assert group["verdict"]["state"] == group["fresh_runs"]["state"] == "good"
    assert found["runs_made"] >= 29


# -- the oracle ------------------------------------------------------------------------------------------------


def test_context_and_variants_do_not_depend_on_names(folder: Path) -> None:
    def oracle(path: Path, out: str, settings: GroupSettings | None = None) -> CampaignOracle:
        campaign, document = load_campaign(path)
        with Store(folder / out) as store:
            return CampaignOracle(campaign, document, store, settings or GroupSettings(6), target="fake")

    first = oracle(folder / "c.yaml", "a")
    text = (folder / "c.yaml").read_text()
    (folder / "d.yaml").write_text(text.replace("rounds:", "renamed:").replace("demo\n", "other\n"))
    second = oracle(folder / "d.yaml", "b")
    assert first.context() == second.context()
    group = frozenset({0, 2})
    assert first.variant_of(group)[0] == second.variant_of(group)[0]
    assert second.variant_of(group)[1] == ("renamed", "loops")
    assert oracle(folder / "c.yaml", "a", GroupSettings(12)).context() != first.context()
    (folder / "d.yaml").write_text(text.replace("delta: 0.2", "delta: 0.3"))
    assert oracle(folder / "d.yaml", "b").context() != first.context()


def test_a_group_is_the_program_that_a_campaign_with_its_metrics_has(folder: Path) -> None:
    """Metrics were sorted by their definitions, and so another program was judged than the one that is run later."""
    campaign, document = load_campaign(folder / "c.yaml")
    everything = tuple(campaign.software_metrics)
    with Store(folder / "out") as store:
        oracle = CampaignOracle(campaign, document, store, GroupSettings(6), target="fake")
    for group in (frozenset(range(len(everything))), frozenset({0, 2}), frozenset({1})):
        name, metrics = oracle.variant_of(group)
        assert metrics == tuple(everything[n] for n in sorted(group))
        collecting = campaign.model_copy(update={"variants": {"x": metrics}})
        collected = make_plan(collecting, document, lambda text: None, "fake")
        tested = {spec.build_key for spec, _ in oracle._plan({name: metrics}, 2) if spec.variant == name}
        assert tested == {spec.build_key for spec in collected.specs if spec.variant == "x"}


def test_messages_name_the_metrics_of_a_group(folder: Path) -> None:
    campaign, document = load_campaign(folder / "c.yaml")
    said: list[str] = []
    with Store(folder / "out") as store:
        oracle = CampaignOracle(campaign, document, store, GroupSettings(6), target="fake", notify=said.append)
    for group in ({0, 2}, set(range(len(oracle.names)))):
        oracle._notify(f"Building {oracle.variant_of(frozenset(group))[0]} (1 of 2)")
    oracle._notify("Still building group-0123456789ab")
    some = ", ".join(oracle.variant_of(frozenset({0, 2}))[1])
    assert said == [
        f"Building {some} (1 of 2)", "Building all metrics together (1 of 2)", "Still building group-0123456789ab"
    ]  # fmt: skip


def test_replicates_are_added_only_while_the_verdict_is_open(folder: Path) -> None:
    campaign, document = load_campaign(folder / "c.yaml")
    with Store(folder / "out") as store:
        oracle = CampaignOracle(campaign, document, store, GroupSettings(12), target="fake", workers=2)
        bad, good = oracle.test([frozenset({1}), frozenset({0})])
        assert (bad.state, bad.runs) == ("bad", 3)
        assert "within a run, perturbed: rho of PAPI_TOT_INS" in bad.reason
        assert good.state == "good"
        assert oracle.runs_made == 20 + bad.runs + good.runs
        fresh = CampaignOracle(campaign, document, store, GroupSettings(12), round_=1, target="fake", workers=2)
        assert fresh.context() != oracle.context()
        fresh.test([frozenset({1})])
        assert fresh.runs_made == 23  # other seeds: nothing is reused


def test_looks_double_up_to_the_most() -> None:
    assert GroupSettings(20).looks == (3, 6, 12, 20)
    assert GroupSettings(3).looks == (3,)
    assert GroupSettings(2).looks == (2,)


def simulated(change: float, noise: float, runs: int) -> Perturbation:
    rng = np.random.default_rng(0)

    def one(weight: float) -> Correlations:
        driver = rng.normal(size=400)
        weight = weight + rng.normal(0, noise)
        values = np.column_stack([driver, weight * driver + rng.normal(size=400)])
        return spearman(values, ("a", "b"))

    baseline = [one(1.0) for _ in range(20)]
    return inner_perturbation(baseline, [one(1.0 + change) for _ in range(runs)], seed=1)


def test_decisions() -> None:
    same, changed, vague = simulated(0, 0, 6), simulated(-0.9, 0, 6), simulated(0, 0.3, 3)
    assert (same.verdict, changed.verdict, vague.verdict) == ("equivalent", "perturbed", "inconclusive")

    def state(found: list[Perturbation], last: bool, accept: Accept = "equivalent", outer: bool = True) -> str | None:
        verdict = decide(found, last, accept, outer, 6)
        return verdict.state if verdict else None

    assert state([same, same], False) == "good"
    assert state([same], False, outer=False) == "good"
    assert state([changed], False) == "bad"
    assert state([same, changed], False) == "bad"
    assert state([vague], False) is None
    assert state([same, vague], False) is None
    assert state([vague], True) == "undecided"
    assert state([same, vague], True) == "undecided"
    assert state([same, vague], True, "not perturbed") == "good"
    assert state([vague, changed], True, "not perturbed") == "bad"
    sized = simulated(-0.3, 0, 6)  # changed, by an amount that is open
    assert sized.verdict == "changed"
    assert state([sized], False) is None
    assert state([sized], True) == "bad"
    assert state([same, sized], True, "not perturbed") == "bad"
    verdict = decide([changed], False, "equivalent", True, 6)
    assert verdict is not None
    assert verdict.worst == ("a", "b")
    assert verdict.change < -0.2
    assert "limit 0.2" in verdict.reason


# -- memory ----------------------------------------------------------------------------------------------------


def test_a_good_group_tells_which_share_of_its_metrics_never_counted() -> None:
    good = GroupVerdict("good", "within a run, largest: none", None, 0.0, "inner", 2)
    counts, silence = np.ones((5, 1)), np.zeros((5, 1))
    assert with_caveat(good, [counts, counts], ["a"]) is good
    assert with_caveat(good, [np.hstack([counts, silence]), np.hstack([counts, counts])], ["a", "b"]) is good
    told = with_caveat(good, [np.hstack([counts, silence])] * 2, ["a", "b"])
    assert told.reason == (
        "within a run, largest: none; but 1 of its 2 metrics counted no event (`measure run --counts` lists them)"
    )
    assert "its metric counted no event" in with_caveat(good, [silence], ["b"]).reason


def test_remembering_asks_once(tmp_path: Path) -> None:
    class Counting:
        asked = 0

        def test(self, groups: Sequence[Group]) -> list[GroupVerdict]:
            self.asked += len(groups)
            return [GroupVerdict("good" if 0 in group else "bad") for group in groups]

    oracle = Counting()
    groups = [frozenset({0}), frozenset({1}), frozenset({0, 1})]
    memory = Memory(tmp_path / "m.sqlite", "c", [{"m": 0}, {"m": 1}])
    remembering = RememberingOracle(oracle, memory)
    assert [v.state for v in remembering.test(groups[:2])] == ["good", "bad"]
    assert [v.state for v in remembering.test(groups)] == ["good", "bad", "good"]
    assert oracle.asked == 3
    assert [v.state for v in RememberingOracle(oracle, memory, read=False).test(groups)] == ["good", "bad", "good"]
    assert oracle.asked == 6


# -- hardware --------------------------------------------------------------------------------------------------


def test_hardware_sets_fit_the_counters_and_share() -> None:
    metrics = ("PAPI_TOT_CYC", "A", "B", "C", "PAPI_TOT_INS", "D", "E")
    for counters in (2, 3, 4, 5, 9):
        sets = split_hardware(metrics, counters, ["C"])
        assert set().union(*sets) == set(metrics)
        for one in sets:
            assert {"C", "PAPI_TOT_CYC", "PAPI_TOT_INS"} <= set(one)
            assert sum(m not in ("PAPI_TOT_CYC", "PAPI_TOT_INS") for m in one) <= counters
            assert list(one) == sorted(one, key=metrics.index)
        assert len(sets) == -(-4 // (counters - 1))
        assert max(map(len, sets)) - min(map(len, sets)) <= 1


def test_hardware_sets_that_cannot_be() -> None:
    for metrics, counters, shared, message in (
        (("A", "B"), 1, ["C"], "shared metric C is not among the hardware metrics: expected some of A, B"),
        (("A", "B", "C"), 1, ["A"], "no counter is left for B; share fewer"),
        (("A", "B", "C"), 2, [], "nothing in common cannot be aligned: name at least one shared metric"),
        (("A", "B"), 0, [], "0 counters: expected at least 1"),
    ):
        with pytest.raises(CampaignError, match=message):
            split_hardware(metrics, counters, shared)
    assert split_hardware(("A", "B"), 2, []) == (("A", "B"),)


def test_metrics_that_need_the_same_events_share_counters() -> None:
    events = {
        "TOT": (),
        "MISSES": ("miss",),
        "HITS": ("miss", "access"),
        "ACCESSES": ("access",),
        "BR": ("branch",),
    }
    assert split_hardware(tuple(events), 2, [], events) == (
        ("TOT", "HITS", "ACCESSES"),
        ("TOT", "MISSES", "BR"),
    )
    with pytest.raises(CampaignError, match="no counter is left for HITS"):
        split_hardware(tuple(events), 1, [], events)
