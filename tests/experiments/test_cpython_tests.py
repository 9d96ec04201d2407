"""What `cpython_tests.py` makes of regrtest's output, and how it goes on after an interruption. Nothing is fetched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROGRAMS = Path(__file__).parents[2] / "experiments" / "programs"

TEXT = """== CPython 3.13.5 (main, Aug 10 2026, 12:06:59) [GCC 14.2.0]
0:00:00 load avg: 5.80 [1/1] test_os
test_one (test.test_os.FileTests.test_one) ... ok
test_two (test.test_os.FileTests.test_two)
The first line of its docstring. ... skipped "resource 'walltime' is not enabled"
test_three (test.test_os.FileTests.test_three) ... a line of its own
 and more
ok
test_four (test.test_os.FileTests.test_four) ... FAIL
test_five (test.test_os.FileTests.test_five) ...   test_five (test.test_os.FileTests.test_five) (n=1) ... ERROR
  test_six (test.test_os.FileTests.test_six) [name] (n=2) ... FAIL
test_seven (test.test_os.FileTests.test_seven) ... expected failure
test_eight (test.test_os.FileTests.test_eight) ... unexpected success

======================================================================
ERROR: test_five (test.test_os.FileTests.test_five) (n=1)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/usr/lib/python3.13/test/test_os.py", line 1, in test_five
OSError: [Errno 22] Invalid argument

======================================================================
FAIL: test_four (test.test_os.FileTests.test_four)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/usr/lib/python3.13/test/test_os.py", line 1, in test_four
    self.assertEqual(1, 2)
AssertionError: 1 != 2

----------------------------------------------------------------------
Ran 8 tests in 7.400s

FAILED (failures=2, errors=1, skipped=1)
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(str(PROGRAMS))
    import cpython_tests

    monkeypatch.setattr(cpython_tests, "RESULTS", tmp_path / "results.csv")
    monkeypatch.setattr(cpython_tests, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(cpython_tests, "REASONS", tmp_path / "reasons.yaml")
    return cpython_tests


def test_results_are_read_from_the_output(script: ModuleType) -> None:
    found, running = script.parse(TEXT)
    assert running is None
    short = {place.rpartition("_")[2]: (result.end, result.why) for place, result in found.items()}
    assert short == {
        "one": ("passed", ""), "two": ("skipped", "resource 'walltime' is not enabled"), "three": ("passed", ""),
        "four": ("failed", "AssertionError: 1 != 2"), "five": ("failed", "OSError: [Errno 22] Invalid argument"),
        "six": ("failed", ""), "seven": ("passed", ""), "eight": ("failed", ""),
    }  # fmt: skip


def test_the_test_that_runs_when_the_output_ends_is_known(script: ModuleType) -> None:
    head, _, _ = TEXT.partition("test_four")
    found, running = script.parse(head + "test_four (test.test_os.FileTests.test_four) ... it prints\n")
    assert running == "test.test_os.FileTests.test_four"
    assert len(found) == 3


def test_a_module_goes_on_without_the_test_that_does_not_end(script: ModuleType) -> None:
    asked = []

    def start(arguments: list[str], output: Path) -> subprocess.Popen[bytes]:
        asked.append(arguments)
        text = "test_a (test.test_os.T.test_a) ... ok\ntest_b (test.test_os.T.test_b) ... "
        code = f"import time; print({text!r}, end='', flush=True); time.sleep(60)"
        if len(asked) > 1:
            code = "print('test_c (test.test_os.T.test_c) ... ok')"
        with open(output, "wb") as file:
            return subprocess.Popen([sys.executable, "-c", code], stdout=file, start_new_session=True)

    found = script.run_module(start, "test_os", 1.0)
    assert {place[-1]: result.end for place, result in found.items()} == {
        "a": "passed",
        "b": "no end",
        "c": "passed",
    }
    assert asked == [
        ["test_os"], ["--ignore", "test.test_os.T.test_a", "--ignore", "test.test_os.T.test_b", "test_os"],
    ]  # fmt: skip


def test_modules_with_results_are_not_run_again(script: ModuleType) -> None:
    ours = {
        "test.test_os.T.a": script.Result("passed"),
        "test.test_os.T.b": script.Result("failed", "why, or not"),
    }
    rows = script.rows_of("test_os", ours, {"test.test_os.T.a": script.Result("skipped", "|")})
    script.write_results({"test_os": rows})
    results = script.read_results()
    assert results == {"test_os": rows}
    assert [row.qemu for row in rows] == ["skipped", "not run"]
    assert script.to_do([], results) == [module for module in script.MODULES if module != "test_os"]
    assert script.to_do(["test_os"], results) == ["test_os"]
    with pytest.raises(ValueError, match="test_none"):
        script.to_do(["test_none"], results)
    text = script.page(results, {"test.test_os.T.b": "known | reason"})
    assert "| test_os | 2 | 1 | 1 | 0 | 0 | 0 | 0 | 1 | 0 |" in text
    assert "| test_os.T.b | not run | known \\| reason |" in text
