"""Runs that are made up, made without the processes that other runs need."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

from measure.errors import RunError
from measure.run_types import Run, RunSpec
from measure.runs import executor
from measure.runs.executor import Workers


@contextmanager
def fake_runs_in_this_process() -> Iterator[None]:
    """Within it, this process makes the runs on the target ``fake``: one takes a millisecond, starting a process a
    second."""
    submit, prepare = Workers.submit, Workers.prepare

    def submit_here(self: Workers, spec: RunSpec) -> Future[Run | RunError]:
        if spec.target != "fake":
            return submit(self, spec)
        future: Future[Run | RunError] = Future()
        future.set_result(executor.make_run(spec))
        return future

    def prepare_others(self: Workers, target: str, machine: str) -> None:
        if target != "fake":
            prepare(self, target, machine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Workers, "submit", submit_here)
        patch.setattr(Workers, "prepare", prepare_others)
        yield
