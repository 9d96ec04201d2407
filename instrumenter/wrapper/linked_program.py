"""Tells by an ELF file which machine it is for, and whether the wrapper linked it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from instrumenter.building.elf_symbols import read_symbols
from instrumenter.errors import SourceError, SpecError
from instrumenter.spec.counter_layout import SYMBOL

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_MACHINES = {"riscv64": "EM_RISCV", "x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
_IN_WORDS = {"EM_RISCV": "RISC-V", "EM_X86_64": "x86-64", "EM_AARCH64": "AArch64"}


def other_machine(elf: ELFFile, target: str) -> str:
    """Which machine a file is for, and which one was expected, if it is not that of ``target``; else ""."""
    machine = elf["e_machine"]
    expected = _MACHINES.get(target.partition("-")[0], machine)
    return "" if machine == expected else f"for {_in_words(machine)}, expected {_in_words(expected)}"


def check_linked_with_counters(program: Path, target: str) -> None:
    """Check that the wrapper linked ``program`` for ``target``, and with counters.

    Raises `SourceError` if it did not, and `SpecError` for a file that is no ELF file.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with program.open("rb") as file:
            elf = ELFFile(file)
            problem, is_object = other_machine(elf, target), elf["e_type"] == "ET_REL"
    except (OSError, ELFError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no ELF file"
        raise SpecError(f"{program}: cannot be read: {reason}") from None
    remedy = (
        "If the makefile names its own compiler: `instrument-build 'PATH=$COMPILERS:$PATH make'`, after `make clean`, "
        "as make takes what is there"
    )
    if problem:
        raise SourceError(f"{program} was not linked by instrument-cc: it is {problem}. {remedy}")
    if not is_object and not any(symbol.name == SYMBOL for symbol in read_symbols(program)):
        raise SourceError(
            f"{program} has no counters (no symbol {SYMBOL}): it was linked by another compiler, without "
            f"INSTRUMENT_SPEC, or is stripped. {remedy}"
        )


def _in_words(machine: str) -> str:
    """An ELF file's machine in words."""
    return _IN_WORDS.get(machine, machine.removeprefix("EM_"))
