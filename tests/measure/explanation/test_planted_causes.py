"""Programs whose counters perturb by one mechanism that is known: it must come first."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from emulator.timing.machine_events import FIRST_STATIC, N_STATIC, Event
from instrumenter.building.program_build import build_program
from instrumenter.spec.software_metrics import MetricSpec
from measure.alignment.setting import DEFAULT_ALIGNMENT
from measure.explanation.added_counts import change_by_added_counts, with_counts
from measure.explanation.compiler_decisions import FunctionFacts, _calls, _changed_calls, compare_decisions
from measure.explanation.keep_inlining import kept_inlining
from measure.explanation.mechanisms import ACCESSES, COMPILER, EXECUTED, SAMPLER, Mechanisms, find_mechanisms
from measure.explanation.paired_runs import PLAIN, PairedRuns, ProgramChoice
from measure.explanation.relations import Relations
from measure.run_types import Run, RunSpec, Trace
from measure.runs.campaign_model import Program
from tests.measure.explanation.conftest import Planted

# Stretches of two kinds and of random lengths; what a stretch does follows from the functions `first` and `second`.
FRAME = """
#include <stdio.h>
static unsigned state = 1;
static unsigned draw(void) { state = state * 1664525u + 1013904223u; return state >> 8; }
%s
int main(void) {
    unsigned long sum = 0;
    for (int stretch = 0; stretch < 300; stretch++) {
        unsigned length = 20 + draw() %% 120, kind = draw() %% 5;
        for (unsigned n = 0; n < length; n++) sum += kind < 3 ? first(n, kind) : second(n, kind);
    }
    printf("%%lu\\n", sum);
    return 0;
}
"""

# A counted loop of a few instructions, without memory accesses of its own.
ADDS = (
    FRAME
    % """
__attribute__((noinline)) static unsigned first(unsigned n, unsigned kind) {
    unsigned x = n + kind;
    for (int k = 0; k < 12; k++) { x ^= x << 3; x += k; __asm__ volatile("" : "+r"(x)); }
    return x;
}
static unsigned table[64];
__attribute__((noinline)) static unsigned second(unsigned n, unsigned kind) {
    unsigned x = 0;
    for (int k = 0; k < 8 + 4 * (int)kind; k++) x += table[(n + k) % 64];
    return x;
}
"""
)

# An array that fills a small direct-mapped cache, read again and again: one more line evicts a line of it.
EVICTS = (
    FRAME
    % """
static volatile unsigned long hot[256] __attribute__((aligned(2048)));
__attribute__((noinline)) static void pulse(void) { __asm__ volatile(""); }
__attribute__((noinline)) static unsigned first(unsigned n, unsigned kind) {
    unsigned long x = 0;
    for (int pass = 0; pass < 3; pass++) {
        pulse();
        for (int k = 0; k < 256; k += 4) x += hot[k];
    }
    return (unsigned)x + n + kind;
}
__attribute__((noinline)) static unsigned second(unsigned n, unsigned kind) {
    unsigned x = n;
    for (int k = 0; k < 100 + 40 * (int)kind; k++) { x ^= x << 3; x += k; __asm__ volatile("" : "+r"(x)); }
    return x;
}
"""
)

# A loop that keeps its global in a register in the plain program, and beside a counter stores it at each turn.
STORES = """
#include <stdio.h>
#include <stdlib.h>
static unsigned hot[2048];
static unsigned long seed = 88172645463325252ul;
static unsigned long draw(void) { seed ^= seed << 13; seed ^= seed >> 7; seed ^= seed << 17; return seed; }
__attribute__((noinline)) static unsigned sweep(unsigned s) {
    for (int i = 0; i < 2048; i += 16) s += hot[i];
    return s;
}
__attribute__((noinline)) static unsigned mixed(unsigned s, unsigned n) {
    for (unsigned i = 0; i < n; i++) { if (draw() & 1) s += i; else s ^= i; }
    return s;
}
__attribute__((noinline)) static unsigned fill(unsigned s, unsigned n) {
    for (unsigned i = 0; i < n; i++) hot[i] = s + i;
    return s;
}
int main(void) {
    unsigned s = 0;
    for (int turn = 0; turn < 400; turn++) {
        unsigned a = 1 + draw() % 12, b = draw() % 400, c = draw() % 300;
        for (unsigned k = 0; k < a; k++) s = sweep(s);
        s = fill(mixed(s, b), c);
    }
    printf("%u\\n", s);
    return 0;
}
"""

CHESS = Path(__file__).parents[3] / "experiments" / "workloads" / "chess.c"


def explained(paired: PairedRuns, metrics: tuple[str, ...]) -> Mechanisms:
    """The mechanisms over all relations that are defined in all runs."""
    made = paired.runs([PLAIN, ProgramChoice(metrics)])
    hardware = paired.hardware
    every = Relations([(a, b) for n, a in enumerate(hardware) for b in hardware[n + 1 :]], hardware, DEFAULT_ALIGNMENT)
    defined = np.isfinite([every.values(runs, made[PLAIN]) for runs in made.values()]).all(axis=(0, 1))
    assert defined.any()
    kept = [every.chosen[n] for n in np.flatnonzero(defined)]
    return find_mechanisms(paired, ProgramChoice(metrics), Relations(kept, hardware, DEFAULT_ALIGNMENT))


def shares(found: Mechanisms) -> dict[str, float]:
    return {part.name: found.change.share(part).mean for part in found.change.parts}


@pytest.mark.slow
def test_a_counter_that_only_adds_instructions(planted: Planted) -> None:
    paired = planted(ADDS, {"turns": {"event": "loop", "function": "first"}})
    found = explained(paired, ("turns",))
    assert found.change.parts[0].name == EXECUTED
    assert shares(found)[EXECUTED] > 0.6
    total = sum(part.values for part in found.change.parts)
    assert np.allclose(total, found.change.whole)


@pytest.mark.slow
def test_a_counter_that_evicts_a_hot_set(planted: Planted) -> None:
    small = {"l1d": {"size_bytes": 2048, "associativity": 1, "line_bytes": 64}}
    paired = planted(EVICTS, {"pulses": {"event": "entry", "function": "pulse"}}, small, every="20000 cycles")
    found = explained(paired, ("pulses",))
    assert found.change.parts[0].name == ACCESSES, shares(found)


@pytest.mark.slow
def test_what_saturates_is_not_the_compilers_alone(planted: Planted) -> None:
    """A counter's store and one that the compiler adds make the same change; the second got all of it, and nothing said
    that the first would make it, too."""
    paired = planted(
        STORES, {"mixes": {"event": "loop", "function": "mixed"}},
        hardware_metrics=["PAPI_TOT_INS", "PAPI_SR_INS", "PAPI_BR_CN"],
    )  # fmt: skip
    choice, relations = ProgramChoice(("mixes",)), Relations(
        [("PAPI_TOT_INS", "PAPI_SR_INS"), ("PAPI_SR_INS", "PAPI_BR_CN")], paired.hardware, DEFAULT_ALIGNMENT
    )  # fmt: skip
    found = find_mechanisms(paired, choice, relations, with_cuts=False)
    added = change_by_added_counts(paired, choice, ("mixes",), relations)
    assert added is not None
    without = found.change.share_of(added).mean
    assert COMPILER in {part.name for part in found.change.causes}
    assert without > shares(found)[EXECUTED] + 0.2
    assert without > 0.5


def test_events_of_counters_are_added_to_the_records_that_have_them() -> None:
    cycles = np.arange(0, 400, 100)
    hardware = ("PAPI_TOT_INS", "PAPI_SR_INS", "PAPI_L1_DCM", "PAPI_LST_INS")
    values = np.array([[50, 9, 1, 20, 2], [60, 7, 2, 30, 0], [70, 5, 3, 40, 6]])
    trace = Trace(cycles, cycles, values, (*hardware, "turns"))
    executed = np.zeros(N_STATIC, np.int64)
    for event, count in ((Event.INSTRUCTIONS, 24), (Event.STORES, 8), (Event.LOADS, 8), (Event.L1D_ACCESSES, 16)):
        executed[event - FIRST_STATIC] = count
    spec = RunSpec(
        variant="turning", replicate=0, seed=1, build_key="k", binary="b", arguments=(), stdin=None, files=(),
        machine="m", machine_name="m", hardware_metrics=hardware, counters=(), sampling_mode="ideal", interval=100,
        interval_unit="cycles",
    )  # fmt: skip
    run = Run(spec, trace, 0, 0, 0.0, "")
    added = with_counts(run, {"turns": executed}, hardware).trace
    assert added.values.tolist() == [[56, 11, 1, 24, 2], [60, 7, 2, 30, 0], [88, 11, 3, 52, 6]]


@pytest.mark.slow
def test_the_sampler_in_the_guest_does_not_read_unseen_counters(planted: Planted) -> None:
    paired = planted(
        EVICTS, {"pulses": {"event": "entry", "function": "pulse"}}, pairs=2, every="20000 cycles",
        sampling={"mode": "signal", "every": "20000 cycles"},
    )  # fmt: skip
    seen, unseen = ProgramChoice(("pulses",)), ProgramChoice(("pulses",), unseen=("pulses",))
    made = paired.runs([PLAIN, seen, unseen])
    for plain, counted, probed in zip(made[PLAIN], made[seen], made[unseen], strict=True):
        assert probed.spec.unread == ("pulses",)
        assert probed.trace.columns(("pulses",)).sum() > 10_000
        assert probed.trace.columns(("pulses",)).min() >= 0
        assert counted.total_cycles > 1.001 * plain.total_cycles
        assert probed.total_cycles == pytest.approx(plain.total_cycles, rel=1e-4)
        assert probed.total_instructions == pytest.approx(plain.total_instructions, rel=1e-4)
        assert counted.total_instructions > 1.001 * plain.total_instructions


@pytest.mark.slow
def test_with_sampling_by_signals_the_sampler_is_a_mechanism(planted: Planted) -> None:
    paired = planted(
        ADDS, {"turns": {"event": "loop", "function": "first"}}, sampling={"mode": "signal", "every": "4000 cycles"}
    )
    found = explained(paired, ("turns",))
    assert SAMPLER in shares(found)
    assert found.change.parts[0].name == EXECUTED
    assert np.allclose(sum(part.values for part in found.change.parts), found.change.whole, equal_nan=True)
    assert np.isfinite(found.change.whole[:, 0]).all()
    assert found.cuts is None


@pytest.mark.slow
def test_a_counter_that_stops_an_inlining_is_found_in_the_binaries(tmp_path: Path) -> None:
    metrics = {
        "adds": MetricSpec(event="entry", function="add_move"),
        "slides": MetricSpec(event="loop", function="generate_steps"),
    }
    plain = build_program([CHESS]).elf_path
    both = build_program([CHESS], metrics=metrics).elf_path
    alone = build_program([CHESS], metrics={"adds": metrics["adds"]}).elf_path
    decisions = [one for one in compare_decisions(plain, both, ()) if one.kind == "inlining"]
    assert [one.text.split(":")[0] for one in decisions] == [
        "generate_steps has a body of its own; in the plain program all of its calls are inlined",
        "generate_moves no longer inlines generate_steps",
    ]
    assert decisions[0].place.startswith("chess.c:")
    only_one_runs = compare_decisions(plain, both, (), {"generate_moves": 3})
    # The other function is never entered: it is no evidence, and a call that is never made is the last.
    assert (only_one_runs[-1].text, only_one_runs[-1].is_idle) == (decisions[1].text, True)
    assert {one.function for one in only_one_runs} == {"generate_moves"}
    assert not [one for one in compare_decisions(plain, alone, ()) if one.kind == "inlining"]
    kept = kept_inlining(Program(source=CHESS), plain, both, (), tmp_path)
    assert kept is not None
    assert kept.about == "generate_steps: always_inline"
    edited = build_program(kept.sources, metrics=metrics).elf_path
    assert not [one for one in compare_decisions(plain, edited, ()) if one.kind == "inlining"]


def test_calls_of_libraries_in_the_place_of_loops_are_no_inlining(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(
        "unsigned char table[5000];\n"
        "int main(int n, char **a) { for (int i = 0; i < 4000 + n; i++) table[i] = n; return table[7 * n] & 63; }\n"
    )
    plain = build_program([tmp_path / "a.c"], ["-O2"]).elf_path
    counted = build_program([tmp_path / "a.c"], ["-O2"], {"fills": MetricSpec(event="loop", function="main")}).elf_path
    decisions = [one for one in compare_decisions(plain, counted, ()) if one.kind in ("inlining", "library calls")]
    assert [one.kind for one in decisions] == ["library calls"]
    assert re.match(
        r"main has 1 calls of \S*memset\S* before, 0 now: the compiler puts such calls", decisions[0].text, re.I
    )


USAGE = """\
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static char from[4000], to[4000];
static void usage(void) { puts("usage: a"); memset(to, 7, sizeof to); exit(1); }
int main(int n, char **a) {
    if (n > 3) usage();
    for (int i = 0; i < 400; i++) { from[i] = i * n; to[i] ^= from[i]; }
    printf("%d\\n", to[n]);
    return 0;
}
"""


def test_calls_that_moved_with_a_function_are_no_decision_of_their_own(tmp_path: Path) -> None:
    """Calls of exit and puts, which left main with a function that prints the usage, were put in the place of loops and
    copies, and stood before what the compiler made otherwise in loops."""
    programs = []
    for inlining in ("always_inline", "noinline"):
        source = tmp_path / f"{inlining}.c"
        source.write_text(USAGE.replace("static void", f"__attribute__(({inlining})) static void"))
        programs.append(build_program([source]).elf_path)
    plain, counted = programs
    first, *others = compare_decisions(plain, counted, (), {"main": 1})
    assert [one.text for one in others if one.kind in ("inlining", "library calls")] == [
        "main no longer inlines usage: 0 calls of it before, 1 now"
    ]
    assert others[-1].is_idle
    assert first.kind not in ("inlining", "library calls")
    back = [one.text for one in compare_decisions(counted, plain, ()) if one.kind in ("inlining", "library calls")]
    assert back == [
        "usage has no body; in the plain program it is called",
        "main now inlines usage: 1 calls of it before, 0 now",
    ]


@pytest.mark.parametrize(
    ("before", "after", "made"),
    [
        ({"printf": 2}, {"printf": 1, "puts": 1}, ["puts"]),
        ({"puts": 1}, {"puts": 2}, []),  # a call that is there twice
        ({"memcpy": 1}, {}, ["memcpy"]),
        ({"exit": 1}, {}, []),
    ],
)
def test_library_calls_are_decisions_where_the_compiler_makes_them(
    before: dict[str, int], after: dict[str, int], made: list[str]
) -> None:
    programs = [
        {"f": FunctionFacts(Counter(calls), 0, 0, 8, "a.c:1", False, frozenset(calls))} for calls in (before, after)
    ]
    (old, new), changed = [one["f"] for one in programs], _changed_calls(*programs)["f"]
    names = {name: name for name in (*before, *after)}
    found = _calls("f", old, new, changed, names, SimpleNamespace(executions=lambda _: 0, is_idle=lambda _: False))  # type: ignore[arg-type]
    assert [one.decision.text.split(" calls of ")[1].split(" before")[0] for one in found] == made


def test_calls_within_inlined_functions_of_inlined_functions_move_too() -> None:
    def facts(**calls: int) -> FunctionFacts:
        return FunctionFacts(Counter(calls), 0, 0, 8, "a.c:1", False, frozenset({"exit"}))

    inlined = {"main": facts(exit=3)}
    apart = {"main": facts(outer=1), "outer": facts(inner=2, exit=1), "inner": facts(exit=1)}
    assert _changed_calls(inlined, apart) == {"main": {"outer": 1}}
    assert _changed_calls(apart, inlined) == {"main": {"outer": -1}}
    more = {**apart, "main": facts(outer=1, exit=1)}
    assert _changed_calls({"main": facts(exit=5)}, more) == {"main": {"outer": 1, "exit": -1}}


MIXER = """\
#include <cstdio>
namespace box {
class Mixer {
    unsigned h;
public:
    explicit Mixer(unsigned seed) : h(seed) {}
    unsigned turn(unsigned n);
};
inline unsigned Mixer::turn(unsigned n) {
    for (unsigned i = 0; i < n % 5; i++) h ^= h << 3 ^ i * 3;
    for (unsigned i = 0; i < n % 6; i++) h ^= h << 4 ^ i * 4;
    for (unsigned i = 0; i < n % 7; i++) h ^= h << 5 ^ i * 5;
    for (unsigned i = 0; i < n % 8; i++) h ^= h << 3 ^ i * 6;
    for (unsigned i = 0; i < n % 9; i++) h ^= h << 4 ^ i * 7;
    for (unsigned i = 0; i < n % 10; i++) h ^= h << 5 ^ i * 8;
    return h;
}
}
int main(int argc, char **) {
    box::Mixer mixer(argc);
    unsigned sum = 0;
    for (unsigned i = 0; i < 2000; i++) sum += mixer.turn(i) + mixer.turn(i + 1);
    std::printf("%u\\n", sum);
}
"""


@pytest.mark.slow
def test_functions_of_cplusplus_are_named_and_kept_inlined(tmp_path: Path) -> None:
    source = tmp_path / "mixer.cpp"
    source.write_text(MIXER)
    metrics = {
        "turns": MetricSpec(event="entry", function="Mixer::turn"),
        "steps": MetricSpec(event="loop", function="Mixer::turn"),
    }
    plain = build_program([source]).elf_path
    counted = build_program([source], metrics=metrics).elf_path
    decisions = [one for one in compare_decisions(plain, counted, ()) if one.kind == "inlining"]
    assert [(one.text, one.place) for one in decisions] == [
        ("box::Mixer::turn has a body of its own; in the plain program all of its calls are inlined", "mixer.cpp:9"),
        ("main no longer inlines box::Mixer::turn: 0 calls of it before, 2 now", "mixer.cpp:19"),
    ]
    assert decisions[0].function == "box::Mixer::turn"
    kept = kept_inlining(Program(source=source), plain, counted, (), tmp_path / "kept")
    assert kept is not None
    assert kept.about == "box::Mixer::turn: always_inline"
    edited = build_program(kept.sources, metrics=metrics).elf_path
    assert not [one for one in compare_decisions(plain, edited, ()) if one.kind == "inlining"]
