"""A small program that tests of campaigns build and run: rounds of work, and random numbers."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

PROGRAM = """\
#include <stdio.h>
#include <stdlib.h>
static unsigned state = 1, table[4096];
unsigned next(void) { state = state * 1664525u + 1013904223u; return state >> 8; }
void work(int n) { for (int i = 0; i < n; i++) table[next() % 4096] += i; }
int main(int argc, char **argv) {
    for (int round = 0; round < 60; round++) work(500 + 400 * (round % 5));
    printf("%u\\n", table[5]);
    return 0;
}
"""

CAMPAIGN = f"""\
name: mine
program: {{source: demo.c}}
machine: {Path(__file__).parents[2]}/configs/machines/strongarm.yaml
sampling: {{every: 4000 cycles}}
hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS, PAPI_BR_MSP]
software_metrics: {{rounds: {{event: entry, function: work}}, perturbing: {{event: call, callee: next}}}}
variants:
  light: [rounds]
  heavy: [rounds, perturbing]
baselines: 10
replicates: 10
controls: false
"""
"""A campaign of the program `demo.c`; on the fake target, `light` is equivalent and `heavy` perturbed."""

SMALL_CAMPAIGN = f"""\
name: tried
program: {{source: p.c}}
machine: {Path(__file__).parents[2]}/configs/machines/desktop.yaml
sampling: {{every: 1000 cycles}}
hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS, PAPI_L1_DCM]
software_metrics: {{work: {{event: entry, function: work}}, loops: {{event: loop, function: work}}}}
variants: {{light: [work], heavy: [work, loops]}}
"""
"""A campaign of the program as `p.c`, with the defaults of everything that may be left out."""


@functools.cache
def source_file(text: str) -> Path:
    """The C file ``text``, which all tests of this process share: a build is known by the place of its sources, too, so
    that one is made for all of them, and not for each. Tests link to it and do not write to it."""
    folder = Path(tempfile.mkdtemp(prefix="source-")).resolve()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "demo.c").write_text(text)
    return folder / "demo.c"
