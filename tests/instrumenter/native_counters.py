"""What several tests need: every metric of a program; its counters after a run on this machine."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from instrumenter.building.program_build import Build, build_program
from instrumenter.find.find import find_source_events
from instrumenter.spec.software_metrics import MetricSpec

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
    done = run(build_program([source, dump], flags, metrics, target=None, atomic=False, **options))
    return done, dict(zip(metrics, map(int, done.stderr.split()), strict=True))


def every_metric(source: Path, text: str, target: str | None) -> dict[str, MetricSpec]:
    """Every kind of event over every function, callee, variable and field of a program, where it happens at all."""
    nothing = {"none": MetricSpec(event="loop", line=1)}
    names = find_source_events(text.encode(), str(source), nothing, target, (), cplusplus=False)
    metrics = {}
    for function in sorted(names.functions):
        for event in ("entry", "exit", "loop", "branch"):
            metrics[f"{event}.{function}"] = MetricSpec(event=event, function=function)
        metrics[f"alloc.{function}"] = MetricSpec(event="alloc", function=function)
    # Names in system headers only are left out.
    own = "".join(part for file, part in _parts(text) if not file.startswith(("/usr/", "<")) and "ziglang" not in file)
    mentioned = set(re.findall(r"\w+", own))
    for name in sorted(names.callees & mentioned):
        metrics[f"call.{name}"] = MetricSpec(event="call", callee=name)
    for name in sorted(names.variables & mentioned):
        metrics[f"write.{name}"] = MetricSpec(event="write", variable=name)
    for name in sorted(names.fields & mentioned):
        metrics[f"field.{name}"] = MetricSpec(event="write", field=name)
    metrics["alloc"] = MetricSpec(event="alloc")
    found = find_source_events(text.encode(), str(source), metrics, target, (), cplusplus=False)
    happening = {site.metric for site in found.sites}
    return {name: spec for name, spec in metrics.items() if name in happening}


def _parts(preprocessed: str) -> Iterator[tuple[str, str]]:
    """Pieces of preprocessed text, and the files that they come from."""
    pieces = re.split(r'^# \d+ "([^"]*)".*$', preprocessed, flags=re.MULTILINE)
    return zip(pieces[1::2], pieces[2::2], strict=True)
