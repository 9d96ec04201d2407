"""Finds code that two programs of the same sources share: instructions that both execute equally often.

Their executions are a clock by which a place in a run of one program is found in a run of the other, to a few
instructions. It needs no knowledge of what differs: counters in one of them, and what the compiler made otherwise for
their sake, are left out, for they are executed in one program only, or not equally often.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np

from emulator.linux.loader.elf import ElfImage, Symbol, load_image
from emulator.machine import Machine
from emulator.probes import BlockCounter
from measure.errors import MeasureError, ended_with
from measure.program_code.counter_code import mnemonic_at, program_image
from measure.run_types import PLACE_GAP, CounterPlace, RunSpec, SecondRun, SharedCode
from measure.targets.emulated import hotness_threshold, layout_of
from measure.targets.program_file import files_of, second_program_of
from measure.targets.second_run import NoCounters, takes_turns

_LONGEST_EXACT = 2000
"""Executed instructions of a function up to which the longest common parts are sought among all of them; beyond, which
would take minutes, instructions that are frequent in the function begin no common part."""
Token = tuple[str, int]  # mnemonic and executions


class SecondRuns:
    """Makes specifications with a second run; each pair of programs is compared once."""

    def __init__(self) -> None:
        self._executions: dict[str, tuple[dict[int, int], int]] = {}
        self._shared: dict[tuple[str, str], tuple[SharedCode, ...]] = {}

    def spec(self, measured: RunSpec, first: RunSpec, second: RunSpec, metrics: Sequence[str]) -> RunSpec:
        """``measured`` with the counters of ``second``'s program, read in a second run; its columns in the order of
        ``metrics``.

        ``first``, ``second``: runs of both programs as they were built. Raises `MeasureError` when one fails, and
        `TakesTurnsError` when one starts threads or processes.
        """
        key = first.build_key, second.build_key
        if key not in self._shared:
            program = Path(first.binary).read_bytes()
            alike = second_program_of(Path(second.binary), None, program)
            self._shared[key] = shared_code(
                program_image(Path(first.binary)), self._of(first)[0], load_image(alike), _executions(second, alike)[0]
            )
        places: dict[str, CounterPlace] = {c.metric: c for c in (*measured.counters, *second.counters)}
        counted = tuple(counter.metric for counter in second.counters)
        return replace(
            measured,
            counters=tuple(places[metric] for metric in metrics),
            sampled=tuple(dict((*measured.sampled, *second.sampled)).items()),
            second_run=SecondRun(
                second.binary, second.build_key, counted, self._shared[key], self._of(first)[1]
            ),
            extra_columns=(PLACE_GAP,),
        )  # fmt: skip

    def _of(self, spec: RunSpec) -> tuple[dict[int, int], int]:
        if spec.build_key not in self._executions:
            self._executions[spec.build_key] = _executions(spec, Path(spec.binary).read_bytes())
        return self._executions[spec.build_key]


def shared_code(
    first: ElfImage, first_executions: dict[int, int], second: ElfImage, second_executions: dict[int, int]
) -> tuple[SharedCode, ...]:  # fmt: skip
    """One instruction of each part of a function, named alike in both programs, that they execute equally often.

    ``first_executions``, ``second_executions``: of each executed instruction, by address. Instructions correspond when
    they have the same mnemonic, the same number of executions, and the same order among those of the function.
    """
    here, there = _functions(first), _functions(second)
    places, other_places = sorted(first_executions), sorted(second_executions)
    found = []
    for name, function in here.items():
        other = there.get(name)
        if other is None:
            continue
        pcs, other_pcs = _inside(places, function), _inside(other_places, other)
        tokens = [(mnemonic_at(first, pc), first_executions[pc]) for pc in pcs]
        other_tokens = [(mnemonic_at(second, pc), second_executions[pc]) for pc in other_pcs]
        pairs = _one_each(_common(tokens, other_tokens), tokens)
        if pairs:
            offsets = tuple(pcs[n] - function.address for n, _ in pairs)
            other_offsets = tuple(other_pcs[m] - other.address for _, m in pairs)
            found.append(SharedCode(name, function.size_bytes, offsets, other.size_bytes, other_offsets))
    return tuple(found)


def _functions(image: ElfImage) -> dict[str, Symbol]:
    """Functions by name, in order; of names for several functions none, of several names for one the first."""
    functions = [symbol for symbol in image.symbols if symbol.is_function and symbol.size_bytes]
    names = Counter(symbol.name for symbol in functions)
    by_address: dict[int, Symbol] = {}
    for symbol in sorted(functions, key=lambda one: one.name):
        if names[symbol.name] == 1:
            by_address.setdefault(symbol.address, symbol)
    return {symbol.name: symbol for symbol in sorted(by_address.values(), key=lambda one: one.name)}


def _inside(places: Sequence[int], function: Symbol) -> Sequence[int]:
    low = bisect_left(places, function.address)
    return places[low : bisect_left(places, function.address + function.size_bytes)]


def _common(tokens: Sequence[Token], others: Sequence[Token]) -> list[tuple[int, int]]:
    """Pairs of places of equal tokens, ascending in both."""
    if tokens == others:
        return [(n, n) for n in range(len(tokens))]
    junk = max(len(tokens), len(others)) > _LONGEST_EXACT
    matcher = SequenceMatcher(None, tokens, others, autojunk=junk)
    return [
        (block.a + n, block.b + n) for block in matcher.get_matching_blocks() for n in range(block.size)
    ]  # fmt: skip


def _one_each(pairs: Sequence[tuple[int, int]], tokens: Sequence[Token]) -> list[tuple[int, int]]:
    """Of neighbouring pairs that are executed equally often, as those of a basic block are, the first."""
    kept: list[tuple[int, int]] = []
    before: tuple[int, int] | None = None
    for n, m in pairs:
        neighbour = before == (n - 1, m - 1) and tokens[n][1] == tokens[n - 1][1]
        if not neighbour:
            kept.append((n, m))
        before = n, m
    return kept


def _executions(spec: RunSpec, program: bytes) -> tuple[dict[int, int], int]:
    """How often the instruction at each executed address is executed in a run of ``spec`` without timing, with
    ``program`` as its executable, and how many are in all."""
    counter = BlockCounter()
    layout, phase = layout_of(spec, np.random.default_rng([spec.seed, 7]))
    with Machine(
        program, spec.arguments, files=files_of(spec), layout=layout, consumers=[counter],
        name=spec.program_name, seed=spec.seed, counters=NoCounters(), timer_phase=phase,
        limit_instructions=2 * spec.limit_instructions, background=False,
        optimise_executions=hotness_threshold(spec),
    ) as machine:  # fmt: skip
        ending = machine.run()
        machine.drain()
        if ending.status != spec.exit_status:
            reason = ending.message or ended_with(ending.status, spec.exit_status)
            raise MeasureError(f"a run of {spec.variant} failed: {reason}")
        if machine.kernel.scheduler.has_started_tasks:
            raise takes_turns()
        return counter.executions_by_pc(machine.facts), machine.instructions
