"""Each format as its tool documents it, told by its content; damaged files name the line and what was expected."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest

from measure.foreign.cli import perturb
from measure.foreign.errors import TraceFileError
from measure.foreign.formats import READERS, format_of, read_trace
from measure.foreign.trace import ForeignTrace

PERF_CSV = """\
# started on Sat Nov 21 12:23:11 2026

     0.020407977,5.98,msec,task-clock,5980483,100.00,0.299,CPUs utilized
     0.020407977,858,,page-faults,5980483,100.00,143.467,K/sec
     0.020407977,<not supported>,,cycles,0,100.00,,
     0.020407977,1000,,instructions,2990241,50.00,1.2,insn per cycle
     0.020407977,,,,,,0.40,stalled cycles per insn
     0.040559079,8.83,msec,task-clock,8829497,100.00,0.441,CPUs utilized
     0.040559079,0,,page-faults,8829497,100.00,136.701,K/sec
     0.040559079,<not supported>,,cycles,0,100.00,,
     0.040559079,<not counted>,,instructions,0,0.00,,
         summary,14.81,msec,task-clock,14809980,100.00,0.841,CPUs utilized
         summary,858,,page-faults,14809980,100.00,37.906,K/sec
"""
PERF_JSON = [
    {"interval": 0.02, "counter-value": "19.829580", "unit": "msec", "event": "task-clock",
     "event-runtime": 19829580, "pcnt-running": 100.00, "metric-value": 0.99, "metric-unit": "CPUs utilized"},
    {"interval": 0.02, "counter-value": "2712.000000", "unit": "", "event": "page-faults",
     "event-runtime": 19829580, "pcnt-running": 66.70, "metric-value": 136.7, "metric-unit": "K/sec"},
    {"interval": 0.02, "metric-value": 1.0, "metric-unit": "insn per cycle"},
    {"interval": 0.04, "counter-value": "<not counted>", "unit": "msec", "event": "task-clock",
     "event-runtime": 0, "pcnt-running": 0.00, "metric-value": 0.0, "metric-unit": ""},
    {"interval": 0.04, "counter-value": "0.000000", "unit": "", "event": "page-faults",
     "event-runtime": 18498875, "pcnt-running": 100.00, "metric-value": 0.0, "metric-unit": ""},
    {"counter-value": "38.3", "unit": "msec", "event": "task-clock", "event-runtime": 38300000,
     "pcnt-running": 100.00, "metric-value": 0.7, "metric-unit": "CPUs utilized"},
]  # fmt: skip
LIKWID = """\
--------------------------------------------------------------------------------
CPU name:\tIntel(R) Xeon(R) Platinum 9242 CPU @ 2.30GHz
# GID|MetricsCount|CpuCount|Total runtime [s]|Runtime unhalted [s]|Clock [MHz]|CPI
1 3 2 0.100073 0.08 0.06 2668.0 2670.0 0.44 0.46
the program says something
1 3 2 0.200080 0.09 0.07 2660.0 2664.0 0.50 0.54
"""
LIKWID_EVENTS = """\
# GID|EventCount|CpuCount|Total runtime [s]|INSTR_RETIRED_ANY|CPU_CLK_UNHALTED_CORE
1 2 2 0.100073 1000 2000 1500 2500
1 2 2 0.200080 1e3 nan 1600 2600
"""


def papi(regions: dict[str, dict[str, object]], threads: int = 1) -> str:
    return json.dumps(
        {
            "papi_version": "7.1.0.0",
            "cpu_info": "Some CPU",
            "event_definitions": {
                "PAPI_TOT_INS": {"component": "perf_event", "type": "delta"},
                "temperature": {"component": "coretemp", "type": "instant"},
            },
            "threads": {str(n): {"regions": regions} for n in range(threads)},
        },
        indent=3,
    )


def region(name: str, parent: str = "-1", **events: object) -> dict[str, object]:
    return {"name": name, "parent_region_id": parent, **events}


def read(folder: Path, text: str, name: str = "trace", format: str | None = None) -> ForeignTrace:
    (folder / name).write_text(text)
    return read_trace(folder / name, format)


def refused(folder: Path, text: str, format: str | None = None) -> str:
    with pytest.raises(TraceFileError) as caught:
        read(folder, text, "bad", format)
    assert caught.value.exit_status == 2
    return str(caught.value).replace(f"{folder}/", "")


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_csv(tmp_path: Path, separator: str) -> None:
    text = "# made by hand\ntime_s,cycles,power [W],misses\n0.1,10,1.5,3\n\n0.2,20,,<not counted>\n0.3,30,2.5,0\n"
    trace = read(tmp_path, text.replace(",", separator))
    assert (trace.format, trace.metrics, trace.units) == (
        "csv",
        ("cycles", "power", "misses"),
        {"power": "W"},
    )
    np.testing.assert_array_equal(trace.values, [[10, 1.5, 3], [20, np.nan, np.nan], [30, 2.5, 0]])


def test_csv_damaged(tmp_path: Path) -> None:
    assert refused(tmp_path, "a,b\n1,2\n3\n") == ("bad:3: got 1 column, expected 2 as in line 1; is the file whole?")
    assert refused(tmp_path, "a,b\n1,2\n1,two\n") == "bad:3: column 'b': got 'two', expected a number"
    assert refused(tmp_path, "a,b\n1,1 234\n") == "bad:2: column 'b': got '1 234', expected a number"
    assert refused(tmp_path, "a,b\n1,inf\n") == "bad:2: column 'b': got 'inf', expected a number"
    assert "a named more than once" in refused(tmp_path, "a,a\n1,2\n")
    assert "got numbers (1, 2), expected the names" in refused(tmp_path, "1,2\n3,4\n")
    assert "no column holds a metric" in refused(tmp_path, "time,begin_cycles\n1,2\n")
    assert refused(tmp_path, "").startswith("bad: got an empty file, expected a first row")
    assert refused(tmp_path, "# started on\n").startswith("bad: got nothing but comments, expected a first row")
    assert refused(tmp_path, "a,b\n") == "bad: got no rows below the headings a, b, expected one for each record"
    (tmp_path / "bad").write_bytes(b"a,b\n\xff\xfe")
    with pytest.raises(TraceFileError, match="neither text"):
        read_trace(tmp_path / "bad")
    with pytest.raises(TraceFileError, match="none cannot be read: No such file"):
        read_trace(tmp_path / "none")


def test_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "trace"
    pq.write_table(pa.table({"begin_time": [0.0, 0.1], "a": [1, None], "b [J]": [0.5, 1.5]}), path)
    trace = read_trace(path)
    assert (trace.format, trace.metrics, trace.units) == ("parquet", ("a", "b"), {"b": "J"})
    np.testing.assert_array_equal(trace.values, [[1, 0.5], [np.nan, 1.5]])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TraceFileError, match="is not a whole Parquet file"):
        read_trace(path)
    pq.write_table(pa.table({"a": [[1]], "b": [1]}), path)
    with pytest.raises(TraceFileError, match="column 'a': got values of type list<element: int64>, expected numbers"):
        read_trace(path)


def test_columns_of_text_are_no_metrics(tmp_path: Path) -> None:
    """A label beside the counts made the whole table be refused."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    csv = read(tmp_path, 'cycles,phase,misses,host\n1,warm up,3,\n2,"solve, then print",4,node-1\n')
    assert csv.metrics == ("cycles", "misses")
    np.testing.assert_array_equal(csv.values, [[1, 3], [2, 4]])
    told = ("column 'phase' has text ('warm up'), no numbers: it is not compared.",)
    assert csv.warnings == (*told, "column 'host' has text ('node-1'), no numbers: it is not compared.")
    path = tmp_path / "trace.parquet"
    labels = pa.array(["warm up", None])
    times = pa.array([0, 1], pa.timestamp("us"))
    columns = {"cycles": [1, 2], "ts": times, "phase": labels, "kind": labels.dictionary_encode()}
    pq.write_table(pa.table(columns), path)
    table = read_trace(path)
    assert table.metrics == ("cycles",)
    assert table.warnings == (
        "column 'ts' has times, no numbers: it is not compared; if they are the times of the records, call it 'time'.",
        *told,
        told[0].replace("phase", "kind"),
    )


@pytest.mark.parametrize("separator", [",", ";", "|", "\t", "@"])
def test_perf_csv(tmp_path: Path, separator: str) -> None:
    trace = read(tmp_path, PERF_CSV.replace(",", separator))
    assert trace.format == "perf-csv"
    assert trace.metrics == ("task-clock", "page-faults", "cycles", "instructions")
    np.testing.assert_array_equal(trace.values, [[5.98, 858, np.nan, 1000], [8.83, 0, np.nan, np.nan]])
    assert trace.units == {"task-clock": "msec"}
    assert trace.multiplexed == {"instructions": 50.0}
    assert trace.interval == "20 ms"
    assert trace.warnings == ("cycles is <not supported> in every interval.",)


def test_a_last_interval_that_is_not_whole_is_left_out_but_counts_in_the_total(tmp_path: Path) -> None:
    ends = (0.1, 0.2, 0.3, 0.35)
    perf = "".join(f"     {end:.9f},{n},,cycles,9,100.00,,\n" for n, end in enumerate(ends, 1))
    likwid = "# GID|EventCount|CpuCount|Total runtime [s]|cycles\n" + "".join(
        f"1 1 1 {end} {n}\n" for n, end in enumerate(ends, 1)
    )
    for text in (perf, likwid):
        trace = read(tmp_path, text)
        np.testing.assert_array_equal(trace.values, [[1], [2], [3]])
        assert trace.totals == {"cycles": 10}
        assert trace.warnings == ("the last interval, which ended with the program, is not whole and left out.",)
        assert read(tmp_path, text.replace("0.35", "0.395")).n_records == 4


def test_intervals_that_are_not_of_one_length_are_said(tmp_path: Path) -> None:
    """A dozen of four times the length, with four times the counts, went unnoticed."""
    for lengths, is_said in (((0.1,) * 8, False), ((0.1, 0.11, 0.095) * 3, False), ((0.1,) * 6 + (0.4, 0.1), True)):
        ends = np.cumsum(lengths)
        text = "".join(f"     {end:.9f},{n},,cycles,9,100.00,,\n" for n, end in enumerate(ends, 1))
        assert (
            any("some intervals are over 25% longer or shorter" in one for one in read(tmp_path, text).warnings)
            == is_said
        )


def test_perf_csv_by_cpu_and_socket_is_added_up(tmp_path: Path) -> None:
    by_cpu = (
        "     0.020097862,CPU0,20.5,msec,task-clock,20612727,100.00,1.031,CPUs utilized\n"
        "     0.020097862,CPU1,20.25,msec,task-clock,20630603,100.00,1.032,CPUs utilized\n"
        "     0.020097862,CPU0,588,,page-faults,20612947,100.00,28.525,K/sec\n"
        "     0.020097862,CPU1,<not counted>,,page-faults,0,0.00,,\n"
    )
    np.testing.assert_array_equal(read(tmp_path, by_cpu).values, [[40.75, np.nan]])
    by_socket = (
        "     0.020097862;S0;2;20.5;msec;task-clock;20612727;100.00;1.031;CPUs utilized\n"
        "     0.020097862;S1;2;1;msec;task-clock;20612727;100.00;1.031;CPUs utilized\n"
        "     0.020097862;S0;2;7;;cpu/event=0x3,umask=0x1/;20612947;100.00;;\n"
    )
    trace = read(tmp_path, by_socket)
    assert trace.metrics == ("task-clock", "cpu/event=0x3,umask=0x1/")
    np.testing.assert_array_equal(trace.values, [[21.5, 7]])


def test_an_event_in_two_groups_of_perf_is_counted_once(tmp_path: Path) -> None:
    """`-e '{cycles,instructions},{cycles,misses}'`: both counts of cycles were added up, as if of two CPUs."""
    fields = ("cycles", "5", "100.00"), ("instructions", "7", "100.00"), ("cycles", "6", "50.00")
    csv = "".join(
        f"     {at}.000000000,{count},,{event},9,{percent},,\n" for at in (1, 2) for event, count, percent in fields
    )
    objects = "".join(
        json.dumps({"interval": at, "counter-value": count, "unit": "", "event": event, "pcnt-running": float(percent)})
        + "\n"
        for at in (1, 2)
        for event, count, percent in fields
    )
    for text in (csv, objects):
        trace = read(tmp_path, text)
        np.testing.assert_array_equal(trace.values, [[5, 7], [5, 7]])
        assert trace.multiplexed == {}
        assert trace.warnings == (
            "cycles is counted more than once in an interval (line 3), as where it is in two groups of events: its "
            "first count is taken.",
        )
    trace = read(tmp_path, csv.replace(",5,,cycles,9,100.00", ",<not counted>,,cycles,0,0.00"))
    np.testing.assert_array_equal(trace.values, [[6, 7], [6, 7]])
    by_cpu = "".join(f"     1.000000000,CPU{cpu},{n},,cycles,9,100.00,,\n" for n, cpu in enumerate((0, 1, 0, 1), 1))
    np.testing.assert_array_equal(read(tmp_path, by_cpu).values, [[1 + 2]])


@pytest.mark.parametrize(
    ("first", "second", "sums"),
    [
        ("CPU0,2,,cycles", "CPU1,3,,cycles", {"cycles": 5}),
        ("S0-D0-C0,2,2,,cycles", "S0-D0-C1,2,3,,cycles", {"cycles": 5}),
        ("worker-17,2,,cycles", "worker-18,3,,cycles", {"cycles": 5}),
        ("2,,cpu_core/cycles/", "3,,cpu_atom/cycles/", {"cpu_core/cycles/": 2, "cpu_atom/cycles/": 3}),
        ("2,,cycles,user.slice", "3,,cycles,system.slice", {"cycles user.slice": 2, "cycles system.slice": 3}),
    ],
)
def test_counts_of_perf_by_cpu_core_thread_and_control_group(
    tmp_path: Path, first: str, second: str, sums: dict[str, float]
) -> None:
    trace = read(tmp_path, "".join(f"     1.000000000,{text},9,100.00,,\n" for text in (first, second)))
    assert (dict(zip(trace.metrics, trace.values[0], strict=True)), trace.warnings) == (sums, ())


@pytest.mark.parametrize("member", ["cpu", "core", "thread", "socket", "cgroup"])
def test_counts_of_perf_json_by_cpu_core_thread_and_control_group(tmp_path: Path, member: str) -> None:
    rows = [
        {"interval": 1.0, member: f"one-{n}", "counter-value": n, "event": "cycles", "pcnt-running": 100.0}
        for n in (2, 3)
    ]
    trace = read(tmp_path, "".join(json.dumps(row) + "\n" for row in rows))
    assert (trace.values.tolist(), trace.warnings) == ([[2, 3]] if member == "cgroup" else [[5]], ())


def test_perf_csv_does_not_quote_events_with_commas(tmp_path: Path) -> None:
    line = "     0.020097862,7,,cpu/event=0x3,umask=0x1/u,20612947,100.00,,\n"
    assert read(tmp_path, line).metrics == ("cpu/event=0x3,umask=0x1/u",)
    group = "     0.020097862,7,,cycles,user.slice,20612947,100.00,,\n"
    assert read(tmp_path, group).metrics == ("cycles user.slice",)


def test_perf_csv_damaged(tmp_path: Path) -> None:
    good = "     0.020407977,858,,page-faults,5980483,100.00,143.467,K/sec\n"
    assert refused(tmp_path, good + "     0.040559079,12,,page-fau").startswith(
        "bad:2: got '12,,page-fau', expected count, unit, event, run time and percentage of time counted"
    )
    assert "bad:2: got time 0.010000000" in refused(
        tmp_path, good + good.replace("0.020407977", "0.010000000")
    ).replace("got time 0.01,", "got time 0.010000000,")
    assert "bad:2: page-faults got unit 'msec', expected ''" in refused(
        tmp_path, good + good.replace("858,,", "858,msec,")
    )
    assert "bad:2: got 'x', expected a time in seconds" in refused(tmp_path, good + "x,1,,cycles,1,100.00\n")
    assert refused(tmp_path, "858,,page-faults,5980483,100.00,,\n", "perf-csv").startswith(
        "bad:1: got '858,,page-faults,5980483,100.00,,', expected a time stamp first"
    )
    table = "\n#           time             counts unit events\n     0.050135821   40.28 msec task-clock\n"
    assert "add `-x \\;` or `-j` to `perf stat`" in refused(tmp_path, table)
    assert refused(tmp_path, good.replace(",858,", ",-858,")) == (
        "bad:1: count of page-faults: got -858, expected 0 or more: perf writes no negative counts; was the file "
        "edited, or is it damaged?"
    )


def test_perf_json(tmp_path: Path) -> None:
    text = "# started on Sat Nov 21\n\n" + "".join(json.dumps(row) + "\n" for row in PERF_JSON)
    text = text.replace('"metric-value": 0.0, "metric-unit": ""', '"metric-value": nan, "metric-unit": ""')
    trace = read(tmp_path, text)
    assert (trace.format, trace.metrics) == ("perf-json", ("task-clock", "page-faults"))
    np.testing.assert_array_equal(trace.values, [[19.82958, 2712], [np.nan, 0]])
    assert (trace.units, trace.multiplexed) == ({"task-clock": "msec"}, {"page-faults": 66.7})
    assert refused(tmp_path, text + '{"interval" : 0.06, "counter-va').startswith(
        'bad:9: got \'{"interval" : 0.06, "counter-va\', expected one JSON object'
    )
    assert "without --metric-only" in refused(tmp_path, json.dumps(PERF_JSON[2]), "perf-json")
    assert "bad:1: expected `interval`" in refused(tmp_path, json.dumps(PERF_JSON[0] | {"pcnt-running": "much"}))


@pytest.mark.skipif(shutil.which("perf") is None, reason="perf is not installed")
@pytest.mark.parametrize("option", ["-x,", "-x;", "-j"])
def test_perf_as_installed(tmp_path: Path, option: str) -> None:
    busy = "import time\nend = time.time() + 0.15\nwhile time.time() < end: bytearray(1_000_000)"
    out = tmp_path / "trace"
    done = subprocess.run(
        ["perf", "stat", "-I", "20", option, "-e", "task-clock,page-faults", "-o", out, sys.executable, "-c", busy],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode or not out.exists() or "task-clock" not in out.read_text():
        pytest.skip(f"perf cannot count here, or has no {option}: {done.stderr[:200]}")
    trace = read_trace(out)
    assert trace.format == ("perf-json" if option == "-j" else "perf-csv")
    assert [name.split(":")[0] for name in trace.metrics] == ["task-clock", "page-faults"]
    assert trace.n_records >= 4
    assert 10 < np.nansum(trace.values[:, 0]) < 5000
    assert np.nansum(trace.values[:, 1]) > 100


def test_papi_without_events_says_so(tmp_path: Path) -> None:
    assert refused(tmp_path, papi({"0": region("step")})) == (
        "bad: thread 0: region 0: got no events, expected at least one: were any named in PAPI_EVENTS?"
    )


def test_papi_regions_one_after_the_other(tmp_path: Path) -> None:
    regions = {
        "0": region("main", cycles="900", real_time_nsec="400", PAPI_TOT_INS="600"),
        "1": region("step", "0", cycles="400", real_time_nsec="200", PAPI_TOT_INS="300"),
        "10": region("step", "0", cycles="200", real_time_nsec="90", PAPI_TOT_INS="100"),
        "2": region("other", "0", cycles="100", real_time_nsec="50", PAPI_TOT_INS="0"),
    }
    trace = read(tmp_path, papi(regions))
    assert (trace.format, trace.metrics) == ("papi", ("cycles", "real_time_nsec", "PAPI_TOT_INS"))
    np.testing.assert_array_equal(trace.values, [[400, 200, 300], [100, 50, 0], [200, 90, 100]])
    assert trace.units == {"real_time_nsec": "ns"}
    assert trace.warnings == ("the regions main are at another level of nesting and left out.",)


def test_papi_reads_within_a_region(tmp_path: Path) -> None:
    def read_values(*values: int) -> dict[str, str]:
        return {"region_value": str(values[-1])} | {f"read_{n}": str(v) for n, v in enumerate(values[:-1], 1)}

    regions = {"0": region("loop", PAPI_TOT_INS=read_values(10, 30, 35), temperature=read_values(50, 55, 52))}
    np.testing.assert_array_equal(read(tmp_path, papi(regions)).values, [[10, 50], [20, 55], [5, 52]])


def test_papi_differences_of_large_counts_are_exact(tmp_path: Path) -> None:
    """Doubles beyond 2^53 are even: the steps were 1 and 2."""
    counts = {"read_1": str(2**60), "read_2": str(2**60 + 1), "region_value": str(2**60 + 3)}
    trace = read(tmp_path, papi({"0": region("loop", PAPI_TOT_INS=counts)}))
    np.testing.assert_array_equal(trace.values, [[2**60], [1], [2]])


def test_papi_threads_and_ranks_are_added_up(tmp_path: Path) -> None:
    regions = {str(n): region("step", cycles=str(n), PAPI_TOT_INS=str(10 * n)) for n in range(3)}
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "rank_000000.json").write_text(papi(regions, threads=2))
    (tmp_path / "out" / "rank_000001.json").write_text(papi(regions))
    trace = read_trace(tmp_path / "out")
    np.testing.assert_array_equal(trace.values, [[0, 0], [3, 30], [6, 60]])
    assert trace.warnings == ("3 threads are added up, record by record.",)
    del regions["2"]
    (tmp_path / "out" / "rank_000001.json").write_text(papi(regions))
    with pytest.raises(TraceFileError, match="of 3 and 2 records whose regions differ cannot be added up"):
        read_trace(tmp_path / "out")


def test_papi_damaged(tmp_path: Path) -> None:
    whole = papi({"0": region("step", cycles="1", PAPI_TOT_INS="2")})
    assert "expected JSON; is the file whole?" in refused(tmp_path, whole[:-30])
    assert refused(tmp_path, whole.replace('"1"', '"many"')) == (
        "bad: thread 0: region 0: cycles: got 'many', expected a whole number"
    )
    assert "parent_region_id: got '7', expected" in refused(tmp_path, whole.replace('"-1"', '"7"'))
    assert "no object `threads`" in refused(tmp_path, "{\n}\n")
    assert "no regions" in refused(tmp_path, papi({}))
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceFileError, match=r"no rank_\*.json in this directory"):
        read_trace(tmp_path / "empty")


def test_likwid(tmp_path: Path) -> None:
    trace = read(tmp_path, LIKWID)
    assert (trace.format, trace.metrics) == ("likwid", ("Runtime unhalted", "Clock", "CPI"))
    np.testing.assert_allclose(trace.values, [[0.07, 2669, 0.45], [0.08, 2662, 0.52]])
    assert (trace.units, trace.interval) == ({"Runtime unhalted": "s", "Clock": "MHz"}, "100 ms")
    assert "their mean is taken" in trace.warnings[0]
    trace = read(tmp_path, LIKWID_EVENTS)
    np.testing.assert_array_equal(trace.values, [[3000, 4000], [np.nan, 4200]])
    assert "2 hardware threads: added up." in trace.warnings[0]


def test_likwid_damaged(tmp_path: Path) -> None:
    assert "bad:6: got 3 metrics, 2 hardware threads and 5 values" in refused(
        tmp_path, LIKWID.replace(" 0.50 0.54", " 0.50")
    )
    assert "bad:6: got group 2, expected 1 as before" in refused(tmp_path, LIKWID.replace("\n1 3 2 0.2", "\n2 3 2 0.2"))
    other = "# GID|MetricsCount|CpuCount|Total runtime [s]|Clock [MHz]\n"
    assert "bad:7: got a second group of events" in refused(tmp_path, LIKWID + other)
    assert "bad: got a header of LIKWID's timeline without lines of values below it" in refused(tmp_path, other)
    assert "no timeline" in refused(tmp_path, "the program says something", "likwid")
    assert refused(tmp_path, LIKWID_EVENTS.partition("\n")[2]) == (
        "bad:1: got a line of LIKWID's timeline without a header, expected before it the line that likwid-perfctr "
        "writes, `# GID|EventCount|CpuCount|Total runtime [s]|...` with the names of the events (MetricsCount for "
        "derived metrics): add it"
    )
    assert refused(tmp_path, LIKWID_EVENTS.replace(" 2500", " -2500")) == (
        "bad:2: CPU_CLK_UNHALTED_CORE: got -2500, expected 0 or more, since it counts events; was the file edited, or "
        "is it damaged?"
    )
    temperature = LIKWID_EVENTS.replace("CPU_CLK_UNHALTED_CORE", "TEMP_CORE").replace(" 2500", " -2500")
    assert read(tmp_path, temperature).values[0, 1] == -1000
    assert read(tmp_path, LIKWID.replace("0.44", "-0.44")).values[0, 2] == pytest.approx(0.01)


PAPI = papi({str(n): region("step", cycles=str(n), PAPI_TOT_INS={"region_value": "9", "read_1": "4"}) for n in "12"})
WHOLE_FILES = {
    "csv": "time,a,b [J]\n0.1,1,2\n0.2,3,<not counted>\n",
    "perf-csv": PERF_CSV,
    "perf-json": "".join(json.dumps(row) + "\n" for row in PERF_JSON),
    "papi": PAPI.replace('"cycles": "1"', '"cycles": {"region_value": "3", "read_1": "2"}').replace(
        '"cycles": "2"', '"cycles": {"region_value": "3", "read_1": "2"}'
    ),
    "likwid": LIKWID,
}


@pytest.mark.parametrize("format", WHOLE_FILES)
def test_damage_anywhere_is_an_error_with_the_file_or_harmless(tmp_path: Path, format: str) -> None:
    text, rng = WHOLE_FILES[format], np.random.default_rng(5)
    assert read(tmp_path, text).format == format
    alphabet = '0,;x{}"\n-<.: \x00'
    messages: list[str] = []
    for _ in range(100):
        at = int(rng.integers(len(text)))
        other = alphabet[int(rng.integers(len(alphabet)))]
        for damaged in (text[:at], text[:at] + other + text[at + 1 :], text[:at] + text[at + 3 :]):
            try:
                trace = read(tmp_path, damaged, format=format)
            except TraceFileError as error:
                messages.append(str(error))
            else:
                assert trace.values.shape == (trace.n_records, len(trace.metrics))
    assert len(messages) > 20
    assert all(message.startswith(str(tmp_path / "trace")) for message in messages)


def test_format_can_be_forced_and_the_name_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text("a,b\n1,2\n")
    assert format_of(tmp_path / "trace.json") == "csv"
    assert "no object `threads`" in refused(tmp_path, "{}", "papi")
    assert "expected the output of `perf stat" in refused(tmp_path, "", "perf-csv")


def test_the_command_offers_every_format_that_has_a_reader() -> None:
    """The names stand in the command, too, so that its help loads no reader."""
    (option,) = (one for one in perturb.params if one.name == "format_")
    assert isinstance(option.type, click.Choice)
    assert list(option.type.choices) == list(READERS)
