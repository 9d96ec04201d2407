"""The instruction table: RV64IMAFDC + Zicsr + Zifencei + Zba/Zbb/Zbs, one row an instruction.

Semantics are written once, over an abstract machine: the oracle computes on Python integers, the translator generates
LLVM IR from the same calls. Compressed instructions have no rows: `decode` expands them.

Sources: The RISC-V Instruction Set Manual, Volume I (20240411), chapters 2, 7, 12-14, 20-21, 28 and the instruction
listings.
"""

from __future__ import annotations

from emulator.isa import base_rows, extension_rows, float_rows
from emulator.isa.rows import TABLE, Row

__all__ = ["PARTS", "ROWS", "TABLE", "Row"]

PARTS = (base_rows, extension_rows, float_rows)
"""The modules with the rows, in the order of the table; importing a module adds its rows to ``TABLE``."""

ROWS: dict[str, Row] = {row.mnemonic: row for row in TABLE}
