"""An explanation from made-up values."""

from __future__ import annotations

import numpy as np

from measure.explanation.explanation_types import (
    Decision,
    Estimate,
    Explanation,
    MetricEffect,
    Part,
    Remedy,
    Reproduction,
    SiteEffect,
    ordered,
)
from measure.perturbation.perturbation import inner_perturbation
from measure.stats.correlation import spearman

METRICS = ("loads", "branches", "misses")


def explanation() -> Explanation:
    """Two relations change by 0.4 and -0.2; metric `many` and execution make three quarters of it."""
    rng = np.random.default_rng(1)
    whole = np.array([0.4, -0.2]) + 0.01 * rng.standard_normal((5, 2))
    parts = [Part("few", "some", 0.25 * whole), Part("many", "most", 0.75 * whole)]
    mechanisms = [Part("layout", "elsewhere", 0.25 * whole), Part("executed instructions", "cost", 0.75 * whole)]
    runs = [spearman(rng.random((60, 3)), METRICS) for _ in range(10)]
    judged = inner_perturbation(runs[:6], runs[6:], seed=1)
    return Explanation(
        campaign="made up", variant="heavy", relations=(("loads", "branches"), ("loads", "loads")),
        verdict="perturbed", where="within a run and across runs", cuts=0.5 * whole, added_counts=None,
        baseline_z=np.zeros((5, 2)), run_z=whole, metrics=ordered(whole, parts, ["few interacts"]),
        effects=(MetricEffect("few", 0.25 * whole, 0.25 * whole), MetricEffect("many", 0.75 * whole, 0.75 * whole)),
        sites=(SiteEffect("many", "/somewhere/a.c:7", 0.75 * whole),), mechanisms=ordered(whole, mechanisms),
        decisions=(Decision("inlining", "f", "a.c:3", "f no longer inlines g"),),
        remedies=(
            Remedy("b", "helps", "equivalent", judged, 0.1, 0.5, "nothing", {}, 10),
            Remedy("a", "helps not", "perturbed", judged, 0.5, 0.1, "<all>", {}),
        ),
        refused=("c: does not build",), counter_lines=(("a.c:7", 1234),), own_instructions_percent=0.1,
        reproduction=Reproduction(Estimate(0.9, 0.8, 1.0), Estimate(2.0, 1.9, 2.1), 2.0), probes=(), runs=40,
        seconds=12.0,
    )  # fmt: skip
