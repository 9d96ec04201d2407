"""Counters in local variables and sampled counters, against exact counters and the emulator's probe."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from emulator.probes import BlockCounter
from instrumenter.building.generated_sources import preprocess_all
from instrumenter.building.program_build import Build, build_program
from instrumenter.compiler.toolchain import Toolchain
from instrumenter.find.probes import ProbeFinder
from instrumenter.spec.counter_layout import CounterLayout
from instrumenter.spec.software_metrics import MetricSpec

PROGRAM = """\
static unsigned total;
__attribute__((noinline)) static unsigned step(unsigned n)
{
    __label__ done;
    if (n % 7 == 0) goto done;
    for (unsigned k = 0; k < n % 11; k++) { total += k * n; if (total % 1000 == 999) return total; }
    while (n > 500 && total % 3) total++;
done:
    return n ? total : 1;
}
static unsigned deep(unsigned n) { return n ? step(n) + deep(n - 1) : 0; }
int main(void) { unsigned sum = 0; for (unsigned n = 0; n < 900; n++) sum += step(n); return deep(30) + sum == 1; }
"""
TURNS: dict[str, object] = {"event": "loop", "function": "step"}
STEPS: dict[str, object] = {"event": "call", "callee": "step"}
SUM: dict[str, object] = {"event": "entry", "function": "step", "add": "n % 5"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("forms") / "forms.c"
    path.write_text(PROGRAM)
    return path


def counted(source: Path, flag: str = "-O2", **metrics: dict[str, object]) -> dict[str, int]:
    """The counters at the end of a run."""
    specs = {name: MetricSpec.model_validate(spec) for name, spec in metrics.items()}
    return counts_of(build_program([source], [flag], specs))


def counts_of(build: Build) -> dict[str, int]:
    """The counters of a program at the end of a run."""
    with Machine(build.elf_path, files=VirtualFiles(), background=False) as machine:
        assert machine.run().status == 0
        found = {}
        for metric, at in build.counters.items():
            symbol = machine.image.find_symbol(at.symbol)
            assert symbol is not None
            found[metric] = machine.memory.read_int(symbol.address + at.offset_bytes, 8)
    return found


@pytest.mark.parametrize("flag", ["-O1", "-O2"])
def test_a_counter_in_a_local_variable_counts_exactly(source: Path, flag: str) -> None:
    exact = counted(source, flag, turns=TURNS, steps=STEPS, sum=SUM)
    local = counted(
        source, flag, turns={**TURNS, "local": True}, steps={**STEPS, "local": True}, sum={**SUM, "local": True}
    )
    assert local == exact
    assert exact["steps"] == 930
    assert exact["turns"] > 2000


@pytest.mark.parametrize("period", [2, 7, 64])
def test_a_sampled_counter_is_within_half_a_period(source: Path, period: int) -> None:
    exact = counted(source, turns=TURNS, steps=STEPS)
    found = counted(source, turns={**TURNS, "sampled": period}, steps={**STEPS, "sampled": period})
    for metric in exact:
        assert found[metric] % period == 0
        assert abs(found[metric] - exact[metric]) <= (period + 1) // 2


def test_a_local_and_a_sampled_counter_agree_with_the_probe(source: Path) -> None:
    entries = {"event": "entry", "function": "step"}
    plain = build_program([source], ["-O2"])
    specs = {"entries": MetricSpec.model_validate(entries)}
    finder = ProbeFinder(plain.elf_path, preprocess_all([source], ["-O2"], Toolchain()), ["-O2"], specs)
    blocks = BlockCounter(with_addresses=True)
    with Machine(plain.elf_path, files=VirtualFiles(), consumers=[blocks], background=False) as machine:
        assert machine.run().status == 0
        executions = blocks.executions_by_pc(machine.facts)
    exact = sum(executions[pc] for pc in finder.probe_for("entries").pcs)
    assert exact == 930
    assert counted(source, one={**entries, "local": True}) == {"one": exact}
    assert abs(counted(source, one={**entries, "sampled": 4})["one"] - exact) <= 2


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"local": True, "sampled": 4}, "give one of them"),
        ({"local": True, "method": "probe"}, "means nothing beside `method: probe`"),
        ({"sampled": 4, "add": "2"}, "means nothing beside `add:`"),
        ({"sampled": 1}, "greater than or equal to 2"),
    ],
)
def test_forms_that_have_no_meaning_are_refused(keys: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        MetricSpec.model_validate({**TURNS, **keys})


def test_the_machine_reads_probes_itself_and_they_come_last() -> None:
    specs = {
        "seen": MetricSpec(event="loop", function="f"),
        "unseen": MetricSpec(event="loop", function="g", method="probe"),
        "other": MetricSpec(event="loop", function="h", sampled=8),
    }
    layout = CounterLayout.of(specs, "cache_line", True)
    assert layout.metrics == ("seen", "other", "unseen")
    assert layout.unread == ("unseen",)
    assert "__measure_countdowns[24]" in layout.definition()
    assert layout.bump("other", None).startswith("(--__measure_countdowns[8] == 0 ?")
