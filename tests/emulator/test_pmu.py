"""The performance-monitoring unit: names, budgets, and what the guest reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emulator.pmu import (
    CSR_CONTROL,
    METRICS,
    Pmu,
    PmuError,
    available_metrics,
    find_metric,
    select_metrics,
)
from emulator.timing.machine_config import MachineConfig
from emulator.timing.machine_events import N_EVENTS, Event
from emulator.timing.machine_file import load_machine

MACHINES = Path(__file__).parents[2] / "configs" / "machines"
STRONGARM = load_machine(MACHINES / "strongarm.yaml")
DESKTOP = load_machine(MACHINES / "desktop.yaml")


class FakeCore:
    """A core whose events the test sets."""

    def __init__(self, config: MachineConfig = DESKTOP) -> None:
        self.config = config
        self.counters = np.arange(N_EVENTS, dtype=np.int64) * 1000

    def advance(self, **events: int) -> None:
        for name, count in events.items():
            self.counters[Event[name]] += count


def test_presets_cover_what_papers_ask_for() -> None:
    wanted = (
        "TOT_CYC TOT_INS LD_INS SR_INS LST_INS BR_INS BR_CN BR_TKN BR_MSP L1_ICA L1_ICM L1_DCA L1_DCM L1_TCM "
        "L2_TCA L2_TCM TLB_IM TLB_DM FP_INS FP_OPS FML_INS FAD_INS FDV_INS FSQ_INS STL_ICY RES_STL"
    )
    assert {f"PAPI_{name}" for name in wanted.split()} <= set(available_metrics(DESKTOP))
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.unit
        assert metric.description


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("PAPI_L2_TCM", "PAPI_L2_TCM: it has no L2 cache; the nearest that it can is PAPI_L1_TCM"),
        (
            "PAPI_TOT_CYCLES",
            "'PAPI_TOT_CYCLES': there is no such metric; the nearest that it can is PAPI_TOT_CYC",
        ),
        ("papi_l1_dcm", "'papi_l1_dcm': there is no such metric; the nearest that it can is PAPI_L1_DCM"),
        ("~", "'~': there is no such metric"),
    ],
)
def test_a_metric_that_the_machine_does_not_have(name: str, message: str) -> None:
    with pytest.raises(PmuError) as caught:
        find_metric(name, STRONGARM)
    assert str(caught.value).startswith(f"machine 'strongarm' cannot count {message}")


def test_a_machine_without_tlbs_and_target_buffer() -> None:
    predictor = STRONGARM.branch_predictor.model_copy(update={"btb_entries": 0})
    bare = STRONGARM.model_copy(update={"itlb": None, "dtlb": None, "branch_predictor": predictor})
    for name, parts in (
        ("PAPI_TLB_IM", "instruction TLB"),
        ("PAPI_TLB_TL", "data TLB and no instruction TLB"),
        ("PAPI_BTAC_M", "branch target buffer"),
    ):
        with pytest.raises(PmuError, match=f"it has no {parts}"):
            find_metric(name, bare)


def test_budget_of_programmable_counters() -> None:
    machine = DESKTOP.model_copy(update={"pmu": DESKTOP.pmu.model_copy(update={"programmable_counters": 2})})
    # Cycles and instructions have counters of their own; hits need accesses and misses, which are shared.
    chosen = ["PAPI_TOT_CYC", "PAPI_TOT_INS", "PAPI_L1_DCH", "PAPI_L1_DCM"]
    assert [metric.name for metric in select_metrics(chosen, machine)] == chosen
    with pytest.raises(PmuError, match=r"counts 2 events at once .* need 3 \(L1D_ACCESSES, BRANCHES_MISPREDICTED, L1D"):
        select_metrics([*chosen, "PAPI_BR_MSP"], machine)
    with pytest.raises(PmuError, match="metrics given twice: PAPI_TOT_CYC"):
        select_metrics(["PAPI_TOT_CYC", "PAPI_TOT_CYC"], machine)
    with pytest.raises(PmuError, match="30 metrics, expected at most 29, which a guest can read"):
        select_metrics(list(available_metrics(DESKTOP))[:30], DESKTOP)


def test_metrics_are_sums_and_differences_of_events() -> None:
    core = FakeCore()
    pmu = Pmu(core, ["PAPI_L1_TCM", "PAPI_L1_DCH", "PAPI_TOT_CYC", "INT_DIVIDES"])
    assert pmu.read().tolist() == [0, 0, 0, 0]
    core.advance(L1I_MISSES=3, L1D_MISSES=4, L1D_ACCESSES=10, CYCLES=100, INT_DIVIDES=2)
    assert pmu.read().tolist() == [7, 6, 100, 2]


def test_counting_stops_and_goes_on_and_resets() -> None:
    core = FakeCore()
    pmu = Pmu(core, ["PAPI_LD_INS"])
    core.advance(LOADS=5)
    pmu.disable()
    pmu.disable()
    core.advance(LOADS=100)
    assert pmu.read().tolist() == [5]
    pmu.enable()
    pmu.enable()
    core.advance(LOADS=2)
    assert pmu.read().tolist() == [7]
    pmu.reset()
    core.advance(LOADS=1)
    assert pmu.read().tolist() == [1]
    pmu.disable()
    pmu.reset()
    core.advance(LOADS=9)
    pmu.enable()
    core.advance(LOADS=3)
    assert pmu.read().tolist() == [3]


def test_what_the_guest_sees() -> None:
    core = FakeCore()
    pmu = Pmu(core, ["PAPI_LD_INS", "PAPI_SR_INS"])
    core.advance(CYCLES=50, INSTRUCTIONS=40, LOADS=9, STORES=4)
    assert [pmu.read_csr(number) for number in (0xC00, 0xC02, 0xC03, 0xC04, 0xC05, 0xC1F)] == [
        50,
        40,
        9,
        4,
        0,
        0,
    ]
    assert pmu.read_csr(CSR_CONTROL) == 1
    assert [pmu.read_csr(number) for number in (0xC01, 0xC20, 0x001)] == [None, None, None]
    pmu.write_control(0)
    core.advance(CYCLES=1000)
    assert not pmu.enabled
    assert pmu.read_csr(0xC00) == 50
    pmu.write_control(2)
    assert (pmu.read_csr(0xC00), pmu.read_csr(CSR_CONTROL)) == (0, 0)
    pmu.write_control(1)
    core.advance(CYCLES=7)
    assert (pmu.read_csr(0xC00), pmu.read_csr(CSR_CONTROL)) == (7, 1)
    pmu.write_control(3)
    assert pmu.read_csr(0xC00) == 0
    core.advance(CYCLES=8)
    assert pmu.read_csr(0xC00) == 8
