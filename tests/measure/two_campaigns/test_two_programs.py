"""What `measure compare` says of campaigns that measure two programs: what their baselines show, and not more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from measure.analysis.stored_runs import load_results
from measure.judging.comparison import runs_of
from measure.run_types import BASELINE, Run
from measure.runs.plan import Plan
from measure.two_campaigns.comparison import baselines_of_two_programs
from measure.two_campaigns.design_facts import unlike_designs
from tests.measure.merging.test_merge_command import CAMPAIGN, make_results

PAIRS = 8


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Plan, list[Run]]:
    """A campaign's plan, that of the same campaign with another program, and the runs of the first."""
    folder = tmp_path_factory.mktemp("programs")
    text = CAMPAIGN.replace("baselines: 2", f"baselines: {PAIRS}").replace("replicates: 2", f"replicates: {PAIRS}")
    make_results(folder, text)
    result, outcome = load_results(folder / "out")
    plan = result.plan
    program = plan.campaign.program.model_copy(update={"source": Path("lookup.c")})
    other = replace(
        plan, builds={}, program_digest="of another program",
        campaign=plan.campaign.model_copy(update={"program": program}),
    )  # fmt: skip
    return plan, other, list(outcome.runs)


def told(made: tuple[Plan, Plan, list[Run]], runs: list[Run], paired: bool) -> str:
    """The sentence on both programs, of which the second has ``runs``."""
    before, after, own = made
    metrics = before.campaign.hardware_metrics
    found = baselines_of_two_programs([(before, own), (after, runs)], metrics, paired, 0.2, 0.05)
    (sentence,) = unlike_designs(before, after, ("a", "b"), found)
    return sentence


def with_unlike_relations(runs: list[Run]) -> list[Run]:
    """Runs in which the first metric has no relation to the others any more."""
    changed = []
    for number, run in enumerate(runs_of(runs, BASELINE)):
        values = run.trace.values.copy()
        values[:, 0] = np.random.default_rng(number).permutation(len(values))
        changed.append(replace(run, trace=replace(run.trace, values=values)))
    return changed


@pytest.mark.parametrize("paired", [False, True])
def test_programs_whose_baselines_are_alike_are_not_said_to_differ(
    made: tuple[Plan, Plan, list[Run]], paired: bool
) -> None:
    """By the names of their files alone they were said to differ without any instrumentation."""
    sentence = told(made, made[2], paired)
    assert "demo.c, and b lookup.c: without instrumentation all their relations" in sentence
    assert "differ without" not in sentence


@pytest.mark.parametrize("paired", [False, True])
def test_programs_whose_baselines_differ_are_said_to_with_the_relations(
    made: tuple[Plan, Plan, list[Run]], paired: bool
) -> None:
    sentence = told(made, with_unlike_relations(made[2]), paired)
    assert "lookup.c: their relations differ without any instrumentation, in " in sentence
    assert "; rho of PAPI_" in sentence
    assert "so a difference says how two programs react" in sentence


def test_too_few_baselines_leave_it_open(made: tuple[Plan, Plan, list[Run]]) -> None:
    sentence = told(made, with_unlike_relations(made[2])[:2], paired=True)
    assert "their relations may differ without any instrumentation, which the baselines neither show" in sentence


def test_one_program_has_no_such_comparison(made: tuple[Plan, Plan, list[Run]]) -> None:
    before, _, runs = made
    assert baselines_of_two_programs([(before, runs), (before, runs)], ("PAPI_TOT_INS",), True, 0.2, 0.05) is None
