"""Writes counters into preprocessed C: finds each event in the syntax tree and edits the text around it.

Preprocessed, so that macros are what they stand for; edited by byte offset, so that everything else stays as
it was, line markers included. Expressions become ``(count, expression)``, statements ``{count; statement}``:
the value, the evaluation order and the lines of the program do not change.

Not counted, because there is no statement to hold a count: initialisers of variables, unevaluated operands
(sizeof, typeof, _Generic), constant expressions, calls through pointers. longjmp leaves functions without
passing their exits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from clang.cindex import Cursor, CursorKind, StorageClass, TypeKind

from instrumenter.clang import callee, is_assignment, is_increment, parse, strip, written_parts
from instrumenter.counters import ALLOCATORS, CounterLayout, allocator_wrapper
from instrumenter.edits import Edits
from instrumenter.errors import SourceError
from instrumenter.lines import LineMap
from instrumenter.spec import MetricSpec

_LOOPS = (CursorKind.FOR_STMT, CursorKind.WHILE_STMT, CursorKind.DO_STMT)
_UNEVALUATED = (CursorKind.CXX_UNARY_EXPR, CursorKind.GENERIC_SELECTION_EXPR)
_LABELLED = (CursorKind.LABEL_STMT, CursorKind.CASE_STMT, CursorKind.DEFAULT_STMT)


@dataclass
class Rewritten:
    """One source with its counters. ``sites``: events found for each metric; names are for suggestions."""

    text: str
    sites: dict[str, int]
    functions: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)
    callees: set[str] = field(default_factory=set)


def rewrite(
    preprocessed: str, name: str, metrics: Mapping[str, MetricSpec], layout: CounterLayout, target: str | None
) -> Rewritten:
    """Instrument one preprocessed source. Without metrics the text comes back as it was.

    Raises `SourceError` for what does not parse or cannot hold a counter.
    """
    if not metrics:
        return Rewritten(preprocessed, {})
    text = preprocessed.encode("utf-8", "surrogateescape")
    writer = _Writer(text, name, metrics, layout, target)
    writer.walk_file()
    head = writer.head()
    changed = writer.edits.apply(text).decode("utf-8", "surrogateescape")
    first_line = "" if changed.startswith("# ") else f'# 1 "{name}"\n'
    writer.result.text = f"{head}\n{first_line}{changed}"
    return writer.result


class _Writer:
    def __init__(
        self,
        text: bytes,
        name: str,
        metrics: Mapping[str, MetricSpec],
        layout: CounterLayout,
        target: str | None,
    ) -> None:
        self.text = text
        self.lines = LineMap(text, name)
        self.root = parse(text, name, target, self.lines)
        self.layout = layout
        self.metrics = metrics
        self.edits = Edits()
        self.result = Rewritten("", dict.fromkeys(metrics, 0))
        self._allocators: set[str] = set()
        self._function = ""
        self._by_event: dict[str, list[tuple[str, MetricSpec]]] = {}
        for metric, spec in metrics.items():
            self._by_event.setdefault(spec.event, []).append((metric, spec))
        self._heap = [*self._by_event.get("alloc", []), *self._by_event.get("alloc_bytes", [])]
        # (metrics, wrapper name) combinations of allocators, in order of appearance
        self._wrappers: dict[tuple[str, tuple[str, ...]], str] = {}

    def head(self) -> str:
        """The declarations that the inserted code needs, on one line."""
        parts = [self.layout.declaration()]
        for (allocator, metrics), wrapper in self._wrappers.items():
            bumps = [
                (self.layout.lvalue(metric), self.metrics[metric].event == "alloc_bytes")
                for metric in metrics
            ]
            parts.append(
                allocator_wrapper(allocator, bumps).replace(f"__measure_{allocator}(", f"{wrapper}(")
            )
        return " ".join(parts)

    # --- which metrics want an event here
    def _wanted(self, event: str, cursor: Cursor, **subject: str) -> list[str]:
        found = []
        candidates = self._by_event.get(event)
        if not candidates:
            return found
        place = None
        for metric, spec in candidates:
            if any(
                getattr(spec, key) is not None and getattr(spec, key) != value
                for key, value in subject.items()
            ):
                continue
            if spec.function is not None and spec.function != self._function:
                continue
            if spec.line is not None or spec.file is not None:
                place = place or self.lines.place(cursor.extent.start.offset)
                if spec.line is not None and spec.line != place.line:
                    continue
                if spec.file is not None and spec.file != Path(place.file).name:
                    continue
            found.append(metric)
        return found

    def _count(self, metrics: list[str]) -> str:
        for metric in metrics:
            self.result.sites[metric] += 1
        return ", ".join(self.layout.bump(metric, self.metrics[metric].add) for metric in metrics)

    def _count_expression(self, cursor: Cursor, metrics: list[str]) -> None:
        if metrics:
            extent = cursor.extent
            self.edits.wrap(extent.start.offset, extent.end.offset, f"({self._count(metrics)}, ", ")")

    def _count_statement(self, cursor: Cursor, metrics: list[str]) -> None:
        """Count before a statement, which may be the unbraced body of a loop or an if."""
        if not metrics:
            return
        start = cursor.extent.start.offset
        if cursor.kind == CursorKind.COMPOUND_STMT:
            self.edits.insert(start + 1, f" {self._count(metrics)};")
        else:
            self.edits.wrap(start, self._statement_end(cursor), f"{{{self._count(metrics)}; ", "}")

    def _statement_end(self, cursor: Cursor) -> int:
        """The offset after a statement, its semicolon included (extents leave it out)."""
        end = int(cursor.extent.end.offset)
        if cursor.kind in (CursorKind.COMPOUND_STMT, CursorKind.NULL_STMT, CursorKind.DECL_STMT):
            return end
        if cursor.kind in (CursorKind.FOR_STMT, CursorKind.WHILE_STMT, CursorKind.IF_STMT,
                           CursorKind.SWITCH_STMT, *_LABELLED):  # fmt: skip
            children = list(cursor.get_children())
            return self._statement_end(children[-1])
        match = re.compile(rb"(?:\s|^#.*$)*;", re.MULTILINE).match(self.text, end)
        if match is None:
            place = self.lines.place(cursor.extent.start.offset)
            raise SourceError(f"{place}: cannot tell where this statement ends; put it in braces")
        return match.end()

    # --- the walk
    def walk_file(self) -> None:
        """Visit every function body; note names for suggestions."""
        for cursor in self.root.get_children():
            if cursor.kind == CursorKind.VAR_DECL:
                self.result.variables.add(cursor.spelling)
            elif cursor.kind == CursorKind.FUNCTION_DECL:
                self.result.callees.add(cursor.spelling)
                body = next((c for c in cursor.get_children() if c.kind == CursorKind.COMPOUND_STMT), None)
                if body is not None:
                    self._visit_function(cursor, body)
            elif cursor.kind in (CursorKind.STRUCT_DECL, CursorKind.UNION_DECL):
                self._note_fields(cursor)

    def _note_fields(self, record: Cursor) -> None:
        for child in record.get_children():
            if child.kind == CursorKind.FIELD_DECL:
                self.result.fields.add(child.spelling)
            elif child.kind in (CursorKind.STRUCT_DECL, CursorKind.UNION_DECL):
                self._note_fields(child)

    def _visit_function(self, function: Cursor, body: Cursor) -> None:
        self._function = function.spelling
        self.result.functions.add(function.spelling)
        self._returns_void = function.result_type.get_canonical().kind == TypeKind.VOID
        entry = self._wanted("entry", body, function=function.spelling)
        if entry:
            self.edits.insert(body.extent.start.offset + 1, f" {self._count(entry)};")
        self._exit = self._wanted("exit", body, function=function.spelling)
        for child in body.get_children():
            self._visit(child)
        if self._exit:
            statements = list(body.get_children())
            if not statements or statements[-1].kind != CursorKind.RETURN_STMT:
                self.edits.insert(body.extent.end.offset - 1, f" {self._count(self._exit)}; ")

    def _visit(self, cursor: Cursor) -> None:
        kind = cursor.kind
        if kind in _UNEVALUATED:
            return
        if kind == CursorKind.VAR_DECL:
            self.result.variables.add(cursor.spelling)
            if cursor.storage_class == StorageClass.STATIC:
                return  # its initialiser is a constant
        elif kind == CursorKind.CALL_EXPR:
            self._visit_call(cursor)
        elif is_assignment(cursor) or is_increment(cursor):
            self._visit_write(cursor)
        elif kind in _LOOPS:
            children = list(cursor.get_children())
            body = children[0] if kind == CursorKind.DO_STMT else children[-1]
            self._count_statement(body, self._wanted("loop", cursor))
        elif kind == CursorKind.IF_STMT:
            self._visit_if(cursor)
        elif kind == CursorKind.CONDITIONAL_OPERATOR:
            children = list(cursor.get_children())
            if len(children) == 3:
                self._count_expression(children[1], self._wanted("branch", cursor))
        elif kind == CursorKind.RETURN_STMT and self._exit:
            self._count_statement(cursor, self._exit)
        children = cursor.get_children()
        if kind == CursorKind.CASE_STMT:
            next(children)  # the label is a constant
        for child in children:
            self._visit(child)

    def _visit_if(self, cursor: Cursor) -> None:
        wanted = self._wanted("branch", cursor)
        if not wanted:
            return
        children = list(cursor.get_children())
        after_condition = children[1:]
        self._count_statement(after_condition[0], wanted)

    def _visit_call(self, cursor: Cursor) -> None:
        function = callee(cursor)
        if function is None:
            return
        name = function.spelling
        self._count_expression(cursor, self._wanted("call", cursor, callee=name))
        if name in ALLOCATORS and self._heap:
            metrics = [m for event in ("alloc", "alloc_bytes") for m in self._wanted(event, cursor)]
            if metrics:
                key = (name, tuple(metrics))
                wrapper = self._wrappers.setdefault(key, f"__measure_{name}{len(self._wrappers)}")
                for metric in metrics:
                    self.result.sites[metric] += 1
                named = strip(next(cursor.get_children())).extent
                self.edits.replace(named.start.offset, named.end.offset, wrapper)

    def _visit_write(self, cursor: Cursor) -> None:
        if "write" not in self._by_event:
            return
        wanted: list[str] = []
        for part in written_parts(next(cursor.get_children())):
            if part.kind == CursorKind.FIELD_DECL:
                record = part.semantic_parent.spelling
                names = (part.spelling, f"{record}.{part.spelling}")
                found = [m for n in names for m in self._wanted("write", cursor, field=n, variable="")]
            else:
                found = self._wanted("write", cursor, variable=part.spelling, field="")
            wanted += [metric for metric in found if metric not in wanted]
        self._count_expression(cursor, wanted)
