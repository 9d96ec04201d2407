"""How many further runs would probably settle a verdict that is open.

The estimates of now are uncertain, so that taking them for the truth promises too much: a true change is thought of as
drawn from a normal distribution around 0 whose standard deviation is delta, which a few noisy runs move little. The
number said is the least for which, over what that leaves of the true changes and over the noise of further runs, the
verdict is settled with 80% probability; all pairs count, since one that stays open keeps the verdict open. It rests on
the variance of z between the runs of now, which few runs tell roughly: `Forecast` says how roughly, and whether the
number is one that anybody would run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

from measure.stats.intervals import POWER, Difference, standard_error, t_quantile

MOST_EXTRA_RUNS = 1000
MOST_TIMES, MOST_RUNS = 8, 100
"""Runs are a next step up to so many times those that there are, which makes intervals a third as wide, or so many."""
_LEVEL = 0.95  # of the interval of a variance


@dataclass(frozen=True)
class OpenVerdict:
    """A verdict to settle.

    ``estimates``: of the pairs that can be assessed; ``n_baseline``, ``n_runs``: runs compared so far; ``delta``,
    ``alpha``, ``losses_only``: as in the verdict; ``level``: of its significance; ``critical``: half-width of
    simultaneous intervals in standard errors; ``size_open``: a change is shown and only its size is open; ``n_tested``:
    pairs that are tested together.
    """

    estimates: Sequence[Difference]
    n_baseline: int
    n_runs: int
    delta: float
    alpha: float
    level: float
    critical: float
    losses_only: bool
    size_open: bool
    n_tested: int


@dataclass(frozen=True)
class Forecast:
    """How many runs further than the ``runs`` of now, from which the variance of z is known, settle a verdict.

    ``extra``: the number of baselines, and of as many instrumented runs; ``low``, ``high``: what it would be at the
    ends of the variance's 95% interval.
    """

    extra: int
    runs: int
    low: int
    high: int

    @property
    def most(self) -> int:
        """Baselines, in all, up to which making them is advised."""
        return max(MOST_TIMES * self.runs, MOST_RUNS)

    @property
    def affordable(self) -> bool:
        """Whether the runs of now and the further ones are at most `most`."""
        return self.runs + self.extra <= self.most

    @property
    def range_text(self) -> str:
        """How uncertain the number is, and why: ``5 to 113, as 8 runs tell the variance of z roughly``."""
        return f"{self.low:,} to {self.high:,}, as {self.runs} runs tell the variance of z roughly"


def forecast(extra: int, runs: int) -> Forecast:
    """The forecast of ``extra`` further runs from ``runs``, of which there are at least two.

    The number of runs in all is in proportion to the variance, whose interval is that of normal values (chi-squared).
    """
    from scipy.special import gammaincinv

    degrees = runs - 1
    least, most = (
        degrees / (2.0 * float(gammaincinv(degrees / 2, tail))) for tail in (0.5 + _LEVEL / 2, 0.5 - _LEVEL / 2)
    )
    low, high = (max(1, int(np.ceil((runs + extra) * factor)) - runs) for factor in (least, most))
    return Forecast(extra, runs, low, high)


def extra_runs(verdict: OpenVerdict) -> int | None:
    """Baselines, and as many instrumented runs, that settle ``verdict`` with 80% probability.

    Settled: all pairs equivalent, or another one significantly changed (perturbed, if only the size is open). None if
    more than 1000 would be needed or if a pair has no interval.
    """
    estimates = verdict.estimates
    if not estimates or not all(np.isfinite(one.low) for one in estimates):
        return None
    extra = np.arange(1, MOST_EXTRA_RUNS + 1)
    possible = _enough_labellings(verdict, extra)
    within, unfound = np.ones(len(extra)), np.ones(len(extra))
    critical = verdict.critical if np.isfinite(verdict.critical) else _bonferroni(verdict)
    for one in estimates:
        now, _ = standard_error(one, np.array(verdict.n_baseline), np.array(verdict.n_runs))
        if not now:  # runs that do not differ from one another: further ones do not, either
            known = float(abs(one.delta) <= verdict.delta)
            within *= known
            unfound *= np.where(possible, known, 1.0)
            continue
        error, degrees = _later_error(one, verdict.n_baseline + extra, verdict.n_runs + extra)
        old = np.minimum(error**2 / now**2, 1.0)  # share of the runs of now in what is known in the end
        kept = verdict.delta**2 / (verdict.delta**2 + now**2)
        centre = (old + (1 - old) * kept) * one.delta
        step = now * np.sqrt((1 - old) ** 2 * kept + old * (1 - old))
        room = verdict.delta - t_quantile(degrees, 1 - verdict.alpha) * error
        far = np.where(possible, critical * error + (verdict.delta if verdict.size_open else 0.0), np.inf)
        far = np.maximum(far, room)  # a change that is significant and within delta is equivalent, and settles nothing
        inside, found = _above(centre + room, step), _above(-centre - far, step)
        if not verdict.losses_only:
            inside += _above(room - centre, step) - 1.0
            found += _above(centre - far, step)
        within *= np.clip(inside, 0.0, 1.0)
        unfound *= 1.0 - np.clip(found, 0.0, 1.0)
    enough = np.flatnonzero(within + (1.0 - unfound) >= POWER)
    return int(extra[enough[0]]) if len(enough) else None


def _later_error(
    estimate: Difference, n_baseline: NDArray[np.int64], n_runs: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Standard error and degrees of freedom to expect of so many runs.

    Intervals rest on the larger of the two groups' spreads. Where the runs of now borrow the baselines' spread, those
    to come may show a larger one by chance: the mean of the larger of two equal variances, one of few degrees of
    freedom.
    """
    error, degrees = standard_error(estimate, n_baseline, n_runs)
    if estimate.paired or estimate.own_spread:
        return error, degrees
    freedom = np.maximum(n_runs - 1.0, 1.0)
    larger = 1.0 + np.sqrt(2.0 / freedom) / np.sqrt(2.0 * np.pi)
    baseline_variance = estimate.baseline_sd**2 + estimate.shared_variance
    parts = baseline_variance / n_baseline, larger * estimate.run_sd**2 / n_runs
    degrees = (parts[0] + parts[1]) ** 2 / (parts[0] ** 2 / (n_baseline - 1) + parts[1] ** 2 / freedom)
    return np.sqrt(parts[0] + parts[1]), degrees


def _above(margin: NDArray[np.float64], step: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probability that ``margin`` plus a normal step of standard deviation ``step`` is above 0."""
    from scipy.special import ndtr

    return np.asarray(ndtr(margin / np.maximum(step, 1e-12)), np.float64)


def _bonferroni(verdict: OpenVerdict) -> float:
    """A critical value where the runs of now allow none."""
    tail = verdict.level / (1 if verdict.losses_only else 2) / verdict.n_tested
    return float(t_quantile(max(2, verdict.n_baseline - 1), 1 - tail))


def _enough_labellings(verdict: OpenVerdict, extra: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether so many further runs allow p-values as low as the level."""
    runs, total = verdict.n_runs, verdict.n_baseline + verdict.n_runs
    if verdict.estimates[0].paired:
        return np.asarray((runs + extra) * np.log(2) >= np.log(2 / verdict.level))
    # Integers of any size compare with a float without being turned into one, which would overflow.
    fewest = next(n for n in range(MOST_EXTRA_RUNS) if comb(total + 2 * n, runs + n) >= 1 / verdict.level)
    return np.asarray(extra >= fewest)
