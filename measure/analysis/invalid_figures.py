"""What makes figures or verdicts of a campaign wrong, as sentences that stand before all others in every report."""

from __future__ import annotations

from measure.analysis.other_programs import about_other_programs
from measure.host.disturbances import forks, multiplexed, other_threads, uncounted
from measure.judging.controls import Controls
from measure.runs.executor import Outcome
from measure.runs.plan import Plan
from measure.runs.record_lengths import about_uneven_records


def invalid_figures(plan: Plan, outcome: Outcome, controls: Controls | None) -> tuple[str, ...]:
    """Sentences, the gravest first: events that no record has, or that only hardware metrics have, how the program was
    compiled, counts that are too low, records that are uneven, and controls that failed."""
    sentences: list[str] = []
    if plan.campaign.host is not None:
        for found in (other_threads, forks, uncounted, multiplexed):
            sentences += found(outcome.runs)
    elif plan.campaign.software_metrics:
        executed = dict.fromkeys(path for run in outcome.runs for path in run.other_programs)
        sentences += [f"{notice}." for notice in about_other_programs(list(executed))]
    programs = [layouts[0] for layouts in (*plan.builds.values(), *plan.second_builds.values())]
    sentences += dict.fromkeys(f"{notice}." for one in programs for notice in one.notices)
    sentences += dict.fromkeys(f"About a counter: {warning}" for one in programs for warning in one.warnings)
    sentences += about_uneven_records(plan.campaign, outcome.runs)
    return (*sentences, *(controls.failures.values() if controls else ()))
