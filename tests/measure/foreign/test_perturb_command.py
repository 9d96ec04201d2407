"""`measure perturb` end to end: the verdicts are those of `measure run` on the same numbers."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import jsonschema
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from numpy.typing import NDArray

from measure.analysis.analysis import SUMMARY_JSON_SCHEMA, analyse, summary
from measure.cli import _Commands
from measure.cli import main as measure
from measure.foreign.cli import perturb
from measure.library import comparisons
from measure.runs.executor import Outcome
from measure.runs.plan_file import load_plan
from measure.runs.store import Store
from measure.stats.synthetic import Disturbance, synthetic_program

ROOT = Path(__file__).parent.parent.parent.parent
METRICS = ("PAPI_TOT_INS", "PAPI_TOT_CYC", "misses")


@click.group(cls=_Commands)
def main() -> None:
    """As in the `measure` command."""


main.add_command(perturb)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["perturb", *(str(argument) for argument in arguments)])


def written(out: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((out / "summary.json").read_text())
    jsonschema.validate(document, SUMMARY_JSON_SCHEMA)
    assert document["format"] == "perturbation-perturb-2"
    return document


def write(path: Path, table: NDArray[np.float64], metrics: Sequence[str] = METRICS) -> Path:
    rows = [",".join(f"{value:g}" for value in row) for row in table]
    path.write_text("\n".join([",".join(metrics), *rows]) + "\n")
    return path


@pytest.fixture
def synthetic(tmp_path: Path) -> Path:
    """20 baselines, 5 runs of which nothing changed (null*) and 5 that are disturbed (bad*)."""
    program = synthetic_program(3, n_records=150, n_metrics=3)
    rng = np.random.default_rng(1)
    for n in range(20):
        write(tmp_path / f"base{n}.csv", program.run(rng))
    for n in range(5):
        write(tmp_path / f"null{n}.csv", program.run(rng))
        write(tmp_path / f"bad{n}.csv", program.run(rng, Disturbance(noise=3.0, n_metrics=2)))
    return tmp_path


def test_perturbed_and_not(synthetic: Path) -> None:
    out = synthetic / "out"
    result = invoke(
        "--baseline", *sorted(synthetic.glob("base*.csv")), "--run", f"null={synthetic}/null*.csv",
        "--run", f"bad={synthetic}/bad*.csv", "--out", out,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    document = written(out)
    assert document["runs"] == {"done": 30, "reused": 0, "failed": 0}
    assert document["hardware_metrics"] == list(METRICS)
    assert document["variants"]["bad"]["verdict"] == "perturbed"
    assert document["variants"]["bad"]["inner"]["verdict"] == "changed"  # by an amount that may be below delta
    assert document["variants"]["bad"]["inner"]["comparisons"] == 4  # two variants, within and across runs
    assert document["variants"]["bad"]["outer_held_out"]["verdict"] == "perturbed"
    assert document["variants"]["null"]["verdict"] != "perturbed"
    assert document["variants"]["null"]["overhead_percent"]["instructions"] == pytest.approx(0, abs=20)
    assert document["variants"]["null"]["overhead_percent"]["code"] is None
    assert [len(document["files"][group]) for group in ("baseline", "null", "bad")] == [20, 5, 5]
    page = (out / "report.html").read_text()
    assert "<h1>out</h1>" in page
    assert page.count("data:image/svg+xml") == 5
    assert "perturbed" in result.output


def test_a_file_that_stands_out_is_told_first(synthetic: Path) -> None:
    odd = synthetic / "null4.csv"
    first, *rows = odd.read_text().splitlines()
    values = np.array([[float(one) for one in row.split(",")] for row in rows])
    values[:, 2] *= 400
    write(odd, values, first.split(","))
    done = invoke(
        "--baseline", *sorted(synthetic.glob("base*.csv")), "--run", f"null={synthetic}/null*.csv", "--no-align",
        "--out", synthetic / "out",
    )  # fmt: skip
    assert re.search(r"^! File null4.csv of null stands out: misses", done.output, re.MULTILINE), done.output
    (told,) = written(synthetic / "out")["outlying_runs"]
    assert told["runs"] == ["file null4.csv"]


def test_options_reach_the_analysis(synthetic: Path) -> None:
    out = synthetic / "out"
    result = invoke(
        "--no-align", "--metrics", "misses,PAPI_TOT_INS", "--delta", "3", "--alpha", "0.01", "--baseline",
        f"{synthetic}/base*.csv", "--run", f"{synthetic}/bad*.csv", "--out", out,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    document = written(out)
    assert document["hardware_metrics"] == ["misses", "PAPI_TOT_INS"]
    variant = document["variants"]["instrumented"]
    assert (variant["outer_joint"], variant["outer_held_out"]) == (None, None)
    assert (variant["inner"]["delta"], variant["inner"]["alpha"]) == (3, 0.01)
    assert variant["verdict"] == "equivalent"  # no change of z can exceed 3 by much


@pytest.mark.parametrize(
    ("before", "after", "instructions_percent"),
    [
        (("instructions",), ("instructions:u",), 100),
        (("cpu_core/instructions/",), ("cpu_core/instructions/u",), 100),
        (
            ("cpu_core/instructions/", "cpu_atom/instructions/"),
            ("cpu_core/instructions/", "cpu_atom/instructions/"),
            100,
        ),
        (("cpu_core/instructions/",), ("cpu_core/instructions/", "cpu_atom/instructions/"), None),
        (("cpu_core/instructions/",), ("cpu_atom/instructions/",), None),
    ],
)
def test_the_overhead_on_processors_with_two_kinds_of_cores(
    before: tuple[str, ...], after: tuple[str, ...], instructions_percent: float | None
) -> None:
    random = np.random.default_rng(1)

    def frame(names: tuple[str, ...], mean: int) -> pd.DataFrame:
        table = pd.DataFrame(random.poisson(50, (40, 2)), columns=["loads", "stores"])
        return table.assign(**{name: [mean - 1, mean + 1] * 20 for name in names})

    found = comparisons.perturb([frame(before, 1000) for _ in "12"], [frame(after, 2000) for _ in "12"], align=False)
    expected = float("nan") if instructions_percent is None else instructions_percent
    assert found.verdicts["instructions_percent"][0] == pytest.approx(expected, nan_ok=True)


def test_software_metrics_and_unknown_overhead(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    for n in range(4):
        write(tmp_path / f"base{n}.csv", rng.poisson(50, (60, 2)).astype(float), ("a", "b"))
    for n in range(2):
        write(tmp_path / f"run{n}.csv", rng.poisson(50, (60, 3)).astype(float), ("a", "b", "calls"))
    out = tmp_path / "out"
    result = invoke("--baseline", f"{tmp_path}/base*.csv", "--run", f"{tmp_path}/run*.csv", "--no-align", "--out", out)
    assert result.exit_code == 0, result.output
    document = written(out)
    assert document["variants"]["instrumented"]["software_metrics"] == ["calls"]
    assert document["variants"]["instrumented"]["overhead_percent"] == {
        "instructions": None,
        "cycles": None,
        "code": None,
    }
    assert any("the overhead is unknown" in finding for finding in document["findings"])
    page = (out / "report.html").read_text()
    assert not re.search(r"\bnan\b", re.sub(r'src="data:[^"]*"', "", page) + json.dumps(document) + result.output)
    assert page.count("unknown") > 3
    assert "overhead is unknown, so correlations are not drawn" in page
    assert "calls was measured in 2 of 6 traces only: it is not compared." in document["findings"]


def test_errors_have_status_2_and_leave_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n1,x\n")
    (tmp_path / "b.csv").write_text("a,b\n1,2\n1,2\n")
    (tmp_path / "c.csv").write_text("a,b\n1,2\n1,2\n")
    out = tmp_path / "out"
    result = invoke("--baseline", tmp_path / "a.csv", tmp_path / "b.csv", "--run", tmp_path / "c.csv", "--out", out)
    assert result.exit_code == 2
    assert f"measure: {tmp_path}/a.csv:3: column 'b': got 'x', expected a number" in result.output
    assert not out.exists()
    result = invoke("--baseline", tmp_path / "b.csv", "--run", tmp_path / "c.csv")
    assert result.exit_code == 2
    assert "1 baseline trace, expected at least 2" in result.output
    assert invoke("--baseline", tmp_path / "b.csv").exit_code == 2
    result = invoke(f"--run={tmp_path}/c.csv", f"--baseline={tmp_path}/a.csv", tmp_path / "b.csv")
    assert "a.csv:3: column 'b'" in result.output
    result = invoke(tmp_path / "a.csv", "--run", tmp_path / "c.csv", "--baseline", tmp_path / "b.csv")
    assert "unexpected extra argument" in result.output


def test_the_name_of_a_variant_holds_for_the_files_that_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It held for the first file only, so that `--run heavy=r0.csv r1.csv` made two variants."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd=name.csv").touch()

    def runs(*arguments: str) -> tuple[str, ...]:
        given: tuple[str, ...] = perturb.make_context("perturb", ["--baseline", "b=0.csv", *arguments]).params["runs"]
        return given

    assert runs("--run", "heavy=r0.csv", "r1.csv") == ("heavy=r0.csv", "heavy=r1.csv")
    assert runs("--run=heavy=r0.csv", "r1.csv", "light=s0.csv", "s1.csv", "--seed", "2", "--run", "t.csv") == (
        "heavy=r0.csv", "heavy=r1.csv", "light=s0.csv", "light=s1.csv", "t.csv",
    )  # fmt: skip
    assert runs("--run", "r0.csv", "heavy=r1.csv", "odd=name.csv", "d=1/r2.csv") == (
        "r0.csv", "heavy=r1.csv", "heavy=odd=name.csv", "d=1/r2.csv",
    )  # fmt: skip
    assert runs("--run", "heavy=dir/r*.csv", "--no-align", "--run", "r.csv") == ("heavy=dir/r*.csv", "r.csv")


@pytest.mark.slow
def test_verdicts_equal_those_of_a_campaign_on_its_own_traces(tmp_path: Path) -> None:
    """A campaign on the fake target, whose variant *perturbing* perturbs; then its Parquet files, as foreign ones."""
    program = (
        "int state;\nvoid work(void) { state++; }\nvoid hard(void) { state += 2; }\n"
        "int main(void) { for (int n = 0; n < 9; n++) { work(); hard(); } return 0; }\n"
    )
    (tmp_path / "demo.c").write_text(program)
    (tmp_path / "c.yaml").write_text(
        f"name: demo\nprogram: {{source: demo.c}}\nmachine: {ROOT}/configs/machines/desktop.yaml\n"
        "sampling: {every: 4000 cycles}\nhardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS, PAPI_BR_MSP]\n"
        "software_metrics:\n  rounds: {event: entry, function: work}\n"
        "  perturbing: {event: entry, function: hard}\n"
        "variants: {light: [rounds], heavy: [rounds, perturbing]}\nbaselines: 8\nreplicates: 3\nseed: 7\n"
    )
    made = CliRunner().invoke(
        measure, ["run", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "out"), "--target", "fake"]
    )
    assert made.exit_code == 0, made.output
    plan = load_plan(tmp_path / "out")
    with Store(tmp_path / "out") as store:
        loaded = [store.load(key, spec)[0] for key, spec in zip(plan.keys, plan.specs, strict=True)]
    runs = tuple(run for run in loaded if run is not None)
    outcome = Outcome(runs, (), len(runs), ())
    expected = summary(analyse(plan, outcome), outcome)["variants"]
    ledger = sqlite3.connect(tmp_path / "out" / "ledger.sqlite")
    files: dict[str, list[Path]] = {}
    for key, group in ledger.execute("select key, variant from runs order by variant, replicate"):
        files.setdefault(group, []).append(tmp_path / "out" / "traces" / f"{key}.parquet")
    ledger.close()
    arguments: list[object] = ["--baseline", *files["baseline"]]
    for group in ("light", "heavy"):
        arguments += ["--run", *(f"{group}={path}" for path in files[group])]
    again = tmp_path / "again"
    result = invoke(*arguments, "--seed", 7, "--out", again)
    assert result.exit_code == 0, result.output
    found = written(again)["variants"]
    assert found["heavy"]["verdict"] == expected["heavy"]["verdict"] == "perturbed"
    assert found["light"]["verdict"] == expected["light"]["verdict"] != "perturbed"
    for group in ("light", "heavy"):
        for kind in ("inner", "outer_joint", "outer_held_out"):
            assert found[group][kind] == json.loads(json.dumps(expected[group][kind]))
        assert found[group]["overhead_percent"] == expected[group]["overhead_percent"] | {"code": None}
    assert found["heavy"]["software_metrics"] == ["rounds", "perturbing"]


def test_the_order_of_runs_weakens_verdicts_and_is_told(synthetic: Path) -> None:
    arguments = [
        "--no-align",
        "--baseline",
        f"{synthetic}/base*.csv",
        "--run",
        f"{synthetic}/bad*.csv",
        "--delta",
        "0.05",
    ]
    plain = invoke(*arguments, "--order", "interleaved", "--out", synthetic / "plain")
    blocks = invoke(*arguments, "--order", "blocks", "--out", synthetic / "blocks")
    assert (plain.exit_code, blocks.exit_code) == (0, 0), blocks.output
    first, second = (written(synthetic / name) for name in ("plain", "blocks"))
    assert first["variants"]["instrumented"]["verdict"] == "perturbed"
    assert second["variants"]["instrumented"]["verdict"] == "changed"
    assert first["provenance"]["order of runs"] == "interleaved"
    assert any("All baselines were made before the instrumented runs" in text for text in second["findings"])
    assert not any("All baselines were made" in text for text in first["findings"])
