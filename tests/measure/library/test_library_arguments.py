"""Arguments of library calls that are not allowed are refused, with what was got and what is expected."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import measure
from measure.arguments import check_number, check_word
from measure.cycle_close.tracer import BY_DEFAULT, TracerSettings
from measure.errors import ArgumentError
from tests.measure.library.library_campaign import write_campaign


@pytest.fixture(scope="module")
def result(few_fake_results: Path) -> measure.Result:
    return measure.load(few_fake_results)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"align_by": "x"}, "align_by: got 'x', expected one of dtw, progress"),
        ({"scale": "foo"}, "scale: got 'foo', expected one of zscore, rank"),
        ({"band": 2}, "band: got 2, expected a number of more than 0 and at most 1 (a fraction of the longer trace)"),
    ],
)
def test_of_merging(result: measure.Result, arguments: dict, message: str) -> None:
    with pytest.raises(ArgumentError, match=r"^results: got no directory, expected at least one that `measure run`"):
        measure.merge([])
    with pytest.raises(ArgumentError, match=f"^{re.escape(message)}"):
        measure.merge(result, **arguments)


def test_merging_by_estimated_progress_says_so(result: measure.Result) -> None:
    merged = measure.merge(result, align_by="progress")
    (told,) = [warning for warning in merged.attrs["warnings"] if warning.startswith("progress is estimated for ")]
    assert told.endswith(
        ", as if all events of counters took the same instructions: their reference events were not counted. Aligning "
        "by dtw needs none; a campaign with `ground_truth: true` counts them"
    )
    assert not any("progress is estimated" in warning for warning in measure.merge(result).attrs["warnings"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"method": "ful"},
            "method: got 'ful', expected one of auto, full, checkpoint, band, multiresolution",
        ),
        ({"band": -1}, "band: got -1, expected a number of more than 0 and at most 1 (a fraction of the longer trace)"),
        ({"step_penalty": -3}, "step_penalty: got -3, expected a number of at least 0 (variances of a channel)"),
    ],
)
def test_of_alignment(arguments: dict, message: str) -> None:
    frame = pd.DataFrame({"loads": np.arange(20.0), "stores": np.arange(20.0) ** 2})
    with pytest.raises(ArgumentError, match=f"^{re.escape(message)}"):
        measure.align(frame, frame, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"order": "foo"}, "order: got 'foo', expected one of unknown, interleaved, blocks"),
        (
            {"order": "Interleaved"},
            "order: got 'Interleaved', expected one of unknown, interleaved, blocks; did you mean 'interleaved'?",
        ),
        ({"delta": -1}, "delta: got -1, expected a number of more than 0 (a change of z = atanh(rho))"),
        (
            {"alpha": 2},
            "alpha: got 2, expected a number of more than 0 and less than 0.5 (the chance of any false alarm)",
        ),
    ],
)
def test_of_a_comparison(arguments: dict, message: str) -> None:
    random = np.random.default_rng(1)
    frames = [pd.DataFrame(random.poisson(1000, (60, 2)), columns=["loads", "stores"]) for _ in range(4)]
    with pytest.raises(ArgumentError, match=f"^{re.escape(message)}$"):
        measure.perturb(frames[:2], frames[2:], align=False, **arguments)


WRONG_SETTINGS = [
    ({"base": "3L"}, "base: got '3L', expected one of L, 2L"),
    ({"update": "foo"}, "update: got 'foo', expected one of sample, mean, never"),
    ({"unsampled": "foo"}, "unsampled: got 'foo', expected one of none, last, closest"),
    ({"warm_up": "foo"}, "warm_up: got 'foo', expected one of queues, lines"),
    ({"when_full": "foo"}, "when_full: got 'foo', expected one of oldest, closest"),
    ({"wait_step": -1}, "wait_step: got -1, expected a number of at least 0 and at most 10 (a fraction of"),
    ({"wait_step": 20}, "wait_step: got 20, expected a number of at least 0 and at most 10 (a fraction of"),
    (
        {"threshold": 25},
        "threshold: got 25, expected a number of more than 0 and at most 1 (a fraction of the base",
    ),
    ({"roll_back": "no"}, "roll_back: got 'no', expected True or False"),
    ({"predictor": 3}, "predictor: got 3, expected 'last' or 'rle-N' with N of at least 1"),
    ({"interval_instructions": 0}, "interval_instructions: got 0, expected a whole number of at least 1,000"),
]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *WRONG_SETTINGS,
        ({"samples_per_phase": -3}, "samples_per_phase: got -3, expected a whole number of at least 0 (samples)"),
    ],
)
def test_of_a_cycle_close_trace(arguments: dict, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{re.escape(message)}"):
        measure.cycleclose("no-program-is-looked-for.c", **arguments)


@pytest.mark.parametrize(("arguments", "message"), WRONG_SETTINGS)
def test_settings_of_a_trace_check_themselves(arguments: dict, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{re.escape(message)}"):
        TracerSettings(**arguments)
    with pytest.raises(ArgumentError, match=f"^{re.escape(message)}"):
        replace(BY_DEFAULT, **arguments)


def test_settings_that_are_allowed() -> None:
    TracerSettings(1000, warm_up="lines", wait_step=0, threshold=1, predictor="last")
    TracerSettings(int(np.int64(2000)), entries=1, warm_references=0, warm_branches=0, unsampled="none")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"interval_instructions": 10},
            "interval_instructions: got 10, expected a whole number of at least 1,000 (instr",
        ),
        ({"interval_instructions": 1.5e4}, "interval_instructions: got 15000.0, expected a whole number of at least"),
        ({"max_k": -1}, "max_k: got -1, expected a whole number of at least 1 (phases)"),
        ({"k": 0}, "k: got 0, expected a whole number of at least 1 (phases)"),
        ({"seed": "x"}, "seed: got 'x', expected a whole number"),
    ],
)
def test_of_phases(arguments: dict, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{re.escape(message)}"):
        measure.phases("no-program-is-looked-for.c", **arguments)


def test_a_file_of_vectors_takes_nothing_for_a_program(tmp_path: Path) -> None:
    (tmp_path / "e.bb").write_text("T:1:48 :3:24\nT:1:48 :3:24\n")
    with pytest.raises(ArgumentError, match=r"^arguments: got \('x',\), expected none for .*e.bb, a file of vectors"):
        measure.phases(tmp_path / "e.bb", ["x"])
    with pytest.raises(ArgumentError, match=r"^stdin: got .*text'\), expected none for .*e.bb, a file of vectors"):
        measure.phases(tmp_path / "e.bb", stdin=tmp_path / "text")
    with pytest.raises(ArgumentError, match=r"^interval_instructions: got 10000000, expected none for .*e.bb, a"):
        measure.phases(tmp_path / "e.bb", interval_instructions=10_000_000)
    with pytest.raises(ArgumentError, match=r"^exit_status: got 3, expected none for .*e.bb, a file of vectors"):
        measure.phases(tmp_path / "e.bb", exit_status=3)
    assert measure.phases(tmp_path / "e.bb").k == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"minutes": -1}, "minutes: got -1, expected a number of more than 0"),
        ({"minutes": 0}, "minutes: got 0, expected a number of more than 0"),
        ({"counters": 0}, "counters: got 0, expected a whole number of at least 1"),
        ({"most_replicates": 1}, "most_replicates: got 1, expected a whole number of at least 2"),
        ({"accept": "good"}, "accept: got 'good', expected one of equivalent, not perturbed"),
        ({"workers": 0}, "workers: got 0, expected a whole number of at least 1 (runs at once)"),
    ],
)
def test_of_a_partition(tmp_path: Path, arguments: dict, message: str) -> None:
    campaign = write_campaign(tmp_path)
    with pytest.raises(ArgumentError, match=f"^{re.escape(message)}"):
        measure.partition(campaign, out=tmp_path / "out", memory=tmp_path / "memory.sqlite", target="fake", **arguments)
    assert not (tmp_path / "out" / "partition.json").exists()


def test_numbers_and_words() -> None:
    check_number("n", np.float32(0.5), least=0, most=1)
    check_number("n", np.int64(5), least=5, whole=True)
    check_word("w", "a", ("a", "b"))
    for value in (float("nan"), True, "5", None):
        with pytest.raises(ArgumentError, match=r"^n: got .*, expected a number of at least 0$"):
            check_number("n", value, least=0)
    with pytest.raises(ArgumentError, match=r"^w: got None, expected one of a, b$"):
        check_word("w", None, ("a", "b"))
