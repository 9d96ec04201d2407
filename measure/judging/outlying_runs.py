"""Runs of a campaign that stand out from the others of their variant, and how to look at what makes them differ."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np

from measure.judging.comparison import runs_of
from measure.perturbation.finding import PYTHON_RESULTS, Finding
from measure.perturbation.outlying_runs import OutlyingRuns, RunGroup, outlying_runs
from measure.run_types import BASELINE, Run
from measure.runs.campaign_model import FEWEST_PAIRS, Campaign
from measure.runs.plan import Plan
from measure.stats.correlation import spearman

_MOST_ADVICE = 2
"""Findings after which a command is said: the same works for others."""


def runs_that_stand_out(campaign: Campaign, runs: Sequence[Run]) -> tuple[OutlyingRuns, ...]:
    """The runs whose totals of hardware metrics are far from those of the others of their variant."""
    return outlying_of_groups({
        BASELINE: runs_of(runs, BASELINE),
        **{name: found for name in campaign.variant_sets() if (found := runs_of(runs, name))},
    }, campaign.hardware_metrics, bool(campaign.pairs))  # fmt: skip


def outlying_of_groups(
    groups: dict[str, list[Run]], hardware: tuple[str, ...], paired: bool
) -> tuple[OutlyingRuns, ...]:  # fmt: skip
    """The same of runs by group, the baselines by that name; ``paired``: whether runs of a replicate share noise."""
    before = {run.spec.replicate for run in groups[BASELINE]}

    def group_of(runs: Sequence[Run]) -> RunGroup:
        numbers = [run.spec.replicate for run in runs]
        tables = [run.trace.counts(hardware) for run in runs]
        return RunGroup(
            numbers, [f"run {number}" for number in numbers],
            np.array([table.sum(axis=0, dtype=np.float64) for table in tables]),
            np.array([spearman(table, hardware).rho for table in tables]),
            paired and len(before & set(numbers)) >= FEWEST_PAIRS,
        )  # fmt: skip

    return outlying_runs({name: group_of(runs) for name, runs in groups.items()}, BASELINE, hardware)


def how_to_look(found: Sequence[OutlyingRuns], plan: Plan) -> list[Finding]:
    """How to find what makes runs differ from the others: their programs, in their layouts, on the emulator alone.

    Another seed is no answer: it draws other layouts, of which again some may do the same.
    """
    if plan.campaign.host is not None:
        return []
    steps = []
    for one in found[:_MOST_ADVICE]:
        variant = BASELINE if one.variant not in plan.campaign.variant_sets() else one.variant
        number = one.numbers[0]
        file = f"{variant}-{number}"
        unknown, known = (
            f"to see what makes {one.runs[0]} of {one.variant} differ, "
            f"`measure.load({results}).write_program({variant!r}, {number}, {file!r})` in Python writes its program in "
            f"its layout of code and data, and `{_emulate(one.metric, file, plan)}` counts there what {one.metric} "
            "counts; the program of another run shows the difference. To try another seed until no run stands out "
            "would hide it: other layouts may do the same."
            for results in ("DIR", PYTHON_RESULTS)
        )
        steps.append(Finding(unknown, "next", in_results=known))
    return steps


def _emulate(metric: str, file: str, plan: Plan) -> str:
    """The command that runs a program of the plan and counts what is behind a ``metric``."""
    program = plan.campaign.program
    if "_BR_" in metric:
        how = "--analyzer branches"
    elif metric.startswith("PAPI_L") and metric.endswith(("CM", "CH", "CA")):
        how = "--analyzer caches"
    else:
        how = f"--machine {shlex.quote(str(plan.campaign.machine_file))} --stats"
    maps = [f"--map {shlex.quote(f'{guest}={host}')}" for guest, host in program.files.items()]
    stdin = f" < {shlex.quote(str(program.stdin))}" if program.stdin else ""
    words = " ".join(
        ["emulate", how, *maps, "--", shlex.quote(f"./{file}"), *(shlex.quote(str(a)) for a in program.args)]
    )
    return words + stdin
