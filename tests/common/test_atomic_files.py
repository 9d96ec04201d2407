"""Files and directories appear whole or not at all, and nothing writes them in another way."""

from __future__ import annotations

import ast
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from common.atomic_files import (
    filling,
    is_leftover,
    move_directory,
    move_file,
    remove_leftovers,
    workspace,
    write_bytes,
    write_text,
)

ROOT = Path(__file__).parents[2]
PACKAGES = ("common", "measure", "instrumenter", "experiments")


@pytest.mark.parametrize("durable", [True, False])
def test_the_old_content_stays_until_the_new_one_is_whole(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "result.csv"
    write_text(path, "old", durable=durable)
    with filling(path, durable=durable) as part:
        part.write_text("n")
        assert path.read_text() == "old"
        assert is_leftover(part.name)
        part.write_text("new")
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["result.csv"]


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt()])
def test_after_an_exception_nothing_is_left(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "result"
    write_bytes(path, b"o", b"ld")

    def fail() -> None:
        with filling(path) as part:
            part.write_text("half")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["result"]


def test_only_durable_files_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    write_text(tmp_path / "cache", "x", durable=False)
    assert flushed == []
    write_text(tmp_path / "result", "x")
    assert len(flushed) == 1


def test_what_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_text(tmp_path / "missing" / "result", "x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_text(tmp_path / "folder", "x")
    assert os.listdir(tmp_path) == ["folder"]


def test_a_pipe_is_written_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    found: list[str] = []
    reader.start()
    write_text(pipe, "content")
    reader.join()
    assert found == ["content"]
    assert pipe.is_fifo()


def test_threads_that_write_one_file_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    texts = [str(number) * 20_000 for number in range(8)]
    threads = [threading.Thread(target=write_text, args=(path, text), kwargs={"durable": False}) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in texts
    assert os.listdir(tmp_path) == ["shared"]


def test_files_have_the_mode_that_the_user_asks_for(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "result", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "result").stat().st_mode & 0o777 == 0o640


def test_a_workspace_is_removed_with_what_was_not_moved(tmp_path: Path) -> None:
    with workspace(tmp_path) as folder:
        (folder / "program").write_text("p")
        (folder / "rest").write_text("r")
        move_file(folder / "program", tmp_path / "program")
    assert os.listdir(tmp_path) == ["program"]


def test_a_signal_while_a_workspace_is_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = os.mkdir

    def make_and_be_ended(*arguments: Any) -> None:
        make(*arguments)
        raise SystemExit(143)  # as the handler of a signal does, at any instruction

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", make_and_be_ended)
        with pytest.raises(SystemExit), workspace(tmp_path):
            pass
    assert os.listdir(tmp_path) == []


def test_a_directory_stays_when_it_is_whole_and_is_replaced_when_it_is_damaged(tmp_path: Path) -> None:
    def make(text: str) -> str:
        with workspace(tmp_path) as folder:
            (folder / "facts").write_text(text)
            move_directory(folder, tmp_path / "build", lambda place: (place / "facts").is_file())
        assert os.listdir(tmp_path) == ["build"]
        return (tmp_path / "build" / "facts").read_text()

    assert make("first") == "first"
    assert make("second") == "first"  # another process was faster
    (tmp_path / "build" / "facts").rename(tmp_path / "build" / "other")
    assert make("third") == "third"
    assert (tmp_path / "build").stat().st_mode & 0o777 == 0o755


def test_leftovers_of_killed_processes_are_removed(tmp_path: Path) -> None:
    for name in (".a.csv.12-0.part", "a.csv", "b.part", ".hidden"):
        (tmp_path / name).write_text("x")
    remove_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".hidden", "a.csv", "b.part"]


def renames(path: Path) -> list[int]:
    """Lines that rename a file, or make a temporary one that would have to be renamed."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            by_system = owner == "os" and node.func.attr in ("rename", "replace", "fsync")
            temporary = owner == "tempfile" and node.func.attr in ("mkstemp", "NamedTemporaryFile")
            of_path = node.func.attr == "rename" and owner != "os" and not node.keywords
            if by_system or temporary or of_path:
                found.append(node.lineno)
    return found


def test_nothing_else_renames_files() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if path != ROOT / "common" / "atomic_files.py" and "inputs" not in path.parts
        for line in renames(path)
    ]
    assert not wrong, f"expected common.atomic_files: {', '.join(wrong)}"
