"""Writes what continuous integration reads after a command: files, annotations, and the exit status."""

from __future__ import annotations

import os

import click

from measure.result_files import write_text_atomically
from measure.verdict_files.annotations import github_lines
from measure.verdict_files.junit import junit_text
from measure.verdict_files.markdown import markdown_text
from measure.verdict_files.options import EXIT_STATUS, STANDS_FOR, VerdictOptions
from measure.verdict_files.verdict_table import VerdictTable


def deliver(table: VerdictTable, options: VerdictOptions) -> int:
    """Write the files of ``options``, print annotations if GitHub Actions runs this, and return the exit status.

    Raises `StoreError` for files that cannot be written.
    """
    failing = options.failing
    if options.junit is not None:
        write_text_atomically(options.junit, junit_text(table, failing or STANDS_FOR["perturbed"]))
    if options.markdown is not None:
        write_text_atomically(options.markdown, markdown_text(table))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in github_lines(table, failing):
            click.echo(line)
    return EXIT_STATUS if table.fails(failing) else 0
