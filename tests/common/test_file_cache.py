"""The cache of translations: bounded, shared by processes, emptied by a command; files of others stay untouched."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from common import file_cache as kept
from common.file_cache import (
    OBJECTS,
    PROGRAMS,
    checked_or_made,
    clear,
    kept_files,
    limit_bytes,
    read_checked,
    trim,
    write_checked,
)
from emulator import cache_command

PAGE = 4096
HEAD = 12


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(kept.LIMIT_VARIABLE, raising=False)
    return tmp_path / "perturbation"


def path_of(directory: Path, number: int, folder: str = OBJECTS, suffix: str = "") -> Path:
    name = f"{number:064x}"[::-1]
    return directory / folder / name[:2] / f"{name[2:]}{suffix}"


def total(directory: Path) -> int:
    return sum(file.n_bytes for file in kept_files(directory))


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_what_is_used_stays(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = bytes(PAGE - HEAD)
    for number in range(8):
        write_checked(path_of(directory, number), body)
        age(path_of(directory, number), 100 - number)
    assert read_checked(path_of(directory, 0)) == body  # used now
    monkeypatch.setenv(kept.LIMIT_VARIABLE, str(8 * PAGE))
    write_checked(path_of(directory, 8), body)
    left = {number for number in range(9) if path_of(directory, number).exists()}
    assert left == {0, 4, 5, 6, 7, 8}  # three quarters of the limit


def test_never_more_than_the_limit(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kept.LIMIT_VARIABLE, "256k")
    for number in range(200):
        write_checked(path_of(directory, number, (OBJECTS, PROGRAMS)[number % 2]), bytes(100 * (number % 150)))
        assert total(directory) <= 256 << 10
    assert total(directory) > 128 << 10


def test_a_file_larger_than_the_limit_is_not_kept(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kept.LIMIT_VARIABLE, "8k")
    write_checked(path_of(directory, 1), bytes(20000))
    assert total(directory) == 0


@pytest.mark.parametrize("ledger", [b"", b"rubbish", b"-5"])
def test_a_damaged_ledger_is_made_anew(directory: Path, ledger: bytes) -> None:
    for number in range(5):
        write_checked(path_of(directory, number), bytes(PAGE))
    (directory / kept._LEDGER).write_bytes(ledger)
    write_checked(path_of(directory, 9), bytes(PAGE))
    assert int((directory / kept._LEDGER).read_bytes()) == total(directory) == 12 * PAGE


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "no magic"])
def test_damaged_files_are_ignored_and_replaced(directory: Path, damage: str) -> None:
    path, body = path_of(directory, 3), bytes(range(256)) * 20
    write_checked(path, body)
    raw = bytearray(path.read_bytes())
    if damage == "flipped":
        raw[len(raw) // 2] ^= 1
    elif damage == "no magic":
        raw[0] ^= 1
    path.write_bytes({"empty": b"", "cut": bytes(raw[:100])}.get(damage, bytes(raw)))
    assert read_checked(path) is None
    write_checked(path, body)
    assert read_checked(path) == body


_WRITER = """
import random, sys
from pathlib import Path
from common.file_cache import read_checked, write_checked
from tests_paths import path_of
directory, seed = Path(sys.argv[1]), int(sys.argv[2])
generator = random.Random(seed)
for _ in range(150):
    number = generator.randrange(60)
    body = bytes([number]) * (500 * number)
    found = read_checked(path_of(directory, number))
    assert found is None or found == body
    write_checked(path_of(directory, number), body)
"""


def test_many_processes_at_once(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "tests_paths.py").write_text(
        "def path_of(directory, number):\n"
        f"    name = f'{{number:064x}}'[::-1]\n"
        f"    return directory / {OBJECTS!r} / name[:2] / name[2:]\n"
    )
    root = Path(__file__).parents[2]
    environment = {
        **os.environ, "PYTHONPATH": f"{root}{os.pathsep}{tmp_path}", kept.LIMIT_VARIABLE: "300k",
    }  # fmt: skip
    processes = [
        subprocess.Popen([sys.executable, "-c", _WRITER, str(directory), str(seed)], env=environment)
        for seed in range(4)
    ]
    assert [process.wait(60) for process in processes] == [0] * 4
    assert 0 < total(directory) <= 300 << 10
    assert not list(directory.rglob(".*.part"))


_MAKER = """
import sys, time
from pathlib import Path
from common.file_cache import checked_or_made

def make():
    with open(sys.argv[2], "a") as log:
        log.write("made\\n")
    time.sleep(0.5)
    return b"body"

assert checked_or_made(Path(sys.argv[1]), make) == b"body"
"""


def test_one_of_several_processes_makes_what_all_want(directory: Path, tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", _MAKER, str(path_of(directory, 1)), str(tmp_path / "log")]
    processes = [subprocess.Popen(arguments) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0] * 3
    assert (tmp_path / "log").read_text() == "made\n"
    write_checked(path_of(directory, 1), b"newer")
    subprocess.run([*arguments[:2], _MAKER.replace('== b"body"', '== b"newer"'), *arguments[3:]], check=True)


def test_what_cannot_be_kept_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert checked_or_made(tmp_path / "file" / "a" / "b" / "c", lambda: b"body") == b"body"


def strangers(directory: Path) -> list[Path]:
    """Files that are not ours, also where ours are and with names like ours."""
    write_checked(path_of(directory, 1), b"ours")
    folder = path_of(directory, 1).parent
    found = [
        directory / "builds" / "00" / ("0" * 62),
        directory / OBJECTS / "notes.txt",
        folder / "notes.txt",
        folder / ("a" * 62),  # a name like ours, something else inside
        folder / ("b" * 61),
        directory / PROGRAMS / "sources" / ("c" * 62),
    ]
    for path in found:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"not ours")
        age(path, 1e6)
    outside = directory.parent / "outside"
    outside.mkdir()
    (outside / ("d" * 62)).write_bytes(b"RVKEPT1\n not ours")
    (directory / OBJECTS / "ff").symlink_to(outside)
    (folder / ("e" * 62)).symlink_to(outside / ("d" * 62))
    return [*found, outside / ("d" * 62), folder / ("e" * 62)]


def test_nobody_elses_files_are_removed(directory: Path) -> None:
    others = strangers(directory)
    trim(0, directory)
    assert not path_of(directory, 1).exists()
    assert all(path.exists() for path in others)


def test_abandoned_temporary_files_go(directory: Path) -> None:
    write_checked(path_of(directory, 1), b"ours")
    folder = path_of(directory, 1).parent
    old, new = folder / ".old.1-0.part", folder / ".new.2-0.part"
    for path in (old, new):
        path.write_bytes(b"RVK")
    age(old, 7200)
    trim(1 << 30, directory)
    assert (old.exists(), new.exists(), path_of(directory, 1).exists()) == (False, True, True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 2 << 30), ("0", 0), ("12345", 12345), ("3k", 3 << 10), ("500M", 500 << 20), ("4G", 4 << 30)],
)
def test_the_limit(text: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kept.LIMIT_VARIABLE, text)
    assert limit_bytes() == expected


@pytest.mark.parametrize("text", ["many", "G", "-5", "1.5G"])
def test_a_limit_that_is_none(directory: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kept.LIMIT_VARIABLE, text)
    with pytest.raises(ValueError, match=rf"PERTURBATION_CACHE_LIMIT is '{text}': expected bytes"):
        limit_bytes()
    write_checked(path_of(directory, 1), b"kept all the same")
    assert read_checked(path_of(directory, 1)) == b"kept all the same"


def command() -> object:
    import click

    @click.command()
    @click.option("--cache-stats", is_flag=True, is_eager=True, expose_value=False, callback=cache_command.show_cache)
    @click.option("--cache-clear", is_flag=True, is_eager=True, expose_value=False, callback=cache_command.clear_cache)
    @click.argument("program")
    def main(program: str) -> None:
        click.echo(program)

    return main


def test_the_commands(directory: Path) -> None:
    others = strangers(directory)
    write_checked(path_of(directory, 3, PROGRAMS, ".regions"), bytes(3 * PAGE - HEAD))
    write_checked(path_of(directory, 4), bytes(10))
    runner = CliRunner()
    said = runner.invoke(command(), ["--cache-stats"]).output  # type: ignore[arg-type]
    rows = [line.split() for line in said.splitlines()]
    assert str(directory) in said
    assert ["3", "12", "KiB", "single", "objects:", "interpreters,", "regions"] in rows
    assert any(row[:4] == ["1", "12", "KiB", "programs:"] for row in rows)
    assert any(row[-2:] == ["in", "all"] for row in rows)
    assert any(row[3:6] == ["2.00", "GiB", "translations,"] for row in rows)
    cleared = runner.invoke(command(), ["--cache-clear"])  # type: ignore[arg-type]
    assert cleared.exit_code == 0
    assert ["3", "20", "KiB", "translations"] in [line.split() for line in cleared.output.splitlines()]
    assert [path for path in kept_files(directory) if path.path.read_bytes()[:3] == b"RVK"] == []
    assert all(path.exists() for path in others)
    assert clear() == (0, 0)
    assert runner.invoke(command(), ["prog"]).output == "prog\n"  # type: ignore[arg-type]


def test_the_commands_say_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kept.LIMIT_VARIABLE, "lots")
    said = CliRunner().invoke(command(), ["--cache-stats"])  # type: ignore[arg-type]
    assert said.exit_code == 1
    assert "PERTURBATION_CACHE_LIMIT is 'lots'" in said.output
