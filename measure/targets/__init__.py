"""Targets: a target executes a `RunSpec` and returns a `Run`, in a worker process, and stores nothing.

``emulated`` is the usual one; ``cycleclose`` simulates only samples of the program in detail; ``host`` is the processor
that the command itself runs on; ``fake`` returns made-up traces at once, for tests of everything around it.
"""

from __future__ import annotations

from typing import Protocol

from measure.campaign.run_types import HOST, Run, RunSpec


class Target(Protocol):
    """A machine that executes runs."""

    def execute(self, spec: RunSpec) -> Run:
        """Run to the end. Raises `RunError` when the program fails or its trace cannot be used."""

    def prepare(self, machine: str) -> None:
        """Load and compile in advance what a first run needs on ``machine``, a description as YAML text."""


def target_named(name: str) -> Target:
    """The target called ``name``; imports its modules on demand."""
    if name == "fake":
        from measure.targets.fake import FakeTarget

        return FakeTarget()
    if name == "cycleclose":
        from measure.targets.cycleclose import CycleCloseTarget

        return CycleCloseTarget()
    if name == HOST:
        from measure.targets.host import HostTarget

        return HostTarget()
    from measure.targets.emulated import EmulatedTarget

    return EmulatedTarget()
