"""The life of a region: the translator takes every edge of the table, every other pair of state and event is refused,
and the indexes are what a naive model computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from emulator.engine.persist import translation_store
from emulator.engine.tiering import region_states
from emulator.engine.tiering.background import Background
from emulator.engine.tiering.region_formation import RegionFormer
from emulator.engine.tiering.region_states import (
    CLAIMING,
    ENDED,
    TRANSITIONS,
    Region,
    RegionEvent,
    RegionState,
    RegionStates,
    TransitionRefused,
)
from emulator.engine.translator import Translator
from emulator.execution import address_space
from emulator.execution.address_space import AddressSpace
from emulator.isa.decode import assemble
from emulator.machine import Machine
from instrumenter.building.program_build import build_program
from tests.fuzz.programs import CODE, elf

GUEST = Path(__file__).parents[1] / "guest"
Edge = tuple[RegionState, RegionEvent]
S, E = RegionState, RegionEvent


# --- the translator takes every edge
@pytest.fixture(scope="module")
def mixture() -> Path:
    return build_program([GUEST / "mixture.c"], ["-O2"], libraries=["-lm"]).elf_path


@pytest.fixture
def edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[set[Edge]]:
    """The edges taken in this test, whose translation store is empty."""
    monkeypatch.setattr(translation_store, "cache_directory", lambda: tmp_path)
    taken: set[Edge] = set()
    state_after = region_states._state_after

    def noted(region: Region, event: RegionEvent) -> RegionState:
        before = region.state
        after = state_after(region, event)
        taken.add((before, event))
        return after

    monkeypatch.setattr(region_states, "_state_after", noted)
    yield taken
    EDGES_TAKEN.update(taken)


EDGES_TAKEN: set[Edge] = set()


def changing_program(changes: int, rounds: int) -> bytes:
    """``changes`` times: a loop of ``rounds`` rounds, one of its instructions changed, and fence.i."""
    words = [
        assemble("lui", 8, imm=CODE), assemble("lui", 9, imm=1 << 20), assemble("addi", 5, 0, imm=changes),
        assemble("addi", 6, 0, imm=rounds),
        assemble("addi", 28, 0, imm=0), assemble("addi", 6, 6, imm=-1), assemble("bne", rs1=6, rs2=0, imm=-8),
        assemble("lw", 29, 8, imm=16), assemble("add", 29, 29, 9), assemble("sw", rs1=8, rs2=29, imm=16),
        assemble("fence.i"), assemble("addi", 5, 5, imm=-1), assemble("bne", rs1=5, rs2=0, imm=-36),
        assemble("addi", 10, 0, imm=7), assemble("addi", 17, 0, imm=94), assemble("ecall"),
    ]  # fmt: skip
    whole = bytearray(elf(b"".join(word.to_bytes(4, "little") for word in words), bytes(16)))
    whole[64 + 4] = 7  # the code may be written to
    return bytes(whole)


def finish(machine: Machine) -> None:
    assert machine.run().status in (0, 7)


@pytest.fixture
def no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiling thread does nothing, and no caller waits for it."""
    monkeypatch.setattr(Background, "_work", lambda self: None)
    monkeypatch.setattr(address_space, "MAX_WAIT_SECONDS", 0)


def test_compiled_at_once_and_changed(edges: set[Edge]) -> None:
    with Machine(changing_program(3, 10), background=False, optimise_executions=2) as machine:
        finish(machine)
    assert edges >= {
        (S.COLD, E.HOT), (S.QUEUED, E.TAKEN), (S.FORMING, E.CHOSEN), (S.COMPILING, E.PUBLISH),
        (S.PUBLISHED, E.CODE_CHANGED), (S.PUBLISHED, E.STOPPED),
    }  # fmt: skip


@pytest.mark.usefixtures("no_thread")
def test_queued_and_changed(edges: set[Edge]) -> None:
    with Machine(changing_program(3, 200), optimise_executions=2) as machine:
        finish(machine)
    assert (S.QUEUED, E.CODE_CHANGED) in edges
    assert (S.QUEUED, E.STOPPED) in edges
    assert (S.QUEUED, E.TAKEN) not in edges


@pytest.mark.usefixtures("no_thread")
def test_planned_and_changed(edges: set[Edge]) -> None:
    with Machine(changing_program(2, 2000), optimise_executions=2, keep_translations=True) as machine:
        machine.advance_to_instructions(3000)
        machine.save_translations()
        finish(machine)
    assert edges >= {(S.FORMING, E.LEFT), (S.PLANNED, E.CODE_CHANGED)}


@pytest.mark.usefixtures("no_thread")
def test_covered_by_another_region(mixture: Path, edges: set[Edge]) -> None:
    with Machine(mixture, ["1"], optimise_executions=2) as machine:
        finish(machine)
        background = machine.translator._background  # type: ignore[union-attr]
        while taken := background._hottest():
            background._finish(*taken)
    assert (S.QUEUED, E.COVERED) in edges
    assert (S.COMPILING, E.PUBLISH) in edges


def test_saved_by_one_process_and_used_by_the_next(
    mixture: Path, edges: set[Edge], monkeypatch: pytest.MonkeyPatch
) -> None:
    def process(**options: Any) -> set[Edge]:
        edges.clear()
        with Machine(mixture, ["1"], keep_translations=True, optimise_executions=2, **options) as machine:
            finish(machine)
            machine.save_translations()
        EDGES_TAKEN.update(edges)
        return edges

    with monkeypatch.context() as patch:
        patch.setattr(Background, "_work", lambda self: None)
        patch.setattr(address_space, "MAX_WAIT_SECONDS", 0)
        assert process() >= {(S.FORMING, E.LEFT), (S.PLANNED, E.STOPPED)}
        assert process() >= {(S.COLD, E.STORED), (S.PENDING, E.REVALIDATED), (S.ORDERED, E.STOPPED)}
    assert process(background=False) >= {(S.PENDING, E.REVALIDATED), (S.ORDERED, E.TAKEN), (S.COMPILING, E.PUBLISH)}
    assert (S.PENDING, E.PUBLISH) in process(background=False)
    with monkeypatch.context() as patch:
        patch.setattr(AddressSpace, "peek", lambda self, start, n_bytes: bytes(n_bytes))
        assert (S.PENDING, E.CODE_CHANGED) in process(background=False)


def test_pending_to_the_end(mixture: Path, edges: set[Edge], monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"keep_translations": True, "optimise_executions": 4, "background": False}
    with Machine(mixture, ["1"], **options) as machine:
        finish(machine)
        machine.save_translations()
    monkeypatch.setattr(AddressSpace, "peek", lambda self, start, n_bytes: None)
    with Machine(mixture, ["1"], **options) as machine:
        finish(machine)
    assert (S.PENDING, E.STOPPED) in edges


@pytest.mark.parametrize(
    ("owner", "name", "state"), [(RegionFormer, "form", S.FORMING), (Translator, "_compile", S.COMPILING)]
)
def test_failures(
    owner: type, name: str, state: RegionState, edges: set[Edge], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object, *others: object) -> None:
        raise RuntimeError("no more host memory")

    monkeypatch.setattr(owner, name, fail)
    with (
        pytest.raises(RuntimeError, match="no more host memory"),
        Machine(changing_program(1, 10), background=False, optimise_executions=2) as machine,
    ):
        machine.run()
    assert (state, E.FAIL) in edges


def test_code_is_unloaded_after_a_failure_of_the_compiling_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Translator] = []
    close, stop = Translator.close, Background.stop

    def stop_with_a_failure(background: Background) -> None:
        stop(background)
        raise RuntimeError("no more host memory")

    def record_and_close(translator: Translator) -> None:
        closed.append(translator)
        close(translator)

    monkeypatch.setattr(Background, "stop", stop_with_a_failure)
    monkeypatch.setattr(Translator, "close", record_and_close)
    with (
        pytest.raises(RuntimeError, match="no more host memory"),
        Machine(changing_program(1, 10), optimise_executions=2) as machine,
    ):
        machine.run()
    assert closed
    assert all(translator.block_table._kernel is None for translator in closed)  # closed after the failure


def test_every_edge_was_taken_above() -> None:
    """One process runs all tests of this file, in their order, as `--dist loadfile` in pyproject.toml has it."""
    if not EDGES_TAKEN:
        pytest.skip("the tests above were not selected")
    else:
        assert TRANSITIONS.keys() == EDGES_TAKEN


# --- every other pair is refused
def region_with(head: int, blocks: tuple[int, ...] = (), from_store: bool = False) -> Region:
    return Region(head, [head], blocks or (head,), from_store=from_store)


def paths() -> dict[RegionState, list[RegionEvent]]:
    """The shortest events that lead from COLD to each state."""
    found: dict[RegionState, list[RegionEvent]] = {S.COLD: []}
    work = [S.COLD]
    for state in work:
        for (before, event), after in TRANSITIONS.items():
            if before is state and after not in found:
                found[after] = [*found[state], event]
                work.append(after)
    return found


@pytest.mark.parametrize(("state", "event"), list(product(RegionState, RegionEvent)))
def test_only_what_is_in_the_table(state: RegionState, event: RegionEvent) -> None:
    states, region = RegionStates(), region_with(16)
    for one in paths()[state]:
        states.change(region, one)
    assert region.state is state
    after = TRANSITIONS.get((state, event))
    if after is None:
        with pytest.raises(TransitionRefused, match=f"region o10 is {state.name} .* got the event {event.name} "):
            states.change(region, event)
        assert region.state is state
    else:
        states.change(region, event)
        assert region.state is after
    assert states.having(*(one for one in RegionState if one not in ENDED)) == (
        [] if region.state in (*ENDED, S.COLD) else [region]
    )


def test_the_message_says_what_was_expected() -> None:
    states, region = RegionStates(), region_with(16)
    states.begin(region, E.HOT)
    with pytest.raises(TransitionRefused) as refused:
        states.change(region, E.PUBLISH)
    assert str(refused.value) == (
        "region o10 is QUEUED (its head is hot and waits in the queue) and got the event PUBLISH (its host code is "
        "entered in the dispatch table); expected one of: TAKEN, COVERED, CODE_CHANGED, STOPPED"
    )


def test_a_region_under_way_cannot_be_closed() -> None:
    states, region = RegionStates(), region_with(16)
    states.begin(region, E.HOT)
    assert states.take(region)
    assert not states.take(region)
    with pytest.raises(TransitionRefused):
        states.close()


# --- a naive model
class NaiveStates:
    """All that was ever changed, from which everything is computed anew."""

    def __init__(self) -> None:
        self.changes: list[tuple[Region, RegionState, RegionState]] = []

    def having(self, state: RegionState) -> list[Region]:
        now: dict[Region, RegionState] = {}
        for region, _, after in self.changes:
            now.pop(region, None)
            now[region] = after
        return [region for region, found in now.items() if found is state]

    def entries(self) -> set[int]:
        found: set[int] = set()
        for region, before, after in self.changes:
            if after in CLAIMING and before not in CLAIMING:
                found |= set(region.entries)
            if before in CLAIMING and after not in CLAIMING:
                found -= set(region.entries)
        return found

    def counts(self, states: frozenset[RegionState], blocks: Callable[[Region], set[int]]) -> dict[int, int]:
        found: Counter[int] = Counter()
        for state in states:
            for region in self.having(state):
                found.update(blocks(region))
        return dict(found)


class StatesMachine(RuleBasedStateMachine):
    """`RegionStates` and the naive model, under any sequence of events."""

    def __init__(self) -> None:
        super().__init__()
        self.states, self.naive = RegionStates(), NaiveStates()
        self.regions: list[Region] = []

    def _note(self, region: Region, before: RegionState) -> None:
        self.naive.changes.append((region, before, region.state))

    @rule(head=st.integers(0, 9), is_hot=st.booleans(), more=st.sets(st.integers(0, 9)), n=st.integers(0, 9))
    def begin(self, head: int, is_hot: bool, more: set[int], n: int) -> None:
        if is_hot and self.states.is_queued(head):
            return
        pcs = sorted({head} | more)
        region = Region(head, [head, *pcs[:n]], tuple(pcs), frozenset(more - {head}), from_store=not is_hot)
        self.regions.append(self.states.begin(region, E.HOT if is_hot else E.STORED))
        self._note(region, S.COLD)

    @rule(place=st.integers(0), event=st.sampled_from(RegionEvent))
    def change(self, place: int, event: RegionEvent) -> None:
        if not self.regions:
            return
        region = self.regions[place % len(self.regions)]
        before = region.state
        if (before, event) in TRANSITIONS:
            self.states.change(region, event)
            self._note(region, before)
            assert region.state is TRANSITIONS[before, event]
        else:
            with pytest.raises(TransitionRefused):
                self.states.change(region, event)
            assert region.state is before

    def _all(self, act: Callable[[], object]) -> set[Region]:
        """Do ``act``, which changes several regions; those that it changed."""
        before = {region: region.state for region in self.regions}
        act()
        changed = {region for region in self.regions if region.state is not before[region]}
        for region in self.regions:
            if region in changed:
                self._note(region, before[region])
        return changed

    @rule(pcs=st.sets(st.integers(0, 9), min_size=1))
    def invalidate(self, pcs: set[int]) -> None:
        expected = {region for region in self.naive.having(S.QUEUED) if region.head in pcs} | {
            region for state in (S.PUBLISHED, S.PLANNED) for region in self.naive.having(state) if pcs & {*region.pcs}
        }
        published = [region for region in self.naive.having(S.PUBLISHED) if region in expected]
        told: list[Region] = []
        assert self._all(lambda: told.extend(self.states.invalidate(pcs))) == expected
        assert told == published
        assert all(region.state is S.INVALIDATED for region in expected)

    @rule()
    def drop_covered(self) -> None:
        expected = {region for region in self.naive.having(S.QUEUED) if region.head in self.naive.entries()}
        assert self._all(self.states.drop_covered) == expected

    @rule()
    def stop(self) -> None:
        expected = {*self.naive.having(S.QUEUED), *self.naive.having(S.ORDERED)}
        assert self._all(self.states.stop) == expected

    @rule()
    def close(self) -> None:
        if not self.states.has_any(S.FORMING, S.COMPILING):
            published = self.naive.having(S.PUBLISHED)
            told: list[Region] = []
            self._all(lambda: told.extend(self.states.close()))
            assert told == published
            assert all(region.state in ENDED for region in self.regions)

    @invariant()
    def the_queries_agree(self) -> None:
        states, naive = self.states, self.naive
        for state in RegionState:
            if state not in ENDED:
                assert states.having(state) == naive.having(state)
                assert states.has_any(state) == bool(naive.having(state))
        queued = {region.head for region in naive.having(S.QUEUED)}
        assert {pc for pc in range(10) if states.is_queued(pc)} == queued
        assert states.entries == naive.entries()
        copies = {pc: n for pc, n in states.copies.items() if n}
        assert copies == naive.counts(CLAIMING, lambda region: region.own_pcs)
        published = naive.counts(frozenset({S.PUBLISHED}), lambda region: {*region.pcs})
        assert dict(states.in_published) == published


TestStates = StatesMachine.TestCase
TestStates.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
