"""Background optimisation: a thread that builds ordered regions first, then a region around the hottest queued block.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from emulator.engine.codegen.compiler import Compiler
from emulator.engine.tiering.tiers import Region, Tier

# On a shared processor: seconds that the guest runs for each second of the thread.
FIRST_GUEST_SHARE = 2.0
LATER_GUEST_SHARE = 12.0
SHARED_ELAPSED = 1.4  # elapsed seconds per second of work from which the processor counts as shared
MEASURED_SECONDS = 0.05  # of work, before that ratio is trusted
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

    def _is_shared(self) -> bool:
        if self._used < MEASURED_SECONDS:
            return len(os.sched_getaffinity(0)) == 1
        return self._elapsed > SHARED_ELAPSED * self._used


class Background:
    """The queue of blocks to optimise, and the thread that works on it.

    ``form``: gives the region around the block at a pc; ``build``: compiles and publishes a region; ``executions``:
    executions of the blocks at some pcs, int64; ``hotness_threshold``: executions from which a block is optimised;
    ``compiler``: loaded when the thread starts.
    """

    def __init__(
        self,
        form: Callable[[Tier, int], Region],
        build: Callable[[Tier, Region], None],
        executions: Callable[[Sequence[int]], NDArray[np.int64]],
        hotness_threshold: int,
        compiler: Compiler,
    ) -> None:
        self._form, self._build, self._executions, self._hotness_threshold = form, build, executions, hotness_threshold
        self._compiler = compiler
        self.fair_share = FairShare()
        self._thread: threading.Thread | None = None
        self._queue: list[tuple[Tier, int]] = []  # guarded by the condition
        self._ordered: list[tuple[Tier, Region]] = []  # guarded by the condition
        self._underway: tuple[Tier, Region] | None = None
        self._is_forming = False  # `form` is running: a region will be under way in a moment
        self._n_orders = 0  # orders that are not built yet
        self._n_built = 0
        self._condition = threading.Condition()
        self._stopping = False
        self._failure: BaseException | None = None

    def enqueue(self, tier: Tier, pc: int) -> None:
        """Queue the block at ``pc``: it is optimised when it is the hottest and LLVM is loaded. Raises a failure of the
        thread."""
        self.check()
        with self._condition:
            self._queue.append((tier, pc))
            self._condition.notify()
        if self.has_llvm:
            self.start()

    def order(self, tier: Tier, region: Region) -> None:
        """Build ``region`` before any queued block."""
        with self._condition:
            self._ordered.append((tier, region))
            self._n_orders += 1
            self._condition.notify()
        self.start()

    def finish_one(self, seconds: float) -> None:
        """Wait up to ``seconds`` for the first region to be built, if there are orders and none is built yet."""
        with self._condition:
            self.fair_share.guest_has_ended = True
            self._condition.notify()
            self._condition.wait_for(
                lambda: self._n_built or not self._n_orders or self._failure is not None, seconds
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

    def queued(self, tier: Tier) -> list[int]:
        """The pcs of the blocks that are still queued for ``tier``."""
        return [pc for queued, pc in self._queue if queued is tier]

    def unfinished(self, tier: Tier) -> list[Region]:
        """The regions of ``tier`` that are ordered or under way."""
        underway = self._underway
        begun = [] if underway is None else [underway]
        return [region for ordered, region in (*begun, *self._ordered) if ordered is tier]

    @contextmanager
    def excluding(self, pcs: set[int]) -> Iterator[bool]:
        """A context in which no region is begun, and which takes the blocks at ``pcs`` from the queue. Gives whether an
        unfinished region might contain one of them: then the region under way is finished, and the queue is empty."""
        with self._condition:
            underway = [] if self._underway is None else [self._underway]
            regions = [region for _, region in (*self._ordered, *underway)]
            is_free = not self._is_forming and all(pcs.isdisjoint(region.pcs) for region in regions)
            if is_free:
                if self._queue:
                    self._queue = [(tier, pc) for tier, pc in self._queue if pc not in pcs]
                yield False
        if not is_free:
            self.stop()
            yield True

    def stop(self) -> None:
        """Wait for the compilation under way and empty the queue. Raises a failure of the thread."""
        if self._thread is not None:
            with self._condition:
                self._queue.clear()
                self._ordered.clear()
                self._n_orders = 0
                self._stopping = True
                self._condition.notify()
            self._thread.join()
            self._thread, self._stopping = None, False
        self.check()

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
                    while not (self._queue or self._ordered or self._stopping):
                        self._condition.wait()
                    if self._stopping:
                        return
                    hottest = None if self._ordered else self._hottest()
                    is_order = bool(self._ordered)
                    if is_order:
                        self._underway = self._ordered.pop(0)
                    elif hottest is None:
                        self._condition.wait(LOOK_AGAIN_SECONDS)
                        continue
                    self._is_forming = hottest is not None
                with self.fair_share.working():
                    if hottest is not None:
                        formed = hottest[0], self._form(*hottest)
                        with self._condition:
                            self._underway, self._is_forming = formed, False
                    assert self._underway is not None
                    self._build(*self._underway)
                    self._underway = None
                with self._condition:
                    self._n_orders -= is_order and self._n_orders > 0
                    self._n_built += 1
                    self._condition.notify_all()
        except BaseException as failure:  # reported by the next call from the machine's thread
            with self._condition:
                self._failure = failure
                self._condition.notify_all()

    def _hottest(self) -> tuple[Tier, int] | None:
        """Take the hottest block from the queue; None when none has reached the hotness threshold.

        Executions are counted while blocks wait, so this is where the guest spends its time now. A block that has
        meanwhile become part of a region stays queued, with the executions since then: control may never enter it from
        outside again.
        """
        self._queue = [(tier, pc) for tier, pc in self._queue if pc not in tier.optimised]
        if not self._queue:
            return None
        old_executions = [tier.published_executions.get(pc, 0) for tier, pc in self._queue]
        new_executions = self._executions([pc for _, pc in self._queue]) - old_executions
        most = int(new_executions.argmax())
        return self._queue.pop(most) if new_executions[most] >= self._hotness_threshold else None
