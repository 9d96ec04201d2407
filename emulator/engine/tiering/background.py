"""Background optimisation: the thread that compiles regions while the guest runs, and its share of the processor."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from emulator.engine.tiering.region_states import Region, RegionEvent, RegionState
from emulator.engine.tiering.tiers import Tier
from emulator.native_code.compiler import Compiler

# On a shared processor: seconds that the guest runs for each second of the thread.
FIRST_GUEST_SHARE = 2.0
LATER_GUEST_SHARE = 12.0
SHARED_ELAPSED = 1.4  # elapsed seconds per second of work from which the processor counts as shared
MEASURED_SECONDS = 0.05  # of work, before that ratio is trusted
# LLVM takes 30 ms of the guest's thread to load, and slows it down while it works: a short run does without it. So
# does a run with translations of an earlier process, unless it spends long outside of them: optimised code saves half a
# nanosecond an instruction. Executions of the hottest block from which LLVM is loaded, over the hotness threshold:
LOADING_FACTOR = 6  # where the translation store has nothing
LOADING_AGAIN_FACTOR = 200  # where it has something
LOADING_ALONE_FACTOR = 1000  # the same on a single processor, where the guest waits for LLVM
LOOK_AGAIN_SECONDS = 0.01  # between two looks at queued blocks that were not hot enough
# The guest's thread returns to Python hundreds of times while this one writes IR, and this one returns from LLVM while
# the guest's is in Python: neither is to wait 5 ms for the interpreter lock each time.
SWITCH_SECONDS = 0.0002


class FairShare:
    """How much processor time the background thread may take from the guest.

    On a processor of its own: no limit. On a processor shared with the guest (its elapsed time is much longer than its
    work, or the process has only one processor): a part of the guest's time. The part is larger in the first process of
    a program (not ``has_stored_translations``), whose translations serve all later ones.
    """

    def __init__(self) -> None:
        self.has_stored_translations = False
        self.guest_has_ended = False
        self._elapsed = self._used = 0.0  # wall-clock and processor seconds of the thread while it worked

    @contextmanager
    def working(self) -> Iterator[None]:
        elapsed, used = time.perf_counter(), time.thread_time()
        yield
        self._elapsed += time.perf_counter() - elapsed
        self._used += time.thread_time() - used

    def owed_seconds(self) -> float:
        """How long the guest is to run before the thread goes on; called from the thread."""
        if self.guest_has_ended or not self._is_shared():
            return 0.0
        guest = time.process_time() - time.thread_time()
        return self._used * (FIRST_GUEST_SHARE if not self.has_stored_translations else LATER_GUEST_SHARE) - guest

    @property
    def loading_factor(self) -> int:
        """Hotness thresholds that a block must reach for LLVM to be loaded."""
        if not self.has_stored_translations:
            return LOADING_FACTOR
        return LOADING_ALONE_FACTOR if _is_alone() else LOADING_AGAIN_FACTOR

    def _is_shared(self) -> bool:
        if self._used < MEASURED_SECONDS:
            return _is_alone()
        return self._elapsed > SHARED_ELAPSED * self._used


class Background:
    """The thread that compiles regions: first those that are ordered, then the one around the hottest queued block.

    Which regions wait, and which one is being compiled, is in the `RegionStates` of their tiers. ``form``: chooses the
    blocks of a region; ``build``: compiles and publishes it; ``executions``: executions of the blocks at some pcs,
    int64; ``hotness_threshold``: executions from which a block is optimised; ``compiler``: loaded when the thread
    starts.
    """

    def __init__(
        self,
        form: Callable[[Tier, Region], None],
        build: Callable[[Tier, Region], None],
        executions: Callable[[Sequence[int]], NDArray[np.int64]],
        hotness_threshold: int,
        compiler: Compiler,
    ) -> None:
        self._form, self._build, self._executions, self._hotness_threshold = form, build, executions, hotness_threshold
        self._compiler = compiler
        self.fair_share = FairShare()
        self._thread: threading.Thread | None = None
        # Held when a region begins to wait, when the thread takes one, and while `excluding`.
        self._condition = threading.Condition()
        self._tiers: list[Tier] = []  # those with regions that wait or have waited
        self._has_built = False
        self._stopping = False
        self._failure: BaseException | None = None

    def enqueue(self, tier: Tier, pc: int) -> None:
        """Queue the block at ``pc``: it is optimised when it is the hottest and LLVM is loaded. Raises a failure of the
        thread."""
        self.check()
        with self._condition:
            self._serve(tier)
            self.fair_share.guest_has_ended = False
            if not tier.states.is_queued(pc):
                tier.states.begin(Region(pc), RegionEvent.HOT)
            self._condition.notify()
        if self.has_llvm:
            self.start()

    def order(self, tier: Tier, region: Region) -> None:
        """Compile ``region``, which an earlier process has planned, before any queued block, when the thread runs.

        The thread is not started for this: few of these regions are worth loading LLVM in a short process.
        """
        with self._condition:
            self._serve(tier)
            tier.states.change(region, RegionEvent.REVALIDATED)
            self._condition.notify()

    def _serve(self, tier: Tier) -> None:
        """Let the thread look at the regions of ``tier``, too."""
        if tier not in self._tiers:
            self._tiers.append(tier)

    def finish_one(self, seconds: float) -> None:
        """The guest has ended: wait up to ``seconds`` for the first region to be built, if the thread has orders and
        none is built yet. The thread begins no queued region any more: the process would end before it is built."""
        if self._thread is None:
            return
        with self._condition:
            self.fair_share.guest_has_ended = True
            self._condition.notify()
            self._condition.wait_for(
                lambda: self._has_built or not self.has_orders or self._failure is not None, seconds
            )

    @property
    def has_orders(self) -> bool:
        """Whether a region that was ordered is not built yet."""
        return any(
            region.from_store
            for tier in self._tiers
            for region in tier.states.having(RegionState.ORDERED, RegionState.COMPILING)
        )

    @property
    def has_llvm(self) -> bool:
        """Whether LLVM is loaded, or being loaded."""
        return self._thread is not None or self._compiler.has_llvm

    def start(self) -> None:
        """Start the thread, which loads LLVM first."""
        if self._thread is None:
            sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))
            self._thread = threading.Thread(target=self._work, name="translator", daemon=True)
            self._thread.start()
            # LLVM must not return into an interpreter that has ended: a script need not close its machines.
            atexit.register(self._stop_at_exit)

    @contextmanager
    def excluding(self, pcs: set[int]) -> Iterator[None]:
        """A context in which the thread works on no region with a block at ``pcs``, and begins none. If an unfinished
        region might contain one of them, the region under way is finished first, and the regions that wait are
        dropped."""
        with self._condition:
            unfinished = (RegionState.FORMING, RegionState.ORDERED, RegionState.COMPILING)
            is_free = all(
                region.state is not RegionState.FORMING and pcs.isdisjoint(region.pcs)
                for tier in self._tiers
                for region in tier.states.having(*unfinished)
            )
            if is_free:
                yield
        if not is_free:
            self.stop()
            yield

    def stop(self) -> None:
        """Wait for the region under way, and drop the regions that wait. Raises a failure of the thread."""
        if self._thread is not None:
            with self._condition:
                for tier in self._tiers:
                    tier.states.stop()
                self._stopping = True
                self._condition.notify()
            self._thread.join()
            self._thread, self._stopping = None, False
            atexit.unregister(self._stop_at_exit)
        self.check()

    def _stop_at_exit(self) -> None:
        with contextlib.suppress(BaseException):
            self.stop()

    def check(self) -> None:
        """Raise a failure of the thread."""
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        """The thread: load LLVM, then build regions until it is stopped."""
        try:
            with self.fair_share.working():
                self._compiler.load_llvm()
            while True:
                with self._condition:
                    while not self._stopping and (seconds := self.fair_share.owed_seconds()) > 0:
                        self._condition.wait(seconds)
                    while not (self._has_work() or self._stopping):
                        self._condition.wait()
                    if self._stopping:
                        return
                    taken = self._take_order() or self._hottest()
                    if taken is None:
                        self._condition.wait(LOOK_AGAIN_SECONDS)
                        continue
                with self.fair_share.working():
                    self._finish(*taken)
                with self._condition:
                    self._has_built = True
                    self._condition.notify_all()
        except BaseException as failure:  # reported by the next call from the machine's thread
            with self._condition:
                self._failure = failure
                self._condition.notify_all()

    def _has_work(self) -> bool:
        wanted = [RegionState.ORDERED] if self.fair_share.guest_has_ended else [RegionState.QUEUED, RegionState.ORDERED]
        return any(tier.states.has_any(*wanted) for tier in self._tiers)

    def _finish(self, tier: Tier, region: Region) -> None:
        """Build a region that the thread has taken."""
        with tier.states.working_on(region):
            if region.state is RegionState.FORMING:
                self._form(tier, region)
                tier.states.change(region, RegionEvent.CHOSEN)
            self._build(tier, region)

    def _take_order(self) -> tuple[Tier, Region] | None:
        """Take the region that was ordered first; None for none."""
        for tier in self._tiers:
            for region in tier.states.having(RegionState.ORDERED):
                if tier.states.take(region):
                    return tier, region
        return None

    def _hottest(self) -> tuple[Tier, Region] | None:
        """Take the region with the hottest head from the queue; None when none has reached the hotness threshold.

        Executions are counted while blocks wait, so this is where the guest spends its time now. A block that has
        meanwhile become part of a region stays queued, with the executions since then: control may never enter it from
        outside again. A block that has become an entry of a region is dropped.
        """
        for tier in self._tiers:
            tier.states.drop_covered()
        queued = [(tier, region) for tier in self._tiers for region in tier.states.having(RegionState.QUEUED)]
        if not queued:
            return None
        old_executions = [tier.published_executions.get(region.head, 0) for tier, region in queued]
        new_executions = self._executions([region.head for _, region in queued]) - old_executions
        most = int(new_executions.argmax())
        tier, region = queued[most]
        return queued[most] if new_executions[most] >= self._hotness_threshold and tier.states.take(region) else None


def _is_alone() -> bool:
    """Whether the process has a single processor."""
    return len(os.sched_getaffinity(0)) == 1
