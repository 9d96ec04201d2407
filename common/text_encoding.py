"""Commands where texts have characters that the encoding of the environment lacks, as under LC_ALL=C."""

from __future__ import annotations

import codecs
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

USAGE_ERROR = 2
_AS_FAR_AS_POSSIBLE = "perturbation-as-far-as-possible"


@contextmanager
def any_text(command: str) -> Iterator[None]:
    """Context of the work of ``command``: standard output and error show what their encoding lacks as escapes, and a
    file name that cannot be encoded ends the command with a message."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # notebooks and tests have others
            stream.reconfigure(errors=_AS_FAR_AS_POSSIBLE)
    try:
        yield
    except UnicodeEncodeError as error:
        encoding = sys.getfilesystemencoding()
        if codecs.lookup(encoding).name == "utf-8":
            raise
        lacking = ascii(error.object[error.start : error.end])
        text = (
            f"{command}: {error.object}: got a name with {lacking}, which the encoding of file names here, {encoding}, "
            "lacks: expected names in that encoding; set PYTHONUTF8=1 or LC_ALL=C.UTF-8, and start again"
        )
        print(text, file=sys.stderr)  # click's echo would encode it by a rule of its own
        raise SystemExit(USAGE_ERROR) from None


class AnyTextCommand(click.Command):
    """A command that works in `any_text`."""

    def invoke(self, context: click.Context) -> Any:
        """Invoke it."""
        with any_text(str(context.info_name)):
            return super().invoke(context)


def _as_far_as_possible(error: UnicodeError) -> tuple[str | bytes, int]:
    """What stands for text that an encoding lacks: the bytes of a file name that could not be decoded, else escapes,
    such as ``\\xfc``."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


codecs.register_error(_AS_FAR_AS_POSSIBLE, _as_far_as_possible)
