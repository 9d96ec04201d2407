"""Relations within and across runs: their values, and where a variant's are broken."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from measure.alignment.setting import DEFAULT_ALIGNMENT
from measure.explanation.explain_variant import VariantPerturbation
from measure.explanation.relations import (
    Relations,
    broken_relations,
    judged_changes,
    relation_text,
    reproduction,
)
from measure.perturbation.analysis_types import VERDICTS, Perturbation
from measure.perturbation.perturbation import inner_perturbation, outer_perturbation
from measure.report.model import Signals, VariantReport
from measure.run_types import Run, RunSpec, Trace
from measure.stats.correlation import fisher_z, spearman

METRICS = ("loads", "branches", "misses")


def run(values: NDArray[np.int64]) -> Run:
    spec = RunSpec(
        "x", 0, 0, "", "", (), None, (), "", "", METRICS, (), "ideal", 1000, "cycles"
    )  # fmt: skip
    steps = 1000 * np.arange(len(values) + 1)
    return Run(spec, Trace(steps, steps, values, METRICS), int(steps[-1]), int(steps[-1]), 0.0, "")


def tables(n: int, seed: int, *, lost: bool = False) -> list[NDArray[np.int64]]:
    """Runs of one program: waves with a little noise; ``lost``: the loads of each run follow no common course."""
    course = np.random.default_rng(1).standard_normal((200, 3)).cumsum(axis=0)
    found = []
    for k in range(n):
        rng = np.random.default_rng([seed, k])
        table = course + 0.2 * rng.standard_normal((200, 3))
        if lost:
            table[:, 0] = rng.standard_normal(200)
        found.append((1000 + 100 * table).astype(np.int64))
    return found


def test_a_change_is_compared_with_that_of_the_campaign() -> None:
    """By a naive twin: the changes in the direction of the campaign's, over the campaign's."""
    plain, same, lost = tables(6, 1), tables(6, 2), tables(6, 3, lost=True)
    inner = inner_perturbation([spearman(t, METRICS) for t in plain], [spearman(t, METRICS) for t in lost], seed=1)
    outer = outer_perturbation(plain, lost, METRICS, held_out=True, seed=1)
    chosen = [("loads", "branches"), ("loads", "loads"), ("loads", "nothing")]
    judged = judged_changes(chosen, inner, outer)
    expected = {pair.name: pair.delta_z for one in (inner, outer) for pair in one.pairs}
    assert judged[:2].tolist() == [expected[inner_name(inner, "loads", "branches")], expected["loads"]]
    assert np.isnan(judged[2])
    assert judged_changes(chosen[:1], inner, None) == judged[:1]
    whole = np.array([[0.5, 1.0, 9.0], [0.7, 0.6, 9.0]]) * judged
    whole[:, 2] = 9.0  # of a relation that the campaign does not have
    twin = [sum(row[n] * np.sign(judged[n]) for n in (0, 1)) / sum(abs(judged[n]) for n in (0, 1)) for row in whole]
    runs = [replace(run(table), total_instructions=n) for table, n in zip(same[:2], (1030, 2040), strict=True)]
    base = [replace(run(table), total_instructions=n) for table, n in zip(plain[:2], (1000, 2000), strict=True)]
    found = reproduction(whole, judged, runs, base, 2.5)
    assert found.share.mean == pytest.approx(np.mean(twin))
    assert (found.instructions_percent.mean, found.judged_instructions_percent) == (pytest.approx(2.5), 2.5)
    assert not found.failed


def inner_name(found: Perturbation, a: str, b: str) -> str:
    return next(pair.name for pair in found.pairs if {pair.a, pair.b} == {a, b})


def test_a_relation_across_runs_is_lost_and_one_within_changes() -> None:
    plain, same, lost = (
        [run(table) for table in made] for made in (tables(6, 1), tables(6, 2), tables(6, 3, lost=True))
    )  # fmt: skip
    relations = Relations([("loads", "branches"), ("loads", "loads"), ("misses", "misses")], METRICS, DEFAULT_ALIGNMENT)
    base = relations.values(plain, plain)
    assert base.shape == (6, 3)
    within = spearman(plain[2].trace.columns(METRICS), METRICS).rho[0, 1]
    assert base[2, 0] == pytest.approx(fisher_z(within))
    assert np.abs(relations.values(same, plain) - base).mean(axis=0).max() < 0.3
    change = (relations.values(lost, plain) - base).mean(axis=0)
    assert change[1] < -1  # loads are no longer like those of other runs
    assert change[2] > change[1] + 1  # misses are, though they are aligned on loads, too


def test_where_relations_are_broken() -> None:
    plain, lost = tables(8, 1), tables(8, 3, lost=True)
    inner = inner_perturbation(
        [spearman(table, METRICS) for table in plain], [spearman(table, METRICS) for table in lost], paired=True, seed=1
    )
    outer = outer_perturbation(plain, lost, METRICS, held_out=True, paired=True, seed=1)
    both = VariantPerturbation(inner, outer)
    assert both.where == "within a run and across runs"
    assert ("loads", "loads") in both.broken
    assert both.verdict == "perturbed"
    assert both.broken[0][0] != both.broken[0][1]  # within a run first
    unchanged = inner_perturbation(
        [spearman(table, METRICS) for table in plain],
        [spearman(table, METRICS) for table in plain],
        paired=True,
        seed=1,
    )
    across = VariantPerturbation(unchanged, outer)
    assert across.where == "across runs"
    assert all(a == b for a, b in across.broken)
    assert VariantPerturbation(unchanged, None).broken == broken_relations(unchanged, None) == []
    assert relation_text(("loads", "loads")) == "loads across runs"


def test_an_explanation_has_the_verdict_of_its_campaign() -> None:
    """Of a variant that its report called equivalent, and not assessable within a run, it said not assessable."""
    runs = [spearman(table, METRICS) for table in tables(8, 1)]
    given = inner_perturbation(runs, runs, paired=True, seed=1)
    for within, across in product(VERDICTS, VERDICTS):
        inner, outer = replace(given, verdict=within), replace(given, verdict=across)
        nothing = np.zeros(2)
        signals = Signals("x", (), np.zeros((2, 0)))
        report = VariantReport("x", (), (), nothing, nothing, nothing, 0.0, inner, None, outer, signals)
        assert VariantPerturbation(inner, outer).verdict == report.verdict
    same, unseen = replace(given, verdict="equivalent"), replace(given, verdict="not assessable")
    assert VariantPerturbation(unseen, same).in_words == "equivalent, not assessable within a run"
    assert VariantPerturbation(same, unseen).in_words == "equivalent, not assessable across runs"
    assert (
        VariantPerturbation(unseen, unseen).in_words == VariantPerturbation(unseen, None).in_words == "not assessable"
    )
