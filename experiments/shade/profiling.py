"""What our translations are, what they cost, and where a run's time goes: Shade's Tables 2 to 4 for one run.

The caller gives it a cache that is empty, so that everything is translated. Expansion is weighted by executions, as in
the paper; they come from a second run, which counts blocks, so that counting is in none of the code looked at.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import emulator
from emulator.analyzers.analysis_session import Session
from emulator.engine.tiering.region_states import Region
from emulator.engine.tiering.tiers import Tier
from emulator.engine.translator import Translator
from emulator.events import TraceSelection
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from experiments.shade.levels import LEVELS

PLACES = ("translations", "translating", "delivery", "system calls", "Python")
_EMULATOR = str(Path(emulator.__file__).parent) + os.sep
# What runs while a function of such a file is the innermost of ours in Python; the first that fits.
_PLACE_OF = {
    "execution/translated_runner.py:_run_slice": "translations",
    "execution/intervals.py:run": "translations",
    "engine/oracle.py": "system calls",
    "engine/": "translating",
    "analyzers/": "delivery",
    "linux/": "system calls",
    "": "Python",
}
_SAMPLE_SECONDS = 0.002
_LOADING_INSTRUCTIONS = 5000


class Sampler:
    """Looks every 2 ms what the main thread is doing; ``seconds``: how long it was where, by `PLACES`."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PLACES, 0.0)
        self._main = threading.get_ident()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        before = time.perf_counter()
        while not self._stop.wait(_SAMPLE_SECONDS):
            place = place_of(sys._current_frames().get(self._main))
            # It comes late where the other thread does not let it in: time counts, not how often.
            now = time.perf_counter()
            self.seconds[place] += now - before
            before = now


def place_of(frame: FrameType | None) -> str:
    """Which of `PLACES` a thread is at whose innermost Python function is ``frame``."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_EMULATOR):
            inner = f"{name.removeprefix(_EMULATOR).replace(os.sep, '/')}:{frame.f_code.co_name}"
            return next(place for start, place in _PLACE_OF.items() if inner.startswith(start))
        frame = frame.f_back
    return "Python"


@dataclass
class TierCost:
    """What the translations of one tier took: of regions, blocks' instructions, processor time, and text's share."""

    regions: int = 0
    instructions: int = 0
    seconds: float = 0.0
    text_seconds: float = 0.0
    host_bytes: int = 0


@dataclass
class Watcher:
    """Stands around a translator's work and notes what it takes, by tier: templates, optimised."""

    costs: dict[str, TierCost] = field(default_factory=lambda: {"templates": TierCost(), "optimised": TierCost()})

    def watch(self, translator: Translator) -> None:
        compiling, writing = translator._compile, translator._text
        laying = translator.fallbacks.emit_templates
        of_thread = threading.local()

        def text(tier: Tier, region: Region, *rest: Any) -> str:
            start = time.thread_time()
            written = writing(tier, region, *rest)
            of_thread.seconds = time.thread_time() - start
            return written

        def compile_region(tier: Tier, region: Region) -> None:
            start = time.thread_time()
            compiling(tier, region)
            cost = self.costs["optimised"]
            cost.seconds += time.thread_time() - start
            cost.text_seconds += of_thread.seconds
            cost.regions += 1
            cost.instructions += sum(len(block.instructions) for block in region.blocks.values())
            cost.host_bytes += region.code_bytes

        def lay(tier: Tier) -> None:
            cost = self.costs["templates"]
            templates = tier.templates
            if templates is None:
                return
            laid, code_bytes = templates.n_emitted, templates.code_bytes
            start = time.thread_time()
            laying(tier)
            cost.seconds += time.thread_time() - start
            cost.regions += templates.n_emitted - laid
            cost.instructions += translator.block_table.n_instructions(laid + 1, templates.n_emitted + 1)
            cost.host_bytes += templates.code_bytes - code_bytes

        translator._compile = compile_region  # type: ignore[method-assign]  # a profiler times the real methods
        translator._text = text  # type: ignore[method-assign, assignment]
        translator.fallbacks.emit_templates = lay  # type: ignore[method-assign]


def profiled(level: int, program: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Everything that the tables tell of one run, for JSON."""
    load_kernels(level, program, arguments)
    watcher = Watcher()
    with Machine(program, arguments, files=VirtualFiles(stdout=1, stderr=2)) as machine:
        session = Session(machine, [LEVELS[level][1]()])
        translator = machine.translator
        assert translator is not None
        watcher.watch(translator)
        start, processor = time.perf_counter(), time.process_time()
        with Sampler() as sampler:
            ending = session.run()
            session.finish()
        seconds, processor = time.perf_counter() - start, time.process_time() - processor
        if ending is None or ending.status:
            raise SystemExit(f"{program}: it ended badly: {ending}")
        counts, block_instructions = block_executions(program, arguments)
        executed = executed_where(translator, counts)
        return {
            "instructions": machine.instructions,
            "seconds": seconds,
            "processor_seconds": processor,
            "places": sampler.seconds,
            "costs": {name: vars(cost) for name, cost in watcher.costs.items()},
            "block_instructions": block_instructions,
            **executed,
        }


def load_kernels(level: int, program: str, arguments: Sequence[str]) -> None:
    """Let numba load what delivers events, by a little of the program on the oracle: nothing is translated there."""
    with Machine(program, arguments, files=VirtualFiles(), engine="oracle") as machine:
        session = Session(machine, [LEVELS[level][1]()])
        session.run(_LOADING_INSTRUCTIONS)
        session.finish()


def block_executions(program: str, arguments: Sequence[str]) -> tuple[dict[int, int], float]:
    """Executions of each block by pc; the mean of their instructions, weighted by executions."""
    with Machine(program, arguments, consumers=(), files=VirtualFiles()) as machine:
        machine.observe(TraceSelection(counts=True))
        machine.run()
        blocks = machine.facts.blocks
        found: Counter[int] = Counter()
        for pc, n in zip(blocks["pc"].tolist(), machine.block_counts.tolist(), strict=True):
            found[pc] += n
        mean = float(machine.block_counts @ blocks["n_instructions"] / max(1, machine.block_counts.sum()))
        return dict(found), mean


def executed_where(translator: Translator, counts: dict[int, int]) -> dict[str, Any]:
    """The sizes of the code in force at the end, weighted by executions: ``guest_bytes``, ``host_bytes`` an execution
    of a block, on average; ``translated``: the share of instructions whose block has an optimised translation then."""
    owner: dict[int, Region] = {}
    for region in translator.tier.regions:
        owner.update(dict.fromkeys(region.blocks, region))
    sizes = {id(region): _expansion(region) for region in _each_once(owner)}
    total = translated = 0
    guest = host = executions = 0.0
    for pc, n in counts.items():
        block = translator.cache.get(pc)
        total += n * len(block.instructions)
        found = owner.get(pc)
        if found is not None:
            n_bytes = block.end_pc - block.pc
            translated += n * len(block.instructions)
            guest, host, executions = (
                guest + n * n_bytes,
                host + n * n_bytes * sizes[id(found)],
                executions + n,
            )
    return {
        "guest_bytes": guest / max(1.0, executions),
        "host_bytes": host / max(1.0, executions),
        "translated": translated / max(1, total),
    }


def _each_once(owner: dict[int, Region]) -> list[Region]:
    return list({id(region): region for region in owner.values()}.values())


def _expansion(region: Region) -> float:
    """Bytes of host code for a byte of the guest's in a region."""
    guest = np.array([block.end_pc - block.pc for block in region.blocks.values()])
    return float(region.code_bytes / max(1, int(guest.sum())))
