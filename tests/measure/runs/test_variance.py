"""Components of the spread of z: simulated ones are found again, and only one source differs between two runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from measure.run_types import BASELINE, Run, RunNoise, RunSpec, Trace
from measure.runs.campaign_file import load_campaign
from measure.runs.plan import make_plan
from measure.runs.variance import REST, SOURCES, Components, components, redrawn, sources_of, variant_of
from measure.targets import target_named
from tests.measure.demo_program import PROGRAM, source_file

ROOT = Path(__file__).parents[3]
METRICS = ("PAPI_TOT_INS", "PAPI_LD_INS", "PAPI_L1_DCM")


def run_of(spec: RunSpec, z: float) -> Run:
    """A run whose two metrics have about the given z."""
    rng = np.random.default_rng(1)
    n = 4000
    common, own = rng.normal(size=n), rng.normal(size=n)
    rho = np.tanh(z)
    values = np.column_stack([common, rho * common + np.sqrt(1 - rho**2) * own])
    ranks = np.rint(1e6 * values).astype(np.int64)
    boundaries = np.arange(n + 1, dtype=np.int64)
    return Run(spec, Trace(boundaries, boundaries, ranks, ("x", "y")), 0, 0, 0.0, "")


def spec_of(**changes: object) -> RunSpec:
    spec = RunSpec(
        variant=BASELINE, replicate=0, seed=1, build_key="k", binary="b", arguments=(), stdin=None, files=(),
        machine="m", machine_name="m", hardware_metrics=("x", "y"), counters=(), sampling_mode="ideal", interval=10,
        interval_unit="cycles", noise=RunNoise(page_placement=True, timer_phase=True), layout_seed=5,
    )  # fmt: skip
    return replace(spec, **changes)  # type: ignore[arg-type]


def test_simulated_components_are_found_again() -> None:
    rng = np.random.default_rng(3)
    variances = {"layout": 0.05, "memory": 0.02, "phase": 0.01}
    rest, runs = 0.02, []
    for n in range(60):
        drawn = {source: rng.normal(0, np.sqrt(variance)) for source, variance in variances.items()}
        fixed = rng.normal(0, np.sqrt(rest))
        baseline = spec_of(replicate=n)
        runs.append(run_of(baseline, fixed + sum(drawn.values())))
        own = rng.normal(0, np.sqrt(0.05))
        runs.append(run_of(spec_of(replicate=n, variant="v"), fixed + sum(drawn.values()) + own))
        for source, variance in variances.items():
            again = drawn | {source: rng.normal(0, np.sqrt(variance))}
            runs.append(run_of(redrawn(baseline, source), fixed + sum(again.values())))
    found = components(runs, ("x", "y"), paired=True)
    assert found.runs == 60
    expected = {**{SOURCES[source]: variance / 0.1 for source, variance in variances.items()}, REST: 0.2}
    assert found.sources == pytest.approx(expected, abs=0.15)
    assert sum(found.sources.values()) == pytest.approx(1)
    assert found.shared == pytest.approx(0.1 / 0.125, abs=0.1)
    assert found.text.endswith("60 runs each); code layout dominates")
    assert components(runs, ("x", "y"), paired=False).shared is None


def test_shares_of_sources_that_act_together_are_not_made_to_add_up() -> None:
    """The signs of two sources multiply: either alone changes all of z."""
    runs = []
    for n in range(20):
        layout, memory = (-1) ** n, (-1) ** (n // 2)
        baseline = spec_of(replicate=n)
        runs.append(run_of(baseline, 0.2 * layout * memory))
        runs.append(run_of(redrawn(baseline, "layout"), 0.2 * -layout * memory))
        runs.append(run_of(redrawn(baseline, "memory"), 0.2 * layout * -memory))
    found = components(runs, ("x", "y"), paired=True)
    assert found.sources == pytest.approx({SOURCES["layout"]: 1.9, SOURCES["memory"]: 1.9}, rel=0.02)
    assert "20 runs each and 380% in all, since they act together or by chance); code layout" in found.text


def test_without_runs_nothing_is_claimed() -> None:
    assert components([run_of(spec_of(), 0.1)], ("x", "y"), paired=True) == Components(None, {}, 0)
    assert Components(None, {}, 0).text == "not estimated (`variance_runs: 4` does)"


def test_only_sources_that_the_run_has_are_drawn_anew() -> None:
    assert sources_of(spec_of()) == ["layout", "memory", "phase"]
    assert sources_of(spec_of(layout_seed=None, noise=RunNoise(cache_state=True))) == ["memory"]
    assert sources_of(spec_of(layout_seed=None, noise=RunNoise())) == []


def test_each_source_changes_the_trace_by_itself(tmp_path: Path) -> None:
    (tmp_path / "p.c").symlink_to(source_file(PROGRAM))
    (tmp_path / "c.yaml").write_text(
        f"name: c\nprogram: {{source: p.c}}\nmachine: {ROOT}/configs/machines/strongarm.yaml\n"
        f"sampling: {{every: 4000 cycles}}\nhardware_metrics: [{', '.join(METRICS)}]\nbaselines: 2\nvariance_runs: 1\n"
    )
    plan = make_plan(*load_campaign(tmp_path / "c.yaml"), lambda text: None)
    by_variant = {spec.variant: spec for spec in plan.specs if spec.replicate == 0}
    assert set(by_variant) == {BASELINE, *map(variant_of, SOURCES)}
    assert len(plan.specs) == 5
    assert len(set(plan.keys)) == 5
    traces = {variant: target_named("emulated").execute(spec).trace for variant, spec in by_variant.items()}
    same = traces[BASELINE]
    for source in SOURCES:
        other = traces[variant_of(source)]
        assert not np.array_equal(other.boundaries_instructions, same.boundaries_instructions), source
    again = target_named("emulated").execute(by_variant[variant_of("memory")]).trace
    assert np.array_equal(again.values, traces[variant_of("memory")].values)
