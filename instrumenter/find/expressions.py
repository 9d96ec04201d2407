"""Checks the C expressions that metrics add, at the places where they were inserted.

An expression that does not compile there, or that changes the program, is reported as an error of the metric, not of
the program.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from clang.cindex import Cursor, CursorKind, Diagnostic

from instrumenter.errors import SpecError
from instrumenter.find import clang
from instrumenter.find.line_markers import LineMap
from instrumenter.spec.counter_layout import LOCAL, SYMBOL
from instrumenter.spec.software_metrics import MetricSpec

_UNDECLARED = re.compile(r"use of undeclared identifier '(\w+)'")
_ADDITION = re.compile(
    rb"(?:%s\[(\d+)\](?:\.value)?|%s(\d+)) \+= \(unsigned long long\)\(" % (SYMBOL.encode(), LOCAL.encode())
)


def check_expressions(
    rewritten: bytes,
    name: str,
    metrics: Mapping[str, MetricSpec],
    functions: set[str],
    target: str | None,
    flags: Sequence[str],
    *,
    cplusplus: bool = False,
) -> None:
    """Raise `SpecError` for an ``add`` expression that is not valid C at its place, or has side effects.

    ``metrics``: in the order of their counters; ``functions``: those that contain such expressions.
    """
    names = list(metrics)
    lines = LineMap(rewritten, name)
    spans = [
        (match.end(), _closing(rewritten, match.end()), names[int(match[1] or match[2])])
        for match in _ADDITION.finditer(rewritten)
    ]

    def complain(offset: int, problem: str) -> None:
        """Raise `SpecError` if an inserted expression is at ``offset``."""
        for start, end, metric in spans:
            if start <= offset <= end:
                raise SpecError(
                    f"metric '{metric}': the expression to add, '{metrics[metric].add}', {problem} "
                    f"where the event happens, {lines.place(offset)}"
                    f"{_instead(root, problem, metrics[metric])}",
                    metric,
                )

    if cplusplus:
        from instrumenter.find.cplusplus import parse as cplusplus_parse

        diagnostics, root = cplusplus_parse.parse_leniently(rewritten, target, flags)
    else:
        diagnostics, root = clang.parse_leniently(rewritten, target, flags)
    for diagnostic in diagnostics:
        if diagnostic.severity >= Diagnostic.Error:
            complain(diagnostic.location.offset, f"is not valid ({diagnostic.spelling})")
    for function in root.get_children():
        around = min((end for start, end, _ in spans if start >= function.extent.start.offset), default=-1)
        if cplusplus and not 0 <= around <= function.extent.end.offset:
            continue
        if cplusplus or (function.kind == CursorKind.FUNCTION_DECL and function.spelling in functions):
            for cursor in function.walk_preorder():
                if _changes(cursor):
                    complain(cursor.extent.start.offset, "changes the program (it assigns)")


def _instead(root: Cursor, problem: str, spec: MetricSpec) -> str:
    """Advice for an expression that names a parameter of the called function, which the caller does not have."""
    missing = _UNDECLARED.search(problem)
    if missing is None or spec.event != "call" or spec.callee is None:
        return ""
    for function in root.get_children():
        if function.kind != CursorKind.FUNCTION_DECL or function.spelling != spec.callee:
            continue
        if missing[1] in [parameter.spelling for parameter in function.get_arguments()]:
            return (
                f". An expression of event `call` is evaluated in the caller, and '{missing[1]}' is a parameter of "
                f"'{spec.callee}': count entries instead, {{event: entry, function: {spec.callee}, "
                f'add: "{spec.add}"}}'
            )
    return ""


def _changes(cursor: Cursor) -> bool:
    return clang.is_assignment(cursor) or clang.is_increment(cursor)


def _closing(text: bytes, start: int) -> int:
    """The offset of the parenthesis that closes the one before ``start``."""
    depth, position = 1, start
    for match in re.compile(rb'[()]|"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'').finditer(text, start):
        depth += {b"(": 1, b")": -1}.get(match[0], 0)
        position = match.start()
        if depth == 0:
            break
    return position
