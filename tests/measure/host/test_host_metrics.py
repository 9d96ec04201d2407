"""Which metrics a host counts, and the reasons why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from measure.host.metrics import METRICS, events_of, metric_named, problems, why_not, without_kernel
from measure.host.perf_event import HARDWARE, RAW, Event
from measure.host.processor import identity, model, warnings
from tests.measure.recorded_kernel import RecordedKernel

HARDWARE_METRICS = [name for name, metric in METRICS.items() if name.startswith("PAPI_")]


def test_a_processor_with_counters_has_all_metrics() -> None:
    kernel = RecordedKernel()
    assert [name for name in METRICS if why_not(name, kernel)] == []
    assert problems(["PAPI_TOT_CYC", "PAPI_TOT_INS", "page-faults", "tsc"], kernel) == {}


def test_a_virtual_machine_without_counters_keeps_the_software_events() -> None:
    kernel = RecordedKernel(counters=0)
    assert {name for name in METRICS if not why_not(name, kernel)} == set(METRICS) - set(HARDWARE_METRICS)
    assert "virtual machine without a performance-monitoring unit" in why_not("PAPI_TOT_INS", kernel)


def test_all_missing_metrics_are_told_at_once() -> None:
    found = problems(["PAPI_TOT_INS", "tsc", "PAPI_TOT_INX", "PAPI_BR_MSP"], RecordedKernel(counters=0))
    assert list(found) == ["PAPI_TOT_INS", "PAPI_TOT_INX", "PAPI_BR_MSP"]
    assert "did you mean 'PAPI_TOT_INS'" in found["PAPI_TOT_INX"]


def test_an_event_that_this_model_lacks() -> None:
    event = METRICS["PAPI_RES_STL"].event
    assert event is not None
    why = why_not("PAPI_RES_STL", RecordedKernel(unknown=[event]))
    assert "this model of processor does not count it" in why


def test_more_events_than_counters() -> None:
    names = ["PAPI_TOT_CYC", "PAPI_TOT_INS", "PAPI_BR_INS"]
    assert problems(names, RecordedKernel(counters=3)) == {}
    found = problems(names, RecordedKernel(counters=2))
    assert list(found) == [""]
    assert "fewer counters" in found[""]


@pytest.mark.parametrize(("level", "expected"), [(-1, False), (1, False), (2, True)])
def test_the_kernel_is_left_out_where_it_must_be(level: int, expected: bool) -> None:
    kernel = RecordedKernel(level=level)
    assert without_kernel(kernel) is expected
    assert problems(["PAPI_TOT_INS", "page-faults"], kernel) == {}


def test_perf_events_that_are_forbidden() -> None:
    why = why_not("page-faults", RecordedKernel(level=4, forbidden=True))
    assert "perf_event_paranoid is 4" in why
    assert "CAP_PERFMON" in why


def test_raw_events_are_numbers_as_in_perf() -> None:
    metric = metric_named("r01c2")
    assert metric is not None
    assert metric.event == Event(RAW, 0x01C2)
    assert metric_named("rxyz") is None


def test_events_keep_the_order_of_the_metrics() -> None:
    assert events_of(["tsc", "PAPI_TOT_INS", "task-clock", "PAPI_TOT_CYC"]) == [Event(HARDWARE, 1), Event(HARDWARE, 0)]


def machine(root: Path, **files: str) -> Path:
    places = {
        "cpuinfo": "proc/cpuinfo", "governor": "sys/devices/system/cpu/cpu3/cpufreq/scaling_governor",
        "boost": "sys/devices/system/cpu/cpufreq/boost", "isolated": "sys/devices/system/cpu/isolated",
        "siblings": "sys/devices/system/cpu/cpu3/topology/thread_siblings_list",
    }  # fmt: skip
    for name, text in files.items():
        path = root / places[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_what_makes_a_noisy_machine_noisy(tmp_path: Path) -> None:
    cpuinfo = "model name\t: A Processor\nmicrocode\t: 0x12\nflags\t\t: fpu hypervisor lm\n"
    root = machine(tmp_path, cpuinfo=cpuinfo, governor="powersave\n", boost="1\n", siblings="3,7\n", isolated="\n")
    found = " ".join(warnings(3, root))
    for words in ("governor powersave", "turbo is on", "threads 3,7", "isolcpus", "virtual machine"):
        assert words in found
    assert model(root) == "A Processor"
    assert identity(root)["microcode"] == "0x12"


def test_a_quiet_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("measure.host.processor.can_fix_addresses", lambda: True)
    root = machine(
        tmp_path, cpuinfo="model name\t: A\nflags\t: fpu\n", governor="performance\n", boost="0\n", siblings="3\n",
        isolated="3\n",
    )  # fmt: skip
    assert warnings(3, root) == []


def test_nothing_is_known_about_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert model(tmp_path).endswith("processor")
    monkeypatch.setattr("measure.host.processor.can_fix_addresses", lambda: False)
    assert [text.split(" ", 2)[:2] for text in warnings(0, tmp_path)] == [["no", "processor"], ["the", "kernel's"]]
