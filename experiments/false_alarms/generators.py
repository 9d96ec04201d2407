"""Made-up campaigns whose truth is known: correlations of runs drawn directly, or from made-up traces.

Where a trace adds nothing to a question, Fisher's z of each run and pair of metrics is drawn, which is what the tests
see of a run. `autocorrelated` and `programs` make traces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from measure.stats.correlation import Correlations, fisher_z, spearman
from measure.stats.synthetic import autoregression, synthetic_program

SD = 0.08
"""Standard deviation of z between runs; delta is 0.2."""
CENTRE = 0.4
RECORDS = 150

Draw = Callable[[np.random.Generator, int, int], NDArray[np.float64]]
"""Noise of ``n`` runs and ``pairs`` pairs, of standard deviation 1: ``(n, pairs)``. Rows are in the order of runs."""


@dataclass(frozen=True)
class Design:
    """Numbers of baselines and runs. ``paired``: run i shares most of its noise with baseline i."""

    baselines: int
    runs: int
    paired: bool = False

    @property
    def name(self) -> str:
        """As in the tables."""
        return f"{self.baselines} pairs" if self.paired else f"{self.baselines} + {self.runs}"

    def instrumented(self) -> NDArray[np.bool_]:
        """Which runs, in their order, are instrumented: spread evenly among the baselines."""
        n = self.baselines + self.runs
        places = np.floor((np.arange(self.runs) + 0.5) * n / self.runs).astype(np.int64)
        return np.isin(np.arange(n), places)


def normal(rng: np.random.Generator, n: int, pairs: int) -> NDArray[np.float64]:
    """Normal noise, of which three tenths are common to the pairs of a run."""
    return np.sqrt(0.7) * rng.normal(size=(n, pairs)) + np.sqrt(0.3) * rng.normal(size=(n, 1))


def heavy_tails(rng: np.random.Generator, n: int, pairs: int) -> NDArray[np.float64]:
    """Student's t with 3 degrees of freedom, some of it common to the pairs of a run."""
    own, shared = rng.standard_t(3, (n, pairs)), rng.standard_t(3, (n, 1))
    return np.asarray((np.sqrt(0.7) * own + np.sqrt(0.3) * shared) / np.sqrt(3))


def lighter_tails(rng: np.random.Generator, n: int, pairs: int) -> NDArray[np.float64]:
    """Student's t with 5 degrees of freedom, some of it common to the pairs of a run."""
    own, shared = rng.standard_t(5, (n, pairs)), rng.standard_t(5, (n, 1))
    return np.asarray((np.sqrt(0.7) * own + np.sqrt(0.3) * shared) / np.sqrt(5 / 3))


def laplace(rng: np.random.Generator, n: int, pairs: int) -> NDArray[np.float64]:
    """Laplace's distribution, some of it common to the pairs of a run."""
    own, shared = rng.laplace(size=(n, pairs)), rng.laplace(size=(n, 1))
    return np.asarray((np.sqrt(0.7) * own + np.sqrt(0.3) * shared) / np.sqrt(2))


def lognormal(rng: np.random.Generator, n: int, pairs: int) -> NDArray[np.float64]:
    """Lognormal with shape 0.8, so skewed to one side; of its logarithm some is common to the pairs of a run."""
    skewed = np.exp(0.8 * normal(rng, n, pairs))
    return np.asarray((skewed - np.exp(0.32)) / np.sqrt((np.exp(0.64) - 1) * np.exp(0.64)))


def exponential(rng: np.random.Generator, n: int, pairs: int) -> NDArray[np.float64]:
    """Exponential, so skewed to one side, some of it common to the pairs of a run."""
    own, shared = rng.exponential(size=(n, pairs)), rng.exponential(size=(n, 1))
    return np.asarray(np.sqrt(0.7) * (own - 1) + np.sqrt(0.3) * (shared - 1))


def outliers(rng: np.random.Generator, n: int, pairs: int) -> NDArray[np.float64]:
    """Normal, but one run in twenty scatters five times as much."""
    return np.asarray(normal(rng, n, pairs) * np.where(rng.random((n, 1)) < 0.05, 5.0, 1.0) / np.sqrt(2.2))


def regimes(rng: np.random.Generator, n: int, pairs: int) -> NDArray[np.float64]:
    """A fifth of the runs takes another regime (such as another placement), in which pairs differ by 2.5 deviations."""
    other = (rng.random((n, 1)) < 0.2) * rng.normal(0, 2.5, (1, pairs))
    return np.asarray((normal(rng, n, pairs) + other) / np.sqrt(2))


def run_effects(rng: np.random.Generator, n: int, pairs: int) -> NDArray[np.float64]:
    """Nine tenths of the variance are common to all pairs of a run."""
    return np.sqrt(0.1) * rng.normal(size=(n, pairs)) + np.sqrt(0.9) * rng.normal(size=(n, 1))


def ties(rng: np.random.Generator, n: int, pairs: int) -> NDArray[np.float64]:
    """z takes few values, so that many runs are equal."""
    return np.asarray(np.round(normal(rng, n, pairs)))


def autocorrelated(rng: np.random.Generator, n: int, pairs: int) -> NDArray[np.float64]:
    """From traces: records that depend on each other (AR 0.9), metrics that share a driver; scaled to deviation 1."""
    metrics = next(m for m in range(2, 99) if m * (m - 1) // 2 == pairs)
    rows, columns = np.triu_indices(metrics, 1)
    z = []
    for _ in range(n):
        driver = autoregression(rng, RECORDS, 1, 0.9)
        values = driver + 1.2 * autoregression(rng, RECORDS, metrics, 0.9)
        z.append(fisher_z(spearman(values, [str(k) for k in range(metrics)]).rho[rows, columns]))
    return np.asarray((np.array(z) - CENTRE) / 0.2)


def drift(rng: np.random.Generator, n: int, pairs: int) -> NDArray[np.float64]:
    """The machine drifts from run to run (AR 0.8), in all pairs together."""
    return np.asarray(np.sqrt(0.2) * rng.normal(size=(n, pairs)) + np.sqrt(0.8) * autoregression(rng, n, 1, 0.8))


def layout_a_run(rng: np.random.Generator, n: int, pairs: int) -> NDArray[np.float64]:
    """Four fifths of the variance come from code layout, drawn anew for each run."""
    return np.sqrt(0.2) * rng.normal(size=(n, pairs)) + np.sqrt(0.8) * rng.normal(size=(n, pairs))


def five_layouts(rng: np.random.Generator, n: int, pairs: int) -> NDArray[np.float64]:
    """As `layout_a_run`, but each run takes one of five layouts of its program, drawn with replacement."""
    layouts = rng.normal(size=(5, pairs))
    return np.asarray(np.sqrt(0.2) * rng.normal(size=(n, pairs)) + np.sqrt(0.8) * layouts[rng.integers(0, 5, n)])


def campaign(
    rng: np.random.Generator,
    draw: Draw,
    design: Design,
    metrics: int,
    *,
    change: float = 0.0,
    only_first: bool = False,
    spread: float = 1.0,
    baselines_first: bool = False,
    separate: bool = False,
    sd: float = SD,
) -> tuple[list[Correlations], list[Correlations]]:
    """Baselines and instrumented runs, whose pairs (or the first only) changed by ``change`` in z.

    ``spread``: standard deviation of the runs' noise against the baselines'. ``baselines_first``: not interleaved.
    ``separate``: noise that belongs to a program, such as its layouts, is drawn for the plain and for the
    instrumented program.
    """
    pairs = metrics * (metrics - 1) // 2
    n = design.baselines + design.runs
    if design.paired:
        shared, own = draw(rng, design.baselines, pairs), draw(rng, n, pairs)
        before = np.sqrt(0.7) * shared + np.sqrt(0.3) * own[: design.baselines]
        after = np.sqrt(0.7) * shared[: design.runs] + np.sqrt(0.3) * own[design.baselines :]
    elif separate:
        before, after = draw(rng, design.baselines, pairs), draw(rng, design.runs, pairs)
    else:
        noise = draw(rng, n, pairs)
        chosen = np.arange(n) >= design.baselines if baselines_first else design.instrumented()
        before, after = noise[~chosen], noise[chosen]
    z = CENTRE + sd * np.vstack([before, spread * after])
    z[design.baselines :, : 1 if only_first else pairs] += change
    return _correlations(z[: design.baselines], metrics), _correlations(z[design.baselines :], metrics)


def variants(
    rng: np.random.Generator, draw: Draw, design: Design, metrics: int, number: int
) -> tuple[list[Correlations], list[list[Correlations]]]:
    """Baselines, and the runs of ``number`` variants that change nothing; each run is in a pair with a baseline."""
    pairs = metrics * (metrics - 1) // 2
    shared = draw(rng, design.baselines, pairs)
    own = draw(rng, design.baselines * (number + 1), pairs).reshape(number + 1, design.baselines, pairs)
    baseline, *runs = CENTRE + SD * (np.sqrt(0.7) * shared + np.sqrt(0.3) * own)
    return _correlations(baseline, metrics), [_correlations(one, metrics) for one in runs]


def _correlations(z: NDArray[np.float64], metrics: int) -> list[Correlations]:
    rows, columns = np.triu_indices(metrics, 1)
    names = tuple(f"metric_{index}" for index in range(metrics))
    made = []
    for row in z:
        rho = np.eye(metrics)
        rho[rows, columns] = rho[columns, rows] = np.tanh(row)
        made.append(Correlations(names, rho, np.zeros(metrics, np.bool_), np.zeros(metrics), RECORDS))
    return made


def programs(seed: int, design: Design, records: int) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """Traces of a made-up program with phases, drivers, ties and uneven pace: all of them plain runs."""
    program = synthetic_program(10_000 + seed, n_records=records, n_metrics=4)
    rng = np.random.default_rng((design.baselines, design.runs, seed))
    tables = [program.run(rng) for _ in range(design.baselines + design.runs)]
    return tables[: design.baselines], tables[design.baselines :]


def similarities(
    seed: int, design: Design, metrics: int, loss: float, alignments: float, runs: float
) -> NDArray[np.float64]:
    """z of each metric with itself across each two of the baselines and runs, ``(B + R, B + R, metrics)``, nan of a run
    with itself: each alignment has noise of deviation ``alignments``, and each run an effect of deviation ``runs`` on
    all of its alignments. Those of a run with a baseline are lower by ``loss``."""
    n, b = design.baselines + design.runs, design.baselines
    rng = np.random.default_rng((seed, b, design.runs))
    noise = np.triu(rng.normal(0, alignments, (metrics, n, n)), 1).transpose(1, 2, 0)
    effects = rng.normal(0, runs, (n, 1, metrics))
    found = 1.3 + noise + noise.transpose(1, 0, 2) + effects + effects.transpose(1, 0, 2)
    found[b:, :b] -= loss
    found[:b, b:] -= loss
    found[np.arange(n), np.arange(n)] = np.nan
    return np.asarray(found)


def white_noise(seed: int, design: Design, records: int) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """Traces without anything in common, two of whose metrics correlate at 0.95."""
    rng = np.random.default_rng((design.baselines, design.runs, seed))
    tables = rng.normal(size=(design.baselines + design.runs, records, 4))
    tables[:, :, 1] = 0.95 * tables[:, :, 0] + np.sqrt(1 - 0.95**2) * tables[:, :, 1]
    return list(tables[: design.baselines]), list(tables[design.baselines :])
