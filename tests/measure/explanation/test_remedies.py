"""The best remedies are judged again, in further pairs of runs, which share no noise with those that ranked them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from instrumenter.spec.software_metrics import MetricSpec
from measure.alignment.setting import DEFAULT_ALIGNMENT, AlignmentSetting
from measure.errors import MeasureError
from measure.explanation import remedies as tested
from measure.explanation.explanation_types import Remedy
from measure.explanation.paired_runs import PLAIN, PairedRuns, ProgramChoice
from measure.explanation.relations import Relations
from measure.explanation.remedies import CONFIRMING_PAIRS, CONFIRMING_SHARES, HOPELESS, Judge, try_remedies
from measure.explanation.remedy_candidates import SECOND_RUN, Candidate, _stand_in, candidates
from measure.perturbation.analysis_types import Perturbation, Verdict
from measure.run_types import CounterPlace, Run, Trace
from measure.targets.program_file import program_of
from tests.measure.explanation.conftest import Planted
from tests.measure.explanation.test_explanation import explanation

CHOICE = ProgramChoice(("counter",))
PROGRAM = """
int table[64];
int work(int n) { int sum = 0; for (int i = 0; i < n; i++) sum += table[i & 63] ^ i; return sum; }
int main(void) { int sum = 0; for (int i = 0; i < 4000; i++) sum += work(i & 31); return sum == 1; }
"""


class JudgedByName:
    """In place of runs: the verdicts on each remedy in the first pairs and in further ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, first: dict[str, Verdict], again: dict[str, Verdict]) -> None:
        self.again: list[str] = []
        self.tried: list[str] = []
        self._pairs = SimpleNamespace(
            further=lambda n: SimpleNamespace(n_pairs=n), campaign=SimpleNamespace(delta=0.2),
            runs=lambda choices: {one: [None] for one in choices},
        )  # fmt: skip
        judged = explanation().remedies[0].perturbation

        def tried(
            paired: SimpleNamespace, judge: object, candidate: Candidate, counted: object = None, share: float = 1
        ) -> Remedy:  # fmt: skip
            self.shares[candidate.name] = share
            further = paired is not self._pairs
            self.tried.append(candidate.name)
            if further:
                self.again.append(candidate.name)
            elif candidate.name not in first:
                raise MeasureError("does not build")
            verdict = (again if further else first)[candidate.name]
            left = self.left.get(candidate.name, 0.1 + 0.01 * list(first).index(candidate.name))
            alike = candidate.name in (self.alike_again if further else self.alike)
            return Remedy(
                candidate.name, "", verdict, judged, left, 0, "nothing", by_construction=alike,
                on_any_machine=not alike or candidate.name in self.on_any_machine,
            )  # fmt: skip

        monkeypatch.setattr(tested, "_tried", tried)
        monkeypatch.setattr(tested, "Judge", lambda paired, relations: None)
        self.left: dict[str, float] = {}
        self.alike: set[str] = set()  # equivalent by construction
        self.alike_again: set[str] = set()  # in further pairs
        self.on_any_machine: set[str] = set()  # also if by construction
        self.counts_nothing: set[str] = set()
        self.shares: dict[str, float] = {}

    def try_all(
        self, names: str, against: Mapping[str, tuple[str, ...]] | None = None,
        unless: Mapping[str, str] | None = None, unfit: Mapping[str, str] | None = None,
    ) -> tested.Tried:  # fmt: skip
        """All remedies that ``names`` lists, against mechanisms of the made-up explanation."""
        wanted = [
            Candidate(
                name,
                "",
                (PLAIN if name in self.counts_nothing else CHOICE,),
                "",
                against=(against or {}).get(name, ()),
                unless=(unless or {}).get(name, ""),
                unfit=(unfit or {}).get(name, ""),
            )
            for name in names
        ]
        pairs, mechanisms = cast(PairedRuns, self._pairs), explanation().mechanisms
        return try_remedies(pairs, cast(Relations, None), CHOICE, wanted, mechanisms)


def test_the_first_that_further_runs_confirm_is_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = JudgedByName(
        monkeypatch,
        {"a": "perturbed", "b": "equivalent", "c": "equivalent", "d": "equivalent"},
        {"b": "inconclusive", "c": "equivalent"},
    )
    found = runs.try_all("abcde").remedies
    assert runs.again == ["b", "c"]
    assert [(one.name, one.verdict, one.confirming_pairs, one.helps) for one in found] == [
        ("c", "equivalent", CONFIRMING_PAIRS, True),
        ("d", "equivalent", 0, False),
        ("b", "inconclusive", CONFIRMING_PAIRS, False),
        ("a", "perturbed", 0, False),
    ]


def test_the_first_three_are_judged_again_and_share_the_level_but_broken_ones_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    open_ones: dict[str, Verdict] = dict.fromkeys("abcd", "inconclusive")
    runs = JudgedByName(monkeypatch, open_ones, open_ones)
    runs.try_all("abcd")
    assert runs.again == ["a", "b", "c"]
    assert [runs.shares[one] for one in "abcd"] == [*CONFIRMING_SHARES, 1]
    assert sum(CONFIRMING_SHARES) == 1
    runs = JudgedByName(monkeypatch, {"a": "changed", "b": "perturbed"}, {})
    assert runs.try_all("ab").remedies[0].name == "a"
    assert runs.again == []


def test_what_changes_far_more_than_delta_is_not_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts: dict[str, Verdict] = {"a": "inconclusive", "b": "inconclusive"}
    runs = JudgedByName(monkeypatch, verdicts, verdicts)
    runs.left = {"a": HOPELESS * 0.2 + 0.01, "b": HOPELESS * 0.2}
    runs.try_all("ab")
    assert runs.again == ["b"]


def test_a_remedy_against_what_is_no_cause_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts: dict[str, Verdict] = dict.fromkeys("abc", "perturbed")
    runs = JudgedByName(monkeypatch, verdicts, {})
    found = runs.try_all("abc", {"a": ("layout",), "b": ("their memory accesses",)})
    assert runs.tried == ["a", "c"]  # layout makes a quarter of the change
    assert found.refused == ("b: it is against their memory accesses (0% of the change)",)


def test_what_is_equivalent_by_construction_comes_first_and_spares_judging_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first: dict[str, Verdict] = dict.fromkeys("bcdfg", "inconclusive")
    runs = JudgedByName(monkeypatch, first | {"a": "equivalent", "e": "equivalent"}, {"a": "equivalent"})
    runs.alike = {"e"}
    runs.left = {"d": 0.3, "e": 0.0}
    found = runs.try_all("abcdefg", unless={"f": "e", "g": "a"})
    assert runs.tried[:2] == ["a", "e"]  # others wait for the verdict on these
    assert "f" not in runs.tried
    assert found.refused == ("f: e gives up less",)
    assert (runs.again, runs.shares["a"]) == (["a"], 1.0)
    assert [one.name for one in found.remedies[:2]] == ["e", "a"]
    assert [one.helps for one in found.remedies] == [True, True, False, False, False, False]
    assert found.remedies[0].confirming_pairs == 0
    runs = JudgedByName(monkeypatch, {"a": "equivalent", "b": "inconclusive"}, {})
    runs.alike = {"a"}
    runs.try_all("ab")
    assert runs.again == []  # the first pairs leave it open
    open_ones: dict[str, Verdict] = dict.fromkeys("ab", "inconclusive")
    runs = JudgedByName(monkeypatch, open_ones, open_ones)
    assert "b" in [one.name for one in runs.try_all("ab", unless={"b": "a"}).remedies]


def test_nothing_is_judged_again_beside_what_is_equivalent_by_construction_on_any_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a hardware metric in place of one counter of several."""
    runs = JudgedByName(monkeypatch, dict.fromkeys("abc", "equivalent"), dict.fromkeys("abc", "equivalent"))
    runs.alike, runs.on_any_machine, runs.left = {"a", "b"}, {"b"}, {"b": 0.0}
    found = runs.try_all("abc").remedies
    assert runs.again == []
    assert [(one.name, one.helps, one.confirming_pairs) for one in found] == [
        ("b", True, 0),
        ("a", True, 0),
        ("c", False, 0),
    ]


def test_what_leaves_nothing_to_count_does_not_spare_judging_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """No campaign can be written with a hardware metric in place of the only counter, so the next remedy matters."""
    runs = JudgedByName(monkeypatch, dict.fromkeys("ab", "equivalent"), {"b": "equivalent"})
    runs.alike, runs.on_any_machine, runs.left, runs.counts_nothing = {"a"}, {"a"}, {"a": 0.0}, {"a"}
    found = runs.try_all("ab").remedies
    assert runs.again == ["b"]
    assert [(one.name, one.helps, one.confirming_pairs) for one in found] == [
        ("a", True, 0),
        ("b", True, CONFIRMING_PAIRS),
    ]


def test_a_verdict_of_further_pairs_is_not_by_construction(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pairs differ in what the machine counts, also where none of the further ones does."""
    runs = JudgedByName(monkeypatch, {"a": "equivalent"}, {"a": "equivalent"})
    runs.alike_again = {"a"}
    (best,) = runs.try_all("a").remedies
    assert (best.by_construction, best.confirming_pairs) == (False, CONFIRMING_PAIRS)


@pytest.mark.parametrize("layouts", [1, "each run"])
def test_counts_from_a_second_run_leave_what_the_machine_counts(planted: Planted, layouts: object) -> None:
    paired = planted(
        PROGRAM, {"counter": {"event": "loop", "function": "work"}, "works": {"event": "entry", "function": "work"}},
        pairs=2, noise={"code_layouts": layouts},
    )  # fmt: skip
    choice = ProgramChoice(("counter", "works"))
    wanted = candidates(paired, "all", choice, ["counter"], None)
    assert [one.name for one in wanted[:3]] == [SECOND_RUN, f"{SECOND_RUN} for counter", "probe for counter"]
    assert [one.unless for one in wanted[:3]] == ["", SECOND_RUN, SECOND_RUN]
    things = ("real", "one", "memory", "nothing", "the", "exact", "sources")  # "it gives up" stands before them
    assert all(one.gives_up.split()[0] in things for one in wanted)
    assert wanted[1].campaign == {
        "software_metrics": {"counter": {"method": "second_run", "local": None, "sampled": None}}
    }
    a, b = paired.hardware[:2]
    judge = Judge(paired, Relations([(a, b)], paired.hardware, DEFAULT_ALIGNMENT))
    remedy = tested._tried(paired, judge, wanted[0], paired.runs([choice])[choice][0])
    assert (remedy.verdict, remedy.left, remedy.cycles_percent) == ("equivalent", 0, 0)
    assert remedy.helps
    assert (remedy.by_construction, remedy.on_any_machine, remedy.confirming_pairs) == (True, False, 0)
    assert re.search(
        r"to \d+ instructions in half of the records, to [\d,]+ in the worst; a second run of", remedy.gives_up
    )
    assert "counts of" not in remedy.gives_up  # all events are there
    part = tested._tried(paired, judge, wanted[1])
    assert (part.by_construction, part.on_any_machine) == (False, False)
    runs = [paired.runs([one])[one][0] for one in (choice, wanted[0].runs_of[0], wanted[1].runs_of[0])]
    assert len({run.spec.metrics[4:6] for run in runs}) == 1
    for metric in choice.metrics:
        first, second, third = (run.trace.counts((metric,)).sum() for run in runs)
        assert second == pytest.approx(first, rel=0.02)
        assert third == pytest.approx(first, rel=0.02)


def traced(events: np.ndarray, branches: np.ndarray, cycles: np.ndarray, clock: str) -> Run:
    """A run whose records have 100 cycles each. ``events``, ``branches``, ``cycles``: of each step of the program."""
    at = np.arange(0, cycles.sum() + 1, 100)
    before = [np.concatenate([[0], np.cumsum(column)]) for column in (cycles, branches, events)]
    columns = [np.diff(np.interp(at, before[0], column).astype(np.int64)) for column in before[1:]]
    trace = Trace(at, at, np.stack(columns, axis=1), (clock, "mine"))
    counters, hardware = (CounterPlace("mine", "counters", 0),), (clock,)
    spec = SimpleNamespace(counters=counters, hardware_metrics=hardware, second_run=None)
    return cast(Run, SimpleNamespace(spec=spec, trace=trace))


def test_counts_are_late_by_a_clock_that_counters_leave_alone() -> None:
    """Without counters the code with the events, half of the steps, takes a fifth of the run, not two thirds."""
    n = np.arange(1000)
    events, branches, cycles = np.where(n < 500, 10, 0), np.full(1000, 5), np.where(n < 500, 10, 40)
    counted = traced(events, branches, cycles + 7 * events, "PAPI_BR_CN")
    exact = traced(events, branches, cycles, "PAPI_BR_CN")
    assert tested._other_counts(counted, exact) == tested._other_counts(exact, counted) == ""
    late = traced(events[n - 300] * (n >= 300), branches, cycles, "PAPI_BR_CN")
    said = r"up to 5\d% of the counts of mine are late or early, by more than 2% of the run's conditional branches"
    assert re.fullmatch(said, tested._other_counts(counted, late))
    assert re.fullmatch(said, tested._other_counts(late, counted))
    more = traced(events, branches + events, cycles, "PAPI_BR_CN")  # as counters with a countdown have
    assert tested._other_counts(counted, more) == ""
    others = [traced(run_events, branches, cycles, "PAPI_LD_INS") for run_events in (events, events[::-1])]
    assert tested._other_counts(*others) == ""  # nothing to tell a time by


def test_totals_of_a_few_events_are_compared_by_events() -> None:
    """The first of 5 events fell before the first record of one run: "counts +25.0%", and "20% late"."""
    branches, cycles, n = np.full(1000, 5), np.full(1000, 10), np.arange(1000)
    five, four = (traced((n % 200 == 100) & (n >= begin), branches, cycles, "PAPI_BR_CN") for begin in (0, 200))
    assert tested._other_counts(four, five) == tested._other_counts(five, four) == ""
    many = traced(n % 2, branches, cycles, "PAPI_BR_CN")
    none, half = (traced((n % 2) * (n > begin), branches, cycles, "PAPI_BR_CN") for begin in (1000, 500))
    assert tested._other_counts(many, none) == "mine counts -100.0% (0 events for 500)"
    assert tested._other_counts(many, half).startswith("mine counts -50.0% (250 events for 500); up to ")


def test_events_of_a_rare_metric_are_not_sampled(planted: Planted) -> None:
    """One in 16 of 5 events was the best remedy for a real machine: no run counted any."""
    source = PROGRAM.replace("int main(void) {", "void rare(void) { table[0]++; }\nint main(void) { rare();")
    metrics = {"rare": {"event": "entry", "function": "rare"}, "works": {"event": "loop", "function": "work"}}
    paired = planted(source, metrics, pairs=1)
    unfit = {
        one.name: one.unfit
        for first in metrics
        for one in candidates(paired, "all", ProgramChoice(tuple(metrics)), [first], None)
    }
    assert unfit["one in 16 events of works"] == ""
    assert re.fullmatch(
        r"rare has [01] events in a run, 0\S* in a record, expected at least 1,024 and the standard error of 6.5: "
        "few records would have a count",
        unfit["one in 16 events of rare"],
    )


def test_a_remedy_that_is_not_fit_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = JudgedByName(monkeypatch, dict.fromkeys("ab", "equivalent"), dict.fromkeys("ab", "equivalent"))
    found = runs.try_all("ab", unfit={"a": "it is too rare"})
    assert (found.refused, [one.name for one in found.remedies]) == (("a: it is too rare",), ["b"])


@pytest.mark.parametrize(("sign", "said"), [(1, "rises"), (-1, "falls")])
def test_a_metric_that_stands_in_for_another_is_told_with_its_correlation_and_sign(sign: int, said: str) -> None:
    counts = np.arange(100)
    trace = Trace(
        np.arange(101), np.arange(101), np.stack([counts % 7, 200 + sign * counts, counts], 1), ("x", "y", "m")
    )
    paired = SimpleNamespace(
        hardware=("x", "y"), runs=lambda choices: {one: [SimpleNamespace(trace=trace)] for one in choices}
    )
    (found,) = _stand_in(cast(PairedRuns, paired), ProgramChoice(("m",)), "m", {})
    assert (found.name, found.about) == ("y in place of m", f"its rank correlation with m is {sign:+.2f} within a run")
    assert found.gives_up == f"the counts of m: y {said} as they rise, with a rank correlation of {sign:+.2f}"


def test_remedies_are_aligned_as_the_campaign_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were aligned by the default, so that a remedy's verdict could differ from that of a campaign with it."""
    used: list[AlignmentSetting] = []
    unchanged = explanation().remedies[0].perturbation

    def outer(*_: object, alignment: AlignmentSetting, **__: object) -> Perturbation:
        used.append(alignment)
        return unchanged

    monkeypatch.setattr(tested, "inner_perturbation", lambda *_, **__: unchanged)
    monkeypatch.setattr(tested, "outer_perturbation", outer)
    setting = AlignmentSetting(0.3, 0.5)
    campaign = SimpleNamespace(alpha=0.05, delta=0.2, seed=1, outer=True, alignment_setting=setting)
    paired = SimpleNamespace(runs=lambda _: {PLAIN: []}, campaign=campaign, hardware=("a", "b"), correlations=list)
    Judge(cast("PairedRuns", paired), Relations([("a", "b")], ("a", "b"), setting))([])
    assert used == [setting]


def test_a_remedy_of_several_runs_costs_what_the_costliest_one_does(planted: Planted) -> None:
    """The mean over its runs made it look as if splitting halved the overhead."""
    metrics = {"counter": {"event": "loop", "function": "work"}, "works": {"event": "entry", "function": "work"}}
    paired = planted(PROGRAM, metrics, pairs=2)
    often, seldom = ProgramChoice(("counter",)), ProgramChoice(("works",))
    a, b = paired.hardware[:2]
    judge = Judge(paired, Relations([(a, b)], paired.hardware, DEFAULT_ALIGNMENT))
    costs = [
        tested._tried(paired, judge, Candidate("a run each", "", runs_of, "")).cycles_percent
        for runs_of in ((often,), (seldom,), (often, seldom), (seldom, often))
    ]
    assert costs[0] > 2 * costs[1] > 0
    assert costs[2:] == [costs[0]] * 2


def test_every_pair_has_a_layout_of_its_own_where_runs_of_the_campaign_have(planted: Planted) -> None:
    metrics = {"counter": {"event": "entry", "function": "work"}}
    paired = planted(PROGRAM, metrics, pairs=6, noise={"code_layouts": "each run"})
    further = paired.further(CONFIRMING_PAIRS)
    seeds = [one.layout_seed(pair) for one in (paired, further) for pair in range(one.n_pairs)]
    assert len(set(seeds)) == 16
    assert paired.first(2).further(3).layout_seed(0) == further.layout_seed(0)
    assert {spec.build_key for spec in (paired.spec(CHOICE, pair) for pair in range(3))} == {paired.build(CHOICE).key}
    linked, placed = paired.spec(CHOICE, 1), paired.placed(CHOICE, 1)
    assert (linked.layout_seed, placed.layout_seed) == (seeds[1], None)
    assert program_of(linked) == Path(placed.binary).read_bytes() != program_of(paired.spec(CHOICE, 0))
    first, again = paired.make([linked, placed])
    assert np.array_equal(first.trace.values, again.trace.values)
    few = planted(PROGRAM, metrics, pairs=6, noise={"code_layouts": 2})
    assert [few.layout(pair) for pair in range(4)] == [0, 1, 0, 1]


def test_further_pairs_have_noise_of_their_own_and_the_same_programs(planted: Planted) -> None:
    paired = planted(PROGRAM, {"counter": {"event": "entry", "function": "work"}}, pairs=2)
    assert paired.campaign.software_metrics["counter"] == MetricSpec(event="entry", function="work")
    further = paired.further(3)
    again = further.further(1)
    assert paired.first(1).seed(0) == paired.seed(0)
    assert paired.first(1).further(3).seed(0) == further.seed(0)
    seeds = [[one.seed(pair) for pair in range(one.n_pairs)] for one in (paired, further, again)]
    assert len({seed for some in seeds for seed in some}) == 6
    first, more = paired.runs([PLAIN, CHOICE]), further.runs([PLAIN, CHOICE])
    assert [run.spec.replicate for run in more[CHOICE]] == [2, 3, 4]
    assert {run.spec.build_key for run in more[CHOICE]} == {run.spec.build_key for run in first[CHOICE]}
    assert paired.n_runs == further.n_runs == 2 * (2 + 3)
    assert replace(first[PLAIN][0].spec, seed=0, replicate=0) == replace(more[PLAIN][0].spec, seed=0, replicate=0)
