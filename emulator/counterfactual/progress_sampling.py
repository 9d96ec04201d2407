"""A sampler that cuts the trace by the program's progress: records end where given amounts of its own instructions are
done, however long that takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from emulator.counterfactual.core import CounterfactualCore
from emulator.machine import Machine
from emulator.pmu import Pmu
from emulator.sampling import Samples

_SHORTEST_STEP = 16  # instructions, where progress is rarer than instructions
_STEP_FRACTION = 0.35  # of the estimated way: progress may come in bursts


def sample_by_progress(
    machine: Machine,
    pmu: Pmu,
    core: CounterfactualCore,
    boundaries: Sequence[int],
    software: Mapping[str, int] | None = None,
    between: Callable[[int], None] | None = None,
) -> Samples:
    """Run ``machine`` to its end, with a boundary at the first block boundary at or after each progress.

    ``core``: the machine's core, whose `CounterfactualCore.progress` ``boundaries``, ascending, refer to; ``software``:
    guest addresses of 64-bit counters, by name; ``between(record)`` is called after each boundary.
    """
    software_totals = machine.counter_totals(list((software or {}).values()))
    rows: list[NDArray[np.int64]] = []
    counts: list[list[int]] = []
    cycles: list[int] = []
    instructions: list[int] = []
    for target in boundaries:
        machine.drain()
        while machine.ending is None and core.progress < target:
            machine.advance(_step(target - core.progress, core.progress, machine.instructions))
            machine.drain()
        if machine.ending is not None:
            break
        rows.append(pmu.read())
        counts.append(software_totals.read())
        cycles.append(machine.cycles)
        instructions.append(machine.timed_instructions)
        if between is not None:
            between(len(rows) - 1)
    machine.run()
    return Samples(
        np.array(cycles, np.int64),
        np.array(instructions, np.int64),
        np.diff(np.array(rows, np.int64).reshape(-1, len(pmu.metrics)), axis=0),
        np.diff(np.array(counts, np.int64).reshape(len(counts), len(software or {})), axis=0),
    )


def _step(remaining: int, progress: int, instructions: int) -> int:
    """Instructions of a step that hardly leads beyond ``remaining`` units of progress; progress is never faster than
    execution."""
    each = instructions / progress if progress else 1.0
    return max(remaining, min(_SHORTEST_STEP, int(remaining * each)), int(remaining * each * _STEP_FRACTION))
