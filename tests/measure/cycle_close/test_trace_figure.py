"""The picture of a cycle-close trace: a figure made ahead is used, once, and the picture is the same."""

import io
import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from emulator.timing.machine_events import N_EVENTS, Event
from emulator.timing.machine_file import load_machine
from measure.cycle_close import results
from measure.cycle_close import trace_figure as module
from measure.cycle_close.rates import ENERGY, RATES, metrics_of, table_of
from measure.cycle_close.trace_figure import prepare_figure, save_figure, trace_figure
from measure.cycle_close.tracer import Category, Interval

MACHINES = Path(__file__).resolve().parents[3] / "configs" / "machines"


def trace_on(machine: str) -> pd.DataFrame:
    """Thirty intervals with events of all kinds that the machine has."""
    config = load_machine(MACHINES / f"{machine}.yaml")
    random = np.random.default_rng(3)
    has = np.array([config.l2 is not None or not event.name.startswith("L2") for event in Event])
    intervals = [
        Interval(
            at, 1000 * at, 1000 * (at + 1), at % 4, Category(at % 3), at, 0.1, has * random.integers(1, 99, N_EVENTS)
        )
        for at in range(30)
    ]
    return table_of(intervals, config.energy.picojoules() if config.energy is not None else None)


def png(table: pd.DataFrame) -> bytes:
    file = io.BytesIO()
    save_figure(trace_figure(table, None, "program"), file)
    return file.getvalue()


@pytest.mark.parametrize("machine", ["strongarm", "desktop"])
def test_a_figure_made_ahead_gives_the_same_picture_and_is_used_once(machine: str) -> None:
    table = trace_on(machine)
    n_metrics = metrics_of(load_machine(MACHINES / f"{machine}.yaml"))
    assert n_metrics == sum(name in table and bool(table[name].notna().any()) for name in (*RATES, ENERGY))
    fresh = png(table)
    prepare_figure(n_metrics)
    figure, _ = module._prepared[n_metrics]
    assert trace_figure(table, None, "program") is figure
    assert not module._prepared
    prepare_figure(n_metrics)
    assert png(table) == fresh
    assert png(table) == fresh


def test_the_helper_can_be_told_to_prepare(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(partial(results.prepare, 6)))()
    columns = {str(name): column.to_numpy() for name, column in trace_on("desktop").items()}
    results.write_picture(tmp_path, "program", columns, None)
    assert (tmp_path / "trace.png").read_bytes()[:4] == b"\x89PNG"
