"""What `measure cycleclose` says of a trace's errors, and what it refuses."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from measure.cli import main
from measure.cycle_close.command import share_beyond
from measure.cycle_close.rates import deviations
from measure.cycle_close.trace_page import _command
from measure.cycle_close.tracer import BY_DEFAULT


@pytest.mark.parametrize("way", [["--roll-back"], ["--twice", "1"]])
@pytest.mark.parametrize("option", [["--predictor", "last"], ["--unsampled", "none"]])
def test_options_of_predicting_are_refused_where_nothing_is_predicted(way: list[str], option: list[str]) -> None:
    found = CliRunner().invoke(main, ["cycleclose", *way, *option, "program.c"])
    assert found.exit_code == 2
    assert f"{option[0]} is for predicting phases, which {way[0]} does not: leave it out" in found.output


def test_commands_that_go_back_have_no_options_of_predicting() -> None:
    about: dict[str, Any] = {
        "machine": "M.yaml", "machine_settings": [], "samples_per_phase": None, "seed": 1, "options": [],
        "program": "p.c", "arguments": [], "settings": asdict(replace(BY_DEFAULT, predictor="last")),
    }  # fmt: skip
    assert "--predictor last" in _command(about, "--validate")
    assert "--predictor" not in _command(about, "--roll-back")
    assert "--predictor" not in _command({**about, "samples_per_phase": 1})


@pytest.mark.parametrize(("draws", "share"), [(1, 0.95), (3, 0.63), (16, 0.17), (59, 0.05)])
def test_so_many_draws_may_all_miss_what_so_few_intervals_have(draws: int, share: float) -> None:
    assert (1 - share_beyond(draws)) ** draws == pytest.approx(0.05)
    assert share_beyond(draws) == pytest.approx(share, abs=0.01)


def test_deviations_tell_the_worst_intervals() -> None:
    actual = pd.DataFrame({"end_instructions": np.arange(200), "cpi": 2.0, "instructions": 1.0, "cycles": 2.0})
    estimated = actual.assign(category="matched")
    estimated.loc[:1, "cpi"] = 3.0, 2.5
    (found,) = deviations(actual, estimated).to_dict("records")
    assert found["largest_percent"] == pytest.approx(50.0)
    assert 0 < found["percentile_99_percent"] < 25
    assert found["deviation_percent"] == pytest.approx(75 / 200)
