"""From the record to events: tables of what is selected in each block, and batches of columns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.analyzers.selection import Selection, has_values
from emulator.events import VALUE_FIELDS, BlockFacts, OpClass, Ranges, TraceSelection
from emulator.isa.decode import decode
from emulator.isa.table import TABLE

ROOM = 1 << 16  # events in a batch, and a few: their columns stay in the host's caches


class Batch:
    """Events in execution order, in columns that are valid until the call with them returns.

    Attributes are the fields that were selected, each ``(n,)``: ``pc``, ``word``, ``address`` uint32; ``opcode``
    uint16, rows of `emulator.isa.table.TABLE`; ``op_class`` (field ``class``) and ``taken`` uint8; the rest uint64.
    A field that an instruction has not is 0. ``columns``: all of them, in the order of `selection.FIELDS`.
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
        from emulator.analyzers.expand_kernel import PLACES, SLACK

        self._selection = selection
        self._places = places
        self._masks = np.array(
            [dict(emitted.values).get(row.mnemonic, 0) & has_values(row) for row in TABLE], np.uint8
        )
        self._has_addresses = emitted.addresses
        self._by_opcode = np.array([row.mnemonic in selection.mnemonics for row in TABLE])
        self._by_class = np.zeros(len(OpClass), np.bool_)
        self._by_class[[int(kind) for kind in selection.kinds()]] = True
        wants = set(selection.fields)
        names = [*(name for name in VALUE_FIELDS if name in wants)]
        if "taken" in wants and "target" not in wants:
            names.append("target")
        self._values = {name: place for place, name in enumerate(names)}
        # Tables of blocks and of what is selected in them, which grow, and the columns that they are expanded to.
        self._blocks = np.zeros((0, PLACES + 2 + 2 * len(names)), np.uint32)
        self._chosen = [np.zeros(SLACK, np.uint32) for _ in range(3)]  # with slack at their ends
        self._recorded = np.zeros((0, 2), np.uint32)
        self._opcodes = np.zeros(0, np.uint16)
        room = ROOM + SLACK
        self._rows = np.zeros(room if wants & {"word", "opcode", "class"} else 0, np.uint32)
        self._pcs = np.zeros(room if "pc" in wants else 0, np.uint32)
        self._addresses = np.zeros(room if "address" in wants else 0, np.uint32)
        self._taken = np.zeros(room if "taken" in wants else 0, np.uint8)
        self._columns = np.zeros((len(names), room), np.uint64)

    def batches(
        self, facts: BlockFacts, stream: NDArray[np.uint32], values: NDArray[np.uint64]
    ) -> Iterator[Batch]:
        """The selected events of a part of the record."""
        from emulator.analyzers.expand_kernel import expand

        if len(self._blocks) < facts.n_blocks:
            self._extend(facts)
        job = np.zeros(2, np.int64)
        while job[0] < len(stream):
            n = expand(
                stream, values, job, self._blocks, tuple(self._chosen), self._recorded,
                (self._rows, self._pcs, self._addresses, self._taken), self._columns,
                self._values.get("target", -1), ROOM,
            )  # fmt: skip
            if n:
                yield self._batch(facts, n)

    def _batch(self, facts: BlockFacts, n: int) -> Batch:
        rows = self._rows[:n]
        found: dict[str, NDArray[Any]] = {}
        for name in self._selection.fields:
            if name == "word":
                found[name] = facts.instructions["word"][rows]
            elif name == "opcode":
                found[name] = self._opcodes[rows]
            elif name == "class":
                found[name] = facts.instructions["op_class"][rows]
            elif name in self._values:
                found[name] = self._columns[self._values[name], :n]
            elif name == "taken":
                found[name] = self._taken[:n]
            else:
                found[name] = (self._pcs if name == "pc" else self._addresses)[:n]
        return Batch(found, n)

    def _extend(self, facts: BlockFacts) -> None:
        """Take in the blocks that came since the last time."""
        from emulator.analyzers.expand_kernel import COUNT, FIRST, FOURS, PLACES, SLACK, VALUES, WORDS

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
        end = first + blocks["n_instructions"]
        block_of = np.repeat(np.arange(len(blocks)), blocks["n_instructions"])
        event = _within(selected.astype(np.int64), first, block_of)
        # Where in what the block recorded an instruction's address is, and its first value.
        accesses = new["access"] != 0
        address = _within(accesses.astype(np.int64), first, block_of) + 1
        bits = (self._masks[opcodes][:, None] >> np.arange(len(VALUE_FIELDS), dtype=np.uint8)) & 1
        n_values = bits.sum(axis=1, dtype=np.int64)
        value = _within(n_values, first, block_of)[:, None] + np.cumsum(bits, axis=1) - bits
        table = np.empty((len(blocks), self._blocks.shape[1]), np.uint32)
        before = _sums(selected)
        table[:, FIRST] = before[first] + len(self._chosen[0]) - SLACK
        table[:, COUNT] = before[end] - before[first]
        table[:, WORDS] = blocks["n_accesses"] if self._has_addresses else 0
        table[:, VALUES] = _sums(n_values)[end] - _sums(n_values)[first]
        lists = [(accesses & self._has_addresses, address)]
        lists += [(bits[:, n] != 0, value[:, n]) for n in map(VALUE_FIELDS.index, self._values)]
        parts = [self._recorded]
        for n, (has, word) in enumerate(lists):
            taken = selected & has
            n_taken = np.bincount(block_of[taken], minlength=len(blocks))
            # The list of a block with events is filled up, for addresses, with what does no harm.
            n_places = (
                np.where(table[:, COUNT] > 0, np.maximum(n_taken, 1) + FOURS - 1 & -FOURS, 0)
                if n == 0 and self._has_addresses
                else n_taken
            )
            offset = _sums(n_places)
            places = np.zeros((offset[-1], 2), np.uint32)
            places[:, 0] = np.repeat(table[:, COUNT], n_places)
            within = _within(taken.astype(np.int64), first, block_of)
            places[(offset[block_of] + within)[taken]] = np.column_stack([event[taken], word[taken]])
            offset += sum(map(len, parts))
            table[:, PLACES + 2 * n], table[:, PLACES + 2 * n + 1] = offset[:-1], offset[1:]
            parts.append(places)
        self._recorded = np.concatenate(parts)
        after = new["pc"] + new["length_bytes"]
        rows = np.arange(begin, begin + len(new), dtype=np.uint32)
        for n, column in enumerate((rows, new["pc"], after)):
            more = column[selected].astype(np.uint32)
            self._chosen[n] = np.concatenate([self._chosen[n][:-SLACK], more, np.zeros(SLACK, np.uint32)])
        self._blocks = np.concatenate([self._blocks, table])
        self._opcodes = np.concatenate([self._opcodes, opcodes])


def _sums(amounts: NDArray[Any]) -> NDArray[np.int64]:
    """Sums of the first 0, 1, 2 ... amounts."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(amounts, dtype=np.int64)])


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
