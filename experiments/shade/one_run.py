"""One program at one level of tracing, in a process of its own: `python -m experiments.shade.one_run`.

What it took goes to a file, as JSON; the program's output is this process's.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from emulator.analyzers.analysis_session import Session
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from experiments.shade.levels import LEVELS


def main() -> None:
    """Run it. Exit status 1 when the program does not end well."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("level", type=int)
    parser.add_argument("report", type=Path)
    parser.add_argument("--profile", action="store_true", help="tell where time goes and what translations are")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    if options.profile:
        from experiments.shade.profiling import profiled

        told = profiled(options.level, options.program, options.arguments)
    else:
        told = timed(options.level, options.program, options.arguments)
    options.report.write_text(json.dumps(told))


def timed(level: int, program: str, arguments: list[str]) -> dict[str, float]:
    """Run with the translations that earlier processes left; ``instructions``, and ``seconds`` without starting up."""
    with Machine(program, arguments, files=VirtualFiles(stdout=1, stderr=2), keep_translations=True) as machine:
        session = Session(machine, [LEVELS[level][1]()])
        start = time.perf_counter()
        ending = session.run()
        session.finish()
        seconds = time.perf_counter() - start
        machine.save_translations()
        if ending is None or ending.status:
            raise SystemExit(f"{program}: it ended badly: {ending}")
        return {"instructions": machine.instructions, "seconds": seconds}


if __name__ == "__main__":
    main()
