"""What an explanation has done and has still to do: its steps, its runs, and the time left, for the status line.

How many runs are needed shows only while they are made: interactions, pairs that decide nothing and remedies that fail
need more. So there is an expected and a largest number for each step, known before the first run. The pace is first
that of the campaign's own runs, then more and more that of the explanation's.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from measure.console.tables import without_middle
from measure.console.time_left import clock_text, range_text
from measure.explanation.orders import ALWAYS_EXACT, MOST_EXACT
from measure.runs.campaign_model import Campaign

STEPS = {
    "metrics": "metrics",
    "mechanisms": "mechanisms",
    "places": "places",
    "remedies": "remedies",
    "confirming": "fresh runs",
}
"""Steps of an explanation, in order, and what they are called; fresh runs confirm the best remedies."""
_COSTS = {"mechanisms": 1.4}
"""Time of a run by step, where it is not that of a plain one: interventions take longer (quickstart, measured)."""
_LATEST = 30  # ended runs that show the pace
_PRIOR_RUNS = 4.0  # that the pace of the campaign's runs counts as, and one more for each that is in progress
_ERROR = 0.15  # of the pace
_PROBABLE = 0.3  # share of the further runs that may be needed, in the upper estimate
_LEAST_NAME = 8  # characters of a variant's name
_CUT_PAIRS, _CONFIRMING_PAIRS = 3, 10


@dataclass(frozen=True)
class Effort:
    """Runs and programs of a step. ``runs``, ``most``: expected, and if all goes badly; ``programs``: to build."""

    runs: float
    most: float
    programs: float = 0.0


def efforts(
    campaign: Campaign, metrics: tuple[str, ...], places: int, pairs: tuple[int, int], *, first: bool = True,
    layouts: int = 1, further_layouts: int = 0,
) -> dict[str, Effort]:  # fmt: skip
    """The effort of each of `STEPS` for a variant that collects ``metrics``.

    ``places``: where the metric counts that is looked at by place; ``pairs``: of runs, at first and at most; ``first``:
    no variant is explained before, whose runs of the plain program serve this one, too; ``layouts``: in which each
    program is built for the first pairs; ``further_layouts``: in which it is built for fresh runs beside those.
    """
    few, n, signal = pairs[0], len(metrics), campaign.sampling.mode == "signal"
    specs = [campaign.software_metrics[metric] for metric in metrics]
    sets = max(2 * n, 2)  # an order and its reverse
    all_sets = 2**n if n <= MOST_EXACT else 2 * sets
    if n <= ALWAYS_EXACT:
        sets = all_sets
    states, all_states = (8, 16) if signal else (5, 7)  # beside the programs without an intervention
    cuts = 0 if signal else 3 * min(few, _CUT_PAIRS)
    again = (sets + states) * (pairs[1] - few)  # in more pairs
    by_place = places * few if places > 1 else 0
    entries = any(one.event == "call" and one.callee and not one.function for one in specs)
    local = any(not one.local and one.sampled is None for one in specs)
    tried = 2 + entries + 2 * local + campaign.volatile + (signal and n > 1)
    plain = 0 if first else 1
    confirmed = (2 if signal else 1) * _CONFIRMING_PAIRS
    return {
        "metrics": Effort(sets * few - plain * few, all_sets * few + again / 2, (sets - 2) * layouts),
        "mechanisms": Effort(states * few + cuts, all_states * few + cuts + again / 2),
        "places": Effort(by_place, by_place, places * layouts if places > 1 else 0),
        "remedies": Effort(tried * few, (tried + 2) * few, (tried - 1) * layouts),
        "confirming": Effort(
            (1 - plain) * _CONFIRMING_PAIRS + confirmed, 4 * _CONFIRMING_PAIRS, (2 - plain) * further_layouts
        ),
    }


class Outlook:
    """Progress of the explanation of several variants.

    ``expected``: `efforts` of each variant; ``run_seconds``: duration of one of the campaign's runs; ``build_seconds``:
    of building one program; ``at_once``: number of runs and of builds in progress together; ``stored``: runs that an
    earlier process left, which are probably those of the first steps; ``say``: called when a step begins.
    """

    def __init__(
        self, expected: dict[str, dict[str, Effort]], run_seconds: float, build_seconds: float, at_once: int,
        *, stored: int = 0, say: Callable[[], None] = lambda: None, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._stored = stored
        self._expected, self._at_once, self._clock, self._say = expected, at_once, clock, say
        self._run_seconds, self._build_seconds = run_seconds / at_once, build_seconds / at_once
        self._begun = clock()
        self._variant, self._step, self._note = next(iter(expected), ""), "", ""
        self._made, self._made_in_step, self._built, self._built_in_step = 0, 0, 0, 0
        self._building, self._building_since, self._building_seconds = 0, 0.0, 0.0
        # Working time, without that of builds, at which a run ended, and what the runs until then cost.
        self._ends = deque([(0.0, 0.0)], maxlen=_LATEST + 1)

    def begin_step(self, variant: str, step: str, note: str = "") -> None:
        """The explanation of ``variant`` comes to ``step``, one of `STEPS`. ``note``: beside its name."""
        if (variant, step) != (self._variant, self._step):
            self._made_in_step = self._built_in_step = 0
        self._variant, self._step, self._note = variant, step, note
        self._say()

    def need(self, runs: int) -> None:
        """The step that is at work makes ``runs`` more runs, perhaps more than were expected."""
        if self._variant not in self._expected or not self._step:
            return
        effort = self._expected[self._variant][self._step]
        total = max(effort.runs, self._made_in_step + runs)
        self._expected[self._variant][self._step] = replace(effort, runs=total, most=max(total, effort.most))

    def found(self, runs: int, missing: int) -> None:
        """Of the runs that are needed next, ``runs`` are in the store, and ``missing`` are not: then no later ones are,
        for an explanation always makes its runs in the same order."""
        self._made += runs
        self._made_in_step += runs
        self._stored = 0 if missing else self._stored - runs

    def advance(self) -> None:
        """A run has ended."""
        self._made += 1
        self._made_in_step += 1
        self._ends.append((self._working_seconds(), self._ends[-1][1] + _COSTS.get(self._step, 1.0)))

    @contextmanager
    def building(self, programs: int) -> Iterator[None]:
        """Within it, ``programs`` are built."""
        self._building, self._building_since = programs, self._clock()
        try:
            yield
        finally:
            self._building_seconds += self._clock() - self._building_since
            self._built += programs
            self._built_in_step += programs
            self._building = 0

    def runs(self) -> tuple[float, float]:
        """Number of runs of the whole explanation, those made included: expected, and if much goes badly."""
        left, most, _ = self._left({})
        return self._made + left, self._made + most

    def seconds(self) -> tuple[float, float]:
        """Lower and upper estimate of the time left."""
        left, most, programs = self._left(_COSTS)
        left, most = (max(0.0, number - max(0, self._stored)) for number in (left, most))
        runs_pace, build_pace = self._paces()
        builds = build_pace * programs
        builds -= min(self._building_elapsed(), build_pace * min(self._building, programs))
        return (
            (runs_pace * left + builds) * (1 - _ERROR),
            (runs_pace * (left + _PROBABLE * (most - left)) + builds) * (1 + _ERROR),
        )  # fmt: skip

    def begin_text(self) -> str:
        """A sentence on the whole work, before it begins."""
        runs, most = self.runs()
        names = ", ".join(self._expected)
        there = f" ({min(self._stored, round(runs))} are there)" if self._stored else ""
        return (
            f"Explaining {names}: {range_text(*self.seconds())} for about {_rounded(runs)} runs{there}, at most about "
            f"{_rounded(most)}, {self._at_once} at once."
        )

    def describe(self, width: int | None = None) -> str:
        """The variant, its step, the runs, the time so far, and the time left. ``width``: characters, to which the
        variant's name is shortened as far as that is possible."""
        names = list(self._expected)
        which = f" ({names.index(self._variant) + 1} of {len(names)})" if len(names) > 1 else ""
        number = f"step {list(STEPS).index(self._step) + 1} of {len(STEPS)} " if self._step else ""
        what = STEPS.get(self._step, "preparing") + (f", {self._note}" if self._note else "")
        if self._building:
            what += f": building {self._building} program{'s' * (self._building > 1)}"
        rest = (
            f"{which}, {number}({what}): {self._made} of about {_rounded(self.runs()[0])} runs, "
            f"{clock_text(self._clock() - self._begun)}, {range_text(*self.seconds())} left"
        )
        name = self._variant
        return (name if width is None else without_middle(name, max(_LEAST_NAME, width - len(rest)))) + rest

    def _left(self, costs: Mapping[str, float]) -> tuple[float, float, float]:
        """Runs that are left, expected and if much goes badly, and programs to build; ``costs``: of a run, by step."""
        names, steps = list(self._expected), list(STEPS)
        left = most = programs = 0.0
        now = (names.index(self._variant), steps.index(self._step) if self._step else -1)
        for variant, known in self._expected.items():
            for step, effort in known.items():
                place = (names.index(variant), steps.index(step))
                if place < now:
                    continue
                made, built = (self._made_in_step, self._built_in_step) if place == now else (0, 0)
                left += max(0.0, effort.runs - made) * costs.get(step, 1.0)
                most += max(0.0, effort.most - made) * costs.get(step, 1.0)
                programs += max(0.0, effort.programs - built)
        return left, max(left, most), max(programs, self._building)

    def _working_seconds(self) -> float:
        """Time so far without that of builds."""
        return self._clock() - self._begun - self._building_seconds - self._building_elapsed()

    def _paces(self) -> tuple[float, float]:
        """Seconds for a run and for a program, with what is done beside them."""
        prior = _PRIOR_RUNS + self._at_once
        working, ended = (last - first for first, last in zip(self._ends[0], self._ends[-1], strict=True))
        # While a run or a build takes longer than they do, the pace falls already before it ends.
        waited = self._working_seconds() - self._ends[-1][0]
        late = max(0.0, waited - self._run_seconds * self._at_once)
        run = (prior * self._run_seconds + working + late) / (prior + ended)
        build = (self._build_seconds + self._building_seconds) / (1 + self._built)
        if self._building:
            build = max(build, self._building_elapsed() / self._building)
        return run, build

    def _building_elapsed(self) -> float:
        """Seconds since the builds that are in progress began, 0 for none."""
        return self._clock() - self._building_since if self._building else 0.0


def _rounded(number: float) -> str:
    """A number that is not exact."""
    return f"{round(number):,}" if number < 50 else f"{5 * round(number / 5):,}"
