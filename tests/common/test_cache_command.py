"""What `emulate --cache-stats` and `--cache-clear` print of builds, projects and the compiler's cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.compiler_cache import running
from common.file_cache import LIMIT_VARIABLE
from common.shared_folders import disk_usage, locked
from emulator.cache_command import clear_all, statistics

KIB = 1024


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two builds, one project, one that failed, both folders of the compiler, and a file of something else."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(LIMIT_VARIABLE, "3G")
    base = tmp_path / "perturbation"
    files = {
        f"builds/{1:064x}/program": 80, f"builds/{1:064x}/build.json": 1, f"builds/{2:064x}/program": 40,
        "builds/.making-x/program": 20, f"projects/{3:064x}/tree/main.c": 8, f"projects/{3:064x}.lock": 0,
        f"projects/{4:064x}.log": 1, "zig/local/o/1/object": 300, "zig/global/o/1/libc.a": 500,
        "zig/ready-0.17.1-host": 0, "partition.sqlite": 100,
    }  # fmt: skip
    for name, kibibytes in files.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(kibibytes * KIB))
    return base


def size(*paths: Path) -> str:
    """The size of ``paths`` on disk, which depends on the file system."""
    return f"{sum(disk_usage(path).n_bytes for path in paths) / KIB:.0f} KiB"


def lines(text: str) -> list[str]:
    """The lines without the widths of their columns."""
    return [" ".join(line.split()) for line in text.splitlines()]


def test_statistics(base: Path) -> None:
    said = statistics()
    assert lines(said)[:8] == [
        f"kept in {base}",
        "number on disk at most",
        "0 0 B 3.00 GiB translations",
        f"2 {size(*(base / f'builds/{n:064x}' for n in (1, 2)))} 3.00 GiB builds, 2 used in the last day",
        f"1 {size(base / 'builds/.making-x')} 1 day builds begun, not finished",
        f"1 {size(base / 'projects')} 1 day projects built by their own commands",
        f"3 {size(base / 'zig')} 3.00 GiB files of the compiler, libraries included",
        "1 100 KiB others: kernels, sources, verdicts, records",
    ]
    assert lines(said)[8].endswith(" MiB in all")
    assert max(map(len, said.splitlines()[1:])) <= 80


def test_what_is_removed(base: Path) -> None:
    expected = [
        f"removed from {base}",
        "0 0 B translations",
        f"2 {size(*(base / f'builds/{n:064x}' for n in (1, 2)))} builds",
        f"1 {size(base / f'projects/{3:064x}')} projects built by their own commands",
        f"1 {size(base / 'zig/local')} files of the compiler",
        f"1 {size(base / 'zig/global')} the compiler's libraries: built again when needed",
        "not removed",
        f"1 {size(base / 'builds/.making-x')} builds begun in the last day",
        "1 100 KiB others: kernels, sources, verdicts, records",
    ]
    said = clear_all()
    assert lines(said) == expected
    left = {str(path.relative_to(base)) for path in base.rglob("*") if path.is_file()}
    assert left == {
        "builds.lock", "builds/.making-x/program", "zig/lock", "zig/libraries.lock", "zig/sizes", "partition.sqlite"
    }  # fmt: skip
    assert max(map(len, said.splitlines()[1:])) <= 80


def test_what_is_in_use_is_not_removed(base: Path) -> None:
    before = {path for path in base.rglob("*") if path.is_file()}
    with locked(base / "builds.lock", shared=True), running(base / "zig"):
        said = lines(clear_all())
    assert said[2:6] == [
        "not removed",
        "builds and projects: in use by another process",
        "files of the compiler: in use by another process",
        "the compiler's libraries: in use by another process",
    ]
    assert before <= {path for path in base.rglob("*") if path.is_file()}


def test_a_compiler_cache_elsewhere_is_not_removed(base: Path) -> None:
    elsewhere = base.parent / "elsewhere"
    (base / "zig").rename(elsewhere)
    (base / "zig").symlink_to(elsewhere)
    assert "files of the compiler: zig is a link to another folder" in clear_all()
    assert (elsewhere / "global/o/1/libc.a").exists()


def test_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert lines(statistics())[2:4] == ["0 0 B 2.00 GiB translations", "0 B in all"]
    assert lines(clear_all()) == [
        f"removed from {tmp_path / 'perturbation'}",
        "0 0 B translations",
        "0 0 B builds",
        "0 0 B projects built by their own commands",
    ]
    assert not (tmp_path / "perturbation").exists()
