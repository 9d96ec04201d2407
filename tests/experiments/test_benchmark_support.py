"""What benchmarks share: QEMU under either name, the processor's name, and measurements kept as they are made."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from experiments.benchmarks import host
from experiments.benchmarks.journal import Journal


def install(folder: Path, name: str, text: str = "echo qemu-riscv64 version 9.9") -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


@pytest.mark.parametrize("name", ["qemu-riscv64", "qemu-riscv64-static"])
def test_qemu_is_found_under_both_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host.qemu() is None
    assert host.qemu_version() is None
    install(tmp_path, name)
    assert host.qemu() == name
    assert host.qemu_version() == "qemu-riscv64 version 9.9"


def test_a_page_names_the_processor_and_goes_without_qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "processors (" in host.described()
    assert " to LLVM)" in host.described()
    assert "qemu" not in host.described()
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\ncpu family\t: 6\nmodel\t\t: 207\nmodel name\t: A Processor\n")
    assert host._model_name(cpuinfo) == "A Processor (family 6, model 207)"


def test_a_benchmark_that_was_stopped_measures_only_what_is_missing(tmp_path: Path) -> None:
    calls: list[str] = []

    def measure(name: str) -> dict[str, float]:
        if name == "third" and len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(name)
        return {"seconds": float(len(calls))}

    def benchmark(**options: object) -> list[dict[str, float]]:
        journal = Journal("test", {"size": "small"}, folder=tmp_path, **options)  # type: ignore[arg-type]
        return [journal.measured((name,), partial(measure, name)) for name in ("first", "second", "third")]

    with pytest.raises(KeyboardInterrupt):
        benchmark()
    calls += ["interrupted"]
    with Journal("test", {"size": "small"}, folder=tmp_path).path.open("a") as file:
        file.write('\n{"key": ["third"], "val')  # the process was killed while it wrote
    assert [found["seconds"] for found in benchmark()] == [1, 2, 4]
    assert calls == ["first", "second", "interrupted", "third"]
    assert [found["seconds"] for found in benchmark()] == [1, 2, 4]
    assert len(Journal("test", {"size": "large"}, folder=tmp_path)) == 0
    assert [found["seconds"] for found in benchmark(anew=True)] == [5, 6, 7]
