"""Programs on this machine whose threads, processes, exec and signals would make records wrong, and what they leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from measure.errors import RunError
from measure.host import supervisor
from measure.host.disturbances import forks, other_threads, uncounted
from measure.host.metrics import why_not
from measure.run_types import FORKS, LEFT, OTHER_THREADS, UNCOUNTED, Run, RunSpec
from measure.targets.host import HostTarget
from tests.measure.host.host_spec import host_spec

PROGRAM = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
volatile unsigned long sink;
void work(long n) { for (long i = 0; i < n; i++) sink += i; }
void rounds(int n) { for (int round = 0; round < n; round++) work(500000); }
void *thread(void *n) { rounds(*(int *)n); return n; }
void nothing(int number) { (void)number; }
int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int n = !strcmp(what, "threads") ? 50 : !strcmp(what, "helper") ? 5 : 0;
    pthread_t threads[2];
    sigset_t all, before;
    sigfillset(&all);
    if (!strcmp(what, "daemon") && fork() == 0) {
        char *const sleeps[] = {"sleep", "600", 0}, *const nothing[] = {0};
        setsid();
        if (fork() == 0) { /* its number is told, and it closes what it has of the run */
            printf("daemon %d\n", getpid());
            fflush(stdout);
            for (int file = 0; file < 3; file++)
                close(file);
            execve("/bin/sleep", sleeps, nothing);
        }
        _exit(0);
    }
    rounds(20);
    for (int started = 0; n && started < 2; started++)
        pthread_create(&threads[started], 0, thread, &n);
    if (!strcmp(what, "exec") && argc == 2)
        execl("/proc/self/exe", argv[0], "exec", "again", (char *)0);
    if (!strcmp(what, "exec another"))
        execl("/bin/true", "true", (char *)0);
    if (!strcmp(what, "exec nothing"))
        execl("/no/such/program", "program", (char *)0);
    if (!strcmp(what, "lose the handler"))
        signal(SIGPROF, SIG_DFL);
    if (!strcmp(what, "handle"))
        signal(SIGPROF, nothing);
    if (!strcmp(what, "block for a time"))
        sigprocmask(SIG_BLOCK, &all, &before);
    if (!strcmp(what, "close"))
        for (int file = 3; file < 1024; file++)
            close(file);
    rounds(15);
    if (!strcmp(what, "block for a time"))
        sigprocmask(SIG_SETMASK, &before, 0);
    if (!strcmp(what, "block"))
        sigprocmask(SIG_BLOCK, &all, 0);
    for (int started = 0; n && started < 2; started++)
        pthread_join(threads[started], 0);
    rounds(65);
    if (!strcmp(what, "leave"))
        syscall(SYS_exit_group, 0);
    return 0;
}
"""
pytestmark = pytest.mark.skipif(bool(why_not("page-faults")), reason=f"here {why_not('page-faults')}")


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> RunSpec:
    return replace(host_spec(tmp_path_factory.mktemp("processes"), PROGRAM), interval=400_000)


def run(spec: RunSpec, *arguments: str) -> Run:
    return HostTarget().execute(replace(spec, arguments=arguments))


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("threads", r"and not 0\.\d+ s of other threads; expected at most 25% of that time elsewhere"),
        ("exec", "exit status 125; its last words on stderr: measure: the program has replaced itself by exec"),
        ("exec another", r"without the sampler in it, .*: it replaced itself by another program \(exec\)"),
        ("lose the handler", "ended by SIGPROF, the signal by which the sampler in it takes records"),
        ("leave", "left by a system call of its own"),
        ("handle", "while it blocked SIGPROF, the sampler's signal, or handled it itself; expected records until"),
        ("block", "while it blocked SIGPROF, the sampler's signal, or handled it itself; expected records until"),
        ("close", "exit status 125; its last words on stderr: measure: the counters cannot be read: expected"),
    ],
)
def test_programs_whose_records_would_be_wrong_or_lost(spec: RunSpec, argument: str, message: str) -> None:
    """Also those that take less than 0.2 s in all."""
    with pytest.raises(RunError, match=message):
        run(spec, argument)


def test_a_program_of_one_thread_is_not_found_to_have_others(spec: RunSpec) -> None:
    for alone in (run(spec), run(spec, "exec nothing"), HostTarget().execute(replace(spec, interval=100_000))):
        assert not alone.trace.counts((OTHER_THREADS, FORKS, LEFT)).any()
        assert other_threads([alone]) == forks([alone]) == uncounted([alone]) == []


def test_threads_that_take_little_are_told(spec: RunSpec) -> None:
    alone, helped = run(spec), run(spec, "helper")
    by_thread = helped.trace.counts((OTHER_THREADS,)).sum() / helped.total_cycles
    assert 0.02 < by_thread < 0.2  # 10 rounds beside 100, which take longer where a virtual machine stands still
    (told,) = other_threads([alone, helped])
    assert told.startswith("Other threads than the main one ran in 1 of 2 runs (for up to ")
    assert "software metrics count in all threads, hardware metrics in the main thread only" in told


def test_time_for_which_the_sampler_could_not_come_is_told(spec: RunSpec) -> None:
    blocked = run(spec, "block for a time")
    column = blocked.trace.counts((UNCOUNTED,))[:, 0]
    assert 0.02 < column.max() / blocked.total_cycles < 0.25  # 15 rounds beside 85
    (told,) = uncounted([run(spec), blocked])
    assert told.startswith("In 1 of 2 runs the program went on after the counters had stopped")


def test_processes_that_the_program_leaves_are_ended_and_no_others(spec: RunSpec) -> None:
    """One with a session and an environment of its own, which holds no file of the run."""
    with subprocess.Popen(["sleep", "600"]) as bystander:
        try:
            left = run(spec, "daemon")
            assert bystander.poll() is None
        finally:
            bystander.kill()
    name, number = left.stdout_tail.split()
    assert name == "daemon"
    with pytest.raises(ProcessLookupError):
        os.kill(int(number), 0)
    assert set(left.trace.counts((LEFT,))[:, 0]) == {1}
    started, ended = forks([run(spec), left])
    assert "started processes in 1 of 2 runs" in started
    assert "left processes that still ran when its first one had ended in 1 of 2 runs (at most 1 in a run;" in ended


def test_the_program_ends_with_the_process_that_runs_it(tmp_path: Path) -> None:
    (tmp_path / "output").touch()
    output = str(tmp_path / "output")
    task = {
        "arguments": ["/bin/sh", "-c", "(sleep 600; :) & echo $$ $!; sleep 600; :"], "environment": {},
        "directory": "/", "stdin": os.devnull, "stdout": output, "stderr": output, "personality": 0,
        "processor": min(os.sched_getaffinity(0)), "limit_seconds": None,
    }  # fmt: skip
    command = [sys.executable, "-I", "-S", supervisor.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(task).encode() + b"\n")
        process.stdin.flush()
        ends_at = time.monotonic() + 20
        while not (numbers := (tmp_path / "output").read_text().split()) and time.monotonic() < ends_at:
            time.sleep(0.01)
        answer = json.loads(process.communicate(timeout=20)[0])  # closes its input, as the end of this process would
    assert answer["status"] is None
    assert answer["remaining"] == 0
    assert len(numbers) == 2
    for number in numbers:
        with pytest.raises(ProcessLookupError):
            os.kill(int(number), 0)


def test_a_program_that_cannot_be_started_says_why(spec: RunSpec, tmp_path: Path) -> None:
    (tmp_path / "program").write_text("no program")
    given = replace(spec, binary=str(tmp_path / "program"), layout_seed=None)
    with pytest.raises(RunError, match="exit status 127; its last words on stderr: the program cannot be started on"):
        HostTarget().execute(given)
