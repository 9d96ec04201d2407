"""The command ``instrument-build``: runs a build command outside of campaigns, in the environment that these give it.

The command runs in the current directory, and its output goes to the terminal. Programs that the build makes and runs
are started in the emulator, and the directory ``$COMPILERS`` has the compilers under the names of this machine's.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from common import shared_folders
from common.file_cache import cache_directory
from common.source_digest import source_digest
from common.text_encoding import AnyTextCommand
from instrumenter.compiler import openmp
from instrumenter.compiler.toolchain import GUEST_TARGET, Toolchain
from instrumenter.projects import made_programs, project_tree

USAGE_ERROR, WORK_FAILED, INTERRUPTED = 2, 1, 130


@click.command(
    cls=AnyTextCommand,
    epilog="""Examples:

\b
  instrument-build 'make CC=$CC'
  instrument-build 'PATH=$COMPILERS:$PATH make'    # a makefile that calls gcc
  instrument-build 'cmake -B out && cmake --build out'

INSTRUMENT_SPEC names the metrics to count, see instrument-cc --help.

Exit status: that of COMMAND; 1 it cannot be run; 2 bad input.""",
)
@click.argument("command")
def main(command: str) -> None:
    """Run the build COMMAND in this directory, by the shell, as a campaign runs its `build:`.

    CC, CXX, AR, RANLIB, HOST and COMPILERS are set, and programs that the build makes and runs are started in the
    emulator. There they can write below this directory only. Flags such as CFLAGS are not inherited: give them in
    COMMAND.
    """
    from instrumenter.errors import InstrumenterError, SpecError

    try:
        status = build(command, Path.cwd())
    except SpecError as error:
        status = _complain(error, USAGE_ERROR)
    except (InstrumenterError, OSError) as error:
        status = _complain(error, WORK_FAILED)
    except KeyboardInterrupt:
        status = INTERRUPTED
    raise SystemExit(status)


def build(command: str, directory: Path) -> int:
    """Run a build command in ``directory``; its exit status, as shells give it where a signal ends it.

    Raises `SpecError` for the specification that the environment names, `SourceError` and `ToolchainError`.
    """
    from instrumenter.wrapper.environment_spec import WrapperSpec, spec_from_environment

    target = (spec_from_environment() or WrapperSpec()).target
    Toolchain(target).prepare()  # first, since otherwise several compilers would wait for it
    environment = project_tree.build_environment(_compilers(target), {}, target)
    with contextlib.ExitStack() as stack:
        if target == GUEST_TARGET:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="build-")))
            run = stack.enter_context(made_programs.serving(folder, directory))
            environment |= made_programs.variables(run)
        status = subprocess.run(["/bin/sh", "-c", command], cwd=directory, env=environment).returncode
    return status if status >= 0 else 128 - status


def _compilers(target: str) -> Path:
    """The folder of the compilers for ``target``. It stays the same, since build trees of cmake name it."""
    written_by = source_digest([Path(project_tree.__file__), Path(openmp.__file__)])
    identity = [str(Path(__file__)), sys.executable, target, written_by]
    place = cache_directory() / "runtime" / f"compilers-{hashlib.sha256(json.dumps(identity).encode()).hexdigest()}"
    place.parent.mkdir(parents=True, exist_ok=True)
    marker = place / "whole"
    with shared_folders.locked(place.with_suffix(".lock")):
        if not marker.exists():
            shutil.rmtree(place, ignore_errors=True)
            project_tree.write_compilers(place, target)
            marker.touch()
    return place


def _complain(error: Exception, status: int) -> int:
    for line in str(error).splitlines():
        click.echo(f"instrument-build: error: {line}", err=True)
    return status
