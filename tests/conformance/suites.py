"""What there is in a copy of riscv-tests or riscv-arch-test, and what of it concerns a program in user mode.

riscv-tests check themselves: a failure is the number of a test case. riscv-arch-test compares a *signature*, the
memory that a test has written; releases up to 2 ship reference signatures, later ones expect them from a reference
model. Tests that need machine mode, or an extension that this machine does not have, are left out and counted.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.build import Source

ISA = "RV64IMAFDCZicsr_Zifencei_Zba_Zbb_Zbs"
_MARCH = "rv64imafdc_zicsr_zifencei_zba_zbb_zbs"
_RISCV_TESTS = ("ui", "um", "ua", "uf", "ud", "uc", "uzba", "uzbb", "uzbs")
_ARCH_WIDTHS = ("rv64i_m", "rv32i_m")  # what is the same for both widths lies in the second


class SuiteError(Exception):
    """A directory that is not the suite that it should be."""


@dataclass(frozen=True)
class Test:
    """``reference``: the file with the expected signature; None for a test that checks itself, or has none."""

    name: str
    source: Source
    reference: Path | None = None


@dataclass
class Suite:
    """``self_checking``: whether a test knows by itself that it has failed. ``left_out``: why, and how many."""

    self_checking: bool
    tests: list[Test] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def riscv_tests(path: Path) -> Suite:
    """The tests of ``isa/rv64u*`` for this machine's extensions. Raises `SuiteError` when there are none."""
    isa = path / "isa"
    suite = Suite(self_checking=True)
    for folder in sorted(isa.glob("rv64*")):
        sources = sorted(folder.glob("*.S"))
        if not folder.name.startswith("rv64u"):
            suite.left_out["machine or supervisor mode"] += len(sources)
        elif folder.name.removeprefix("rv64") not in _RISCV_TESTS:
            suite.left_out["extensions that this machine does not have"] += len(sources)
        else:
            march = _MARCH if folder.name == "rv64uc" else _MARCH.replace("fdc", "fd")
            for source in sources:
                built = Source(source, march, (isa / "macros" / "scalar",))
                suite.tests.append(Test(f"{folder.name}/{source.stem}", built))
    if not suite.tests:
        raise SuiteError(f"{path}: no tests in isa/rv64ui; expected a copy of riscv-software-src/riscv-tests")
    return suite


def arch_tests(path: Path) -> Suite:
    """The tests of ``riscv-test-suite`` that say they are for this machine. Raises `SuiteError` when there are none."""
    root = path / "riscv-test-suite"
    suite = Suite(self_checking=False)
    for source in sorted(one for width in _ARCH_WIDTHS for one in root.glob(f"{width}/*/src/*.S")):
        text = source.read_text(errors="replace")
        defines = _defines(text)
        if defines is None:
            suite.left_out["other widths, and extensions that this machine does not have"] += 1
        elif "rvtest_mtrap_routine" in defines:
            suite.left_out["machine or supervisor mode"] += 1
        else:
            reference = source.parent.parent / "references" / f"{source.stem}.reference_output"
            suite.tests.append(
                Test(
                    str(source.relative_to(root).with_suffix("")).replace("/src/", "/"),
                    Source(source, _march(text), (root / "env",), (*sorted(defines), "XLEN=64", "FLEN=64")),
                    reference if reference.exists() else None,
                )
            )
    if not suite.tests:
        raise SuiteError(
            f"{path}: no tests in riscv-test-suite/rv64i_m; expected a copy of riscv-non-isa/riscv-arch-test, release 2"
            " or 3"
        )
    return suite


def expected_signature(reference: Path) -> bytes:
    """A reference signature: one 32-bit word in hexadecimal a line."""
    return b"".join(int(line, 16).to_bytes(4, "little") for line in reference.read_text().split())


def _defines(text: str) -> set[str] | None:
    """The macros that the cases of a test define that hold for this machine; None when no case does."""
    found: set[str] = set()
    holds = False
    for case in re.findall(r"^\s*RVTEST_CASE\(\s*\d+\s*,\s*\"(.*?)\"", text, re.MULTILINE):
        conditions = [part.strip() for part in case.strip("/ ").split(";")]
        if all(_holds(part.removeprefix("check ")) for part in conditions if part.startswith("check ")):
            holds = True
            found |= {part.removeprefix("def ").strip() for part in conditions if part.startswith("def ")}
    return {name.partition("=")[0] for name in found} if holds else None


def _holds(condition: str) -> bool:
    """``ISA:=regex(...)``, or a property of the machine, of which it has but one: misaligned accesses work."""
    name, _, wanted = condition.partition(":=")
    if name.strip() == "ISA":
        pattern = re.fullmatch(r"\s*regex\((.*)\)\s*", wanted)
        return pattern is not None and re.match(pattern[1], ISA) is not None
    return name.strip() == "hw_data_misaligned_support" and wanted.strip() == "True"


def _march(text: str) -> str:
    """What the assembler may use: only what the test names, lest it compresses what is to be tested at full length."""
    named = re.search(r"^\s*RVTEST_ISA\(\s*\"(.*?)\"", text, re.MULTILINE)
    wide = [isa for isa in named[1].split(",") if isa.startswith("RV64I")] if named else []
    if not wide:
        return _MARCH
    letters = wide[0][4:].partition("Z")[0].partition("_")[0].upper()
    return "rv64" + "".join(c for c in "imafdc" if c.upper() in f"{letters}IFD") + "_zicsr_zifencei" + "".join(
        f"_{name.lower()}" for name in ("Zba", "Zbb", "Zbs") if name in wide[0]
    )  # fmt: skip
