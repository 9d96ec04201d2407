"""The options --fail-on, --junit and --markdown, which commands with verdicts share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import click

FailOn = Literal["perturbed", "inconclusive"]
STANDS_FOR: dict[FailOn, tuple[str, ...]] = {
    "perturbed": ("perturbed", "changed"),
    "inconclusive": ("inconclusive", "not assessable"),
}
"""Verdicts that an argument of --fail-on stands for: those that show a change, and those that show nothing."""
EXIT_STATUS = 3


@dataclass(frozen=True)
class VerdictOptions:
    """``fail_on``: verdicts with which the command ends with `EXIT_STATUS`; ``junit``, ``markdown``: files to write."""

    fail_on: tuple[FailOn, ...] = ()
    junit: Path | None = None
    markdown: Path | None = None

    @property
    def failing(self) -> frozenset[str]:
        """The verdicts that fail."""
        return frozenset(verdict for one in self.fail_on for verdict in STANDS_FOR[one])

    def check_places(self) -> None:
        """Check before the work that the files can be written. Raises as `check_file_place`."""
        from measure.result_files import check_file_place

        for path, option in ((self.junit, "--junit"), (self.markdown, "--markdown")):
            if path is not None:
                check_file_place(path, option)


NO_OPTIONS = VerdictOptions()


def verdict_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --fail-on, --junit and --markdown to a command, which gets them as ``verdicts``, a `VerdictOptions`."""

    @click.option("--fail-on", multiple=True, metavar="VERDICTS", callback=_parsed,
                  help="End with exit status 3 at such a verdict: `perturbed` (which includes changed: a change is "
                       "shown), `inconclusive` (which includes not assessable: no absence of a change is shown, and "
                       "whatever makes figures wrong), or both with a comma between them; with either of them also "
                       "after a control that failed. Repeatable.")  # fmt: skip
    @click.option("--junit", type=click.Path(path_type=Path), metavar="FILE",
                  help="Also write the verdicts as JUnit XML; verdicts of --fail-on are failures, without it "
                       "perturbed and changed ones.")  # fmt: skip
    @click.option("--markdown", type=click.Path(path_type=Path), metavar="FILE",
                  help="Also write the verdicts as Markdown, such as $GITHUB_STEP_SUMMARY.")  # fmt: skip
    @functools.wraps(command)
    def with_verdicts(
        *args: Any, fail_on: tuple[FailOn, ...], junit: Path | None, markdown: Path | None, **others: Any
    ) -> Any:
        return command(*args, verdicts=VerdictOptions(fail_on, junit, markdown), **others)

    return with_verdicts


def _parsed(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """The verdicts of all values. Raises `click.BadParameter`."""
    from common.suggestions import nearest

    known = get_args(FailOn)
    found = [part.strip() for value in values for part in value.split(",")]
    for one in found:
        if one not in known:
            raise click.BadParameter(f"got '{one}', expected {' or '.join(known)}{nearest(one, known)}")
    return tuple(dict.fromkeys(found))
