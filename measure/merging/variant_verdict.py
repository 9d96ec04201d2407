"""What the campaign found about collecting a variant, as far as it matters to a merge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UNKNOWN = "unknown"
"""Verdict of a variant that was not compared with the baselines."""
_TRUST = {"equivalent": 0, "not assessable": 1, "inconclusive": 1, UNKNOWN: 1, "changed": 2, "perturbed": 3}
_DOUBTS = {
    "perturbed": "collecting this variant perturbs the program; do not relate them to the other metrics",
    "changed": "collecting this variant changes how metrics relate, by an unknown amount; do not relate them to the "
    "other metrics before more runs show that the change is small",
    "inconclusive": "whether collecting this variant perturbs the program is open; relate them to the other metrics "
    "only with more runs that settle it",
    "not assessable": "whether collecting this variant perturbs the program cannot be assessed; relate them to the "
    "other metrics with care",
}


@dataclass(frozen=True)
class VariantVerdict:
    """``verdict``: on the variant; ``within``, ``across``: on each of its comparisons, within a run and across runs, ""
    for one that was not made."""

    verdict: str
    within: str = ""
    across: str = ""

    @property
    def caveat(self) -> str:
        """What an *equivalent* variant is not shown to be equivalent in, as far as a merge relies on it; else ""."""
        if self.verdict != "equivalent":
            return ""
        if self.across != "equivalent":
            return f"{self.across or 'not compared'} across runs"
        return f"{self.within} within a run" if self.within not in ("", "equivalent") else ""

    @property
    def rank(self) -> tuple[int, bool]:
        """Order in which runs of variants are preferred."""
        return _TRUST[self.verdict], bool(self.caveat)

    @property
    def reservations(self) -> list[str]:
        """Why a metric of the variant should not be related to metrics of other runs; empty if nothing speaks
        against it."""
        if self.verdict in _DOUBTS:
            return [_DOUBTS[self.verdict]]
        if not self.caveat:
            return []
        if self.across == "equivalent":
            return [f"this variant is {self}: that collecting it changes no relation is not shown"]
        return [
            f"this variant is {self}: that its runs align with others as well as plain ones do with one another is not "
            "shown, so relations to metrics of other runs may be weaker here than they are"
        ]

    def __str__(self) -> str:
        return f"{self.verdict}, but {self.caveat}" if self.caveat else self.verdict


BASELINES = VariantVerdict("equivalent", "equivalent", "equivalent")
"""Of runs without software metrics."""
NOT_COMPARED = VariantVerdict(UNKNOWN)


def verdict_in_summary(variant: Mapping[str, Any]) -> VariantVerdict:
    """The verdict on a variant by its entry in summary.json."""
    within, across = (str((variant.get(kind) or {}).get("verdict", "")) for kind in ("inner", "outer_held_out"))
    return VariantVerdict(str(variant["verdict"]), within, across)
