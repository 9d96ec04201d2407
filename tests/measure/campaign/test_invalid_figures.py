"""What makes figures wrong stands first in every report, in sentences that say how."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from instrumenter.building.openmp import NOTICE
from measure.campaign.builds import BuildFacts
from measure.campaign.invalid_figures import invalid_figures

NO_OPENMP = NOTICE.format(machine="the emulated machine")


def plan(**warnings: tuple[str, ...]) -> Any:
    """A plan with these warnings, by variant."""
    builds = {variant: (BuildFacts("key", 100, told),) for variant, told in warnings.items()}
    return SimpleNamespace(campaign=SimpleNamespace(host=None), builds=builds)


def test_a_program_on_one_thread_instead_of_many_is_told_once_and_first() -> None:
    told = invalid_figures(plan(original=(NO_OPENMP,), counted=("a.c:3: setjmp", NO_OPENMP)), None, None)  # type: ignore[arg-type]
    assert told == (f"{NO_OPENMP}.", "A counter may miss events: a.c:3: setjmp")
    assert "the program runs on one thread." in told[0]


def test_nothing_is_told_of_a_program_without_faults() -> None:
    assert invalid_figures(plan(original=(), counted=()), None, None) == ()  # type: ignore[arg-type]
