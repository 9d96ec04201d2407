"""Compiles inline functions of analyzers with numba to LLVM IR that translations contain.

numba compiles ``function(state, *fields)`` to a function that takes the parts of the state's array and returns
whether an exception was raised. Here it gets a wrapper that contains the array's shape, and a name derived from its
code. The IR does not depend on the process that made it, so translations that contain it can be stored.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from emulator.engine.hart_state import OFFSETS
from emulator.engine.instrument.inline_functions import FUNCTIONS, POINTERS, InlineFunction
from emulator.engine.instrument.numba_functions import array_arguments, ir_of
from emulator.errors import EmulatorError
from emulator.memory import ADDRESS_SPACE_BYTES

_FLOATS = re.compile(r"\b(double|float|half|fp128|x86_fp80)\b")
_prepared: dict[Any, str] = {}


class InlineError(EmulatorError):
    """A function cannot be compiled for translations."""


def prepare(function: Callable[..., Any], state: NDArray[Any], fields: Sequence[str]) -> str:
    """Compile ``function(state, *fields)``, add it to `FUNCTIONS`, and return its name there.

    Fields are uint64; ``registers`` is a uint64 array, (64,): x0 to x31 and the bit patterns of f0 to f31; ``memory``
    is the guest's memory, uint8. Raises `InlineError` if numba cannot compile it.
    """
    plain = getattr(function, "py_func", function)
    key = plain, str(state.dtype), state.shape, state.strides, tuple(fields)
    if key not in _prepared:
        found = _packed(_compiled(plain, state, fields), state, fields)
        FUNCTIONS[found.name] = found
        _prepared[key] = found.name
    return _prepared[key]


def _compiled(function: Callable[..., Any], state: NDArray[Any], fields: Sequence[str]) -> str:
    """The function's LLVM IR. Raises `InlineError`."""
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
            f"numba does not compile {function.__name__}({', '.join(map(str, signature))}). It may use numbers and the "
            f"arrays among its arguments, but not create arrays or other objects.\n{error}"
        ) from error


def _packed(text: str, state: NDArray[Any], fields: Sequence[str]) -> InlineFunction:
    """numba's function with its wrapper, named by a hash of both."""
    body = f"{_wrapper(state, fields)}\n{text}"
    name = f"inline_{hashlib.sha256(body.encode()).hexdigest()[:24]}"
    n_scalars = sum(field not in POINTERS for field in fields)
    return InlineFunction(name, body.replace("NAME", name), n_scalars, bool(_FLOATS.search(text)))


def _wrapper(state: NDArray[Any], fields: Sequence[str]) -> str:
    """The IR of the wrapper that translations call: it passes the shapes of the arrays, and sets ``inline_failed`` in
    the hart's state if an exception was raised."""
    arguments = array_arguments("%state", state.shape, state.strides, state.itemsize)
    scalars = [name for name in fields if name not in POINTERS]
    for name in fields:
        if name == "registers":
            arguments += array_arguments("%st", (64,), (8,), 8)
        elif name == "memory":
            arguments += array_arguments("%mem", (ADDRESS_SPACE_BYTES,), (1,), 1)
        else:
            arguments.append(f"i64 %f{scalars.index(name)}")
    parameters = ", ".join(["ptr %st", "ptr %mem", "ptr %state", *(f"i64 %f{n}" for n in range(len(scalars)))])
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
