"""The CSV files that the script of a campaign report makes: they say the same as the files of the results directory."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from measure.report import page_data
from measure.report.figures import mean_rho
from measure.report.html import render
from measure.report.model import ReportData
from measure.report.packing import packed, packed_singles
from measure.report.pair_columns import PAIR_COLUMNS
from measure.report.style import short
from measure.verdict_files.pair_tables import write_pairs
from tests.measure.report.browser import needs_browser, run_in
from tests.measure.report.synthetic_report import synthetic_report

pytestmark = needs_browser

SAVED = """
  let saved = "";
  window.Blob = class extends Blob { constructor(parts) { super(parts); saved = parts.join(""); } };
  const taken = (button) => { saved = ""; button.click(); return saved; };
  const csvOf = (which) => taken(document.querySelector(`[data-csv=${which}]`));
  const choose = (name, value) => {
    const field = document.getElementById("filters").elements[name];
    field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  };
"""


@pytest.fixture(scope="module")
def data() -> ReportData:
    """A report with a pair that is equivalent though its change is significant, and notes that have to be quoted."""
    data = synthetic_report(4)
    one = data.variants[0]
    pairs = list(one.inner.pairs)
    pairs[1] = replace(pairs[1], verdict="equivalent", p_adjusted=0.001953125)
    pairs[2] = replace(
        pairs[2], reasons=('rho beyond 0.99, "at its\r\nceiling"',), p_adjusted=float("nan"), q_value=1.0
    )
    return replace(
        data, variants=(replace(one, inner=replace(one.inner, pairs=tuple(pairs), paired=True)), data.variants[1])
    )


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def shown_digits(text: str) -> int:
    return len(text.lower().split("e")[0].replace(".", "").lstrip("-0"))


def test_the_table_of_pairs_is_saved_as_pairs_csv_has_it(data: ReportData, tmp_path: Path) -> None:
    """Its verdicts, relations, metrics and columns were named otherwise, and a p of 1 was 1.0000000006545."""
    found = run_in(render(data), SAVED + 'return { saved: taken(document.getElementById("pairs-csv")) };', tmp_path)
    write_pairs(data, tmp_path)
    there = read((tmp_path / "pairs.csv").read_bytes().decode())
    here = read(found["saved"])
    assert list(here[0]) == list(there[0]) == list(PAIR_COLUMNS)

    def key(row: dict[str, str]) -> tuple[str, ...]:
        return row["variant"], row["relation"], row["a"], row["b"]

    assert sorted(map(key, here)) == sorted(map(key, there))
    of = {key(row): row for row in there}
    for row in here:
        for name, text in row.items():
            expected = of[key(row)][name]
            if text != expected:
                assert float(text) == pytest.approx(float(expected), rel=6e-7, abs=0), name  # 7 digits
                assert shown_digits(text) <= 7
    assert {row["relation"] for row in here} == {"inner", "outer"}
    assert "-inf" in {row["simultaneous_low"] for row in here}
    assert max(float(row["p"]) for row in here if row["p"]) <= 1


def test_a_choice_of_rows_and_the_joint_alignment_are_saved_as_shown(data: ReportData, tmp_path: Path) -> None:
    script = """
      choose("relation", "every");
      choose("text", "PAPI_EVENT_02");
      const words = [...document.querySelectorAll("#pairs tbody tr")].map((row) => row.cells[3].textContent);
      return { words, saved: taken(document.getElementById("pairs-csv")) };
    """
    found = run_in(render(data), SAVED + script, tmp_path)
    rows = read(found["saved"])
    assert {row["relation"] for row in rows} == {"inner", "outer", "outer_joint"}
    assert all("PAPI_EVENT_02" in (row["a"], row["b"]) for row in rows)
    words = ["equivalent" if word == "changed < delta" else word for word in found["words"]]
    assert [row["verdict"] for row in rows] == words


def test_data_of_plots_name_metrics_in_full_and_have_the_digits_that_are_exact(
    data: ReportData, tmp_path: Path
) -> None:
    script = """
      choose("relation", "inner");
      document.querySelector("#pairs tbody a").click();
      await new Promise((done) => setTimeout(done, 50));
      return { traces: csvOf("traces"), maps: csvOf("maps"), runs: csvOf("runs"), alignment: csvOf("alignment"),
        title: document.querySelector("#plot-traces .title").textContent,
        axis: [...document.querySelectorAll("#plot-runs text[text-anchor=middle]")].map((one) => one.textContent) };
    """
    found = run_in(render(data), SAVED + script, tmp_path)
    traces = read(found["traces"])
    names = [name.removesuffix(" mean") for name in traces[0] if name.endswith(" mean")]
    assert set(names[:2]) < set(data.hardware_metrics)
    assert names[2:] == ["calls"]
    assert found["title"] == f"{short(names[0])} per record, baseline"
    before = data.baseline_example.series(names[0])
    assert [float(row[f"{names[0]} mean"]) for row in traces if row["run"] == "baseline"] == before.tolist()
    assert [(row["first_record"], row["last_record"]) for row in traces[:3]] == [("0", "0"), ("1", "1"), ("2", "2")]
    maps = read(found["maps"])
    assert [(row["a"], row["b"]) for row in maps][:2] == [
        ("PAPI_EVENT_00", "PAPI_EVENT_01"), ("PAPI_EVENT_00", "PAPI_EVENT_02")
    ]  # fmt: skip
    before_rho = mean_rho(data.baseline_rho)
    assert [float(row["rho_baselines"]) for row in maps] == pytest.approx(before_rho[np.tril_indices(4, -1)], abs=1e-5)
    assert max(shown_digits(row["rho_baselines"]) for row in maps) <= 6  # steps of 1/65,534 of less than 0.7
    runs = read(found["runs"])
    assert [int(row["run"]) for row in runs] == 2 * list(range(8))
    assert found["axis"] == [*map(str, range(8)), "run"]
    rho = data.baseline_rho[:, data.hardware_metrics.index(names[0]), data.hardware_metrics.index(names[1])]
    assert [float(row["rho"]) for row in runs[:8]] == pytest.approx(rho.tolist(), abs=1e-4)
    alignment = read(found["alignment"])
    assert list(alignment[0]) == ["record_of_baseline", "record_of_variant 1"]
    assert max(len(row["record_of_variant 1"]) for row in alignment) <= len("123.456")


def test_a_long_trace_is_saved_with_the_first_and_last_record_of_each_bucket(
    data: ReportData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The centres of its buckets were named as records, and two points of no alignment as an alignment."""
    monkeypatch.setattr(page_data, "TRACE_VALUES", 1500)
    monkeypatch.setattr(page_data, "LONGEST_ALIGNED", 299)
    script = """
      const example = DATA.baseline.example, series = seriesOf(example, DATA.metrics[0]);
      const shown = getComputedStyle(document.querySelector("[data-csv=alignment]")).display !== "none";
      return { shown, traces: csvOf("traces"), buckets: example.buckets,
        bucket: Array.from({ length: 300 }, (_, record) => indexAt(example, series, record)) };
    """
    found = run_in(render(data), SAVED + script, tmp_path)
    assert not found["shown"]
    rows: list[dict[str, Any]] = [row for row in read(found["traces"]) if row["run"] == "baseline"]
    assert len(rows) == found["buckets"] < 150
    name = next(one for one in rows[0] if one.endswith(" least")).removesuffix(" least")
    values = data.baseline_example.series(name)
    at = 0
    for n, row in enumerate(rows):
        first, last = int(row["first_record"]), int(row["last_record"])
        assert first == at
        assert (float(row[f"{name} least"]), float(row[f"{name} largest"])) == (
            values[first : last + 1].min(), values[first : last + 1].max()
        )  # fmt: skip
        assert set(found["bucket"][first : last + 1]) == {n}
        at = last + 1
    assert at == 300


def test_packed_numbers_have_the_digits_of_their_steps(tmp_path: Path) -> None:
    cases = {
        "thirds": packed(np.array([1 / 3, 1.0, np.nan])), "large": packed(np.array([0, 10**12])),
        "counts": packed(np.array([3, 65_000])), "constant": packed(np.array([0.125, 0.125])),
        "singles": packed_singles(np.array([1 / 3, 1.0, np.nan, -np.inf, 2e-9])),
    }  # fmt: skip
    page = render(synthetic_report(2))
    texts = f"const cases = {json.dumps(cases)};"
    script = (
        "return Object.fromEntries(Object.entries(cases).map(([name, one]) => [name, [...unpack(one)].map(String)]));"
    )
    found = run_in(page, texts + script, tmp_path)
    assert found["thirds"] == ["0.33333", "1", "NaN"]
    assert found["large"] == ["0", "1000000000000"]
    assert found["counts"] == ["3", "65000"]
    assert found["constant"] == ["0.125", "0.125"]
    assert found["singles"] == ["0.3333333", "1", "NaN", "-Infinity", "2e-9"]
