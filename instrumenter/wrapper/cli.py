"""The commands ``instrument-cc``, ``instrument-c++``, ``instrument-ar`` and ``instrument-ranlib``.

They take a compiler's place in a build, so they accept its options. They add one that no compiler has:
``--instrumented PROGRAM`` lists the metrics that are counted in a program. ``--help`` alone says what they are, before
the compiler's own help. `instrumenter.wrapper.environment_spec`
describes the environment variables that they read.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from instrumenter.wrapper.arguments import CommandLine

USAGE_ERROR, WORK_FAILED, TERMINATED, INTERRUPTED = 2, 1, 143, 130


def main_cc() -> None:
    """``instrument-cc``: takes gcc's and clang's command line, for the emulated machine."""
    raise SystemExit(compile_and_link(sys.argv[1:], "cc"))


def main_cplusplus() -> None:
    """``instrument-c++``: as `main_cc` for C++."""
    raise SystemExit(compile_and_link(sys.argv[1:], "c++"))


def main_ar() -> None:
    """``instrument-ar``: makes archives of objects."""
    _exec_tool("ar")


def main_ranlib() -> None:
    """``instrument-ranlib``: makes the index of such an archive."""
    _exec_tool("ranlib")


def main_ld() -> None:
    """``ld``: a makefile's own call of the linker, see `instrumenter.wrapper.linker_call`."""
    from instrumenter.errors import InstrumenterError
    from instrumenter.wrapper.linker_call import link

    try:
        words = link(sys.argv[1:], Path.cwd())
    except (InstrumenterError, OSError) as error:
        raise SystemExit(_complain(error, WORK_FAILED)) from None
    raise SystemExit(compile_and_link(words, "cc"))


def _exec_tool(tool: str) -> None:
    from instrumenter.compiler.toolchain import Toolchain

    toolchain = Toolchain()  # its tools are the same for all targets
    toolchain.become([*toolchain.tool(tool), *sys.argv[1:]])


def compile_and_link(arguments: Sequence[str], driver: str) -> int:
    """Execute a command line in the current directory; the exit status is the compiler's."""
    from instrumenter.errors import InstrumenterError, SpecError
    from instrumenter.wrapper.arguments import read_command_line
    from instrumenter.wrapper.listing import OUTSIDE_VARIABLE, note_left_out
    from instrumenter.wrapper.plain_compile import counts_nothing, plain_spec

    try:
        if arguments[:1] == ["--instrumented"]:
            return list_instrumented([Path(argument) for argument in arguments[1:]])
        if list(arguments) == ["--help"]:
            from instrumenter.wrapper.help_text import help_text

            sys.stdout.write(help_text(driver, sys.stdout.isatty()))
            if sys.stdout.isatty():
                return 0
        plain = plain_spec()
        target = plain.target if plain is not None else _target_of_environment()
        line = read_command_line(arguments, Path.cwd(), driver == "c++", target)
        note_left_out(line, Path.cwd())
        if plain is not None and plain.root and os.environ.get(OUTSIDE_VARIABLE):
            from instrumenter.wrapper.outside_files import note_outside_files

            note_outside_files(line, plain.target, driver, Path.cwd(), plain.root)
        if plain is not None and line.stage == "ask":
            _exec_compiler(line.plain_words(), plain.target, driver)
        if plain is not None and counts_nothing(line, plain, driver, Path.cwd()):
            _exec_compiler([*plain.flags, *line.plain_words()], plain.target, driver)
        return _compile_and_count(line, driver)
    except SpecError as error:
        return _complain(error, USAGE_ERROR)
    except (InstrumenterError, OSError) as error:
        return _complain(error, WORK_FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED


def _target_of_environment() -> str:
    """What a specification that somebody wrote compiles for. Raises `SpecError`."""
    from instrumenter.wrapper.environment_spec import WrapperSpec, spec_from_environment

    return (spec_from_environment() or WrapperSpec()).target


def _exec_compiler(words: Sequence[str], target: str, driver: str) -> NoReturn:
    """Let the compiler take this process's place."""
    from instrumenter.compiler.toolchain import Toolchain

    toolchain = Toolchain(target)
    sys.stdout.flush()
    toolchain.become(toolchain.command(words, driver))


def _compile_and_count(line: CommandLine, driver: str) -> int:
    """Execute a command line that links, or that may compile counters; the exit status is the compiler's."""
    from instrumenter.wrapper.compile_call import Wrapper, toolchain_of
    from instrumenter.wrapper.environment_spec import WrapperSpec, spec_from_environment

    signal.signal(signal.SIGTERM, _exit_on_signal)
    spec = spec_from_environment() or WrapperSpec()
    if line.stage == "ask":
        _exec_compiler(line.plain_words(), spec.target, driver)
    return Wrapper(line, Path.cwd(), spec, toolchain_of(spec), driver).run()


def list_instrumented(programs: Sequence[Path]) -> int:
    """Print the sites of each metric in programs; returns 1 if a metric of the spec is counted in none of them.

    Raises `SourceError` for a program that the wrapper did not link, or without counters, and `SpecError` for other
    files.
    """
    from instrumenter.errors import SpecError
    from instrumenter.wrapper.environment_spec import WrapperSpec, read_sites, spec_from_environment
    from instrumenter.wrapper.linked_program import check_linked_with_counters

    if not programs:
        raise SpecError("--instrumented: expected a program after it")
    spec = spec_from_environment() or WrapperSpec()
    totals = dict.fromkeys(spec.metrics, 0)
    for program in programs:
        check_linked_with_counters(program, spec.target)
        for note in sorted(read_sites(program), key=lambda note: str(note["source"])):
            counted = ", ".join(f"{metric} at {number}" for metric, number in sorted(note["sites"].items()))
            sys.stdout.write(f"{program}: {note['source']}: {counted}\n")
            for metric, number in note["sites"].items():
                totals[metric] = totals.get(metric, 0) + number
    without_sites = [metric for metric, number in totals.items() if not number]
    for metric in without_sites:
        sys.stderr.write(f"instrument-cc: error: metric '{metric}' has no site in the program\n")
    return WORK_FAILED if without_sites else 0


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    raise SystemExit(TERMINATED)  # as an exception, so that temporary files are removed


def _complain(error: Exception, status: int) -> int:
    for line in str(error).splitlines():
        sys.stderr.write(f"instrument-cc: error: {line}\n")
    return status
