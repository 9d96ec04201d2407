"""Verdicts as Markdown, for the summary of a job or a comment on a change."""

from __future__ import annotations

import re

from measure.verdict_files.verdict_table import VerdictTable

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!])")


def markdown_text(table: VerdictTable) -> str:
    """The file's text: a table of variants, and the findings as a list."""
    lines = [
        f"## {_escaped(table.title)}",
        "",
        f"| {' | '.join(map(_escaped, table.headings))} |",
        f"|{' --- |' * len(table.headings)}",
        *(f"| {' | '.join(map(_escaped, row))} |" for row in table.rows),
        "",
        *(f"- {_escaped(text)}" for text in (*table.failures, *table.findings)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _escaped(text: str) -> str:
    """``text`` without markup and on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
