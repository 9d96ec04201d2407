"""What a report shows, as plain data: filled from an analysis, read by the figures and the page."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from measure.perturbation_types import Perturbation, Verdict


@dataclass(frozen=True)
class Signals:
    """One run's trace. ``values``: (n, m) events per interval, columns named by ``metrics``."""

    label: str
    metrics: tuple[str, ...]
    values: NDArray[np.float64]

    def series(self, metric: str) -> NDArray[np.float64]:
        """The column of ``metric``, (n,)."""
        return self.values[:, self.metrics.index(metric)]


@dataclass(frozen=True)
class VariantReport:
    """One set of software metrics collected together.

    ``rho``: (r, m, m) correlations of the hardware metrics, a matrix a run; overheads in percent of the mean
    baseline, (r,).
    """

    name: str
    software_metrics: tuple[str, ...]
    descriptions: tuple[str, ...]
    rho: NDArray[np.float64]
    instructions_percent: NDArray[np.float64]
    cycles_percent: NDArray[np.float64]
    code_percent: float
    inner: Perturbation
    outer_joint: Perturbation | None
    outer_held_out: Perturbation | None
    example: Signals

    @property
    def verdict(self) -> Verdict:
        """Of the whole variant: the gravest of inner and held-out outer."""
        verdicts = [p.verdict for p in (self.inner, self.outer_held_out) if p is not None]
        for gravest in ("perturbed", "inconclusive"):
            if gravest in verdicts:
                return gravest
        return "equivalent"


@dataclass(frozen=True)
class ReportData:
    """Everything on the page. ``baseline_rho``: (b, m, m); ``findings``: sentences, the gravest first."""

    title: str
    subtitle: str
    hardware_metrics: tuple[str, ...]
    baseline_rho: NDArray[np.float64]
    baseline_example: Signals
    variants: tuple[VariantReport, ...]
    findings: tuple[str, ...]
    provenance: tuple[tuple[str, str], ...]
    interval: str
