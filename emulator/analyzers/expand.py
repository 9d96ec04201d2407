"""From the record to events: tables of what is selected in each block, and batches of columns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.analyzers.selection import FIELDS, Selection, has_values
from emulator.events import VALUE_FIELDS, BlockFacts, OpClass, Ranges, TraceSelection
from emulator.isa.decode import decode
from emulator.isa.table import TABLE

ROOM = 1 << 14  # events in a batch: their columns stay in the host's caches


class Batch:
    """Events in execution order, in columns that are valid until the call with them returns.

    Attributes are the fields that were selected, each ``(n,)``: ``pc``, ``word``, ``address`` uint32; ``opcode``
    uint16, rows of `emulator.isa.table.TABLE`; ``op_class`` (field ``class``) and ``taken`` uint8; the rest uint64.
    A field that an instruction has not is 0. ``columns``: all of them in the order of `FIELDS`.
    """

    def __init__(self, columns: dict[str, NDArray[Any]], n: int) -> None:
        self.columns = columns
        self._n = n

    def __len__(self) -> int:
        return self._n

    def __getattr__(self, name: str) -> NDArray[Any]:
        try:
            return self.columns["class" if name == "op_class" else name]
        except KeyError:
            raise AttributeError(f"field {name!r} is not selected, only {', '.join(self.columns)}") from None


class Expander:
    """Makes batches for one selection from records that were made with ``emitted``."""

    def __init__(self, selection: Selection, places: Ranges, emitted: TraceSelection) -> None:
        self._selection = selection
        self._places = places
        self._masks = np.array(
            [dict(emitted.values).get(row.mnemonic, 0) & has_values(row) for row in TABLE], np.uint8
        )
        self._has_addresses = emitted.addresses
        self._by_opcode = np.array([row.mnemonic in selection.mnemonics for row in TABLE])
        self._by_class = np.zeros(len(OpClass), np.bool_)
        self._by_class[[int(kind) for kind in selection.kinds()]] = True
        self._blocks = np.zeros((0, 4), np.int32)
        self._chosen = np.zeros((0, 4 + len(VALUE_FIELDS)), np.int32)
        self._opcodes = np.zeros(0, np.uint16)
        wants = set(selection.fields)
        self._wanted = np.array([n for n, name in enumerate(VALUE_FIELDS) if name in wants], np.int64)
        self._rows = np.zeros(ROOM if wants & {"word", "opcode", "class"} else 0, np.uint32)
        self._pcs = np.zeros(ROOM if "pc" in wants else 0, np.uint32)
        self._addresses = np.zeros(ROOM if "address" in wants else 0, np.uint32)
        self._taken = np.zeros(ROOM if "taken" in wants else 0, np.uint8)
        self._columns = np.zeros((len(self._wanted), ROOM), np.uint64)

    def batches(
        self, facts: BlockFacts, stream: NDArray[np.uint32], values: NDArray[np.uint64]
    ) -> Iterator[Batch]:
        """The selected events of a part of the record."""
        from emulator.analyzers.expand_kernel import expand

        if len(self._blocks) < facts.n_blocks:
            self._extend(facts)
        job = np.zeros(3, np.int64)
        while job[0] < len(stream):
            n = expand(
                stream, values, job, self._blocks, self._chosen, self._wanted, self._rows, self._pcs,
                self._addresses, self._taken, self._columns,
            )  # fmt: skip
            if n:
                yield self._batch(facts, n)

    def _batch(self, facts: BlockFacts, n: int) -> Batch:
        rows = self._rows[:n]
        found: dict[str, NDArray[Any]] = {}
        for name in FIELDS:
            if name not in self._selection.fields:
                continue
            if name == "word":
                found[name] = facts.instructions["word"][rows]
            elif name == "opcode":
                found[name] = self._opcodes[rows]
            elif name == "class":
                found[name] = facts.instructions["op_class"][rows]
            elif name in VALUE_FIELDS:
                found[name] = self._columns[self._wanted.tolist().index(VALUE_FIELDS.index(name)), :n]
            else:
                plain: dict[str, NDArray[Any]] = {
                    "pc": self._pcs,
                    "address": self._addresses,
                    "taken": self._taken,
                }
                found[name] = plain[name][:n]
        return Batch(found, n)

    def _extend(self, facts: BlockFacts) -> None:
        """Take in the blocks that came since the last time."""
        blocks = facts.blocks[len(self._blocks) :]
        begin = len(self._opcodes)
        new = facts.instructions[begin:]
        opcodes = opcodes_of(new["word"])
        selected = self._by_class[new["op_class"]] | self._by_opcode[opcodes]
        if self._places:
            inside = np.zeros(len(new), np.bool_)
            for low, high in self._places:
                inside |= (new["pc"] >= low) & (new["pc"] < high)
            selected &= inside
        first = blocks["first_instruction"].astype(np.int64) - begin
        length = blocks["n_instructions"].astype(np.int64)
        block_of = np.repeat(np.arange(len(blocks)), length)
        # Place of each instruction's address, and of its first value, in its block.
        accesses = new["access"] != 0
        address = _within(accesses.astype(np.int64), first, block_of) + 1
        masks = self._masks[opcodes]
        bits = (masks[:, None] >> np.arange(len(VALUE_FIELDS), dtype=np.uint8)) & 1
        n_values = bits.sum(axis=1, dtype=np.int64)
        value = _within(n_values, first, block_of)[:, None] + np.cumsum(bits, axis=1) - bits
        transfers = (new["op_class"] >= OpClass.BRANCH) & (new["op_class"] <= OpClass.INDIRECT_CALL)
        chosen = np.empty((int(selected.sum()), self._chosen.shape[1]), np.int32)
        chosen[:, 0] = np.flatnonzero(selected) + begin
        chosen[:, 1] = new["pc"][selected]
        chosen[:, 2] = np.where(accesses & self._has_addresses, address, -1)[selected]
        chosen[:, 3] = np.where(transfers, new["pc"] + new["length_bytes"], 0)[selected]
        chosen[:, 4:] = np.where(bits, value, -1)[selected]
        before = np.concatenate(([0], np.cumsum(selected)))
        table = np.empty((len(blocks), 4), np.int32)
        table[:, 0] = before[first] + len(self._chosen)
        table[:, 1] = before[first + length] - before[first]
        table[:, 2] = blocks["n_accesses"] if self._has_addresses else 0
        totals = np.concatenate(([0], np.cumsum(n_values)))
        table[:, 3] = totals[first + length] - totals[first]
        self._blocks = np.concatenate([self._blocks, table])
        self._chosen = np.concatenate([self._chosen, chosen])
        self._opcodes = np.concatenate([self._opcodes, opcodes])


def _within(
    amounts: NDArray[np.int64], first: NDArray[np.int64], block_of: NDArray[np.int64]
) -> NDArray[np.int64]:
    """For each instruction, the sum of the amounts of those before it in its block."""
    before = np.cumsum(amounts) - amounts
    return before - before[first][block_of]


def opcodes_of(words: NDArray[np.uint32]) -> NDArray[np.uint16]:
    """The rows of `emulator.isa.table.TABLE` of instruction words as they are in memory, (n,)."""
    unique, inverse = np.unique(words, return_inverse=True)
    return np.array([_opcode(int(word)) for word in unique], np.uint16)[inverse]


@cache
def _opcode(word: int) -> int:
    instruction = decode(word)
    if instruction is None:
        raise ValueError(f"{word:#x} is not an instruction")
    return instruction.row.index
