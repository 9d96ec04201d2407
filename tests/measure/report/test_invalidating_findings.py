"""What makes figures wrong stands first, everywhere: on the page, in the terminal, in the files."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from measure.campaign.analysis import summary
from measure.campaign.executor import Outcome
from measure.campaign.terminal import print_result
from measure.perturbation.uninformative_metrics import MetricFinding
from measure.report.html import render
from measure.verdict_files.verdict_summary import verdict_document
from measure.verdict_files.verdict_table import table_of
from tests.measure.report.page_structure import problems
from tests.measure.report.synthetic_report import synthetic_report

WRONG = ("The program started processes in 6 of 6 runs: measure `with` care.", "The null control is <perturbed>.")
SILENT = MetricFinding("calls", "software", "no events", ("variant 0",), 1.0, 8, 2400, 0.0)


def test_what_makes_figures_wrong_comes_before_everything_else() -> None:
    data = replace(synthetic_report(4), invalidating=WRONG, metric_findings=(SILENT,))
    first, second = (
        "The program started processes in 6 of 6 runs: measure <code>with</code> care.",
        "control is &lt;perturbed&gt;.",
    )
    page = render(data, "results/drawn")
    assert problems(page) == []
    order = ("Read this first", first, second, "What to do</h2>", "Metrics that say little", "<h2>Verdicts")
    assert sorted(order, key=page.index) == list(order)
    assert page.count(first) == page.count(second) == 1
    console = Console(width=200, record=True, file=None, highlight=False, force_terminal=False)
    with console.capture() as captured:
        print_result(console, data)
    assert captured.get().splitlines()[:2] == [f"!! {one}" for one in WRONG]
    for findings in (
        summary(data, Outcome((), (), 0, ()))["findings"], verdict_document(data)["findings"],
        list(table_of(data, [], "c.yaml").findings),
    ):  # fmt: skip
        assert findings == [*WRONG, SILENT.text, *data.findings]
    assert summary(data, Outcome((), (), 0, ()))["invalidating"] == list(WRONG)


def test_without_anything_wrong_there_is_no_such_section() -> None:
    data = synthetic_report(4)
    assert "Read this first" not in render(data)
    assert summary(data, Outcome((), (), 0, ()))["invalidating"] == []
