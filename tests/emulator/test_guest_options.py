"""Options for a guest's files and environment: what they take, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from emulator.guest_options import Guest, guest_options


def given(folder: Path, *words: str) -> Guest | str:
    """What the command gets of an option line, or what is said about it; {} in it is ``folder``."""
    found: list[Guest] = []

    @click.command()
    @guest_options
    def command(guest: Guest) -> None:
        found.append(guest)

    result = CliRunner().invoke(command, [word.format(folder) for word in words])
    return found[0] if found else " ".join(result.output.split())


@pytest.mark.parametrize("words", [
    "--map /d={} --writable /d", "--map /d={} --writable /d/a/b", "--map /d/e={} --writable /d",
    "--root {} --writable /tmp", "--map /d={}/file --map /e={} --writable /e/.",
])  # fmt: skip
def test_a_guest_may_write_to_directories_of_the_host(tmp_path: Path, words: str) -> None:
    (tmp_path / "file").touch()
    assert isinstance(given(tmp_path, *words.split()), Guest)


@pytest.mark.parametrize("words", [
    "--writable /tmp", "--map /d={} --writable /e", "--map /d={}/file --writable /d",
    "--root {} --map /d={}/file --writable /d",
])  # fmt: skip
def test_what_would_have_no_effect_is_refused(tmp_path: Path, words: str) -> None:
    (tmp_path / "file").touch()
    told = given(tmp_path, *words.split())
    assert isinstance(told, str)
    assert f"--writable: {words.split()[-1]} is in no mapped directory. Files that the guest writes" in told.replace(
        "'", ""
    )


def test_variables_have_a_name_and_a_value(tmp_path: Path) -> None:
    guest = given(tmp_path, "--env", "A=1=2", "--env", "B=")
    assert isinstance(guest, Guest)
    assert guest.environment == {"A": "1=2", "B": ""}
    for wrong, right in (("FOO", "FOO="), ("=1", "NAME=")):
        told = given(tmp_path, "--env", wrong)
        assert isinstance(told, str)
        assert f"got '{wrong}', expected NAME=VALUE: {right}" in told
