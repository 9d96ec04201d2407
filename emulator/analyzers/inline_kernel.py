"""Inline functions of analyzers: from Python by way of numba to LLVM IR that translations can contain.

numba compiles ``function(state, *fields)`` to a function that takes the parts of the state's array, and returns whether
an exception was raised. Here it gets a shell that has the array's shape in it, a name that follows from its code, and
no traces of the process it was made in: so translations that contain it can be kept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from emulator.engine.inline import FUNCTIONS, POINTERS, InlineFunction
from emulator.engine.numba_kernel import array_arguments, ir_of
from emulator.engine.state import OFFSETS
from emulator.errors import EmulatorError
from emulator.memory import ADDRESS_SPACE_BYTES

_FLOATS = re.compile(r"\b(double|float|half|fp128|x86_fp80)\b")
_prepared: dict[Any, str] = {}


class InlineError(EmulatorError):
    """A function cannot be called from translations."""


def prepare(function: Callable[..., Any], state: NDArray[Any], fields: Sequence[str]) -> str:
    """The name, in `FUNCTIONS`, of ``function(state, *fields)``.

    Fields are uint64; ``registers`` is an array of them, (64,): x0 to x31 and the patterns of f0 to f31; ``memory`` is
    the guest's, uint8. Raises `InlineError` when numba cannot compile it.
    """
    plain = getattr(function, "py_func", function)
    key = plain, str(state.dtype), state.shape, state.strides, tuple(fields)
    if key not in _prepared:
        found = _packed(_compiled(plain, state, fields), state, fields)
        FUNCTIONS[found.name] = found
        _prepared[key] = found.name
    return _prepared[key]


def _compiled(function: Callable[..., Any], state: NDArray[Any], fields: Sequence[str]) -> str:
    """The function's IR."""
    import numba
    from numba import types

    arrays = {"registers": types.Array(types.uint64, 1, "C"), "memory": types.Array(types.uint8, 1, "C")}
    signature = (numba.typeof(state), *(arrays.get(name, types.uint64) for name in fields))
    try:
        return ir_of(function, signature)
    except numba.core.errors.NumbaError as error:
        code = function.__code__
        raise InlineError(
            f"{code.co_filename}:{code.co_firstlineno}: {function.__name__} cannot be called from translations: "
            f"numba does not compile {function.__name__}({', '.join(map(str, signature))}). It may use numbers and "
            f"arrays that it is given, and make no arrays or other objects.\n{error}"
        ) from error


def _packed(text: str, state: NDArray[Any], fields: Sequence[str]) -> InlineFunction:
    """numba's function in a shell, with a name that follows from both."""
    body = f"{_shell(state, fields)}\n{text}"
    name = f"inline_{hashlib.sha256(body.encode()).hexdigest()[:24]}"
    n_scalars = sum(field not in POINTERS for field in fields)
    return InlineFunction(name, body.replace("NAME", name), n_scalars, bool(_FLOATS.search(text)))


def _shell(state: NDArray[Any], fields: Sequence[str]) -> str:
    """What is called: it knows the shape of the arrays, and notes when an exception was raised."""

    arguments = array_arguments("%state", state.shape, state.strides, state.itemsize)
    scalars = [name for name in fields if name not in POINTERS]
    for name in fields:
        if name == "registers":
            arguments += array_arguments("%st", (64,), (8,), 8)
        elif name == "memory":
            arguments += array_arguments("%mem", (ADDRESS_SPACE_BYTES,), (1,), 1)
        else:
            arguments.append(f"i64 %f{scalars.index(name)}")
    parameters = ", ".join(
        ["ptr %st", "ptr %mem", "ptr %state", *(f"i64 %f{n}" for n in range(len(scalars)))]
    )
    keeps_zero = ["store i64 0, ptr %st"] if "registers" in fields else []  # x0
    return "\n".join([
        f"define internal void @NAME({parameters}) alwaysinline nounwind {{",
        "%result = alloca ptr",
        "%exception = alloca ptr",
        f"%raised = call i32 @NAME.0(ptr %result, ptr %exception, {', '.join(arguments)})",
        "%failed = icmp ne i32 %raised, 0",
        "br i1 %failed, label %note, label %done",
        "note:",
        f"%place = getelementptr i8, ptr %st, i64 {OFFSETS['inline_failed']}",
        "store i64 1, ptr %place",
        "br label %done",
        "done:",
        *keeps_zero,
        "ret void",
        "}",
    ])  # fmt: skip
