"""The command, on suites of two tests each that are laid out as the official ones are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.__main__ import main
from tests.conformance.suites import SuiteError, arch_tests, expected_signature, riscv_tests

GOOD = """
#include "riscv_test.h"
#include "test_macros.h"
RVTEST_RV64U
RVTEST_CODE_BEGIN
  li TESTNUM, 2
  la a0, cell
  ld a1, (a0)
  addi a1, a1, 1
  sd a1, (a0)       // each round finds what it found before
  li a2, 6
  bne a1, a2, fail
  RVTEST_PASS
fail:
  RVTEST_FAIL
RVTEST_CODE_END
  .data
RVTEST_DATA_BEGIN
cell: .dword 5
RVTEST_DATA_END
"""
BAD = GOOD.replace("li a2, 6", "li a2, 7")

ARCH_TEST = """
#include "model_test.h"
#include "arch_test.h"
RVTEST_ISA("RV64I")
.section .text.init
.globl rvtest_entry_point
rvtest_entry_point:
RVMODEL_BOOT
RVTEST_CODE_BEGIN
#ifdef TEST_CASE_1
RVTEST_CASE(0,"//check ISA:=regex(.*64.*);check ISA:=regex(.*I.*);def TEST_CASE_1=True;",add)
  la x5, signature
  li x6, 40
  addi x6, x6, 2
  sd x6, 0(x5)
#endif
RVTEST_CODE_END
RVMODEL_HALT
.data
RVMODEL_DATA_BEGIN
signature: .fill 4, 4, 0xdeadbeef
RVMODEL_DATA_END
"""
ARCH_HEADER = """
#define RVTEST_ISA(text)
#define RVTEST_CASE(...)
#define RVTEST_CODE_BEGIN
#define RVTEST_CODE_END
#define RVTEST_FP_ENABLE() csrs mstatus, a0
"""
RIGHT = "0000002a\n00000000\ndeadbeef\ndeadbeef\n"
WRONG = RIGHT.replace("2a", "2b")


@pytest.fixture
def self_checking(tmp_path: Path) -> Path:
    folders = [tmp_path / "isa" / name for name in ("rv64ui", "rv64mi", "rv64uzfh", "macros/scalar")]
    for folder in folders:
        folder.mkdir(parents=True)
    (folders[0] / "good.S").write_text(GOOD)
    (folders[0] / "bad.S").write_text(BAD)
    (folders[1] / "machine.S").write_text(GOOD)
    (folders[2] / "half.S").write_text(GOOD)
    (folders[3] / "test_macros.h").write_text("")
    return tmp_path


@pytest.fixture
def with_signatures(tmp_path: Path) -> Path:
    suite = tmp_path / "riscv-test-suite"
    sources, references = suite / "rv64i_m" / "I" / "src", suite / "rv64i_m" / "I" / "references"
    for folder in (sources, references, suite / "env"):
        folder.mkdir(parents=True)
    (suite / "env" / "arch_test.h").write_text(ARCH_HEADER)
    for name, reference in (("right-01", RIGHT), ("wrong-01", WRONG)):
        (sources / f"{name}.S").write_text(ARCH_TEST)
        (references / f"{name}.reference_output").write_text(reference)
    (sources / "other-01.S").write_text(ARCH_TEST.replace(".*64.*", ".*Zfh.*"))
    (sources / "machine-01.S").write_text(ARCH_TEST.replace("def TEST", "def rvtest_mtrap_routine=True; def TEST"))
    return tmp_path


def test_tests_that_check_themselves(self_checking: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["riscv-tests", str(self_checking)]) == 1
    said = capsys.readouterr().out.splitlines()
    names = ("oracle", "interpreter", "templates", "optimised")
    assert [line for line in said if line.startswith("rv64ui/")] == [
        f"rv64ui/bad, {engine}: status 2" for engine in names
    ]
    assert next(line.split() for line in said if line.startswith("rv64ui ")) == [
        "rv64ui",
        "2",
        "1",
        "1",
        "1",
        "1",
    ]
    assert "left out: 1 tests for machine or supervisor mode" in said
    assert said[-1] == "2 tests, 1 failed"
    assert main(["riscv-tests", str(self_checking), "--only", "*/good", "--engine", "templates"]) == 0


def test_signatures(with_signatures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["riscv-arch-test", str(with_signatures)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == (
        "rv64i_m/I/wrong-01, oracle: round 1: byte 0x0 of the signature: 0x000000000000002a, "
        "expected 0x000000000000002b"
    )
    assert ["rv64i_m/I", "2", "1", "1", "1", "1"] in [line.split() for line in said]
    assert said[-1] == "2 tests, 1 failed"
    assert sum(arch_tests(with_signatures).left_out.values()) == 2


def test_programs_are_kept(self_checking: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = tmp_path / "built"
    arguments = [
        "riscv-tests",
        str(self_checking),
        "--only",
        "*/good",
        "--engine",
        "oracle",
        "--built",
        str(built),
    ]
    assert main(arguments) == 0
    assert len(list(built.iterdir())) == 1
    monkeypatch.setattr("tests.conformance.build._zig", None)  # nothing is built again
    assert main(arguments) == 0


def test_what_does_not_assemble_is_a_failure(self_checking: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (self_checking / "isa" / "rv64ui" / "bad.S").write_text("  no such instruction\n")
    assert main(["riscv-tests", str(self_checking), "--engine", "oracle"]) == 1
    assert "rv64ui/bad, assembler: " in capsys.readouterr().out


def test_mistakes_are_told(with_signatures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SuiteError, match="expected a copy of riscv-software-src/riscv-tests"):
        riscv_tests(tmp_path / "nothing")
    for arguments, text in (
        (["riscv-arch-test", str(tmp_path / "nothing")], "expected a copy of riscv-non-isa/riscv-arch-test"),
        (
            ["riscv-arch-test", str(with_signatures), "--only", "x"],
            "no such test; the first is 'rv64i_m/I/right-01'",
        ),
    ):
        with pytest.raises(SystemExit, match="2"):
            main(arguments)
        assert text in capsys.readouterr().err
    for path in with_signatures.rglob("*.reference_output"):
        path.unlink()
    with pytest.raises(SystemExit, match="2"):
        main(["riscv-arch-test", str(with_signatures)])
    assert "2 tests, such as rv64i_m/I/right-01, come without a reference signature" in capsys.readouterr().err


def test_a_reference_command_says_what_is_right(with_signatures: Path, tmp_path: Path) -> None:
    """Any command that runs the program and passes on what it writes; here one that has the answer."""
    for path in with_signatures.rglob("*.reference_output"):
        path.unlink()
    answer = tmp_path / "answer"
    for text, status in ((RIGHT, 0), (WRONG, 1)):
        signature = tmp_path / "signature"
        signature.write_text(text)
        answer.write_bytes(expected_signature(signature))
        command = f"sh -c 'cat {answer}'"
        arguments = [
            "riscv-arch-test",
            str(with_signatures),
            "--engine",
            "interpreter",
            "--reference",
            command,
        ]
        assert main(arguments) == status
