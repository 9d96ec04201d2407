"""The verdicts of a comparison of two campaigns, for continuous integration."""

from __future__ import annotations

from measure.perturbation.wording import p_text
from measure.two_campaigns.comparison import CampaignsCompared
from measure.verdict_files.verdict_table import Judgement, VerdictTable, invalidations_of

_WHAT = "difference of two campaigns"


def table_of_comparison(found: CampaignsCompared) -> VerdictTable:
    """One verdict a variant: on the difference of what the instrumentation changes."""
    return VerdictTable(
        f"{found.before}, then {found.after}",
        ("variant", "before", "after", "difference of the changes", "p over all comparisons"),
        (
            *(
                (one.name, one.before.verdict, one.after.verdict, one.verdict, p_text(one.p_value))
                for one in found.variants
            ),
            *((one.name, one.before, one.after, one.verdict, "-") for one in found.without_runs),
        ),
        (
            *(Judgement(one.name, _WHAT, one.verdict, one.text) for one in found.variants),
            *(Judgement(one.name, _WHAT, one.verdict, one.text) for one in found.without_runs),
        ),
        (
            *found.findings[len(found.invalidating) :],
            *(f"{fact.name}: {fact.before} before, {fact.after} after." for fact in found.facts),
        ),
        (),
        found.campaign_file,
        invalidations_of(found.invalidating, found.failed_controls),
    )
