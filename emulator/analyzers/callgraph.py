"""Call graph: calls and inclusive instructions of each function and each caller-callee pair.

A shadow stack follows the calls and returns: a call pushes a frame; a return to the return address of a frame pops
down to it. One to an address that no frame returns to, as by longjmp or an exception, goes on in a function that is
active, and pops the frames above its innermost one. A jump to the entry of another function is a tail call, which
returns with its caller. In a recursion only the outermost call counts.

Each task has its own stack, and time of its own; that of a new process is its parent's when it gets the hart, which is
soon right. A signal handler is called by the function that it interrupts. A program that a process executes begins with
an empty stack, and its functions have its name behind theirs: ``main [ls]``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from common.cplusplus_symbols import readable_names
from emulator.analyzers.analyzer import Analyzer
from emulator.analyzers.callgraph_kernel import (
    DEPTH,
    LAST,
    MAX_DEPTH,
    MAX_EDGES,
    SINCE,
    call_handler,
    transfer,
    unwind,
    walk,
)
from emulator.errors import EmulatorError
from emulator.events import FIRST_PROGRAM, BlockFacts
from emulator.linux.kernel.scheduler import Scheduler

_MOST_CALLERS = 4  # of a function, in the report


class _Task:
    """The stack of calls of one task; see `emulator.analyzers.callgraph_kernel`."""

    def __init__(self) -> None:
        self.job = np.array([0, 0, -1], np.int64)
        self.stack = np.zeros((MAX_DEPTH, 5), np.int64)  # of which only pages that are used take memory
        self.active = np.zeros(0, np.int64)
        self.program = -1  # of the last block

    def copy(self) -> _Task:
        """That of a process that this task has started: the same functions are active, from now on."""
        made = _Task()
        depth = int(self.job[DEPTH])
        made.job[DEPTH] = depth
        made.stack[:depth] = self.stack[:depth]
        made.stack[:depth, SINCE] = 0
        made.active = self.active.copy()
        made.program = self.program
        return made


def _too_many_pairs() -> EmulatorError:
    return EmulatorError(f"callgraph: more than {MAX_EDGES} pairs of caller and callee")


class CallGraph(Analyzer):
    """Calls and inclusive instructions of each function and of each of its callers; the ``top`` functions."""

    def __init__(self, top: int = 30) -> None:
        self.top = top
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._blocks = np.zeros((0, 6), np.int64)
        self._tasks: dict[int, _Task] = {}
        self._edges = np.zeros((MAX_EDGES, 3), np.int64)
        self._inclusive = self._own = np.zeros(0, np.int64)

    def begin(self) -> None:
        self._tid = self.machine.kernel.scheduler.current.tid
        self._task = self._tasks[self._tid] = _Task()

    def consume_blocks(self, facts: BlockFacts, blocks: NDArray[np.uint32]) -> None:
        self._add_blocks(facts)
        task = self._task
        programs = facts.blocks["program"][blocks].astype(np.int64)
        begins = np.flatnonzero(np.diff(programs, prepend=task.program))  # of another program
        for part in np.split(blocks, begins):
            if len(part) and (program := int(facts.blocks["program"][part[0]])) != task.program:
                self._unwind(task)
                task.job[LAST], task.program = -1, program
            if not walk(task.job, task.stack, self._blocks, task.active, self._edges, self._inclusive, part):
                raise _too_many_pairs()
        np.add.at(self._own, self._blocks[blocks, 4], self._blocks[blocks, 2])

    def interrupted(self, pc: int) -> None:
        kernel, hart, task = self.machine.kernel, self.machine.hart, self._task
        thread = kernel.scheduler.thread(self._tid)
        program = task.program if thread is None else self.machine.program_of(thread.process)
        function, is_entry = self._function(pc, max(program, FIRST_PROGRAM))
        handler, _ = self._function(hart.pc, self.machine.program_of(kernel.process))
        self._grow()
        fits = task.job[LAST] < 0 or transfer(
            task.job, task.stack, self._blocks, task.active, self._edges, self._inclusive, pc, function, is_entry
        )
        task.job[LAST] = -1
        if kernel.scheduler.current.tid != self._tid:
            self._switch(kernel.scheduler)
        elif hart.pc != pc and int(hart.x[1]) == kernel.process.program.trampoline:
            returns_to = kernel.process.program.trampoline
            fits &= call_handler(task.job, task.stack, task.active, self._edges, function, handler, returns_to)
        if not fits:
            raise _too_many_pairs()

    def _switch(self, scheduler: Scheduler) -> None:
        """Go on with the stack of the task that has the hart."""
        if scheduler.thread(self._tid) is None:
            self._unwind(self._tasks.pop(self._tid))
        current = scheduler.current
        self._tid = current.tid
        if self._tid not in self._tasks:
            parent, is_first = current.process.parent, current is current.process.threads[0]
            forked = parent is not None and parent.threads and is_first and not current.process.has_executed
            before = self._tasks.get(parent.threads[0].tid) if forked and parent is not None else None
            self._tasks[self._tid] = before.copy() if before is not None else _Task()
        self._task = self._tasks[self._tid]
        self._grow()

    def _add_blocks(self, facts: BlockFacts) -> None:
        """Add the blocks discovered since the last call to the tables."""
        new = facts.blocks[len(self._blocks) :]
        places = zip(new["pc"].tolist(), new["program"].tolist(), strict=True)
        functions = [self._function(pc, program) for pc, program in places]
        columns = [new[name] for name in ("pc", "end_pc", "n_instructions", "terminator")]
        more_blocks = np.column_stack([*columns, np.array(functions, np.int64).reshape(-1, 2)])
        self._blocks = np.concatenate([self._blocks, more_blocks.astype(np.int64)])
        self._grow()

    def _function(self, pc: int, program: int) -> tuple[int, bool]:
        """The number of the function of ``program`` at ``pc``, and whether it begins there."""
        function = self.session.objects.function_at(pc, program)
        number = self._numbers.setdefault(self.session.objects.name_of(pc, program), len(self._numbers))
        return number, function is not None and function.address == pc

    def _grow(self) -> None:
        """Make room for all functions that have a number."""
        self.names = list(self._numbers)
        more = np.zeros(len(self.names) - len(self._own), np.int64)
        self._own, self._inclusive = np.append(self._own, more), np.append(self._inclusive, more)
        task = self._task
        task.active = np.append(task.active, np.zeros(len(self.names) - len(task.active), np.int64))

    def _unwind(self, task: _Task) -> None:
        unwind(task.job, task.stack, task.active, self._edges, self._inclusive, 0)

    def end(self) -> None:
        for task in self._tasks.values():
            self._unwind(task)

    @property
    def functions(self) -> dict[str, tuple[int, int, int]]:
        """Calls, inclusive and own instructions of each function, by name."""
        calls = np.zeros(len(self.names), np.int64)
        for _, callee, count, _ in self._pairs():
            calls[callee] += count
        rows = np.column_stack([calls, np.maximum(self._inclusive, self._own), self._own]).tolist()
        return {name: (row[0], row[1], row[2]) for name, row in zip(self.names, rows, strict=True)}

    @property
    def edges(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Calls and inclusive instructions of each pair of caller and callee."""
        return {(self.names[a], self.names[b]): (calls, spent) for a, b, calls, spent in self._pairs()}

    def _pairs(self) -> list[tuple[int, int, int, int]]:
        used = self._edges[self._edges[:, 0] != 0].tolist()
        return [(key >> 32, (key & 0xFFFFFFFF) - 1, calls, spent) for key, calls, spent in used]

    def report(self) -> str:
        lines = [f"{'inclusive':>16}  {'own':>16}  {'calls':>12}  function <- callers"]
        functions, edges, shown = self.functions, self.edges, readable_names(self.names)
        for name in sorted(functions, key=lambda name: (-functions[name][1], name))[: self.top]:
            calls, inclusive, own = functions[name]
            found = {caller: count for (caller, callee), (count, _) in edges.items() if callee == name}
            # Of as many calls in the order of the names: blocks are found in another when translations are kept.
            callers = sorted(found, key=lambda caller: (-found[caller], shown[caller], caller))
            text = ", ".join(f"{shown[caller]} {found[caller]:,}" for caller in callers[:_MOST_CALLERS])
            if len(callers) > _MOST_CALLERS:
                text += f" and {len(callers) - _MOST_CALLERS} more"
            lines.append(f"{inclusive:>16,}  {own:>16,}  {calls:>12,}  {shown[name]}{' <- ' + text if text else ''}")
        return "\n".join(lines)
