"""Counters of programs that start threads lose no event, wherever a thread loses the processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from instrumenter.building.generated_sources import preprocess_all
from instrumenter.building.program_build import Recipe, SamplerConfig, build_program
from instrumenter.compiler.toolchain import Toolchain
from instrumenter.projects.project import Project, ProjectRecipe
from instrumenter.spec.counter_layout import CounterLayout, Placement
from instrumenter.spec.software_metrics import MetricSpec
from tests.instrumenter.test_counter_forms import counts_of

# The inner loop is unrolled to more instructions than a block of the emulator has, so that a thread can lose the
# processor between the load and the store of an increment, at the same one in each of its time slices.
PROGRAM = """\
#include <pthread.h>
#include <stdlib.h>
#define THREADS 3
#define CALLS 1500
static unsigned char data[400] = "threads";
static volatile unsigned sums[THREADS];
static unsigned crc(const unsigned char *p, unsigned n)
{
    unsigned c = ~0u;
    while (n--) {
        c ^= *p++;
        for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0xedb88320u : c >> 1;
    }
    return ~c;
}
static void *work(void *own)
{
    for (int n = 0; n < CALLS; n++) {
        char *block = malloc(48);
        block[0] = n;
        sums[(long)own] += crc(data, sizeof data) + block[0];
        free(block);
    }
    return 0;
}
int main(void)
{
    pthread_t threads[THREADS];
    for (long n = 0; n < THREADS; n++) pthread_create(&threads[n], 0, work, (void *)n);
    for (long n = 0; n < THREADS; n++) pthread_join(threads[n], 0);
    return 0;
}
"""
CALLS = 3 * 1500
LOOPS = CALLS * 400 * 9
TURNS: dict[str, object] = {"event": "loop", "function": "crc"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("threads") / "threads.c"
    path.write_text(PROGRAM)
    return path


def specs_of(metrics: Mapping[str, Mapping[str, object]]) -> dict[str, MetricSpec]:
    return {name: MetricSpec.model_validate(spec) for name, spec in metrics.items()}


@pytest.mark.parametrize(("placement", "volatile"), [("packed", True), ("cache_line", True), ("packed", False)])
def test_every_form_counts_all_events(source: Path, placement: Placement, volatile: bool) -> None:
    metrics: dict[str, dict[str, object]] = {
        "turns": TURNS, "local": {**TURNS, "local": True}, "sampled": {**TURNS, "sampled": 16},
        "entries": {"event": "entry", "function": "crc"}, "bytes": {"event": "alloc_bytes", "function": "work"},
        "sum": {"event": "entry", "function": "crc", "add": "n"},
    }  # fmt: skip
    build = build_program([source], ["-O2"], specs_of(metrics), placement=placement, volatile=volatile)
    assert counts_of(build) == {
        "turns": LOOPS, "local": LOOPS, "sampled": LOOPS, "entries": CALLS, "bytes": 48 * CALLS, "sum": 400 * CALLS,
    }  # fmt: skip


def test_few_counters_in_an_unrolled_loop_count_all_events(source: Path) -> None:
    recipe = Recipe(preprocess_all([source], ["-O2"], Toolchain()))
    assert counts_of(recipe.build(specs_of({"turns": TURNS}))) == {"turns": LOOPS}
    plain = replace(recipe, atomic=False).build(specs_of({"turns": TURNS}))
    assert counts_of(plain)["turns"] < LOOPS / 2  # so that this program would find counters that are not atomic


def test_a_project_counts_all_events(source: Path, tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(PROGRAM)
    recipe = ProjectRecipe.of(Project(tmp_path, "$CC -O2 -pthread main.c -o main", "main"))
    metrics = specs_of({"turns": TURNS})
    build = recipe.build(metrics)
    assert counts_of(build) == {"turns": LOOPS}
    assert recipe.find(metrics) == build


STARTS_NO_THREAD = """\
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
int main()
{
    std::mutex mutex;
    std::lock_guard guard(mutex);
    std::map<int, std::shared_ptr<int>> made;
    made[1] = std::make_shared<int>(2);
    try { throw *made[1]; } catch (int) { std::cout << made.size(); }
}
"""
C11 = """\
#include <threads.h>
static int run(void *of) { return of != 0; }
int main(void) { thrd_t one; return thrd_create(&one, run, 0) || thrd_join(one, 0); }
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("plain.cpp", STARTS_NO_THREAD, False),
        ("async.cpp", "#include <future>\nint main() { return std::async([] { return 0; }).get(); }\n", True),
        ("fork.c", "#include <unistd.h>\nint main(void) { return fork() < 0; }\n", False),
        ("c11.c", C11, True),
    ],
)
@pytest.mark.parametrize("sampler", [None, SamplerConfig(100_000, 4)], ids=["plain", "sampler"])
def test_which_programs_start_threads(
    tmp_path: Path, name: str, text: str, expected: bool, sampler: SamplerConfig | None
) -> None:
    (tmp_path / name).write_text(text)
    assert build_program([tmp_path / name], sampler=sampler).starts_threads == expected


def test_a_program_without_threads_has_plain_increments() -> None:
    specs = specs_of({"turns": TURNS})
    assert CounterLayout.of(specs, "packed", True).bump("turns", None) == "__measure_counters[0]++"
    atomic = CounterLayout.of(specs, "packed", True, True)
    assert atomic.bump("turns", None) == "__atomic_fetch_add(&__measure_counters[0], 1, 0)"
