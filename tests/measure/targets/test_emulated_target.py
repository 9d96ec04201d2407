"""Runs on the emulated machine depend on their spec, and on nothing of the user's."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from emulator.linux.kernel import scheduler
from emulator.machine import Machine
from instrumenter.building.generated_sources import preprocess_all
from instrumenter.building.program_build import Recipe, SamplerConfig, build_program
from instrumenter.compiler.toolchain import Toolchain
from instrumenter.sampler_format import read_sampler_trace
from instrumenter.spec.software_metrics import MetricSpec
from measure.errors import RunError
from measure.run_types import BASELINE, CounterPlace, RunNoise, RunSpec
from measure.runs.campaign_model import Noise
from measure.runs.plan import content_keys
from measure.targets import emulated
from measure.targets.emulated import EmulatedTarget, check_ending, hotness_threshold

MACHINE = Path(__file__).parents[3] / "configs" / "machines" / "desktop.yaml"
# It walks its stack, whose place in memory the name of the program would move.
PROGRAM = """
#include <stdio.h>
int main(int argc, char **argv) {
    unsigned sum = 0;
    for (int round = 0; round < 300; round++) {
        unsigned char here[3000];
        for (int n = 0; n < 3000; n++) here[n] = n + round + (argv[0][0] == '?');
        for (int n = 0; n < 3000; n += 7) sum += here[(n * 31) % 3000];
    }
    printf("%u\\n", sum);
    return 0;
}
"""


def test_the_same_seed_gives_the_same_trace_wherever_the_cache_directory_is(tmp_path: Path) -> None:
    source = tmp_path / "walks.c"
    source.write_text(PROGRAM)
    here = build_program([source], ["-O1"]).elf_path
    elsewhere = tmp_path / ("a directory with a long name " * 4) / "another name of the program"
    elsewhere.parent.mkdir()
    shutil.copy(here, elsewhere)
    spec = RunSpec(
        variant=BASELINE, replicate=0, seed=5, build_key="key", binary=str(here), arguments=(), stdin=None, files=(),
        machine=MACHINE.read_text("utf-8"), machine_name=str(MACHINE), hardware_metrics=("PAPI_TOT_INS", "PAPI_L1_DCM"),
        counters=(), sampling_mode="ideal", interval=20_000, interval_unit="cycles",
        noise=RunNoise(**Noise().model_dump()),
    )  # fmt: skip
    first = EmulatedTarget().execute(spec)
    second = EmulatedTarget().execute(replace(spec, binary=str(elsewhere)))
    assert first.trace.boundaries_cycles.tolist() == second.trace.boundaries_cycles.tolist()
    assert np.array_equal(first.trace.values, second.trace.values)


def test_a_program_with_few_runs_is_hardly_compiled_and_has_the_same_trace(tmp_path: Path) -> None:
    source = tmp_path / "walks.c"
    source.write_text(PROGRAM)
    spec = RunSpec(
        variant=BASELINE, replicate=0, seed=5, build_key="key", binary=str(build_program([source]).elf_path),
        arguments=(), stdin=None, files=(), machine=MACHINE.read_text("utf-8"), machine_name=str(MACHINE),
        hardware_metrics=("PAPI_TOT_INS",), counters=(), sampling_mode="ideal", interval=20_000,
        interval_unit="cycles",
    )  # fmt: skip
    seldom = replace(spec, seldom=True)
    assert content_keys([seldom]) == content_keys([spec])
    assert hotness_threshold(seldom) == hotness_threshold(replace(spec, layout_seed=1)) > hotness_threshold(spec)
    traces = [EmulatedTarget().execute(one).trace for one in (spec, seldom)]
    assert np.array_equal(traces[0].values, traces[1].values)
    assert traces[0].boundaries_cycles.tolist() == traces[1].boundaries_cycles.tolist()


FORKING = """
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
volatile unsigned long sink;
void step(void) { for (int n = 0; n < 200; n++) sink += n; }
int main(int argc, char **argv) {
    for (int n = 0; n < 500; n++) step();
    if (argc > 1) return 0;  /* executed again: 500 */
    for (int child = 0; child < 4; child++)
        if (fork() == 0) {
            if (child == 3) execl(argv[0], argv[0], "again", (char *)0);
            for (int n = 0; n < 1000; n++) step();
            exit(0);
        }
    for (int n = 0; n < 1500; n++) step();
    while (wait(0) > 0);
    for (int n = 0; n < 500; n++) step();
    return 0;
}
"""
STEPS = 500 + 3 * 1000 + 500 + 1500 + 500


THREADED = """
#include <pthread.h>
volatile unsigned long sink;
void step(void) { for (int n = 0; n < 200; n++) sink += n; }
static void *work(void *unused) {
    for (int n = 0; n < 2000; n++) step();
    return 0;
}
int main(void) {
    pthread_t threads[3];
    for (int n = 0; n < 3; n++) pthread_create(&threads[n], 0, work, 0);
    for (int n = 0; n < 3; n++) pthread_join(threads[n], 0);
    return 0;
}
"""


def sampling_itself(folder: Path, program: str, metric: dict[str, str]) -> RunSpec:
    """The spec of a run of ``program``, which samples itself."""
    source = folder / "program.c"
    source.write_text(program)
    recipe = Recipe(preprocess_all([source], ["-O1"], Toolchain()), ("-O1",), (), SamplerConfig(20_000, 1))
    build = recipe.build({"steps": MetricSpec.model_validate(metric)})
    at = build.counters["steps"]
    return RunSpec(
        variant="steps", replicate=0, seed=5, build_key=build.key, binary=str(build.elf_path), arguments=(), stdin=None,
        files=(), machine=MACHINE.read_text("utf-8"), machine_name=str(MACHINE), hardware_metrics=("PAPI_TOT_INS",),
        counters=(CounterPlace("steps", at.symbol, at.offset_bytes),), sampling_mode="signal", interval=20_000,
        interval_unit="cycles", unread=("steps",) if "method" in metric else (),
    )  # fmt: skip


@pytest.mark.parametrize("method", [{}, {"method": "probe"}])
def test_a_sampler_in_the_guest_counts_in_all_processes(tmp_path: Path, method: dict[str, str]) -> None:
    trace = (
        EmulatedTarget()
        .execute(sampling_itself(tmp_path, FORKING, {"event": "entry", "function": "step"} | method))
        .trace
    )
    instructions, steps = trace.values.T
    assert (steps >= 0).all()
    assert STEPS * 0.97 < steps.sum() <= STEPS  # the first and the last record are left out
    costs = instructions[steps > 3] / steps[steps > 3]
    assert np.allclose(costs, np.median(costs), rtol=0.5)  # both of all processes


@pytest.mark.parametrize("slice_instructions", [3_000, scheduler.TIME_SLICE_INSTRUCTIONS])
def test_a_sampler_in_the_guest_counts_what_every_thread_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slice_instructions: int
) -> None:
    """The first thread waits meanwhile. Many short time slices end in the handler, where the counters stand still."""
    monkeypatch.setattr(scheduler, "TIME_SLICE_INSTRUCTIONS", slice_instructions)
    spec = sampling_itself(tmp_path, THREADED, {"event": "entry", "function": "step"})
    run = EmulatedTarget().execute(spec)
    assert run.starts_tasks
    instructions, steps = run.trace.values.T
    assert 6000 * 0.97 < steps.sum() <= 6000
    costs = instructions[steps > 3] / steps[steps > 3]
    assert np.allclose(costs, np.median(costs), rtol=0.15)


def test_a_sampler_in_a_program_that_executes_another_is_refused(tmp_path: Path) -> None:
    """The other one's began the trace anew: a third of the run, with the counts of its first part."""
    program = FORKING.replace(
        "if (argc > 1) return 0;", 'if (argc > 1) return 0; execl(argv[0], argv[0], "2", (char *)0);'
    )
    spec = sampling_itself(tmp_path, program, {"event": "entry", "function": "step"})
    with pytest.raises(RunError, match=r"executes another in its place \(execve\).*expected sampling mode ideal"):
        EmulatedTarget().execute(spec)


def test_an_end_by_a_signal_is_an_exit_status_as_a_shell_has_it(tmp_path: Path) -> None:
    program = PROGRAM.replace("return 0;", "raise(6); return 0;").replace("<stdio.h>", "<stdio.h>\n#include <signal.h>")
    itself = sampling_itself(tmp_path, program, {"event": "entry", "function": "main"})
    binary = str(build_program([tmp_path / "program.c"], ["-O1"]).elf_path)
    spec = replace(itself, binary=binary, counters=(), sampling_mode="ideal")
    with pytest.raises(RunError, match=r"^ended by signal 6 \(SIGABRT\)"):
        EmulatedTarget().execute(spec)
    with pytest.raises(RunError, match=r"^ended by signal 6 \(SIGABRT\), expected 143 \(signal 15\)"):
        EmulatedTarget().execute(replace(spec, exit_status=143))
    assert EmulatedTarget().execute(replace(spec, exit_status=134)).trace.n_records > 100
    with pytest.raises(RunError, match=r"the sampler in it could write its last records: expected sampling mode ideal"):
        EmulatedTarget().execute(replace(itself, exit_status=134))


def test_the_machine_reads_what_the_sampler_in_a_single_process_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[NDArray[np.uint64]] = []

    def remember(data: bytes) -> tuple[tuple[str, ...], NDArray[np.uint64]]:
        columns, records = read_sampler_trace(data)
        read.append(records)
        return columns, records

    monkeypatch.setattr(emulated, "read_sampler_trace", remember)
    spec = replace(sampling_itself(tmp_path, FORKING, {"event": "entry", "function": "step"}), arguments=("once",))
    trace = EmulatedTarget().execute(spec).trace
    assert trace.n_records > 10
    assert np.diff(read[0][:-1, -1].astype(np.int64)).tolist() == trace.counts(("steps",))[:, 0].tolist()


def test_a_stack_that_overflows_because_of_a_counter(tmp_path: Path) -> None:
    """The program is correct: without the counter in a local variable its calls are jumps."""
    source = tmp_path / "turns.c"
    source.write_text(
        "static int odd(unsigned n);\n"
        "__attribute__((noinline)) static int even(unsigned n) { return n ? odd(n - 1) : 1; }\n"
        "__attribute__((noinline)) static int odd(unsigned n) { return n ? even(n - 1) : 0; }\n"
        "int main(void) { return !even(3000000); }\n"
    )
    told = {}
    for local in (False, True):
        build = build_program([source], ["-O2"], {"m": MetricSpec(event="entry", function="even", local=local)})
        with Machine(build.elf_path, background=False) as machine:
            machine.run()
            try:
                check_ending(machine, machine.files, 0)
            except RunError as error:
                told[local] = str(error)
    assert list(told) == [True]
    assert "overflowed (endless recursion, or a large local array). This program has counters: those of" in told[True]
    assert "count its entries instead, without `local:`, or compile it with -O2\n  at " in told[True]
