"""Estimates of the time left, bars, and lines where there is no terminal."""

from __future__ import annotations

import heapq
import io
import re
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from measure.console import progress
from measure.console.progress import RunsBar, Status, WorkBar, fitting
from measure.console.time_left import TimeLeft, clock_text


class Simulated:
    """Workers that make runs of random lengths; ``ends``: when each run ends."""

    def __init__(self, seed: int, total: int, workers: int, spread: float, start_seconds: float = 0.0) -> None:
        rng = np.random.default_rng(seed)
        sigma = np.sqrt(np.log(1 + spread**2))
        free = [start_seconds] * workers
        self.ends = []
        for seconds in rng.lognormal(-(sigma**2) / 2, sigma, total) * 20:
            self.ends.append(heapq.heappop(free) + seconds)
            heapq.heappush(free, self.ends[-1])
        self.ends.sort()
        self.now = 0.0
        self.left = TimeLeft(total, workers, lambda: self.now)

    def until(self, moment: float) -> tuple[float, float] | None:
        """The estimate at ``moment``, later than the one before."""
        while self.left.done < len(self.ends) and self.ends[int(self.left.done)] <= moment:
            self.now = self.ends[int(self.left.done)]
            self.left.advance()
        self.now = moment
        return self.left.seconds()


def test_two_runs_of_25_that_end_together_give_an_upper_end() -> None:
    """It said one second for half a minute: two workers ended within a second of each other."""
    now = [0.0]
    left = TimeLeft(25, 2, lambda: now[0])
    now[0] = 30.0
    left.advance()
    assert left.describe() == "time left not known yet"
    now[0] = 31.0
    left.advance()
    assert left.describe() == "up to 9 min left"
    now[0] = 45.0
    assert left.describe() == "up to 14 min left"


@pytest.mark.parametrize("spread", [0.05, 0.5])
def test_a_campaign_of_18_runs_has_an_estimate_from_the_first_wave_on(spread: float) -> None:
    """It had none at 15 of 18 runs: what tasks that end together cost apart was taken for the spread of their times."""
    within, known, both = 0, 0, 0
    for seed in range(40):
        runs = Simulated(seed, 18, 2, spread, start_seconds=5)
        for number in range(2, 18):
            moment = (runs.ends[number - 1] + runs.ends[number]) / 2
            found = runs.until(moment)
            assert found is not None
            known += 1
            within += found[0] <= runs.ends[-1] - moment <= found[1]
            both += found[0] > 0 and re.match(r"up to|time", runs.left.describe()) is None
    assert within >= 0.85 * known
    assert both >= 0.6 * known


@pytest.mark.parametrize("workers", [1, 2, 8])
@pytest.mark.parametrize("spread", [0.05, 0.3, 0.7])
def test_the_time_left_is_within_the_range(workers: int, spread: float) -> None:
    """Also after a slow start, which is not taken for the pace."""
    within, known = 0, 0
    for seed in range(20):
        runs = Simulated(seed, 100, workers, spread, start_seconds=60)
        for moment in np.linspace(0.02, 0.98, 40) * runs.ends[-1]:
            found = runs.until(moment)
            if found is not None:
                known += 1
                within += found[0] <= runs.ends[-1] - moment <= found[1]
    assert within >= 0.8 * known
    assert known >= 0.4 * 20 * 40


@given(total=st.integers(1, 60), workers=st.integers(1, 9), pauses=st.lists(st.floats(0, 1000), max_size=60))
@settings(deadline=None)
def test_estimates_are_ordered_and_grow_while_nothing_ends(total: int, workers: int, pauses: list[float]) -> None:
    now = [0.0]
    left = TimeLeft(total, workers, lambda: now[0])
    for pause in pauses[:total]:
        now[0] += pause
        left.advance()
        found = left.seconds()
        text = left.describe()
        if found is None:
            assert text == "time left not known yet"
            continue
        assert 0 <= found[0] <= found[1]
        now[0] += 100.0
        later = left.seconds()
        assert later is None or later[1] >= found[1]
        now[0] -= 100.0
    if len(pauses) >= total:
        assert left.seconds() == (0.0, 0.0)


def test_the_pace_is_that_of_now_when_the_machine_becomes_busy() -> None:
    """Runs of 25 s in a campaign whose first 40 took 5 s: the mean of all would promise less than half the time."""
    now = [0.0]
    left = TimeLeft(100, 2, lambda: now[0])
    for number in range(70):
        now[0] += 2.5 if number < 40 else 12.5
        left.advance()
    found = left.seconds()
    assert found is not None
    assert found[0] <= 30 * 12.5 <= found[1]
    assert found[0] > 0.7 * 30 * 12.5


def test_texts() -> None:
    now = [0.0]
    left = TimeLeft(100, 1, lambda: now[0])
    for _ in range(50):
        now[0] += 6.0
        left.advance()
    assert left.describe() == "4 to 6 min left"
    now[0] = 350.0
    assert re.fullmatch(r"\d to \d min left", left.describe())
    assert [clock_text(seconds) for seconds in (0, 67.9, 3723)] == ["0:00", "1:07", "1:02:03"]


def log() -> Console:
    return Console(file=io.StringIO(), width=200)


def lines_of(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_one_run_is_told_in_the_singular() -> None:
    console = log()
    with RunsBar(console) as bar:
        bar.start(1, 1, 2)
        bar.advance()
    assert lines_of(console)[:2] == ["1 run is there already.", "Making 1 run."]


def test_without_a_terminal_a_line_every_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LEAST_SECONDS", 0.0)
    console = log()
    with RunsBar(console) as bar:
        bar.start(40, 3, 2)
        for _ in range(40):
            bar.advance()
    told = lines_of(console)
    assert told[:2] == ["3 runs are there already.", "Making 40 runs."]
    assert [line.split(",")[0] for line in told[2:]] == [f"runs: {4 * k} of 40" for k in range(1, 10)]
    assert "left" in told[2]
    assert "not known" not in told[2]


def test_without_a_terminal_a_line_though_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.02)
    console = log()
    with WorkBar(console, "full simulation", percent=True) as bar:
        bar.begin(1_000_000)
        bar.advance(250_000)
        wait_for(console, 2)
    assert lines_of(console)[0].startswith("full simulation: 25%, 0:00, ")
    console = log()
    said = iter(range(10_000))
    with Status(console, lambda: f"comparing {next(said)}"):
        wait_for(console, 2)
    assert lines_of(console)[:2] == ["comparing 0", "comparing 1"]
    console = log()
    with Status(console, "building") as status:
        wait_for(console, 1)
        monkeypatch.setattr(progress, "_MANY_SECONDS", 0.0)
        status.update("linking")
        wait_for(console, 3)
    assert lines_of(console)[0] == "building"
    assert lines_of(console)[-1] == "linking, 0 s"


def test_a_note_takes_the_place_of_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.02)
    console = log()
    with Status(console, "building") as status:
        status.note("Still building [it]")
        time.sleep(0.2)
        told = lines_of(console)
        status.update("running")
        wait_for(console, 3)
    assert [line for line in told if line != "building"] == ["Still building [it]"]
    assert told[-1] == "Still building [it]"
    assert lines_of(console)[len(told)] == "running"


def test_frequent_updates_do_not_silence_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.1)
    console = log()
    deadline = time.monotonic() + 30
    with Status(console, "simulating 0") as status:
        while len(lines_of(console)) < 2:
            assert time.monotonic() < deadline
            status.update("simulating on")
            time.sleep(0.005)
    assert lines_of(console)[-1] == "simulating on"


def test_a_status_line_has_the_parts_that_fit() -> None:
    parts = ["testing groups", "12 runs made", "1:20 of 4:00 left"]
    assert fitting(parts, None) == "testing groups; 12 runs made; 1:20 of 4:00 left"
    assert fitting(parts, 47) == fitting(parts, None)
    assert fitting(parts, 46) == "testing groups; 12 runs made"
    assert fitting(parts, 5) == "testing groups"


def wait_for(console: Console, lines: int) -> None:
    deadline = time.monotonic() + 30
    while len(lines_of(console)) < lines:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_in_a_terminal_a_bar_that_tells_the_range() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with RunsBar(console) as bar:
        bar.start(25, 0, 2)
        bar.advance()
        bar.advance()
        bar._bar.refresh()
    shown = "".join(lines_of(console))
    assert "2 of 25" in shown
    assert "time left not known yet" in shown
    with Status(console, lambda: "testing groups") as status:
        status._live._live.refresh()
    assert "testing groups" in "".join(lines_of(console))
