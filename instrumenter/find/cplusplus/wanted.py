"""Finds which functions, variables and calls of a C++ source the names in metrics mean."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from clang.cindex import Cursor, CursorKind

from instrumenter.errors import SpecError
from instrumenter.find.cplusplus import parse as cplusplus_parse
from instrumenter.find.cplusplus.calls import reachable
from instrumenter.find.cplusplus.declarations import Declarations, Function
from instrumenter.find.cplusplus.init_statements import InitStatements
from instrumenter.find.cplusplus.references import is_local
from instrumenter.find.events import Finder, Wanted
from instrumenter.spec.cplusplus_names import (
    WantedName,
    choose_names,
    instance_condition,
    qualified_parts,
    read_name,
)
from instrumenter.spec.software_metrics import MetricSpec

_WORDS = re.compile(rb"[\w$\x80-\xff]+")
IN_LAMBDA = " in a lambda"
"""What follows a kind of event, for metrics that count in the function around the lambda."""


class WantedFinder(Finder):
    """Knows what the metrics want to be counted in one C++ source; `CplusplusFinder` finds where it happens."""

    def __init__(
        self, text: bytes, name: str, metrics: Mapping[str, MetricSpec], target: str | None, flags: Sequence[str]
    ) -> None:
        super().__init__(text, name, metrics, target, flags)
        self._system = cplusplus_parse.SystemText(text)
        self._inits = InitStatements(
            text, self._system, lambda text, macros: cplusplus_parse.parse_leniently(text, target, flags, macros)[1]
        )
        self._source = Declarations(self.root, text, self.lines, self._system, self.events, self._inits)
        self._names: dict[tuple[str, str], WantedName] = {}
        self._meant: dict[tuple[str, str], set[tuple[str, ...]]] = {}
        self._reached: dict[str, set[tuple[str, ...]]] = {}  # of callees in headers of the system, by metric
        self._parts: tuple[str, ...] = ()  # of the name of the function being visited
        self._evaluated_first: list[tuple[int, int]] = []  # initialisers of constants and static variables
        self._callee_matches: dict[tuple[str, Any], bool] = {}
        for metric, spec in metrics.items():
            for key in ("function", "callee", "variable", "field"):
                if getattr(spec, key) is not None:
                    self._names[metric, key] = read_name(getattr(spec, key).replace(".", "::"))

    def parse(self, target: str | None, flags: Sequence[str]) -> Cursor:
        """The root of the syntax tree. Raises `SourceError`."""
        return cplusplus_parse.parse(self.text, self.name, target, self.lines, flags)

    def _choose(self) -> None:
        """Find which functions and variables the metrics mean. Raises `SpecError`."""
        files = [self.lines.place(function.body.extent.start.offset).file for function in self._source.functions]
        with_body = {function.parts for function in self._source.functions}
        for (metric, key), wanted in self._names.items():
            if key == "function":
                spec, found = self.metrics[metric], zip(self._source.functions, files, strict=True)
                there = {function.parts for function, file in found if self._is_in(spec, file)}
                self._meant[metric, key] = choose_names(metric, wanted, there)
            elif key == "callee":
                self._meant[metric, key] = choose_names(metric, wanted, {*self._source.declared, *with_body})
                self._refuse_constructor(metric, wanted)
            elif key == "variable":
                self._meant[metric, key] = choose_names(metric, wanted, self._source.variables)

    def _refuse_constructor(self, metric: str, wanted: WantedName) -> None:
        for parts in self._meant[metric, "callee"] or {tuple(part.name for part in wanted.parts)}:
            if parts[-1].startswith("~") or (len(parts) > 1 and parts[-1] == parts[-2]):
                name = "::".join(parts)
                raise SpecError(
                    f"metric '{metric}': calls of '{name}' are mostly not written in the program, and cannot be "
                    f"counted; count its entries: {{event: entry, function: '{name}'}}",
                    metric,
                )

    def _words(self, start: int, end: int) -> set[str]:
        return {word.decode("utf-8", "surrogateescape") for word in _WORDS.findall(self.text, start, end)}

    @staticmethod
    def _is_mentioned(name: WantedName, words: set[str]) -> bool:
        last = name.parts[-1].name
        return last.startswith("operator") or last in words

    def _wanted_in(self, function: Function) -> Wanted:
        """The events that metrics count in a function, by kind and by metric where there is a subject."""
        words = self._words(self._source.start_of(function.cursor), function.end)
        wanted: Wanted = {}
        for metric, spec in self.metrics.items():
            where = ""
            if spec.function is not None and spec.event == "write" and self._is_lambda_of(metric, function.parts):
                where = IN_LAMBDA
            elif spec.function is not None:
                name = self._names[metric, "function"]
                if function.parts not in self._meant[metric, "function"] or not name.matches_signature(function.cursor):
                    continue
                condition = instance_condition(metric, name, function.cursor)
                if condition is None:
                    continue
                if condition:
                    self._conditions[metric] = condition
            subject = next((key for key in ("callee", "variable", "field") if (metric, key) in self._names), None)
            if subject is not None and not self._is_mentioned(self._names[metric, subject], words):
                continue
            kind = spec.event + (" field" if spec.field is not None else "") + where
            wanted.setdefault((kind, metric if subject is not None else ""), []).append(metric)
        return wanted

    def _is_lambda_of(self, metric: str, parts: tuple[str, ...]) -> bool:
        """Whether a function is a lambda in one that the metric means, and is not meant itself."""
        meant = self._meant[metric, "function"]
        outer = [n for n in range(1, len(parts)) if parts[:n] in meant and parts[n].startswith("lambda@")]
        return bool(outer) and parts not in meant

    def _wanted_of(self, kind: str) -> list[str]:
        """The metrics of a kind of event with a subject that count in this function."""
        return [metric for event, metric in self._wanted if event == kind and metric]

    def _metrics_of_call(self, cursor: Cursor) -> list[str]:
        functions = reachable(cursor)
        found: list[str] = []
        for metric in self._wanted_of("call"):
            if functions and all(self._is_callee(metric, function) for function in functions):
                found += self._metrics_at("call", metric, cursor.extent.start.offset)
        return found

    def _is_callee(self, metric: str, function: Cursor) -> bool:
        """Whether a metric counts calls of ``function``."""
        wanted = self._names[metric, "callee"]
        if str(function.spelling).split("<", 1)[0] != wanted.parts[-1].name.split("<", 1)[0]:
            return False
        key = (metric, function.hash)
        if key not in self._callee_matches:
            parts, meant = qualified_parts(function), self._meant[metric, "callee"]
            matches = parts in meant if meant else wanted.matches_parts(parts)
            matches = matches and wanted.matches_signature(function)
            matches = matches and instance_condition(metric, wanted, function) == ""
            if matches and not meant:
                self._reached.setdefault(metric, set()).add(parts)
                self.events.callees.add("::".join(parts))
            self._callee_matches[key] = matches
        return self._callee_matches[key]

    def _metrics_of_write(self, part: Cursor, offset: int, where: str = "") -> list[str]:
        found: list[str] = []
        is_field = part.kind == CursorKind.FIELD_DECL
        kind, key = ("write field", "field") if is_field else ("write", "variable")
        kind += where
        for metric in self._wanted_of(kind):
            wanted = self._names[metric, key]
            if part.spelling != wanted.parts[-1].name:
                continue
            parts = qualified_parts(part)
            if is_field:
                matches = wanted.matches_parts(parts)
            elif part.kind != CursorKind.VAR_DECL and part.kind != CursorKind.PARM_DECL:
                matches = False
            elif self.metrics[metric].function is not None:
                matches = parts in self._meant[metric, key] or wanted.matches_parts(parts)
            else:
                matches = parts in self._meant[metric, key] and not is_local(part)
            if matches:
                found += self._metrics_at(kind, metric, offset)
        return found
