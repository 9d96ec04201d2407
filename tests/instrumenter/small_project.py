"""A project of one source for tests of builds."""

from __future__ import annotations

from pathlib import Path


def project_with(folder: Path, program: str) -> Path:
    """A directory ``folder``/project with the source app.c."""
    directory = folder / "project"
    directory.mkdir()
    (directory / "app.c").write_text(program)
    return directory
