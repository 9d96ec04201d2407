"""Training a core's branch predictor on a record, against simulating the record."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.events import BlockFacts
from emulator.timing import layout
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_config import MachineConfig
from tests.emulator.timing.timing_programs import machines, programs, records, stream_of


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.data())
def test_branch_prediction_learns_as_if_it_had_been_simulated(data: st.DataObject) -> None:
    config: MachineConfig = data.draw(machines())
    facts: BlockFacts = data.draw(programs())
    stream = stream_of(data.draw(records(facts)))
    simulated, trained = InOrderCore(config, 1), InOrderCore(config, 1)
    simulated.consume(facts, stream)
    trained.train(facts, stream, 0)
    for mine, theirs in zip(trained._predictor_tables(), simulated._predictor_tables(), strict=True):
        assert np.array_equal(mine, theirs)
    assert trained._longs[layout.S_HISTORY] == simulated._longs[layout.S_HISTORY]
    nothing = InOrderCore(config, 1)
    before = [table.copy() for table in nothing._predictor_tables()]
    nothing.train(facts, stream, len(stream) + 1)
    assert all(np.array_equal(a, b) for a, b in zip(before, nothing._predictor_tables(), strict=True))
