"""Programs that run on this machine's own processor, and traces of processors that this machine is not."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instrumenter.errors import InstrumenterError
from instrumenter.host_sampler_format import MAGIC, read_host_trace
from measure.errors import RunError
from measure.host.description import host_text, identity_of, parse_host
from measure.host.disturbances import disturbances, forks, multiplexed
from measure.host.metrics import why_not
from measure.host.processor import can_fix_addresses
from measure.run_types import (
    FORKS,
    LEFT,
    MIGRATED,
    MULTIPLEXED,
    OTHER_THREADS,
    RECORD_FLAGS,
    SWITCHES,
    UNCOUNTED,
    RunSpec,
)
from measure.targets import host as host_target
from measure.targets.host import HostTarget
from tests.measure.host.host_spec import host_spec

PROGRAM = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
volatile unsigned long sink;
void work(long n) { for (long i = 0; i < n; i++) sink += i; }
int nothing(void *argument) { return argument != 0; }
void *forking(void *argument) { if (fork() == 0) _exit(0); wait(0); return argument; }
int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "fail")) { fprintf(stderr, "no luck\n"); return 3; }
    if (!strcmp(what, "crash")) *(volatile int *)0 = 1;
    if (!strcmp(what, "child")) { if (fork() == 0) { work(150000000); exit(0); } work(25000000); wait(0); return 0; }
    if (!strcmp(what, "read")) { FILE *file = fopen("data/in.txt", "r"); if (!file || fgetc(file) != 'x') return 4; }
    if (!strcmp(what, "short")) { work(1000); return 0; }
    if (!strcmp(what, "forks"))
        for (int child = 0; child < 3; child++) {
            if (fork() == 0) {
                work(1000);
                if (child == 1) execl(argv[0], argv[0], "short", (char *)0);
                exit(0);
            }
            wait(0);
        }
    if (!strcmp(what, "spawns")) {
        static char stack[65536];
        char *again[] = {argv[0], "short", 0}, *empty[] = {0};
        pthread_t thread;
        pid_t child;
        if (vfork() == 0) _exit(0);
        wait(0);
        if (posix_spawn(&child, argv[0], 0, 0, again, empty)) return 5;
        waitpid(child, 0, 0);
        if (clone(nothing, stack + sizeof stack, SIGCHLD, 0) < 0) return 6;
        wait(0);
        if (pthread_create(&thread, 0, forking, 0)) return 7;
        pthread_join(thread, 0);
    }
    int first = dup(0);
    for (int round = 0; round < 40; round++) {
        char *page = malloc(400000);
        memset(page, round, 400000);
        sink += page[round];
        work(1000000 + 500000 * (round % 4));
        free(page);
    }
    printf("first file %d stack %lx heap %lx done\n", first, (unsigned long)&what, (unsigned long)malloc(8));
    fflush(stdout);
    if (!strcmp(what, "leave")) _exit(0);
    return 0;
}
"""
pytestmark = pytest.mark.skipif(bool(why_not("page-faults")), reason=f"here {why_not('page-faults')}")


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> RunSpec:
    return host_spec(tmp_path_factory.mktemp("host"), PROGRAM)


def test_a_program_runs_and_leaves_a_trace(spec: RunSpec) -> None:
    run = HostTarget().execute(spec)
    assert run.trace.metrics == ("page-faults", "tsc", "task-clock", "rounds", *RECORD_FLAGS)
    table = dict(zip(run.trace.metrics, run.trace.values.T, strict=True))
    assert 35 <= table["rounds"].sum() <= 40  # the first and the last record are left out
    assert table["page-faults"].sum() > 20 * 90  # 98 pages a round
    assert 0.7e6 < np.median(table["task-clock"]) < 1.5e6
    assert np.array_equal(np.diff(run.trace.boundaries_cycles), table["task-clock"])
    assert run.total_cycles >= table["task-clock"].sum()
    assert run.total_instructions == 0
    assert run.stdout_tail.endswith("done")
    assert not table[MULTIPLEXED].any()


def test_a_program_that_leaves_by_exit_of_the_system_loses_no_record(spec: RunSpec) -> None:
    table = HostTarget().execute(replace(spec, arguments=("leave",))).trace
    assert 35 <= table.values[:, table.metrics.index("rounds")].sum() <= 40


def test_the_program_sees_what_it_would_without_the_sampler(spec: RunSpec) -> None:
    assert "first file 3" in HostTarget().execute(spec).stdout_tail


@pytest.mark.skipif(not can_fix_addresses(), reason="addresses are drawn at random here")
def test_addresses_follow_from_the_seed(spec: RunSpec) -> None:
    def addresses(seed: int) -> str:
        return HostTarget().execute(replace(spec, seed=seed)).stdout_tail

    assert addresses(1) == addresses(1)
    stack, heap = ({addresses(seed).split()[place] for seed in range(4)} for place in (4, 6))
    assert len(stack) == 4
    assert len(heap) > 1


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("fail", "exit status 3; its last words on stderr: no luck"),
        ("crash", "ended by SIGSEGV"),
        ("child", "the sampler counts the main thread only"),
    ],
)
def test_programs_that_cannot_be_measured(spec: RunSpec, argument: str, message: str) -> None:
    with pytest.raises(RunError, match=message):
        HostTarget().execute(replace(spec, arguments=(argument,)))


def test_too_few_records(spec: RunSpec) -> None:
    with pytest.raises(RunError, match="sample at a shorter interval"):
        HostTarget().execute(replace(spec, interval=1_000_000_000))


def test_a_program_that_does_not_end(spec: RunSpec) -> None:
    with pytest.raises(RunError, match=r"still ran after 0\.01 s"):
        HostTarget().execute(replace(spec, limit_seconds=0.01))


def test_files_are_beside_the_program(spec: RunSpec, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    given = replace(spec, arguments=("read",), files=(("data/in.txt", str(tmp_path / "mine.txt")),))
    assert HostTarget().execute(given).trace.n_records
    with pytest.raises(RunError, match="exit status 4"):
        HostTarget().execute(replace(given, files=()))


@pytest.mark.parametrize(
    ("name", "message"), [("/data/in.txt", "expected one relative"), ("../in.txt", "leads out of the directory")]
)
def test_files_elsewhere_are_refused(spec: RunSpec, tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(RunError, match=message):
        HostTarget().execute(replace(spec, files=((name, str(tmp_path / "mine.txt")),)))


def test_the_machine_is_named_in_the_spec() -> None:
    text = host_text(None)
    assert parse_host(text).processor in os.sched_getaffinity(0)
    assert identity_of(text)["kernel"] == os.uname().release
    with pytest.raises(ValueError, match="got processor 4096, expected one that may be used"):
        host_text(4096)


def trace_file(records: Sequence[Sequence[int]], n_events: int, complete: int = 1) -> bytes:
    """A file as the sampler writes it."""
    table = np.array(records, np.uint64)
    return MAGIC + struct.pack("=IIII", table.shape[1], n_events, complete, 0) + table.tobytes()


def test_a_processor_with_counters(spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace with counters, which this machine may not have: two events, in the campaign's order."""
    n = 40
    records = [
        # ticks, time, switches so far, enabled, running, processor, forks, times of other threads, of processes and
        # of the main thread, instructions, cycles, calls so far
        [3000, 1_000_000, k // 10, k * 1000, k * 1000 - 300 * (k >= 20), k >= 30, 0, *later]
        for k in range(n)
        for later in [(9 * k, 0, 1_004_000 + 200_000 * (k == 5), 5000 + k, 2000 - k, 7 * (k + 1))]
    ]

    def run_program(spec: RunSpec, host: object, folder: Path) -> tuple[str, int]:
        (folder / "trace").write_bytes(trace_file(records, 2))
        return "recorded", 2

    monkeypatch.setattr(host_target, "_run_program", run_program)
    given = replace(spec, hardware_metrics=("PAPI_TOT_INS", "tsc", "PAPI_TOT_CYC", "context-switches"))
    run = HostTarget().execute(given)
    assert run.trace.n_records == n - 2
    table = dict(zip(run.trace.metrics, run.trace.values.T, strict=True))
    assert table["PAPI_TOT_INS"].tolist() == [5000 + k for k in range(1, n - 1)]
    assert table["PAPI_TOT_CYC"].tolist() == [2000 - k for k in range(1, n - 1)]
    assert set(table["rounds"]) == {7}
    assert table["context-switches"].sum() == 3
    assert table[SWITCHES].sum() == 3
    assert table[MIGRATED].sum() == 1
    assert table[MULTIPLEXED].tolist() == [300 * (k == 20) for k in range(1, n - 1)]
    assert table[OTHER_THREADS].tolist() == [9] * (n - 2)
    assert table[UNCOUNTED].tolist() == [104_000 * (k == 5) for k in range(1, n - 1)]
    assert table[LEFT].tolist() == [2] * (n - 2)
    assert run.total_instructions == sum(5000 + k for k in range(n))
    assert np.diff(run.trace.boundaries_instructions).tolist() == table["PAPI_TOT_INS"].tolist()
    told = " ".join(disturbances([run]))
    for words in ("in 3 of 38 records", "1 of 38 records ended on another"):
        assert words in told
    (partial,) = multiplexed([run])
    assert partial.startswith("In 1 of 38 records the events were counted for a part of the time")
    assert disturbances([]) == multiplexed([]) == []
    assert len(forks([run])) == 1


def test_forks_are_told(spec: RunSpec) -> None:
    alone, forked = (HostTarget().execute(replace(spec, arguments=given)) for given in ((), ("forks",)))
    assert set(forked.trace.counts((FORKS,))[:, 0]) <= {0, 1, 2, 3}
    assert forked.trace.counts((FORKS,))[-1] == 3
    # Neither a child's end nor a child that executes the program again touches the trace.
    assert 35 <= forked.trace.counts(("rounds",)).sum() <= 40
    assert 0.5e6 < np.median(forked.trace.counts(("task-clock",))) < 1.5e6
    (told,) = forks([alone, forked])
    assert told.startswith("The program started processes in 1 of 2 runs (at most 3 in a run; column host:forks of")
    assert "{mode: ideal}" in told
    assert forks([alone]) == forks([]) == []


def test_processes_are_counted_however_they_are_started(spec: RunSpec) -> None:
    """By vfork, posix_spawn and clone, and by fork in another thread; the thread itself is none."""
    run = HostTarget().execute(replace(spec, arguments=("spawns",)))
    assert run.trace.counts((FORKS,))[-1] == 4
    assert 35 <= run.trace.counts(("rounds",)).sum() <= 40


@given(st.binary(max_size=80))
def test_damaged_traces_are_refused(data: bytes) -> None:
    whole = trace_file([[1] * 12, [2] * 12], 1)
    for damaged in (data, whole[:-3], MAGIC + data):
        try:
            records = read_host_trace(damaged)
        except InstrumenterError:
            continue
        assert records.ticks.ndim == 1
    with pytest.raises(InstrumenterError, match="is cut"):
        read_host_trace(whole[:-3])
    assert read_host_trace(whole).time_ns.tolist() == [1, 2]
    assert [read_host_trace(trace_file([[1] * 12], 1, complete)).complete for complete in (0, 1)] == [False, True]
