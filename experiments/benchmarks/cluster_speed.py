"""What a Dask cluster costs beside this machine's own processes, and what it withstands.

    python -m experiments.benchmarks.cluster_speed [PART ...] [--out cluster_speed.md]

Parts:

``workers``   the same runs of a real program on one worker and on two. A program in C that spends the same processor
              time on one and on two says what the machine itself gives.
``overhead``  runs of a second, made by one process of this machine and by a cluster of one worker, in turns.
``many``      10,000 runs of the fake target, with the scheduler in a process of its own: seconds, and the most memory
              that the scheduler and this process took.
``kills``     fake runs of 0.3 s, during which 50 workers are killed at random moments: every run is there at the end,
              and was stored once.

A scheduler and its workers are processes of their own, as on many machines, reached over loopback.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from common.atomic_files import write_text
from experiments.benchmarks.host import described
from measure.cluster.dask_workers import connect
from measure.run_types import Run, RunSpec
from measure.runs.campaign_file import load_campaign
from measure.runs.executor import Workers, execute_plan
from measure.runs.plan import make_plan
from measure.runs.store import Store

ROOT = Path(__file__).parents[2]
MACHINE = ROOT / "configs" / "machines" / "desktop.yaml"
PARTS = ("workers", "overhead", "many", "kills")
TARGETS = {
    "workers": "2 workers over 1: at least 1.9",
    "overhead": "at most 2%",
    "many": "3 minutes, 500 MB at the scheduler",
    "kills": "nothing lost, nothing twice",
}
PROGRAM = """\
static unsigned state = 1, table[1 << 14];
unsigned next(void) { state = state * 1664525u + 1013904223u; return state >> 8; }
void work(int n) { for (int i = 0; i < n; i++) table[next() % (1 << 14)] += i; }
int main(void) { for (int round = 0; round < ROUNDS; round++) work(2000 + 400 * (round % 50)); return 0; }
"""
CAMPAIGN = """\
name: cluster-speed
program: {{source: program.c}}
machine: {machine}
sampling: {{every: 40000 cycles}}
hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS, PAPI_L1_DCM, PAPI_BR_MSP]
software_metrics: {{rounds: {{event: entry, function: work}}}}
variants: {{light: [rounds]}}
paired: false
controls: false
baselines: {runs}
replicates: 2
"""


def real_runs(folder: Path, n: int, rounds: int) -> list[RunSpec]:
    """Specs of ``n`` runs of one program, in layouts of their own; ``rounds``: how long it runs."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "program.c").write_text(PROGRAM.replace("ROUNDS", str(rounds)))
    (folder / "campaign.yaml").write_text(CAMPAIGN.format(machine=MACHINE, runs=n))
    plan = make_plan(*load_campaign(folder / "campaign.yaml"), lambda text: None)
    return list(plan.specs)[:n]


def fake_runs(n: int, *arguments: str) -> list[RunSpec]:
    """Specs of ``n`` different runs of the fake target."""
    metrics = ("PAPI_TOT_CYC", "PAPI_TOT_INS")
    first = RunSpec(
        "baseline", 0, 0, "key", "none", arguments, None, (), "machine", "m.yaml", metrics, (), "ideal", 1000,
        "cycles", target="fake",
    )  # fmt: skip
    return [replace(first, replicate=k, seed=k) for k in range(n)]


class Cluster:
    """A scheduler and workers in processes of their own. ``nannies``: whether dead workers are started again."""

    def __init__(self, folder: Path, n_workers: int, *, nannies: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        address = folder / "scheduler.json"
        self._quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        dask = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
        self.scheduler = subprocess.Popen(
            [*dask, "--port", "0", "--no-dashboard", "--dashboard-address", ":0", "--scheduler-file", str(address)],
            env=environment, **self._quiet,
        )  # fmt: skip
        while not address.exists():
            if self.scheduler.poll() is not None:
                raise SystemExit("the scheduler did not start")
            time.sleep(0.1)
        self.address: str = json.loads(address.read_text())["address"]
        environment |= {"DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False"}  # as docs/many_machines.md has it
        command = [sys.executable, "-m", "distributed.cli.dask_worker", self.address, "--nthreads", "1"]
        command += ["--no-dashboard", "--nanny" if nannies else "--no-nanny"]
        self.workers = [subprocess.Popen(command, env=environment, **self._quiet) for _ in range(n_workers)]

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.terminate()
        for process in (*self.workers, self.scheduler):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()


@contextlib.contextmanager
def cluster_of(folder: Path, n_workers: int, *, nannies: bool = False) -> Iterator[tuple[Cluster, Workers]]:
    """A cluster and its workers as `execute_plan` takes them, when all of them are there."""
    cluster = Cluster(folder, n_workers, nannies=nannies)
    try:
        wait_for_workers(cluster.address, n_workers)
        with connect(cluster.address, lambda text: print(text, file=sys.stderr)) as workers:
            yield cluster, workers
    finally:
        cluster.close()


def wait_for_workers(address: str, n: int) -> None:
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(n, timeout=60)


def seconds_of(specs: Sequence[RunSpec], workers: Workers, folder: Path, name: str) -> float:
    """Wall-clock seconds of the runs, from their submission to the last one stored."""
    with Store(folder / f"store-{name}-{time.monotonic_ns()}") as store:
        start = time.perf_counter()
        outcome = execute_plan(specs, store, workers=workers)
        seconds = time.perf_counter() - start
    if outcome.failures:
        raise SystemExit(f"a run failed: {outcome.failures[0].reason}")
    return seconds


def burn(n: int) -> int:
    """Spend processor time."""
    total = 0
    for k in range(n):
        total += k * k
    return total


def scaling_of_machine(repeats: int) -> float:
    """Two processes over one at work that shares nothing: what two processors of this machine give."""
    jobs, size = 8, 3_000_000
    ratios = []
    for _ in range(repeats):
        seconds = []
        for count in (1, 2):
            with concurrent.futures.ProcessPoolExecutor(count) as pool:
                list(pool.map(burn, [1000] * count))
                start = time.perf_counter()
                list(pool.map(burn, [size] * jobs))
                seconds.append(time.perf_counter() - start)
        ratios.append(seconds[0] / seconds[1])
    return statistics.median(ratios)


def measure_workers(folder: Path, repeats: int) -> dict[str, Any]:
    specs = real_runs(folder, 24, 1200)
    found: dict[int, list[float]] = {1: [], 2: []}
    for count in (1, 2):
        with cluster_of(folder / f"cluster{count}", count) as (_, workers):
            seconds_of(specs[: 2 * count], workers, folder, "first")  # translations and kernels are there afterwards
            found[count] = [seconds_of(specs, workers, folder, f"{count}") for _ in range(repeats)]
    best = {count: min(seconds) for count, seconds in found.items()}
    return {
        "runs": len(specs), "one worker [s]": best[1], "two workers [s]": best[2], "ratio": best[1] / best[2],
        "the machine's own ratio": scaling_of_machine(repeats),
    }  # fmt: skip


def measure_overhead(folder: Path, repeats: int) -> dict[str, Any]:
    """The same runs by a process of this machine and by a cluster of one worker, in turns."""
    specs = real_runs(folder, 12, 1200)
    seconds: dict[str, list[float]] = {"process": [], "cluster": []}
    with Workers(1) as process, cluster_of(folder / "cluster", 1) as (_, cluster):
        both = {"process": process, "cluster": cluster}
        for name, workers in both.items():
            seconds_of(specs[:2], workers, folder, f"first-{name}")
        for repeat in range(repeats):
            for name in both if repeat % 2 == 0 else reversed(both):
                seconds[name].append(seconds_of(specs, both[name], folder, name))
    best = {name: min(values) for name, values in seconds.items()}
    return {
        "runs": len(specs), "a run [s]": best["process"] / len(specs), "process [s]": best["process"],
        "cluster [s]": best["cluster"], "overhead [%]": 100 * (best["cluster"] / best["process"] - 1),
    }  # fmt: skip


def peak_mb(pid: int) -> float:
    """The most memory that a process has held [MB]."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def measure_many(folder: Path, repeats: int) -> dict[str, Any]:
    n = 10_000
    with cluster_of(folder / "cluster", 2) as (cluster, workers):
        at_start = peak_mb(cluster.scheduler.pid)
        seconds = seconds_of(fake_runs(n), workers, folder, "many")
        return {
            "runs": n, "seconds": seconds, "scheduler at its start [MB]": at_start,
            "scheduler [MB]": peak_mb(cluster.scheduler.pid), "this process [MB]": peak_mb(os.getpid()),
        }  # fmt: skip


class CountingStore(Store):
    """A store that counts how often each run is stored."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.saves: Counter[str] = Counter()

    def save(self, key: str, run: Run) -> None:
        self.saves[key] += 1
        super().save(key, run)


def children_of(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        found += [int(word) for word in (thread / "children").read_text().split()]
    return found


def is_worker(pid: int) -> bool:
    """Whether a child of a nanny is its worker, not Python's tracker of resources."""
    with contextlib.suppress(OSError):
        return b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def measure_kills(folder: Path, repeats: int) -> dict[str, Any]:
    wanted, chance = 50, random.Random(7)
    specs = fake_runs(1500, "sleep")
    killed = 0
    ended = threading.Event()
    store = CountingStore(folder / "store")
    with cluster_of(folder / "cluster", 3, nannies=True) as (cluster, workers), store:

        def kill_at_random() -> None:
            nonlocal killed
            while killed < wanted and not ended.wait(chance.uniform(0.2, 3.0)):
                alive = [pid for nanny in cluster.workers for pid in children_of(nanny.pid) if is_worker(pid)]
                if alive:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(chance.choice(alive), signal.SIGKILL)
                        killed += 1

        killer = threading.Thread(target=kill_at_random)
        killer.start()
        start = time.perf_counter()
        try:
            outcome = execute_plan(specs, store, workers=workers)
        finally:
            ended.set()
            killer.join()
    return {
        "runs": len(specs), "killed": killed, "seconds": time.perf_counter() - start, "failed": len(outcome.failures),
        "lost": len(specs) - len(outcome.runs), "stored twice": sum(count > 1 for count in store.saves.values()),
    }  # fmt: skip


MEASURE = {
    "workers": measure_workers, "overhead": measure_overhead, "many": measure_many, "kills": measure_kills,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="which ones (default: all)")
    parser.add_argument("--repeats", type=int, default=3, help="the least counts (default: 3)")
    parser.add_argument("--out", type=Path, default=Path("cluster_speed.md"), help="where the page goes")
    options = parser.parse_args()
    kept = options.out.with_suffix(".json")
    measured: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else {}
    for part in options.parts or PARTS:
        with tempfile.TemporaryDirectory(prefix="cluster-speed-") as name:
            measured[part] = MEASURE[part](Path(name), options.repeats)
        write_text(kept, json.dumps(measured, indent=1))
        print(part, measured[part], flush=True)
    lines = ["# What a Dask cluster costs", "", f"`python -m experiments.benchmarks.cluster_speed`; {described()}.", ""]
    for part in (part for part in PARTS if part in measured):
        lines += [f"## {part} (wanted: {TARGETS[part]})", "", "| | |", "|---|---|"]
        lines += [f"| {name} | {value:.4g} |" for name, value in measured[part].items()]
        lines += [""]
    write_text(options.out, "\n".join(lines))
    print(options.out.read_text())


if __name__ == "__main__":
    main()
