"""Counts from a second run: where they are put, against probes, and what cannot be counted so."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

import measure
from emulator.linux.loader.elf import load_image
from measure.campaign.dry_run import estimate
from measure.cli import main
from measure.cluster.shipment import Packer, unpack, unpacked_spec
from measure.errors import CampaignError, RunError
from measure.program_code.shared_code import shared_code
from measure.run_types import BASELINE, PLACE_GAP, PROBE, ProbePlaces, RunSpec
from measure.runs.campaign_file import load_campaign
from measure.runs.executor import Workers, execute_plan
from measure.runs.plan import Plan, content_keys, make_plan
from measure.runs.store import Store
from measure.targets.emulated import EmulatedTarget
from measure.targets.program_file import program_of
from tests.measure.campaign.test_dry_run import QUIET
from tests.measure.demo_program import source_file

ROOT = Path(__file__).parents[3]
PROGRAM = """
#include <stdio.h>
int table[4096];
__attribute__((noinline)) int look(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) sum += table[(i * 37) & 4095] ^ i;
    return sum;
}
__attribute__((noinline)) void fill(int k) { for (int i = 0; i < 512; i++) table[(i * k) & 4095] = i; }
static int small(int x) { return x > 3 ? x * 5 : x; }
int main(void) {
    int sum = 0;
    for (int i = 0; i < 600; i++) { if (i % 7 == 0) fill(i); sum += look(i & 255); sum += small(sum & 15); }
    printf("%d\\n", sum);
    return 0;
}
"""
METRICS = {
    "looks": {"event": "entry", "function": "look"}, "fills": {"event": "entry", "function": "fill"},
    "turns": {"event": "loop", "function": "look"}, "far": {"event": "branch", "function": "small"},
}  # fmt: skip
Planned = Callable[..., Plan]


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    """The plan of a program given as text, whose metrics a second run counts: ``planned(source, flags, changes)``."""

    def plan(source: str = PROGRAM, flags: str = "-O2", **changes: Any) -> Plan:
        return make_plan(*load_campaign(campaign_file(tmp_path, source, flags, **changes)), lambda text: None)

    return plan


def campaign_file(folder: Path, source: str = PROGRAM, flags: str = "-O2", **changes: Any) -> Path:
    (folder / "p.c").unlink(missing_ok=True)
    (folder / "p.c").symlink_to(source_file(source))
    content = {
        "name": "counted", "program": {"source": "p.c", "flags": [flags]},
        "machine": str(ROOT / "configs" / "machines" / "desktop.yaml"), "sampling": {"every": "4000 cycles"},
        "hardware_metrics": ["PAPI_TOT_INS", "PAPI_LD_INS", "PAPI_BR_CN", "PAPI_L1_DCM"],
        "software_metrics": {name: {**spec, "method": "second_run"} for name, spec in METRICS.items()},
        "baselines": 6, "replicates": 6, "controls": False, **changes,
    }  # fmt: skip
    (folder / "c.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return folder / "c.yaml"


def pair(plan: Plan, replicate: int = 0) -> tuple[RunSpec, RunSpec]:
    """A baseline and the run that it is compared with."""
    of = {spec.variant: spec for spec in plan.specs if spec.replicate == replicate}
    return of[BASELINE], of["all"]


@pytest.mark.parametrize("flags", ["-O0", "-O2"])
def test_counts_are_those_of_probes_and_the_machine_counts_what_it_counts_in_the_plain_run(
    planned: Planned, flags: str
) -> None:
    base, spec = pair(planned(flags=flags))
    image = load_image(program_of(base))
    entries = {"looks": "look", "fills": "fill"}
    places = {metric: image.find_symbol(function) for metric, function in entries.items()}
    assert all(places.values())
    probed = replace(base, probes=tuple(ProbePlaces(m, (s.address,), ()) for m, s in places.items() if s))
    plain, exact, found = (EmulatedTarget().execute(one) for one in (base, probed, spec))
    hardware = spec.hardware_metrics
    assert np.array_equal(plain.trace.values, found.trace.counts(hardware))
    assert np.array_equal(plain.trace.boundaries_cycles, found.trace.boundaries_cycles)
    assert (plain.total_cycles, plain.total_instructions) == (found.total_cycles, found.total_instructions)
    for metric in entries:
        late = np.cumsum(found.trace.counts((metric,)) - exact.trace.counts((PROBE + metric,)))
        assert np.abs(late).max() <= (flags != "-O0")  # events in another record
    turns, looks, fills = (found.trace.counts((metric,)).sum() for metric in ("turns", "looks", "fills"))
    whole = [i & 255 for i in range(600)]
    assert sum(whole[:-2]) - 255 <= turns <= sum(whole)  # without the records that begin and end the run
    assert 598 <= looks <= 600
    assert fills in (85, 86)
    gaps = found.trace.counts((PLACE_GAP,))
    assert np.median(gaps) < 20
    assert gaps.max() < 1000


def test_totals_are_those_of_counters_and_two_metrics_of_one_event_agree_in_every_record(planned: Planned) -> None:
    twice = {**METRICS, "again": METRICS["turns"]}
    plan = planned(software_metrics={name: {**spec, "method": "second_run"} for name, spec in twice.items()})
    one = EmulatedTarget().execute(pair(plan)[1])
    assert np.array_equal(one.trace.counts(("turns",)), one.trace.counts(("again",)))
    counters = make_plan(
        *load_campaign(Path(plan.campaign_file), [f"software_metrics.{name}.method=counter" for name in METRICS]),
        lambda text: None,
    )
    other = EmulatedTarget().execute(pair(counters)[1])
    for metric in METRICS:
        counted, here = (run.trace.counts((metric,)).sum() for run in (other, one))
        assert here == pytest.approx(counted, rel=0.01)


def test_what_is_counted_in_the_measured_run_stays_there(planned: Planned) -> None:
    metrics = {**METRICS, "turns": {**METRICS["turns"], "method": "second_run"}}
    plan = planned(software_metrics=metrics)
    base, spec = pair(plan)
    assert [counter.metric for counter in spec.first_counters] == ["looks", "fills", "far"]
    assert spec.metrics[4:] == ("looks", "fills", "turns", "far", PLACE_GAP)
    assert spec.build_key != base.build_key
    run = EmulatedTarget().execute(spec)
    assert 598 <= run.trace.counts(("looks",)).sum() <= 600
    assert run.trace.counts(("turns",)).sum() > 60_000
    assert run.total_instructions > EmulatedTarget().execute(base).total_instructions


def test_a_run_is_the_same_again_and_from_its_description_and_on_another_machine(
    planned: Planned, tmp_path: Path
) -> None:
    plan = planned()
    spec = pair(plan)[1]
    again = RunSpec.from_json(json.loads(json.dumps(asdict(spec))))
    assert again == spec
    assert plan.keys[plan.specs.index(spec)] == content_keys([again])[0]
    assert str(tmp_path) not in json.dumps({**spec.identity(), "machine_name": ""})
    packer = Packer()
    shipment = packer.shipment(spec)
    unpack(tmp_path / "there", packer.contents)
    there = unpacked_spec(spec, shipment, tmp_path / "there")
    assert there.second_run is not None
    assert str(tmp_path / "there") in there.second_run.binary
    first, second = (EmulatedTarget().execute(one) for one in (spec, there))
    assert np.array_equal(first.trace.values, second.trace.values)
    with Store(tmp_path / "store") as store, Workers(1) as workers:
        made = execute_plan([spec], store, workers=workers)
        assert np.array_equal(made.runs[0].trace.values, first.trace.values)
        assert execute_plan([spec], store, workers=workers).reused == 1


def test_only_what_both_programs_execute_alike_is_a_clock(planned: Planned) -> None:
    spec = pair(planned(flags="-O0"))[1]
    assert spec.second_run is not None
    shared = {code.function: code for code in spec.second_run.clock}
    assert {"look", "fill", "small", "main"} <= set(shared)
    image = load_image(program_of(spec))
    assert all(image.find_symbol(name).size_bytes == code.size_bytes for name, code in shared.items())  # type: ignore[union-attr]
    nothing = shared_code(image, {}, image, {})
    assert nothing == ()
    main_symbol = image.find_symbol("main")
    assert main_symbol is not None
    at = main_symbol.address
    assert shared_code(image, {at: 1}, image, {at: 2}) == ()
    assert [code.offsets for code in shared_code(image, {at: 3}, image, {at: 3})] == [(0,)]


FORKS = """
#include <sys/wait.h>
#include <unistd.h>
int table[64];
void look(int n) { for (int i = 0; i < n; i++) table[i & 63] += i; }
void fill(int n) { table[n & 63] = n; }
int small(int n) { if (n > 3) return n; return 0; }
int main(void) {
    if (fork() == 0) { look(20000); _exit(0); }
    for (int i = 0; i < 300; i++) { look(1000 + small(i)); fill(i); }
    while (wait(0) > 0);
    return 0;
}
"""
CLOCK = """
#include <stdio.h>
#include <time.h>
int table[64];
void look(int n) { for (int i = 0; i < n; i++) table[i & 63] += i; }
void fill(int n) { table[n & 63] = n; }
int small(int n) { if (n > 3) return n; return 0; }
int main(void) {
    struct timespec now;
    for (int i = 0; i < 300; i++) { look(1000 + small(i)); fill(i); }
    clock_gettime(CLOCK_MONOTONIC, &now);
    WHAT
    return 0;
}
"""


def test_a_program_with_processes_is_refused_before_any_run(planned: Planned) -> None:
    """Every run of the variant failed, with the same words."""
    with pytest.raises(CampaignError) as error:
        planned(FORKS, "-O1")
    assert re.search(r"\.yaml:\d+: got method second_run for \w+, but the program starts threads", str(error.value))
    assert "(`method: second_run`) cannot" in str(error.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (CLOCK.replace("WHAT", 'printf("%ld\\n", now.tv_nsec);'), "something else to standard output"),
        (CLOCK.replace("WHAT", 'fprintf(stderr, "%ld\\n", now.tv_nsec);'), "something else to standard error"),
        (
            CLOCK.replace("WHAT", "look(now.tv_nsec / 10);"),
            r"both in the code layout of seed \d+: what the program does depends on time, so that a second run counts",
        ),
    ],
)
def test_runs_that_are_not_the_same_are_refused(planned: Planned, source: str, message: str) -> None:
    spec = pair(planned(source, "-O1"))[1]
    with pytest.raises(RunError, match=message) as error:
        EmulatedTarget().execute(spec)
    assert "a counter in the measured program can count this, a second run (`method: second_run`) cannot" in str(
        error.value
    )


COPIES = """
#include <string.h>
char before[4099], from[4101], between[4103], to[4105], after[4107];  // too large to be merged into one variable
__attribute__((noinline)) void copy(char *to, const char *from, int n) { memcpy(to, from, n); }
int small(int n) { if (n > 3) return n; return 0; }
void fill(int n) { for (int i = 0; i < 160; i++) from[i] = n + i; }
int look(int n) {
    int sum = 0;
    for (int i = 0; i < 20 + n % 7; i++) { copy(to, from, 150); sum += to[i]; }
    return sum;
}
int main(void) {
    int sum = 0;
    for (int i = 0; i < 400; i++) { fill(i); sum += small(look(i)); before[i % 3]++; between[i % 5]++; after[i % 7]++; }
    return sum == 0x7fffffff;
}
"""


@pytest.mark.parametrize("counted", [{}, {"looks": METRICS["looks"]}])
def test_a_program_whose_work_depends_on_how_its_data_are_aligned_is_counted_in_every_layout(
    planned: Planned, counted: dict[str, Any]
) -> None:
    """The second run had the layout of the build, in which memcpy takes another way: runs in two of three layouts
    failed. With a counter in the measured program, too."""
    metrics = {name: {**spec, "method": "second_run"} for name, spec in METRICS.items()} | counted
    plan = planned(COPIES, "-O1", software_metrics=metrics)
    of_layouts = set()
    for replicate in range(6):
        base, spec = pair(plan, replicate)
        run = EmulatedTarget().execute(spec)
        of_layouts.add(EmulatedTarget().execute(base).total_instructions)
        assert run.trace.counts(("fills",)).sum() in range(395, 401)
        assert np.median(run.trace.counts((PLACE_GAP,))) < 200
    assert max(of_layouts) > 1.05 * min(of_layouts)


def test_too_little_shared_code_is_refused(planned: Planned) -> None:
    spec = pair(planned())[1]
    assert spec.second_run is not None
    fill = next(code for code in spec.second_run.clock if code.function == "fill")
    few = fill._replace(offsets=fill.offsets[:1], second_offsets=fill.second_offsets[:1])
    with pytest.raises(RunError, match=r"steps in a record, expected at least 8"):
        EmulatedTarget().execute(replace(spec, second_run=replace(spec.second_run, clock=(few,))))
    other = few._replace(size_bytes=few.size_bytes + 2)
    with pytest.raises(RunError, match="the function fill is not what it was"):
        EmulatedTarget().execute(replace(spec, second_run=replace(spec.second_run, clock=(other,))))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampling": {"mode": "signal", "every": "4000 cycles"}}, "expected sampling.mode ideal, or a counter"),
        ({"ground_truth": True}, "ground_truth compares counters with probes in one run"),
        (
            {"machine": {"host": "perf"}, "sampling": {"every": "1 ms"}},
            "two runs of a real processor differ, and none can be stopped where another was",
        ),
    ],
)
def test_what_a_campaign_cannot_count_so_is_said_with_its_line(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = campaign_file(tmp_path, **changes)
    where = path.read_text().splitlines().index("software_metrics:") + 1
    result = CliRunner().invoke(main, ["run", str(path), "--dry-run"])
    assert result.exit_code == 2
    output = " ".join(result.output.split())
    assert message in output
    line = int(output.split("c.yaml:")[1].split(":")[0])
    assert line > where


def test_a_cycle_close_trace_has_no_second_run(tmp_path: Path) -> None:
    campaign, document = load_campaign(campaign_file(tmp_path))
    with pytest.raises(CampaignError, match="a cycle-close trace has no second run"):
        make_plan(campaign, document, lambda text: None, "cycleclose")


def test_a_dry_run_tells_the_second_runs_time(planned: Planned) -> None:
    plan = planned()
    campaign, document = load_campaign(Path(plan.campaign_file))
    found = estimate(campaign, document, QUIET, workers=2)
    assert found.second_runs == 6
    assert found.second_seconds > 0
    assert found.seconds == pytest.approx(
        6 * found.rate.run_seconds(found.instructions) + 3 * found.second_seconds + found.comparing_seconds
    )
    assert found.builds == sum(map(len, [*plan.builds.values(), *plan.second_builds.values()])) == 3
    assert found.columns == max(len(spec.metrics) for spec in plan.specs) + 4
    result = CliRunner().invoke(main, ["run", plan.campaign_file, "--dry-run"])
    assert "Beside 6 of them a second run counts, which takes about" in " ".join(
        result.output.replace("│", " ").split()
    )


def test_whole_command_and_report_say_that_nothing_changed(planned: Planned, tmp_path: Path) -> None:
    plan = planned()
    result = CliRunner().invoke(main, ["run", plan.campaign_file, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["variants"]["all"]["inner"]["verdict"] in ("equivalent", "not assessable")
    table = measure.load(tmp_path / "out").trace("all", 0)
    assert (table.attrs["units"][PLACE_GAP], table.attrs["units"]["turns"]) == ("instructions", "events")
    result = CliRunner().invoke(main, ["merge", str(tmp_path / "out"), "--out", str(tmp_path / "merged.csv")])
    assert result.exit_code == 0, result.output
    names = (tmp_path / "merged.csv").read_text().partition("\n")[0].split(",")
    assert set(METRICS) <= set(names)
    assert PLACE_GAP not in names
    result = CliRunner().invoke(main, ["metrics", plan.campaign_file])
    assert "loop look, in a second run" in result.output
