"""What makes figures wrong stands first, everywhere: on the page, in the terminal, in the files."""

from __future__ import annotations

from dataclasses import replace

import jsonschema
from rich.console import Console

from measure.analysis.analysis import SUMMARY_JSON_SCHEMA, summary
from measure.perturbation.outlying_runs import OutlyingRuns
from measure.perturbation.uninformative_metrics import MetricFinding
from measure.report.html import render
from measure.report.next_steps import next_steps
from measure.report.terminal import print_result
from measure.runs.executor import Outcome
from measure.verdict_files.verdict_summary import verdict_document
from measure.verdict_files.verdict_table import table_of
from tests.measure.report.page_structure import problems
from tests.measure.report.synthetic_report import synthetic_report

WRONG = ("The program started processes in 6 of 6 runs: measure `with` care.", "The null control is <perturbed>.")
SILENT = MetricFinding("calls", "software", "no events", ("variant 0",), 1.0, 8, 2400, 0.0)

OUTLIER = OutlyingRuns(
    "variant 0", "MSP", ("run 3",), (1.5e6,), 2.7e5, 2.9e5, 7, 5.3, (), "MSP - <TOT>", "variant 0", -0.2, -0.1, (3,)
)  # fmt: skip


def test_what_makes_figures_wrong_comes_before_everything_else() -> None:
    data = replace(synthetic_report(4), invalidating=WRONG, metric_findings=(SILENT,), outlying_runs=(OUTLIER,))
    first, second = (
        "The program started processes in 6 of 6 runs: measure <code>with</code> care.",
        "control is &lt;perturbed&gt;.",
    )
    page = render(data, "results/drawn")
    assert problems(page) == []
    order = (
        "Read this first",
        first,
        second,
        "What to do</h2>",
        "Metrics that say little",
        "Runs that stand out",
        "<h2>Verdicts",
    )
    assert sorted(order, key=page.index) == list(order)
    assert page.count(first) == page.count(second) == 1
    console = Console(width=1000, record=True, file=None, highlight=False, force_terminal=False)
    with console.capture() as captured:
        print_result(console, data)
    assert captured.get().splitlines()[:2] == [f"!! {one}" for one in WRONG]
    assert captured.get().splitlines()[2:4] == [f"! {SILENT.text}", f"! {OUTLIER.text}"]
    for findings in (
        summary(data, Outcome((), (), 0, ()))["findings"], verdict_document(data)["findings"],
        [one.text for one in table_of(data).invalidations] + list(table_of(data).findings),
    ):  # fmt: skip
        assert findings == [*WRONG, SILENT.text, OUTLIER.text, *data.findings]
    whole = summary(data, Outcome((), (), 0, ()))
    assert whole["invalidating"] == list(WRONG)
    assert [(one["numbers"], one["change_without"], one["text"]) for one in whole["outlying_runs"]] == [
        ([3], -0.1, OUTLIER.text)
    ]
    jsonschema.validate(whole, SUMMARY_JSON_SCHEMA)


def test_without_anything_wrong_there_is_no_such_section() -> None:
    data = synthetic_report(4)
    assert "Read this first" not in render(data)
    assert summary(data, Outcome((), (), 0, ()))["invalidating"] == []


def test_counters_of_a_campaign_with_a_run_that_stands_out_are_not_called_harmless() -> None:
    data = synthetic_report(4, variants=1)
    assert {one.verdict for one in data.variants} == {"equivalent"}
    plain = next_steps(replace(data, said=()), "results/drawn")
    (step,) = next_steps(replace(data, said=(), outlying_runs=(OUTLIER,)), "results/drawn")
    assert plain[0].text.startswith("Use the counters: they change nothing that counts.")
    assert "some runs stand out (run 3 of variant 0)" in step.text
    assert step.commands == plain[0].commands


def test_counters_whose_runs_scatter_more_are_not_called_harmless() -> None:
    data = synthetic_report(4, variants=1)
    (one,) = data.variants
    pairs = (replace(one.inner.pairs[0], p_spread=0.001), *one.inner.pairs[1:])
    scattered = replace(one, inner=replace(one.inner, pairs=pairs))
    (step,) = next_steps(replace(data, said=(), variants=(scattered,)), "results/drawn")
    assert step.text.startswith("Use the counters with care: ")
    assert "runs of variant 0 scatter more than baselines" in step.text
    assert step.commands == ("measure merge results/drawn --out merged.parquet",)
