"""Lets a project's build run the programs that it makes: in the emulator.

Many builds make a program and run it, to generate sources or as a first test. Compiled for another machine it cannot
start. So the shell, make, cmake ... of a build get a library (``runtime/start_guests.c``) that starts such programs by
a command, which is written here and calls `emulator.build_step`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from pathlib import Path

from common.atomic_files import move_file, workspace
from common.file_cache import cache_directory
from common.source_digest import source_digest
from instrumenter.building.toolchain import ALWAYS, HOST_TARGET, Toolchain, compiler_version
from instrumenter.errors import SourceError

COMMAND = "instrument-run"
_LIBRARY = Path(__file__).parents[1] / "runtime" / "start_guests.c"
# The library is loaded before any C library is known: it names the one that has dlsym in old versions of glibc, and
# that newer ones, and musl, have under this name, too.
_DLSYM, _STUB = "libdl.so.2", "void *dlsym(void *handle, const char *name) { return 0; }\n"


def write_command(folder: Path, tree: Path) -> Path:
    """Write the command that runs a program in the emulator into ``folder``; the program may write below ``tree``."""
    package = Path(__file__).parents[2]
    code = f"import sys; sys.path.insert(0, {str(package)!r}); from emulator.build_step import main; main()"
    script = folder / COMMAND
    words = [sys.executable, "-P", "-c", code, str(tree)]
    script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', "utf-8")
    script.chmod(0o755)
    return script


def variables(command: Path) -> dict[str, str]:
    """The environment variables with which processes start guest programs by ``command``. Raises `SourceError` and
    `ToolchainError`."""
    loaded = [str(_library()), *filter(None, [os.environ.get("LD_PRELOAD")])]
    return {"LD_PRELOAD": " ".join(loaded), "INSTRUMENT_EMULATOR": str(command)}


def _library() -> Path:
    """The library, built if it is not in the cache."""
    identity = json.dumps([source_digest([_LIBRARY]), source_digest([Path(__file__)]), HOST_TARGET, compiler_version()])
    place = cache_directory() / "runtime" / f"{hashlib.sha256(identity.encode()).hexdigest()}.so"
    if place.is_file():
        return place
    toolchain = Toolchain(HOST_TARGET)
    place.parent.mkdir(parents=True, exist_ok=True)
    with workspace(place.parent) as folder:
        (folder / "stub.c").write_text(_STUB)
        shared = [*ALWAYS, "-shared", "-nostdlib", "-fPIC", "-O2"]
        calls = [
            [*shared, "stub.c", f"-Wl,-soname,{_DLSYM}", "-o", _DLSYM],
            [*ALWAYS, "-c", "-fPIC", "-O2", str(_LIBRARY), "-o", "library.o"],
            [*shared, "library.o", f"./{_DLSYM}", "-o", "library.so"],
        ]
        for arguments in calls:
            status, _, errors = toolchain.run(arguments, folder)
            if status:
                raise SourceError(f"{_LIBRARY} cannot be compiled: {errors.decode('utf-8', 'replace').strip()}")
        move_file(folder / "library.so", place)
    return place
