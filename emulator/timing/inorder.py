"""In-order core: caches, TLBs, branch prediction and an in-order pipeline, driven by the block record.

Issue
    Instructions issue in program order, at most ``issue_width`` a cycle; a block of the record ends its issue
    group. An instruction waits for its operands, for an earlier write of its destination, and for its unit.
    Its result can be used ``latency_cycles`` after its issue; a load's after the hit latency of the L1 data
    cache plus ``load_use_cycles``.
Data misses
    A miss takes the L2 hit latency, plus the memory latency if it misses there too. With
    ``outstanding_misses`` = n > 0 it occupies one of n miss status holding registers (MSHRs), and the pipeline
    continues until the value is used; a further miss waits for a free MSHR, a hit on an outstanding line waits
    for that line. With 0 the pipeline stops. A TLB miss delays the access by the page walk.
Fetch
    The L1 instruction cache is accessed whenever the line differs from the one fetched last. A miss stops
    issue until the line arrives. A block is fetched before its data accesses are made.
Control transfers
    A misprediction costs ``mispredict_penalty_cycles``; a correctly predicted taken transfer costs the hit
    latency of the L1 instruction cache minus one, plus ``redirect_penalty_cycles`` if the BTB did not have its
    target. The predictors are in `emulator.timing.predictor_kernel`.

Left out: wrong-path fetches, bandwidth of caches and memory, data-dependent latencies, accesses that straddle
two lines (they count as one, to the first), prefetching, page-table lines in the caches, renaming (docs/method.md).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from emulator.events import FULL_RECORD, BlockFacts, TraceSelection
from emulator.timing import layout
from emulator.timing.core_arrays import build_core, class_timing, grow_tables
from emulator.timing.followed_caches import CacheContents, FollowedCaches, LineTables
from emulator.timing.inorder_kernel import decode, resolve_last, run, train_predictors
from emulator.timing.machine_config import MachineConfig
from emulator.timing.machine_events import N_EVENTS, N_STATIC, static_events
from emulator.timing.memory_kernel import pollute
from emulator.timing.online_predictor import HeldCounters, OnlinePredictor

_FOREIGN_LINES = 1 << 27  # number of different lines in the other address spaces
_MAX_TRANSFER_WORDS = 1 << 30  # per call, so that 32-bit execution counts cannot overflow


class InOrderCore:
    """An in-order core of a machine; consumes the record and counts events.

    ``seed`` determines page placement, random replacement, and a random initial state: same description, seed
    and record give the same counters to the bit, however the record is split into calls.
    ``initial_state``: "cold", or "random": other programs' lines and pages fill a random part of each cache
    and TLB, and the branch predictor was trained on their branches.
    """

    selection: TraceSelection = FULL_RECORD
    follows_tasks = True

    def __init__(
        self,
        config: MachineConfig,
        seed: int = 0,
        *,
        place_pages: bool = True,
        initial_state: Literal["cold", "random"] = "cold",
    ) -> None:
        self.config = config
        self._seed, self._place_pages = seed, place_pages
        self._timing = class_timing(config.functional_units)
        self._longs, self._words = build_core(config, seed, place_pages)
        self._ledger = layout.Ledger(
            static=np.zeros((0, N_STATIC), np.uint8),
            touched=np.zeros(0, np.uint32),
        )
        self._decoded_blocks = 0
        self._op_capacity = 0
        self._online_predictor: OnlinePredictor | None = None
        if initial_state == "random":
            self._fill(np.random.default_rng([seed, 1]))

    @property
    def counters(self) -> NDArray[np.int64]:
        """Events so far, ``(N_EVENTS,)`` indexed by `Event`; a live view, see `snapshot` for a copy."""
        return self._longs[layout.COUNTS : layout.COUNTS + N_EVENTS]

    @property
    def cycles(self) -> int:
        """The cycle after the last complete block has issued."""
        return int(self._longs[layout.S_CYCLE])

    def snapshot(self) -> NDArray[np.int64]:
        """Events so far, ``(N_EVENTS,)``, as a copy."""
        return self.counters.copy()

    def consume(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        """Simulate whole blocks in execution order; the control transfer of the last block is resolved when the next
        block arrives. Raises ValueError for too long a ``stream``."""
        self._leave()
        if facts.n_blocks > self._decoded_blocks:
            self._decode(facts)
        stream = np.require(stream, np.uint32, ["C", "A", "W"])
        if len(stream) > _MAX_TRANSFER_WORDS:
            raise ValueError(
                f"{len(stream)} words of the record in one call, expected at most {_MAX_TRANSFER_WORDS}: "
                "pass it in parts"
            )
        run(self._longs, self._words, self._ledger, stream)

    def interrupted(self, pc: int) -> None:
        """The last block went to ``pc``, where a signal handler or another task goes on: its control transfer has no
        other outcome by that. It takes no further time."""
        self._leave()
        resolve_last(self._longs, self._words, pc, 0)

    def predict_online(self, held: HeldCounters) -> None:
        """Let fast execution keep the counters of directions up to date through ``held``, of the `online_predictor` of
        the core: after each `follow`, until the core simulates again."""
        self._online_predictor = OnlinePredictor(held)

    def follow(self, pc: int | None = None) -> None:
        """Go on with what fast execution keeps up to date, if it does. ``pc``: where the guest goes on after blocks
        that the core has simulated; the transfer of the last is resolved, and counts with its block."""
        self._leave()
        if pc is not None:
            resolve_last(self._longs, self._words, pc, 1)
        if self._online_predictor is not None:
            self._online_predictor.follow(self._longs, self._predictor_tables()[0])

    def directions(self) -> tuple[NDArray[np.uint32], int]:
        """The counters of directions, as a copy, and the history, to go back to by `restore_directions`; fast execution
        goes on after `follow`."""
        self._leave()
        return self._predictor_tables()[0].copy(), int(self._longs[layout.S_HISTORY])

    def restore_directions(self, saved: tuple[NDArray[np.uint32], int]) -> None:
        """Go back to what the branch predictor had learnt; fast execution goes on after `follow`."""
        self._leave()
        self._predictor_tables()[0][:], self._longs[layout.S_HISTORY] = saved

    def _leave(self) -> None:
        """The core's state is about to change otherwise than by fast execution, or to move to larger arrays."""
        if self._online_predictor is not None:
            self._online_predictor.leave(self._longs, self._predictor_tables()[0])

    def followed_caches(self, tables: LineTables) -> FollowedCaches:
        """Caches like those of this core, empty, that follow a guest through ``tables``."""
        return FollowedCaches(self.config, tables, self._seed, self._place_pages)

    def adopt(self, contents: CacheContents) -> None:
        """Let caches and TLBs hold ``contents``, of a core of the same machine. Takes no time and counts no events."""
        contents.put(self._longs, self._words)
        self._longs[[layout.S_FETCH_LINE, layout.S_FETCH_PAGE, layout.S_DATA_PAGE]] = -1

    def train(self, facts: BlockFacts, stream: NDArray[np.uint32], skipped_words: int) -> None:
        """Train the branch predictor on whole blocks in execution order, as in `consume`, without those in the first
        ``skipped_words`` words. Counters of directions that fast execution keeps up to date learn nothing. Takes no
        time; mispredictions are counted."""
        self._leave()
        if facts.n_blocks > self._decoded_blocks:
            self._decode(facts)
        stream = np.require(stream, np.uint32, ["C", "A", "W"])
        if self._online_predictor is not None:
            self._online_predictor.follow(self._longs, self._predictor_tables()[0])
        train_predictors(self._longs, self._words, stream, skipped_words)
        self._leave()

    def disturb(self, seed: int, lines: int) -> None:
        """Bring ``lines`` random lines of another program into each cache, as an interrupt handler would.

        One page for each 16 lines enters each TLB; ``lines`` two-bit counters are set at random, as many BTB entries
        are invalidated, and the return-address stack is cleared. It takes no time.
        """
        if lines < 0:
            raise ValueError(f"an interrupt of {lines} lines, expected 0 or more")
        generator = np.random.default_rng([seed, 2])
        for cache in (layout.L1I, layout.L1D, layout.L2):
            self._pollute(cache, generator, lines)
        for cache in (layout.ITLB, layout.DTLB):
            self._pollute(cache, generator, -(-lines // 16))
        predictor = self.config.branch_predictor
        directions, targets, stack = self._predictor_tables()
        directions[generator.integers(len(directions), size=lines)] = generator.integers(4, size=lines)
        if predictor.btb_entries:
            targets[generator.integers(len(targets), size=lines)] = layout.NO_TARGET
        stack[:] = layout.NO_TARGET
        self._longs[[layout.S_FETCH_LINE, layout.S_FETCH_PAGE, layout.S_DATA_PAGE]] = -1

    def _decode(self, facts: BlockFacts) -> None:
        ledger, needed = self._ledger, facts.n_blocks
        if needed > len(ledger.touched) or facts.n_instructions > self._op_capacity:
            capacity = max(1024, 2 * needed)
            self._op_capacity = max(8192, 2 * facts.n_instructions)
            self._words = grow_tables(self._longs, self._words, capacity, self._op_capacity)
            static = np.zeros((capacity, N_STATIC), np.uint8)
            static[: len(ledger.static)] = ledger.static
            ledger = ledger._replace(static=static, touched=np.zeros(capacity, np.uint32))
        first = self._decoded_blocks
        ledger.static[first:needed] = static_events(facts, first, needed)
        decode(self._longs, self._words, self._timing, facts.blocks, facts.instructions, first)
        self._ledger = ledger
        self._decoded_blocks = needed

    def _predictor_tables(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]:
        """Views of the two-bit counters, the BTB ``(entries, 2)`` and the return-address stack."""
        predictor, words = self.config.branch_predictor, self._words
        start, targets, stack = (
            int(self._longs[index]) for index in (layout.P_DIRECTIONS, layout.P_BTB, layout.P_STACK)
        )
        return (
            words[start : start + predictor.entries],
            words[targets : targets + 2 * predictor.btb_entries].reshape(-1, 2),
            words[stack : stack + predictor.return_stack_entries],
        )

    def _pollute(self, cache: int, generator: np.random.Generator, lines: int) -> None:
        """Bring random lines (or pages) of other address spaces into a cache (or TLB)."""
        foreign = layout.FOREIGN_LINE + generator.integers(_FOREIGN_LINES, size=lines)
        pollute(self._longs, self._words, cache, foreign)

    def _fill(self, generator: np.random.Generator) -> None:
        for cache in (layout.L1I, layout.L1D, layout.L2, layout.ITLB, layout.DTLB):
            capacity = int(self._longs[cache + layout.M_WAYS] * (self._longs[cache + layout.M_SET_MASK] + 1))
            self._pollute(cache, generator, int(generator.integers(2 * capacity)))
        directions, _, _ = self._predictor_tables()
        directions[:] = generator.integers(4, size=len(directions))
        self._longs[layout.S_HISTORY] = generator.integers(self._longs[layout.P_HISTORY_MASK] + 1)
