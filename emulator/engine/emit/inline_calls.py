"""Emission of an instruction between the inline functions and columns that select it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emulator.engine.blocks import Block
from emulator.engine.emit.region_exits import RegionExits
from emulator.engine.instrument.columns import BlockColumns
from emulator.engine.instrument.inline_functions import Inline, address_of, emit_call
from emulator.events import InlineCall
from emulator.isa.decode import Instruction

V = Any


class InlineCallEmitter(RegionExits):
    """Emits instructions with their inline calls. ``_columns``: the region's columns, by place in the selection."""

    _columns: dict[int, BlockColumns]
    _place_in_block = 0  # of the current instruction

    def _begin_columns(
        self,
        block: Block,
        executed: Sequence[Instruction],
        inline: list[tuple[int, list[tuple[int, Inline]]]],
    ) -> None:
        """Begin the events of the columns that select some of the ``executed`` instructions."""
        for place, columns in self._columns.items():
            selected = {}
            for n, (instruction, (kind, calls)) in enumerate(zip(executed, inline, strict=False)):
                if any(number == place for number, _ in calls):
                    static = {
                        "pc": block.pcs[n],
                        "word": block.words[n],
                        "opcode": instruction.row.index,
                        "class": kind,
                    }
                    selected[n] = instruction, static
            columns.begin(selected)

    def _with_calls(self, kind: int, word: int, calls: list[tuple[int, Inline]]) -> None:
        """Emit the current instruction, of class ``kind``, between its inline calls."""
        row = self.instruction.row
        wanted = {name for _, call in calls for name in call.fields}
        known: dict[str, V] = {"pc": self._pc, "word": word, "opcode": row.index, "class": kind}
        known.update(self._operands(wanted))
        if self._make_calls(calls, False, known):
            known.update(self._operands(wanted))
        for columns in self._columns.values():
            columns.put(self._place_in_block, known, after=False)
        self.keeps_memory = bool("value" in wanted and row.access)
        self._execute()
        self.keeps_memory = False
        known["value"] = self.memory_value if row.access else 0
        if "rd" in wanted:
            has_rd = row.register_kinds[0] != "-"
            known["rd"] = self._register_value(row.register_kinds[0], self.instruction.rd) if has_rd else 0
        known["target"] = known["taken"] = 0
        if self._target is not None:
            if "target" in wanted:
                known["target"] = self._goes_to()
            if "taken" in wanted:
                known["taken"] = self._is_taken()
        for columns in self._columns.values():
            columns.put(self._place_in_block, known, after=True)
        self._make_calls(calls, True, known)

    def _operands(self, wanted: set[str]) -> dict[str, V]:
        """The fields in ``wanted`` that are known before the current instruction."""
        row, instruction = self.instruction.row, self.instruction
        numbers = {"rs1": instruction.rs1, "rs2": instruction.rs2, "rs3": instruction.rs3}
        found: dict[str, V] = {
            name: 0 if kind == "-" else self._register_value(kind, numbers[name])
            for name, kind in zip(numbers, row.register_kinds[1:], strict=True)
            if name in wanted
        }
        if "address" in wanted:
            found["address"] = address_of(self, row) if row.access else 0
        return found

    def _make_calls(self, calls: list[tuple[int, Inline]], after: bool, known: dict[str, V]) -> bool:
        """Emit the inline calls before or after the current instruction; returns whether registers may have changed."""
        changed = False
        for place, call in calls:
            if not isinstance(call, InlineCall) or call.after != after:
                continue
            changes = "registers" in call.fields
            if changes:
                self._flush()
            emit_call(self, place, call, known, direct=True)
            if changes:
                self._forget()
            changed |= changes
        return changed

    def _goes_to(self) -> V:
        """The address that the block's control transfer goes to."""
        if self._condition is None:
            return self._target
        return self.select(self._condition, self._target, self.next_pc())

    def _is_taken(self) -> V:
        """Whether the block's control transfer goes elsewhere than to the next instruction, as an i64."""
        if isinstance(self._target, int):
            if self._target == self.next_pc():
                return 0
            return 1 if self._condition is None else self.flag(self._condition)
        return self.flag(self.ne(self._target, self.next_pc()))

    def _execute(self) -> None:
        """Emit the semantics of the current instruction."""
        semantics = self.instruction.row.semantics
        if self.instruction.static_rounding:
            self.with_rounding_mode(self.instruction.rm, lambda: semantics(self))
        else:
            semantics(self)
