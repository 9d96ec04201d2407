"""Finds the instructions of an instrumented program that are there for its counters, from one run without timing."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from emulator.counterfactual.range_accesses import RangeAccesses
from emulator.counterfactual.served_instructions import served_instructions
from emulator.isa.decode import Instruction, decode
from emulator.linux.loader.elf import ElfImage, load_image
from emulator.machine import Machine
from emulator.probes import BlockCounter
from instrumenter.building.program_build import RUNTIME
from instrumenter.spec.counter_layout import COUNTDOWN
from measure.errors import MeasureError, ended_with
from measure.run_types import RunSpec
from measure.targets.emulated import hotness_threshold, layout_of
from measure.targets.program_file import files_of, program_of
from measure.targets.second_run import NoCounters

_COUNTER_BYTES = 8
_SAMPLER = next(iter(RUNTIME.glob("*.c"))).name


@dataclass(frozen=True)
class CounterCode:
    """The counters' part of a program.

    ``instructions``: addresses of the counters' accesses and of what only serves them, ascending; ``executed``: how
    often each was executed; ``total``: instructions of the whole run; ``entries``: how often each function with a
    unique name was entered.
    """

    instructions: tuple[int, ...]
    executed: tuple[int, ...]
    total: int
    entries: dict[str, int]

    @property
    def own(self) -> int:
        """Instructions of the whole run without the counters'."""
        return self.total - sum(self.executed)


@functools.lru_cache(maxsize=16)
def program_image(program: Path) -> ElfImage:
    """The image of a built program, which never changes: what looks at one program looks at it several times."""
    return load_image(program)


def read_code(image: ElfImage, address: int, size: int) -> bytes:
    """``size`` bytes of the program's segments at ``address``; fewer at the end of a segment."""
    for segment in image.segments:
        if segment.address <= address < segment.end:
            return bytes(segment.data[address - segment.address : address - segment.address + size])
    return b""


def function_ranges(image: ElfImage) -> list[tuple[int, int]]:
    """``[low, high)`` of every function, by address; several names of one function give one range."""
    return sorted({(s.address, s.address + s.size_bytes) for s in image.symbols if s.is_function and s.size_bytes})


def counter_ranges(image: ElfImage, spec: RunSpec) -> list[tuple[int, int]]:
    """Half-open ranges of addresses of the counters, and of the countdowns of sampled ones. Raises `MeasureError` if a
    symbol is missing."""
    places = []
    sampled = dict(spec.sampled)
    for metric, symbol, offset in spec.counters:
        for name in (symbol, COUNTDOWN) if metric in sampled else (symbol,):
            found = image.find_symbol(name)
            if found is None:
                raise MeasureError(f"the program has no symbol {name}: the counter of {metric} cannot be found")
            places.append(found.address + offset)
    return [(place, place + _COUNTER_BYTES) for place in places]


def find_counter_code(spec: RunSpec) -> CounterCode:
    """Run ``spec``'s program once without timing, and find the instructions of its counters.

    Accesses of the in-guest sampler are the sampler's, not the counters'. Raises `MeasureError` when the run fails.
    """
    image = program_image(Path(spec.binary))
    accesses, counter = RangeAccesses(counter_ranges(image, spec)), BlockCounter(with_addresses=True)
    layout, phase = layout_of(spec, np.random.default_rng([spec.seed, 7]))
    with Machine(
        program_of(spec), spec.arguments, files=files_of(spec), layout=layout, consumers=[accesses, counter],
        name=spec.program_name, seed=spec.seed, counters=NoCounters(), timer_phase=phase,
        limit_instructions=spec.limit_instructions, background=False,
        optimise_executions=hotness_threshold(spec),
    ) as machine:  # fmt: skip
        ending = machine.run()
        if ending.status != spec.exit_status:
            reason = ending.message or ended_with(ending.status, spec.exit_status)
            raise MeasureError(f"a run of {spec.variant} failed: {reason}")
        executions = counter.executions_by_pc(machine.facts)
        total = machine.instructions
    inside = accesses.only_inside()
    own = _without_sampler(image, inside) if spec.sampling_mode == "signal" else inside
    served = served_instructions(
        lambda at, size: read_code(image, at, size), function_ranges(image), own,
        functions_without_result(Path(spec.binary)),
    )  # fmt: skip
    found = tuple(sorted(served))
    return CounterCode(found, tuple(executions.get(pc, 0) for pc in found), total, _entries(image, executions))


def _entries(image: ElfImage, executions: Mapping[int, int]) -> dict[str, int]:
    """How often each function was entered that shares its name with no other."""
    functions = [symbol for symbol in image.symbols if symbol.is_function]
    names = Counter(symbol.name for symbol in functions)
    return {s.name: executions[s.address] for s in functions if names[s.name] == 1 and s.address in executions}


@functools.lru_cache(maxsize=8)  # a program is looked at for several sets of its counters
def functions_without_result(program: Path) -> frozenset[int]:
    """Addresses of the functions that return void, by the program's debug information."""
    from elftools.elf.elffile import ELFFile

    with program.open("rb") as file:
        elf: Any = ELFFile(file)
        if not elf.has_dwarf_info():
            return frozenset()
        found = set()
        for unit in elf.get_dwarf_info().iter_CUs():
            for entry in unit.get_top_DIE().iter_children():
                if entry.tag != "DW_TAG_subprogram" or "DW_AT_low_pc" not in entry.attributes:
                    continue
                declared = entry
                for link in ("DW_AT_abstract_origin", "DW_AT_specification"):
                    if link in declared.attributes:
                        declared = declared.get_DIE_from_attribute(link)
                if "DW_AT_type" not in declared.attributes:
                    found.add(int(_address(elf, unit, entry.attributes["DW_AT_low_pc"])))
        return frozenset(found)


def _address(elf: Any, unit: Any, attribute: Any) -> int:
    """The value of an attribute of class address, direct or by index."""
    if attribute.form.startswith("DW_FORM_addrx"):
        return int(elf.get_dwarf_info().get_addr(unit, attribute.value))
    return int(attribute.value)


def _without_sampler(image: ElfImage, accesses: Sequence[int]) -> list[int]:
    """``accesses`` without those of the in-guest sampler's source."""
    found = []
    for pc in accesses:
        line = image.source_line(pc)
        if line is None or Path(line[0]).name != _SAMPLER:
            found.append(pc)
    return found


def moved_counter_code(code: CounterCode, image: ElfImage, other: ElfImage) -> CounterCode | None:
    """``code`` of ``image`` in another layout of the same program; None when the code there is not the same."""
    found = []
    for pc in code.instructions:
        function = image.function_at(pc)
        there = None if function is None else other.find_symbol(function.name)
        unique = function is not None and image.find_symbol(function.name) == function
        if function is None or there is None or not unique or there.size_bytes != function.size_bytes:
            return None
        moved = there.address + pc - function.address
        if mnemonic_at(image, pc) != mnemonic_at(other, moved):
            return None
        found.append(moved)
    return CounterCode(tuple(found), code.executed, code.total, code.entries)


def instruction_at(image: ElfImage, pc: int) -> Instruction | None:
    """The program's instruction at ``pc``; None if there is none."""
    raw = int.from_bytes(read_code(image, pc, 4), "little")
    return decode(raw if raw & 3 == 3 else raw & 0xFFFF)


def mnemonic_at(image: ElfImage, pc: int) -> str:
    """The mnemonic of the program's instruction at ``pc``; "" if there is none."""
    instruction = instruction_at(image, pc)
    return "" if instruction is None else instruction.row.mnemonic
