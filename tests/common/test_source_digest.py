"""The hash of source files, and the copy of it that is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from common import source_digest as module
from common.source_digest import kept_source_digest, source_digest


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "sources"
    (folder / "inner").mkdir(parents=True)
    (folder / "one.py").write_text("a = 1\n")
    (folder / "inner" / "two.c").write_text("int a;\n")
    return folder


def changed_later(path: Path, text: str) -> None:
    path.write_text(text)
    about = path.stat()
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns + 1))


def test_the_kept_digest_is_the_digest(sources: Path) -> None:
    lone = sources / "one.py"
    for paths in ([sources], [lone], [lone, sources / "inner"]):
        assert kept_source_digest(paths) == source_digest(paths)
        assert kept_source_digest(reversed(paths)) == source_digest(paths)


def test_the_kept_digest_reads_no_source_again(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = kept_source_digest([sources])
    monkeypatch.setattr(module, "source_digest", lambda paths: pytest.fail("computed again"))
    assert kept_source_digest([sources]) == found


@pytest.mark.parametrize("change", ["content", "new file", "new folder", "removed", "renamed"])
def test_the_kept_digest_follows_every_change(sources: Path, change: str) -> None:
    before = kept_source_digest([sources])
    if change == "content":  # of the same size
        changed_later(sources / "inner" / "two.c", "int b;\n")
    elif change == "new file":
        (sources / "three.h").write_text("int c;\n")
    elif change == "new folder":
        (sources / "deep").mkdir()
        (sources / "deep" / "four.py").write_text("")
    elif change == "removed":
        (sources / "one.py").unlink()
    else:
        (sources / "one.py").rename(sources / "uno.py")
    after = kept_source_digest([sources])
    assert after == source_digest([sources])
    assert after != before


def test_other_files_do_not_count(sources: Path) -> None:
    before = kept_source_digest([sources])
    (sources / "notes.txt").write_text("none")
    assert kept_source_digest([sources]) == before


def test_a_missing_path_is_an_error(sources: Path) -> None:
    for digest in (source_digest, kept_source_digest):
        with pytest.raises(FileNotFoundError):
            digest([sources / "moved.py"])


def test_a_damaged_copy_is_made_again(sources: Path) -> None:
    found = kept_source_digest([sources])
    (kept,) = [
        path for path in (sources.parent / "cache" / "perturbation" / "translations").rglob("*") if path.is_file()
    ]
    kept.write_bytes(b"damaged")
    assert kept_source_digest([sources]) == found
    assert kept.read_bytes() != b"damaged"


def test_nothing_is_written_outside_of_the_folder(sources: Path) -> None:
    kept_source_digest([sources])
    assert [path.name for path in (sources.parent / "cache").iterdir()] == ["perturbation"]
