"""Where runs happen. A target turns a `RunSpec` into a `Run`, in a worker process, and keeps nothing.

``emulated`` is the real one; ``cycleclose`` simulates only samples of the program in detail; ``fake`` answers at
once with made-up traces, for tests of everything around it.
"""

from __future__ import annotations

from typing import Protocol

from measure.types import Run, RunSpec


class Target(Protocol):
    """A place to run."""

    def execute(self, spec: RunSpec) -> Run:
        """Run to the end. Raises `RunError` when the program fails or its trace is of no use."""

    def prepare(self, machine: str) -> None:
        """Load and compile what a first run on ``machine``, a description as YAML text, would wait for."""


def target_named(name: str) -> Target:
    """The target called ``name``; imports what it needs only now."""
    if name == "fake":
        from measure.targets.fake import FakeTarget

        return FakeTarget()
    if name == "cycleclose":
        from measure.targets.cycleclose import CycleCloseTarget

        return CycleCloseTarget()
    from measure.targets.emulated import EmulatedTarget

    return EmulatedTarget()
