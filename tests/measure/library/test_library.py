"""The Python API: campaigns, comparisons of frames, alignment, merging, phases, cycle-close traces, partitions."""

from __future__ import annotations

import json
import subprocess
import sys
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import emulator
import measure
from measure.cli import main
from measure.verdict_files.pair_tables import pair_rows
from tests.measure.library.library_campaign import ROOT, write_campaign

MACHINE = ROOT / "configs" / "machines" / "strongarm.yaml"


@pytest.fixture(scope="module")
def result(fake_results: Path) -> measure.Result:
    return measure.load(fake_results)


# --- campaigns
def test_verdicts_pairs_and_traces_are_frames(result: measure.Result) -> None:
    verdicts = result.verdicts.set_index(["variant", "comparison"])["verdict"]
    assert verdicts["heavy", "inner"] == "perturbed"
    assert verdicts["light", "inner"] != "perturbed"
    assert set(result.verdicts["comparison"]) == {"inner", "outer_joint", "outer_held_out"}
    pairs = result.pairs("heavy")
    assert len(pairs) == 3
    assert pairs.attrs == {"delta": 0.2, "alpha": 0.05}
    assert (pairs["ci_low"] <= pairs["delta_z"]).all()
    assert (pairs["delta_z"] <= pairs["ci_high"]).all()
    written = pd.DataFrame(pair_rows(result.report))
    of_heavy = written[(written["variant"] == "heavy") & (written["relation"] == "inner")].set_index(["a", "b"])
    for one in pairs.to_dict("records"):  # by the names of pairs.csv
        for name, value in one.items():
            if name not in ("a", "b"):
                assert value == of_heavy.loc[one["a"], one["b"]][name] or pd.isna(value)
    assert len(result.pairs("heavy", "outer_held_out")) == 3
    trace = result.trace("light", 1)
    assert trace.index.name == "seconds"
    assert trace.index.is_monotonic_increasing
    assert trace.attrs["units"] == {
        "begin_cycles": "cycles", "end_cycles": "cycles", "begin_instructions": "instructions",
        "end_instructions": "instructions", "PAPI_TOT_INS": "events", "PAPI_LD_INS": "events",
        "PAPI_BR_MSP": "events", "rounds": "events", "work": "sum of n",
    }  # fmt: skip
    light = next(variant.verdict for variant in result.report.variants if variant.name == "light")
    assert repr(result) == f"<Result 'demo': light {light}, heavy perturbed>"
    assert "<h3>demo</h3>" in result._repr_html_()
    assert result.failures == ()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda result: result.pairs("heavi"), "expected one of light, heavy; did you mean .heavy."),
        (lambda result: result.pairs("heavy", "outer"), "comparison 'outer': expected one of inner, outer_joint"),
        (lambda result: result.trace("heavy", 9), r"no run 9 of 'heavy': .*; it has the runs 0, 1, 2, 3"),
        (lambda result: result.plot.trace("heavy", 0, ["cycels"]), "heavy/0 has no metric 'cycels'"),
        (lambda result: measure.load(result.directory / "nothing"), "nothing"),
    ],
)  # fmt: skip
def test_what_does_not_exist_is_named(result: measure.Result, call: object, message: str) -> None:
    with pytest.raises(measure.MeasureError, match=message):
        call(result)  # type: ignore[operator]


def test_pictures_are_axes(result: measure.Result) -> None:
    axes = result.plot.pairs("heavy")
    assert axes.figure._repr_png_().startswith(b"\x89PNG")  # what a notebook shows
    assert len(axes.get_yticklabels()) == 3
    assert len(result.plot.trace("baseline", 0)) == 3
    assert len(result.plot.trace("heavy", 0, ["rounds"])) == 1
    assert len(result.plot.correlations("heavy")) == 3


def test_the_program_of_a_run_can_be_looked_at(result: measure.Result, tmp_path: Path) -> None:
    paths = [tmp_path / f"light-{n}" for n in (0, 1)]
    for n, path in enumerate(paths):
        result.write_program("light", n, path)
        assert path.stat().st_mode & 0o111
    first, second = (path.read_bytes() for path in paths)
    assert first[:4] == second[:4] == b"\x7fELF"
    assert first != second  # each in the layout of its run
    with pytest.raises(measure.MeasureError, match=r"no run 9 of 'light'"):
        result.write_program("light", 9, paths[0])


@pytest.mark.slow
def test_a_script_without_a_main_guard_runs_a_campaign(tmp_path: Path) -> None:
    write_campaign(tmp_path, baselines=2, replicates=1)
    (tmp_path / "script.py").write_text(
        "import measure\n"
        "result = measure.run('demo.yaml', workers=2)\n"
        "print(result.verdicts['variant'].tolist(), len(result.runs), result.directory)\n"
        "again = measure.run('demo.yaml', workers=2)\n"
        "assert again.verdicts.equals(result.verdicts)\n"
    )
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(Path.home())}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, env=environment, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['light', 'light', 'light', 'heavy', 'heavy', 'heavy'] 4 results/demo\n"
    assert done.stderr == ""  # no terminal, so no progress
    assert (tmp_path / "results" / "demo" / "report.html").exists()


def test_importing_it_loads_nothing_heavy() -> None:
    code = (
        "import sys, emulator, measure; dir(measure)\n"
        "print(sorted({'numpy', 'pandas', 'rich', 'click', 'pydantic', 'numba', 'llvmlite'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_name_of_it_exists() -> None:
    assert {name for name in measure.__all__ if callable(getattr(measure, name))} == set(measure.__all__)
    with pytest.raises(AttributeError, match="no attribute 'campain'"):
        _ = measure.campain
    assert {name for name in emulator.__all__ if callable(getattr(emulator, name))} == set(emulator.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Machin'"):
        _ = emulator.Machin


# --- frames of the caller
def frames(seed: int, count: int, coupling: float) -> list[pd.DataFrame]:
    """Runs of three metrics, the first two of which go together."""
    made = []
    for number in range(count):
        noise = np.random.default_rng([seed, number]).normal(size=(200, 3))
        noise[:, 1] = coupling * noise[:, 0] + (1 - coupling) * noise[:, 1]
        made.append(pd.DataFrame(1000 + 100 * noise, columns=["loads", "stores", "misses [lines]"]))
        made[-1].insert(0, "time_ms", np.arange(200))
    return made


def test_frames_are_compared() -> None:
    found = measure.perturb(frames(1, 12, 0.8), {"same": frames(2, 3, 0.8), "other": frames(3, 3, 0.1)})
    verdicts = found.verdicts.set_index(["variant", "comparison"])["verdict"]
    assert verdicts["other", "inner"] == "perturbed"
    assert verdicts["same", "inner"] != "perturbed"
    assert found.pairs("other").iloc[0][["a", "b"]].tolist() == ["loads", "stores"]
    one = measure.perturb(frames(1, 12, 0.8), frames(3, 3, 0.1), align=False)
    assert one.variants == ("instrumented",)
    assert set(one.verdicts["comparison"]) == {"inner"}
    with pytest.raises(measure.MeasureError, match="outer_joint was not compared"):
        one.pairs("instrumented", "outer_joint")
    assert len(one.plot.correlations("instrumented")) == 3


def test_two_campaigns_are_compared(fake_results: Path, few_fake_results: Path) -> None:
    result = measure.load(fake_results)
    found = measure.compare(result, few_fake_results, delta=0.3)
    assert set(found.variants) == set(result.variants)
    verdicts = found.verdicts.set_index("variant")
    assert verdicts["before"].to_dict() == {one.name: one.verdict for one in result.report.variants}
    assert set(verdicts["runs_before"]) == {4}
    assert set(verdicts["runs_after"]) == {1}
    pairs = found.pairs(found.variants[0])
    assert pairs.attrs["delta"] == 0.3
    within = result.pairs(found.variants[0]).set_index(["a", "b"])
    inner = pairs[pairs["a"] != pairs["b"]].set_index(["a", "b"])
    assert inner["before"].to_dict() == within["verdict"].to_dict()
    assert np.allclose(inner["difference"], inner["delta_z_after"] - inner["delta_z_before"], equal_nan=True)
    assert {"baselines", "replicates"} <= set(found.design["name"])
    assert repr(found).startswith(f"<CampaignComparison '{fake_results}', then '{few_fake_results}': ")
    assert all(name in found._repr_html_() for name in found.variants)
    with pytest.raises(measure.MeasureError, match=r"no variant 'heavi': expected one of .*did you mean 'heavy'\?"):
        found.pairs("heavi")


@pytest.mark.parametrize(
    ("baseline", "runs", "message"),
    [
        ([[1, 2]], [[1, 2]], r"baseline\[0\]: got \[1, 2\], expected a pandas DataFrame"),
        (frames(1, 1, 0.5), frames(2, 1, 0.5), "1 baseline trace, expected at least 2"),
        (frames(1, 2, 0.5), [], "no traces of instrumented runs"),
        (frames(1, 2, 0.5), {"baseline": frames(2, 1, 0.5)}, "a variant has the name 'baseline'"),
        (frames(1, 2, 0.5), [frames(2, 1, 0.5)[0].head(10)], r"instrumented\[0\]: 10 of 10 intervals"),
        (frames(1, 2, 0.5), [frames(2, 1, 0.5)[0].assign(loads="many")], "column 'loads': got values of type"),
        (
            frames(1, 2, 0.5),
            [frames(2, 1, 0.5)[0].assign(loads=np.inf)],
            r"column 'loads': row 0: got inf, expected a number",
        ),
        (frames(1, 2, 0.5), [frames(2, 1, 0.5)[0][["loads"]]], "1 metric common to all traces"),
    ],
)
def test_frames_that_cannot_be_compared(baseline: list[pd.DataFrame], runs: object, message: str) -> None:
    with pytest.raises(measure.MeasureError, match=message):
        measure.perturb(baseline, runs)  # type: ignore[arg-type]


# --- traces
def test_alignment_of_a_trace_with_a_part_of_itself(result: measure.Result) -> None:
    trace = result.trace("baseline", 0)
    same = measure.align(trace, trace)
    assert same.path.tolist() == [[n, n] for n in range(len(trace))]
    assert same.cost == pytest.approx(0)
    late = measure.align(trace, trace.iloc[10:], metrics=["PAPI_TOT_INS", "PAPI_LD_INS"])
    assert (np.diff(late.path, axis=0) >= 0).all()
    assert late.path[-1].tolist() == [len(trace) - 1, len(trace) - 11]
    with pytest.raises(measure.MeasureError, match="PAPI_L2_TCM: not in both frames"):
        measure.align(trace, trace, metrics=["PAPI_L2_TCM"])
    with pytest.raises(measure.MeasureError, match="no metric in common"):
        measure.align(trace, trace[["begin_cycles"]])


def test_merging_gives_every_metric(result: measure.Result) -> None:
    merged = measure.merge(result)
    assert {"PAPI_TOT_INS", "rounds", "work", "perturbing"} <= set(merged.columns)
    assert merged["rounds"].sum() in {
        result.trace(variant, n)["rounds"].sum() for variant in ("light", "heavy") for n in range(4)
    }
    assert merged.equals(measure.merge(str(result.directory)))
    assert any("perturbs the program" in warning for warning in merged.attrs["warnings"])


# --- programs
def test_phases_of_a_program_and_of_its_vectors(tmp_path: Path) -> None:
    write_campaign(tmp_path)
    found = measure.phases(tmp_path / "demo.c", interval_instructions=20_000, max_k=5)
    assert len(found.labels) == len(found.instructions)
    assert found.points["weight"].sum() == pytest.approx(1)
    assert len(found.points) == found.k == len(set(found.labels.tolist()))
    with pytest.raises(measure.MeasureError, match="missing"):
        measure.phases(tmp_path / "missing.bb")


def test_programs_that_end_with_another_status_than_0(tmp_path: Path) -> None:
    source = tmp_path / "seven.c"
    source.write_text("int main(void) {\n    for (volatile int k = 0; k < 100000; k++) {}\n    return 7;\n}\n")
    found = measure.phases(source, interval_instructions=20_000)
    assert found.ending == "exit status 7; if it ends so when all is well, give --exit-status 7, before PROGRAM"
    assert len(found.labels) > 10
    assert measure.phases(source, interval_instructions=20_000, exit_status=7).ending is None
    trace = measure.cycleclose(source, machine=MACHINE, interval_instructions=20_000, exit_status=7)
    assert trace.ending is None
    with pytest.raises(measure.CampaignError, match="exit_status: got 256, expected a whole number of at least 0"):
        measure.phases(source, exit_status=256)


READS = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static volatile int data[1 << 14];
int main(int argc, char **argv) {
    FILE *file = fopen(argv[1], "r"), *out = argc > 2 ? fopen(argv[2], "w") : stdout;
    if (!file || !out || strcmp(getenv("HOW") ? getenv("HOW") : "", "so")) return 2;
    long rounds = 0, sum = 0;
    fscanf(file, "%ld", &rounds);
    for (long k = 0; k < rounds; k++) for (long i = 0; i < 10000; i++) sum += data[i * 17 & 0x3fff];
    fprintf(out, "%ld\\n", sum);
    return 0;
}
"""


def test_a_program_sees_files_and_variables_of_a_call(tmp_path: Path) -> None:
    (tmp_path / "reads.c").write_text(READS)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rounds.txt").write_text("20")
    calls: tuple[Any, ...] = (measure.phases, measure.cycleclose)
    for call in calls:
        seen = {"files": {"/in": tmp_path / "data"}, "environment": {"HOW": "so"}, "interval_instructions": 20_000}
        assert call(tmp_path / "reads.c", ["/in/rounds.txt"], **seen).ending is None
        call(tmp_path / "reads.c", ["/in/rounds.txt", "/in/out.txt"], **seen, writable=["/in"])
        assert (tmp_path / "data" / "out.txt").read_text() == "0\n"
        (tmp_path / "data" / "out.txt").unlink()
        rooted = {"root": tmp_path, "environment": {"HOW": "so"}, "interval_instructions": 20_000}
        assert call(tmp_path / "reads.c", ["/data/rounds.txt"], **rooted).ending is None
        with pytest.raises(measure.MeasureError, match="It ended before one interval"):
            call(tmp_path / "reads.c", ["/in/rounds.txt"], interval_instructions=20_000)
        with pytest.raises(measure.CampaignError, match="none"):
            call(tmp_path / "reads.c", ["/in"], **(seen | {"files": {"/in": tmp_path / "none"}}))


def test_phases_on_a_machine_say_what_the_command_says(tmp_path: Path) -> None:
    write_campaign(tmp_path)
    found = measure.phases(
        tmp_path / "demo.c",
        machine=MACHINE,
        interval_instructions=20_000,
        max_k=5,
        settings=["memory.latency_cycles=99"],
    )
    assert found.table is not None
    assert found.estimates is not None
    assert found.homogeneity is not None
    assert found.table["phase"].tolist() == found.labels.tolist()
    assert found.table["cpi"].notna().all()
    full = found.estimates[found.estimates["method"] == "full simulation"].set_index("metric")
    assert full["value"]["cpi"] == pytest.approx(found.table["cycles"].sum() / found.table["instructions"].sum())
    assert found.homogeneity.index.tolist() == ["program", *map(str, range(found.k))]
    assert isinstance(found.warning, str)
    arguments = ["phases", "--machine", str(MACHINE), "--interval", "20k", "--max-k", "5", "--no-picture"]
    arguments += ["--set", "memory.latency_cycles=99", "--out", str(tmp_path / "out"), str(tmp_path / "demo.c")]
    told = CliRunner().invoke(main, arguments)
    assert told.exit_code == 0, told.output
    assert pd.read_parquet(tmp_path / "out" / "trace.parquet").equals(found.table)
    about = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert about["estimates"]["full simulation"]["cpi"]["value"] == full["value"]["cpi"]
    assert about["wait_step"] == 0.2
    faster = measure.phases(tmp_path / "demo.c", machine=MACHINE, interval_instructions=20_000, search="bisect", k=2)
    assert faster.table is not None
    assert faster.table["cycles"].sum() < found.table["cycles"].sum()
    with pytest.raises(measure.CampaignError, match="unexpected keyword argument 'treshold'"):
        measure.phases(tmp_path / "demo.c", treshold=0.1)
    with pytest.raises(measure.CampaignError, match=r"machine: got .*, expected none for .*e.bb, a file of vectors"):
        measure.phases(tmp_path / "e.bb", machine=MACHINE)


@pytest.mark.parametrize(
    ("format_name", "page", "told"),
    [
        (
            "perturbation-perturb-2",
            "report.html",
            "it is of `measure perturb`, which keeps no runs; what it found is in ",
        ),
        ("perturbation-comparison-1", "compare.html", "it is of `measure compare`, which keeps no runs; what it"),
        ("perturbation-phases-1", "none.html", "it is of `measure phases`, which keeps no runs$"),
        ("another-1", "report.html", "or a campaign file$"),
    ],
)
def test_a_directory_of_another_command_is_named(tmp_path: Path, format_name: str, page: str, told: str) -> None:
    (tmp_path / "found.json").write_text(json.dumps({"format": format_name}))
    (tmp_path / page).touch()
    with pytest.raises(measure.CampaignError, match=told):
        measure.load(tmp_path)


def test_cycle_close_trace_and_its_deviation(tmp_path: Path) -> None:
    write_campaign(tmp_path)
    trace = measure.cycleclose(tmp_path / "demo.c", machine=MACHINE, interval_instructions=10_000, validate=True)
    assert trace.ending is None
    assert set(trace.table["category"]) <= {"simulated", "matched", "unsampled"}
    assert trace.deviation is not None
    deviation = trace.deviation.set_index("metric")["deviation_percent"]["cpi"]
    assert deviation < 20
    estimated, actual = (trace.table[name] for name in ("cpi", "actual_cpi"))
    assert 100 * (abs(estimated - actual) / actual).mean() == pytest.approx(deviation)
    assert {"actual_cycles", "actual_l1d_hit_rate", "actual_energy_nj_per_instruction"} <= set(trace.table.columns)
    assert trace.events is not None
    events = trace.events.set_index("event")
    assert events["full"]["cycles"] == pytest.approx(trace.table["actual_cycles"].sum(), abs=1)
    assert events["estimated"]["cycles"] == pytest.approx(trace.table["cycles"].sum())
    off = 100 * (events["estimated"] / events["full"] - 1)
    assert events["off_percent"]["cycles"] == pytest.approx(off["cycles"], abs=0.01)
    assert trace.full_seconds is not None
    assert "urthest off of the " in trace.findings[0] or "Far off: " in trace.findings[0]
    again = [one for one in trace.findings if "simulated although there was an estimate" in one]
    assert len(again) == bool(len(trace.sampled_again))
    if again:
        assert f"{trace.sampled_again.mean():.1f}% of CPI off on average" in again[0] or "far off" in again[0]
    assert all(escape(one) in trace._repr_html_() for one in trace.findings)
    plain = measure.cycleclose(tmp_path / "demo.c", machine=MACHINE, interval_instructions=10_000)
    assert (plain.deviation, plain.events, plain.full_seconds) == (None, None, None)
    assert plain.findings == trace.findings[1:]
    assert list(trace.table.columns[: len(plain.table.columns)]) == list(plain.table.columns)
    with pytest.raises(measure.CampaignError, match="unexpected keyword argument 'treshold'"):
        measure.cycleclose(tmp_path / "demo.c", machine=MACHINE, treshold=0.1)
    with pytest.raises(measure.CampaignError, match="expected a shorter interval"):
        measure.cycleclose(tmp_path / "demo.c", machine=MACHINE, interval_instructions=10**9)


def test_partition_of_a_small_campaign(tmp_path: Path) -> None:
    campaign = write_campaign(tmp_path, baselines=4, replicates=1)
    found = measure.partition(
        campaign, minutes=0.5, out=tmp_path / "out", memory=tmp_path / "memory.sqlite", target="fake"
    )
    # With time for more runs, what 4 runs cannot decide is not in a group.
    collected = {metric for group in found.groups for metric in found.names(group.group)}
    assert collected | {*found.names(found.best.uncovered)} == {"rounds", "work", "perturbing"}
    assert "rounds" in collected
    assert (tmp_path / "out" / "partition.json").exists()
    with pytest.raises(measure.CampaignError, match="unexpected keyword argument 'minuets'"):
        measure.partition(campaign, minuets=1)
