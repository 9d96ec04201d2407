"""Functions of a user's as LLVM IR text, by numba: for translations to contain."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

_DROPPED = re.compile(r", !\w+(\.\w+)* !\d+|^!.*$|^;.*$|^source_filename.*$|^target .*$", re.MULTILINE)
_DEFINED = re.compile(r'^(?:define [^@\n]*@|@)("[^"]+"|[\w.$]+)(?=[( ]| =)', re.MULTILINE)
_GROUP = re.compile(r"^attributes #(\d+) = \{(.*)\}$", re.MULTILINE)
_LINKAGE = r"(?:internal |private |common |linkonce_odr |weak_odr |available_externally )?"


def ir_of(function: Callable[..., Any], signature: Sequence[Any]) -> str:
    """The IR of ``function`` and all it needs, which is internal; it is ``@NAME.0``, for who uses it to choose NAME.

    It takes where its result goes, where an exception goes, and the parts of its arguments; it returns whether an
    exception was raised. ``signature``: numba's types of the arguments. Raises numba's errors.
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
    """The arguments that an array is to such a function: nobody owns it."""
    size = 1
    for length in shape:
        size *= length
    head = ["ptr null", "ptr null", f"i64 {size}", f"i64 {item_bytes}", f"ptr {pointer}"]
    return [*head, *(f"i64 {n}" for n in (*shape, *strides))]
