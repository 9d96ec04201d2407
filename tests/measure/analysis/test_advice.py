"""What is said about the metrics behind a perturbation, and what is not."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from measure.analysis import analysis
from measure.analysis.advice import Counted, advice, even_records, more_runs
from measure.console.command_words import words_of_campaign
from measure.judging.controls import Controls, Injection
from measure.judging.outlying_runs import how_to_look
from measure.perturbation.analysis_types import Perturbation, Verdict
from measure.perturbation.finding import Finding
from measure.perturbation.findings import advice_on, of_one_metric
from measure.perturbation.missing_runs import forecast
from measure.perturbation.outlying_runs import OutlyingRuns
from measure.report.model import ReportData, Signals, VariantReport
from measure.runs.campaign_file import load_campaign
from measure.runs.campaign_model import Campaign
from measure.runs.looks import History, Look

FILE = "CAMPAIGN.yaml"
GIVEN: dict[str, Any] = {
    "name": "mine", "program": {"source": "mine.c"}, "machine": "m.yaml", "sampling": {"every": "4000 cycles"},
    "hardware_metrics": ["PAPI_TOT_INS", "PAPI_LD_INS"], "baselines": 8, "replicates": 8, "seed": 3,
}  # fmt: skip


def variant(name: str, metrics: str, verdict: Verdict) -> VariantReport:
    inner = Perturbation("inner", verdict, (), 0.5, 0.2, 0.05, 20, 5, 0, False, None, ())
    more = np.array([1.0, 2.0])
    return VariantReport(
        name, tuple(metrics), (), np.zeros((2, 2, 2)), more, more, 0.0, inner, None, None,
        Signals(name, (), np.zeros((4, 0))),
    )  # fmt: skip


def opened(name: str, verdict: Verdict, extra: int | None) -> VariantReport:
    made = variant(name, "ab", verdict)
    return replace(made, inner=replace(made.inner, extra_runs_needed=extra))


def campaign_of(**variants: tuple[str, ...]) -> Campaign:
    metrics = {metric: {"event": "entry", "function": "f"} for one in variants.values() for metric in one}
    return Campaign.model_validate({**GIVEN, "software_metrics": metrics, "variants": variants})


def texts(findings: Sequence[Finding]) -> list[str]:
    return [one.text for one in findings]


def told(variants: list[VariantReport], added: float = 300.0, **events: float) -> list[str]:
    counted = {
        one.name: Counted({m: events[m] for m in one.software_metrics if m in events}, tuple(
            m for m in one.software_metrics if m not in events
        ), added)
        for one in variants
    }  # fmt: skip
    return texts(advice(variants, counted, campaign_of(**{one.name: one.software_metrics for one in variants}), FILE))


def test_nothing_is_said_without_a_perturbation() -> None:
    assert told([variant("x", "ab", "equivalent"), variant("y", "abc", "inconclusive")], a=1, b=1, c=1) == []


def test_metrics_with_most_events_are_named() -> None:
    found = told([variant("x", "abc", "perturbed")], a=70, b=5, c=25)
    assert found == [
        "x: most of its +1.50% instructions come from a, c: 95% of the 100 events in the records of a run, "
        "about 3.0 instructions an event.",
        "Next: `measure explain`, given the directory of these results, says why and tries remedies; `measure "
        "partition CAMPAIGN.yaml --set seed=4 --out results/mine-seed4` looks for the fewest sets of these metrics "
        "that are each shown to change no relation by more than delta.",
    ]
    more = told([variant("x", "abc", "perturbed"), variant("y", "ab", "equivalent")], a=70, b=5, c=25)
    assert "`measure partition CAMPAIGN.yaml` looks for" in more[-1]  # no partition, so none that a search has found


def test_a_broken_group_of_a_partition_is_split_and_the_others_stay() -> None:
    """The search for a partition was the next step of the campaign that such a search had written."""
    good, broken = variant("one", "ab", "equivalent"), variant("two", "cde", "changed")
    *_, explain, split = told([good, broken], a=1, b=1, c=5, d=70, e=2)
    assert explain == "Next: `measure explain`, given the directory of these results, says why and tries remedies."
    assert split == (
        "Next: the variants share no metric, so they are a partition already, of which only two must be split: "
        "`measure run CAMPAIGN.yaml --set 'variants={one: [a, b], two-d: [d], two-rest: [c, e]}' --set seed=4 --out "
        "results/mine-split4` makes a new campaign of 40 runs, with d in a variant of its own."
    )
    unknown = told([good, broken], a=1, b=1)[-1]  # c, d and e add up values
    assert "{one: [a, b], two-c: [c], two-d: [d], two-e: [e]}" in unknown
    assert unknown.endswith("of 48 runs, with c, d, e in variants of their own.")
    single = told([good, variant("two", "c", "perturbed")], a=1, b=1, c=5)
    assert not any("partition" in sentence for sentence in single)
    assert single[-1].startswith("two collects one metric only, which cannot be split: ")


def test_the_command_that_splits_a_group_is_a_campaign(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("{}")
    (tmp_path / "mine.c").write_text("int main(void) { return 0; }")
    campaign = campaign_of(one=("on", "b"), two=("null", "d"))
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(GIVEN | {
        "software_metrics": {one: {"event": "entry", "function": "f"} for one in campaign.software_metrics},
        "variants": {name: list(metrics) for name, metrics in campaign.variants.items()},
    }))  # fmt: skip
    broken = replace(variant("one", "", "perturbed"), software_metrics=("on", "b"))
    *_, split = advice([broken], {"one": Counted({"on": 9.0, "b": 1.0}, (), 300.0)}, campaign, str(file))
    words = shlex.split(split.commands_in("")[0])
    settings = [words[n + 1] for n, word in enumerate(words) if word == "--set"]
    assert load_campaign(Path(words[2]), settings)[0].variants == {
        "two": ("null", "d"), "one-on": ("on",), "one-rest": ("b",)
    }  # fmt: skip


def test_a_counter_that_adds_values_tells_no_events() -> None:
    found = told([variant("x", "ab", "perturbed")], a=10)
    assert found[0].endswith("10 events in the records of a run (b not counted: they add up values).")
    assert told([variant("x", "ab", "perturbed")])[0].startswith("Next: ")


def test_metrics_that_cost_nothing_are_not_said_to_add_instructions() -> None:
    """ "100% of the 749,875 events in the records of a run" stood beside metrics that no counter of the program has."""
    one = variant("x", "ab", "perturbed")
    campaign = campaign_of(x=("a", "b"))
    alone = texts(advice([one], {"x": Counted({}, (), 300.0, ("a", "b"))}, campaign, FILE))
    assert alone[0] == (
        "x: none of its metrics costs the measured program an instruction (method probe or second_run): its +1.50% "
        "instructions come from code that the compiler makes otherwise where a probe stands."
    )
    beside = texts(advice([one], {"x": Counted({"b": 100.0}, (), 300.0, ("a",))}, campaign, FILE))
    assert beside[0].startswith("x: most of its +1.50% instructions come from b: 100% of the 100 events")


def test_what_a_smaller_equivalent_set_lacks_is_behind_it() -> None:
    sets = [
        variant("s", "a", "equivalent"),
        variant("l", "abc", "perturbed"),
        variant("o", "cd", "equivalent"),
    ]
    assert told(sets, a=1, b=1, c=1, d=1)[0] == (
        "l: s collects all of its metrics but b, c, and is equivalent: what these metrics add perturbs."
    )


def test_larger_sets_than_a_perturbed_one_add_nothing() -> None:
    sets = [
        variant("s", "ab", "perturbed"),
        variant("l", "abc", "perturbed"),
        variant("t", "ba", "perturbed"),
    ]
    assert {line.split(":")[0] for line in told(sets, a=1, b=1, c=1)} == {"s", "Next"}


def test_counters_that_never_ran_moved_code() -> None:
    found = told([variant("x", "ab", "perturbed")], a=0, b=0)
    assert found[0].startswith("x: its counters counted no event, so its +1.50% instructions and the change come")
    fewer = told([variant("x", "ab", "perturbed")], added=-5, a=1, b=1)
    assert len(fewer) == 1  # only what to do next: the counters do not explain fewer instructions


def test_an_explanation_of_one_variant_leaves_the_advice_for_the_others() -> None:
    """Advice was found again by its words, and that on the only metric of a variant does not begin with its name."""
    variants = (variant("first", "a", "perturbed"), variant("second", "cd", "changed"))
    campaign = campaign_of(first=("a",), second=("c", "d"))
    counted = {"first": Counted({"a": 5.0}, (), 10.0), "second": Counted({"c": 5.0, "d": 5.0}, (), 10.0)}
    given = advice(variants, counted, campaign, FILE)
    of_first, of_second, explain, single = given[0], given[1], *given[-2:]
    assert single.text.startswith("first collects one metric only")
    signals = Signals("baseline", (), np.zeros((4, 0)))
    said = (Finding("A pair."), *given)
    data = ReportData("t", "s", (), np.zeros((2, 0, 0)), signals, variants, said, (), "")
    first, second = Finding("it is a.", heading="first"), Finding("it is c.", heading="second")
    told = analysis.with_explanation(data, {"first": (first,)}).said
    assert told[:2] == (Finding("A pair."), first)
    assert "explain/explain.html" in told[2].text
    assert of_second in told
    assert explain in told
    assert of_first not in told
    assert single not in told
    both = analysis.with_explanation(data, {"first": (first,), "second": (second,)}).said
    assert [one.text for one in both][:3] == ["A pair.", "first: it is a.", "second: it is c."]
    assert not set(given) & set(both)


def test_one_metric_that_perturbs_is_explained_and_cannot_be_split() -> None:
    found = told([variant("x", "a", "perturbed")], a=1)
    assert found[1] == (
        "Next: `measure explain`, given the directory of these results, says why and tries remedies."
    )  # fmt: skip
    assert found[2].startswith("x collects one metric only, which cannot be split: ")


def test_the_command_for_more_runs_settles_what_is_inconclusive() -> None:
    campaign = Campaign.model_validate(GIVEN)
    variants = [opened("x", "inconclusive", 5), opened("y", "inconclusive", 21), opened("z", "equivalent", None)]
    assert texts(more_runs(variants, campaign, FILE, looks=1)) == [
        "Next: more runs would probably settle the variants x, y: `measure run CAMPAIGN.yaml --set baselines=29 "
        "--set replicates=29 --set seed=4 --out results/mine-seed4` makes a new campaign of 29 runs, since no further "
        "look at this one is planned. 21 more of each is a forecast (4 to 68, as 20 runs tell the variance of z "
        "roughly)."
    ]
    # 605 baselines were advised without a word on the hours that they take.
    (priced,) = more_runs(variants, campaign, FILE, looks=1, run_seconds=300.0)
    assert "makes a new campaign of 29 runs (2 to 3 h), since" in priced.text
    # The runs of every variant, of the null control and for the sources of noise count, too.
    metrics = {name: {"event": "entry", "function": name} for name in "ab"}
    changes = {"software_metrics": metrics, "variants": {"x": ["a"], "y": ["a", "b"]}, "variance_runs": 4}
    whole = Campaign.model_validate({**GIVEN, **changes, "baselines": 12})
    assert "a new campaign of 132 runs," in more_runs(variants, whole, FILE, looks=1)[0].text  # 33 + 3 * 29 + 3 * 4
    looks = whole.model_copy(update={"looks": 2})
    assert "adds 84 runs to these" in more_runs(variants, looks, FILE, looks=1)[0].text  # 4 * 21
    planned = campaign.model_copy(update={"looks": 2})
    assert texts(more_runs(variants[:1], planned, FILE, looks=1)) == [
        "Next: more runs would probably settle the variant x: `measure run CAMPAIGN.yaml --set baselines=13 "
        "--set replicates=13` adds 5 runs to these, as look 2 of 2 that are planned. 5 more of "
        "each is a forecast (1 to 34, as 20 runs tell the variance of z roughly)."
    ]
    assert more_runs(variants, campaign, FILE, looks=1, missing=True) == []
    assert more_runs([opened("x", "inconclusive", None), opened("y", "perturbed", 4)], campaign, FILE, looks=1) == []


def test_a_metric_that_every_open_pair_involves_can_be_left_out() -> None:
    """1,436 runs were the next step of a campaign in which nothing was open without one metric."""
    campaign = Campaign.model_validate({**GIVEN, "hardware_metrics": ["PAPI_TOT_INS", "PAPI_LD_INS", "PAPI_BR_MSP"]})
    one = opened("x", "inconclusive", 100)
    verdicts: list[tuple[str, Verdict]] = [("im", "inconclusive"), ("ml", "inconclusive"), ("il", "equivalent")]
    pairs: Any = tuple(SimpleNamespace(a=both[0], b=both[1], verdict=verdict) for both, verdict in verdicts)
    shared = replace(one, inner=replace(one.inner, pairs=pairs))
    first, second = texts(more_runs([shared], campaign, FILE, looks=1))
    assert first.startswith(
        "Next: without m, which every open pair involves, nothing may be open: `measure run CAMPAIGN.yaml --set "
        "'hardware_metrics=["
    )
    assert first.endswith("--set seed=4 --out results/mine-without-m` makes a new campaign of 8 runs.")
    assert second.startswith("Next: more runs would probably settle the variant x: ")
    everything: Any = tuple(SimpleNamespace(a=each.a, b=each.b, verdict="inconclusive") for each in pairs)
    assert len(more_runs([replace(one, inner=replace(one.inner, pairs=everything))], campaign, FILE, looks=1)) == 1


def test_a_metric_behind_most_of_what_is_open_is_left_out_with_the_runs_for_the_rest() -> None:
    """The report said that it was cheaper to leave the metric out, and had no command for it."""
    campaign = Campaign.model_validate({**GIVEN, "hardware_metrics": ["PAPI_TOT_INS", "PAPI_LD_INS", "PAPI_BR_MSP"]})
    first, other = opened("all", "inconclusive", 40), opened("functions", "inconclusive", 7)
    verdicts: list[tuple[str, Verdict]] = [("im", "inconclusive"), ("ml", "inconclusive"), ("il", "equivalent")]
    pairs: Any = tuple(SimpleNamespace(a=both[0], b=both[1], verdict=verdict) for both, verdict in verdicts)
    behind_m = replace(first, inner=replace(first.inner, pairs=pairs))
    second: Any = tuple(SimpleNamespace(a=a, b=b, verdict="inconclusive") for a, b in ("im", "il", "ml"))
    all_open = replace(other, inner=replace(other.inner, pairs=second))
    without, more = texts(more_runs([behind_m, all_open], campaign, FILE, looks=1))
    assert without.startswith(
        "Next: without m, which every open pair of the variant all involves, and with the runs that would settle the "
        "variant functions, nothing may be open: `measure run CAMPAIGN.yaml --set 'hardware_metrics=["
    )
    extra = forecast(7, all_open.inner.spread_runs).extra
    assert f"--set baselines={campaign.baselines + extra} --set replicates={campaign.replicates + extra}" in without
    assert "would probably settle the variants all, functions" in more
    hopeless = opened("functions", "inconclusive", 819)
    without, *_ = texts(
        more_runs([behind_m, replace(all_open, inner=replace(hopeless.inner, pairs=second))], campaign, FILE, 1)
    )
    assert "of the variant all involves, nothing may be open in the variant all: `" in without


def test_more_runs_than_anybody_makes_are_no_step() -> None:
    """819 further baselines were the next step of a campaign of ten."""
    campaign = Campaign.model_validate(GIVEN)
    hopeless, near = opened("x", "inconclusive", 819), opened("y", "inconclusive", 21)
    without_runs = (
        "Next: no reasonable number of further runs settles the variant x. A campaign with fewer hardware metrics, a "
        "longer program, longer records or a larger delta may: `measure run --dry-run CAMPAIGN.yaml`, with such "
        "changes by --set, says what it would find."
    )
    assert texts(more_runs([hopeless], campaign, FILE, looks=1)) == [without_runs]
    first, second = texts(more_runs([hopeless, near], campaign, FILE, looks=1))
    assert first.startswith("Next: more runs would probably settle the variant y: ")
    assert "baselines=29" in first
    assert second == without_runs
    assert more_runs([opened("x", "changed", 819)], campaign, FILE, looks=1) == []
    missed = Controls((), Injection("a", "b", False, 0.5, -0.4, 0.4), False, 0.4)
    (found,) = more_runs([hopeless], campaign, FILE, looks=1, controls=missed)
    assert "baselines=16" in found.text


def test_the_size_of_a_change_has_a_command_that_is_no_unplanned_look() -> None:
    # The report told the number of runs without a command, and to extend the campaign was an unplanned look.
    campaign = Campaign.model_validate(GIVEN)
    changed = opened("x", "changed", 5)
    (told,) = texts(more_runs([changed, opened("y", "perturbed", None)], campaign, FILE, looks=1))
    assert told == (
        "Next: more runs would probably show whether the change of x exceeds delta: `measure run CAMPAIGN.yaml "
        "--set baselines=13 --set replicates=13 --set seed=4 --out results/mine-seed4` makes a new campaign of "
        "13 runs, since no further look at this one is planned. 5 more of each is a forecast (1 to 34, as 20 runs tell "
        "the variance of z roughly)."
    )
    (settled,) = more_runs([changed, opened("z", "inconclusive", 9)], campaign, FILE, looks=1)
    assert "settle the variant z: " in settled.text
    assert more_runs([opened("x", "changed", None)], campaign, FILE, looks=1) == []


def test_a_control_that_failed_has_a_command_too() -> None:
    campaign = Campaign.model_validate(GIVEN)
    same, alarm, change = (variant("null", "", one).inner for one in ("equivalent", "perturbed", "changed"))
    injection = Injection("a", "b", False, 0.5, -0.4, 0.4)

    def said(variants: list[VariantReport], controls: Controls, looks: int = 1) -> list[str]:
        planned = campaign.model_copy(update={"looks": looks})
        return texts(more_runs(variants, planned, FILE, looks=1, controls=controls))

    equivalent, opened_one = [opened("x", "equivalent", None)], [opened("x", "inconclusive", 21)]
    assert said(equivalent, Controls((same,), injection, True, 0.002)) == []
    assert said(equivalent, Controls((same,), None, False, 1.0)) == []  # more runs make no pair that can be assessed
    assert said(equivalent, Controls((same,), injection, False, 0.4)) == [
        "Next: with twice the runs, or more, the positive control may be found: `measure run CAMPAIGN.yaml "
        "--set baselines=16 --set replicates=16 --set seed=4 --out results/mine-seed4` makes a new campaign of "
        "16 runs, since no further look at this one is planned."
    ]
    (both,) = said(opened_one, Controls((same,), injection, False, 0.4))
    assert "may be found: `measure run CAMPAIGN.yaml --set baselines=29 " in both
    (added,) = said(equivalent, Controls((same,), injection, False, 0.4), looks=2)
    assert added.endswith(
        "--set baselines=16 --set replicates=16` adds 8 runs to these, as look 2 of 2 that are planned."
    )
    # A further look at the same runs would not show whether they are an accident.
    for looks in (1, 2):
        assert said(equivalent, Controls((alarm,), injection, True, 0.002), looks) == [
            "Next: whether the null control is perturbed by chance shows in other runs: `measure run CAMPAIGN.yaml "
            "--set seed=4 --out results/mine-seed4` makes a new campaign of 8 runs."
        ]
    (told,) = said(equivalent, Controls((same, change), injection, True, 0.002))
    assert told.startswith("Next: whether the null control is changed by chance shows in other runs: `measure run ")


def run_with_two_records_of(cycles: int) -> Any:
    """A run with 20 records, of which 18 last 4,000 cycles."""
    boundaries = np.cumsum([0, *[4000] * 18, cycles, cycles])
    trace = SimpleNamespace(boundaries_cycles=boundaries, boundaries_instructions=np.arange(21) * 3910)
    return SimpleNamespace(trace=trace, seconds=1.0)


def test_uneven_records_have_the_command_for_even_ones() -> None:
    """They made figures wrong, and the report had no step for that: its first was to explain the perturbation."""
    campaign = Campaign.model_validate(GIVEN)

    def steps(campaign: Campaign, long: int) -> list[str]:
        return texts(even_records(campaign, [run_with_two_records_of(long)], FILE))

    assert steps(campaign, 4000) == []
    assert steps(campaign, 9000) == [
        "Next: records of 3900 instructions are even, so that verdicts rest on relations of metrics alone: `measure "
        "run CAMPAIGN.yaml --set 'sampling.every=3900 instructions' --set 'hardware_metrics=[PAPI_TOT_CYC, "
        "PAPI_LD_INS]' --set seed=4 --out results/mine-instructions` makes a new campaign of 8 runs."
    ]
    both = campaign.model_copy(update={"hardware_metrics": ("PAPI_LD_INS", "PAPI_TOT_INS", "PAPI_TOT_CYC")})
    assert "--set 'hardware_metrics=[PAPI_LD_INS, PAPI_TOT_CYC]'" in steps(both, 9000)[0]
    cycles_only = campaign.model_copy(update={"hardware_metrics": ("PAPI_TOT_CYC", "PAPI_LD_INS")})
    assert "hardware_metrics" not in steps(cycles_only, 9000)[0]


def test_even_records_are_the_first_step_and_no_more_runs_with_uneven_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = {name: {"event": "entry", "function": name} for name in "ab"}
    campaign = Campaign.model_validate({**GIVEN, "software_metrics": metrics, "variants": {"x": ["a", "b"]}})
    history = History("kind", (Look("design", 5, 5),))
    plan: Any = SimpleNamespace(campaign=campaign, campaign_file="", campaign_words=FILE, history=history, specs=())
    monkeypatch.setattr(analysis, "_counted", lambda *_: {})

    def told(cycles: int) -> list[str]:
        outcome: Any = SimpleNamespace(runs=(run_with_two_records_of(cycles),), failures=(), warnings=())
        said = analysis._findings([opened("x", "inconclusive", 5)], (), plan, outcome, None)
        return [one.text[:24] for one in said]

    assert told(4000) == ["Next: more runs would pr"]
    assert told(9000) == ["Next: records of 3900 in"]


def test_commands_have_the_settings_that_the_campaign_was_run_with() -> None:
    """Without them, the next campaign would have the file's values."""
    words = words_of_campaign(FILE, ("delta=0.1", "variants={one: [a]}"))
    assert words == "CAMPAIGN.yaml --set delta=0.1 --set 'variants={one: [a]}'"
    assert words_of_campaign("") == "CAMPAIGN.yaml"
    (told,) = even_records(Campaign.model_validate(GIVEN), [run_with_two_records_of(9000)], words)
    assert f"`measure run {words} --set 'sampling.every=" in told.text


@pytest.mark.parametrize(
    ("metric", "command"),
    [
        ("PAPI_BR_MSP", "emulate --analyzer branches --map '/in put=in put' -- ./x-8 -n 3 < mine.txt"),
        ("PAPI_L1_DCM", "emulate --analyzer caches --map '/in put=in put' -- ./x-8 -n 3 < mine.txt"),
        ("PAPI_TOT_INS", "emulate --machine m.yaml --stats --map '/in put=in put' -- ./x-8 -n 3 < mine.txt"),
    ],
)  # fmt: skip
def test_a_run_that_stands_out_is_looked_at_in_its_layout_and_not_by_another_seed(metric: str, command: str) -> None:
    program = {"source": "mine.c", "args": ["-n", 3], "files": {"/in put": "in put"}, "stdin": "mine.txt"}
    campaign = Campaign.model_validate({**GIVEN, "program": program, "software_metrics": {
        "a": {"event": "entry", "function": "f"}}, "variants": {"x": ["a"]}})  # fmt: skip
    plan: Any = SimpleNamespace(campaign=campaign)
    odd = OutlyingRuns("x", metric, ("run 8",), (9.0,), 1.0, 2.0, 9, 5.0, numbers=(8,))
    (step,) = how_to_look([odd], plan)
    sentence = step.text
    assert f"`{command}`" in sentence
    assert "`measure.load(DIR).write_program('x', 8, 'x-8')`" in sentence
    assert "seed=" not in sentence
    assert "measure.load('my results')" in step.text_in("'my results'")
    (of_baselines,) = how_to_look([replace(odd, variant="the baselines")], plan)
    assert "write_program('baseline', 8, 'baseline-8')" in of_baselines.text


def test_a_metric_without_a_counter_is_not_told_to_fire_less_often() -> None:
    """It was said to cost no instruction, and then that a rarer event would help."""
    counted = {"x": Counted({}, (), 0.0, ("a",))}
    found = texts(advice([variant("x", "a", "perturbed")], counted, campaign_of(x=("a",)), FILE))
    assert "none of its metrics costs the measured program an instruction" in found[0]
    assert "so a rarer event does not help" in found[-1]
    assert not any("count a rarer event" in sentence for sentence in found)


def test_one_metric_is_not_told_to_be_spread_over_runs() -> None:
    short = "Do not reason about the pairs that changed within such a run."
    whole = (
        "Do not reason about the pairs that changed within such a run; spread the software metrics over several runs."
    )
    made = variant("x", "ab", "perturbed")
    compared = replace(made.inner, said=(Finding("A pair."), advice_on("inner")))
    for one, told in ((compared, whole), (of_one_metric(compared), short)):
        found = made.findings_of(one)
        assert [each.sentence for each in found] == ["A pair.", told]
        assert {each.heading for each in found} == {"x (+1.50% instructions), within a run"}
        assert one.as_fields()["findings"] == ["A pair.", told]


def test_a_printed_command_sets_a_key_once() -> None:
    """The seed was set twice where the campaign was run with another one."""
    words = words_of_campaign("", ["seed=2", "baselines=9", "program.args.0=a b"])
    campaign = Campaign.model_validate({**GIVEN, "seed": 2, "baselines": 9})
    (sentence,) = texts(more_runs([opened("x", "inconclusive", 5)], campaign, words, looks=1))
    assert (
        "`measure run CAMPAIGN.yaml --set 'program.args.0=a b' --set baselines=14 --set replicates=13 --set seed=3 "
        "--out results/mine-seed3`" in sentence
    )
    metrics = campaign_of(x=("a", "b"))
    counted = {"x": Counted({"a": 1.0, "b": 1.0}, (), 1.0)}
    *_, partition = texts(
        advice([variant("x", "ab", "perturbed")], counted, metrics, words_of_campaign("", ["seed=3"]))
    )
    assert "`measure partition CAMPAIGN.yaml --set seed=4 --out results/mine-seed4`" in partition


def test_a_new_campaign_is_put_beside_the_results_in_use() -> None:
    campaign = campaign_of(x=("a", "b"))
    (finding,) = more_runs([opened("x", "inconclusive", 5)], campaign, FILE, looks=1)
    assert "--out results/mine-seed4`" in finding.text
    assert "--out '/data/my runs/first'-seed4`" in finding.text_in("'/data/my runs/first'")
    counted = {"x": Counted({"a": 1.0, "b": 1.0}, (), 1.0)}
    told = advice([variant("x", "ab", "perturbed")], counted, campaign, FILE)
    (search,) = [one for one in told if "measure partition" in one.text]
    assert "--out results/mine-seed4`" in search.text
    assert "`measure explain /data/first` says why" in search.text_in("/data/first")
    assert "--set seed=4 --out /data/first-seed4`" in search.text_in("/data/first")


def test_no_second_run_is_advised_for_a_program_with_threads() -> None:
    campaign = campaign_of(x=("a",))
    for starts_tasks in (False, True):
        counted = {"x": Counted({}, (), 1.0, ("a",), starts_tasks)}
        told = " ".join(texts(advice([variant("x", "a", "perturbed")], counted, campaign, FILE)))
        assert "where the compiler makes the same code" in told
        assert ("with `method: second_run`" in told) == (not starts_tasks)
