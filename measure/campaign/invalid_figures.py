"""What makes figures or verdicts of a campaign wrong, as sentences that stand before all others in every report."""

from __future__ import annotations

from instrumenter.building.program_notices import is_notice
from measure.campaign.controls import Controls
from measure.campaign.executor import Outcome
from measure.campaign.plan import Plan
from measure.campaign.record_lengths import about_uneven_records
from measure.host.disturbances import forks, multiplexed


def invalid_figures(plan: Plan, outcome: Outcome, controls: Controls | None) -> tuple[str, ...]:
    """Sentences, the gravest first: events that no record has, how the program was compiled, counts that are too low,
    records that are uneven, and controls that failed."""
    sentences: list[str] = []
    if plan.campaign.host is not None:
        sentences += forks(outcome.runs)
        sentences += multiplexed(outcome.runs)
    programs = [*plan.builds.values(), *plan.second_builds.values()]
    told = {warning: None for layouts in programs for warning in layouts[0].warnings}
    sentences += [f"{warning}." for warning in told if is_notice(warning)]
    sentences += [f"A counter may miss events: {warning}" for warning in told if not is_notice(warning)]
    sentences += about_uneven_records(plan.campaign, outcome.runs)
    return (*sentences, *(controls.failures if controls else ()))
