"""What a search says of groups whose comparison is not assessable: more runs would not help."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from measure import partitioning
from measure.partitioning.group_verdicts import State, decide
from measure.perturbation.analysis_types import VERDICTS, Perturbation, Verdict
from measure.perturbation.perturbation import inner_perturbation
from measure.stats.correlation import Correlations, spearman


def compared(tied: bool, change: float = 0.0) -> Perturbation:
    """Two groups of six runs of three metrics, the last two of which have one value in most records if ``tied``."""
    rng = np.random.default_rng(5)

    def run(weight: float) -> Correlations:
        driver = rng.normal(size=400)
        values = np.column_stack([driver, weight * driver + rng.normal(size=400), rng.normal(size=400) + driver])
        if tied:
            values[:, 1:] = rng.random((400, 2)) < 0.004
        return spearman(values, ("a", "b", "c"))

    return inner_perturbation([run(1.0) for _ in range(10)], [run(1.0 + change) for _ in range(6)], seed=1)


@pytest.fixture(scope="module")
def unseen() -> Perturbation:
    found = compared(tied=True)
    assert found.verdict == "not assessable"
    return found


@pytest.fixture(scope="module")
def same() -> Perturbation:
    return dataclasses.replace(compared(tied=False), verdict="equivalent")


def test_the_other_comparison_decides_and_what_was_not_seen_is_told(unseen: Perturbation, same: Perturbation) -> None:
    for last in (False, True):
        verdict = decide([unseen, same], last, "equivalent", True, 6)
        assert verdict is not None
        assert verdict.good
        assert verdict.reason.endswith("; but it is not assessable within a run")


def test_a_group_of_which_nothing_is_seen_gets_no_more_runs(unseen: Perturbation) -> None:
    for found, outer in (([unseen], False), ([unseen, unseen], True)):
        verdict = decide(found, False, "equivalent", outer, 6)
        assert verdict is not None
        assert verdict.state == "not assessable"
        assert verdict.reason.startswith("not assessable within a run, with more runs neither: 3 of 3 pairs, as ")
        lenient = decide(found, True, "not perturbed", outer, 6)
        assert lenient is not None
        assert lenient.good
    assert decide([unseen], False, "equivalent", True, 6) is None  # it is to be compared across runs, too


def test_a_change_is_a_change(unseen: Perturbation) -> None:
    changed = compared(tied=False, change=-0.9)
    assert changed.verdict == "perturbed"
    verdict = decide([unseen, changed], False, "equivalent", True, 6)
    assert verdict is not None
    assert verdict.state == "bad"


def test_the_reason_of_an_open_group_names_a_pair_that_is_open(same: Perturbation) -> None:
    """The pair with the largest change may be equivalent, and one with a smaller change open."""
    verdicts: list[Verdict] = ["equivalent", "inconclusive", "equivalent"]
    pairs = tuple(dataclasses.replace(pair, verdict=one) for pair, one in zip(same.pairs, verdicts, strict=True))
    verdict = decide([dataclasses.replace(same, verdict="inconclusive", pairs=pairs)], True, "equivalent", False, 6)
    assert verdict is not None
    assert verdict.state == "undecided"
    assert f"open: rho of {pairs[1].name}" in verdict.reason


def test_the_page_has_a_colour_for_every_state_of_a_group() -> None:
    template = Path(partitioning.__file__).with_name("partition.html.jinja").read_text()
    colours = dict(re.findall(r'"([a-z ]+)": "([a-z-]+)"', template.split("verdict_of", 1)[1].split("}", 1)[0]))
    assert set(colours) == set(get_args(State))
    assert set(colours.values()) <= {one.replace(" ", "-") for one in VERDICTS}
