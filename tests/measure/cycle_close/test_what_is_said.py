"""What `measure cycleclose` says of a trace's errors, and what it refuses."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from measure.cli import main
from measure.cycle_close.command import UNCHECKED, Traced, share_beyond, told_of
from measure.cycle_close.far_off import about_worst, is_far_off
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


RIGHT = {"instructions": 1e9, "cycles": 2e9, "loads": 1e8}


def validation(**of: Any) -> dict[str, Any]:
    """What summary.json has of a trace whose CPI and events are right; ``of``: other metrics and events."""
    right = {
        "deviation_percent": 0.9, "whole_run_percent": 0.1, "absolute": 0.3, "accesses_per_1000_instructions": None,
    }  # fmt: skip
    events = {name: {"full": n, "off_percent": 0.0} for name, n in RIGHT.items()}
    metrics = {"cpi": right, **{name: {**right, **one} for name, one in of.items() if "full" not in one}}
    return {"metrics": metrics, "events": events | {name: one for name, one in of.items() if "full" in one}}


def test_the_worst_metric_and_event_are_named_where_their_size_matters() -> None:
    """A run with energy 17% off and twice the writes was said to be 0.9% off."""
    found = validation(
        energy_nj_per_instruction={"deviation_percent": 17.2, "whole_run_percent": 16.9},
        memory_writes={"full": 2e6, "off_percent": 108.0},
    )
    assert is_far_off(found)
    assert about_worst(found) == (
        "Far off: energy [nJ/instruction], an interval 17% on average, the whole run 17%; memory_writes, +108% in the "
        "whole run."
    )


def test_stalls_that_are_a_part_of_all_cycles_are_far_off() -> None:
    assert is_far_off(validation(stall_cycles={"full": 5e7, "off_percent": 60.0}))


def made_up(categories: list[str], sampled_again: tuple[float, ...] = ()) -> Traced:
    columns = {"category": np.array(categories), "cpi": np.ones(len(categories))}
    return Traced(columns, 1, 1.0, 0, None, sampled_again)


def test_it_is_said_that_no_estimate_was_checked() -> None:
    traced = made_up(["simulated", "matched"])
    assert told_of(traced, BY_DEFAULT, 0) == [(f"{UNCHECKED} --validate tells, and --twice 1 of some intervals.", "")]
    assert told_of(traced, BY_DEFAULT, 1) == [(f"{UNCHECKED} --validate tells.", "")]
    for known in (told_of(traced, BY_DEFAULT, 0, True), told_of(made_up(["simulated"]), BY_DEFAULT, 0)):
        assert known == []
    assert UNCHECKED not in told_of(made_up(["simulated", "matched"], (0.01,)), BY_DEFAULT, 0)[0][0]


@pytest.mark.parametrize(
    "rare",
    [
        {"l1i_hit_rate": {"deviation_percent": 5700.0, "accesses_per_1000_instructions": 0.1}},
        {"l1i_hit_rate": {"deviation_percent": 52.0, "absolute": 0.003, "accesses_per_1000_instructions": 111.0}},
        {"l1i_hit_rate": {"deviation_percent": None, "whole_run_percent": 18.0}},
        {"btb_misses": {"full": 90.0, "off_percent": -100.0}},
        {"frontend_stall_cycles": {"full": 1.9e7, "off_percent": -97.0}},  # of start-up, 1% of all cycles
    ],
)
def test_what_is_rare_is_not_far_off(rare: dict[str, Any]) -> None:
    found = validation(**rare)
    assert not is_far_off(found)
    assert about_worst(found).startswith(
        "Furthest off of the metrics: CPI [cycles/instruction], an interval 0.9% on average"
    )
