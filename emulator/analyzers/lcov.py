"""The tracefile format of lcov (geninfo's manual page), and the conditional jumps of a program by source line."""

from __future__ import annotations

from collections.abc import Iterator

from emulator.events import OpClass
from emulator.isa.decode import decode
from emulator.linux.loader.elf import ElfImage
from emulator.memory import EXEC

Lines = dict[str, dict[int, int]]
"""Executions by file and line."""
Functions = dict[str, dict[str, tuple[int, int]]]
"""Line and executions by file and name."""
Branches = dict[str, dict[int, list[tuple[int, int]]]]
"""Counts of not taken and taken for each branch of a line, by file and line."""


def tracefile(test: str, all_lines: Lines, all_functions: Functions, all_branches: Branches) -> str:
    """The text of a tracefile."""
    parts = [f"TN:{test}"]
    for name, lines in sorted(all_lines.items()):
        functions = sorted(all_functions.get(name, {}).items())
        parts.append(f"SF:{name}")
        parts += [f"FN:{line},{function}" for function, (line, _) in functions]
        parts += [f"FNDA:{ran},{function}" for function, (_, ran) in functions]
        parts.append(f"FNF:{len(functions)}\nFNH:{sum(ran > 0 for _, (_, ran) in functions)}")
        outcomes = []
        for line, branches in sorted(all_branches.get(name, {}).items()):
            for n, both in enumerate(branches):
                outcomes += [
                    (f"BRDA:{line},{n},{outcome},{ran if any(both) else '-'}", ran) for outcome, ran in enumerate(both)
                ]
        parts += [text for text, _ in outcomes]
        if outcomes:
            parts.append(f"BRF:{len(outcomes)}\nBRH:{sum(ran > 0 for _, ran in outcomes)}")
        parts += [f"DA:{line},{ran}" for line, ran in sorted(lines.items())]
        parts.append(f"LF:{len(lines)}\nLH:{sum(ran > 0 for ran in lines.values())}\nend_of_record")
    return "\n".join(parts) + "\n"


def branches_of(image: ElfImage) -> Iterator[tuple[str, int, int]]:
    """File, line and address of each conditional jump that has a source line, by address."""
    codes = [segment for segment in image.segments if segment.prot & EXEC]
    for row in image.line_rows():
        code = next((one for one in codes if one.address <= row.address < one.end), None)
        if not row.line or code is None:
            continue
        pc, data = row.address, code.data[row.address - code.address : row.end - code.address]
        while pc < row.end:
            offset = pc - row.address
            instruction = decode(int.from_bytes(data[offset : offset + 4], "little"))
            if instruction is None:
                break  # data among the code
            if instruction.op_class == OpClass.BRANCH:
                yield row.file, row.line, pc
            pc += instruction.length_bytes
