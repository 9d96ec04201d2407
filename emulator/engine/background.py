"""Optimising while the guest runs: a thread that builds the regions that are ordered, and then takes the hottest of the
wanted blocks, one after the other."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from emulator.engine.compiler import Compiler
from emulator.engine.tiers import Region, Tier

# Of a processor that it shares with the guest, the thread takes one part while the guest has so many.
FIRST_GUEST_SHARE = 2.0
LATER_GUEST_SHARE = 12.0
SHARED_ELAPSED = 1.4  # seconds that pass for one of work, from which on the processor is shared
MEASURED_SECONDS = 0.05  # of work, before that is known
LOOK_AGAIN_SECONDS = 0.01  # how soon at blocks that wait and were not worth it
# The guest's thread comes back hundreds of times while this one writes IR, and this one from LLVM while that one is in
# Python: neither is to wait for 5 ms each time.
SWITCH_SECONDS = 0.0002


class FairShare:
    """How much of a processor the thread may take from the guest.

    On a processor of its own, as much as it likes. Where it shares one with the guest, as its elapsed time tells, or
    may not have another, it is to take no more than a part of what the guest has had: a larger one in the first
    process of a program, ``has_begun_before`` not, whose translations serve all later ones.
    """

    def __init__(self) -> None:
        self.has_begun_before = False
        self.is_waited_for = False  # the guest has ended
        self._elapsed = self._used = 0.0  # seconds, of the thread while it worked

    @contextmanager
    def working(self) -> Iterator[None]:
        elapsed, used = time.perf_counter(), time.thread_time()
        yield
        self._elapsed += time.perf_counter() - elapsed
        self._used += time.thread_time() - used

    def owed_seconds(self) -> float:
        """How long the guest is to run before the thread, which asks, goes on."""
        if self.is_waited_for or not self._is_shared():
            return 0.0
        guest = time.process_time() - time.thread_time()
        return self._used * (FIRST_GUEST_SHARE if not self.has_begun_before else LATER_GUEST_SHARE) - guest

    def _is_shared(self) -> bool:
        if self._used < MEASURED_SECONDS:
            return len(os.sched_getaffinity(0)) == 1
        return self._elapsed > SHARED_ELAPSED * self._used


class Background:
    """``form``: what to translate with the block at an address; ``build``: does it, any time; ``executions``: of the
    blocks at some addresses, int64, which go on while they wait; ``enough``: executions that are worth it;
    ``compiler``: what it will need."""

    def __init__(
        self,
        form: Callable[[Tier, int], Region],
        build: Callable[[Tier, Region], None],
        executions: Callable[[Sequence[int]], NDArray[np.int64]],
        enough: int,
        compiler: Compiler,
    ) -> None:
        self._form, self._build, self._executions, self._enough = form, build, executions, enough
        self._compiler = compiler
        self.fair_share = FairShare()
        self._thread: threading.Thread | None = None
        self._wanted: list[tuple[Tier, int]] = []  # guarded by the condition
        self._ordered: list[tuple[Tier, Region]] = []  # the same
        self._underway: tuple[Tier, Region] | None = None
        self._is_forming = False  # a region is to be under way in a moment
        self._n_orders = 0  # that are not built yet
        self._n_built = 0
        self._condition = threading.Condition()
        self._stopping = False
        self._failure: BaseException | None = None

    def want(self, tier: Tier, pc: int) -> None:
        """Optimise the block at ``pc`` when it is the hottest, as soon as LLVM is loaded. Raises what has gone wrong
        meanwhile."""
        self.check()
        with self._condition:
            self._wanted.append((tier, pc))
            self._condition.notify()
        if self.has_llvm:
            self.start()

    def order(self, tier: Tier, region: Region) -> None:
        """Build ``region`` before anything that is wanted."""
        with self._condition:
            self._ordered.append((tier, region))
            self._n_orders += 1
            self._condition.notify()
        self.start()

    def finish_one(self, seconds: float) -> None:
        """Wait until something is built, for so long at most, if anything was ordered and nothing is built yet."""
        with self._condition:
            self.fair_share.is_waited_for = True
            self._condition.notify()
            self._condition.wait_for(
                lambda: self._n_built or not self._n_orders or self._failure is not None, seconds
            )

    @property
    def has_llvm(self) -> bool:
        """Whether LLVM is loaded, or being loaded."""
        return self._thread is not None or self._compiler.has_llvm

    def start(self) -> None:
        """Load LLVM if nobody has, and begin with what is wanted."""
        if self._thread is None:
            sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))
            self._thread = threading.Thread(target=self._work, name="translator", daemon=True)
            self._thread.start()

    def wanted(self, tier: Tier) -> list[int]:
        """The addresses that are still wanted."""
        return [pc for wanted, pc in self._wanted if wanted is tier]

    def unfinished(self, tier: Tier) -> list[Region]:
        """The regions that are ordered, or worked at."""
        underway = self._underway
        begun = [] if underway is None else [underway]
        return [region for ordered, region in (*begun, *self._ordered) if ordered is tier]

    @contextmanager
    def excluding(self, pcs: set[int]) -> Iterator[bool]:
        """Nothing is begun meanwhile, and the blocks at ``pcs`` are not wanted any more. Gives whether a region might
        have had one of them: then what was under way is finished, and nothing else is ordered or wanted any more."""
        with self._condition:
            underway = [] if self._underway is None else [self._underway]
            regions = [region for _, region in (*self._ordered, *underway)]
            is_free = not self._is_forming and all(pcs.isdisjoint(region.pcs) for region in regions)
            if is_free:
                if self._wanted:
                    self._wanted = [(tier, pc) for tier, pc in self._wanted if pc not in pcs]
                yield False
        if not is_free:
            self.stop()
            yield True

    def stop(self) -> None:
        """Wait for the compilation under way and drop what is wanted. Raises what has gone wrong."""
        if self._thread is not None:
            with self._condition:
                self._wanted.clear()
                self._ordered.clear()
                self._n_orders = 0
                self._stopping = True
                self._condition.notify()
            self._thread.join()
            self._thread, self._stopping = None, False
        self.check()

    def check(self) -> None:
        """Raise what has gone wrong in the thread."""
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        try:
            with self.fair_share.working():
                self._compiler.load_llvm()
            while True:
                with self._condition:
                    while not self._stopping and (seconds := self.fair_share.owed_seconds()) > 0:
                        self._condition.wait(seconds)
                    while not (self._wanted or self._ordered or self._stopping):
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
        """What is most worth to be optimised now, wanted no more; None when nothing is.

        Counts go on while blocks wait, so this is what the guest is busy with. A block that has meanwhile been
        translated with others waits on: control may never arrive there from outside again.
        """
        self._wanted = [(tier, pc) for tier, pc in self._wanted if pc not in tier.optimised]
        if not self._wanted:
            return None
        covered = [tier.covered.get(pc, 0) for tier, pc in self._wanted]
        heat = self._executions([pc for _, pc in self._wanted]) - covered
        most = int(heat.argmax())
        return self._wanted.pop(most) if heat[most] >= self._enough else None
