"""A finding: a sentence of a report, with what decides where a report shows it and what follows from it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Literal

FindingKind = Literal["statement", "advice", "remedy", "next"]
RESULTS = "{results}"
"""Stands in `Finding.in_results` for the directory of the results, as a command line has it."""
PYTHON_RESULTS = "{results!r}"
"""The same as a string of Python."""
_COMMAND = re.compile("`((?:measure|instrument|emulate) [^`]+)`")


@dataclass(frozen=True)
class Finding:
    """A sentence and what it is about. Reports choose findings by these fields, and render them as `text` last.

    ``sentence``: without the heading; what stands between backticks is code. ``kind``: one of

    - *statement*: what was found;
    - *advice*: what not to do with the runs of a comparison in which a change is shown;
    - *remedy*: the change to a campaign that was shown to help;
    - *next*: what to do next.

    ``variant``: the one that it is about, empty for the whole campaign; ``heading``: what the text names first;
    ``of_comparison``: whether that is the heading of one comparison, under which a report can list its findings.
    ``pair``: the name of the pair whose change the sentence states; ``until_explained``: whether an explanation of the
    variant takes its place. ``in_results``: the sentence where the directory of the results is known, with `RESULTS` or
    `PYTHON_RESULTS` in its place; empty if the sentence does not depend on it.
    """

    sentence: str
    kind: FindingKind = "statement"
    variant: str = ""
    heading: str = ""
    of_comparison: bool = False
    pair: str = ""
    until_explained: bool = False
    in_results: str = ""

    @property
    def text(self) -> str:
        """The whole finding in words."""
        return self.text_in("")

    def text_in(self, results: str) -> str:
        """`text` with commands that name the directory ``results``, as a command line has it; "": unknown."""
        start = f"{self.heading}: " if self.heading else "Next: " if self.kind == "next" else ""
        return start + self.sentence_in(results)

    def sentence_in(self, results: str) -> str:
        """The sentence alone; ``results`` as for `text_in`."""
        if not (results and self.in_results):
            return self.sentence
        text = self.in_results.replace(PYTHON_RESULTS, repr(shlex.split(results)[0]))
        return text.replace(RESULTS, results)

    def commands_in(self, results: str) -> tuple[str, ...]:
        """The commands of this framework among the code in the sentence; ``results`` as for `text_in`."""
        return tuple(dict.fromkeys(_COMMAND.findall(self.sentence_in(results))))
