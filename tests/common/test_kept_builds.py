"""The cache of builds and projects: bounded, never what was used within a day, whole for processes that look."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import atomic_files, build_cache
from common.build_cache import (
    DAY_SECONDS,
    clear_builds,
    kept_builds,
    mark_used,
    note_build,
    trim_builds,
    trim_projects,
    unfinished_builds,
    use_builds,
)
from common.file_cache import LIMIT_VARIABLE
from common.shared_folders import disk_usage, locked

ROOT = Path(__file__).parents[2]
HOUR = 3600


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(LIMIT_VARIABLE, raising=False)
    return tmp_path / "perturbation"


def key(name: object) -> str:
    return hashlib.sha256(str(name).encode()).hexdigest()


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def make_build(base: Path, name: object, n_bytes: int = 8192, used: float = 0) -> Path:
    """A build that was used ``used`` seconds ago."""
    place = base / "builds" / key(name)
    place.mkdir(parents=True)
    (place / "program").write_bytes(bytes(n_bytes))
    (place / "build.json").write_text("{}")
    age(place / "build.json", used)
    return place


def make_project(base: Path, name: object, used: float = 0, finished: bool = True) -> Path:
    folder = base / "projects" / key(name)
    (folder / "tree").mkdir(parents=True)
    (folder / "tree/main.c").write_bytes(bytes(5000))
    folder.with_suffix(".lock").touch()
    if finished:
        (folder / "built.json").write_text("{}")
        age(folder / "built.json", used)
    age(folder, used)
    return folder


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_builds_not_used_for_a_day_go_when_the_limit_is_exceeded(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = [make_build(base, n, used=(40 - n) * HOUR) for n in range(10)]  # the first was not used for the longest time
    size = disk_usage(old[0]).n_bytes
    monkeypatch.setenv(LIMIT_VARIABLE, str(12 * size))
    for n in range(10, 12):
        note_build(make_build(base, n))
    assert all(place.exists() for place in old)
    mark_used(old[0] / "program")
    note_build(make_build(base, 12))
    left = [n for n, place in enumerate(old) if place.exists()]
    assert left == [0, 5, 6, 7, 8, 9]  # with three new ones, three quarters of the limit
    assert int((base / "builds.size").read_bytes()) == 9 * size
    assert hidden(base / "builds") == []


def test_builds_of_the_last_day_stay_and_are_looked_at_once_an_hour(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "10k")
    looks: list[Path] = []

    def look(base: Path) -> list[build_cache.KeptBuild]:
        looks.append(base)
        return kept_builds(base)

    monkeypatch.setattr(build_cache, "kept_builds", look)
    places = [make_build(base, n, used=23 * HOUR) for n in range(5)]
    for place in places:
        note_build(place)
    assert all(place.exists() for place in places)
    assert len(looks) == 2  # to count, and to remove
    total, pause_until = map(int, (base / "builds.size").read_bytes().split())
    assert total == sum(disk_usage(place).n_bytes for place in places) + 4 * disk_usage(places[0]).n_bytes
    assert 0 < pause_until - time.time() <= HOUR
    for place in places:
        age(place / "build.json", 25 * HOUR)
    (base / "builds.size").write_text(f"{total} {int(time.time()) - 1}")
    note_build(make_build(base, "new"))
    assert [place.exists() for place in places] == [False] * 5
    assert len(kept_builds(base)) == 1


def test_a_clock_that_was_wrong_does_not_stop_the_removal(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "10k")
    place = make_build(base, 1, used=25 * HOUR)
    (base / "builds.size").write_text(f"1000000 {int(time.time()) + 10 * HOUR}")
    note_build(make_build(base, 2))
    assert not place.exists()


@given(
    builds=st.lists(st.tuples(st.integers(0, 5), st.floats(0, 3 * DAY_SECONDS)), max_size=12),
    to_pages=st.integers(0, 40),
)
def test_trimming_keeps_the_most_recently_used_and_all_of_the_last_day(
    tmp_path_factory: pytest.TempPathFactory, builds: list[tuple[int, float]], to_pages: int
) -> None:
    base, limit = tmp_path_factory.mktemp("cache"), to_pages * 4096
    places = [make_build(base, n, 4096 * pages, used) for n, (pages, used) in enumerate(builds)]
    sizes = {place: disk_usage(place).n_bytes for place in places}
    used = {place: time.time() - (place / "build.json").stat().st_mtime for place in places}
    expected, total, is_full = set(), 0, False
    for place in sorted(places, key=lambda place: (used[place], place.name), reverse=False):
        is_full = is_full or total + sizes[place] > limit
        if not is_full or used[place] < DAY_SECONDS - 60:
            expected.add(place)
            total += sizes[place]
    left, moved = trim_builds(limit, base)
    kept = {place for place in places if place.exists()}
    assert left == sum(sizes[place] for place in kept)
    assert len(moved) == len(places) - len(kept)
    assert {place for place in kept ^ expected if abs(used[place] - DAY_SECONDS) > 60} == set()
    assert left <= limit or all(used[place] < DAY_SECONDS + 60 for place in kept)


def test_objects_that_builds_share_are_counted_for_the_last_used_one(base: Path) -> None:
    new, old = make_build(base, "new", used=30 * HOUR), make_build(base, "old", used=40 * HOUR)
    (new / "object").write_bytes(bytes(50_000))
    os.link(new / "object", old / "object")
    alone = disk_usage(old).n_bytes - 53_248
    assert [(build.path, build.n_bytes) for build in kept_builds(base)] == [
        (new, disk_usage(new).n_bytes), (old, alone)
    ]  # fmt: skip
    assert trim_builds(disk_usage(new).n_bytes + alone, base)[1] == []


def test_other_files_stay(base: Path) -> None:
    build = make_build(base, 1, used=1e6)
    others = [base / "builds/notes", base / "builds" / ("a" * 63), base / "projects/notes.log"]
    for path in others:
        path.mkdir(parents=True)
        age(path, 1e6)
    outside = base / "outside"
    outside.mkdir()
    link = base / "builds" / key("link")
    link.symlink_to(outside)
    trim_builds(-1, base)
    assert clear_builds(base).in_use is False
    assert not build.exists()
    assert all(path.exists() for path in (*others, outside, link))


def test_what_killed_processes_began_goes_after_a_day(base: Path) -> None:
    place = make_build(base, 1)
    for folder in ("builds", "projects"):
        for name, seconds in ((".making-old", 25 * HOUR), (".making-new", 23 * HOUR)):
            (base / folder / name).mkdir(parents=True)
            age(base / folder / name, seconds)
    assert unfinished_builds(base).number == 2
    note_build(place)
    assert hidden(base / "builds") == hidden(base / "projects") == [".making-new"]


def test_a_build_that_is_used_while_it_is_moved_comes_back(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used, unused = make_build(base, 1, used=30 * HOUR), make_build(base, 2, used=31 * HOUR)
    move_away: Callable[[Path], Path | None] = atomic_files.move_away

    def use_then_move(place: Path) -> Path | None:
        if place == used:
            mark_used(place / "program")
        return move_away(place)

    monkeypatch.setattr(build_cache, "move_away", use_then_move)
    left, moved = trim_builds(0, base)
    assert (used.exists(), unused.exists()) == (True, False)
    assert left == disk_usage(used).n_bytes
    assert len(moved) == 1


_READER = """
import sys, time
from pathlib import Path
from common.build_cache import mark_used
place, until = Path(sys.argv[1]), time.monotonic() + 20
print("ready", flush=True)
seen = 0
while time.monotonic() < until:
    names = None
    try:
        names = sorted(path.name for path in place.iterdir())
    except FileNotFoundError:
        break
    assert len(names) == 302 or not place.exists(), len(names)  # listed while it was moved
    seen += 1
print("seen", seen)
"""


def test_another_process_sees_the_whole_build_or_none(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "10k")
    place = make_build(base, 1, used=25 * HOUR)
    for n in range(300):
        (place / f"object {n}").write_bytes(bytes(10))
    with subprocess.Popen(
        [sys.executable, "-c", _READER, str(place)], env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, text=True,
    ) as reader:  # fmt: skip
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        time.sleep(0.2)
        note_build(make_build(base, 2))
        assert not place.exists()
        out, _ = reader.communicate(timeout=60)
    assert reader.returncode == 0
    assert int(out.split()[1]) > 0


def test_marking_a_use_needs_no_right_to_write(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = make_build(base, 1, used=100)
    before = (place / "build.json").stat().st_mtime_ns

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(os, "utime", refuse)
        patch.setattr(os, "open", refuse)
        use_builds()
        mark_used(place / "program")
        note_build(place)
    assert (place / "build.json").stat().st_mtime_ns == before
    mark_used(place / "program")
    assert (place / "build.json").stat().st_mtime_ns > before


def test_programs_of_others_are_not_marked(tmp_path: Path) -> None:
    (tmp_path / "build.json").touch()
    age(tmp_path / "build.json", 1000)
    before = (tmp_path / "build.json").stat().st_mtime_ns
    mark_used(tmp_path / "program")
    assert (tmp_path / "build.json").stat().st_mtime_ns == before


def test_projects_go_a_day_after_their_last_use(base: Path) -> None:
    old, new = make_project(base, "old", 25 * HOUR), make_project(base, "new", 23 * HOUR)
    killed, begun = make_project(base, "killed", 25 * HOUR, finished=False), make_project(base, "b", finished=False)
    used, failed = make_project(base, "used", 25 * HOUR), base / "projects" / f"{key('failed')}.log"
    failed.write_text("what went wrong")
    age(failed, 25 * HOUR)
    with locked(used.with_suffix(".lock"), shared=True):
        note_build(make_build(base, 1))  # of any kind
    assert [path.exists() for path in (old, new, killed, begun, used)] == [False, True, False, True, True]
    assert not failed.exists()
    assert {path.name for path in (base / "projects").iterdir()} == {
        name for folder in (new, begun, used) for name in (folder.name, f"{folder.name}.lock")
    }


def test_output_of_a_failed_build_stays_for_a_day(base: Path) -> None:
    log = base / "projects" / f"{key('failed')}.log"
    log.parent.mkdir(parents=True)
    log.write_text("what went wrong")
    age(log, 23 * HOUR)
    assert trim_projects(base) == []
    assert log.exists()


_USER = """
import sys
from common.build_cache import use_builds
use_builds()
print("ready", flush=True)
sys.stdin.read()
"""


def test_clearing_leaves_what_another_process_may_use(base: Path) -> None:
    build, project = make_build(base, 1), make_project(base, 1)
    with subprocess.Popen(
        [sys.executable, "-c", _USER], env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as user:  # fmt: skip
        assert user.stdout is not None
        assert user.stdout.readline() == "ready\n"
        assert clear_builds(base) == ((0, 0), (0, 0), True)
        assert (build.exists(), project.exists()) == (True, True)
        user.communicate("")
    sizes = disk_usage(build).n_bytes, disk_usage(project).n_bytes
    assert clear_builds(base) == ((1, sizes[0]), (1, sizes[1]), False)
    assert list((base / "builds").iterdir()) == list((base / "projects").iterdir()) == []
