"""Probes of C++ at -O0 see what counters count: versions of constructors, and headers that several sources have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emulator.machine import Machine
from emulator.probes import EventCounter
from instrumenter.building.generated_sources import preprocess_all
from instrumenter.building.program_build import build_program
from instrumenter.compiler.toolchain import Toolchain
from instrumenter.find.probes import ProbeFinder
from instrumenter.spec.software_metrics import MetricSpec

SOURCES = {
    "pool.h": """
template <class T> struct Pool {
    T n = 0;
    virtual ~Pool() { clear(); }
    void clear() { for (T i = 0; i < 3; i++) n = n + i; if (n > 5) n = 0; }
};
struct Far : virtual Pool<int> {
    int a;
    Far(int a) : a(a) { for (int i = 0; i < a; i++) n += i; }
};
typedef Far Alias;
struct Indirect : Alias { int b; Indirect(int b) : Far(1), b(b) { for (int i = 0; i < b; i++) n += i; } };
struct Open { int sum = 0; Open(int n, ...) { while (n-- > 0) sum += n; } };
struct Plain { int n; explicit Plain(int n) : n(n) { for (int i = 0; i < n; i++) this->n += i; } };
""",
    "main.cpp": """
#include "pool.h"
int other(int n);
struct Nearer : Far { Nearer() : Far(3) {} };
int main() {
    Pool<int> pool;
    pool.clear();
    Far far(4), further(2);
    Nearer nearer;
    Indirect indirect(5);
    Open open(3, 1.5, 2);
    Plain plain(2);
    return other(2) == 77 || far.n + further.n + nearer.n + indirect.n + open.sum + plain.n == 77;
}
""",
    "other.cpp": """
#include "pool.h"
int other(int n) {
    Pool<int> pool;
    pool.clear();
    Pool<long> longs;
    Plain plain(4);
    return pool.n + (int)longs.n + n + plain.n;
}
""",
}  # fmt: skip
# 7 pools are destroyed, each of which clears itself, and 2 are cleared before.
EVENTS: dict[str, tuple[dict[str, Any], int]] = {
    "clears": ({"event": "entry", "function": "Pool::clear"}, 9),
    "calls": ({"event": "call", "callee": "Pool::clear"}, 9),
    "steps": ({"event": "loop", "function": "Pool::clear"}, 27),
    "ends": ({"event": "entry", "function": "Pool::~Pool"}, 7),
    "with_virtual_base": ({"event": "entry", "function": "Far::Far"}, 4),
    "in_virtual_base": ({"event": "loop", "function": "Far::Far"}, 4 + 2 + 3 + 1),
    "indirect_virtual_base": ({"event": "loop", "function": "Indirect::Indirect"}, 5),
    "variadic": ({"event": "entry", "function": "Open::Open"}, 1),
    "in_variadic": ({"event": "loop", "function": "Open::Open"}, 3),
    "plain": ({"event": "entry", "function": "Plain::Plain"}, 2),
    "in_plain": ({"event": "loop", "function": "Plain::Plain"}, 6),
}


@pytest.mark.slow
def test_probes_see_what_counters_count(tmp_path: Path) -> None:
    for name, text in SOURCES.items():
        (tmp_path / name).write_text(text)
    sources = [tmp_path / "main.cpp", tmp_path / "other.cpp"]
    metrics = {name: MetricSpec.model_validate(spec) for name, (spec, _) in EVENTS.items()}
    expected = {name: count for name, (_, count) in EVENTS.items()}
    build = build_program(sources, ["-O0"], metrics)
    with Machine(build.elf_path.read_bytes(), background=False) as machine:
        machine.run()
        counted = {}
        for name, at in build.counters.items():
            place = machine.image.find_symbol(at.symbol)
            assert place is not None
            counted[name] = machine.memory.read_int(place.address + at.offset_bytes, 8)
    assert counted == expected
    plain = build_program(sources, ["-O0"])
    finder = ProbeFinder(plain.elf_path, preprocess_all(sources, ["-O0"], Toolchain()), ["-O0"], metrics)
    counter = EventCounter([(finder.probe_for(metric).pcs, ()) for metric in metrics])
    with Machine(plain.elf_path.read_bytes(), consumers=[counter], background=False) as machine:
        machine.run()
    assert dict(zip(metrics, counter.totals().tolist(), strict=True)) == expected
