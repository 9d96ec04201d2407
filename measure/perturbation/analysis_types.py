"""Types of the result of a perturbation analysis: pairs, verdict, findings; and default levels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from measure.perturbation.finding import Finding

Verdict = Literal["perturbed", "changed", "inconclusive", "equivalent", "not assessable"]
BROKEN: tuple[Verdict, ...] = ("perturbed", "changed")  # a change is shown
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""The gravest first."""
Kind = Literal["inner", "outer-joint", "outer-held-out"]

DEFAULT_DELTA = 0.2
"""Largest change of z that counts as none, by default.

z differences are Cohen's q, where 0.1 is called small and 0.3 medium (Cohen 1988, section 4.2.2): 0.2 lies
between. It takes rho from 0 to 0.20, from 0.50 to 0.34 or 0.63, from 0.80 to 0.71 or 0.86, from 0.95 to 0.93
or 0.97. The changes that the paper calls dramatic (0.8 to 0.5, 0.9 to 0.3) are 0.55 and 1.16.
"""

DEFAULT_PERMUTATIONS = 9999

MOST_STATISTICS = 20_000_000
"""Limit of a table of labellings by pairs, in values (160 MB): hundreds of metrics get fewer labellings."""

FEWEST_BASELINES = 19
"""With one instrumented run and fewer baselines no p-value reaches 0.05; such an analysis is exploratory."""

FEWEST_RECORDS = 20
"""Least number of records in a trace, of any tool: with fewer, correlations are mostly chance."""

SHORT_TRACE_RECORDS = 50
"""With fewer records correlations are noisy, and a finding says so."""


def share_of(alpha: float, together: int, comparisons: int) -> float:
    """The share of ``alpha`` of ``together`` comparisons that are tested together, of all that share it."""
    return alpha * (together / comparisons)


def gravest(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on several comparisons: the gravest of them, "not assessable" without any.

    What cannot be assessed is graver than nothing only: beside it, the others' verdict is said with a word about it.
    """
    found = set(verdicts)
    return next((one for one in VERDICTS if one in found), "not assessable")


@dataclass(frozen=True)
class Pair:
    """The change of the correlation of two metrics, or (outer: a == b) of one with itself across runs.

    ``a``, ``b``: the metrics; ``baseline_z``, ``run_z``: means over runs of Fisher's z; ``baseline_rho``,
    ``run_rho``: the same, as correlations; ``baseline_z_sd``, ``run_z_sd``: spread between baselines and between
    runs; ``delta_z``: run minus baseline; ``ci``: its 1 - 2 alpha interval, on which the equivalence test rests;
    ``simultaneous``: its interval that holds for all pairs together, on which *perturbed* rests; ``statistic``:
    change in standard errors; ``p_adjusted``: familywise over all pairs (max-T); ``q_value``: false discovery rate
    over pairs (Benjamini-Hochberg); ``p_spread``: familywise and two-sided, that runs scatter as much as baselines;
    ``detectable_dz``: the change that is called perturbed with 80% probability by such a campaign (inner only);
    ``verdict``: on this pair; ``reasons``: why the pair cannot be assessed, and why values are undefined, which are
    nan then.
    """

    a: str
    b: str
    baseline_z: float
    baseline_z_sd: float
    baseline_rho: float
    run_z: float
    run_z_sd: float
    run_rho: float
    delta_z: float
    ci: tuple[float, float]
    simultaneous: tuple[float, float]
    statistic: float
    p_adjusted: float
    q_value: float
    p_spread: float
    detectable_dz: float
    verdict: Verdict
    reasons: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """The `reasons` in a line."""
        return "; ".join(self.reasons)

    @property
    def name(self) -> str:
        """The metrics, for messages."""
        return self.a if self.a == self.b else f"{self.a} - {self.b}"

    def within(self, delta: float) -> bool:
        """Whether `ci` lies within ``delta``; above -delta across runs, where only a loss is a perturbation."""
        return self.ci[0] > -delta and (self.a == self.b or self.ci[1] < delta)


@dataclass(frozen=True)
class Perturbation:
    """Whether instrumented runs differ from the baselines in how their metrics correlate.

    ``kind``: what was compared; ``verdict``: for a pair and overall, one of

    - *perturbed*: the simultaneous interval of a pair is beyond ``delta``, and its change is significant;
    - *changed*: a pair changed significantly, by an amount that may be below or above delta;
    - *inconclusive*: neither a change is shown nor its absence, which never means unperturbed;
    - *equivalent*: every pair that can be assessed, and that is at least half of them, is shown to have changed by less
      than ``delta`` (each at level alpha: an intersection-union test needs no further correction);
    - *not assessable*: correlations at the ceiling, constant, or tied, or runs that do not align: an absence of change
      cannot be shown. A pair that is not assessable does not change the verdict on the others, but is said beside it.

    ``pairs``: worst first. ``p_value``: max-T familywise, nan if the baselines do not vary. ``delta``: largest change
    of z that counts as none; ``alpha``: level of the tests, which all comparisons share; ``comparisons``: their number;
    ``together``: how many of them were tested together with this one, so that familywise means over the pairs of all of
    these, at ``level``. ``n_baseline``, ``n_runs``: baselines and instrumented runs that were compared;
    ``paired``: in pairs. ``n_references``: baselines that only served to align to, not part of the test (outer).
    ``exploratory``: too few runs for a dependable verdict; ``too_few``: for any p-value of ``level``, so that no change
    can be significant. ``extra_runs_needed``: number of additional baselines *and*
    of additional instrumented runs that would probably (80%) settle an open verdict; None when it is settled or no
    reasonable number would do. ``said``: its findings, with what to do next.
    """

    kind: Kind
    verdict: Verdict
    pairs: tuple[Pair, ...]
    p_value: float
    delta: float
    alpha: float
    n_baseline: int
    n_runs: int
    n_references: int
    exploratory: bool
    extra_runs_needed: int | None
    said: tuple[Finding, ...]
    comparisons: int = 1
    together: int = 1
    paired: bool = False
    too_few: bool = False

    @property
    def findings(self) -> tuple[str, ...]:
        """What is said of it, as sentences."""
        return tuple(one.text for one in self.said)

    def as_fields(self) -> dict[str, Any]:
        """The fields by name, of the pairs as well, with the findings as sentences and reasons in a line."""
        fields = asdict(self)
        del fields["said"]
        for pair, found in zip(self.pairs, fields["pairs"], strict=True):
            del found["reasons"]
            found["note"] = pair.note
        return fields | {"findings": list(self.findings)}

    @property
    def level(self) -> float:
        """Level of significance, over all pairs of the comparisons that were tested together: their share of alpha."""
        return share_of(self.alpha, self.together, self.comparisons)

    @property
    def spread_runs(self) -> int:
        """Number of the runs, or pairs, that tell how z scatters."""
        return self.n_runs if self.paired else self.n_baseline

    @property
    def scattered(self) -> tuple[Pair, ...]:
        """The pairs whose z is shown to scatter more between runs than between baselines."""
        return tuple(one for one in self.pairs if one.p_spread <= self.level and one.run_z_sd > one.baseline_z_sd)

    @property
    def steadier(self) -> tuple[Pair, ...]:
        """The pairs whose z is shown to scatter less between runs than between baselines."""
        return tuple(one for one in self.pairs if one.p_spread <= self.level and one.run_z_sd <= one.baseline_z_sd)

    def of(self, verdict: Verdict) -> tuple[Pair, ...]:
        """The pairs whose verdict is ``verdict``."""
        return tuple(pair for pair in self.pairs if pair.verdict == verdict)
