"""Checks the C expressions that metrics add, at the places where they were inserted.

An expression that does not compile there, that changes the program, or that is not a whole number is reported as an
error of the metric, not of the program.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from clang.cindex import Cursor, CursorKind, Diagnostic, TypeKind

from instrumenter.errors import SpecError
from instrumenter.find import clang
from instrumenter.find.line_markers import LineMap
from instrumenter.spec.counter_layout import CONVERSION, LOCAL, SYMBOL
from instrumenter.spec.software_metrics import MetricSpec
from instrumenter.tokens import closing_parenthesis

_UNDECLARED = re.compile(r"use of undeclared identifier '(\w+)'")
_ADDITION = re.compile(
    rb"(?:%s\[(\d+)\](?:\.value)?|%s(\d+))(?: \+?=|,) %s"
    % (SYMBOL.encode(), LOCAL.encode(), re.escape(CONVERSION).encode())
)
_WHOLE = (
    "; counters add whole numbers, and would cut off its fraction at each event: write '(long long)(1000 * ({0}))' to "
    "add up thousandths, or '(long long)({0})' to cut it off"
)
_FLOATING = (
    TypeKind.HALF, TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.LONGDOUBLE, TypeKind.FLOAT128, TypeKind.IBM128,
    TypeKind.COMPLEX,
)  # fmt: skip


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
    """Raise `SpecError` for an ``add`` expression that is not valid C at its place, is no whole number, or has side
    effects.

    ``metrics``: in the order of their counters; ``functions``: those that contain such expressions.
    """
    names = list(metrics)
    lines = LineMap(rewritten, name)
    spans = [
        (match.end(), closing_parenthesis(rewritten, match.end() - 1), names[int(match[1] or match[2])])
        for match in _ADDITION.finditer(rewritten)
    ]

    def complain(offset: int, problem: str, advice: str = "") -> None:
        """Raise `SpecError` if an inserted expression is at ``offset``."""
        for start, end, metric in spans:
            if start <= offset <= end:
                raise SpecError(
                    f"metric '{metric}': the expression to add, '{metrics[metric].add}', {problem} "
                    f"where the event happens, {lines.place(offset)}"
                    f"{_instead(root, problem, metrics[metric])}{advice.format(metrics[metric].add)}",
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
    ends = {end + 1 for _, end, _ in spans}
    for function in root.get_children():
        around = min((end for start, end, _ in spans if start >= function.extent.start.offset), default=-1)
        known = function.extent.start.file is not None  # not of a function whose parameters make it a template
        if cplusplus and known and not 0 <= around <= function.extent.end.offset:
            continue
        if cplusplus or (function.kind == CursorKind.FUNCTION_DECL and function.spelling in functions):
            for cursor in function.walk_preorder():
                if _changes(cursor):
                    complain(cursor.extent.start.offset, "changes the program (it assigns)")
                elif cursor.kind == CursorKind.CSTYLE_CAST_EXPR and cursor.extent.end.offset in ends:
                    value = cursor
                    while value.kind != CursorKind.PAREN_EXPR:  # libclang shows implicit conversions in C++
                        *_, value = value.get_children()
                    if value.type.get_canonical().kind in _FLOATING:
                        complain(
                            cursor.extent.end.offset - 1, f"is a floating-point number ({value.type.spelling})", _WHOLE
                        )


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
