"""Finds probes for metrics: instructions and stores to count in a run of the plain program, without touching it.

A `Probe` is data: addresses of instructions whose executions are summed, or address ranges whose stores are
counted. The program that runs the guest supplies the counts. Probes are derived from the plain program's ELF file
(its debug information) and its preprocessed sources, not from the instrumented program.

Exact at -O0, where each statement and operation keeps its own instructions. Optimised code has probes only for
writes to volatile globals, and for entries and calls of functions that are neither inlined, cloned nor recursive:
exact unless the optimiser drops calls whose results it does not need. All other metrics are refused, with the
reason. So are events that the counters miss, such as writes through pointers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from instrumenter.compiler.toolchain import GUEST_TARGET
from instrumenter.errors import InstrumenterError
from instrumenter.find.debug_information import Body, DebugInfo, UnitInfo, Variable
from instrumenter.find.find import find_source_events
from instrumenter.find.line_markers import LineMap
from instrumenter.find.sites import Form, FoundSites, Site
from instrumenter.languages import generated_ending, is_cplusplus
from instrumenter.spec.cplusplus_names import read_name, split_arguments
from instrumenter.spec.software_metrics import MetricSpec

_RETURNS = {b"\x82\x80": 2, b"\x67\x80\x00\x00": 4}  # c.jr ra; jalr x0, 0(ra)
_LARGEST_STORE_BYTES = 8


class ProbeError(InstrumenterError):
    """A metric has no exact probe in this program; the message says why."""


@dataclass(frozen=True)
class Probe:
    """Counts a metric in a run of the plain program.

    ``pcs``: addresses of instructions, whose executions are summed; an instruction with which several events begin,
    such as the call and its argument in ``f(f(x))``, is listed that many times. ``store_ranges``: half-open address
    ranges, in which stores are counted. One of the two is empty; both are when the event has no code (count 0).
    """

    metric: str
    pcs: tuple[int, ...] = ()
    store_ranges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class _Source:
    """One source of the program: its text and lines, its events, and its compiled unit."""

    text: bytes
    lines: LineMap
    events: FoundSites
    unit: UnitInfo
    cplusplus: bool


class ProbeFinder:
    """Finds the probes of ``metrics`` in the plain program ``elf_path``, built from ``preprocessed`` with ``flags``.

    ``preprocessed``: source path to text, in the order of the build. Raises `InstrumenterError` for an ELF file
    without the debug information of these sources.
    """

    def __init__(
        self,
        elf_path: Path,
        preprocessed: Mapping[Path, str],
        flags: Sequence[str],
        metrics: Mapping[str, MetricSpec],
        target: str | None = GUEST_TARGET,
    ) -> None:
        self.metrics = metrics
        levels = [flag for flag in flags if flag.startswith("-O")]
        self._optimised = bool(levels) and levels[-1] != "-O0"
        names = [f"{number}_{path.stem}{generated_ending(path)}" for number, path in enumerate(preprocessed)]
        self._debug = DebugInfo(elf_path, names)
        self._sources = []
        for name, (path, text) in zip(names, preprocessed.items(), strict=True):
            data = text.encode("utf-8", "surrogateescape")
            unit = self._debug.units[name]
            cplusplus = is_cplusplus(path)
            events = find_source_events(data, str(path), metrics, target, flags, cplusplus=cplusplus)
            self._sources.append(_Source(data, LineMap(data, str(path)), events, unit, cplusplus))
        self._any_cplusplus = any(source.cplusplus for source in self._sources)
        self._exceptions = "-fno-exceptions" not in flags

    def probe_for(self, metric: str) -> Probe:
        """The probe of a metric. Raises `ProbeError` with the reason when there is no exact one."""
        spec = self.metrics[metric]
        self._refuse_inexact(metric, spec)
        if spec.event == "entry":
            return Probe(metric, pcs=tuple(self._entries(metric)))
        if spec.event == "exit":
            return Probe(metric, pcs=tuple(self._exits(metric)))
        narrowed = spec.function is not None or spec.file is not None or spec.line is not None
        if spec.event == "write" and spec.variable is not None and not narrowed:
            ranges = self._store_ranges(metric, spec.variable)
            if ranges is not None:
                return Probe(metric, store_ranges=ranges)
        if self._optimised:
            if spec.event == "call" and spec.callee is not None and not narrowed and not self._any_cplusplus:
                return Probe(metric, pcs=tuple(self._callee_entries(metric, spec.callee)))
            raise ProbeError(
                f"metric '{metric}': in optimised code no instruction stands for {spec.describe()} alone; "
                "build the program with -O0"
            )
        return Probe(metric, pcs=tuple(sorted(self._first_instructions(metric))))

    def _refuse_inexact(self, metric: str, spec: MetricSpec) -> None:
        if spec.add is not None or spec.event == "alloc_bytes":
            what = f"'{spec.add}'" if spec.add is not None else "the bytes asked for"
            raise ProbeError(
                f"metric '{metric}' adds up {what}; a probe counts how often something happens, "
                "not the values of expressions"
            )
        missed = [w for source in self._sources for w in source.events.warnings if f"metric '{metric}':" in w]
        if missed:
            raise ProbeError(f"a probe would see what the counter misses: {missed[0]}")

    def _sites(self, metric: str) -> list[tuple[_Source, Site]]:
        return [
            (source, site) for source in self._sources for site in source.events.sites
            if site.metric == metric
        ]  # fmt: skip

    # --- functions
    def _functions(self, metric: str) -> list[tuple[int, int]]:
        """Code ``[low, high)`` of the functions with a metric's sites; functions without code never run."""
        found = {}
        for source, site in self._sites(metric):
            self._check_one_body(metric, source, site.function)
            found.update({code[0]: code for code in self._code(metric, source, site)})
        return list(found.values())

    def _code(self, metric: str, source: _Source, site: Site) -> list[tuple[int, int]]:
        """Code of the function of a site: one range, or in C++ one for each instance of a template."""
        if not source.cplusplus:
            code = source.unit.functions.get(site.function)
            return [] if code is None else [code]
        bodies = self._bodies(source, site.function)
        meant = [body for body in bodies if not site.condition or self._is_instance(metric, body)]
        if bodies and not meant:
            there = ", ".join(sorted({"::".join(body.names) for body in bodies})[:4])
            raise ProbeError(
                f"metric '{metric}': no instance '{self.metrics[metric].function}' in the debug information, which has "
                f"{there}: write its arguments as there"
            )
        return [body.code for body in meant]

    def _bodies(self, source: _Source, function: str) -> list[Body]:
        """The code of a C++ function; of an inline function's copies the linker keeps one, in any unit."""
        units = [source.unit, *(other.unit for other in self._sources)]
        return next((unit.bodies[function] for unit in units if unit.bodies.get(function)), [])

    def _is_instance(self, metric: str, body: Body) -> bool:
        """Whether code belongs to the instance of a template that the metric names."""
        wanted = read_name(self.metrics[metric].function or "")
        for part, name in zip(reversed(wanted.parts), reversed(body.names), strict=False):
            if part.arguments is not None:
                own = split_arguments(name[name.find("<") + 1 : name.rfind(">")])
                if own[: len(part.arguments)] != part.arguments:
                    return False
        return True

    def _check_one_body(self, metric: str, source: _Source, function: str) -> None:
        """Refuse a function whose code is not exactly one body, entered by every call."""
        unit, shown = source.unit, function.rpartition(":")[2]
        bodies = self._bodies(source, function) if source.cplusplus else ()
        has_code = bool(bodies) if source.cplusplus else function in unit.functions
        if function in unit.inlined or (self._optimised and not has_code):
            raise ProbeError(f"metric '{metric}': '{shown}' is inlined; its events have no place of their own")
        if not self._optimised:
            return
        names = [body.symbol for body in bodies] or [function]
        clone = next(
            (symbol for symbol in self._debug.symbols for name in names if symbol.startswith(f"{name}.")), None
        )
        if clone is not None:
            raise ProbeError(f"metric '{metric}': the compiler made a special version of '{shown}', '{clone}'")
        if function in source.events.recursive:
            raise ProbeError(
                f"metric '{metric}': '{shown}' calls itself, which optimised code may do by a jump; "
                "build the program with -O0"
            )

    def _entries(self, metric: str) -> list[int]:
        return [low for low, _ in self._functions(metric)]

    def _exits(self, metric: str) -> list[int]:
        if self._optimised:
            raise ProbeError(
                f"metric '{metric}': optimised functions may leave by a jump to another; build the program with -O0"
            )
        if self._exceptions and any(source.cplusplus for source, _ in self._sites(metric)):
            raise ProbeError(
                f"metric '{metric}': no instruction stands for leaving a C++ function by an exception; probe its "
                "entries, which are as many as its exits unless it ends the program"
            )
        return [pc for low, high in self._functions(metric) for pc in self._debug.instructions(low, high, _RETURNS)]

    def _callee_entries(self, metric: str, callee: str) -> list[int]:
        bodies = [source for source in self._sources if callee in source.events.functions]
        if not bodies or callee == "main":
            raise ProbeError(
                f"metric '{metric}': '{callee}' is also called by code outside these sources; "
                "build the program with -O0"
            )
        for source in bodies:
            self._check_one_body(metric, source, callee)
        if len(bodies) > 1:
            raise ProbeError(f"metric '{metric}': there are several functions '{callee}'")
        return [bodies[0].unit.functions[callee][0]]

    # --- data
    def _store_ranges(self, metric: str, name: str) -> tuple[tuple[int, int], ...] | None:
        """Address ranges of a scalar global or static, or of an array of scalars; None if a write is not one store."""
        variables: set[Variable | None] = set()
        for source in {id(source): source for source, _ in self._sites(metric)}.values():
            name = name.rpartition("::")[2]
            own = source.unit.variables.get(name)
            if source.cplusplus and own is not None and len(own) > 1:
                return None  # which of them is meant, their names do not tell
            if own is None:  # declared `extern` here
                own = [v for other in self._sources for v in other.unit.variables.get(name, ()) if v.external]
            variables |= {*own} or {None}
        ranges = []
        for variable in variables:
            if variable is None or variable.store_bytes is None or variable.store_bytes > _LARGEST_STORE_BYTES:
                return None
            if self._optimised and not variable.volatile:
                return None
            ranges.append((variable.low, variable.high))
        return tuple(sorted(ranges))

    # --- lines
    def _first_instructions(self, metric: str) -> list[int]:
        """The first instruction of each site's probed text: at -O0 it runs once per event.

        Several sources have the text of a header. Where the linker kept one copy of its code, that counts once.
        """
        by_source: dict[int, Counter[int]] = {}
        for source, site in self._sites(metric):
            by_source.setdefault(id(source), Counter()).update(self._first_instruction(metric, source, site))
        found: Counter[int] = Counter()
        for counts in by_source.values():
            found |= counts
        return list(found.elements())

    def _first_instruction(self, metric: str, source: _Source, site: Site) -> list[int]:
        """The first instruction of a site's probed text, as a list; empty if it has no code and never runs."""
        if not site.function:
            raise ProbeError(
                f"{site.place}: metric '{metric}': the event is in an initialiser outside of functions, or in a "
                "default of a parameter, whose code is in other functions"
            )
        self._check_one_body(metric, source, site.function)
        if site.probed_end <= site.probed_start:
            raise ProbeError(f"{site.place}: metric '{metric}': the event has no code of its own here")
        bodies = self._code(metric, source, site)
        return [pc for code in bodies for pc in self._first_instruction_in(metric, source, site, code)]

    def _first_instruction_in(
        self, metric: str, source: _Source, site: Site, code: tuple[int, int]
    ) -> list[int]:  # fmt: skip
        """As `_first_instruction`, in one body of the function."""
        unit = next(one.unit for one in (source, *self._sources) if one.unit.rows_between(*code))
        inside, anything = [], False
        for row in unit.rows_between(*code):
            offsets = source.lines.offsets(row.file, row.line, row.column)
            anything = anything or any(site.start <= offset < site.end for offset in offsets)
            hits = [site.probed_start <= offset < site.probed_end for offset in offsets]
            if any(hits):
                if not all(hits):
                    raise ProbeError(
                        f"{site.place}: metric '{metric}': debug information cannot tell several places of the "
                        "program text apart here"
                    )
                inside.append(row.address)
        if inside:
            return [min(inside)]
        if site.form is Form.EXPRESSION and not anything:
            return []  # the compiler removed it as unreachable
        raise ProbeError(f"{site.place}: metric '{metric}': the event has no code of its own here")
