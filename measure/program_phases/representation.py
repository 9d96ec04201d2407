"""Judges by the full simulation whether simulation points can stand for the whole program.

Two figures are needed, both of CPI. The error of the estimate says how far off these points are. The spread within
phases says how far off others could have been: a small error of points out of phases that spread widely is chance,
and is another one on another machine or with another seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from measure.program_phases.estimates import FULL, POINTS, Estimates
from measure.program_phases.homogeneity import PROGRAM

if TYPE_CHECKING:
    import pandas as pd

MUCH_OFF_PERCENT = 5.0
"""Points are doubted from here on. On the machines desktop and strongarm, seven programs and ten loops that change
their data were measured, when conflict misses were not told apart yet: both figures were at most 2.1% in 27 cases, and
in the other seven the error was 18% or more and the spread 11% or more."""


@dataclass(frozen=True)
class Representation:
    """How well points represent the program. ``cpi``: by the points; ``full_cpi``: of the full simulation;
    ``by_chance_percent``: see `by_chance_percent`, None for points whose phases are not known; ``phases``: their
    number, None if not known."""

    cpi: float
    full_cpi: float
    by_chance_percent: float | None
    phases: int | None

    @property
    def error_percent(self) -> float:
        """Error of the estimate, with its sign."""
        return 100 * (self.cpi / self.full_cpi - 1)

    @property
    def warning(self) -> str:
        """Why the points are not to be trusted, and with which figures; empty without a reason."""
        spread = self.by_chance_percent or 0.0
        is_off = abs(self.error_percent) > MUCH_OFF_PERCENT
        if not is_off and spread <= MUCH_OFF_PERCENT:
            return ""
        than_full = f"than the {self.full_cpi:.3f} of the full simulation"
        much = "higher" if self.error_percent > 0 else "lower"
        told = (
            f"Do not trust these simulation points: they say that CPI of the whole program is {self.cpi:.3f}, "
            f"{abs(self.error_percent):.1f}% {much} {than_full}."
        )
        if spread <= MUCH_OFF_PERCENT:
            return told
        differs = (
            f"CPI differs so much within phases that an estimate from any one interval of each is off by {spread:.0f}%"
        )
        if is_off:
            return f"{told} {differs}, typically: the phases do not tell apart what makes the difference."
        return (
            f"Do not trust these simulation points: {differs}, typically. That CPI of the whole program is only "
            f"{abs(self.error_percent):.1f}% {much} from these {than_full} is chance."
        )

    @property
    def remedy(self) -> str:
        """What to do about `warning`; empty without one."""
        if not self.warning:
            return ""
        told = "Take the figures of this program from the full simulation: trace.parquet has every interval."
        if self.phases is None:
            return told
        return (
            f"{told} More phases ({self.more_phases}) help if intervals of a phase differ in their code, too; where "
            "they do not, neither more phases nor shorter intervals help."
        )

    @property
    def more_phases(self) -> str:
        """The option that asks for twice as many phases."""
        return f"--k {2 * (self.phases or 0)}"


def representation(estimated: Estimates, uniform: pd.DataFrame | None = None) -> Representation | None:
    """The judgement of points with the result of `estimates`, and of `homogeneity` for their phases if known; None
    where the estimates have no CPI."""
    if "cpi" not in estimated[FULL] or "cpi" not in estimated[POINTS]:
        return None
    cpi, full_cpi = (estimated[method]["cpi"]["value"] for method in (POINTS, FULL))
    spread = None if uniform is None else by_chance_percent(uniform)
    phases = None if uniform is None else len(uniform) - 1
    return Representation(cpi, full_cpi, spread, phases)


def by_chance_percent(uniform: pd.DataFrame) -> float:
    """Standard deviation of an estimate of the program's CPI by one interval of each phase, drawn at random [% of CPI].

    ``uniform``: the result of `homogeneity`. Phases are independent, so that their parts of the variance add up.
    """
    phases = uniform.drop(index=PROGRAM)
    deviation = math.sqrt(((phases["share"] * phases["cpi_std"]) ** 2).sum())
    return 100 * deviation / float(uniform["cpi_mean"][PROGRAM])
