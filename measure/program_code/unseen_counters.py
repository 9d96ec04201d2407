"""Counters that the emulated machine executes and does not see: how `method: probe` counts a software metric.

The program has its counters, so that any event can be counted, but their instructions cost nothing and count as
nothing. When all counters of a program are unseen, its code and data are seen where the plain program has them, too.
What remains of the instrumentation is what the compiler made otherwise.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from measure.program_code.code_layout import layout_moves
from measure.program_code.counter_code import CounterCode, find_counter_code, moved_counter_code, program_image
from measure.run_types import Intervention, RunSpec


class UnseenCounters:
    """Finds counters' code; each program is analysed once, and other layouts of the same one mostly not at all."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[str, ...]], CounterCode] = {}
        self._first: dict[tuple[str, ...], tuple[str, CounterCode]] = {}

    def code(self, spec: RunSpec, metrics: Collection[str]) -> CounterCode:
        """The code of the counters of ``metrics`` in the program of ``spec``. Raises `MeasureError` when a run that
        looks for it fails."""
        chosen = tuple(counter for counter in spec.counters if counter.metric in metrics)
        names = tuple(counter.metric for counter in spec.counters), tuple(counter.metric for counter in chosen)
        key = spec.binary, names[1]
        if key not in self._known:
            found = None
            alike = "/".join(names[0]), *names[1]
            if alike in self._first:
                binary, code = self._first[alike]
                found = moved_counter_code(code, program_image(Path(binary)), program_image(Path(spec.binary)))
            if found is None:
                found = find_counter_code(replace(spec, counters=chosen))
            self._first.setdefault(alike, (spec.binary, found))
            self._known[key] = found
        return self._known[key]

    def intervention(self, spec: RunSpec, plain: RunSpec, metrics: Collection[str]) -> Intervention:
        """The intervention for ``spec`` under which the counters of ``metrics`` are unseen; ``plain``: a run of the
        plain program in the same code layout."""
        code = self.code(spec, metrics)
        free = Intervention(instructions=code.instructions, free=True, uncached=True)
        if any(counter.metric not in metrics for counter in spec.counters):
            return free
        moves = layout_moves(Path(spec.binary), Path(plain.binary), code.instructions)
        return replace(free, code_moves=moves.code, data_moves=moves.data)
