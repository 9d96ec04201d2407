"""The file that keeps a calibration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from measure.ground_truth.calibration import Calibration, _save, load_calibration
from measure.runs.program_progress import EventCurve

KEPT = Calibration(
    ("call f", "store x"), ("call g",), EventCurve(np.arange(0, 50, 5), np.arange(0, 1000, 100)), ("calls",),
    np.linspace(0, 900, 10), np.arange(10)[:, None], 45, 0.0, "calibration-1.npz",
)  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / KEPT.file_name
    _save(KEPT, path)
    return path


def test_a_calibration_is_read_as_it_was(file: Path) -> None:
    found = load_calibration(file)
    assert replace(found, curve=KEPT.curve, software_progress=KEPT.software_progress, software=KEPT.software) == KEPT
    assert (found.software == KEPT.software).all()
    assert (found.curve.events == KEPT.curve.events).all()


def altered(whole: bytes) -> bytes:
    """``whole`` with other data of its first member, after the 30 bytes of a header, the name and an extra field."""
    data = 30 + int.from_bytes(whole[26:28], "little") + int.from_bytes(whole[28:30], "little")
    return whole[:data] + b"\xff" * 8 + whole[data + 8 :]


@pytest.mark.parametrize("damage", [lambda whole: b"", lambda whole: whole[: len(whole) // 2], altered])
def test_a_damaged_calibration_is_told(file: Path, damage: Callable[[bytes], bytes]) -> None:
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match=r"calibration-1\.npz: "):
        load_calibration(file)
