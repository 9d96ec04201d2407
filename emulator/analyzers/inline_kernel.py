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

import numpy as np
from numpy.typing import NDArray

from emulator.engine.inline import FUNCTIONS, POINTERS, InlineFunction
from emulator.engine.state import OFFSETS
from emulator.errors import EmulatorError
from emulator.memory import ADDRESS_SPACE_BYTES

_DROPPED = re.compile(r", !\w+(\.\w+)* !\d+|^!.*$|^;.*$|^source_filename.*$|^target .*$", re.MULTILINE)
_DEFINED = re.compile(r'^(?:define [^@\n]*@|@)("[^"]+"|[\w.$]+)(?=[( ]| =)', re.MULTILINE)
_GROUP = re.compile(r"^attributes #(\d+) = \{(.*)\}$", re.MULTILINE)
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
        text, symbol = _compiled(plain, state, fields)
        found = _packed(text, symbol, state, fields)
        FUNCTIONS[found.name] = found
        _prepared[key] = found.name
    return _prepared[key]


def _compiled(function: Callable[..., Any], state: NDArray[Any], fields: Sequence[str]) -> tuple[str, str]:
    """The function's IR, and its symbol there."""
    import numba
    from numba import types

    arrays = {"registers": types.Array(types.uint64, 1, "C"), "memory": types.Array(types.uint8, 1, "C")}
    signature = (numba.typeof(state), *(arrays.get(name, types.uint64) for name in fields))
    options: dict[str, Any] = {
        "error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True
    }  # fmt: skip
    dispatcher: Any = numba.njit(**options)(function)
    try:
        dispatcher.compile(signature)
    except numba.core.errors.NumbaError as error:
        code = function.__code__
        raise InlineError(
            f"{code.co_filename}:{code.co_firstlineno}: {function.__name__} cannot be called from translations: "
            f"numba does not compile {function.__name__}({', '.join(map(str, signature))}). It may use numbers and "
            f"arrays that it is given, and make no arrays or other objects.\n{error}"
        ) from error
    (result,) = dispatcher.overloads.values()
    return result.library.get_llvm_str(), result.fndesc.llvm_func_name


def _packed(text: str, symbol: str, state: NDArray[Any], fields: Sequence[str]) -> InlineFunction:
    """numba's function in a shell, with names of its own."""
    text = _DROPPED.sub("", text)
    groups = {number: body.strip() for number, body in _GROUP.findall(text)}
    text = _GROUP.sub("", text)
    text = re.sub(r" #(\d+)", lambda found: " " + groups[found[1]], text)
    defined = dict.fromkeys(_DEFINED.findall(text))
    for place, name in enumerate(sorted(defined, key=lambda name: (name.strip('"') != symbol, name))):
        text = re.sub(rf"@{re.escape(name)}(?![\w.$])", f"@NAME.{place}", text)
    text = re.sub(
        r"^define (?:[a-z_]+ )*?(?=(?:noundef )?i32 @NAME\.0\b)", "define internal ", text, flags=re.MULTILINE
    )
    text = re.sub(
        r"^define (?!internal)(?:linkonce_odr |weak_odr |private )?",
        "define internal ",
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(
        r"^(@NAME\.\d+ =) (?:common |linkonce_odr |private |weak_odr )?",
        r"\1 internal ",
        text,
        flags=re.MULTILINE,
    )
    text = text.replace("= internal internal ", "= internal ")
    text = re.sub(
        r"^(define internal [^\n]*@NAME\.0\([^\n]*\)[^\n{]*)\{",
        r"\1 alwaysinline {",
        text,
        flags=re.MULTILINE,
    )
    floats = bool(_FLOATS.search(text))
    shell = _shell(state, fields)
    body = re.sub(r"\n{2,}", "\n", f"{shell}\n{text}").strip() + "\n"
    name = f"inline_{hashlib.sha256(body.encode()).hexdigest()[:24]}"
    n_scalars = sum(field not in POINTERS for field in fields)
    return InlineFunction(name, body.replace("NAME", name), n_scalars, floats)


def _shell(state: NDArray[Any], fields: Sequence[str]) -> str:
    """What is called: it knows the shape of the arrays, and notes when an exception was raised."""

    def array(pointer: str, shape: Sequence[int], strides: Sequence[int], item_bytes: int) -> list[str]:
        head = ["ptr null", "ptr null", f"i64 {int(np.prod(shape))}", f"i64 {item_bytes}", f"ptr {pointer}"]
        return [*head, *(f"i64 {n}" for n in (*shape, *strides))]

    arguments = array("%state", state.shape, state.strides, state.itemsize)
    scalars = [name for name in fields if name not in POINTERS]
    for name in fields:
        if name == "registers":
            arguments += array("%st", (64,), (8,), 8)
        elif name == "memory":
            arguments += array("%mem", (ADDRESS_SPACE_BYTES,), (1,), 1)
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
