"""Tells what calling a function changes, as far as its text shows it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from clang.cindex import Cursor, CursorKind, StorageClass

from instrumenter.find import clang

_ATTRIBUTES = (CursorKind.PURE_ATTR, CursorKind.CONST_ATTR)
_VARIABLES = (CursorKind.VAR_DECL, CursorKind.PARM_DECL, CursorKind.FIELD_DECL)
_ASSEMBLY = (CursorKind.ASM_STMT, CursorKind.MS_ASM_STMT)
_HARMLESS = re.compile(
    r"l{0,2}abs|imaxabs|str(len|nlen|n?cmp|n?casecmp|r?chr|chrnul|str|c?spn|pbrk)|mem(cmp|r?chr|mem)|wcs(len|n?cmp)"
    r"|is(alnum|alpha|blank|cntrl|digit|graph|lower|print|punct|space|upper|xdigit)|to(lower|upper)|ato(i|l|ll|f)"
    r"|(f(abs|min|max|dim|mod)|floor|ceil|trunc|round|l{1,2}round|l{1,2}rint|sqrt|cbrt|hypot|exp2?|log(2|10)?|pow"
    r"|isnan|isinf|isfinite|signbit)[fl]?"
    r"|__builtin_((popcount|clz|ctz|ffs|clrsb|parity)(g|ll?)?|bswap\d+|bit(reverse\d+)|l{0,2}abs|fabsf?|expect"
    r"|constant_p|object_size|strlen|memcmp|strcmp|s(qrt|ignbit)|is(nan|inf)(_sign)?)|__atomic_load_n"
)


@dataclass(frozen=True)
class Effect:
    """What a call changes. ``what``: in words; ``certain``: whether the text shows that it changes the program."""

    what: str
    certain: bool


def is_harmless(function: str) -> bool:
    """Whether a function of the C library or of the compiler is known to change nothing but ``errno``."""
    return _HARMLESS.fullmatch(function) is not None


def effect_of_call(call: Cursor) -> Effect | None:
    """What a call changes, None if nothing."""
    return _of_call(call, set())


def _of_call(call: Cursor, seen: set[str]) -> Effect | None:
    function = call.referenced
    if function is None or function.kind in _VARIABLES:
        return Effect("it calls a function through a pointer, which may change the program", certain=False)
    if function.kind not in (CursorKind.FUNCTION_DECL, CursorKind.CXX_METHOD, CursorKind.CONVERSION_FUNCTION):
        return None  # a constructor, or a template, of which only instances know
    name = function.spelling
    declared = [function, function.canonical]
    pure = any(child.kind in _ATTRIBUTES for one in declared for child in one.get_children())
    usr = function.get_usr() or name
    if pure or function.is_const_method() or is_harmless(name) or usr in seen:
        return None
    seen.add(usr)
    definition = function.get_definition()
    if definition is None:
        return Effect(f"it calls '{name}', which may change the program", certain=False)
    return _of_body(definition, seen)


def _of_body(function: Cursor, seen: set[str]) -> Effect | None:
    """The effect of executing a function: a certain one where there is one."""
    found: Effect | None = None
    for cursor in function.walk_preorder():
        effect = None
        if clang.is_assignment(cursor) or clang.is_increment(cursor):
            effect = _of_write(function.spelling, cursor)
        elif cursor.kind == CursorKind.CALL_EXPR:
            effect = _of_call(cursor, seen)
        elif cursor.kind in _ASSEMBLY:
            effect = Effect(f"it calls '{function.spelling}', which has assembly", certain=False)
        if effect is not None and effect.certain:
            return effect
        found = found or effect
    return found


def _of_write(name: str, write: Cursor) -> Effect | None:
    *_, last = (None, *clang.written_parts(next(write.get_children())))
    if last is None or last.kind not in _VARIABLES[:2]:
        return Effect(f"it calls '{name}', which writes through a pointer or to an object", certain=False)
    kept = clang.is_global(last) or last.storage_class in (StorageClass.STATIC, StorageClass.EXTERN)
    kept = kept or (last.semantic_parent is not None and last.semantic_parent.kind == CursorKind.NAMESPACE)
    return Effect(f"'{name}' writes '{last.spelling}'", certain=True) if kept else None
