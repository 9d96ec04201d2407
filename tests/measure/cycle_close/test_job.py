"""Programs that commands run several times: the same input for each run, and runs that differ."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from measure.cycle_close.job import Job, check_same_again
from measure.errors import MeasureError


def test_a_pipe_is_read_once_for_all_runs() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"input")
    os.close(writer)
    job = Job(Path("program"), (), Path("machine.yaml"), Path(f"/dev/fd/{reader}"))
    job.check_input()
    assert job.input() == job.input() == replace(job, samples=1).input() == b"input"
    os.close(reader)
    assert Job(Path("program"), (), Path("machine.yaml")).input() == b""


@pytest.mark.parametrize(
    ("again", "said"),
    [
        (
            [100, 205, 300],
            "interval 1 ends after 200 instructions in the first run and ends after 205 instructions in the second",
        ),
        ([100, 200], "interval 2 ends after 300 instructions in the first run and is missing in the second"),
        ([100, 200, 300], ""),
    ],
)
def test_two_runs_that_differ_are_not_compared(again: list[int], said: str) -> None:
    job, first, second = Job(Path("program"), (), Path()), np.array([100, 200, 300]), np.array(again)
    if not said:
        check_same_again(job, first, second)
        return
    with pytest.raises(MeasureError, match="program: the program did not do the same again") as error:
        check_same_again(job, first, second)
    assert said in str(error.value)
