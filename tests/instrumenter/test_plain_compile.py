"""Calls of the compiler wrapper without counters: which they are, and that they do what the others do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from instrumenter.compiler.toolchain import GUEST_TARGET
from instrumenter.errors import SourceError
from instrumenter.find.find import find_source_events
from instrumenter.spec.software_metrics import MetricSpec
from instrumenter.wrapper.environment_spec import WrapperSpec
from instrumenter.wrapper.listing import read_listing
from instrumenter.wrapper.plain_compile import PlainSpec, may_define, may_have_sites, plain_spec

HEAVY = ("pydantic", "clang", "yaml", "numpy", "instrumenter.find.clang", "instrumenter.rewrite", "importlib.metadata")


def compiled(folder: Path, source: str, spec: dict[str, Any] | None) -> tuple[list[str], list[dict[str, Any]]]:
    """Compile in a process of its own: the heavy modules that it had loaded when the compiler took its place, and the
    entries of the listing."""
    (folder / "part.c").write_text(source)
    lines = [
        "import os, sys",
        "loaded = lambda *_: (print(*sys.modules), sys.stdout.flush(), os._exit(0))",
        "os.execve = loaded",
        "from instrumenter.wrapper.cli import main_cc",
        "sys.argv = ['instrument-cc', '-O1', '-c', 'part.c']",
        "main_cc()",
    ]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2]), "HOME": str(Path.home())}
    environment["INSTRUMENT_LOG"] = str(folder / "listing")
    if spec is not None:
        (folder / "spec.json").write_text(json.dumps(spec))
        environment["INSTRUMENT_SPEC"] = str(folder / "spec.json")
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    modules = done.stdout.split()
    return [name for name in HEAVY if name in modules], read_listing(folder / "listing")


def spec_with(**metrics: MetricSpec) -> dict[str, Any]:
    return dict(WrapperSpec(metrics=metrics, root="/project").model_dump(mode="json"))


def test_a_source_that_counts_nothing_is_compiled_at_once(tmp_path: Path) -> None:
    source = "int used(int); int other(int n) { return used(n) + 1; }\n"
    assert compiled(tmp_path, source, None) == ([], [])
    assert compiled(tmp_path, source, spec_with()) == ([], [])
    calls_of_used = spec_with(entries=MetricSpec(event="entry", function="used"))
    loaded, listed = compiled(tmp_path, source, calls_of_used)
    assert loaded == []
    assert [(entry["source"], entry["instrumented"], entry["sites"]) for entry in listed] == [("part.c", True, {})]
    (tmp_path / "listing").unlink()
    # One that has the function is compiled by the part that counts.
    here = Path(__file__).parents[2]
    (tmp_path / "part.c").write_text(source.replace("int used(int);", "int used(int n) { return n; }"))
    done = subprocess.run(
        [sys.executable, "-c", "from instrumenter.wrapper.cli import main_cc; main_cc()", "-c", "part.c"],
        cwd=tmp_path, check=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(here), "HOME": str(Path.home()),
             "INSTRUMENT_SPEC": str(tmp_path / "spec.json"), "INSTRUMENT_LOG": str(tmp_path / "listing")},
    )  # fmt: skip
    assert done.returncode == 0
    assert [entry["sites"] for entry in read_listing(tmp_path / "listing")] == [{"entries": 1}]


def test_a_specification_written_by_hand_is_left_to_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INSTRUMENT_SPEC", raising=False)
    assert plain_spec() == PlainSpec()
    for text in ("metrics: {}\n", "{}", '{"metrics": {}}', "[]", "", "{"):
        (tmp_path / "spec").write_text(text)
        monkeypatch.setenv("INSTRUMENT_SPEC", str(tmp_path / "spec"))
        assert plain_spec() is None, text
    monkeypatch.setenv("INSTRUMENT_SPEC", str(tmp_path / "missing"))
    assert plain_spec() is None
    (tmp_path / "spec").write_text(WrapperSpec(sections=True, root="/a b").model_dump_json())
    monkeypatch.setenv("INSTRUMENT_SPEC", str(tmp_path / "spec"))
    flags = ("-ffile-prefix-map=/a b=.", "-ffunction-sections", "-fdata-sections")
    assert plain_spec() == PlainSpec(GUEST_TARGET, flags, {}, "/a b")


BODIES = [
    "int f(void) { return 0; }", "int f(int a, int (*b)(int, char))\n{ return 0; }", "int (f)(void) { return 0; }",
    "int f(a) int a; { return a; }", "static inline __attribute__((noinline)) int f(void) { return 0; }",
    "int f(\n# 3 \"x.h\" 2\nvoid)\n# 4 \"x.c\"\n\n{ return 0; }", "int f (void)\n# 1 \"y.c\"\n{ return 0; }",
    "int f(void);\nint g(void) { return f(); }\nint f(void) { return 1; }",
    "int f(void) __attribute__((cold)); int f(void) { return 1; }", "int *f(void) { return 0; }",
    "int (*f(int n))(int) { return 0; }",
]  # fmt: skip
NO_BODIES = [
    "int f(void);", "int f(int a,\n int b);", "extern int f(int) __attribute__((cold, aligned(4)));",
    "int f(void) __asm__(\"other\");", "int g(void) { return f(); }", "int g(void) { return f(f(1) + 2) * 3; }",
    "int (*p)(void) = f;", "int f(void), h(void);", "struct { int f; } s;",
    "int g(void) { return f(1) ? 2 : h(f(2), 3); }", "int ff(void) { return 0; }",
    "int g(void) { int a[1] = {f()}; return a[0]; }",
]  # fmt: skip


@pytest.mark.parametrize("text", BODIES)
def test_a_body_is_seen(text: str) -> None:
    assert may_define(text.encode(), "f")


@pytest.mark.parametrize("text", NO_BODIES)
def test_declarations_and_calls_are_no_bodies(text: str) -> None:
    assert not may_define(text.encode(), "f")


PIECES = st.sampled_from(
    [*BODIES, *NO_BODIES, "int v; void set(void) { v = 1; }", "struct s { int x; } t; void put(void) { t.x++; }"]
)
METRICS = [
    MetricSpec(event="entry", function="f"), MetricSpec(event="loop", function="g"),
    MetricSpec(event="call", callee="f"), MetricSpec(event="call", callee="f", function="g"),
    MetricSpec(event="write", variable="v"), MetricSpec(event="write", field="s.x"),
    MetricSpec(event="entry", function="f", file="x.c"), MetricSpec(event="alloc"),
]  # fmt: skip


@given(st.lists(PIECES, max_size=3, unique=True), st.sampled_from(METRICS))
def test_no_site_is_missed(pieces: list[str], metric: MetricSpec) -> None:
    text = "\n".join(['# 1 "x.c"', *pieces]).encode()  # as the preprocessor begins
    try:
        found = find_source_events(text, "x.c", {"m": metric}, GUEST_TARGET, ["-w"], cplusplus=False)
    except SourceError:  # pieces that do not fit together
        reject()
    if found.sites or found.warnings:
        assert may_have_sites(text, metric.model_dump(mode="json"), cplusplus=False)
