"""Runs instrumented programs on this machine and reads their counters: what several tests need."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from instrumenter.build import Build, build_program
from instrumenter.spec import MetricSpec

_DUMP = """\
#include <stdio.h>
extern volatile unsigned long long __measure_counters[];
__attribute__((destructor)) static void dump(void)
{{
    for (int i = 0; i < {number}; i++)
        fprintf(stderr, "%llu ", __measure_counters[i * {stride}]);
}}
"""


def run(build: Build) -> subprocess.CompletedProcess[str]:
    """Run a program that was built for this machine."""
    return subprocess.run([build.elf_path], capture_output=True, text=True, timeout=60, check=False)


def count(
    source: Path, flags: Sequence[str], metrics: Mapping[str, MetricSpec], folder: Path, **options: Any
) -> tuple[subprocess.CompletedProcess[str], dict[str, int]]:
    """Run the instrumented program; its outcome, and the counters that it prints to stderr at its end."""
    stride = 8 if options.get("placement") == "cache_line" else 1
    dump = folder / "dump.c"
    dump.write_text(_DUMP.format(number=len(metrics), stride=stride))
    done = run(build_program([source, dump], flags, metrics, target=None, **options))
    return done, dict(zip(metrics, map(int, done.stderr.split()), strict=True))
