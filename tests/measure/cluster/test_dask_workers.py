"""Runs on a Dask cluster: the same traces as here, whatever happens to its workers."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from instrumenter.building.generated_sources import preprocess_all
from instrumenter.building.program_build import Recipe
from instrumenter.building.relink import relinked
from instrumenter.compiler.toolchain import Toolchain
from measure.cli import main
from measure.cluster import dask_workers
from measure.cluster.dask_workers import ClusterError, connect
from measure.cluster.identity import difference, machine_identity
from measure.cluster.shipment import PROGRAM, Packer, unpack, unpacked_spec
from measure.errors import CampaignError
from measure.run_types import Run, RunSpec
from measure.runs.campaign_file import load_campaign
from measure.runs.executor import Workers, execute_plan
from measure.runs.plan import make_plan
from measure.runs.store import Store

distributed = pytest.importorskip("distributed", reason="Dask is an optional dependency")
ROOT = Path(__file__).parents[3]
PROGRAM_TEXT = """\
static unsigned state = 1, table[4096];
unsigned next(void) { state = state * 1664525u + 1013904223u; return state >> 8; }
void work(int n) { for (int i = 0; i < n; i++) table[next() % 4096] += i; }
int main(void) { for (int round = 0; round < 40; round++) work(500 + 400 * (round % 5)); return 0; }
"""
CAMPAIGN = """\
name: demo
program: {source: demo.c}
machine: MACHINE
sampling: {every: 4000 cycles}
hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS]
software_metrics: {rounds: {event: entry, function: work}}
variants: {light: [rounds]}
baselines: 2
replicates: 2
paired: false
controls: false
"""


def fake_specs(n: int, *arguments: str) -> list[RunSpec]:
    return [
        RunSpec(
            "baseline",
            k,
            k,
            "key",
            "none",
            arguments,
            None,
            (),
            "machine",
            "m.yaml",
            ("PAPI_TOT_CYC", "PAPI_TOT_INS"),
            (),
            "ideal",
            1000,
            "cycles",
            target="fake",
        )
        for k in range(n)
    ]


@pytest.fixture(scope="module")
def client() -> Iterator[object]:
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def test_traces_are_those_of_this_machine_to_the_bit(client: object, tmp_path: Path) -> None:
    """Among them runs that link the program anew, from files that were sent."""
    (tmp_path / "demo.c").write_text(PROGRAM_TEXT)
    machine = ROOT / "configs" / "machines" / "desktop.yaml"
    (tmp_path / "c.yaml").write_text(CAMPAIGN.replace("MACHINE", str(machine)))
    plan = make_plan(*load_campaign(tmp_path / "c.yaml"), lambda text: None)
    assert any(spec.layout_seed is not None for spec in plan.specs)
    found = []
    with connect(client) as cluster, Workers(1) as own:  # type: ignore[arg-type]
        for name, workers in (("cluster", cluster), ("own", own)):
            with Store(tmp_path / name) as store:
                found.append(execute_plan(plan.specs, store, keys=plan.keys, workers=workers))
    assert not found[0].failures
    for one, other in zip(*(outcome.runs for outcome in found), strict=True):
        assert one.spec == other.spec
        assert np.array_equal(one.trace.values, other.trace.values)
        assert np.array_equal(one.trace.boundaries_cycles, other.trace.boundaries_cycles)


def test_a_command_on_a_cluster_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "demo.c").write_text(PROGRAM_TEXT)
    machine = ROOT / "configs" / "machines" / "desktop.yaml"
    (tmp_path / "c.yaml").write_text(CAMPAIGN.replace("MACHINE", str(machine)))
    command = ["run", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "out"), "--target", "fake"]
    result = CliRunner().invoke(main, [*command, "--scheduler", "local:2"])
    assert result.exit_code == 0, result.output
    assert "Report:" in result.output
    again = CliRunner().invoke(main, [*command, "--scheduler", "local:2", "--workers", "2"])
    assert again.exit_code == 2
    assert "--workers" in again.output


def test_failures_are_reasons_and_stop_the_rest(client: object, tmp_path: Path) -> None:
    with connect(client) as cluster, Store(tmp_path) as store:  # type: ignore[arg-type]
        outcome = execute_plan(fake_specs(40, "fail"), store, workers=cluster)
    assert not outcome.runs
    assert 3 <= len(outcome.failures) < 40
    assert "boom" in outcome.failures[0].reason


def test_runs_that_no_worker_has_are_submitted_anew(client: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask does not look again at a run that waits for a resource when a worker gets it."""
    monkeypatch.setattr(dask_workers, "_LOOK_SECONDS", 0.1)
    with connect(client) as cluster:  # type: ignore[arg-type]
        resource, cluster._resource = cluster._resource, "of no worker"
        future = cluster.submit(fake_specs(1)[0])
        cluster._resource = resource
        assert isinstance(future.result(timeout=60), Run)


def test_an_error_of_a_look_at_the_workers_is_told_once(client: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake in the watcher let a campaign wait in silence."""
    monkeypatch.setattr(dask_workers, "_LOOK_SECONDS", 0.01)
    told: list[str] = []
    looks = threading.Semaphore(0)

    def look() -> None:
        looks.release()
        raise TypeError("no such worker")

    with connect(client, told.append) as cluster:  # type: ignore[arg-type]
        monkeypatch.setattr(cluster, "_find_lost", look)
        for _ in range(5):
            assert looks.acquire(timeout=60)
        assert isinstance(cluster.submit(fake_specs(1)[0]).result(timeout=60), Run)
    assert told == ["A look at the cluster's workers failed, and is repeated: TypeError: no such worker"]


class DaskProcesses:
    """Worker processes of a scheduler, without a nanny: what dies is replaced as a batch system would."""

    def __init__(self, address: str, folder: Path, count: int) -> None:
        self._command = [
            sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny",
            "--no-dashboard", "--local-directory", str(folder),
        ]  # fmt: skip
        self.processes = [self._start() for _ in range(count)]

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self, n: int) -> None:
        """Kill one, and start another in its place."""
        self.processes[n].kill()
        self.processes[n].wait()
        self.processes[n] = self._start()

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_workers_that_are_killed_cost_their_runs_only(tmp_path: Path) -> None:
    specs = fake_specs(24, "sleep")
    done = itertools.count(1)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=60) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        processes = DaskProcesses(cluster.scheduler_address, tmp_path, 2)
        try:
            client.wait_for_workers(2, timeout=120)
            with connect(client) as workers:
                watchdog = threading.Timer(240, workers.end)  # a failure, and no endless wait
                watchdog.start()
                with Store(tmp_path / "out") as store:
                    outcome = execute_plan(
                        specs, store, workers=workers,
                        progress=lambda: processes.kill(n % 2) if (n := next(done)) in (5, 6, 15) else None,
                    )  # fmt: skip
                watchdog.cancel()
        finally:
            processes.end()
    assert [run.spec for run in outcome.runs] == specs
    assert len(list((tmp_path / "out" / "traces").glob("*.parquet"))) == len(specs)


def kill_after(scheduler: subprocess.Popen[bytes], n_done: int) -> None:
    if n_done == 5:
        scheduler.kill()


@pytest.mark.slow
def test_a_scheduler_that_dies_costs_nothing_that_was_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_workers, "_CONNECT_SECONDS", 20.0)
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
    file = tmp_path / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    scheduler = subprocess.Popen([*dask, "--scheduler-file", str(file)], **quiet)  # type: ignore[call-overload]
    worker_command = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file)]
    worker = subprocess.Popen(
        [*worker_command, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(tmp_path)],
        **quiet,  # type: ignore[call-overload]
    )
    try:
        with distributed.Client(scheduler_file=str(file), timeout=60, set_as_default=False) as client:
            client.wait_for_workers(1, timeout=60)
            specs = fake_specs(60, "sleep")
            done = itertools.count(1)
            with connect(client) as workers, Store(tmp_path / "out") as store:
                with pytest.raises(ClusterError, match="start again"):
                    execute_plan(specs, store, workers=workers, progress=lambda: kill_after(scheduler, next(done)))
                finished = len(list((tmp_path / "out" / "traces").glob("*.parquet")))
                assert 5 <= finished < len(specs)
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait()
    with Store(tmp_path / "out") as store, Workers(2) as own:
        outcome = execute_plan([*specs[:finished], *fake_specs(1)], store, workers=own)
    assert outcome.reused == finished


@pytest.mark.parametrize(
    ("part", "theirs", "message"),
    [
        ("perturbation", "0.0.1", "it has perturbation 0.0.1, here it is"),
        ("sources", "other", "its sources of perturbation are not those of here"),
        ("processor", "model name : Other 1\nflags : a", "its processor is Other 1"),
    ],
)
def test_workers_of_another_version_or_processor_are_refused(
    client: object, monkeypatch: pytest.MonkeyPatch, part: str, theirs: str, message: str
) -> None:
    mine = machine_identity()
    assert not difference(mine, dict(mine))
    assert message in difference(mine, {**mine, part: theirs})
    monkeypatch.setattr(dask_workers, "machine_identity", lambda: {**mine, part: f"not {theirs}"})
    told: list[str] = []
    with pytest.raises(ClusterError, match="no worker that can be used: 2 refused"):
        connect(client, told.append)  # type: ignore[arg-type]
    assert len(told) == 2
    assert "is not used: " in told[0]


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        ("local:none", "expected local:N"),
        ("somewhere", "expected tcp://HOST:PORT or local:N"),
        ("local:0", "expected local:N"),
    ],
)
def test_wrong_addresses(scheduler: str, message: str) -> None:
    with pytest.raises(CampaignError, match=message):
        connect(scheduler)


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_workers, "_CONNECT_SECONDS", 1.0)
    with pytest.raises(ClusterError, match=r"no scheduler answers at tcp://127\.0\.0\.1:9"):
        connect("tcp://127.0.0.1:9")


def test_without_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(CampaignError, match="pip install"):
        connect("local:1")


def test_a_program_is_linked_from_sent_files_as_from_its_own(tmp_path: Path) -> None:
    source = tmp_path / "demo.c"
    source.write_text(PROGRAM_TEXT)
    program = Recipe(preprocess_all([source], ("-O1",), Toolchain()), relinkable=True).build({}).elf_path
    spec = RunSpec(
        "baseline",
        0,
        0,
        "key",
        str(program),
        (),
        str(source),
        (("/a", str(source)),),
        "machine",
        "m.yaml",
        (),
        (),
        "ideal",
        1000,
        "cycles",
        layout_seed=7,
    )
    packer = Packer()
    shipment = packer.shipment(spec)
    assert packer.shipment(spec) == shipment
    unpack(tmp_path / "there", {name: packer.contents[name] for name in shipment.hashes()})
    there = unpacked_spec(spec, shipment, tmp_path / "there")
    assert relinked(Path(there.binary), 7) == relinked(program, 7)
    assert Path(str(there.stdin)).read_text() == Path(there.files[0][1]).read_text() == PROGRAM_TEXT
    plain = replace(spec, layout_seed=None)
    sent = packer.shipment(plain)
    unpack(tmp_path / "there", {name: packer.contents[name] for name in sent.hashes()})
    assert Path(unpacked_spec(plain, sent, tmp_path / "there").binary).read_bytes() == program.read_bytes()
    assert [name for name, _ in sent.build] == [PROGRAM]
