"""Lets a project's build run the programs that it makes: in the emulator.

Many builds make a program and run it, to generate sources or as a first test. Compiled for another machine it cannot
start. So the shell, make, cmake ... of a build get a library (``runtime/start_guests.c``) that starts such programs by
a command, which is written here. It asks a server, `emulator.build_server`, to run the program: a build's tests may
start thousands, and to load the emulator takes longer than most of them run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from common.atomic_files import move_file, workspace
from common.file_cache import cache_directory
from common.source_digest import source_digest
from instrumenter.compiler.toolchain import ALWAYS, HOST_TARGET, Toolchain, compiler_version
from instrumenter.errors import SourceError

COMMAND = "instrument-run"
_PACKAGE = Path(__file__).parents[2]
_WAITING = 128  # programs that wait for the server while it starts
_LIBRARY = Path(__file__).parents[1] / "runtime" / "start_guests.c"
# The library is loaded before any C library is known: it names the one that has dlsym in old versions of glibc, and
# that newer ones, and musl, have under this name, too.
_DLSYM, _STUB = "libdl.so.2", "void *dlsym(void *handle, const char *name) { return 0; }\n"


def write_command(folder: Path, tree: Path, server: Path | None = None) -> Path:
    """Write the command that runs a program in the emulator into ``folder``; the program may write below ``tree``.
    ``server``: the socket of a server that has the emulator loaded, see `serving`."""
    script = folder / COMMAND
    words = [sys.executable, "-I", "-S", str(_PACKAGE / "emulator" / "build_client.py"), str(server or ""), str(tree)]
    script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', "utf-8")
    script.chmod(0o755)
    return script


@contextlib.contextmanager
def serving(folder: Path, tree: Path) -> Iterator[Path]:
    """A context in which the command of `write_command`, which it gives, has a server: a process that is started with
    the first program, and that loads the emulator once for all programs of a build."""
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="build-"))  # paths of sockets must be short
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        try:
            listener.bind(f"{place}/server")
        except OSError:  # $TMPDIR is too long for a socket: programs load the emulator themselves
            yield write_command(folder, tree)
            return
        listener.listen(_WAITING)
        life, end = os.pipe()
        starter = threading.Thread(target=_start_server, args=(listener, life, tree), daemon=True)
        starter.start()
        try:
            yield write_command(folder, tree, Path(place, "server"))
        finally:
            os.close(end)  # the server ends, and the thread, if there was no program
            starter.join()
            os.close(life)
            write_command(folder, tree)


def _start_server(listener: socket.socket, life: int, tree: Path) -> None:
    """Wait for the first connection, and start the server; end with the end of the pipe ``life``."""
    numbers = (listener.fileno(), life)
    ready, _, _ = select.select(numbers, [], [])
    if life in ready:
        return
    code = f"import sys; sys.path.insert(0, {str(_PACKAGE)!r}); from emulator.build_server import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code, *map(str, numbers), str(tree)], pass_fds=numbers, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    process.wait()
    listener.close()  # if it could not start, or failed: programs load the emulator themselves then


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
