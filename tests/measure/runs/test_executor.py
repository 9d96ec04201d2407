"""Which runs of a plan are made after one that failed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from measure.errors import MeasureError, RunError
from measure.run_types import Run, RunSpec
from measure.runs.executor import Outcome, Workers, execute_plan, make_run
from measure.runs.store import Store


def fake_spec(number: int, *arguments: str) -> RunSpec:
    return RunSpec(
        "baseline", number, number, "key", "none", arguments, None, (), "machine", "m.yaml",
        ("PAPI_TOT_CYC", "PAPI_TOT_INS"), (), "ideal", 1000, "cycles", target="fake",
    )  # fmt: skip


class InThisProcess(Workers):
    """Makes the first ``ended`` runs when they are submitted, and none of the others."""

    def __init__(self, ended: int) -> None:
        super().__init__(1)
        self.futures: list[Future[Run | RunError]] = []
        self._ended = ended

    def submit(self, spec: RunSpec) -> Future[Run | RunError]:
        future: Future[Run | RunError] = Future()
        if len(self.futures) < self._ended:
            future.set_result(make_run(spec))
        self.futures.append(future)
        return future


def executed(specs: Sequence[RunSpec], folder: Path, ended: int) -> tuple[Outcome, list[bool]]:
    """What became of the specs, and for each whether its run was cancelled."""
    workers = InThisProcess(ended)
    with Store(folder) as store:
        outcome = execute_plan(specs, store, workers=workers)
    return outcome, [future.cancelled() for future in workers.futures]


def test_the_others_are_not_made_when_the_first_run_has_too_few_records(tmp_path: Path) -> None:
    specs = [fake_spec(number, "short") for number in range(4)]
    outcome, cancelled = executed(specs, tmp_path, ended=1)
    assert cancelled == [False, True, True, True]
    assert len(outcome.failures) == 1
    assert outcome.too_short == "the run has only 5 records of 1000 cycles"


def test_another_failure_of_one_run_stops_nothing(tmp_path: Path) -> None:
    specs = [fake_spec(0, "fail"), fake_spec(1)]
    outcome, cancelled = executed(specs, tmp_path, ended=2)
    assert cancelled == [False, False]
    assert (len(outcome.runs), len(outcome.failures), outcome.too_short) == (1, 1, "")


def test_the_rest_is_given_up_after_three_failures_only_while_nothing_is_known_to_succeed(tmp_path: Path) -> None:
    failing = [fake_spec(number, "fail") for number in range(1, 6)]
    outcome, cancelled = executed(failing, tmp_path / "new", ended=3)
    assert cancelled == [False, False, False, True, True]
    assert (len(outcome.failures), outcome.untried) == (3, tuple(failing[3:]))
    assert outcome.failure.startswith("3 runs failed (2 more were not tried), the first of variant 'baseline': ")
    assert outcome.incomplete[0] == "2 of 5 runs are missing: `measure run` makes them."
    executed([fake_spec(0)], tmp_path / "old", ended=1)
    outcome, cancelled = executed([fake_spec(0), *failing], tmp_path / "old", ended=5)
    assert not any(cancelled)
    assert (outcome.reused, len(outcome.failures), outcome.untried) == (1, 5, ())
    with pytest.raises(MeasureError, match="5 runs failed; the report is of the others"):
        outcome.check_complete()
    (told,) = outcome.incomplete
    assert told.startswith("5 of 6 runs failed (5 of 6 of baseline)")


def test_a_finished_run_is_not_lost_and_lets_the_others_be_made(tmp_path: Path) -> None:
    both = [fake_spec(0, "short"), fake_spec(1)]
    executed(both, tmp_path, ended=2)  # whichever of both is looked at first
    with Store(tmp_path) as store:
        assert execute_plan(both[1:], store).reused == 1
    outcome, cancelled = executed([both[1], both[0], fake_spec(2)], tmp_path, ended=2)
    assert not any(cancelled)
    assert (len(outcome.runs), outcome.too_short) == (2, "")


def test_runs_have_a_short_repr() -> None:
    run = make_run(fake_spec(3))
    assert repr(run) == "<Run 3 of 'baseline': <Trace of 300 records, 2 metrics>>"
    assert repr(fake_spec(3)) == "<RunSpec of run 3 of 'baseline', seed 3>"


def test_a_stored_run_keeps_what_the_program_started(tmp_path: Path) -> None:
    run = make_run(fake_spec(0))
    assert isinstance(run, Run)
    with Store(tmp_path) as store:
        for key, starts_tasks in (("one", False), ("other", True)):
            others = ("/worker",) if starts_tasks else ()
            store.save(key, replace(run, starts_tasks=starts_tasks, other_programs=others))
            found, _ = store.load(key, run.spec)
            assert found is not None
            assert (found.starts_tasks, found.other_programs) == (starts_tasks, others)


def test_counters_that_fail_alone_stop_nothing_whichever_runs_end_first(tmp_path: Path) -> None:
    counted = [replace(fake_spec(number, "fail"), variant="counted", build_key="other") for number in range(5)]
    outcome, cancelled = executed([*counted, fake_spec(5)], tmp_path, ended=6)
    assert not any(cancelled)
    assert (len(outcome.runs), len(outcome.failures), outcome.untried) == (1, 5, ())
