"""Synthetic programs whose counters perturb by one mechanism that is known by construction.

Every program alternates, in stretches of random lengths, between two functions, ``first`` and ``second``. Parameters
are drawn from the number of an instance. Instances with numbers below `KEPT_ASIDE` were used while the generators were
written; they are in no result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from measure.explanation.mechanisms import ACCESSES, COMPILER, EXECUTED, LAYOUT

MACHINES = Path(__file__).parents[2] / "configs" / "machines"
KEPT_ASIDE = 200
_FRAME = """
#include <stdio.h>
static unsigned state = {seed}u;
static unsigned draw(void) {{ state = state * 1664525u + 1013904223u; return state >> 8; }}
static volatile unsigned never, rare;
{functions}
int main(void) {{
    unsigned long sum = 0;
    for (int stretch = 0; stretch < {stretches}; stretch++) {{
        unsigned length = {shortest} + draw() % {spread}, kind = draw() % 5;
        for (unsigned n = 0; n < length; n++) sum += kind < 3 ? first(n, kind) : second(n, kind);
    }}
    printf("%lu\\n", sum);
    return 0;
}}
"""


@dataclass(frozen=True)
class Instance:
    """A program with a planted cause.

    ``cause``: a key of `CAUSES`; ``machine``: name of the machine, and ``changes`` of its sections; ``metrics``: the
    software metrics.
    """

    cause: str
    number: int
    machine: str
    source: str
    metrics: dict[str, Any]
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def mechanism(self) -> str:
        """The mechanism that must come first."""
        return CAUSES[self.cause][0]

    def write(self, directory: Path) -> Path:
        """Write program, machine and campaign file into ``directory``; returns the path of the last."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "program.c").write_text(self.source)
        described = yaml.safe_load((MACHINES / f"{self.machine}.yaml").read_text())
        for key, change in self.changes.items():
            described[key] = {**described[key], **change}
        (directory / "machine.yaml").write_text(yaml.safe_dump(described))
        campaign = {
            "name": f"{self.cause}-{self.number}", "program": {"source": "program.c"}, "machine": "machine.yaml",
            "sampling": {"every": "2500 cycles"},
            "hardware_metrics": ["PAPI_TOT_INS", "PAPI_LD_INS", "PAPI_BR_CN", "PAPI_L1_DCM", "PAPI_BR_MSP"],
            "software_metrics": self.metrics, "baselines": 2, "replicates": 1, "controls": False, "outer": False,
            "noise": {"code_layouts": 1}, "placement": "cache_line" if self.cause == "evicts" else "packed",
        }  # fmt: skip
        (directory / "campaign.yaml").write_text(yaml.safe_dump(campaign))
        return directory / "campaign.yaml"


def instance(cause: str, number: int) -> Instance:
    """The instance with a number; odd ones run on the second machine."""
    rng = np.random.default_rng([list(CAUSES).index(cause), number])
    functions, metrics, changes = CAUSES[cause][1](rng)
    shorter = 6 if cause == "evicts" else 1  # its functions take longer
    source = _FRAME.format(
        seed=int(rng.integers(1, 1 << 30)), functions=functions, stretches=int(rng.integers(100, 160)),
        shortest=int(rng.integers(10, 30)) // shorter, spread=int(rng.integers(60, 120)) // shorter,
    )  # fmt: skip
    return Instance(cause, number, ("desktop", "strongarm")[number % 2], source, metrics, changes)


Planted = tuple[str, dict[str, Any], dict[str, Any]]
"""Functions in C, software metrics, and changes of the machine's sections."""


def _adds(rng: np.random.Generator) -> Planted:
    """A counter in a counted loop of a few instructions: it only adds instructions."""
    functions = f"""
__attribute__((noinline)) static unsigned first(unsigned n, unsigned kind) {{
    unsigned x = n + kind;
    #pragma clang loop unroll(disable)
    for (int k = 0; k < {rng.integers(6, 24)}; k++) {{
        x ^= x << {rng.integers(1, 8)}; x += k;
        __asm__ volatile("" : "+r"(x));
    }}
    return x;
}}
static unsigned table[64];
__attribute__((noinline)) static unsigned second(unsigned n, unsigned kind) {{
    unsigned x = 0;
    for (int k = 0; k < {rng.integers(6, 16)} + {rng.integers(2, 6)} * (int)kind; k++) x += table[(n + k) % 64];
    return x;
}}
"""
    return functions, {"turns": {"event": "loop", "function": "first"}}, {}


def _evicts(rng: np.random.Generator) -> Planted:
    """An array that fills a small cache, read again and again: the counters' lines evict lines of it."""
    size, count = 2048, int(rng.integers(3, 7))
    pulses = "\n".join(
        f'__attribute__((noinline)) static void pulse{n}(void) {{ __asm__ volatile("" :: "i"({n})); }}'
        for n in range(count)
    )
    calls = " ".join(f"pulse{n}();" for n in range(count))
    functions = f"""
static volatile unsigned long hot[{size // 8}] __attribute__((aligned({size})));
{pulses}
__attribute__((noinline)) static unsigned first(unsigned n, unsigned kind) {{
    unsigned long x = 0;
    for (int pass = 0; pass < {rng.integers(2, 4)}; pass++) {{
        {calls}
        for (int k = 0; k < {size // 8}; k += 4) x += hot[k];
    }}
    return (unsigned)x + n + kind;
}}
__attribute__((noinline)) static unsigned second(unsigned n, unsigned kind) {{
    unsigned x = n;
    for (int k = 0; k < {rng.integers(100, 200)} + {rng.integers(20, 60)} * (int)kind; k++) {{
        x ^= x << 3; x += k;
        __asm__ volatile("" : "+r"(x));
    }}
    return x;
}}
"""
    cache = {"size_bytes": size, "associativity": int(rng.choice([1, 2])), "replacement": "lru"}
    metrics = {f"pulses{n}": {"event": "entry", "function": f"pulse{n}"} for n in range(count)}
    return functions, metrics, {"l1d": cache}


def _inlining(rng: np.random.Generator) -> Planted:
    """Counters in code that never runs make a function too large to be inlined where it is called most."""
    writes = " ".join(f"rare = x + {n};" for n in range(int(rng.integers(14, 24))))
    functions = f"""
static unsigned weights[64];
static unsigned helper(unsigned x, unsigned y) {{
    if (__builtin_expect(y == 0xdeadbeefu, 0)) {{ {writes} }}
    return (x << {rng.integers(1, 6)}) + y * {rng.integers(3, 99)};
}}
__attribute__((noinline)) static unsigned first(unsigned n, unsigned kind) {{
    unsigned x = n;
    for (int k = 0; k < {rng.integers(6, 20)}; k++) {{ x = helper(x, k + kind); __asm__ volatile("" : "+r"(x)); }}
    return x;
}}
__attribute__((noinline)) static unsigned second(unsigned n, unsigned kind) {{
    unsigned x = n;
    for (int k = 0; k < {rng.integers(8, 20)} + {rng.integers(2, 6)} * (int)kind; k++) x += weights[(x + k) % 64];
    return never ? helper(x, n) : x;
}}
"""
    return functions, {"rarities": {"event": "write", "variable": "rare"}}, {}


def _alias(rng: np.random.Generator) -> Planted:
    """Counters in a function that never runs move the branches behind it: others share their predictor entries."""
    writes = " ".join(f"rare = x + {n};" for n in range(int(rng.integers(1, 12))))
    first = " ".join(
        f"if ((x & {2 ** int(rng.integers(3, 6)) - 1}u) != {n}u) {{ x += {rng.integers(3, 99)}; "
        '__asm__ volatile("" : "+r"(x)); }' for n in range(int(rng.integers(4, 8)))
    )  # fmt: skip
    second = " ".join(
        f"if ((x & {2 ** int(rng.integers(3, 6)) - 1}u) == {n}u) {{ x -= {rng.integers(3, 99)}; "
        '__asm__ volatile("" : "+r"(x)); }' for n in range(int(rng.integers(4, 8)))
    )  # fmt: skip
    functions = f"""
static unsigned weights[64];
__attribute__((noinline)) unsigned taken(unsigned x) {{ {first} return x * 5 + 1; }}
__attribute__((noinline)) void cold(unsigned x) {{ {writes} }}
__attribute__((noinline)) unsigned skipped(unsigned x) {{ {second} return x * 9 + 3; }}
__attribute__((noinline)) static unsigned first(unsigned n, unsigned kind) {{
    unsigned x = n + kind;
    for (int k = 0; k < {rng.integers(2, 5)}; k++) x = skipped(taken(x));
    if (never) cold(x);
    return x;
}}
__attribute__((noinline)) static unsigned second(unsigned n, unsigned kind) {{
    unsigned x = n;
    for (int k = 0; k < {rng.integers(8, 20)} + {rng.integers(2, 6)} * (int)kind; k++) x += weights[(x + k) % 64];
    return x;
}}
"""
    predictor = {"kind": "bimodal", "entries": int(rng.choice([32, 64])), "history_bits": 0}
    metrics = {"rarities": {"event": "write", "variable": "rare"}}
    return functions, metrics, {"branch_predictor": predictor}


CAUSES: dict[str, tuple[str, Callable[[np.random.Generator], Planted]]] = {
    "adds": (EXECUTED, _adds),
    "evicts": (ACCESSES, _evicts),
    "inlining": (COMPILER, _inlining),
    "alias": (LAYOUT, _alias),
}
