"""Batches of events that analyzers consume."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.isa.decode import decode


class Batch:
    """Events in execution order, as columns that are valid only during the call of `consume`.

    Attributes are the selected fields, each ``(n,)``: ``pc``, ``word``, ``address`` uint32; ``opcode`` uint16, rows of
    `emulator.isa.table.TABLE`; ``op_class`` (field ``class``) and ``taken`` uint8; the others uint64. A field that an
    instruction does not have is 0. ``columns``: all columns, in the order of `event_selection.FIELDS`.
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


def opcodes_of(words: NDArray[np.uint32]) -> NDArray[np.uint16]:
    """Row numbers in `emulator.isa.table.TABLE` of instruction words as they are in memory, (n,) each."""
    unique, inverse = np.unique(words, return_inverse=True)
    return np.array([_opcode(int(word)) for word in unique], np.uint16)[inverse]


@cache
def _opcode(word: int) -> int:
    instruction = decode(word)
    if instruction is None:
        raise ValueError(f"{word:#x} is not an instruction")
    return instruction.row.index
