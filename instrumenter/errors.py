"""Errors of the instrumenter; messages name file and line where possible."""

from __future__ import annotations


class InstrumenterError(Exception):
    """Base class of the instrumenter's errors; the message is for the user."""


class SpecError(InstrumenterError):
    """A metric description is not valid. ``metric``: the metric that it is about, None if it is about no single one;
    ``others``: metrics that are known to be refused as well."""

    def __init__(self, message: str, metric: str | None = None, others: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.metric, self.others = metric, others


class SourceError(InstrumenterError):
    """The C source does not compile or cannot be instrumented. ``place``: the file and the line that cannot be, None
    if the error is about no single one."""

    def __init__(self, message: str, place: tuple[str, int] | None = None) -> None:
        super().__init__(message)
        self.place = place


class CompileFailure(SourceError):
    """The compiler or the linker refused the sources of a program.

    ``errors``: the first of its errors, with ``file:line`` where it named one; ``undefined``: the names among them that
    the linker missed; ``missing_header``: the first header among them that is not there.
    """

    def __init__(
        self, message: str, errors: tuple[str, ...] = (), undefined: tuple[str, ...] = (),
        missing_header: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.errors, self.undefined, self.missing_header = errors, undefined, missing_header


class BuildFailure(SourceError):
    """The build command of a project failed.

    ``one_by_one``: whether it may succeed if it makes one file after the other; ``tests``: the targets of its makefile
    that failed and run tests; ``first_error``: the first line of the first error that it printed, empty if there is
    none; ``other_compiler``: whether it used a compiler of this machine; ``advises_command``: whether the message ends
    with a build command.
    """

    def __init__(
        self, message: str, one_by_one: bool = True, tests: tuple[str, ...] = (), first_error: str = "",
        other_compiler: bool = False, advises_command: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.one_by_one, self.tests, self.first_error = one_by_one, tests, first_error
        self.other_compiler, self.advises_command = other_compiler, advises_command


class MissingProgram(SourceError):
    """The build command ended well, but did not make the program. ``finding``: the message without what to do."""

    def __init__(self, message: str, finding: str = "") -> None:
        super().__init__(message)
        self.finding = finding


class ToolchainError(InstrumenterError):
    """The cross-compiler is missing, failed by itself, or took too long."""
