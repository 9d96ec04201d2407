"""Arguments of library calls of a wrong type are refused by name, with what was got and what is expected."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import measure
from measure.arguments import check_flag, items_of, list_of, path_of
from measure.errors import ArgumentError
from tests.measure.library.library_campaign import write_campaign

FRAME = pd.DataFrame({"loads": np.arange(60.0), "stores": np.arange(60.0) ** 2 % 7})
library: Any = measure  # whose types are not checked here
TWO_CAMPAIGNS = (
    "expected a list of traces, a pandas DataFrame for each run; two campaigns are compared by "
    "measure.compare(before, after)"
)


@pytest.fixture(scope="module")
def result(few_fake_results: Path) -> measure.Result:
    return measure.load(few_fake_results)


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    return write_campaign(tmp_path, 2, 1)


def refused(message: str) -> Any:
    return pytest.raises(ArgumentError, match=f"^{re.escape(message)}")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: library.run({"name": "demo"}), "campaign: got {'name': 'demo'}, expected a path (str or Path)"),
        (lambda: library.run(None), "campaign: got None, expected a path (str or Path)"),
        (lambda: library.run("c.yaml", out=3), "out: got 3, expected a path (str or Path)"),
        (lambda: library.run("c.yaml", progress="no"), "progress: got 'no', expected True or False"),
        (lambda: library.load(FRAME), "directory: got a value of type DataFrame, expected a directory of results, or"),
        (lambda: library.explain(None), "directory: got None, expected a directory of results, or a Result"),
        (lambda: library.compare(3, "b"), "before: got 3, expected a directory of results, or a Result"),
        (lambda: library.compare("a", [FRAME]), "after: got a value of type list, expected a directory of results, or"),
        (lambda: library.compare("a", "b", delta=0), "delta: got 0, expected a number of more than 0 (a change of z"),
        (lambda: library.partition(3), "campaign: got 3, expected a path (str or Path)"),
        (lambda: library.merge(3), "results: got 3, expected a directory of results, a Result, or a list of these"),
        (lambda: library.merge(["a", 3]), "results[1]: got 3, expected a directory of results, or a Result"),
        (lambda: library.phases(None), "program: got None, expected a path (str or Path)"),
        (lambda: library.phases("x.c", stdin=3), "stdin: got 3, expected a path (str or Path)"),
        (lambda: library.phases("x.c", "-n 3"), "arguments: got '-n 3', expected a list of arguments: write ['-n 3']"),
        (lambda: library.phases("x.c", simpoint32="no"), "simpoint32: got 'no', expected True or False"),
        (lambda: library.cycleclose("x.c", machine=3), "machine: got 3, expected a path (str or Path)"),
        (lambda: library.cycleclose("x.c", validate="no"), "validate: got 'no', expected True or False"),
        (lambda: library.phases("x.c", machine=3), "machine: got 3, expected a path (str or Path)"),
        (lambda: library.phases("x.c", settings=["a=1"]), "settings: got ['a=1'], expected a machine with it"),
        (lambda: library.phases("x.c", wait_step=0.1), "wait_step: got 0.1, expected a machine with it"),
        (lambda: library.phases("x.c", search="fast"), "search: got 'fast', expected one of all, bisect"),
    ],
)  # fmt: skip
def test_paths_and_truth_values(call: Callable[[], object], message: str) -> None:
    with refused(message):
        call()


@pytest.mark.parametrize("call", [library.phases, library.cycleclose])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"files": "a.txt"}, "files: got 'a.txt', expected a mapping of guest paths to paths here, such as {'/data':"),
        ({"files": ["a.txt"]}, "files: got ['a.txt'], expected a mapping of guest paths to paths here"),
        ({"files": {"/a": 3}}, "files['/a']: got 3, expected a path (str or Path)"),
        ({"files": {3: "a"}}, "files: got 3, expected a str as each key: a mapping of guest paths"),
        ({"files": {"a": "a"}}, "files: got 'a', expected an absolute guest path as each key, such as '/a'"),
        ({"root": 3}, "root: got 3, expected a path (str or Path)"),
        ({"root": "none"}, "root: got 'none', expected a directory, which the program sees as /"),
        ({"writable": "/data"}, "writable: got '/data', expected a list of guest paths: write ['/data']"),
        ({"writable": ["/data"]}, "writable: /data is in no mapped directory. Files that the guest writes elsewhere"),
        ({"environment": ["LANG=C"]}, "environment: got ['LANG=C'], expected a mapping of names to values, such as"),
        ({"environment": {"LANG": 3}}, "environment['LANG']: got 3, expected the value as a str"),
        ({"environment": {"LANG=C": ""}}, "environment: got 'LANG=C', expected a name without '=' as each key"),
        ({"machine": "m.yaml", "settings": "a=1"}, "settings: got 'a=1', expected a list of changes KEY=VALUE: write"),
    ],
)
def test_what_a_program_sees(call: Callable[..., object], arguments: dict[str, Any], message: str) -> None:
    with refused(message):
        call("x.c", **arguments)


def test_a_result_stands_for_its_directory(result: measure.Result) -> None:
    assert measure.load(result).verdicts.equals(result.verdicts)
    assert measure.merge([result]).equals(measure.merge(result))
    with pytest.raises(measure.CampaignError, match=r"out: no variant 'none'; it has light, heavy$"):
        measure.explain(result, variants=["none"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("delta=0.1", "settings: got 'delta=0.1', expected a list of changes KEY=VALUE: write ['delta=0.1']"),
        ({"delta": 0.1}, "settings: got {'delta': 0.1}, expected a list of changes KEY=VALUE"),
        ([("delta", 0.1)], "settings[0]: got ('delta', 0.1), expected a str"),
    ],
)
def test_settings(campaign: Path, tmp_path: Path, settings: Any, message: str) -> None:
    with refused(message):
        measure.run(campaign, out=tmp_path / "out", settings=settings)
    with refused(message):
        measure.partition(campaign, out=tmp_path / "out", settings=settings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shared": "PAPI_TOT_INS"}, "shared: got 'PAPI_TOT_INS', expected a list of names of metrics: write ['PAPI_"),
        ({"exact": "no"}, "exact: got 'no', expected True or False"),
        ({"resume": 0}, "resume: got 0, expected True or False"),
        ({"memory": 3}, "memory: got 3, expected a path (str or Path)"),
    ],
)
def test_options_of_a_partition(campaign: Path, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with refused(message):
        measure.partition(campaign, out=tmp_path / "out", **options)


def test_a_text_is_no_list_of_names(result: measure.Result) -> None:
    of_metrics = "got 'loads', expected a list of names of metrics: write ['loads']"
    with refused(f"metrics: {of_metrics}"):
        measure.perturb([FRAME, FRAME], [FRAME], metrics="loads")
    with refused(f"metrics: {of_metrics}"):
        measure.align(FRAME, FRAME, metrics="loads")
    with refused(f"channels: {of_metrics}"):
        measure.merge(result, channels="loads")
    with refused(f"metrics: {of_metrics}"):
        result.plot.trace("heavy", 0, metrics="loads")
    with refused("variants: got 'all', expected a list of names of variants: write ['all']"):
        measure.explain(result, variants="all")
    assert library.align(FRAME, FRAME, metrics=FRAME.columns).cost == 0


def test_frames(result: measure.Result) -> None:
    with refused("baseline: got <Result 'demo': "):
        library.perturb(result, result)
    with pytest.raises(ArgumentError, match=f"{re.escape(TWO_CAMPAIGNS)}$"):
        library.perturb(result, result)
    with refused(f"baseline: got 'before', {TWO_CAMPAIGNS}"):
        library.perturb("before", "after")
    with refused(f"baseline: got a value of type DataFrame, {TWO_CAMPAIGNS}"):
        library.perturb(FRAME, FRAME)
    with refused(f"runs: got a value of type DataFrame, {TWO_CAMPAIGNS}"):
        library.perturb([FRAME, FRAME], FRAME)
    with refused(f"runs['counted']: got a value of type DataFrame, {TWO_CAMPAIGNS}"):
        library.perturb([FRAME, FRAME], {"counted": FRAME})
    with refused("counted[0]: got 'a.csv', expected a pandas DataFrame"):
        library.perturb([FRAME, FRAME], {"counted": ["a.csv"]})
    with refused("align: got 'no', expected True or False"):
        library.perturb([FRAME, FRAME], [FRAME], align="no")
    with refused("a: got 'a', expected a pandas DataFrame, such as a Result's trace(...) gives"):
        library.align("a", "b")
    with refused("b: got 'b', expected a pandas DataFrame"):
        library.align(FRAME, "b")


def test_a_client(campaign: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    with refused("client: got 3, expected a Dask client, or the address of a scheduler, tcp://HOST:PORT or local:N"):
        library.run(campaign, out=tmp_path / "out", client=3)


def test_the_checks() -> None:
    assert path_of("p", "a/b") == path_of("p", Path("a/b")) == Path("a/b")
    assert items_of("i", (n for n in (1, 2)), "numbers") == items_of("i", np.array([1, 2]), "numbers") == (1, 2)
    assert list_of("l", {"a": 1}.keys(), "names") == ("a",)
    check_flag("f", False)
    with refused("p: got b'a', expected a path"):
        path_of("p", b"a")


def test_columns_without_numbers() -> None:
    """A bare ValueError and an AttributeError of pandas; and the imaginary parts were dropped."""
    text, many = FRAME.assign(loads="x"), pd.concat([FRAME, FRAME[["loads"]]], axis=1)
    with pytest.raises(measure.MeasureError, match=r"^b: column 'loads': got values of type .*, expected real numbers"):
        library.align(FRAME, text, metrics=["loads"])
    for arguments in ({}, {"metrics": ["loads"]}):
        with pytest.raises(measure.MeasureError, match=r"^a: loads named more than once: expected one column a metric"):
            library.align(many, FRAME, **arguments)
    parts = FRAME.assign(loads=FRAME["loads"] + 1j)
    of_parts = "column 'loads': got values of type complex128, expected real numbers"
    with pytest.raises(measure.MeasureError, match=of_parts):
        library.align(parts, parts, metrics=["loads"])
    with pytest.raises(measure.MeasureError, match=of_parts):
        library.perturb([parts] * 2, [parts])
    assert library.align(FRAME.convert_dtypes(), FRAME).cost == 0
