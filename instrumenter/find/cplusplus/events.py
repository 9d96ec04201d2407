"""Finds where the events of metrics happen in preprocessed C++; `instrumenter.find.events` does it for C.

Counters go into the user's functions, never into headers of the system. The text of a template is counted for all its
instances; a condition on its parameters narrows that to one. What the compiler evaluates itself is not an event, nor
are calls that are not written: of constructors, destructors and conversions. Their entries are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from clang import cindex
from clang.cindex import Cursor, CursorKind, StorageClass

from instrumenter.errors import SpecError
from instrumenter.find import clang
from instrumenter.find.cplusplus import parse as cplusplus_parse
from instrumenter.find.cplusplus.declarations import Declarations, Function
from instrumenter.find.cplusplus.references import ASSIGNING, is_writable_reference, referred_to
from instrumenter.find.evaluation import evaluated, text_of
from instrumenter.find.events import Finder, Wanted
from instrumenter.find.sites import LIBRARY_ALLOCATIONS, Form, FoundSites
from instrumenter.spec.counter_layout import ALLOCATORS
from instrumenter.spec.cplusplus_names import (
    FUNCTIONS,
    RECORDS,
    WantedName,
    choose_names,
    instance_condition,
    qualified_parts,
    read_name,
)
from instrumenter.spec.software_metrics import MetricSpec
from instrumenter.tokens import at_depth_0, closing_parenthesis

_LOCAL_DECLARATIONS = (CursorKind.VAR_DECL, CursorKind.UNEXPOSED_DECL)
_UNEVALUATED = re.compile(rb"(noexcept|requires|__builtin_(offsetof|constant_p))\b")
_CONTAINERS = b'/__memory/allocator.h"'  # in a line marker: the header by which containers and strings allocate
_WORDS = re.compile(rb"[\w$\x80-\xff]+")
_ALLOCATING = {*ALLOCATORS, "new"}
_PLACEMENT = re.compile(rb"(?:::\s*)?new\s*\(")


class CplusplusFinder(Finder):
    """Finds the events of one C++ source."""

    def __init__(
        self, text: bytes, name: str, metrics: Mapping[str, MetricSpec], target: str | None, flags: Sequence[str]
    ) -> None:
        super().__init__(text, name, metrics, target, flags)
        self._system = cplusplus_parse.SystemText(text)
        self._source = Declarations(self.root, text, self.lines, self._system, self.events)
        self._names: dict[tuple[str, str], WantedName] = {}
        self._meant: dict[tuple[str, str], set[tuple[str, ...]]] = {}
        self._reached: dict[str, set[tuple[str, ...]]] = {}  # of callees in headers of the system, by metric
        self._returns_reference = False
        self._evaluated_first: list[tuple[int, int]] = []  # initialisers of constants and static variables
        self._callee_matches: dict[tuple[str, Any], bool] = {}
        for metric, spec in metrics.items():
            for key in ("function", "callee", "variable", "field"):
                if getattr(spec, key) is not None:
                    self._names[metric, key] = read_name(getattr(spec, key).replace(".", "::"))

    def parse(self, target: str | None, flags: Sequence[str]) -> Cursor:
        """The root of the syntax tree. Raises `SourceError`."""
        return cplusplus_parse.parse(self.text, self.name, target, self.lines, flags)

    def find(self) -> FoundSites:
        """Collect the functions of the source, find what metrics mean by their names, and visit every body."""
        self._choose()
        for function in self._source.functions:
            self._visit_cplusplus(function)
        for declaration in self._source.outside:
            self._visit_outside(declaration)
        self._warn_of_library_allocations()
        for metric, reached in self._reached.items():
            choose_names(metric, self._names[metric, "callee"], reached)
        for (metric, key), meant in self._meant.items():
            self.events.meant[metric, key] = {"::".join(parts) for parts in meant}
        return self.events

    def _warn_of_library_allocations(self) -> None:
        """Warn for metrics that count allocations if the text has the allocator of the library's containers.

        The sentence has no place: one for all sources of a program suffices.
        """
        self.events.allocates_in_headers = _CONTAINERS in self.text
        if self.events.allocates_in_headers:
            counting = [metric for metric, spec in self.metrics.items() if spec.event in ("alloc", "alloc_bytes")]
            self.events.warnings += [f"metric '{metric}': {LIBRARY_ALLOCATIONS}" for metric in counting]

    # --- names
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

    # --- one function
    def _visit_cplusplus(self, function: Function) -> None:
        start, end = function.body.extent.start.offset, function.body.extent.end.offset
        self._function, self._constant = function.key, function.constant
        self._body = self._after_brace(start)
        self._must_jump = b"musttail" in self.text[start:end]
        self._conditions = {}
        self._evaluated_first.clear()
        self._returns_reference = is_writable_reference(function.cursor.result_type)
        self._wanted = self._wanted_in(function)
        if any(function.parts[-1] == word.decode("utf-8", "replace")
               for word in re.findall(rb"[\w$]+", self.text[start:end])):  # fmt: skip
            self.events.recursive.add(function.key)
        if not self._wanted:
            return
        shown = "::".join(function.parts)
        if function.immediate:
            self._refuse(function.cursor, f"'{shown}' is consteval: it never runs, the compiler evaluates it")
        if function.body.kind == CursorKind.UNEXPOSED_STMT:
            self._refuse(function.cursor, f"'{shown}' is a coroutine: coroutines are not instrumented")
        self._add(self._metrics_at("entry", "", start), Form.POINT, self._body, self._body)
        leaving = self._metrics_at("exit", "", start)
        for metric in leaving:
            if self.metrics[metric].add is not None:
                raise SpecError(f"metric '{metric}': `add:` is not possible with event `exit` in C++", metric)
        self._plan_exits(function.parts[-1], leaving, function.body)
        if self._tail_callees or self._exits or any(event not in ("entry", "exit") for event, _ in self._wanted):
            self._walk(function.body)
            self._visit_initialisers(function)

    def _bodies(self) -> Iterator[tuple[str, Cursor]]:
        for function in self._source.functions:
            yield function.parts[-1], function.body

    def _visit_initialisers(self, function: Function) -> None:
        """Visit what a constructor evaluates before its body."""
        if function.cursor.kind not in (CursorKind.CONSTRUCTOR, CursorKind.FUNCTION_TEMPLATE):
            return
        self._body = -1
        member: Cursor | None = None
        for child in function.cursor.get_children():
            if member is not None and is_writable_reference(member.type):
                self._warn_of_references([child])
            member = child.referenced if child.kind == CursorKind.MEMBER_REF else None
            before_body = child.extent.end.offset <= function.body.extent.start.offset
            if (
                child.kind.is_expression()
                and before_body
                and (child.extent.start.offset > function.cursor.location.offset)
            ):
                self._walk(child)

    def _visit_outside(self, declared: Cursor) -> None:
        """Visit the initialiser of a global variable, of a member, or the default of a parameter.

        What of it the compiler evaluates is no event. Of metrics those count here that name no function.
        """
        start, end = declared.location.offset, declared.extent.end.offset
        if declared.kind != CursorKind.VAR_DECL:
            start = next((at for token, at in at_depth_0(self.text, start, end) if token in (b"=", b"{")), end)
        words = self._words(start, end)
        subjects = {"call": "callee", "write": "variable", "alloc": "", "alloc_bytes": ""}
        self._wanted = {}
        for metric, spec in self.metrics.items():
            if spec.function is None and spec.event in subjects:
                key = "field" if spec.field is not None else subjects[spec.event]
                if self._is_mentioned(self._names[metric, key], words) if key else words & _ALLOCATING:
                    kind = spec.event + (" field" if key == "field" else "")
                    self._wanted.setdefault((kind, metric if key else ""), []).append(metric)
        if not self._wanted:
            return
        self._function, self._body, self._constant, self._must_jump = "", -1, True, False
        self._conditions, self._returns_reference, self._tail_callees = {}, False, set()
        if declared.kind == CursorKind.VAR_DECL:
            self._walk(declared)
            return
        if declared.is_bitfield():
            what = "the initialiser of this bit-field cannot be analysed; what happens in it is not counted"
            self._warn(
                [metric for metrics in self._wanted.values() for metric in metrics if start < end], declared, what
            )
        for child in declared.get_children():
            if child.kind.is_expression() and start <= child.extent.start.offset < end:
                self._walk(child)

    def _words(self, start: int, end: int) -> set[str]:
        return {word.decode("utf-8", "surrogateescape") for word in _WORDS.findall(self.text, start, end)}

    @staticmethod
    def _is_mentioned(name: WantedName, words: set[str]) -> bool:
        last = name.parts[-1].name
        return last.startswith("operator") or last in words

    def _wanted_in(self, function: Function) -> Wanted:
        """The events that metrics count in a function, by kind and by metric where there is a subject."""
        words = self._words(self._source.start_of(function.cursor), function.body.extent.end.offset)
        wanted: Wanted = {}
        for metric, spec in self.metrics.items():
            if spec.function is not None:
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
            kind = spec.event + (" field" if spec.field is not None else "")
            wanted.setdefault((kind, metric if subject is not None else ""), []).append(metric)
        return wanted

    def _wanted_of(self, kind: str) -> list[str]:
        """The metrics of a kind of event with a subject that count in this function."""
        return [metric for event, metric in self._wanted if event == kind and metric]

    # --- the walk
    def _evaluated(self, cursor: Cursor) -> Iterable[Cursor]:
        kind = cursor.kind
        if kind in (CursorKind.LAMBDA_EXPR, CursorKind.DECL_REF_EXPR, CursorKind.CXX_TYPEID_EXPR) or kind in RECORDS:
            return
        if kind == CursorKind.UNEXPOSED_DECL:  # a structured binding
            yield from (child for child in cursor.get_children() if child.kind.is_expression())
            return
        if kind == CursorKind.UNEXPOSED_EXPR and _UNEVALUATED.match(self.text, cursor.extent.start.offset):
            return
        if kind == CursorKind.VAR_DECL:
            head = self.text[cursor.extent.start.offset : cursor.location.offset]
            value = clang.initializer(cursor)
            by_compiler = re.search(rb"\b(constexpr|constinit)\b", head)
            if value is not None and not by_compiler and cursor.storage_class != StorageClass.EXTERN:
                yield value
            return
        children: Iterable[Cursor] = evaluated(cursor, self.text)
        if kind == CursorKind.IF_STMT and re.match(rb"if\s*constexpr\b", self.text[cursor.extent.start.offset :][:40]):
            inside = self._closing_parenthesis(cursor.extent.start.offset)
            children = [child for child in children if child.extent.start.offset >= inside]
        for child in children:
            if child.kind.is_expression() or child.kind.is_statement() or child.kind in _LOCAL_DECLARATIONS:
                yield child

    def _visit(self, cursor: Cursor) -> None:
        kind = cursor.kind
        if kind == CursorKind.VAR_DECL:
            self._visit_variable(cursor)
        if any(event.startswith("write") for event, _ in self._wanted):
            self._warn_of_references(referred_to(cursor, self._is_library))
            if kind == CursorKind.RETURN_STMT and self._returns_reference:
                self._warn_of_references(cursor.get_children())
        if kind == CursorKind.CXX_NEW_EXPR:
            self._visit_new(cursor)
        elif kind == CursorKind.CXX_DELETE_EXPR:
            array = re.match(rb"(?:::\s*)?delete\s*\[", text_of(self.text, cursor)) is not None
            self._add_operator(cursor, "operator delete[]" if array else "operator delete")
        elif kind == CursorKind.UNEXPOSED_EXPR:
            children = list(cursor.get_children())
            if len(children) == 4:
                between = self.text[children[0].extent.end.offset : children[3].extent.start.offset]
                if re.fullmatch(rb"\s*\)*\s*\?\s*:\s*\(*\s*", between):
                    self._visit_ternary(cursor)
        else:
            super()._visit(cursor)

    def _visit_variable(self, variable: Cursor) -> None:
        """Note the initialiser of a variable that the compiler evaluates where it can: other constants may need it."""
        kept = variable.type.get_canonical()
        value = clang.initializer(variable)
        if value is not None and (kept.is_const_qualified() or variable.storage_class == StorageClass.STATIC):
            self._evaluated_first.append((value.extent.start.offset, value.extent.end.offset))

    def _may_be_constant(self, start: int) -> bool:
        return self._constant or any(begin <= start < end for begin, end in self._evaluated_first)

    def _visit_new(self, cursor: Cursor) -> None:
        text = text_of(self.text, cursor)
        placed = _PLACEMENT.match(text)
        if placed is not None:
            after = self._closing_parenthesis(cursor.extent.start.offset)
            arguments = self.text[cursor.extent.start.offset + placed.end() : after]
            rest = self.text[after : cursor.extent.end.offset].strip()
            has_type_after = rest[:1].isalpha() or rest[:1] in (b"_", b":", b"(")
            if has_type_after and b"nothrow" not in arguments:
                return  # the memory is there already
        array = any(token == b"[" for token, _ in at_depth_0(text, 0))
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        self._add(self._metrics_at("alloc", "", start), Form.EXPRESSION, start, end, (start, end))
        self._add_operator(cursor, "operator new[]" if array else "operator new")
        for metric in self._metrics_at("alloc_bytes", "", start):
            self._warn([metric], cursor, "`alloc_bytes` does not see the bytes of `new`; `alloc` counts it")

    def _add_operator(self, cursor: Cursor, name: str) -> None:
        """Add the sites of a `new` or `delete` expression, which calls the operator ``name``."""
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        for metric in self._wanted_of("call"):
            if self._names[metric, "callee"].parts[-1].name == name:
                metrics = self._metrics_at("call", metric, start)
                self._add(metrics, Form.EXPRESSION, start, end, (start, end))

    def _then(self, statement: Cursor) -> Cursor:
        after = self._closing_parenthesis(statement.extent.start.offset)
        return next(child for child in statement.get_children() if child.extent.start.offset >= after)

    def _closing_parenthesis(self, offset: int) -> int:
        """The offset after the parenthesis that closes the first one at or after ``offset``."""
        return closing_parenthesis(self.text, offset) + 1

    # --- calls
    def _visit_call(self, cursor: Cursor) -> None:
        functions = _reachable(cursor)
        if cursor.referenced is not None and cursor.referenced.kind == CursorKind.CONSTRUCTOR:
            return
        if not functions:
            self._warn_of_dependent(cursor)
            return
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        for child in cursor.get_children():
            self._direct.add(clang.strip(child).extent.start.offset)
        self._add(self._metrics_of_call(cursor), Form.EXPRESSION, start, end, (start, end))
        if len(functions) > 1:
            return
        name = functions[0].spelling
        if name in ALLOCATORS and functions[0].storage_class != StorageClass.STATIC:
            named = next(cursor.get_children()).extent
            self._add(self._metrics_at("alloc", "", start), Form.EXPRESSION, start, end, (start, end))
            sizes = self._metrics_at("alloc_bytes", "", start)
            self._add(sizes, Form.CALLEE, named.start.offset, named.end.offset, name=name)
        elif ASSIGNING.fullmatch(name):
            self._visit_operator_write(cursor)

    def _metrics_of_call(self, cursor: Cursor) -> list[str]:
        functions = _reachable(cursor)
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

    def _warn_of_dependent(self, cursor: Cursor) -> None:
        """Warn of a call in a template that may reach a counted function; only its instances know."""
        named = next(iter(cursor.get_children()), None)
        if named is None or named.kind not in (CursorKind.MEMBER_REF_EXPR, CursorKind.DECL_REF_EXPR):
            return
        words = re.findall(rb"[\w$~]+", text_of(self.text, named))
        for metric in self._wanted_of("call"):
            if words and self._names[metric, "callee"].parts[-1].name.encode() == words[-1]:
                self._warn(
                    [metric], cursor,
                    "what is called here depends on parameters of a template and is not counted; count entries instead",
                )  # fmt: skip

    def _visit_name(self, cursor: Cursor) -> None:
        offset, referenced = cursor.extent.start.offset, cursor.referenced
        if offset in self._direct or referenced is None:
            return
        if referenced.kind in FUNCTIONS:
            for metric in self._wanted_of("call"):
                if self._is_callee(metric, referenced):
                    what = f"the address of '{cursor.spelling}' is taken here; calls through it are not counted"
                    self._warn(self._metrics_at("call", metric, offset), cursor, what)
        elif clang.is_array(referenced):
            what = f"'{cursor.spelling}' becomes a pointer here; writes through it are not counted"
            self._warn(self._metrics_of_write(referenced, offset), cursor, what)

    # --- writes
    def _visit_address(self, cursor: Cursor) -> None:
        offset = cursor.extent.start.offset
        for part in clang.written_parts(clang.strip(next(cursor.get_children()))):
            what = f"the address of '{part.spelling}' is taken here; writes through it are not counted"
            self._warn(self._metrics_of_write(part, offset), cursor, what)

    def _warn_of_references(self, referred: Iterable[Cursor]) -> None:
        """Warn of expressions to which references are bound: writes through these name something else."""
        for expression in referred:
            for part in clang.written_parts(expression):
                what = f"a reference to '{part.spelling}' is bound here; writes through it are not counted"
                self._warn(self._metrics_of_write(part, expression.extent.start.offset), expression, what)

    def _is_library(self, function: Cursor) -> bool:
        at = function.location
        return at.file is None or not at.file.name.endswith(".ii") or self._system.contains(at.offset)

    def _visit_operator_write(self, cursor: Cursor) -> None:
        """A write by an assignment operator of a class."""
        children = sorted(cursor.get_children(), key=lambda child: int(child.extent.start.offset))
        operators = [child for child in children if clang.strip(child).spelling.startswith("operator")]
        operands = [child for child in children if child not in operators]
        if not operands:
            return
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        wanted: list[str] = []
        for part in clang.written_parts(operands[0]):
            wanted += [m for m in self._metrics_of_write(part, start) if m not in wanted]
        at = operators[0].extent.start.offset if operators else start
        self._add(wanted, Form.EXPRESSION, start, end, (at, at + 1))

    def _metrics_of_write(self, part: Cursor, offset: int) -> list[str]:
        found: list[str] = []
        is_field = part.kind == CursorKind.FIELD_DECL
        kind, key = ("write field", "field") if is_field else ("write", "variable")
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
                matches = parts in self._meant[metric, key] and not _is_local(part)
            if matches:
                found += self._metrics_at(kind, metric, offset)
        return found


def _is_local(variable: Cursor) -> bool:
    """Whether a variable lives in a call of a function."""
    parent = variable.semantic_parent
    inside = parent is not None and parent.kind in (*FUNCTIONS, CursorKind.LAMBDA_EXPR)
    return inside and variable.storage_class not in (StorageClass.STATIC, StorageClass.EXTERN)


def _reachable(call: Cursor) -> list[Cursor]:
    """The functions that a call may reach: one, the overloads by name in a template, none where that is open."""
    referenced = call.referenced
    if referenced is not None and referenced.kind in FUNCTIONS:
        return [] if referenced.kind == CursorKind.CONSTRUCTOR else [referenced]
    named = next(iter(call.get_children()), None)
    if named is None or named.kind not in (CursorKind.MEMBER_REF_EXPR, CursorKind.DECL_REF_EXPR):
        return []
    return [one for child in named.get_children() if child.kind == CursorKind.OVERLOADED_DECL_REF
            for one in _overloads(child)]  # fmt: skip


def _overloads(reference: Cursor) -> Iterator[Cursor]:
    library: Any = cindex.conf.lib
    library.clang_getOverloadedDecl.restype = Cursor
    for number in range(library.clang_getNumOverloadedDecls(reference)):
        found = library.clang_getOverloadedDecl(reference, number)
        found._tu = reference._tu
        yield found
