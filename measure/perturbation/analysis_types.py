"""Types of the result of a perturbation analysis: pairs, verdict, findings; and default levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["perturbed", "equivalent", "inconclusive"]
Kind = Literal["inner", "outer-joint", "outer-held-out"]

DEFAULT_DELTA = 0.2
"""Largest change of z that counts as none, by default.

z differences are Cohen's q, where 0.1 is called small and 0.3 medium (Cohen 1988, section 4.2.2): 0.2 lies
between. It takes rho from 0 to 0.20, from 0.50 to 0.33 or 0.64, from 0.80 to 0.71 or 0.86, from 0.95 to 0.93
or 0.97. The changes that the paper calls dramatic (0.8 to 0.5, 0.9 to 0.3) are 0.55 and 1.16.
"""

DEFAULT_PERMUTATIONS = 9999

MOST_STATISTICS = 50_000_000
"""Limit of the table of labellings by pairs, in values (400 MB): hundreds of metrics get fewer labellings."""

FEWEST_BASELINES = 19
"""With one instrumented run and fewer baselines no p-value reaches 0.05; such an analysis is exploratory."""

FEWEST_RECORDS = 20
"""Least number of records in a trace, of any tool: with fewer, correlations are mostly chance."""

SHORT_TRACE_RECORDS = 50
"""With fewer records correlations are noisy, and a finding says so."""


@dataclass(frozen=True)
class Pair:
    """The change of the correlation of two metrics, or (outer: a == b) of one with itself across runs.

    ``a``, ``b``: the metrics; ``baseline_z``, ``run_z``: means over runs of Fisher's z; ``baseline_rho``,
    ``run_rho``: the same, as correlations; ``baseline_z_sd``: spread between baselines; ``delta_z``: run minus
    baseline; ``ci``: its 1 - 2 alpha interval, on which the equivalence test rests; ``statistic``: standardised
    difference; ``p_adjusted``: familywise over all pairs (max-T); ``q_value``: false discovery rate over pairs
    (Benjamini-Hochberg); ``detectable_dz``: the change that is called perturbed with 80% probability by such a
    campaign (inner only); ``verdict``: on this pair; ``note``: why values are undefined, which are nan then.
    """

    a: str
    b: str
    baseline_z: float
    baseline_z_sd: float
    baseline_rho: float
    run_z: float
    run_rho: float
    delta_z: float
    ci: tuple[float, float]
    statistic: float
    p_adjusted: float
    q_value: float
    detectable_dz: float
    verdict: Verdict
    note: str = ""

    @property
    def name(self) -> str:
        """The metrics, for messages."""
        return self.a if self.a == self.b else f"{self.a} - {self.b}"


@dataclass(frozen=True)
class Perturbation:
    """Whether instrumented runs differ from the baselines in how their metrics correlate.

    ``kind``: what was compared; ``verdict``: *perturbed* when any pair is (significant at ``alpha`` over all pairs
    together, and changed by more than ``delta`` in z); *equivalent* when every pair's change is shown to be within
    ``delta`` (each at level alpha: an intersection-union test needs no further correction); else *inconclusive*, which
    never means unperturbed. ``pairs``: worst first. ``p_value``: max-T familywise, nan if the baselines do not vary.
    ``delta``: largest change of z that counts as none; ``alpha``: level of the tests; ``n_baseline``, ``n_runs``:
    baselines and instrumented runs that were compared. ``n_references``: baselines that only served as references to
    align to, held out of the test (outer). ``exploratory``: too few runs for a dependable verdict.
    ``extra_runs_needed``: number of additional baselines *and* of additional instrumented runs that would probably
    (80%) settle an inconclusive verdict; None when it is settled or no reasonable number would do. ``findings``:
    sentences, with what to do next.
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
    findings: tuple[str, ...]
