"""Machine descriptions: what is accepted, and what is said of what is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from emulator.errors import MachineConfigError
from emulator.timing.machine_config import MachineConfig
from emulator.timing.machine_file import load_machine, parse_machine
from tests.emulator.timing.timing_programs import machine

MACHINES = Path(__file__).parents[3] / "configs" / "machines"

GOOD = """\
name: small
clock_hz: 1_000_000
pipeline:
  mispredict_penalty_cycles: 3
l1i: {size_bytes: 1024, associativity: 2, line_bytes: 32}
l1d:
  size_bytes: 1024
  associativity: 2
  line_bytes: 32
memory:
  latency_cycles: 50
"""


def test_strongarm_is_table_1() -> None:
    config = load_machine(MACHINES / "strongarm.yaml")
    for cache in (config.l1i, config.l1d):
        assert (cache.size_bytes, cache.associativity, cache.line_bytes) == (16384, 32, 32)
        assert cache.hit_latency_cycles == 1
    assert config.memory.latency_cycles == 64
    assert config.pipeline.issue_width == 1
    assert config.l2 is None


def test_desktop_has_what_a_desktop_has() -> None:
    config = load_machine(MACHINES / "desktop.yaml")
    assert config.l2 is not None
    assert config.itlb is not None
    assert config.dtlb is not None
    assert config.branch_predictor.kind == "gshare"


@pytest.mark.parametrize("path", sorted(MACHINES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_number_of_a_shipped_machine_has_a_source(path: Path) -> None:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        key, _, value = line.split("#")[0].partition(":")
        if key in ("name", "description"):
            continue
        if any(character.isdigit() for character in value):
            assert "#" in line, f"{path.name}:{number} has no source"


def test_defaults_are_named_in_the_schema() -> None:
    schema = MachineConfig.model_json_schema()
    for definition in schema["$defs"].values():
        for name, field in definition["properties"].items():
            assert field.get("description"), name
            if "default" in field and field["default"] is not None and not isinstance(field["default"], dict):
                assert "efault" in field["description"], name


SIZE, LATENCY, LINES = "  size_bytes: 1024\n", "  latency_cycles: 50", "  line_bytes: 32\nmemory"


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        (SIZE, "  size_byte: 1024\n", 7, "l1d.size_byte: unknown key, expected one of: size_bytes, "),
        (
            LATENCY,
            "  latency_cycles: fast",
            11,
            "memory.latency_cycles: got 'fast', expected a valid integer",
        ),
        (
            LATENCY,
            "  latency_cycles: true",
            11,
            "memory.latency_cycles: got true, expected a valid integer",
        ),
        (
            LATENCY,
            "  latency_cycles: 0",
            11,
            "memory.latency_cycles: got 0, expected greater than or",
        ),
        (LATENCY, "  latency_cycles: [5]", 11, "memory.latency_cycles: got a list, expected"),
        (
            LATENCY,
            LATENCY + "\n  page_bytes: 5000",
            12,
            "memory.page_bytes: got 5000, expected a power of two",
        ),
        ("memory:\n  latency_cycles: 50\n", "", 1, "memory: missing; it has no default"),
        (
            SIZE,
            "  size_bytes: 1000\n",
            7,
            "l1d: size_bytes is 1000, expected associativity x line_bytes (64)",
        ),
        (
            SIZE,
            SIZE + "  replacement: plru\n",
            8,
            "l1d.replacement: got 'plru', expected 'lru', 'fifo' or",
        ),
        (LINES, "  line_bytes: 48\nmemory", 9, "l1d.line_bytes: got 48, expected a power of two"),
        ("name: small", "name: small\nname: big", 2, "name: given twice, first in line 1"),
        ("name: small", "nam: small", 1, "nam: unknown key, expected one of: name, description, clock_hz"),
        (
            "name: small",
            "zz: 1\nname: small",
            1,
            "zz: unknown key, expected one of: name, description, clock_hz",
        ),
        ("name: small", "name: [small", 2, "not YAML: "),
        (
            "name: small",
            "? [a]\n: 1\nname: small",
            1,
            "got a list as a key, expected a name",
        ),
        (
            "memory:",
            "l2: {size_bytes: 4096, associativity: 4, line_bytes: 16}\nmemory:",
            10,
            "l2.line_bytes is 16, expected at least l1i.line_bytes (32)",
        ),
        (
            "memory:",
            "branch_predictor: {kind: gshare, entries: 16, history_bits: 5}\nmemory:",
            10,
            "branch_predictor: history_bits is 5, expected 1 to 4",
        ),
        (
            "memory:",
            "branch_predictor: {kind: bimodal, entries: 12}\nmemory:",
            10,
            "branch_predictor.entries: got 12, expected a power of two",
        ),
        (
            "memory:",
            "branch_predictor: {btb_entries: 12}\nmemory:",
            10,
            "branch_predictor.btb_entries: got 12, expected 0 or a power of two",
        ),
        (
            "memory:",
            "energy:\n  events_pj: {instructions: 1,\n    l1d_acesses: 2}\nmemory:",
            12,
            "energy.events_pj.l1d_acesses: not an event with an energy; did you mean 'l1d_accesses'?",
        ),
        (
            "memory:",
            "energy:\n  events_pj: {cycles: 3}\nmemory:",
            11,
            "energy.events_pj.cycles: not an event with an energy: static_pj_per_cycle is what each cycle adds",
        ),
        (
            "memory:",
            "functional_units:\n  int_alu: {latency_cycles: 1, interval_cycles: 8}\nmemory:",
            11,
            "functional_units.int_alu.interval_cycles: got 8, expected 1: each integer ALU takes an instruction in",
        ),
        (
            "memory:",
            "itlb: {entries: 12, associativity: 4, miss_penalty_cycles: 1}\nmemory:",
            10,
            "itlb: entries is 12, expected associativity (4) times a power of two",
        ),
    ],
)
def test_errors_say_where_what_and_what_instead(old: str, new: str, line: int, message: str) -> None:
    assert old in GOOD
    with pytest.raises(MachineConfigError) as caught:
        parse_machine(GOOD.replace(old, new), "m.yaml")
    assert f"m.yaml:{line}: {message}" in str(caught.value)


def test_all_errors_are_reported_at_once() -> None:
    text = GOOD.replace("clock_hz", "clock").replace("latency_cycles: 50", "latency_cycles: -1")
    with pytest.raises(MachineConfigError) as caught:
        parse_machine(text, "m.yaml")
    lines = str(caught.value).splitlines()
    assert [line.split(": ")[1] for line in lines] == ["clock_hz", "clock", "memory.latency_cycles"]


@pytest.mark.parametrize(("text", "got"), [("", "nothing"), ("- 1", "a list"), ("7", "a scalar")])
def test_something_else_than_a_mapping(text: str, got: str) -> None:
    with pytest.raises(MachineConfigError, match=f"m.yaml:1: got {got}, expected a mapping"):
        parse_machine(text, "m.yaml")


def test_values_that_do_not_go_together_are_told_where_the_last_was_set(tmp_path: Path) -> None:
    (tmp_path / "below.yaml").write_text(GOOD)
    (tmp_path / "m.yaml").write_text("extends: below.yaml\nl1d:\n  associativity: 3\n")
    size = "l1d: size_bytes is 1024, expected associativity x line_bytes (96)"
    with pytest.raises(MachineConfigError, match=rf"m\.yaml:3: {re.escape(size)}"):
        load_machine(tmp_path / "m.yaml")
    for settings, message in (
        (["l1d.size_bytes=3000"], "--set l1d.size_bytes=3000: l1d: size_bytes is 3000, expected associativity x"),
        (["l1d.associativity=3"], f"--set l1d.associativity=3: {size}"),
        (["l1d.line_bytes=48"], "--set l1d.line_bytes=48: l1d.line_bytes: got 48, expected a power of two"),
        (["branch_predictor.kind=gshare"], "--set branch_predictor.kind=gshare: branch_predictor: history_bits is 0"),
    ):
        with pytest.raises(MachineConfigError, match=f"^{re.escape(message)}"):
            load_machine(tmp_path / "below.yaml", settings)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(MachineConfigError, match="cannot be read: No such file"):
        load_machine(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9")
    with pytest.raises(MachineConfigError, match="not UTF-8"):
        load_machine(tmp_path / "latin.yaml")


def test_a_description_survives_a_round_trip() -> None:
    config = machine()
    assert parse_machine(yaml.safe_dump(config.model_dump()), "again.yaml") == config
