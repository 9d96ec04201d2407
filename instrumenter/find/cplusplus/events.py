"""Finds where the events of metrics happen in preprocessed C++; `instrumenter.find.events` does it for C.

Counters go into the user's functions, never into headers of the system. The text of a template is counted for all its
instances; a condition on its parameters narrows that to one. What the compiler evaluates itself is not an event, nor
are calls that are not written: of constructors, destructors and conversions. Their entries are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from clang.cindex import Cursor, CursorKind, StorageClass

from instrumenter.errors import SpecError
from instrumenter.find import clang
from instrumenter.find.cplusplus.calls import reachable
from instrumenter.find.cplusplus.declarations import Function
from instrumenter.find.cplusplus.evaluated_types import has_variable_length, is_polymorphic
from instrumenter.find.cplusplus.init_statements import end_of_init_statement
from instrumenter.find.cplusplus.lambdas import init_captures
from instrumenter.find.cplusplus.references import ASSIGNING, is_local, is_writable_reference, referred_to
from instrumenter.find.cplusplus.wanted import IN_LAMBDA, WantedFinder
from instrumenter.find.evaluation import array_bounds, evaluated, text_of
from instrumenter.find.sites import LIBRARY_ALLOCATIONS, Form, FoundSites
from instrumenter.spec.counter_layout import ALLOCATORS
from instrumenter.spec.cplusplus_names import FUNCTIONS, RECORDS, choose_names
from instrumenter.tokens import at_depth_0, closing_parenthesis

_LOCAL_DECLARATIONS = (CursorKind.VAR_DECL, CursorKind.UNEXPOSED_DECL)
_UNEVALUATED = re.compile(rb"(noexcept|requires|__builtin_(offsetof|constant_p))\b")
_CONTAINERS = b'/__memory/allocator.h"'  # in a line marker: the header by which containers and strings allocate
_ALLOCATING = {*ALLOCATORS, "new"}
_PLACEMENT = re.compile(rb"(?:::\s*)?new\s*\(")


class CplusplusFinder(WantedFinder):
    """Finds the events of one C++ source."""

    _returns_reference = False  # of the function being visited

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

    # --- one function
    def _visit_cplusplus(self, function: Function) -> None:
        start, end = function.body.extent.start.offset, function.body.extent.end.offset
        self._function, self._parts, self._constant = function.key, function.parts, function.constant
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
            self._body, self._tail_callees = -1, set()
            for handler in function.handlers:
                self._walk(handler)

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

    # --- the walk
    def _evaluated(self, cursor: Cursor) -> Iterable[Cursor]:
        kind = cursor.kind
        if kind == CursorKind.LAMBDA_EXPR:
            yield from init_captures(cursor)
            return
        if kind == CursorKind.DECL_REF_EXPR or kind in RECORDS:
            return
        if kind == CursorKind.CXX_TYPEID_EXPR:
            yield from (
                child for child in cursor.get_children() if child.kind.is_expression() and is_polymorphic(child)
            )
            return
        if kind == CursorKind.UNEXPOSED_DECL:  # a structured binding
            yield from (child for child in cursor.get_children() if child.kind.is_expression())
            return
        if kind == CursorKind.UNEXPOSED_EXPR and _UNEVALUATED.match(self.text, cursor.extent.start.offset):
            return
        if kind == CursorKind.VAR_DECL:
            head = self.text[cursor.extent.start.offset : cursor.location.offset]
            if has_variable_length(cursor.type):
                yield from array_bounds(cursor, self.text)
            value = clang.initializer(cursor)
            by_compiler = re.search(rb"\b(constexpr|constinit)\b", head)
            if value is not None and not by_compiler and cursor.storage_class != StorageClass.EXTERN:
                yield value
            return
        children: Iterable[Cursor] = evaluated(cursor, self.text)
        if kind == CursorKind.IF_STMT and re.match(rb"if\s*constexpr\b", self.text[cursor.extent.start.offset :][:40]):
            start = cursor.extent.start.offset
            inside, init = self._closing_parenthesis(start), end_of_init_statement(self.text, start) or start
            children = [child for child in children if not init <= child.extent.start.offset < inside]
        for child in (*self._inits.of(cursor), *children):
            if child.kind.is_expression() or child.kind.is_statement() or child.kind in _LOCAL_DECLARATIONS:
                yield child

    def _visit(self, cursor: Cursor) -> None:
        kind = cursor.kind
        if kind == CursorKind.VAR_DECL:
            self._visit_variable(cursor)
        if self._inits.note(cursor) and not self._inits.of(cursor):
            self._warn_of_init(cursor)
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

    def _warn_of_init(self, cursor: Cursor) -> None:
        """Warn of an init statement that libclang does not show, of a statement inside of another one's."""
        start = cursor.extent.start.offset
        words = self._words(start, end_of_init_statement(self.text, start) or start)
        for (event, metric), metrics in self._wanted.items():
            subject = next((self._names[metric, key] for key in ("callee", "variable", "field")
                            if (metric, key) in self._names), None)  # fmt: skip
            if event not in ("entry", "exit", "loop") and (subject is None or self._is_mentioned(subject, words)):
                what = "the statement before the semicolon is not analysed here: move it before this statement"
                self._warn(metrics, cursor, what)

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
        functions = reachable(cursor)
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

    def _visit_write(self, cursor: Cursor) -> None:
        super()._visit_write(cursor)
        self._warn_of_captured(next(cursor.get_children()), cursor)

    def _warn_of_captured(self, operand: Cursor, cursor: Cursor) -> None:
        """Warn of a write in a lambda for metrics that count the writes in the function around it."""
        for part in clang.written_parts(operand):
            for metric in self._metrics_of_write(part, cursor.extent.start.offset, IN_LAMBDA):
                declared_in = self._source.around(part.location.offset)
                of_lambda = declared_in is not None and declared_in.parts not in self._meant[metric, "function"]
                if not (of_lambda and (is_local(part) or part.kind == CursorKind.PARM_DECL)):
                    own = "::".join(self._parts)
                    self._warn(
                        [metric], cursor, f"'{part.spelling}' is written here in a lambda, which is a function of its "
                        f"own; a metric with `function: '{own}'` counts what it writes",
                    )  # fmt: skip

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
        self._warn_of_captured(operands[0], cursor)
        at = operators[0].extent.start.offset if operators else start
        self._add(wanted, Form.EXPRESSION, start, end, (at, at + 1))
