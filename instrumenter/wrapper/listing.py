"""The listing of a build: what each call of the compiler wrapper compiled, counted and linked, a JSON object a line.

``INSTRUMENT_LOG`` names its file; without it there is one beside each output.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from instrumenter.compiler import openmp, processor_options
from instrumenter.wrapper.arguments import CommandLine

LOG_VARIABLE = "INSTRUMENT_LOG"
OUTSIDE_VARIABLE = "INSTRUMENT_OUTSIDE"
"""Names the file for `instrumenter.wrapper.outside_files`."""
LOG_NAME = "instrument-cc.jsonl"


def write_entry(output: Path, entry: Mapping[str, Any]) -> None:
    """Add a line to the listing: that of ``INSTRUMENT_LOG``, or one beside ``output``. Safe under ``make -j``."""
    path = Path(os.environ.get(LOG_VARIABLE) or output.parent / LOG_NAME)
    line = json.dumps(entry, sort_keys=True) + "\n"
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(line.encode())


def note_left_out(line: CommandLine, directory: Path) -> None:
    """List the outputs of a command line, before it is executed, if it wants OpenMP or another processor's
    instructions, which are left out; only in the listing of a whole build, for calls that only compile have no other
    one."""
    if not os.environ.get(LOG_VARIABLE) or line.stage not in ("link", "compile", "assembly"):
        return
    left_out: list[dict[str, Any]] = []
    if line.without_openmp:
        left_out.append({"kind": openmp.ENTRY})
    if line.processor_options:
        left_out.append({"kind": processor_options.ENTRY, "options": line.processor_options})
    ending = ".s" if line.stage == "assembly" else ".o"
    made = ["a.out"] if line.stage == "link" else [Path(each.words[0]).stem + ending for each in line.sources]
    for entry in left_out:
        for name in [line.output] if line.output else made:
            write_entry(directory / name, {**entry, "output": str(directory / name)})


def read_listing(path: Path) -> list[dict[str, Any]]:
    """The entries of a listing in their order; none if there is no file."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
