"""Deep expressions, which libclang follows by recursion."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from instrumenter.large_stack import on_large_stack

TERMS = 20_000
REWRITE = """\
from instrumenter.rewrite.rewriter import rewrite
from instrumenter.spec.counter_layout import CounterLayout
from instrumenter.spec.software_metrics import MetricSpec
metrics = {"n": MetricSpec(event="branch", function="f")}
text = f"int f(int x) {{ int r = 0; if (x) r++; return r + {'+'.join(['x'] * %d)}; }}"
rewritten = rewrite(text, "f.c", metrics, CounterLayout.of(metrics, "packed", True, False), None)
print(rewritten.count_sites("n"))
"""


def test_a_long_sum_is_instrumented() -> None:
    """The process ended with a segmentation fault."""
    done = subprocess.run([sys.executable, "-c", REWRITE % TERMS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "1\n")


def test_errors_are_raised_and_small_machines_get_the_stack_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.stack_size()
    with pytest.raises(ValueError, match="wrong"):
        on_large_stack(lambda: int("wrong"))

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    assert on_large_stack(lambda: 1) == 1
    assert threading.stack_size() == before
