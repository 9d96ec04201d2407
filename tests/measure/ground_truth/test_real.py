"""Ground truth of a small real program: positions found by brute force, probes that disturb nothing, the report."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console

from emulator.events import BlockFacts, TraceSelection
from emulator.linux.loader.elf import load_image
from emulator.machine import Machine
from measure.analysis.stored_runs import load_results
from measure.campaign.run_command import make_campaign, read_campaign
from measure.errors import CampaignError
from measure.ground_truth.calibration import calibrate, count_events
from measure.ground_truth.prepare import SAMPLED, load_prepared, prepare
from measure.ground_truth.reference_events import HEAP, candidates, kind_of
from measure.ground_truth.sampler import other_mode
from measure.run_types import BASELINE, BEFORE, PROBE, Run
from measure.runs.campaign_file import load_campaign
from measure.runs.campaign_model import Campaign
from measure.runs.plan import Plan, make_plan
from measure.runs.plan_file import load_plan
from measure.runs.program_progress import reference_events_at_boundaries
from measure.targets.emulated import EmulatedTarget
from measure.targets.program_file import program_of
from measure.truth_checks.merge_truth import alignment_error, true_positions
from measure.truth_checks.software import software_column

ROOT = Path(__file__).parents[3]
PROGRAM = """\
#include <stdio.h>
#include <stdlib.h>
static unsigned state = 1, table[4096];
__attribute__((noinline)) unsigned next(void) { state = state * 1664525u + 1013904223u; return state >> 8; }
__attribute__((noinline)) void work(int n) { for (int i = 0; i < n; i++) table[next() % 4096] += i; }
__attribute__((noinline)) unsigned quiet(unsigned n) { while (n & (n - 1)) n = n * 5 + 1 & 0xffff; return n; }
int main(void) {
    int *heap = malloc(64 * sizeof *heap);
    for (int round = 0; round < 40; round++) { work(300 + 400 * (round % 4)); heap[round] = quiet(round + 3); }
    printf("%u %d\\n", table[5], heap[7]);
    return 0;
}
"""
CAMPAIGN = """\
name: tiny
program: {{source: tiny.c}}
machine: {machine}
sampling: {{mode: {mode}, every: 4000 cycles}}
hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS, PAPI_BR_MSP]
software_metrics:
  rounds: {{event: entry, function: work}}
  numbers: {{event: call, callee: next}}
  steps: {{event: loop, function: work}}
variants: {{light: [rounds], heavy: [numbers, steps]}}
baselines: 4
replicates: 2
outer: false
ground_truth: true
noise: {{code_layouts: 2}}
"""


def planned(folder: Path, mode: str = "ideal") -> tuple[Plan, object, Path]:
    (folder / "tiny.c").write_text(PROGRAM)
    path = folder / "c.yaml"
    path.write_text(CAMPAIGN.format(machine=ROOT / "configs" / "machines" / "desktop.yaml", mode=mode))
    campaign, document = load_campaign(path)
    return make_plan(campaign, document, lambda text: None), document, path


COPIES = """
#include <string.h>
char odd[3] = "ab", from[61] = "from", more[7] = "more", to[61], last[5];
int main(void) {
    for (int n = 0; n < 400; n++) {
        memcpy(to, from, sizeof to); memset(last, n, sizeof last);
        from[n % 61] += odd[n % 3] + to[n % 60] + more[n % 7] + last[n % 5];
    }
    return from[5] == 1;
}
"""


def test_copies_make_the_same_reference_events_in_every_code_layout(tmp_path: Path) -> None:
    """The stores of memcpy to a variable differed by alignment, and true positions were 12 records off."""
    (tmp_path / "tiny.c").write_text(COPIES)
    text = CAMPAIGN.format(machine=ROOT / "configs" / "machines" / "desktop.yaml", mode="ideal")
    text = re.sub(r"software_metrics:.*heavy[^\n]*\n", "", text, flags=re.DOTALL).replace("ground_truth: true\n", "")
    (tmp_path / "c.yaml").write_text(text.replace("code_layouts: 2", "code_layouts: each run"))
    plan = make_plan(*load_campaign(tmp_path / "c.yaml"), lambda text: None)
    (spec,) = (one for one in plan.specs if one.variant == BASELINE and one.replicate == 0)
    counted, executed = set(), set()
    for seed in range(6):
        image = load_image(program_of(replace(spec, layout_seed=seed)))
        kinds = candidates(image)
        names = [name for name in kinds if name.removeprefix("store ") in ("to", "from", "last", "odd", "more")]
        totals, instructions = count_events(replace(spec, layout_seed=seed), [kinds[name] for name in sorted(names)])
        counted.add(tuple(totals))
        executed.add(instructions)
    assert len(executed) > 1  # memcpy itself goes other ways
    assert counted == {(400, 2000, 0, 0, 0)}  # by name: from, last, which the compiler sets byte by byte, and others


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The campaign run with its ground truth, from file to report."""
    folder = tmp_path_factory.mktemp("truth")
    _, _, path = planned(folder)
    make_campaign(path, folder / "out", Console(quiet=True), workers=2)
    return folder / "out"


class EntryLog:
    """Instructions executed before each entry of a function, by walking the record in Python."""

    selection = TraceSelection(blocks=True, exact_stop=True)

    def __init__(self, entry: int) -> None:
        self.entry, self.instructions, self.seen = entry, 0, list[int]()

    def consume(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        lengths, starts = facts.blocks["n_instructions"].tolist(), facts.blocks["pc"].tolist()
        for number in stream.tolist():
            if starts[number] == self.entry:
                self.seen.append(self.instructions)
            self.instructions += lengths[number]


def entries(run: Run, function: str) -> NDArray[np.int64]:
    symbol = load_image(Path(run.spec.binary)).find_symbol(function)
    assert symbol is not None
    log = EntryLog(symbol.address)
    with Machine(program_of(run.spec), consumers=[log], background=False) as machine:
        assert machine.run().status == 0
    return np.array(log.seen)


@pytest.mark.slow
def test_positions_are_those_found_by_brute_force(results: Path) -> None:
    made, outcome = load_results(results)
    prepared = made.truth
    assert prepared is not None
    curve = prepared.calibration.curve
    by_group = {run.spec.variant: run for run in outcome.runs if run.spec.replicate == 0}
    baseline, heavy = by_group[BASELINE], by_group["heavy"]
    before, after = entries(baseline, "next"), entries(heavy, "next")
    assert len(before) == len(after) > 30_000
    overhead = heavy.total_instructions / baseline.total_instructions - 1
    assert overhead > 0.1
    # Where the run was between two entries of `next` the plain program was between the same two.
    boundaries = heavy.trace.boundaries_instructions
    inside = (boundaries > after[0]) & (boundaries < after[-1])
    expected = np.interp(boundaries, after, before)[inside]
    found = curve.boundaries(heavy)[inside]
    record = np.median(np.diff(baseline.trace.boundaries_instructions))
    error = np.abs(found - expected) / record
    counted = reference_events_at_boundaries(heavy)
    assert counted is not None
    low, high = curve.bracket(counted[inside])
    certain = high - low < record / 4
    assert 0.3 < certain.mean() < 0.7  # `quiet` runs for 38 records without a reference event
    assert error[certain].max() < 0.02
    assert error.max() < 0.25
    assert ((expected >= low) & (expected <= high)).all()
    truth = true_positions(baseline, heavy, curve)
    assert (np.diff(truth) >= 0).all()
    table = alignment_error(baseline, [heavy], curve=curve, algorithms=["linear", "none"])
    assert set(table["truth"]) == {"reference events"}


def test_probes_change_nothing_and_equal_the_counters(results: Path) -> None:
    _, outcome = load_results(results)
    for run in outcome.runs:
        if run.spec.replicate or run.spec.variant == SAMPLED:
            continue
        again = EmulatedTarget().execute(replace(run.spec, probes=()))
        names = again.trace.metrics
        assert (again.trace.values == run.trace.values[:, : len(names)]).all()
        assert (again.trace.boundaries_instructions == run.trace.boundaries_instructions).all()
        for metric in (counter.metric for counter in run.spec.counters):
            if f"{PROBE}{metric}" not in run.trace.metrics:
                continue
            counted, probed, before = (
                run.trace.values[:, run.trace.metrics.index(name)]
                for name in (metric, f"{PROBE}{metric}", f"{BEFORE}{metric}")
            )
            assert np.abs(counted - probed).max() <= 1
            assert abs(counted.sum() - probed.sum()) <= 1
            assert (np.diff(before) == probed[:-1]).all()


def test_metrics_without_a_probe_are_read_off_by_reference_events(results: Path) -> None:
    made, outcome = load_results(results)
    prepared = made.truth
    assert prepared is not None
    assert set(prepared.exact) == {"rounds", "numbers"}
    assert "in optimised code no instruction stands for" in prepared.refused["steps"]
    heavy = next(run for run in outcome.runs if run.spec.variant == "heavy")
    for metric, most in (("steps", 0.02), ("numbers", 0.02)):
        counted = software_column(heavy, metric, prepared.calibration, True)
        read = software_column(heavy, metric, prepared.calibration, False)
        assert np.abs(counted - read).mean() < most * counted.mean()
        assert abs(counted.sum() - read.sum()) < most * counted.mean()


def test_report_and_summary_have_the_ground_truth(results: Path) -> None:
    page = (results / "report.html").read_text()
    for words in (
        "Ground truth",
        "What the sampler itself changes",
        "Errors of alignments",
        "software – hardware",
    ):
        assert words in page
    summary = json.loads((results / "summary.json").read_text())
    truth = summary["ground_truth"]
    assert {one["variant"] for one in truth["software"]} == {"light", "heavy"}
    assert truth["sampler"]["instructions_percent"] > 0
    assert truth["out_of_order"] == 0
    assert truth["events"] > 30_000
    assert {one["metric"]: bool(one["why_not"]) for one in truth["sources"]} == {
        "rounds": False, "numbers": False, "steps": True,
    }  # fmt: skip
    assert all(one["error_percent"] < 5 and one["rho"] > 0.9 for one in truth["sources"])
    again = read_campaign(results, None, Console(quiet=True)).data  # from the runs that are there
    assert json.loads((results / "summary.json").read_text())["ground_truth"] == truth
    assert again.ground_truth is not None


@pytest.mark.slow
def test_a_program_that_samples_itself_is_probed_at_its_own_records(tmp_path: Path) -> None:
    plan, document, _ = planned(tmp_path, "signal")
    prepared = prepare(plan, document, tmp_path / "out")  # type: ignore[arg-type]
    assert prepared.sampler_specs[0].sampling_mode == "ideal"
    spec = next(spec for spec in prepared.plan.specs if spec.variant == "heavy")
    run = EmulatedTarget().execute(spec)
    counted, probed = (run.trace.values[:, run.trace.metrics.index(name)] for name in ("numbers", f"{PROBE}numbers"))
    assert np.abs(counted - probed).max() <= 1
    without = EmulatedTarget().execute(replace(spec, probes=()))
    assert (without.trace.values == run.trace.values[:, : len(without.trace.metrics)]).all()
    assert np.diff(prepared.calibration.curve.boundaries(run)).min() >= 0


@pytest.mark.slow
def test_reference_events_and_their_calibration(tmp_path: Path) -> None:
    plan, _, _ = planned(tmp_path)
    plain, heavy = (next(s for s in plan.specs if s.variant == group) for group in (BASELINE, "heavy"))
    image = load_image(Path(plain.binary))
    known = candidates(image)
    assert {"call next", "call work", "store table", "store state", HEAP} <= set(known)
    assert not any("__measure" in name for name in candidates(load_image(Path(heavy.binary))))
    assert kind_of(image, ["call next", "store table"]) == (known["call next"][0], known["store table"][1])
    first = calibrate(plain, heavy, [], place=tmp_path)
    again = calibrate(plain, heavy, [], place=tmp_path)
    assert first.reference_events == again.reference_events
    assert (first.curve.events == again.curve.events).all()
    assert first.total_events == again.total_events > 60_000
    assert first.out_of_order == 0
    (tmp_path / first.file_name).write_bytes(b"damaged")
    assert calibrate(plain, heavy, [], place=tmp_path).reference_events == first.reference_events


def test_what_has_no_ground_truth(results: Path, tmp_path: Path) -> None:
    plan, document, _ = planned(tmp_path)
    bare = replace(plan, campaign=plan.campaign.model_copy(update={"software_metrics": {}, "variants": {}}))
    with pytest.raises(CampaignError, match="ground truth needs software metrics, got none"):
        prepare(bare, document, tmp_path)  # type: ignore[arg-type]
    assert load_prepared(tmp_path, plan) is None
    by_instructions = plan.campaign.sampling.model_copy(update={"every": "4000 instructions"})
    campaign: Campaign = plan.campaign.model_copy(update={"sampling": by_instructions})
    assert other_mode(campaign)[0] is None
    (tmp_path / "ground_truth.json").write_text("{}")
    with pytest.raises(CampaignError, match="is damaged"):
        load_prepared(tmp_path, load_plan(results))
