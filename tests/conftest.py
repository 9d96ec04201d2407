"""Settings of all tests; and the processor time of each, to find tests that want the mark `slow`."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import settings

from common.compiler_cache import GLOBAL, compiler_cache

# A first example compiles kernels and machines are shared: how long an example takes says nothing about its subject.
settings.register_profile("without deadlines", deadline=None)
settings.load_profile("without deadlines")

# Tests that call the compiler themselves take what it made for the others, such as C libraries.
os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(compiler_cache() / GLOBAL))

# A shell that starts the tests in the background ignores Ctrl-C for them, and so for the programs that they interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SLOW_SECONDS = 10  # twice the limit: processors differ, and the first test of a kernel compiles it
_BEGAN = pytest.StashKey[float]()
_UNMARKED = "slow without the mark"


def processor_seconds() -> float:
    """Processor time of this process and of its children that have ended."""
    return sum(os.times()[:4])


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_BEGAN] = processor_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    seconds = processor_seconds() - item.stash.get(_BEGAN, processor_seconds())
    if report.when == "teardown" and seconds > SLOW_SECONDS and item.get_closest_marker("slow") is None:
        report.user_properties.append((_UNMARKED, f"{seconds:.0f} s {item.nodeid}"))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    unmarked = [
        str(value)
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == _UNMARKED and report.when == "teardown"
    ]
    if unmarked:
        terminalreporter.section(f"over {SLOW_SECONDS} s of processor time without the mark slow")
        for line in sorted(unmarked, key=lambda line: -int(line.split()[0])):
            terminalreporter.write_line(line)
