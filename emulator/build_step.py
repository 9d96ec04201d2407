"""Runs a program that a project's build has just made, as the build would run one for its own machine.

    python -m emulator.build_step TREE PROGRAM [ARGUMENTS...]

The program sees the files of the host, its environment and working directory, and the standard streams. It may write
below TREE, the copy of the project that is built; other files that it writes, as in /tmp, are its own and end with it.
A program with the sampler of the instrumentation finds its counters here, all 0, and loses its trace.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

FAILED = 126  # as the shell says that a program cannot be started
_OWN_VARIABLES = ("LD_PRELOAD", "INSTRUMENT_")


class _NoCounters:
    """Performance counters that count nothing."""

    def read_csr(self, number: int) -> int | None:
        return 0 if 0xC03 <= number <= 0xC1F else None

    def write_control(self, value: int) -> None:
        pass


def main() -> None:
    tree, program, *arguments = sys.argv[1:]
    status = run_program(tree, program, arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def load() -> None:
    """Load what `run_program` needs."""
    for module in ("emulator.machine", "emulator.linux.vfs.files"):
        importlib.import_module(module)


def run_program(tree: str, program: str, arguments: list[str]) -> int:
    """Run ``program`` with the environment, working directory, standard streams and umask of this process.

    It may write below ``tree``. Returns its exit status, `FAILED` if it cannot be started, which is told on standard
    error.
    """
    from emulator.errors import EmulatorError
    from emulator.linux.vfs.files import VirtualFiles
    from emulator.machine import Machine

    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OWN_VARIABLES)}
    trees = {tree: Path(tree), os.path.realpath(tree): Path(tree)}  # a directory of the user's may be a link
    own = [folder for folder in ("/tmp/", "/measure/") if not any(f"{one}/".startswith(folder) for one in trees)]
    try:
        files = VirtualFiles(
            root=Path("/"), mapped=trees, writable=list(trees), capture=own, stdin=0, stdout=1, stderr=2
        )
        files.working_directory = os.getcwd()
        files.umask = os.umask(0)
        os.umask(files.umask)
        machine = Machine(
            program, arguments, environment=environment, files=files, counters=_NoCounters(), keep_translations=True
        )
        ending = machine.run()
    except EmulatorError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return FAILED
    if ending.message is not None:
        print(f"{program}: {ending.message}", file=sys.stderr)
    machine.save_translations()
    machine.close()
    return ending.status


if __name__ == "__main__":
    main()
