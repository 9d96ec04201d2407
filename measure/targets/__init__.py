"""Targets: a target executes a `RunSpec` and returns a `Run`, in a worker process, and stores nothing.

``emulated`` is the usual one; ``cycleclose`` simulates only samples of the program in detail; ``host`` is the processor
that the command itself runs on; ``fake`` returns made-up traces at once, for tests of everything around it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from measure.run_types import HOST, Run, RunSpec

_ROOT = Path(__file__).parents[2]
_ON_EMULATOR = (
    "common", "emulator", "measure/targets/emulated.py", "measure/targets/program_file.py",
    "measure/targets/second_run.py",
)  # fmt: skip
_SOURCES: dict[str, tuple[str, ...]] = {
    "emulated": _ON_EMULATOR,
    "cycleclose": (*_ON_EMULATOR, "measure/targets/cycleclose.py", "measure/cycle_close"),
    HOST: ("measure/targets/host.py", "measure/targets/program_file.py", "measure/host"),
    "fake": ("measure/targets/fake.py",),
}


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


def target_sources(name: str) -> tuple[Path, ...]:
    """The files and folders of sources that decide what a run on the target called ``name`` counts.

    Those of the instrumenter are not among them: the key of the run's program depends on these. Raises `KeyError` for
    a target that does not exist.
    """
    return tuple(_ROOT / place for place in _SOURCES[name])
