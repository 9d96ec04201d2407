"""The kernels against their naive twin, on made-up machines, programs and records."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.events import BlockFacts
from emulator.timing import layout
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_config import MachineConfig
from emulator.timing.machine_events import Event, static_events
from tests.emulator.timing.timing_naive import NaiveCore, Seeded
from tests.emulator.timing.timing_programs import Execution, machines, programs, records, stream_of

CACHES = {"l1i": layout.L1I, "l1d": layout.L1D, "l2": layout.L2, "itlb": layout.ITLB, "dtlb": layout.DTLB}
SLOW = settings(max_examples=150, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


def seeded_by(core: InOrderCore) -> Seeded:
    """Page placement and generators of a core that has consumed nothing."""
    start = int(core._longs[layout.P_FRAMES])
    pages = (1 << 31) // core.config.memory.page_bytes
    return Seeded(
        frames=core._words[start : start + pages],
        generators={name: int(core._longs[cache + layout.M_RANDOM]) for name, cache in CACHES.items()},
    )


def expected_events(naive: NaiveCore, executions: list[Execution]) -> dict[str, int]:
    """Dynamic events of the twin, and static events added block by block."""
    counts = {event.name: naive.counts[event] for event in Event}
    counts["CYCLES"] = naive.cycle
    rows = static_events(naive.facts, 0, naive.facts.n_blocks).astype(int)
    for event in range(1, 25):
        counts[Event(event).name] = sum(int(rows[block, event - 1]) for block, _ in executions)
    return counts


def events_of(core: InOrderCore) -> dict[str, int]:
    return {event.name: int(core.counters[event]) for event in Event}


@SLOW
@given(st.data())
def test_core_equals_its_twin_however_the_record_is_cut(data: st.DataObject) -> None:
    config: MachineConfig = data.draw(machines())
    facts: BlockFacts = data.draw(programs())
    executions: list[Execution] = data.draw(records(facts))
    core = InOrderCore(config, seed=data.draw(st.integers(0, 5)))
    naive = NaiveCore(config, facts, seeded_by(core))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(executions)), max_size=6)) | {len(executions)})
    start = 0
    for cut in cuts:
        core.consume(facts, stream_of(executions[start:cut]))
        for block, addresses in executions[start:cut]:
            naive.execute(block, addresses)
        assert core.cycles == naive.cycle
        if data.draw(st.booleans()):  # as if the tables of pipeline states were nearly full
            core._longs[layout.S_STATES] = max(layout.MAX_STATES - 1, core._longs[layout.S_STATES])
        if data.draw(st.booleans()):
            core._longs[layout.S_TRANSITIONS] = layout.MAX_TRANSITIONS - 1
        start = cut
    assert events_of(core) == expected_events(naive, executions)
