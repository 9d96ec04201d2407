"""`measure check-sampling`: sampling judged by the statistics of the main job."""

from __future__ import annotations

import json
from dataclasses import fields
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result
from pydantic import ValidationError
from rich.console import Console

from common.quantities import parse_count
from measure.cli import main
from measure.cycle_close.tracer import TracerSettings
from measure.errors import ArgumentError
from measure.perturbation.finding import Finding
from measure.run_types import BASELINE
from measure.sampling_check import page as sampling_check_page
from measure.sampling_check.check import (
    ADVICE,
    SIMULATED,
    SamplingConfiguration,
    SamplingResult,
    analyse_check,
    common_intervals,
    load_check,
    plan_check,
)
from measure.sampling_check.page import describe, headline, next_steps, print_check, told
from tests.measure.report.page_structure import problems

ROOT = Path(__file__).parent.parent.parent.parent
PROGRAM = """
#include <stdio.h>
static volatile int data[1 << 14];
int main(void) {
  long s = 1;
  for (int k = 0; k < 12; k++) {
    for (long i = 0; i < 8000; i++) s += data[(i * 17) & 0x3fff];
    for (long i = 0; i < 9000; i++) { s = s * 1103515245 + 12345; if (s >> 16 & 1) s += 3; }
    for (long i = 0; i < 4000 + 500 * k; i++) s = s * 31 + (s >> 7);
  }
  printf("%ld\\n", s);
  return 0;
}
"""
CHECK = """
name: small
program: {source: two.c}
machine: MACHINE
sampling: {every: 5k instructions}
hardware_metrics: [PAPI_TOT_CYC, PAPI_BR_CN, PAPI_L1_DCM]
configurations:
  everything: {threshold: 0.000001, samples: 1000}
  loose: {threshold: 1, warm_references: 0, warm_branches: 0}
baselines: 6
replicates: 4
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "two.c").write_text(PROGRAM)
    machine = ROOT / "configs" / "machines" / "strongarm.yaml"
    (tmp_path / "c.yaml").write_text(CHECK.replace("MACHINE", str(machine)))
    return tmp_path


def check(folder: Path) -> Result:
    return CliRunner().invoke(
        main, ["check-sampling", str(folder / "c.yaml"), "--out", str(folder / "out"), "--workers", "2"]
    )


@pytest.mark.slow
def test_a_check_tells_good_sampling_from_bad(folder: Path) -> None:
    result = check(folder)
    assert result.exit_code == 0, result.output
    about = json.loads((folder / "out" / "summary.json").read_text())
    everything, loose = about["configurations"]["everything"], about["configurations"]["loose"]
    assert everything["simulated_share"] > 0.99
    assert loose["simulated_share"] < 0.1
    assert loose["inner"]["verdict"] == "perturbed" or loose["outer"]["verdict"] == "perturbed"
    assert everything["inner"]["verdict"] != "perturbed"
    assert everything["outer"]["verdict"] != "perturbed"
    for one in (everything, loose):
        assert one["inner"]["comparisons"] == one["outer"]["comparisons"] == 4  # they share alpha
    told = " ".join([*loose["inner"]["findings"], *loose["outer"]["findings"]])
    assert ADVICE in told  # advice about sampling, not about software metrics
    page = (folder / "out" / "report.html").read_text()
    assert problems(page) == []
    assert "software metric" not in (page + told + result.output)
    assert "loose" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    again = check(folder)
    assert again.exit_code == 0
    assert json.loads((folder / "out" / "summary.json").read_text())["runs"]["reused"] == 14


def test_a_check_does_not_need_counters_for_its_metrics(folder: Path) -> None:
    """It takes events from simulations, and was refused with more metrics than the machine has counters."""
    machine = folder / "machine.yaml"
    machine.write_text(
        f"extends: {ROOT / 'configs' / 'machines' / 'strongarm.yaml'}\npmu: {{programmable_counters: 1}}\n"
    )
    path = folder / "few.yaml"
    text = (folder / "c.yaml").read_text()
    path.write_text(text.replace(text.partition("machine: ")[2].partition("\n")[0], str(machine)))
    plan = plan_check(*load_check(path), print)
    assert plan.campaign.hardware_metrics == ("PAPI_TOT_CYC", "PAPI_BR_CN", "PAPI_L1_DCM")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("5k instructions", "5k cycles", "c.yaml:5: got an interval in cycles, expected instructions"),
        (
            "5k instructions",
            "500 instructions",
            "c.yaml:5: got an interval of 500 instructions, expected at least 1,000",
        ),
        ("threshold: 1,", "treshold: 1,", "c.yaml:9: configurations.loose.treshold: unknown key"),
        (
            "threshold: 1,",
            "predictor: last-2, threshold: 1,",
            "c.yaml:9: configurations.loose.predictor: got the predictor",
        ),
        ("configurations:", "sweep: {warm: []}\nvariants: {}\nx:", "x: unknown key"),
        (
            "baselines:",
            "looks: 2\nbaselines:",
            "c.yaml:10: looks: unknown key, expected one of: name, program, machine",
        ),
        ("baselines:", "software_metrics: {}\nbaselines:", "c.yaml:10: software_metrics: unknown key, expected one of"),
        ("5k instructions", "5 ms", "c.yaml:5: got an interval in nanoseconds, expected instructions"),
        (
            "samples: 1000}",
            "every: 7k}",
            "c.yaml:2: got intervals of 7000 instructions in 'configurations', expected multiples of 5000",
        ),
    ],
)
def test_messages(folder: Path, old: str, new: str, message: str) -> None:
    path = folder / "c.yaml"
    path.write_text(path.read_text().replace(old, new))
    result = check(folder)
    assert result.exit_code == 2
    assert message in result.output


def test_a_check_given_to_measure_run_is_told_where_it_belongs(folder: Path) -> None:
    result = CliRunner().invoke(main, ["run", str(folder / "c.yaml")])
    assert result.exit_code == 2
    assert "configurations: this is a file for `measure check-sampling`" in result.output


def test_a_check_does_not_write_over_results_of_a_campaign(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "plan.json").write_text(json.dumps({"campaign": {"name": "small"}}))
    result = check(folder)
    assert result.exit_code == 2
    assert "has results of `measure run`, which would be lost" in result.output
    assert [path.name for path in (folder / "out").iterdir()] == ["plan.json"]


def test_a_configuration_is_described_by_what_differs_from_the_paper() -> None:
    assert describe(SamplingConfiguration.model_validate({})) == "as in the paper"
    assert (
        describe(SamplingConfiguration.model_validate({"warm_references": 0, "predictor": "last"}))
        == "predictor last, warm references 0"
    )
    configuration = SamplingConfiguration.model_validate({"roll_back": True, "every": "20k"})
    assert describe(configuration) == "every 20,000, roll back"


def test_a_configuration_has_the_settings_of_the_tracer() -> None:
    """Names, defaults and words, but for the word that leaves intervals without an estimate, which a check compares."""
    of_tracer = {field.name: field.default for field in fields(TracerSettings) if field.name != "interval_instructions"}
    assert SamplingConfiguration().model_dump(exclude={"every", "samples"}) == of_tracer
    theirs, own = get_type_hints(TracerSettings), SamplingConfiguration.model_fields
    for name in of_tracer:
        left_out = {"none"} if name == "unsampled" else set()
        assert set(get_args(own[name].annotation)) == set(get_args(theirs[name])) - left_out, name
    for name, field in own.items():
        said = yaml.safe_load(str(field.description).rpartition("Default: ")[2])
        is_count = isinstance(said, str) and isinstance(field.default, int)
        assert (parse_count(said) if is_count else said) == field.default, name


@pytest.mark.parametrize("value", [-1, 0, 1e-9, 0.5, 1, 2, 10, 11, 65536, 65537])
def test_a_configuration_may_have_the_numbers_that_the_tracer_takes(value: Any) -> None:
    for field in fields(TracerSettings):
        if isinstance(field.default, bool | str) or field.name == "interval_instructions":
            continue
        problems: list[Exception] = []
        for model in (TracerSettings, SamplingConfiguration):
            try:
                model(**{field.name: value})
            except (ArgumentError, ValidationError) as error:
                problems.append(error)
        assert len(problems) in (0, 2), (field.name, problems)


@pytest.mark.slow
def test_a_sweep_gives_configurations_and_says_from_where_on_they_are_equivalent(folder: Path) -> None:
    path = folder / "c.yaml"
    named = path.read_text()[path.read_text().index("configurations:") : path.read_text().index("baselines:")]
    swept = (
        "configurations: {control: {everything: true}, long: {every: 10k, samples: 1000, threshold: 0.000001}}\n"
        "common: {samples: 1000, threshold: 0.000001}\nsweep: {warm: [0, 3k], threshold: [1.0, 0.000001]}\n"
    )
    path.write_text(path.read_text().replace(named, swept))
    result = check(folder)
    assert result.exit_code == 0, result.output
    about = json.loads((folder / "out" / "summary.json").read_text())
    assert set(about["configurations"]) == {"control", "long", "warm=0", "warm=3k", "threshold=1.0", "threshold=1e-06"}
    assert about["configurations"]["warm=0"]["settings"]["warm_references"] == 0
    assert about["configurations"]["warm=3k"]["settings"]["warm_branches"] == 3000
    assert about["configurations"]["threshold=1e-06"]["settings"]["samples"] == 1000
    assert about["configurations"]["long"]["settings"]["every"] == 10_000
    assert about["configurations"]["control"]["simulated_share"] == 1
    assert set(about["equivalent_from"]) == {"warm", "threshold"}
    for setting, found in about["equivalent_from"].items():
        for kind, value in found.items():
            verdicts = [
                one["inner"]["verdict"] if kind == "inner" else one["verdict"]
                for name, one in about["configurations"].items()
                if name.startswith(f"{setting}=")
            ]
            assert (value is None) == (verdicts[-1] != "equivalent")
    assert "threshold: " in result.output


def test_traces_without_estimates_at_the_beginning_are_compared_from_there_on() -> None:
    full = [np.arange(10.0)[:, None] + 100 * k for k in range(2)]
    mine = [np.arange(1.0, 9.0)[:, None], np.arange(3.0, 10.0)[:, None]]
    baselines, runs = common_intervals(full, mine, [1, 3])
    for one in (*baselines, *runs):
        np.testing.assert_array_equal(one[:, 0] % 100, np.arange(3.0, 9.0))


def test_the_table_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling_check_page, "swept", lambda *_: [])
    monkeypatch.setattr(sampling_check_page, "headline", lambda *_: "")
    pair = SimpleNamespace(delta_z=0.123, name="A - B", baseline_rho=-0.71, run_rho=0.99)
    found: Any = SimpleNamespace(
        verdict="not assessable",
        pairs=[pair],
        said=(
            Finding(ADVICE, "advice"),
            Finding("one."),
            Finding("two."),
            Finding("another relation", pair="A - B"),
            Finding("three."),
        ),
    )
    one: Any = SimpleNamespace(
        name="two runs, long", verdict="not assessable", simulated=0.0312, speedup=13.2, inner=found, outer=found,
        configuration=SamplingConfiguration.model_validate({}),
    )  # fmt: skip
    console = Console(file=StringIO(), width=80)
    check_: Any = SimpleNamespace(name="sampling", baselines=20, replicates=5, delta=0.2, sweep={})
    print_check(console, check_, [one])
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    assert "│ two runs, long │ not assessable │      3.12 │     13.2 │ within: not" in shown
    assert "[%]" in shown
    assert "[times]" in shown
    # A change stood in the table, and nothing said which pair's it was; what to do was cut off with the findings.
    change = "the largest change of z, +0.12, is that of A - B: rho went from -0.71 to 0.99 or more."
    words = " ".join(shown.split())
    assert f"- two runs, long, within a run: {change} - two runs, long, within a run: one." in words
    assert "three" not in words
    assert "Next: nothing could be seen in what is not assessable: choose metrics that take many values" in words
    one.verdict = "inconclusive"
    assert next_steps(check_, [one]) == "More baselines and replicates than 20 and 5 may decide what is open."
    one.verdict = found.verdict = "perturbed"
    assert next_steps(check_, [one]).startswith(ADVICE)
    one.verdict = found.verdict = "equivalent"
    assert next_steps(check_, [one]) == ""
    assert [text for _, _, text in told([one], 1)] == ["one.", "one."]


def test_what_to_do_follows_from_the_verdicts() -> None:
    """It was said to go back where only going back was perturbed."""

    def result(name: str, verdict: str, **settings: Any) -> Any:
        configuration = SamplingConfiguration.model_validate(settings)
        return SimpleNamespace(name=name, verdict=verdict, configuration=configuration)

    check_: Any = SimpleNamespace(sweep={"threshold": [0.1]})
    control = result("control", "equivalent", everything=True)
    lines = result("lines", "changed", warm_up="lines", wait_step=0.2)
    back = result("back", "perturbed", roll_back=True, wait_step=0.2, threshold=0.125)
    assert next_steps(check_, [control, lines, back]) == (
        f"{ADVICE} No configuration here tries what may bring estimates closer: a `threshold` below 0.125 takes more "
        "samples. Not enough by itself here: `roll_back` or `samples` (back is perturbed); `warm_up: lines` (lines is "
        "changed); `wait_step: 0.2` (lines is changed, back is perturbed)."
    )
    told_ = next_steps(check_, [control, result("paper", "perturbed"), result("twice", "equivalent", samples=1)])
    assert told_.startswith(f"{ADVICE} Take twice, which is equivalent to full simulation. No configuration here tries")
    assert "`warm_up: lines` brings samples closer" in told_
    assert "roll_back" not in told_
    failed = result("coarse", "perturbed", everything=True)
    alone = next_steps(check_, [control, failed, result("twice", "equivalent", samples=1)])
    assert alone.startswith("A control failed: coarse. It simulates everything")
    assert ADVICE not in alone
    assert next_steps(check_, [failed, lines, back]).startswith(f"{alone} {ADVICE} No configuration here tries")


def test_what_could_not_be_seen_stands_beside_the_verdict() -> None:
    def judged(inner: str, outer: str) -> SamplingResult:
        parts: list[Any] = [SimpleNamespace(verdict=verdict) for verdict in (inner, outer)]
        return SamplingResult("control", SamplingConfiguration(), 1.0, 1.0, 1.0, *parts)

    assert judged("equivalent", "equivalent").caveat == ""
    assert judged("changed", "not assessable").caveat == ""
    half = judged("not assessable", "equivalent")
    assert half.verdict == "equivalent"
    assert headline([half]) == "Equivalent to full simulation: control (not assessable within a run)."


def test_traces_are_compared_over_the_intervals_that_all_of_them_have() -> None:
    """Within a run, too: intervals without an estimate at the beginning are not held against a trace."""
    rng = np.random.default_rng(3)

    def trace(missing: int) -> Any:
        values = rng.normal(size=(60, 2)) @ [[1.0, 0.9], [0.0, 0.4]]
        values[:20] *= 10, -100
        columns = (*values[missing:].T, np.ones(60 - missing))
        table = dict(zip(("PAPI_TOT_CYC", "PAPI_LD_INS", SIMULATED), columns, strict=True))
        ends = np.arange(60 - missing) * 5000 + 5000 * missing
        return SimpleNamespace(
            columns=lambda names: np.column_stack([table[name] for name in names]), boundaries_instructions=ends
        )

    configuration = SamplingConfiguration()
    campaign: Any = SimpleNamespace(
        hardware_metrics=("PAPI_TOT_CYC", "PAPI_LD_INS"), sampling=SimpleNamespace(interval=(5000, "instructions")),
        delta=0.2, alpha=0.05, seed=1, all_configurations=lambda: {"short": configuration},
    )  # fmt: skip
    runs = [
        SimpleNamespace(spec=SimpleNamespace(variant=variant), trace=trace(missing), seconds=1.0)
        for variant, missing in ((BASELINE, 0),) * 6 + (("short", 20),) * 6
    ]
    (found,) = analyse_check(campaign, SimpleNamespace(runs=runs))  # type: ignore[arg-type]
    assert found.inner.pairs[0].baseline_rho > 0.8
    assert found.inner.pairs[0].run_rho > 0.8
