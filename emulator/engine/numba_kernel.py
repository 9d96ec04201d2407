"""Kernels written in Python as LLVM IR text: compiled by numba once, linked like any translation ever after.

So a process that finds the object in the cache needs no numba, whose import takes longer than short programs run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from numpy.typing import NDArray

_DROPPED = re.compile(r", !\w+(\.\w+)* !\d+|^!.*$|^;.*$|^source_filename.*$|^target .*$", re.MULTILINE)
_DEFINED = re.compile(r'^(?:define [^@\n]*@|@)("[^"]+"|[\w.$]+)(?=[( ]| =)', re.MULTILINE)
_GROUP = re.compile(r"^attributes #(\d+) = \{(.*)\}$", re.MULTILINE)
_LINKAGE = r"(?:internal |private |common |linkonce_odr |weak_odr |available_externally )?"


def ir_of(
    function: Callable[..., Any], signature: Sequence[Any], helpers: Sequence[Callable[..., Any]] = ()
) -> str:
    """The IR of ``function`` and all it needs, which is internal; it is ``@NAME.0``, for who uses it to choose NAME.

    It takes where its result goes, where an exception goes, and the parts of its arguments; it returns whether an
    exception was raised. ``signature``: numba's types of the arguments; ``helpers``: functions of the same module that
    it calls. Raises numba's errors.
    """
    import numba

    options: dict[str, Any] = {
        "error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True
    }  # fmt: skip
    if helpers:
        space = dict(function.__globals__)
        for helper in helpers:
            space[helper.__name__] = numba.njit(**options)(
                FunctionType(helper.__code__, space, helper.__name__)
            )
        function = FunctionType(function.__code__, space, function.__name__)
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


def kernel_text(
    name: str,
    function: Callable[..., Any],
    helpers: Sequence[Callable[..., Any]],
    arrays: Sequence[NDArray[Any]],
) -> str:
    """IR of ``@name(ptr table)``, which calls ``function(*arrays)`` with arrays like these at the addresses in the
    table and returns its result, an int64."""
    import numba

    body = ir_of(function, [numba.typeof(array) for array in arrays], helpers).replace("NAME", name)
    lines = [f"define i64 @{name}(ptr %table) nounwind {{", "%result = alloca i64", "%exception = alloca ptr"]
    arguments = []
    for n, array in enumerate(arrays):
        lines.append(f"%p{n} = getelementptr ptr, ptr %table, i64 {n}")
        lines.append(f"%a{n} = load ptr, ptr %p{n}")
        arguments += array_arguments(f"%a{n}", array.shape, array.strides, array.itemsize)
    call = f"call i32 @{name}.0(ptr %result, ptr %exception, {', '.join(arguments)})"
    lines += [f"%raised = {call}", "%value = load i64, ptr %result", "ret i64 %value", "}"]
    return "\n".join([*lines, body])
