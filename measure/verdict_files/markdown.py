"""Verdicts as Markdown, for the summary of a job or a comment on a change."""

from __future__ import annotations

import re

from measure.verdict_files.verdict_table import VerdictTable

_CODE = re.compile(r"(`[^`]+`)")
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!])")


def markdown_text(table: VerdictTable) -> str:
    """The file's text: what makes figures or verdicts wrong, a table of variants, and the findings as a list."""
    invalidations = [f"- {_with_commands(one.text)}" for one in table.invalidations]
    lines = [
        f"## {_escaped(table.title)}",
        "",
        *(["**Read this first:**", "", *invalidations, ""] if invalidations else []),
        f"| {' | '.join(map(_escaped, table.headings))} |",
        f"|{' --- |' * len(table.headings)}",
        *(f"| {' | '.join(map(_escaped, row))} |" for row in table.rows),
        "",
        *(f"- {_escaped(text)}" for text in table.failures),
        *(f"- {_with_commands(text)}" for text in table.findings),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _with_commands(text: str) -> str:
    """`_escaped`, with what stands between backticks as code, which can be copied."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(part if _CODE.fullmatch(part) else _SPECIAL.sub(r"\\\1", part) for part in parts)


def _escaped(text: str) -> str:
    """``text`` without markup and on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
