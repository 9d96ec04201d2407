"""`measure doctor` tries the installation out and names what is wrong with it."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from measure.cli import main
from measure.console import doctor


def test_a_working_installation() -> None:
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 0, result.output
    assert "FAILS" not in result.output
    assert f"perturbation {metadata.version('perturbation')}" in result.output
    assert "all engines agree" in " ".join(result.output.split())
    assert max(map(len, result.output.splitlines())) <= 100  # a path cannot be broken


def test_each_failure_is_told_and_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # no directory can be made there
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 1
    failing = [line.split(":")[0] for line in result.output.splitlines() if line.startswith("FAILS")]
    assert failing[:2] == ["FAILS cache", "FAILS disk"]
    assert "unset NUMBA_DISABLE_JIT" in result.output
    assert "ok    host" in result.output


def test_packages_outside_their_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda name: ["numpy<1", "no-such-package>=2", "click; extra == 'test'"])
    found = next(check for check in doctor.examine() if check.name == "packages")
    assert found.state == "fails"
    assert "numpy" in found.text
    assert "expected <1; no-such-package is missing" in found.text


@pytest.mark.parametrize(("text", "processors"), [("150000 100000\n", 1.5), ("max 100000\n", None), ("damaged", None)])
def test_limits_of_the_control_group(text: str, processors: float | None, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert doctor.cgroup_processors(tmp_path) == processors
    assert doctor.cgroup_processors(tmp_path / "missing") is None


def test_engines_that_disagree_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_PROGRAM_OUTPUT", "another number")
    found = list(doctor.examine())[-1]
    assert found.state == "fails"
    assert "expected 'another number'" in found.text
