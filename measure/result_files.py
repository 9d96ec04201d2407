"""Writes files of results whole or not at all, and checks before the work that there is a place for them."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from common.atomic_files import filling
from measure.errors import CampaignError, StoreError

TRACES = "traces"
"""The folder, in a directory of results, where a store keeps runs (`measure.runs.store`)."""
SUMMARY_NAME = "summary.json"
"""Where a command whose results have a directory says what it found."""
MADE_BY = {
    "perturbation-run": "measure run",
    "perturbation-perturb": "measure perturb",
    "perturbation-check": "measure check-sampling",
    "perturbation-cycleclose": "measure cycleclose",
    "perturbation-phases": "measure phases",
    "perturbation-partition": "measure partition",
    "perturbation-explanation": "measure explain",
    "perturbation-comparison": "measure compare",
}
"""By the ``format`` of a result, without its version, the command that writes it."""


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a file that becomes ``path`` when it is whole and on the disk.

    Raises `StoreError` when the disk is full or not writable; nothing is left behind then. Only where a store keeps
    runs beside the file, or in its folder, does the message say that these stay.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with filling(path) as part:
            write(part)
    except OSError as error:
        kept = any((folder / TRACES).is_dir() for folder in path.parents[:2])
        raise StoreError(
            f"{path} cannot be written: {error.strerror or error}; make room or choose another place with --out, and "
            f"start again{': the runs that are finished stay where they are' if kept else ''}"
        ) from error


def write_text_atomically(path: Path, text: str) -> None:
    """`write_atomically` for a text in UTF-8."""
    write_atomically(path, lambda to: to.write_text(text, encoding="utf-8"))


def write_result(path: Path, content: Mapping[str, Any]) -> None:
    """Write what a command found, as JSON; by its ``format``, other commands know whose results these are.

    Raises `StoreError`, and `KeyError` for a format that `MADE_BY` does not have.
    """
    MADE_BY[_without_version(content["format"])]
    write_text_atomically(path, json.dumps(content, indent=1, allow_nan=False))


def check_file_place(path: Path, option: str = "--out") -> None:
    """Check before the work that a file can be written to ``path``, which ``option`` gives; leaves nothing there.

    Raises `CampaignError` when its directory is missing or it is a directory itself, and `StoreError` when it cannot
    be written.
    """
    if path.is_dir():
        raise CampaignError(f"{path}: is a directory, expected the name of a file")
    if not path.parent.is_dir():
        raise CampaignError(
            f"{path}: no such directory: {path.parent}; make it first, or choose another place with {option}"
        )
    _try_to_write(path.parent, path, option)


def check_results_place(directory: Path, command: str = "", campaign: str = "", program: Path | None = None) -> None:
    """Check before the work that ``directory`` can hold results; it may be missing, and is not made.

    ``command``, ``campaign``, ``program``: whose results alone may be there already (`check_own_results`); an empty
    ``command`` for one whose files have names of their own. Raises `CampaignError` when it is a file or has other
    results, and `StoreError` when it cannot be written.
    """
    existing = next(parent for parent in (directory, *directory.absolute().parents) if parent.exists())
    if not existing.is_dir():
        raise CampaignError(f"{directory}: {existing} is a file, expected a directory for results")
    _try_to_write(existing, directory)
    if command:
        check_own_results(directory, command, campaign, program)


def is_writable(directory: Path) -> bool:
    """Whether files can be made and replaced in ``directory``, which is there."""
    return os.access(directory, os.W_OK | os.X_OK)


def check_writable_results(directory: Path, what: str) -> None:
    """Check before the work that ``what`` can be put beside the results in ``directory``. Raises `StoreError`."""
    if not is_writable(directory):
        raise StoreError(
            f"{directory} cannot be written, and {what} there: copy the directory to a place where you may write "
            f"(`cp -r`), and give the copy"
        )


def check_own_results(directory: Path, command: str, campaign: str = "", program: Path | None = None) -> None:
    """Check before the work that results in ``directory``, if there are any, may be replaced by those of ``command``.

    ``campaign``: its name, if the command runs one. ``program``: the file of it, for a command on a program: one of the
    same name in another folder has the same directory by default. Raises `CampaignError` for results of another
    command, campaign or program.
    """
    about, plan = (_json(directory / name) for name in (SUMMARY_NAME, "plan.json"))
    made_by = "measure run" if plan else MADE_BY.get(_without_version(str(about.get("format", ""))), command)
    what = ""
    if made_by != command:
        what = f"of `{made_by}`"
    elif campaign:
        name = plan.get("campaign", {}).get("name") or about.get("check", campaign)
        what = "" if name == campaign else f"of campaign '{name}'"
    elif program is not None:
        traced = Path(str(about.get("program", program)))
        what = "" if traced.resolve() == program.resolve() else f"of {traced}"
    if what:
        raise CampaignError(
            f"{directory}: has results {what}, which would be lost: choose another directory with --out, or remove it"
        )


def command_of(directory: Path) -> str | None:
    """The command whose results ``directory`` has, such as ``measure perturb``; None if that is not known."""
    formats = (str(_json(path).get("format", "")) for path in sorted(directory.glob("*.json")))
    return next((MADE_BY[name] for name in map(_without_version, formats) if name in MADE_BY), None)


def _without_version(format_name: str) -> str:
    return format_name.rpartition("-")[0]


def _json(path: Path) -> dict[str, Any]:
    """The mapping in a file; empty if there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _try_to_write(directory: Path, wanted: Path, option: str = "--out") -> None:
    try:
        os.rmdir(tempfile.mkdtemp(dir=directory, prefix=".perturbation-"))
    except OSError as error:
        raise StoreError(
            f"{wanted} cannot be written: {error.strerror or error}; choose another place with {option}"
        ) from None
