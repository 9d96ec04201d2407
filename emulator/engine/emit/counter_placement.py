"""Where a region counts the executions of its blocks: on few of its branches, from which all executions follow.

A counter in every block costs a load, an addition and a store each. Knuth and Stevenson (1973), and Ball and Larus
(1994, "Optimally profiling and tracing programs"), count on the edges of the control-flow graph that are not in a
spanning tree: flow is conserved, so these tell the rest. The tree takes the edges that are probably the most frequent.

Here no equations are left to solve. Each block gets a *debt*, how many executions of which blocks are not counted yet
where it begins; debts are chosen such that nothing is to be counted along the tree. Along any other edge, the debt
after the block minus the debt that its successor begins with is counted by one counter, which stands for that many
executions of each of these blocks (`CounterPlacement.sums`; negative where they were counted before). Outside of the
region nothing is owed: what is left is counted where control leaves, and entries begin without a debt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from emulator.engine.blocks import Block
from emulator.engine.emit.indirect_targets import IndirectTargets

Debt = Mapping[int, int]  # executions that are not counted yet, by pc of the block
Sum = tuple[tuple[int, int], ...]  # executions that a counter stands for: pc of the block, times

MAX_BLOCKS_OF_DEBT = 48
"""A longer debt is paid at once: every counter that is not 0 is added up at the end of an interval."""
MAX_COUNTED_TARGETS = 3  # of a computed jump
COPIES_OF_SHORT_LOOP, MAX_INSTRUCTIONS_OF_SHORT_LOOP = 4, 16
"""A loop is short if it is one block of at most so many instructions."""
_OUTSIDE = 0  # the node of entries and of everything outside; no block is there
_SWEEPS = 16  # over the blocks, to estimate their frequencies
_ONE = 1 << 10  # the frequency of an entry
# Parts of a thousand of a block's executions that take an edge.
_LEAVES, _REPEATS, _FALLS_THROUGH = 20, 880, 600
_NOTHING: Debt = {}


class CounterPlacement:
    """Places counters in the region of ``blocks`` (by pc), entered at ``entries``; ``successors``: inside the region;
    ``indirect_targets``: targets of computed jumps among them.

    ``sums``: for each counter, by number, what it stands for. It depends on nothing but the arguments.
    """

    def __init__(
        self,
        blocks: Mapping[int, Block],
        entries: Iterable[int],
        successors: Mapping[int, Sequence[int]],
        indirect_targets: IndirectTargets,
    ) -> None:
        self._blocks, self._successors = blocks, successors
        many = {pc: targets for pc, targets in indirect_targets.items() if len(targets) > MAX_COUNTED_TARGETS}
        self._paying = frozenset(many)
        # Blocks that begin without a debt.
        self._entries = frozenset(entries).union(*many.values())
        self._numbers: dict[tuple[Sum, int], int] = {}  # by what they stand for, and the copy of the block
        self._debts: dict[int, Debt] = dict.fromkeys(self._entries, _NOTHING)
        self._owe_along(self._tree())

    @property
    def sums(self) -> list[Sum]:
        return [one for one, _ in self._numbers]

    def before(self, pc: int) -> Debt:
        """The debt where the block at ``pc`` begins."""
        return self._debts.get(pc, _NOTHING)

    def after(self, pc: int) -> Debt:
        """The debt where the block at ``pc`` ends, and within it."""
        before = self.before(pc)
        return {**before, pc: before.get(pc, 0) + 1}

    def at_start(self, pc: int) -> int | None:
        """The counter for control that leaves where the block at ``pc`` begins; None where nothing is owed."""
        return self._number(self.before(pc))

    def at_exit(self, pc: int) -> int | None:
        """The counter for control that leaves the region after the block at ``pc``."""
        return self._number(self.after(pc))

    def pays_before_jump(self, pc: int) -> bool:
        """Whether what is owed after the block at ``pc`` is counted, by `at_exit`, before the computed jump that ends
        it: counters on its many branches would be as many pieces of code."""
        return pc in self._paying

    def copies(self, pc: int) -> int:
        """How many copies of the block at ``pc`` the region needs, each with a counter of its own for the branch to
        the next copy; 1 but for a short loop.

        An increment of a word waits for the last one, whose result comes through memory: 5 cycles or more on many
        processors, in which they could execute a short loop several times.
        """
        is_short_loop = (
            pc in self._successors[pc] and len(self._blocks[pc].instructions) <= MAX_INSTRUCTIONS_OF_SHORT_LOOP
        )
        return COPIES_OF_SHORT_LOOP if is_short_loop and self.on_branch(pc, pc) is not None else 1

    def on_branch(self, pc: int, successor: int, copy: int = 0) -> int | None:
        """The counter for control that goes from the block at ``pc`` to ``successor`` inside the region; ``copy``: to
        that copy of it."""
        owed = {} if self.pays_before_jump(pc) else dict(self.after(pc))
        for block, times in self.before(successor).items():
            owed[block] = owed.get(block, 0) - times
        return self._number(owed, copy)

    def _number(self, debt: Debt, copy: int = 0) -> int | None:
        """The counter that pays ``debt``, on the way to a copy of a block."""
        key = tuple(sorted((pc, times) for pc, times in debt.items() if times))
        return self._numbers.setdefault((key, copy), len(self._numbers)) if key else None

    # --- debts
    def _owe_along(self, tree: Mapping[int, list[tuple[int, int]]]) -> None:
        """Choose debts such that along ``tree`` nothing is to be counted. ``tree``: by node, the edges there, as the
        block and its successor (`_OUTSIDE` for an exit)."""
        work = [_OUTSIDE]
        seen: set[tuple[int, int]] = set()
        while work:
            for source, target in tree[work.pop()]:
                if (source, target) in seen:
                    continue
                seen.add((source, target))
                if target in self._blocks and target not in self._debts:
                    self._owe(target, self.after(source))
                    work.append(target)
                elif source not in self._debts:
                    debt = dict(self.before(target))
                    debt[source] = debt.get(source, 0) - 1
                    self._owe(source, debt)
                    work.append(source)

    def _owe(self, pc: int, debt: Debt) -> None:
        debt = {block: times for block, times in debt.items() if times}
        self._debts[pc] = debt if len(debt) <= MAX_BLOCKS_OF_DEBT else _NOTHING

    def _tree(self) -> dict[int, list[tuple[int, int]]]:
        """A spanning tree of probably frequent edges, by node. All entries and the outside are one node."""
        edges = self._edges()
        groups = {_OUTSIDE: _OUTSIDE, **{pc: pc for pc in self._blocks}}
        tree: dict[int, list[tuple[int, int]]] = {node: [] for node in groups}

        def group(node: int) -> int:
            while groups[node] != node:
                groups[node] = node = groups[groups[node]]
            return node

        for _, source, target in sorted(edges, key=lambda edge: (-edge[0], edge[1:])):
            ends = [_OUTSIDE if pc in self._entries else pc for pc in (source, target)]
            first, second = map(group, ends)
            if first != second:
                groups[first] = second
                for node in ends:
                    tree[node].append((source, target))
        return tree

    # --- frequencies, in whole numbers: the same on every host
    def _edges(self) -> list[tuple[int, int, int]]:
        """The edges of the region and its exits: estimated frequency, block, successor."""
        parts = {pc: self._parts(block) for pc, block in self._blocks.items()}
        frequency = {pc: _ONE if pc in self._entries else 0 for pc in self._blocks}
        order = sorted(self._blocks)
        for _ in range(_SWEEPS):
            arriving = {pc: _ONE if pc in self._entries else 0 for pc in order}
            for pc in order:
                now = max(frequency[pc], arriving[pc])
                for successor, part in parts[pc]:
                    if successor != _OUTSIDE:
                        arriving[successor] += now * part // 1000
            frequency = arriving
        n_before: dict[int, int] = {}
        for leaving in parts.values():
            for successor, _ in leaving:
                n_before[successor] = n_before.get(successor, 0) + 1
        edges = []
        for pc, leaving in parts.items():
            for successor, part in leaving:
                often = frequency[pc] * part
                if len(leaving) > 1 and n_before[successor] > 1 and successor != _OUTSIDE:
                    often += often >> 2  # a counter there takes a block of its own, with a jump
                edges.append((often, pc, successor))
        return edges

    def _parts(self, block: Block) -> list[tuple[int, int]]:
        """Where control goes after ``block``, each with its part of a thousand executions."""
        if self.pays_before_jump(block.pc):
            return [(_OUTSIDE, 1000)]
        inside = list(dict.fromkeys(self._successors[block.pc]))
        may_leave = block.slow or (
            block.transfers
            and (block.target_pc is None or (block.last.row.mnemonic.startswith("b") and len(inside) < 2))
        )
        if not inside:
            return [(_OUTSIDE, 1000)]
        left = [(_OUTSIDE, _LEAVES)] if may_leave else []
        rest = 1000 - (_LEAVES if may_leave else 0)
        if len(inside) != 2 or block.target_pc is None:
            return left + [(pc, rest // len(inside)) for pc in inside]
        taken, falls = inside
        part = _REPEATS if taken <= block.pc else rest - _FALLS_THROUGH
        return [*left, (taken, part), (falls, rest - part)]
