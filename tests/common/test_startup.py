"""What a command loads for its end is loaded in another thread, and errors are told to who needs it."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from common.startup import load_meanwhile

THREAD = "modules for the end"


def wait_for_the_thread() -> None:
    for thread in threading.enumerate():
        if thread.name == THREAD:
            thread.join(10)
            assert not thread.is_alive()


def test_modules_are_loaded_beside_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "for_the_end.py").write_text("import threading\nLOADED_BY = threading.current_thread().name\n")
    monkeypatch.syspath_prepend(tmp_path)
    load_meanwhile("for_the_end")
    wait_for_the_thread()
    assert sys.modules["for_the_end"].LOADED_BY == THREAD
    monkeypatch.delitem(sys.modules, "for_the_end")


def test_a_module_that_cannot_be_loaded_is_told_where_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken_module.py").write_text("raise ValueError('broken')\n")
    monkeypatch.syspath_prepend(tmp_path)
    load_meanwhile("broken_module", "colorsys")
    wait_for_the_thread()
    assert "colorsys" in sys.modules  # the others are loaded all the same
    assert capsys.readouterr() == ("", "")
    with pytest.raises(ValueError, match="broken"):
        __import__("broken_module")
