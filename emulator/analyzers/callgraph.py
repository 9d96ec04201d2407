"""Call graph: calls and inclusive instructions of each function and each caller-callee pair.

A shadow stack follows the calls and returns: a call pushes a frame; a return to the return address of a frame pops
down to it. One to an address that no frame returns to, as by longjmp or an exception, goes on in a function that is
active, and pops the frames above its innermost one. A jump to the entry of another function is a tail call, which
returns with its caller. In a recursion only the outermost call counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from common.cplusplus_symbols import readable_names
from emulator.analyzers.analyzer import Analyzer
from emulator.analyzers.callgraph_kernel import MAX_DEPTH, MAX_EDGES, unwind, walk
from emulator.errors import EmulatorError
from emulator.events import BlockFacts

_MOST_CALLERS = 4  # of a function, in the report


class CallGraph(Analyzer):
    """Calls and inclusive instructions of each function and of each of its callers; the ``top`` functions."""

    def __init__(self, top: int = 30) -> None:
        self.top = top
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._blocks = np.zeros((0, 6), np.int64)
        self._job = np.array([0, 0, -1], np.int64)
        self._stack = np.zeros((MAX_DEPTH, 5), np.int64)
        self._edges = np.zeros((MAX_EDGES, 3), np.int64)
        self._active = self._inclusive = self._own = np.zeros(0, np.int64)

    def consume_blocks(self, facts: BlockFacts, blocks: NDArray[np.uint32]) -> None:
        self._add_blocks(facts)
        if not walk(self._job, self._stack, self._blocks, self._active, self._edges, self._inclusive, blocks):
            raise EmulatorError(f"callgraph: more than {MAX_EDGES} pairs of caller and callee")
        np.add.at(self._own, self._blocks[blocks, 4], self._blocks[blocks, 2])

    def _add_blocks(self, facts: BlockFacts) -> None:
        """Add the blocks discovered since the last call to the tables."""
        new = facts.blocks[len(self._blocks) :]
        functions = []
        for pc in new["pc"].tolist():
            function = self.session.objects.function_at(pc)
            number = self._numbers.setdefault(self.session.objects.name_of(pc), len(self._numbers))
            functions.append((number, function is not None and function.address == pc))
        columns = [new[name] for name in ("pc", "end_pc", "n_instructions", "terminator")]
        more_blocks = np.column_stack([*columns, np.array(functions, np.int64).reshape(-1, 2)])
        self._blocks = np.concatenate([self._blocks, more_blocks.astype(np.int64)])
        self.names = list(self._numbers)
        more = np.zeros(len(self.names) - len(self._own), np.int64)
        self._own, self._active = np.append(self._own, more), np.append(self._active, more)
        self._inclusive = np.append(self._inclusive, more)

    def end(self) -> None:
        unwind(self._job, self._stack, self._active, self._edges, self._inclusive, 0)

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
