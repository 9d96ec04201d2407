"""Finds where the events of metrics happen in a preprocessed source; `instrumenter.rewrite` writes the counters.

libclang analyses the source after the preprocessor, so that macros are expanded. A `Site` is one place of the program
text at which one metric counts.

Not events, because nothing happens there or a counter has no place there: operands of sizeof, typeof, _Generic's
selector and of builtins that do not evaluate them, constant expressions, initialisers of static variables. The
initialisation of a local variable is not a write.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath

from clang.cindex import Cursor, CursorKind, StorageClass, TypeKind

from instrumenter.errors import SourceError
from instrumenter.find import clang
from instrumenter.find.evaluation import evaluated, text_of
from instrumenter.find.line_markers import LineMap, Place
from instrumenter.find.sites import Form, FoundSites, Site
from instrumenter.find.tail_calls import TailCalls, tail_calls
from instrumenter.spec.counter_layout import ALLOCATORS
from instrumenter.spec.software_metrics import MetricSpec

_LOOPS = (CursorKind.FOR_STMT, CursorKind.WHILE_STMT, CursorKind.DO_STMT, CursorKind.CXX_FOR_RANGE_STMT)
_LABELLED = (CursorKind.LABEL_STMT, CursorKind.CASE_STMT, CursorKind.DEFAULT_STMT)
_WORD = re.compile(rb"[\w$\x80-\xff]+")
_LOCAL_LABELS = re.compile(rb"(?:(?:\s|^#.*$)*__label__[^;]*;)*", re.MULTILINE)
_SEMICOLON = re.compile(rb"(?:\s|^#.*$)*;", re.MULTILINE)
_BEFORE_ASSIGNMENT = re.compile(rb"(?:\s|^#.*$)*", re.MULTILINE)

Wanted = dict[tuple[str, str], list[str]]  # (event, subject) -> metrics; subject "" where the spec has none


class Finder:
    """Finds the events of one source; see `instrumenter.find.find`."""

    def __init__(
        self,
        text: bytes,
        name: str,
        metrics: Mapping[str, MetricSpec],
        target: str | None,
        flags: Sequence[str],
    ) -> None:
        self.text = text
        self.name = name
        self.lines = LineMap(text, name)
        self.root = self.parse(target, flags)
        self.metrics = metrics
        self._order = {metric: number for number, metric in enumerate(metrics)}
        self._by_function: dict[str | None, list[tuple[str, MetricSpec]]] = {}
        for metric, spec in metrics.items():
            self._by_function.setdefault(spec.function, []).append((metric, spec))
        self.events = FoundSites()
        self._main_file = self.lines.place(len(text)).file
        self._aliases: dict[str, set[str]] = {}  # struct tag -> typedef names
        self._seen: set[tuple[str, Form, int, int]] = set()
        self._warned: set[str] = set()
        # State of the function being visited:
        self._function = ""
        self._body = 0
        self._wanted: Wanted = {}
        self._exits: list[str] = []  # metrics that count exits at the return statements
        self._leaving: list[str] = []  # those that count when the function is left
        self._tail_callees: set[str] = set()  # the calls that `_leaving` counts before
        self._tail_calls: TailCalls | None = None
        self._conditions: dict[str, str] = {}  # of instances of templates, by metric
        self._must_jump = False  # whether the function has to return by a jump to another
        self._constant = False  # whether the compiler may evaluate the function
        self._direct: set[int] = set()  # offsets of names that are called or subscripted where they are
        self._already_counted: set[int] = set()  # offsets of returns whose exits have been added

    def parse(self, target: str | None, flags: Sequence[str]) -> Cursor:
        """The root of the syntax tree."""
        return clang.parse(self.text, self.name, target, self.lines, flags)

    def find(self) -> FoundSites:
        """Visit every function body; collect names for suggestions."""
        for cursor in self.root.get_children():
            if cursor.kind == CursorKind.VAR_DECL:
                self.events.variables.add(cursor.spelling)
                self._warn_of_table(cursor)
            elif cursor.kind == CursorKind.FUNCTION_DECL:
                self.events.callees.add(cursor.spelling)
                if cursor.is_definition():
                    body = next(c for c in cursor.get_children() if c.kind == CursorKind.COMPOUND_STMT)
                    self._visit_function(cursor, body)
            elif cursor.kind in (CursorKind.STRUCT_DECL, CursorKind.UNION_DECL):
                self._collect_fields(cursor)
            elif cursor.kind == CursorKind.TYPEDEF_DECL:
                record = cursor.underlying_typedef_type.get_canonical().get_declaration()
                self._aliases.setdefault(record.spelling, set()).add(cursor.spelling)
        return self.events

    def _collect_fields(self, record: Cursor) -> None:
        for child in record.get_children():
            if child.kind == CursorKind.FIELD_DECL:
                self.events.fields.add(child.spelling)
            elif child.kind in (CursorKind.STRUCT_DECL, CursorKind.UNION_DECL):
                self._collect_fields(child)

    # --- metrics by event
    def _events_wanted_in(self, function: str, body: bytes) -> Wanted:
        """The events that metrics count in a function; only those whose subject occurs in its text."""
        words = {word.decode("utf-8", "surrogateescape") for word in _WORD.findall(body)}
        wanted: Wanted = {}
        for metric, spec in [*self._by_function.get(function, ()), *self._by_function.get(None, ())]:
            subject = spec.callee or spec.variable or spec.field or ""
            if subject and subject.rpartition(".")[2] not in words:
                continue
            if spec.event in ("alloc", "alloc_bytes") and words.isdisjoint(ALLOCATORS):
                continue
            kind = spec.event + (" field" if spec.field is not None else "")
            wanted.setdefault((kind, subject), []).append(metric)
        for metrics in wanted.values():
            metrics.sort(key=self._order.__getitem__)
        return wanted

    def _metrics_at(self, kind: str, subject: str, offset: int) -> list[str]:
        """The metrics that count this kind of event at this place."""
        found = self._wanted.get((kind, subject), [])
        if not found:
            return found
        place = self.lines.place(offset)
        return [metric for metric in found if self._is_at(self.metrics[metric], place)]

    def _is_at(self, spec: MetricSpec, place: Place) -> bool:
        if spec.line is not None and spec.line != place.line:
            return False
        return self._is_in(spec, place.file) and (
            spec.file is not None or spec.line is None or place.file == self._main_file
        )

    @staticmethod
    def _is_in(spec: MetricSpec, file: str) -> bool:
        """Whether a metric counts in a file, which is named from the directory of the compilation, the present one."""
        parts = PurePath(spec.file).parts if spec.file is not None else ()
        return not parts or PurePath(os.path.abspath(file)).parts[-len(parts) :] == parts

    def _add(self, metrics: Sequence[str], form: Form, start: int, end: int,
             probed: tuple[int, int] = (0, 0), name: str = "", around: Cursor | None = None) -> None:  # fmt: skip
        for metric in metrics:
            key = (metric, form, start, end)
            if key not in self._seen:  # libclang shows some expressions more than once
                self._seen.add(key)
                place = self.lines.place(start if around is None else around.extent.start.offset)
                site = Site(
                    metric, form, start, end, place, self._function, *probed, name, self._body,
                    self._conditions.get(metric, ""), self._may_be_constant(start), self._must_jump,
                )  # fmt: skip
                self.events.sites.append(site)

    def _may_be_constant(self, start: int) -> bool:
        """Whether the compiler may evaluate the event at ``start`` itself."""
        return self._constant

    def _warn(self, metrics: Sequence[str], cursor: Cursor, what: str) -> None:
        for metric in metrics:
            if metric not in self._warned:
                self._warned.add(metric)
                place = self.lines.place(cursor.extent.start.offset)
                self.events.warnings.append(f"{place}: metric '{metric}': {what}")

    def _warn_of_table(self, variable: Cursor) -> None:
        """Warn of a function whose address is kept in a variable: calls through the variable are not counted."""
        wanted = [m for m, spec in self.metrics.items() if spec.callee and spec.function is None]
        text = text_of(self.text, variable)
        if not any(str(self.metrics[m].callee).encode() in text for m in wanted):
            return
        for cursor in variable.walk_preorder():
            if cursor.kind == CursorKind.DECL_REF_EXPR:
                self._warn(
                    [m for m in wanted if self.metrics[m].callee == cursor.spelling], cursor,
                    f"the address of '{cursor.spelling}' is kept here; calls through it are not counted",
                )  # fmt: skip

    # --- functions
    def _visit_function(self, function: Cursor, body: Cursor) -> None:
        """Add the sites in one function body."""
        self._function = function.spelling
        self.events.functions.add(function.spelling)
        start, end = body.extent.start.offset, body.extent.end.offset
        self._body = self._after_brace(start)
        self._must_jump = b"musttail" in self.text[start:end]
        self.events.files.add(self.lines.place(start).file)
        self._wanted = self._events_wanted_in(function.spelling, self.text[start:end])
        if re.search(rb"\b%s\b" % re.escape(function.spelling.encode()), self.text[start:end]):
            self.events.recursive.add(function.spelling)
        if not self._wanted:
            return
        if any(b"naked" in text_of(self.text, child) for child in function.get_children()
               if child.kind == CursorKind.UNEXPOSED_ATTR):  # fmt: skip
            self._refuse(function, f"'{function.spelling}' is a naked function: only assembly can stand in it")
        entry = self._metrics_at("entry", "", start)
        if entry:
            self._add(entry, Form.POINT, self._body, self._body)
        self._plan_exits(function.spelling, self._metrics_at("exit", "", start), body)
        if self._tail_callees or self._exits or any(event not in ("entry", "exit") for event, _ in self._wanted):
            self._walk(body)
        if self._exits:
            statements = list(body.get_children())
            if not statements or statements[-1].kind != CursorKind.RETURN_STMT:
                at = end - (2 if self.text.startswith(b"%>", end - 2) else 1)
                self._add(self._exits, Form.POINT, at, at)

    def _plan_exits(self, name: str, metrics: Sequence[str], body: Cursor) -> None:
        """Choose where metrics count the exits of the function ``name``, and add the sites at its start."""
        self._exits, self._leaving, self._tail_callees = [], [], set()
        if not metrics:
            return
        if self._must_jump:
            self._exits = list(metrics)
            return
        self._exits = [metric for metric in metrics if self.metrics[metric].add is not None]
        self._leaving = [metric for metric in metrics if metric not in self._exits]
        if self._leaving:
            self._add(self._leaving, Form.LEAVING, self._body, self._body)
            if self._tail_calls is None:
                self._tail_calls = TailCalls(self._bodies(), self.text)
            self._tail_callees = self._tail_calls.back_to(name)

    def _bodies(self) -> Iterator[tuple[str, Cursor]]:
        """The functions of the source by name, with their bodies."""
        for cursor in self.root.get_children():
            if cursor.kind == CursorKind.FUNCTION_DECL and cursor.is_definition():
                yield cursor.spelling, next(c for c in cursor.get_children() if c.kind == CursorKind.COMPOUND_STMT)

    def _refuse(self, cursor: Cursor, reason: str) -> None:
        place = self.lines.place(cursor.extent.start.offset)
        raise SourceError(f"{place}: {reason}", (place.file, place.line))

    # --- the walk: with a stack, since expressions can be nested more deeply than Python calls
    def _walk(self, body: Cursor) -> None:
        self._direct.clear()
        stack = [body]
        while stack:
            cursor = stack.pop()
            self._visit(cursor)
            stack.extend(reversed(list(self._evaluated(cursor))))

    def _evaluated(self, cursor: Cursor) -> Iterable[Cursor]:
        """The children that are evaluated when the statement or expression is."""
        return evaluated(cursor, self.text)

    def _visit(self, cursor: Cursor) -> None:
        """Add the sites of one statement or expression, without its children."""
        kind = cursor.kind
        if kind == CursorKind.VAR_DECL:
            self.events.variables.add(cursor.spelling)
        elif kind == CursorKind.CALL_EXPR:
            self._visit_call(cursor)
        elif kind == CursorKind.DECL_REF_EXPR:
            self._visit_name(cursor)
        elif kind == CursorKind.ARRAY_SUBSCRIPT_EXPR:
            for child in cursor.get_children():
                self._direct.add(clang.strip(child).extent.start.offset)
        elif clang.is_assignment(cursor) or clang.is_increment(cursor):
            self._visit_write(cursor)
        elif clang.is_address_of(cursor):
            self._visit_address(cursor)
        elif kind in _LOOPS and not _repeats_nothing(cursor, self.text):
            children = list(cursor.get_children())
            body = children[0] if kind == CursorKind.DO_STMT else children[-1]
            wanted = self._metrics_at("loop", "", cursor.extent.start.offset)
            self._add_statement(body, wanted, cursor)
            if wanted and _has_case_of_outer_switch(body):
                self._warn(
                    wanted, cursor, "a `case` leads into this loop; an iteration that begins there is not counted"
                )
        elif kind == CursorKind.IF_STMT:
            wanted = self._metrics_at("branch", "", cursor.extent.start.offset)
            if wanted:
                self._add_statement(self._then(cursor), wanted, cursor)
        elif kind in (CursorKind.CONDITIONAL_OPERATOR, CursorKind.UNEXPOSED_EXPR):
            self._visit_ternary(cursor)
        elif kind == CursorKind.RETURN_STMT:
            if cursor.extent.start.offset not in self._already_counted:
                self._add_statement(cursor, self._exits)
            if self._tail_callees:
                for call in tail_calls(cursor):
                    if call.spelling in self._tail_callees:
                        extent = call.extent
                        self._add(self._leaving, Form.TAIL_CALL, extent.start.offset, extent.end.offset)
        elif kind == CursorKind.UNEXPOSED_STMT:
            self._visit_attributed(cursor)

    def _then(self, statement: Cursor) -> Cursor:
        """What an ``if`` executes when its condition is true."""
        return list(statement.get_children())[1]

    def _visit_ternary(self, cursor: Cursor) -> None:
        wanted = self._wanted.get(("branch", ""))
        if not wanted:
            return
        children = list(cursor.get_children())
        short = cursor.kind == CursorKind.UNEXPOSED_EXPR
        if short and (len(children) != 4 or text_of(self.text, cursor)[:1] in (b"[", b".")):
            return
        condition = children[0].extent
        form = Form.SHORT_CONDITION if short else Form.CONDITION
        probed = (0, 0) if short else (children[1].extent.start.offset, children[1].extent.end.offset)
        wanted = self._metrics_at("branch", "", cursor.extent.start.offset)
        self._add(wanted, form, condition.start.offset, condition.end.offset, probed)

    def _visit_attributed(self, cursor: Cursor) -> None:
        """``__attribute__((musttail)) return f();`` must stay unchanged: count before the whole statement."""
        children = list(cursor.get_children())
        if not children or children[-1].kind != CursorKind.RETURN_STMT:
            return
        statement = children[-1]
        self._already_counted.add(statement.extent.start.offset)
        self._add_statement(cursor, self._exits)
        value = next((clang.strip(child) for child in statement.get_children()), None)
        attribute = self.text[cursor.extent.start.offset : statement.extent.start.offset]
        if value is not None and value.kind == CursorKind.CALL_EXPR and b"musttail" in attribute:
            wanted = self._metrics_of_call(value)
            self._add_statement(cursor, wanted)
            self._already_counted.add(value.extent.start.offset)

    def _add_statement(self, cursor: Cursor, metrics: Sequence[str], around: Cursor | None = None) -> None:
        """Count before a statement, which may be the unbraced body of a loop or an if.

        ``around``: that loop or if, which is the place of the event.
        """
        if not metrics:
            return
        start, end = cursor.extent.start.offset, self._statement_end(cursor)
        probed = (start, end)
        if cursor.kind == CursorKind.COMPOUND_STMT:
            at = self._after_brace(start)
            self._add(metrics, Form.POINT, at, at, probed, around=around)
        else:
            self._add(metrics, Form.STATEMENT, self._before_directives(start), end, probed, around=around)

    def _after_brace(self, brace: int) -> int:
        """The offset at which statements may begin in the block that opens at ``brace``."""
        start = brace + (2 if self.text.startswith(b"<%", brace) else 1)
        first = _LOCAL_LABELS.match(self.text, start)
        return first.end() if first else start

    def _before_directives(self, offset: int) -> int:
        """``offset``, or the end of the line before the ``#pragma`` lines that contain it."""
        line = self.text.rfind(b"\n", 0, offset) + 1
        while line and self.text[line:].lstrip(b" \t").startswith(b"#"):
            offset = line - 1
            line = self.text.rfind(b"\n", 0, offset) + 1
        return offset

    def _statement_end(self, cursor: Cursor) -> int:
        """The offset after a statement, including its semicolon (extents exclude it)."""
        end = int(cursor.extent.end.offset)
        if cursor.kind in (
            CursorKind.COMPOUND_STMT,
            CursorKind.NULL_STMT,
            CursorKind.DECL_STMT,
            CursorKind.CXX_TRY_STMT,
        ):
            return end
        if cursor.kind in (CursorKind.FOR_STMT, CursorKind.WHILE_STMT, CursorKind.IF_STMT, CursorKind.SWITCH_STMT,
                           CursorKind.CXX_FOR_RANGE_STMT, CursorKind.UNEXPOSED_STMT, *_LABELLED):  # fmt: skip
            children = list(cursor.get_children())
            if children:
                return self._statement_end(children[-1])
        match = _SEMICOLON.match(self.text, end)
        if match is None:
            self._refuse(cursor, "cannot tell where this statement ends; put it in braces")
            raise AssertionError
        return match.end()

    # --- calls
    def _metrics_of_call(self, cursor: Cursor) -> list[str]:
        """The metrics that count a call. Raises `SourceError` for a _Generic call that may reach several functions."""
        functions = clang.callees(cursor)
        found = [
            metric
            for function in functions
            for metric in self._metrics_at("call", function.spelling, cursor.extent.start.offset)
        ]
        if found and len(functions) > 1:
            names = ", ".join(sorted(function.spelling for function in functions))
            self._refuse(
                cursor,
                f"metric '{found[0]}': this _Generic call may reach {names}; "
                "it cannot be counted as a call of one of them",
            )
        return found

    def _visit_call(self, cursor: Cursor) -> None:
        """Add the sites of a call and of an allocation."""
        functions = clang.callees(cursor)
        if not functions:
            return
        named = next(cursor.get_children()).extent
        for child in next(cursor.get_children()).walk_preorder():
            if child.kind == CursorKind.DECL_REF_EXPR:
                self._direct.add(child.extent.start.offset)
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        if start not in self._already_counted:
            self._add(self._metrics_of_call(cursor), Form.EXPRESSION, start, end, (start, end))
        name = functions[0].spelling
        if name in ALLOCATORS and functions[0].storage_class != StorageClass.STATIC:
            self._add(self._metrics_at("alloc", "", start), Form.EXPRESSION, start, end, (start, end))
            sizes = self._metrics_at("alloc_bytes", "", start)
            self._add(sizes, Form.CALLEE, named.start.offset, named.end.offset, name=name)

    def _visit_name(self, cursor: Cursor) -> None:
        """Warn of a name that is neither called nor subscripted: its address is taken."""
        name, offset = cursor.spelling, cursor.extent.start.offset
        if offset in self._direct:
            return
        referenced = cursor.referenced
        if referenced is None:
            return
        if referenced.kind == CursorKind.FUNCTION_DECL:
            wanted = self._metrics_at("call", name, offset)
            if name in ALLOCATORS:
                wanted = wanted + self._metrics_at("alloc", "", offset) + self._metrics_at("alloc_bytes", "", offset)
            self._warn(wanted, cursor, f"the address of '{name}' is taken here; calls through it are not counted")
        elif clang.is_array(referenced) and referenced.type.kind != TypeKind.INVALID:
            wanted = self._metrics_at("write", name, offset)
            self._warn(wanted, cursor, f"'{name}' becomes a pointer here; writes through it are not counted")

    def _visit_address(self, cursor: Cursor) -> None:
        operand = clang.strip(next(cursor.get_children()))
        for part in clang.written_parts(operand):
            kind = "write field" if part.kind == CursorKind.FIELD_DECL else "write"
            self._warn(
                self._metrics_at(kind, part.spelling, cursor.extent.start.offset), cursor,
                f"the address of '{part.spelling}' is taken here; writes through it are not counted",
            )  # fmt: skip

    # --- writes
    def _visit_write(self, cursor: Cursor) -> None:
        if not any(event.startswith("write") for event, _ in self._wanted):
            return
        operand = next(cursor.get_children())
        for child in operand.walk_preorder():
            if child.kind == CursorKind.DECL_REF_EXPR:
                self._direct.add(child.extent.start.offset)
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        wanted: list[str] = []
        for part in clang.written_parts(operand):
            wanted += [m for m in self._metrics_of_write(part, start) if m not in wanted]
        if wanted:
            operator = self._operator(cursor, operand)
            self._add(wanted, Form.EXPRESSION, start, end, (operator, operator + 1))

    def _metrics_of_write(self, part: Cursor, offset: int) -> list[str]:
        if part.kind == CursorKind.FIELD_DECL:
            records = clang.record_names(part)
            names = {*records, *(alias for record in records for alias in self._aliases.get(record, ()))}
            qualified = [f"{name}.{part.spelling}" for name in sorted(names)]
            return [m for name in (part.spelling, *qualified) for m in self._metrics_at("write field", name, offset)]
        found = self._metrics_at("write", part.spelling, offset)
        if clang.is_global(part):
            return found
        return [metric for metric in found if self.metrics[metric].function is not None]

    def _operator(self, cursor: Cursor, operand: Cursor) -> int:
        """The offset of the operator, to which debug information assigns the store."""
        start = int(cursor.extent.start.offset)
        if clang.is_increment(cursor):
            return start if self.text[start : start + 1] in (b"+", b"-") else int(cursor.extent.end.offset) - 2
        gap = _BEFORE_ASSIGNMENT.match(self.text, operand.extent.end.offset)
        return gap.end() if gap else start


def _has_case_of_outer_switch(body: Cursor) -> bool:
    """Whether a loop is entered in its middle, as Duff's device is."""
    waiting = [body]
    while waiting:
        cursor = waiting.pop()
        if cursor.kind in (CursorKind.CASE_STMT, CursorKind.DEFAULT_STMT):
            return True
        if cursor.kind != CursorKind.SWITCH_STMT:
            waiting += [child for child in cursor.get_children() if child.kind.is_statement()]
    return False


def _repeats_nothing(loop: Cursor, text: bytes) -> bool:
    """Whether a loop is a ``do ... while (0)``, which makes a macro one statement.

    Some have ``while ((void)0, 0)``, against warnings of compilers: of a comma expression the last operand counts.
    """
    if loop.kind != CursorKind.DO_STMT:
        return False
    literal = clang.strip(list(loop.get_children())[-1])
    while literal.kind == CursorKind.BINARY_OPERATOR:
        operands = list(literal.get_children())
        if text[operands[0].extent.end.offset : operands[-1].extent.start.offset].strip() != b",":
            return False
        literal = clang.strip(operands[-1])
    constant = literal.kind in (CursorKind.INTEGER_LITERAL, CursorKind.CXX_BOOL_LITERAL_EXPR)
    return constant and text_of(text, literal) in (b"0", b"false")
