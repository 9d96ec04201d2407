"""The experiment that sets rules of thumb beside `measure explain`: its rules, its counting of statements, its page."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.remedies import explain_and_compare as experiment
from experiments.remedies.explain_and_compare import examine, read_entries
from experiments.remedies.heuristics import selected, thresholds, throttled, within_overhead
from experiments.remedies.statements import Body, aggregated, aggregated_statements
from experiments.remedies.tables import (
    Case,
    cases_of,
    rules,
    table_of_cases,
    table_of_mechanisms,
    table_of_rules,
    table_of_times,
)
from measure.explanation import remedies

C_PROGRAM = """
static int twice(int x) { return 2 * x; }
static int apply(int (*function)(int), int x) { ; return function(x); }
static int (*const table[])(int) = {twice};
int unused(void) { return 1; }
static int loop(int n) {
  int sum = 0;
  for (int i = 0; i < n; i++) {
    if (i & 1)
      sum += apply(table[0], i);
    else
      sum--;
  }
again:
  do { n--; } while (n > 0);
  switch (sum) { case 0: sum = 1; break; default: goto again; }
  return sum;
}
int main(void) { return loop(3); }
"""


def test_statements_are_counted_with_all_that_a_function_reaches(tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    source.write_text(C_PROGRAM)
    found = aggregated_statements([source], [])
    own = 1 + 4 + 2 + 4 + 1  # declaration; for, if and its branches; do and its body; switch and its cases; return
    assert found == {"twice": 1, "apply": 1, "loop": own + 2, "main": own + 3}


def test_functions_that_call_one_another_are_counted_once() -> None:
    bodies = {"main": Body(2, {"even"}), "even": Body(3, {"odd"}), "odd": Body(4, {"even"}), "other": Body(9)}
    assert aggregated(bodies) == {"main": 9, "even": 7, "odd": 7}


def test_the_throttle_drops_what_is_called_often() -> None:
    events = {"rare": 100.0, "frequent": 2000.0}
    assert throttled(events, run_seconds=0.02, program_seconds=0.02) == ("rare", "frequent")
    assert throttled(events, run_seconds=0.02, program_seconds=1.0) == ("rare", "frequent")
    assert throttled(events, run_seconds=0.01, program_seconds=1.0) == ("rare",)
    with pytest.raises(ValueError, match="need the time of each call"):
        throttled(events, run_seconds=0.1, program_seconds=10.0)


def test_selection_takes_functions_from_the_threshold_on() -> None:
    statements = {"main": 30, "middle": 10, "leaf": 2, "other": 2}
    assert thresholds(statements) == {"median": 10, "unique median": 10}
    functions = {"a": "main", "b": "middle", "c": "leaf", "d": "not reached"}
    assert selected(statements, functions, 10) == ("a", "b")


@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 5), min_size=1), st.floats(0.1, 5))
def test_what_is_kept_costs_less_than_the_limit(costs: dict[str, float], limit: float) -> None:
    def overhead(metrics: frozenset[str]) -> float:
        return sum(costs[metric] for metric in metrics)

    kept = within_overhead(tuple(costs), overhead, limit)
    assert overhead(frozenset(kept)) < limit
    dropped = set(costs) - set(kept)
    assert all(costs[one] >= costs[other] for one in dropped for other in kept)


def example_case() -> Case:
    cost = {("a",): 0.2, ("b",): 4.0, ("a", "b"): 4.2}
    sets = [
        {"metrics": list(metrics), "cycles_percent": percent, "left_dz": percent / 10,
         "verdict": "equivalent" if metrics == ("a",) else "perturbed"}
        for metrics, percent in cost.items()
    ]  # fmt: skip
    found = {"verdict": "perturbed", "sets": sets, "metrics": {"b": [0.95, 0.9, 1.0], "a": [0.05, 0.01, 0.09]}}
    entry = {
        "campaign": "example", "machine": "desktop", "functions": {"a": "f", "b": "g"},
        "statements": {"f": 1, "g": 50, "main": 60}, "events": {"a": 10.0, "b": 5000.0, "seconds": 0.01},
        "variants": {"both": found},
    }  # fmt: skip
    return Case(entry, "both", found)


def test_rules_on_an_example() -> None:
    case = example_case()
    assert case.guilty == ("b",)
    kept = {name: rule(case) for name, rule in rules().items()}
    assert kept["TAU's throttle, in the run itself"] == ("a", "b")
    assert kept["TAU's throttle, in a second of it"] == ("a",)
    assert kept["PIRA's statements, median"] == ("b",)
    assert kept["overhead below 1%"] == kept["overhead below 3%"] == ("a",)
    assert kept["explain: without the guilty metrics"] == kept["the largest set that is equivalent"] == ("a",)
    lines = table_of_rules([case]).splitlines()
    assert "| PIRA's statements, median | 0 of 1 | 1 of 1 | 0 | 0 | 1 | 0 |" in lines
    assert "| overhead below 1% | 1 of 1 | 0 of 1 | 1 | 0 | 0 | 0 |" in lines


def test_the_page_has_the_tables_of_the_recorded_results() -> None:
    entries = read_entries(experiment.HERE / "results.json")
    cases = cases_of(entries)
    page = (experiment.HERE / "README.md").read_text(encoding="utf-8")
    tables = table_of_cases(cases), table_of_rules(cases), table_of_mechanisms(cases), table_of_times(entries)
    for table in tables:
        assert table in page
    for case in cases:
        shares = [share[0] for share in case.found["mechanisms"].values()]
        assert sum(shares) == pytest.approx(1, abs=0.001), case.name  # causes add up to the whole change
        assert sum(share[0] for share in case.found["metrics"].values()) == pytest.approx(1, abs=0.001), case.name


def test_a_case_without_verdicts_on_its_sets_is_told_by_its_causes_only() -> None:
    case = example_case()
    rest = {key: value for key, value in case.found.items() if key != "sets"}
    entry = {**case.entry, "variants": {"both": {**rest, "remedies": []}, "fine": {"verdict": "equivalent"}}}
    (other,) = cases_of([entry])
    assert other.guilty == ("b",)
    assert table_of_rules([case, other]) == table_of_rules([case])


@pytest.mark.slow
def test_a_campaign_is_run_explained_and_judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A campaign of the experiment with two metrics in each variant instead of four: three sets instead of fifteen."""
    here = tmp_path / "experiments" / "remedies"
    (here / "campaigns").mkdir(parents=True)
    (tmp_path / "configs").symlink_to(experiment.HERE.parents[1] / "configs")
    (here / "campaigns" / "netsimplex.yaml").write_text(
        f"extends: {experiment.HERE / 'campaigns' / 'netsimplex.yaml'}\n"
        "variants: {tree: [pivots, pushes], prices: [joins, pricings]}\nbaselines: 8\nreplicates: 8\n"
    )
    monkeypatch.setattr(experiment, "HERE", here)
    for module in (experiment, remedies):
        monkeypatch.setattr(module, "CONFIRMING_PAIRS", 4)
    monkeypatch.setattr(experiment, "DEFAULT_PAIRS", 4)
    entry = examine("netsimplex", "desktop", tmp_path / "results", 2, size="tiny")
    assert set(entry["variants"]) == {"tree", "prices"}
    assert entry["events"]["pricings"] > entry["events"]["pivots"] > 0
    cases = cases_of([entry])
    assert cases
    for case in cases:
        assert len(case.found["sets"]) == 3
        assert set(case.set_of(case.metrics)["metrics"]) == set(case.metrics)
        assert case.overhead(frozenset(case.metrics)) > 0
