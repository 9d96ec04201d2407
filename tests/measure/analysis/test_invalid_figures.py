"""What makes figures wrong stands first in every report, in sentences that say how."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from instrumenter.compiler.openmp import NOTICE
from measure.analysis.invalid_figures import invalid_figures
from measure.runs.builds import BuildFacts
from measure.runs.campaign_model import Sampling

NO_OPENMP = NOTICE.format(machine="the emulated machine")
NO_RUNS: Any = SimpleNamespace(runs=[])


def plan(**programs: tuple[tuple[str, ...], tuple[str, ...]]) -> Any:
    """A plan whose programs have these warnings and notices, by variant."""
    builds = {variant: (BuildFacts("key", 100, *told),) for variant, told in programs.items()}
    sampling = Sampling.model_validate({"every": "1000 cycles"})
    campaign = SimpleNamespace(host=None, sampling=sampling, software_metrics={"steps": None})
    return SimpleNamespace(campaign=campaign, builds=builds, second_builds={})


def test_a_program_on_one_thread_instead_of_many_is_told_once_and_first() -> None:
    told = invalid_figures(plan(original=((), (NO_OPENMP,)), counted=(("a.c:3: setjmp",), (NO_OPENMP,))), NO_RUNS, None)
    assert told == (f"{NO_OPENMP}.", "About a counter: a.c:3: setjmp")
    assert "the program runs on one thread." in told[0]


def test_what_is_a_notice_does_not_depend_on_its_words() -> None:
    source = "Compiled without optimisation.S: not instrumented"  # the name of a source may be anything
    assert invalid_figures(plan(counted=((source,), ("It is old",))), NO_RUNS, None) == (
        "It is old.",
        f"About a counter: {source}",
    )


def test_nothing_is_told_of_a_program_without_faults() -> None:
    assert invalid_figures(plan(original=((), ()), counted=((), ())), NO_RUNS, None) == ()


def test_programs_without_counters_that_were_executed_are_told() -> None:
    # Their work was in the hardware metrics, and nothing said that it is in no software metric.
    executed = [("/worker",), (), ("/worker", "/bin/sort")]
    outcome: Any = SimpleNamespace(runs=[SimpleNamespace(other_programs=paths) for paths in executed])
    given = plan()
    given.campaign.sampling = Sampling.model_validate({"mode": "signal", "every": "1000 cycles"})
    (told,) = invalid_figures(given, outcome, None)
    assert told.startswith(
        "The program executed /worker, /bin/sort, which have no counters of this campaign: what they do is in "
        "hardware metrics alone, and in no software metric."
    )
    given.campaign.software_metrics = {}
    assert invalid_figures(given, outcome, None) == ()


def uneven(off: int, mode: str = "ideal", unit: str = "cycles") -> tuple[str, ...]:
    """What is told of a run with ``off`` of 100 records that are too long, each before one that is too short."""
    lengths = np.full(100, 1000)
    lengths[: 2 * off : 2] = 1800
    lengths[1 : 2 * off : 2] = 200
    boundaries = np.cumsum([0, *lengths])
    trace = SimpleNamespace(boundaries_cycles=boundaries, boundaries_instructions=boundaries // 3)
    given = plan()
    given.campaign.sampling = Sampling.model_validate({"mode": mode, "every": f"1000 {unit}"})
    outcome: Any = SimpleNamespace(runs=[SimpleNamespace(trace=trace, other_programs=())])
    return invalid_figures(given, outcome, None)


def test_uneven_records_are_told_with_a_length_that_makes_them_even() -> None:
    (told,) = uneven(10)
    assert told.startswith(
        "20% of the records are more than 10% longer or shorter than 1,000 cycles (the longest has 1,800): "
    )
    assert told.endswith("`sampling: {every: 330 instructions}`.")
    assert uneven(2) == ()


@pytest.mark.parametrize(("mode", "unit"), [("signal", "cycles"), ("ideal", "instructions")])
def test_records_that_the_timer_or_instructions_end_are_as_they_are(mode: str, unit: str) -> None:
    assert uneven(10, mode, unit) == ()
