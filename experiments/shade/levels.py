"""The six levels of tracing of Shade's section 5, as analyzers of ours: everything is recorded, and then ignored.

0: nothing; 1: instructions are counted, by block; 2: pc of every instruction and effective address of every access;
3: instruction word, decoded opcode and branch outcome as well; 4: values of all registers that it reads and writes as
well; 5: as 4, and an empty function of the user's is called before and after each instruction.

From level 2 on what is recorded is delivered as columns to a compiled function that does nothing: the work of
delivery is paid for, that of an analysis is not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.analyzers.analyzer import Analyzer
from emulator.events import TraceSelection
from emulator.kernels.numba_jit import numba_kernel

ADDRESSES = "class=all fields=pc,address"
INSTRUCTIONS = "class=all fields=pc,address,word,opcode,taken"
REGISTERS = "class=all fields=pc,address,word,opcode,taken,rs1,rs2,rs3,rd"


@numba_kernel
def ignore_addresses(state: Any, pc: Any, address: Any) -> None:
    """Level 2's columns."""


@numba_kernel
def ignore_instructions(state: Any, pc: Any, word: Any, opcode: Any, address: Any, taken: Any) -> None:
    """Level 3's columns."""


@numba_kernel
def ignore_registers(
    state: Any,
    pc: Any,
    word: Any,
    opcode: Any,
    address: Any,
    taken: Any,
    rs1: Any,
    rs2: Any,
    rs3: Any,
    rd: Any,
) -> None:
    """Level 4's columns."""


class Nothing(Analyzer):
    """Level 0."""


class Counting(Analyzer):
    """Level 1."""

    trace = TraceSelection(counts=True)


class Addresses(Analyzer):
    """Level 2."""

    selection, function, state = ADDRESSES, staticmethod(ignore_addresses), np.zeros(1)


class Instructions(Analyzer):
    """Level 3."""

    selection, function, state = INSTRUCTIONS, staticmethod(ignore_instructions), np.zeros(1)


class Registers(Analyzer):
    """Level 4."""

    selection, function, state = REGISTERS, staticmethod(ignore_registers), np.zeros(1)


def _empty(state: Any, pc: Any) -> None:
    """What is called before and after each instruction."""


class Functions(Registers):
    """Level 5."""

    inline = "class=all fields=pc"
    inline_before, inline_after = staticmethod(_empty), staticmethod(_empty)


LEVELS: tuple[tuple[str, type[Analyzer]], ...] = (
    ("no tracing", Nothing),
    ("instructions counted", Counting),
    ("pc, addresses", Addresses),
    ("+ instruction, outcome", Instructions),
    ("+ registers", Registers),
    ("+ empty functions before, after", Functions),
)
"""What is traced at each level, in words, and the analyzer that traces it."""
