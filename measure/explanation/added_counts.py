"""What counters' instructions would change in the plain program, without what the compiler made otherwise.

No run shows it: the instrumented program has both. But most of what a counter's instructions add to a record is known
without one: an instruction, a load and a store an event. So this is added to the records of plain runs, whose events a
second run has counted. The cycles that these instructions take, and the misses that their accesses cause, are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from emulator.pmu import METRICS
from emulator.timing.machine_events import FIRST_DYNAMIC, FIRST_STATIC, N_STATIC, events_of_instruction
from measure.errors import MeasureError
from measure.explanation.paired_runs import PLAIN, PairedRuns, ProgramChoice
from measure.explanation.relations import Relations
from measure.program_code.counter_code import CounterCode, instruction_at, program_image
from measure.run_types import Run


def change_by_added_counts(
    paired: PairedRuns, choice: ProgramChoice, metrics: Sequence[str], relations: Relations
) -> NDArray[np.float64] | None:
    """The change of z, (n_pairs, n_relations), when what the counters of ``metrics`` execute in the program ``choice``
    is added to the plain runs. None where a second run cannot count them, with sampling by signals, and where the
    machine sees none of them."""
    seen = [metric for metric in metrics if metric not in choice.unseen]
    if not seen or paired.samples_by_signal(choice):
        return None
    counted = replace(choice, second_run=choice.metrics)
    try:
        made = paired.runs([counted, PLAIN])
        program = Path(paired.build(choice).elf_path)
        executed = {one: events_of_code(program, paired.code_as_built(choice, (one,))) for one in seen}
    except MeasureError:
        return None
    added = [with_counts(run, executed, paired.hardware) for run in made[counted]]
    return relations.values(added, made[PLAIN]) - relations.values(made[PLAIN], made[PLAIN])


def events_of_code(program: Path, code: CounterCode) -> NDArray[np.int64]:
    """Static events of all executions of ``code``, (N_STATIC,), as `static_events` has them."""
    image, found = program_image(program), np.zeros(N_STATIC, np.int64)
    for pc, executions in zip(code.instructions, code.executed, strict=True):
        one = instruction_at(image, pc)
        if one is not None:
            found += executions * events_of_instruction(one.op_class, one.row.access).astype(np.int64)
    return found


def with_counts(run: Run, executed: Mapping[str, NDArray[np.int64]], hardware: Sequence[str]) -> Run:
    """``run`` with the share of ``executed``, by software metric, that falls on each of its records by the metric's
    events, added to its ``hardware`` metrics."""
    trace = run.trace
    values = trace.values.astype(np.float64)
    for metric, events in executed.items():
        counts = trace.columns((metric,))[:, 0]
        if not counts.sum():
            continue
        for name in hardware:
            terms = [(event, factor) for event, factor in METRICS[name].terms if FIRST_STATIC <= event < FIRST_DYNAMIC]
            total = sum(factor * events[event - FIRST_STATIC] for event, factor in terms)
            values[:, trace.metrics.index(name)] += total / counts.sum() * counts
    return replace(run, trace=replace(trace, values=np.round(values).astype(np.int64)))
