"""Callers of a function, by the call frame information of its executable (.eh_frame, .debug_frame).

pyelftools does the parsing. Damaged information, and rules that are expressions, count as absent.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable
from functools import cached_property
from typing import Any

RETURN_ADDRESS, STACK_POINTER = 1, 2  # numbers of registers

Registers = dict[int, int]
"""The value of each register by its number; registers whose values are not known are left out."""


class CallFrames:
    """The call frame information of one executable; ``bias`` is added to every address."""

    def __init__(self, data: bytes, bias: int) -> None:
        self._data = data
        self._bias = bias

    def caller(self, pc: int, registers: Registers, word_at: Callable[[int], int]) -> Registers | None:
        """The registers of the function that called the one around ``pc``, whose own are ``registers``: that of the
        return address has the place to which it returns. None if that is not known.

        ``word_at``: the guest's 8 bytes at an address; may raise `LookupError`.
        """
        try:
            return self._caller(pc - self._bias, registers, word_at)
        except Exception:  # damaged information makes the parser raise almost anything
            return None

    def _caller(self, pc: int, registers: Registers, word_at: Callable[[int], int]) -> Registers | None:
        starts, entries = self._functions
        at = bisect_right(starts, pc) - 1
        if at < 0 or pc >= starts[at] + entries[at]["address_range"]:
            return None
        rows = entries[at].get_decoded().table
        row = rows[bisect_right([each["pc"] for each in rows], pc) - 1]
        if row["cfa"].expr is not None:
            return None
        frame = registers[row["cfa"].reg] + row["cfa"].offset
        found = dict(registers)
        for number, rule in row.items():
            if not isinstance(number, int) or rule.type == rule.SAME_VALUE:
                continue
            found.pop(number, None)
            if rule.type == rule.OFFSET:
                found[number] = word_at(frame + rule.arg)
        found[STACK_POINTER] = frame
        return found if RETURN_ADDRESS in found else None

    @cached_property
    def _functions(self) -> tuple[list[int], list[Any]]:
        """The functions with information: where they start, in order, and their entries."""
        from elftools.dwarf.callframe import FDE
        from elftools.elf.elffile import ELFFile

        dwarf = ELFFile(io.BytesIO(self._data)).get_dwarf_info()
        found: dict[int, Any] = {}
        for has, read in ((dwarf.has_CFI, dwarf.CFI_entries), (dwarf.has_EH_CFI, dwarf.EH_CFI_entries)):
            for entry in read() if has() else ():
                if isinstance(entry, FDE):
                    found[entry["initial_location"]] = entry
        starts = sorted(found)
        return starts, [found[start] for start in starts]
