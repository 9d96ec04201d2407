"""Builds in the bounded cache: loading one is a use, keeping one removes others, and other processes see whole ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from common.atomic_files import workspace
from common.build_cache import trim_builds
from common.file_cache import LIMIT_VARIABLE
from common.shared_folders import acquire
from instrumenter.building.program_build import keep_build, load_build
from instrumenter.projects.built_tree import BuiltTree, Project
from instrumenter.spec.counter_layout import CounterLayout
from measure.run_types import RunSpec
from measure.targets.program_file import program_of

ROOT = Path(__file__).parents[2]
LAYOUT = CounterLayout.of({}, "packed", True)
FACTS = {
    "sites": {}, "places": {}, "warnings": [], "notices": [], "text_bytes": 1, "static_instructions": 1,
    "program_bytes": 5000, "starts_threads": False,
}  # fmt: skip


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(LIMIT_VARIABLE, "20k")
    (tmp_path / "perturbation/builds").mkdir(parents=True)
    return tmp_path / "perturbation"


def keep(base: Path, digit: str, relinkable: bool = False) -> Path:
    place = base / "builds" / (64 * digit)
    with workspace(place.parent) as temporary:
        (temporary / "program").write_bytes(bytes(5000))
        (temporary / "build.json").write_text(json.dumps(FACTS))
        if relinkable:
            (temporary / "link.json").write_text('{"words": ["--static"], "symbols": []}')
        keep_build(temporary, place, LAYOUT)
    return place


def age(place: Path, hours: float) -> float:
    then = time.time() - hours * 3600
    os.utime(place / "build.json", (then, then))
    return (place / "build.json").stat().st_mtime


def is_free(lock: Path) -> bool:
    descriptor = acquire(lock, wait=False)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is not None


def test_loading_is_a_use(base: Path) -> None:
    place = keep(base, "a")
    age(place, 25)
    assert load_build(place, LAYOUT) is not None
    assert trim_builds(0, base)[1] == []
    age(place, 25)
    assert len(trim_builds(0, base)[1]) == 1


def test_a_process_that_loads_builds_keeps_them_from_being_cleared(base: Path) -> None:
    assert is_free(base / "builds.lock")
    assert load_build(base / "builds" / (64 * "0"), LAYOUT) is None  # it may build it next
    assert not is_free(base / "builds.lock")


def test_libraries_stay_for_a_build_that_is_linked_anew(base: Path) -> None:
    build = load_build(keep(base, "a"), LAYOUT)
    assert build is not None
    assert not build.relinkable
    assert is_free(base / "zig/libraries.lock") if (base / "zig").exists() else True
    build = load_build(keep(base, "b", relinkable=True), LAYOUT)
    assert build is not None
    assert build.relinkable
    assert not is_free(base / "zig/libraries.lock")


def test_keeping_a_build_removes_old_ones(base: Path) -> None:
    old = keep(base, "a")
    age(old, 25)
    new = keep(base, "b")
    assert (old.exists(), new.exists()) == (False, True)


@pytest.mark.parametrize("field", ["program", "build.json"])
def test_a_damaged_build_is_none(base: Path, field: str) -> None:
    place = keep(base, "a")
    (place / field).write_text("")
    assert load_build(place, LAYOUT) is None


def test_a_build_in_a_cache_that_cannot_be_written_is_loaded(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = keep(base, "a")

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        for name in ("utime", "mkdir", "rename"):
            patch.setattr(os, name, refuse)
        assert load_build(place, LAYOUT) is not None


def test_a_build_whose_notices_are_among_its_warnings_is_made_again(base: Path) -> None:
    """Earlier versions left such builds."""
    place = keep(base, "a")
    earlier = {key: value for key, value in FACTS.items() if key != "notices"}
    (place / "build.json").write_text(json.dumps(earlier))
    assert load_build(place, LAYOUT) is None


def test_every_run_is_a_use(base: Path) -> None:
    place = keep(base, "a")
    before = age(place, 25)
    spec = cast(RunSpec, SimpleNamespace(binary=str(place / "program"), layout_seed=None))
    assert program_of(spec) == bytes(5000)
    assert (place / "build.json").stat().st_mtime > before + 3600


_LOADER = """
import sys, time
from pathlib import Path
from instrumenter.building.program_build import load_build
from instrumenter.spec.counter_layout import CounterLayout
layout, place = CounterLayout.of({}, "packed", True), Path(sys.argv[1])
print("ready", flush=True)
seen = {True: 0, False: 0}
while not Path(sys.argv[2]).exists():
    build = load_build(place, layout)
    assert build is None or (build.text_bytes, build.warnings, build.sites) == (1, (), {}), build
    seen[build is None] += 1
    time.sleep(0.001)  # every load is a use: without a pause hardly any build would stay old until it is trimmed
print(seen[True], seen[False])
"""


def test_one_process_trims_while_another_loads(base: Path, tmp_path: Path) -> None:
    place, ended = keep(base, "a"), tmp_path / "ended"
    with subprocess.Popen(
        [sys.executable, "-c", _LOADER, str(place), str(ended)], env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, text=True,
    ) as loader:  # fmt: skip
        assert loader.stdout is not None
        assert loader.stdout.readline() == "ready\n"
        removed, until = 0, time.monotonic() + 60
        while removed < 40 and time.monotonic() < until:
            keep(base, "a")
            time.sleep(0.002)
            age(place, 25)
            removed += len(trim_builds(0, base)[1])
        time.sleep(0.5)  # on a busy machine the loader may not have run while there was no build
        ended.touch()
        out, _ = loader.communicate(timeout=60)
    assert loader.returncode == 0
    assert removed == 40
    assert min(map(int, out.split())) > 0  # it saw builds, and none


def test_a_project_that_is_found_counts_as_used(base: Path) -> None:
    tree = BuiltTree(base / "projects" / (64 * "c"), Project(base, "make", "program"))
    (tree.folder / "tree").mkdir(parents=True)
    (tree.folder / "tree/program").touch()
    marker = tree.folder / "built.json"
    marker.write_text('{"programs": ["program"], "outside": [], "outside_digest": ""}')
    os.utime(marker, (0, 0))
    os.utime(tree.folder, (0, 0))
    assert tree.is_whole()
    tree.mark_used()
    keep(base, "a")
    assert tree.folder.exists()
    os.utime(marker, (0, 0))
    os.utime(tree.folder, (0, 0))
    with tree.locked(shared=True):
        keep(base, "b")
    assert tree.folder.exists()
    keep(base, "d")
    assert not tree.folder.exists()
