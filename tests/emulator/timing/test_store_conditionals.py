"""A store-conditional is a store and no load, whether it succeeds or not; an atomic read-modify-write is both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emulator.machine import Machine
from emulator.pmu import Pmu
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_file import load_machine
from instrumenter.building.program_build import build_program

DESKTOP = Path(__file__).parents[3] / "configs" / "machines" / "desktop.yaml"
SOURCE = """
static int word;
#define REPEAT(n, text) for (int i = 0; i < n; i++) { int t, u; \\
    __asm__ volatile(text : "=&r"(t), "=&r"(u) : "r"(&word) : "memory"); }
int main(int count, char **values) {
    switch (values[1][0]) {
    case 'p': REPEAT(1000, "lw %0, (%2)\\n addi %0, %0, 1\\n li %1, 0\\n sw %0, (%2)\\n"); return word != 1000;
    case 'r': REPEAT(1000, "lr.w %0, (%2)\\n addi %0, %0, 1\\n sc.w %1, %0, (%2)\\n nop\\n"); return word != 1000;
    case 'f': REPEAT(1000, "li %0, 7\\n li %1, 0\\n sc.w %1, %0, (%2)\\n nop\\n"); return word != 0;
    case 'a': REPEAT(1000, "li %0, 1\\n li %1, 0\\n amoadd.w %1, %0, (%2)\\n nop\\n"); return word != 1000;
    }
    return 1;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("conditional") / "conditional.c"
    source.write_text(SOURCE)
    return build_program([source], ["-O1"]).elf_path


@pytest.mark.parametrize("options", [{"engine": "oracle"}, {"background": False, "optimise_executions": 50}])
def test_counts(program: Path, options: dict[str, Any]) -> None:
    def counted(what: str) -> list[int]:
        core = InOrderCore(load_machine(DESKTOP), seed=1)
        pmu = Pmu(core, ["PAPI_LD_INS", "PAPI_SR_INS", "PAPI_LST_INS", "PAPI_SYC_INS"])
        with Machine(program, [what], core=core, **options) as machine:
            assert machine.run().status == 0
            machine.drain()
            return [int(one) for one in pmu.read()]

    plain = counted("plain")
    differences = {
        what: [now - before for now, before in zip(counted(what), plain, strict=True)]
        for what in ("reserved", "failing", "atomic")
    }
    assert differences["reserved"] == [0, 0, 0, 2000]
    assert differences["failing"] == [-1000, 0, -1000, 1000]
    assert differences["atomic"] == [0, 0, -1000, 1000]
