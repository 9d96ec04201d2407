"""Results in a directory that cannot be written are read all the same, and what has to write there says so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import measure as library
from measure.runs.store import Store
from tests.measure.campaign.test_failed_runs import CAMPAIGN, PROGRAM, command, run
from tests.measure.demo_program import source_file


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results of a campaign, in a directory where nothing can be written, for root neither."""
    (tmp_path / "demo.c").symlink_to(source_file(PROGRAM))
    variants = "fails: [failing], light: [rounds], both: [rounds, failing]"
    (tmp_path / "c.yaml").write_text(CAMPAIGN.replace(variants, "light: [rounds]"))
    assert run(tmp_path).exit_code == 0
    access = os.access

    def refused(path: Any, mode: int, **options: Any) -> bool:
        return not (mode & os.W_OK and Path(path).is_relative_to(tmp_path / "out")) and access(path, mode, **options)

    monkeypatch.setattr(os, "access", refused)
    return tmp_path / "out"


def content(directory: Path) -> dict[Path, tuple[int, bytes]]:
    """Time and bytes of every file in ``directory``."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_a_library_call_and_a_merge_leave_them_as_they_are(results: Path) -> None:
    before = content(results)
    assert library.load(results, progress=False).variants == ("light",)
    merged = command("merge", results, "--out", results.parent / "m.parquet")
    assert merged.exit_code == 0, merged.output
    compared = command("compare", results, results, "--out", results.parent / "compared")
    assert compared.exit_code == 0, compared.output
    assert content(results) == before


def test_commands_that_write_there_say_what_helps(results: Path) -> None:
    before = content(results)
    for name in ("report", "explain"):
        result = command(name, results)
        assert result.exit_code == 1, result.output
        assert f"{results} cannot be written, and `measure {name}` " in result.output
        assert "copy the directory to a place where you may write (`cp -r`), and give the copy" in result.output
    assert content(results) == before


def test_a_ledger_or_lock_that_is_missing_is_not_made(results: Path) -> None:
    (results / "ledger.sqlite").unlink()
    (results / ".lock").unlink()
    assert len(library.load(results, progress=False).runs) == 12
    assert not {".lock", "ledger.sqlite"} & {path.name for path in results.iterdir()}


def test_readers_share_them_and_wait_for_a_writer(results: Path) -> None:
    with Store(results, only_read=True), Store(results, only_read=True) as store:
        assert store.finished()[0] == 18
    with Store(results):
        result = command("merge", results, "--out", results.parent / "m.parquet")
    assert result.exit_code == 1
    assert "another process is working in" in result.output
