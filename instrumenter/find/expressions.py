"""Checks the C expressions that metrics add, at the places where they were inserted.

An expression that does not compile there, that changes the program, or that is not a whole number of up to 64 bits is
reported as an error of the metric, not of the program. One that may change the program is warned of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from clang.cindex import Cursor, CursorKind, Diagnostic, TypeKind

from instrumenter.errors import SpecError
from instrumenter.find import clang
from instrumenter.find.effects import effect_of_call, is_harmless
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


_LOWER_BITS = "; counters have 64 bits, and would cut it: write '(long long)({0})' for its lower 64 bits"
_ADDRESS = (
    "; counters would add its address: write '(uintptr_t)({0})' if that is meant ('(unsigned long)({0})' without "
    "<stdint.h>), else what it points to"
)
_WIDE = (TypeKind.INT128, TypeKind.UINT128)
_POINTERS = (
    TypeKind.POINTER, TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY, TypeKind.VARIABLEARRAY, TypeKind.NULLPTR,
    TypeKind.FUNCTIONPROTO, TypeKind.FUNCTIONNOPROTO,
)  # fmt: skip
_REFUSED = (
    (_FLOATING, "is a floating-point number", _WHOLE), (_WIDE, "is wider than 64 bits", _LOWER_BITS),
    (_POINTERS, "is a pointer", _ADDRESS),
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
) -> list[str]:
    """The warnings of ``add`` expressions that may change the program.

    Raises `SpecError` for one that is not valid C at its place, is no whole number of up to 64 bits, or changes the
    program.

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
    warnings: dict[str, str] = {}

    def check_call(call: Cursor) -> None:
        """Complain about a call in an inserted expression that changes the program; warn of one that may."""
        offset = call.extent.start.offset
        start, end, metric = next((span for span in spans if span[0] <= offset <= span[1]), (0, 0, ""))
        if not metric:
            return
        undeclared = _undeclared(call, start, end, lines)
        if undeclared is not None:
            complain(offset, *undeclared)
        effect = effect_of_call(call)
        if effect is not None and effect.certain:
            complain(offset, f"changes the program ({effect.what})")
        elif effect is not None:
            place, added = lines.place(offset), metrics[metric].add
            warnings.setdefault(
                metric,
                f"{place}: metric '{metric}': the expression to add, '{added}', is evaluated at each event, and "
                f"{effect.what}; if it changes nothing, declare that with __attribute__((pure))",
            )

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
                elif cursor.kind == CursorKind.CALL_EXPR:
                    check_call(cursor)
                elif cursor.kind == CursorKind.CSTYLE_CAST_EXPR and cursor.extent.end.offset in ends:
                    value = cursor
                    while value.kind != CursorKind.PAREN_EXPR:  # libclang shows implicit conversions in C++
                        *_, value = value.get_children()
                    for kinds, problem, advice in _REFUSED:
                        if value.type.get_canonical().kind in kinds:
                            complain(cursor.extent.end.offset - 1, f"{problem} ({value.type.spelling})", advice)
    return list(warnings.values())


def _undeclared(call: Cursor, start: int, end: int, lines: LineMap) -> tuple[str, str] | None:
    """The problem of a call that is the first declaration of its function, and what to do about it."""
    function = call.referenced
    if function is None or is_harmless(call.spelling) or not start <= function.canonical.location.offset <= end:
        return None
    definition = function.get_definition()
    there = "" if definition is None else f" ('{call.spelling}' stands at {lines.place(definition.location.offset)})"
    return f"calls '{call.spelling}', which is not declared", f"{there}: declare it before, or add what is known there"


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
