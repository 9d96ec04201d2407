"""User functions as LLVM IR text, compiled by numba, for translations to contain."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

_DROPPED = re.compile(r", !\w+(\.\w+)* !\d+|^!.*$|^;.*$|^source_filename.*$|^target .*$", re.MULTILINE)
_DEFINED = re.compile(r'^(?:define [^@\n]*@|@)("[^"]+"|[\w.$]+)(?=[( ]| =)', re.MULTILINE)
_GROUP = re.compile(r"^attributes #(\d+) = \{(.*)\}$", re.MULTILINE)
_LINKAGE = r"(?:internal |private |common |linkonce_odr |weak_odr |available_externally )?"


def ir_of(function: Callable[..., Any], signature: Sequence[Any]) -> str:
    """The IR of ``function`` and its helpers, all internal. The function is ``@NAME.0``; the caller replaces NAME.

    Its arguments are a pointer to the result, a pointer to the exception, and the parts of the Python arguments; it
    returns whether it raised. ``signature``: numba's types of the arguments. Raises numba's errors.
    """
    import numba

    options: dict[str, Any] = {
        "error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True
    }  # fmt: skip
    dispatcher: Any = numba.njit(**options)(function)
    dispatcher.compile(tuple(signature))
    (result,) = dispatcher.overloads.values()
    text = _DROPPED.sub("", result.library.get_llvm_str())
    groups = {number: body.strip() for number, body in _GROUP.findall(text)}
    text = re.sub(r" #(\d+)", lambda found: " " + groups[found[1]], _GROUP.sub("", text))
    symbol = result.fndesc.llvm_func_name
    defined = sorted(set(_DEFINED.findall(text)), key=lambda name: (name.strip('"') != symbol, name))
    for place, name in enumerate(defined):
        text = re.sub(rf"@{re.escape(name)}(?![\w.$])", f"@NAME.{place}", text)
    text = re.sub(rf"^define {_LINKAGE}", "define internal ", text, flags=re.MULTILINE)
    text = re.sub(rf"^(@NAME\.\d+ =) {_LINKAGE}", r"\1 internal ", text, flags=re.MULTILINE)
    main = re.compile(r"^(define internal [^\n]*@NAME\.0\([^\n]*\)[^\n{]*)\{", re.MULTILINE)
    return re.sub(r"\n{2,}", "\n", main.sub(r"\1 alwaysinline {", text))


def array_arguments(pointer: str, shape: Sequence[int], strides: Sequence[int], item_bytes: int) -> list[str]:
    """The arguments that represent an array, which has no owner, in a call of such a function."""
    size = 1
    for length in shape:
        size *= length
    head = ["ptr null", "ptr null", f"i64 {size}", f"i64 {item_bytes}", f"ptr {pointer}"]
    return [*head, *(f"i64 {n}" for n in (*shape, *strides))]
