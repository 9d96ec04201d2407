"""``explain: true``: the report says why and what to do, shows it again without runs, and goes on where it stopped."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from rich.console import Console

from measure.campaign import run_command
from measure.campaign.run_command import make_campaign, read_campaign
from measure.errors import MeasureError
from measure.explanation import explain_campaign
from measure.explanation.explain_variant import FIRST_PAIRS
from measure.explanation.paired_runs import PLAIN, ProgramChoice
from measure.run_types import BASELINE
from measure.runs.campaign_file import load_campaign
from measure.runs.plan import make_plan
from measure.targets.emulated import EmulatedTarget
from tests.measure.explanation.conftest import DESKTOP, Planted
from tests.measure.explanation.test_planted_causes import FRAME

# The counted function is the same with and without its counter, but for the counter.
PULSES = (
    FRAME.replace("< 300", "< 150")
    % """
__attribute__((noinline)) static void pulse(void) { __asm__ volatile(""); }
__attribute__((noinline)) static unsigned first(unsigned n, unsigned kind) {
    for (int k = 0; k < 12; k++) pulse();
    return n + kind;
}
static unsigned table[64];
__attribute__((noinline)) static unsigned second(unsigned n, unsigned kind) {
    unsigned x = 0;
    for (int k = 0; k < 8 + 4 * (int)kind; k++) x += table[(n + k) % 64];
    return x;
}
"""
)


@pytest.fixture(scope="module")
def campaign_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small campaign with a perturbed variant."""
    directory = tmp_path_factory.mktemp("explained")
    (directory / "program.c").write_text(PULSES)
    content = {
        "name": "explained", "program": {"source": "program.c"}, "machine": str(DESKTOP),
        "sampling": {"every": "2000 cycles"}, "hardware_metrics": ["PAPI_TOT_INS", "PAPI_LD_INS"],
        "software_metrics": {"pulses": {"event": "entry", "function": "pulse"}},
        "baselines": 7, "replicates": 7, "controls": False, "outer": False, "explain": True,
        "noise": {"code_layouts": 1},
    }  # fmt: skip
    (directory / "campaign.yaml").write_text(yaml.safe_dump(content))
    return directory / "campaign.yaml"


@pytest.mark.slow
def test_the_report_says_why_and_what_to_do(
    campaign_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    console, out = Console(quiet=True), tmp_path / "results"

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:  # Ctrl-C when the runs of the explanation are made and its page is not
        patch.setattr(explain_campaign, "_write", stopped)
        with pytest.raises(KeyboardInterrupt):
            make_campaign(campaign_file, out, console, workers=2)
    stored = {path.name for path in (out / "explain" / "traces").iterdir()}
    assert len(stored) > 30
    finished = make_campaign(campaign_file, out, console, workers=2)
    assert {path.name for path in (out / "explain" / "traces").iterdir()} == stored  # nothing was made again
    told = [finding for finding in finished.data.findings if finding.startswith("all: ")]
    assert "of the change comes from pulses" in told[0]
    assert any("executed instructions" in finding for finding in told)
    assert any("explain/all.yaml is the campaign with it" in finding for finding in told)
    assert not any("Next: `measure explain`" in finding for finding in finished.data.findings)
    written = json.loads((out / "explain" / "explain.json").read_text())["variants"]["all"]
    assert written["pairs"] == FIRST_PAIRS  # one metric and one mechanism: nothing is gained by more
    assert written["runs"] < 100
    assert load_campaign(out / "explain" / "all.yaml")[0].variant_sets() == {"all": ("pulses",)}

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a report makes no runs")

    monkeypatch.setattr(run_command, "_explain", fail)
    again = read_campaign(out, None, console)
    assert again.data.findings == finished.data.findings
    assert told[0] in json.loads((out / "summary.json").read_text())["findings"]
    stale = json.loads((out / "explain" / "explain.json").read_text())
    assert stale["plan"] == again.result.plan.history.design
    stale["plan"] = "another"
    (out / "explain" / "explain.json").write_text(json.dumps(stale))
    assert not any("of the change comes" in one for one in read_campaign(out, None, console).data.findings)


def test_unseen_counters_leave_every_record_as_it_is(planted: Planted) -> None:
    paired = planted(PULSES, {"pulses": {"event": "entry", "function": "pulse"}}, pairs=2, every="2000 cycles")
    unseen = ProgramChoice(("pulses",), unseen=("pulses",))
    made = paired.runs([PLAIN, unseen])
    for plain, probed in zip(made[PLAIN], made[unseen], strict=True):
        assert probed.trace.columns(("pulses",)).sum() > 10_000
        assert np.array_equal(plain.trace.counts(paired.hardware), probed.trace.counts(paired.hardware))
        assert np.array_equal(plain.trace.boundaries_cycles, probed.trace.boundaries_cycles)


def test_probes_of_a_campaign_are_unseen_in_the_layout_of_each_run(campaign_file: Path) -> None:
    settings = ["software_metrics.pulses.method=probe", "noise.code_layouts=each run", "explain=false"]
    plan = make_plan(*load_campaign(campaign_file, settings), lambda text: None)
    seeds = {spec.layout_seed for spec in plan.specs}
    assert None not in seeds
    assert len(seeds) == 7
    interventions = {spec.intervention for spec in plan.specs if spec.variant == "all"}
    assert len(interventions) == 7  # by addresses, which each layout has of its own
    for replicate in (0, 1):
        plain, probed = (
            EmulatedTarget().execute(next(s for s in plan.specs if (s.variant, s.replicate) == (name, replicate)))
            for name in (BASELINE, "all")
        )
        assert probed.trace.counts(("pulses",)).sum() > 10_000
        # The counters' 280,000 instructions cost and count as nothing; moved code may share cache lines otherwise.
        assert probed.total_instructions == pytest.approx(plain.total_instructions, rel=1e-3)
        assert probed.total_cycles == pytest.approx(plain.total_cycles, rel=1e-3)
    assert make_plan(*load_campaign(campaign_file, settings), lambda text: None).keys == plan.keys


def test_an_explanation_that_fails_does_not_lose_the_report(
    campaign_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def failing(*_: object, **__: object) -> None:
        raise MeasureError("no compiler")

    monkeypatch.setattr(explain_campaign, "explain_judged", failing)
    finished = make_campaign(campaign_file, tmp_path / "results", Console(quiet=True), workers=2)
    assert "all: the explanation failed: no compiler" in finished.data.findings
    assert (tmp_path / "results" / "report.html").is_file()
