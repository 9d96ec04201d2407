"""Collects what a C++ source declares: functions with their bodies, variables, and what has an initialiser."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from clang.cindex import Cursor, CursorKind

from instrumenter.find.cplusplus.init_statements import InitStatements
from instrumenter.find.cplusplus.lambdas import init_captures
from instrumenter.find.cplusplus.parse import SystemText
from instrumenter.find.line_markers import LineMap
from instrumenter.find.sites import FoundSites
from instrumenter.spec.cplusplus_names import FUNCTIONS, RECORDS, qualified_parts

_SCOPES = (CursorKind.NAMESPACE, CursorKind.LINKAGE_SPEC, CursorKind.UNEXPOSED_DECL, CursorKind.FRIEND_DECL, *RECORDS)
_BODIES = (CursorKind.COMPOUND_STMT, CursorKind.CXX_TRY_STMT, CursorKind.UNEXPOSED_STMT)  # the last: of a coroutine


@dataclass(frozen=True)
class Function:
    """A function with a body: its name's parts, and whether the compiler may or must evaluate it.

    ``handlers``: those of ``try`` where that is the whole body.
    """

    cursor: Cursor
    body: Cursor
    handlers: tuple[Cursor, ...]
    parts: tuple[str, ...]
    constant: bool
    immediate: bool
    key: str

    @property
    def end(self) -> int:
        """The offset at which it ends."""
        return int((self.handlers[-1] if self.handlers else self.body).extent.end.offset)


class Declarations:
    """The declarations of a source outside of headers of the system; their names go to ``events``.

    ``functions``: those with a body; ``declared``: all functions by qualified name; ``variables``: qualified names;
    ``outside``: global variables, members and parameters, which may have initialisers; ``inits``: statements that
    libclang does not show.
    """

    def __init__(
        self, root: Cursor, text: bytes, lines: LineMap, system: SystemText, events: FoundSites, inits: InitStatements
    ) -> None:
        self.functions: list[Function] = []
        self.declared: dict[tuple[str, ...], Cursor] = {}
        self.variables: set[tuple[str, ...]] = set()
        self.outside: list[Cursor] = []
        self.inits = inits
        self._text, self._lines, self._system, self._events = text, lines, system, events
        self._with_init: list[tuple[Cursor, tuple[str, ...]]] = []  # statements, and the functions that they are in
        self._collect(root)
        while self._with_init:
            statement, parts = self._with_init.pop()
            for init in inits.of(statement):
                self._collect_inner([init], parts)

    def _collect(self, scope: Cursor) -> None:
        for cursor in scope.get_children():
            start = cursor.location  # the extent of a function with parameters of type `auto` is empty
            if start.file is None or not start.file.name.endswith(".ii") or self._system.contains(start.offset):
                continue
            kind = cursor.kind
            if kind in FUNCTIONS:
                self._collect_function(cursor)
            elif kind in _SCOPES:
                self._collect(cursor)
            elif kind == CursorKind.VAR_DECL:
                self.outside.append(cursor)
                self.variables.add(qualified_parts(cursor))
                self._events.variables.add("::".join(qualified_parts(cursor)))
                self._collect_inner(cursor.get_children(), qualified_parts(cursor))
            elif kind == CursorKind.FIELD_DECL:
                self.outside.append(cursor)
                self._events.fields.add("::".join(qualified_parts(cursor)))
                self._collect_inner(cursor.get_children(), qualified_parts(cursor))

    def _collect_function(self, cursor: Cursor) -> None:
        parts = qualified_parts(cursor)
        self.declared[parts] = cursor
        self.outside += [child for child in cursor.get_children() if child.kind == CursorKind.PARM_DECL]
        self._events.callees.add("::".join(parts))
        body = next((c for c in cursor.get_children() if c.kind in _BODIES), None)
        if body is not None and cursor.is_definition() and self._is_written(body):
            self._add_function(cursor, body, parts, lambda_=False)
            self._collect_inner(cursor.get_children(), parts)

    def _is_written(self, body: Cursor) -> bool:
        """Whether a body is in the text; that of a function ``= default`` is the compiler's, and has no braces."""
        return body.kind == CursorKind.CXX_TRY_STMT or self._text.startswith((b"{", b"<%"), body.extent.start.offset)

    def _add_function(self, cursor: Cursor, body: Cursor, parts: tuple[str, ...], *, lambda_: bool) -> None:
        whole, handlers = body, ()
        if body.kind == CursorKind.CXX_TRY_STMT:
            body, *handlers = body.get_children()
        head = self._text[self.start_of(cursor) : whole.extent.start.offset]
        place = self._lines.place(cursor.location.offset)
        name = "operator()" if lambda_ else parts[-1]
        function = Function(
            cursor, body, tuple(handlers), parts, lambda_ or re.search(rb"\bconstexpr\b", head) is not None,
            re.search(rb"\bconsteval\b", head) is not None, f"{place}:{name}",
        )  # fmt: skip
        self.functions.append(function)
        self._events.functions.add("::".join(parts))
        self._events.files.add(self._lines.place(body.extent.start.offset).file)

    def around(self, offset: int) -> Function | None:
        """The innermost function that the text at ``offset`` belongs to."""
        found = [one for one in self.functions if self.start_of(one.cursor) <= offset < one.end]
        return max(found, key=lambda one: self.start_of(one.cursor), default=None)

    def start_of(self, function: Cursor) -> int:
        """Where the declaration of a function begins."""
        if function.extent.start.file is not None:
            return int(function.extent.start.offset)
        name = int(function.location.offset)
        return 1 + max(self._text.rfind(sign, 0, name) for sign in (b";", b"{", b"}", b'"'))

    def _collect_inner(self, inner: Iterable[Cursor], parts: tuple[str, ...]) -> None:
        """Collect the lambdas and local classes in parts of the declaration that is named ``parts``."""
        stack = list(inner)
        while stack:
            cursor = stack.pop()
            if self.inits.note(cursor):
                self._with_init.append((cursor, parts))
            if cursor.kind == CursorKind.LAMBDA_EXPR:
                stack.extend(init_captures(cursor))
                children = list(cursor.get_children())
                parameters = [child for child in children if child.kind == CursorKind.PARM_DECL]
                body = next((child for child in children if child.kind in _BODIES), None)
                self.outside += parameters
                if body is not None:
                    own = (*parts, f"lambda@{self._lines.place(cursor.extent.start.offset).line}")
                    self._add_function(cursor, body, own, lambda_=True)
                    self._collect_inner([*parameters, body], own)
            elif cursor.kind in RECORDS:
                self._collect(cursor)
            else:
                stack.extend(cursor.get_children())
