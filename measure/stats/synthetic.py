"""Traces of synthetic programs with known properties, to check the statistics.

They have what makes traces hard for statistics: phases, drivers that metrics share, autocorrelated and multiplicative
noise, counts with ties, runs that differ in length and in pace. `Disturbance` is the known effect: none, or one that
loosens the correlations of some metrics.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PHASES = 12
REPETITIONS = 3


@dataclass(frozen=True)
class Disturbance:
    """Effect of instrumentation on a run: autocorrelated noise of standard deviation ``noise`` (in logarithms
    of the rate) on the first ``n_metrics`` metrics, and more records, by the fraction ``slowdown`` (0.1: 10% more)."""

    noise: float = 0.0
    n_metrics: int = 1
    slowdown: float = 0.0


UNDISTURBED = Disturbance()


@dataclass(frozen=True)
class SyntheticProgram:
    """Properties that all runs of one program share.

    ``shape``: ``(n, m)`` logarithm of the rate of each metric at each point of progress. ``events``: ``(m,)`` expected
    count per record where ``shape`` and noise are 0; small values give equal counts (ties). ``noise``: ``(m,)``
    standard deviation between runs; ``persistence``: its autocorrelation from record to record. ``pace``: how unevenly
    runs advance.
    """

    shape: NDArray[np.float64]
    events: NDArray[np.float64]
    noise: NDArray[np.float64]
    persistence: float
    pace: float

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return tuple(f"metric_{index}" for index in range(self.shape.shape[1]))

    def run(self, rng: np.random.Generator, disturbance: Disturbance = UNDISTURBED) -> NDArray[np.float64]:
        """One run: counts ``(n_i, m)``; the number of records varies by a few percent."""
        n, m = self.shape.shape
        records = round(n * (1 + 0.02 * float(rng.uniform(-1, 1)) + disturbance.slowdown))
        steps = np.exp(self.pace * autoregression(rng, records, 1, 0.95)[:, 0])
        progress = (np.cumsum(steps) - steps[0]) / (steps.sum() - steps[0])
        at = np.minimum((progress * n).astype(np.int64), n - 1)
        spread = np.tile(self.noise, (records, 1))
        shared = autoregression(rng, records, 1, self.persistence)
        own = autoregression(rng, records, m, self.persistence)
        rate = self.shape[at] + spread * (0.6 * shared + 0.8 * own)
        hit = disturbance.n_metrics
        rate[:, :hit] += disturbance.noise * autoregression(rng, records, hit, self.persistence)
        return rng.poisson(self.events * np.exp(rate)).astype(np.float64)


def synthetic_program(
    seed: int,
    *,
    n_records: int = 300,
    n_metrics: int = 6,
    noise: float = 0.25,
    persistence: float = 0.9,
    pace: float = 0.3,
) -> SyntheticProgram:
    """A program whose phases, drivers and metrics are drawn from ``seed``."""
    rng = np.random.default_rng(seed)
    bounds = np.sort(rng.integers(0, n_records, PHASES * REPETITIONS - 1))
    phase = np.searchsorted(bounds, np.arange(n_records), side="right") % PHASES
    levels = rng.normal(0, 0.6, (PHASES, n_metrics))
    drivers = autoregression(rng, n_records, 2, 0.95)
    loadings = rng.normal(0, 0.4, (2, n_metrics))
    shape = levels[phase] + drivers @ loadings
    events = 10 ** rng.uniform(0.5, 4, n_metrics)
    return SyntheticProgram(shape, events, noise * rng.uniform(0.5, 1.5, n_metrics), persistence, pace)


def autoregression(rng: np.random.Generator, n: int, columns: int, persistence: float) -> NDArray[np.float64]:
    """Stationary AR(1) series of variance 1, ``(n, columns)``."""
    from scipy.signal import lfilter

    shocks = rng.normal(size=(n, columns))
    shocks[1:] *= np.sqrt(1 - persistence**2)
    return np.asarray(lfilter([1.0], [1.0, -persistence], shocks, axis=0), np.float64)
