"""Metrics that say little are told first and beside every verdict; verdicts and p-values are said in one way."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from measure.analysis.analysis import SUMMARY_JSON_SCHEMA, analyse
from measure.analysis.stored_runs import load_results
from measure.cli import main
from measure.perturbation.analysis_types import Pair, Perturbation, Verdict
from measure.perturbation.uninformative_metrics import TIED, caveat, metric_findings
from measure.perturbation.wording import in_words, p_number, p_text, pair_in_words, percent
from measure.report.ground_truth_section import source_error
from measure.report.html import render
from measure.report.model import MetricSource, ReportData
from measure.report.terminal import print_result
from tests.measure.demo_program import PROGRAM as DEMO
from tests.measure.fake_runs import fake_runs_in_this_process

ROOT = Path(__file__).parents[3]
PROGRAM = """\
int state;
void work(void) { state++; }
void seldom(void) { state += 2; }
void never(void) { state = 0; }
int main(int argc, char **argv) { for (int n = 0; n < 9; n++) work(); if (argc > 9) { never(); seldom(); } return 0; }
"""
CAMPAIGN = f"""\
name: demo
program: {{source: demo.c}}
machine: {ROOT}/configs/machines/desktop.yaml
sampling: {{every: 4000 cycles}}
hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS, PAPI_BR_MSP, PAPI_FSQ_INS]
software_metrics:
  rounds: {{event: entry, function: work}}
  silent: {{event: entry, function: never}}
  rare: {{event: call, callee: seldom}}
  perturbing: {{event: loop, function: main}}
variants: {{light: [rounds, silent], slight: [rare], heavy: [rounds, silent, perturbing]}}
baselines: 20
replicates: 4
noise: {{code_layouts: 1}}
delta: 0.6
"""


def measure(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("findings")
    (folder / "demo.c").write_text(PROGRAM)
    (folder / "c.yaml").write_text(CAMPAIGN)
    with fake_runs_in_this_process():
        result = measure("run", folder / "c.yaml", "--out", folder / "out", "--target", "fake")
    assert result.exit_code == 0, result.output
    (folder / "output").write_text(result.output)
    return folder


def campaign_path(folder: Path) -> str:
    """The path as advice gives it: seen from the current directory where that is shorter."""
    return min(str(folder / "c.yaml"), os.path.relpath(folder / "c.yaml"), key=len)


@pytest.fixture(scope="module")
def data(folder: Path) -> ReportData:
    made, outcome = load_results(folder / "out")
    return analyse(made.plan, outcome)


def test_they_come_first_in_the_summary(folder: Path) -> None:
    summary = json.loads((folder / "out/summary.json").read_text())
    jsonschema.validate(summary, SUMMARY_JSON_SCHEMA)
    found = {(one["metric"], one["problem"]): one for one in summary["metric_findings"]}
    assert set(found) == {("PAPI_FSQ_INS", "no events"), ("silent", "no events"), ("rare", "tied")}
    silent = found["silent", "no events"]
    assert (silent["kind"], silent["variants"], silent["events"]) == ("software", ["light", "heavy"], 0)
    assert (silent["runs"], silent["records"]) == (8, 8 * 300)
    assert found["rare", "tied"]["share"] > TIED
    assert [one["problem"] for one in summary["metric_findings"]] == ["no events", "no events", "tied"]
    assert any(f"measure run --counts {campaign_path(folder)}" in told for told in summary["findings"])
    assert summary["findings"][:3] == [one["text"] for one in summary["metric_findings"]]
    light = summary["variants"]["light"]
    assert light["verdict"] == "equivalent"
    assert light["caveat"] == "it leaves out PAPI_FSQ_INS (no events) and collects silent (no events)"
    assert light["in_words"]["inner"].endswith("; it leaves out PAPI_FSQ_INS (no events)")
    slight = summary["variants"]["slight"]
    assert slight["caveat"].startswith("it leaves out PAPI_FSQ_INS (no events) and collects rare (")
    assert summary["variants"]["heavy"]["caveat"] is None


def test_they_come_first_in_terminal_and_page(folder: Path, data: ReportData) -> None:
    output = (folder / "output").read_text()
    told = " ".join(output.split())
    assert "! silent (software metric) counted no event within the records in 8 runs of light, heavy" in told
    assert told.index("! silent") < told.index("demo: 20 baselines")
    assert "equivalent, but" in told
    page = render(data)
    place = page.index("Metrics that say little")
    assert place < page.index('<div class="verdicts">')
    assert "silent (software metric) counted no event within the records" in page[place:]
    for beside in ("it leaves out PAPI_FSQ_INS (no events) and collects silent (no events)",):
        assert f'equivalent<span class="beside">, but {beside}</span>' in page
        assert f"light: equivalent, but {beside}</h2>" in page


def test_the_terminal_fits_80_columns_and_cuts_nothing(data: ReportData) -> None:
    """Also with names that are long, and every kind of verdict."""
    variants = list(data.variants)
    cases: tuple[tuple[str, Verdict, float], ...] = (
        ("a_rather_long_name_of_a_variant", "inconclusive", 0.0312),
        ("x", "equivalent", 1e-4),
        ("y", "perturbed", 1e-4),
        ("z", "changed", 0.02),
        ("u", "not assessable", 0.5),
    )
    for name, verdict, p in cases:
        of_pairs: Verdict = "equivalent" if verdict == "inconclusive" else verdict
        pairs = tuple(replace(pair, verdict=of_pairs, p_adjusted=p, reasons=()) for pair in variants[0].inner.pairs)
        inner = replace(variants[0].inner, verdict=verdict, p_value=p, pairs=pairs, alpha=0.05, comparisons=1)
        variants.append(replace(variants[0], name=name, inner=inner, outer_held_out=None))
    console = Console(width=80, force_terminal=False, highlight=False)
    with console.capture() as captured:
        print_result(console, replace(data, variants=tuple(variants)))
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line.startswith("│") and not line.endswith("│")] == []
    text = "\n".join(lines)
    assert "…" not in text
    for word in ("perturbed", "changed", "equivalent", "inconclusive", "not assessable", "changed < delta"):
        assert any(f"│ {word} " in line for line in lines), word
    told = " ".join(text.replace("│", " ").split())
    for words in (
        "changed measurably, by less than delta (p < 0.001)",
        "delta is not excluded; what changed measurably changed by less (p = 0.031)",
    ):
        assert [word for word in words.split() if word not in told] == [], text
    assert "equivalent (p" not in told


def test_the_advice_names_metrics_and_the_next_command(folder: Path) -> None:
    findings = json.loads((folder / "out/summary.json").read_text())["findings"]
    told = " ".join(findings)
    assert "light collects all of its metrics but perturbing, and is equivalent: what this metric adds" in told
    assert "come from perturbing: 95% of the" in told
    assert f"`measure partition {campaign_path(folder)}`" in told


def test_the_advice_finds_the_campaign_from_where_one_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    result = measure("report", "out")
    assert "`measure partition c.yaml`" in " ".join(result.output.split())


def test_one_metric_alone_cannot_be_split(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "demo.c").write_text(PROGRAM)
    text = CAMPAIGN.replace("heavy: [rounds, silent, perturbing]", "heavy: [perturbing]") + "outer: false\n"
    (tmp_path / "c.yaml").write_text(text)
    with fake_runs_in_this_process():
        result = measure("run", tmp_path / "c.yaml", "--out", tmp_path / "out", "--target", "fake")
    told = " ".join(result.output.split())
    assert "heavy collects one metric only, which cannot be split" in told
    assert "measure partition" not in told


# --- the parts
columns = st.lists(st.integers(0, 3), min_size=1, max_size=12)


@given(st.dictionaries(st.sampled_from("abc"), st.lists(columns, min_size=1, max_size=4), min_size=1))
def test_metric_findings_equal_counting(runs: dict[str, list[list[int]]]) -> None:
    tables = {name: [np.array(run, np.float64)[:, None] for run in group] for name, group in runs.items()}
    expected: dict[str, str] = {}
    for name, group in runs.items():
        shares = []
        for run in group:
            most = max(Counter(run).values())
            shares.append(most / len(run) if most > 1 else 0)
        if all(value == 0 for run in group for value in run):
            expected[name] = "no events"
        elif all(len(set(run)) == 1 for run in group):
            expected[name] = "constant"
        elif sum(shares) / len(shares) > TIED:
            expected[name] = "tied"
    found = metric_findings(tables, ("m",), "software")
    assert {group: one.problem for one in found for group in one.variants} == expected
    for one in found:
        concerned = [run for group in one.variants for run in runs[group]]
        assert one.events == sum(map(sum, concerned))
        assert (one.runs, one.records) == (len(concerned), sum(map(len, concerned)))
    assert bool(caveat(found)) == bool(found)


def test_a_share_does_not_read_as_the_limit_that_it_exceeds_or_as_all_records() -> None:
    def told(values: list[float]) -> str:
        (found,) = metric_findings({"a": [np.array(values)[:, None]]}, ("m",), "hardware")
        return found.text

    assert "one value in 50.40% of the records" in told([1.0] * 504 + list(range(2, 498)))
    assert "one value in 52% of the records" in told([1.0] * 52 + list(range(2, 50)))
    assert "one value in 99.90% of the records" in told([1.0] * 999 + [2.0])


def test_a_metric_by_which_records_are_cut_is_nearly_constant(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    cut, loads = 20_000 + rng.integers(0, 40, 400), rng.integers(3000, 5000, 400)
    cut[-1] = 311  # the end of a run
    one = np.column_stack([cut, loads]).astype(float)
    (found,) = metric_findings({"light": [one, one + 3]}, ("PAPI_TOT_INS", "PAPI_LD_INS"), "hardware")
    assert (found.metric, found.problem, found.brief) == (
        "PAPI_TOT_INS", "nearly constant", "PAPI_TOT_INS (nearly constant)",
    )  # fmt: skip
    assert "95% of the records are within 0.5% of one value, as where records are cut by this metric" in found.text
    assert caveat([found]) == "it involves PAPI_TOT_INS (nearly constant)"
    wide = np.column_stack([loads, loads + cut % 7]).astype(float)
    assert not metric_findings({"": [one, wide]}, ("a", "b"), "hardware")  # in one run only


def test_a_campaign_that_cuts_records_by_instructions_says_so(tmp_path: Path) -> None:
    (tmp_path / "mine.c").write_text(DEMO)
    text = (
        CAMPAIGN.replace("demo.c", "mine.c")
        .replace("4000 cycles", "4000 instructions")
        .replace("baselines: 20", "baselines: 2")
    )
    text = text.replace("replicates: 4", "replicates: 1\ncontrols: false").replace(
        "PAPI_BR_MSP, PAPI_FSQ_INS", "PAPI_BR_CN"
    )
    text = re.sub(r"software_metrics:.*heavy: .*?}\n", "software_metrics: {rounds: {event: entry, function: work}}\n"
                  "variants: {light: [rounds]}\n", text, flags=re.DOTALL)  # fmt: skip
    (tmp_path / "c.yaml").write_text(text)
    result = measure("run", tmp_path / "c.yaml", "--out", tmp_path / "out", "--workers", "1")
    assert result.exit_code == 0, result.output
    findings = json.loads((tmp_path / "out" / "summary.json").read_text())["metric_findings"]
    assert ("PAPI_TOT_INS", "nearly constant") in {(one["metric"], one["problem"]) for one in findings}


def test_what_was_not_measured_is_no_zero() -> None:
    nothing = np.full((5, 1), np.nan)
    assert metric_findings({"a": [nothing]}, ("m",), "hardware") == []
    half = np.array([[np.nan], [3.0], [3.0]])
    (found,) = metric_findings({"a": [half, nothing]}, ("m",), "hardware")
    assert (found.problem, found.records) == ("constant", 2)


def perturbation(verdict: Any, p: float) -> Perturbation:
    return Perturbation("inner", verdict, (), p, 0.2, 0.05, 20, 5, 0, False, None, ())


@pytest.mark.parametrize(
    ("verdict", "p", "words"),
    [
        ("perturbed", 0.0001, "changed by more than delta (p < 0.001)"),
        ("changed", 0.0123, "changed measurably, perhaps by more than delta (p = 0.012)"),
        ("not assessable", 0.3, "an absence of change cannot be shown (p = 0.300)"),
        (
            "not assessable",
            0.004,
            "changed measurably, by less than delta; elsewhere an absence of change cannot be shown (p = 0.004)",
        ),
        ("equivalent", 0.0001, "changed measurably, by less than delta (p < 0.001)"),
        ("equivalent", 0.05, "changed measurably, by less than delta (p = 0.050)"),
        ("equivalent", 0.3, "no measurable change, less than delta (p = 0.300)"),
        (
            "inconclusive",
            0.0123,
            "delta is not excluded; what changed measurably changed by less (p = 0.012)",
        ),
        ("inconclusive", 0.3, "no measurable change, but delta is not excluded (p = 0.300)"),
        ("inconclusive", float("nan"), "not tested (no p-value)"),
    ],
)
def test_verdicts_in_words(verdict: str, p: float, words: str) -> None:
    assert in_words(perturbation(verdict, p)) == words


def test_a_p_value_between_its_level_and_alpha_is_told_with_the_level() -> None:
    shared = replace(perturbation("inconclusive", 0.024), comparisons=4)
    assert in_words(shared) == (
        "no measurable change, but delta is not excluded (p = 0.024, above its level of 0.0125)"
    )
    assert in_words(replace(shared, p_value=0.3)).endswith("(p = 0.300)")
    assert in_words(replace(shared, p_value=0.01)).endswith("(p = 0.010)")


def test_a_change_that_a_drift_leaves_open_is_not_said_to_be_small(data: ReportData) -> None:
    """It read "changed measurably, by less than delta" where nothing is known of a change but the order of runs."""
    inner = data.variants[0].inner
    pairs = tuple(replace(pair, verdict="inconclusive", p_adjusted=0.01) for pair in inner.pairs)
    drifting = replace(inner, verdict="inconclusive", p_value=0.01, pairs=pairs, alpha=0.05, comparisons=1)
    assert in_words(drifting) == "changed measurably, perhaps by a drift in the order of the runs (p = 0.010)"
    few = replace(drifting, pairs=tuple(replace(pair, verdict="equivalent") for pair in pairs))
    assert in_words(few).startswith("delta is not excluded; what changed measurably changed by less")


def test_a_metric_that_became_constant_is_not_said_to_have_changed_by_more_than_delta(data: ReportData) -> None:
    inner = data.variants[0].inner
    gone = replace(inner.pairs[0], verdict="perturbed", simultaneous=(float("nan"), float("nan")))
    vanished = replace(inner, verdict="perturbed", p_value=0.001, pairs=(gone,), alpha=0.05, comparisons=1)
    assert in_words(vanished).startswith(
        "a metric is constant in the runs or in the baselines, and not in the others ("
    )
    moved = replace(gone, simultaneous=(inner.delta + 0.1, 3.0))
    assert in_words(replace(vanished, pairs=(gone, moved))).startswith("changed by more than delta (")


def test_runs_that_can_show_no_change_are_not_said_to_have_none() -> None:
    few = replace(perturbation("inconclusive", 0.1), too_few=True)
    assert in_words(few) == "too few runs to show a change, and delta is not excluded (p = 0.100)"


def test_numbers_in_words() -> None:
    assert [p_number(p) for p in (0.0004, 0.001, 0.5, float("nan"))] == ["< 0.001", "0.001", "0.500", "-"]
    assert [p_text(p) for p in (0.0004, 0.5, float("nan"))] == ["p < 0.001", "p = 0.500", "no p-value"]
    assert [percent(x) for x in (1.234, -0.5, -0.001, float("nan"))] == ["+1.23%", "-0.50%", "+0.00%", "unknown"]
    pair = Pair("a", "b", 0, 1, 0, 0, 1, 0, 0, (0, 0), (0, 0), 0, 0.01, 0.1, 1, 0.1, "equivalent")
    assert pair_in_words(pair, 0.05) == "changed < delta"
    assert pair_in_words(replace(pair, p_adjusted=0.2), 0.05) == "equivalent"
    assert pair_in_words(replace(pair, verdict="perturbed"), 0.05) == "perturbed"


def test_what_was_not_counted_has_no_error() -> None:
    assert source_error(MetricSource("m", "", float("nan"), float("nan"))) == "unknown: nothing was counted"
    assert source_error(MetricSource("m", "", 1.234, float("nan"))) == "1.2% off, rho undefined"
    assert source_error(MetricSource("m", "", 1.234, 0.5)) == "1.2% off, rho 0.500"


def test_p_values_are_formatted_in_one_place() -> None:
    for path in (ROOT / "measure").rglob("*.py"):
        if path.name != "wording.py":
            text = path.read_text()
            assert not re.search(r"[^_a-z]p [=<] \{", text), path
            assert "p_adjusted:." not in text, path
            assert "p_value:." not in text, path


def test_a_metric_that_is_constant_in_some_runs_only_has_changed() -> None:
    varying, constant = np.arange(40.0).reshape(20, 2), np.ones((20, 2))
    one, other = metric_findings({"baseline": [varying], "light": [constant]}, ("A", "B"), "hardware")
    for found in (one, other):
        assert found.text.endswith(
            "in 1 run of light, but not in the others: its correlations are undefined there, a change."
        )
        assert "no verdict" not in found.text
    assert caveat([one, other]) == ""  # the verdict does not leave them out
    (everywhere, _) = metric_findings({"baseline": [constant], "light": [constant]}, ("A", "B"), "hardware")
    assert "no verdict says anything about it" in everywhere.text
    assert caveat([everywhere]).startswith("it leaves out A")
