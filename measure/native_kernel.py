"""Kernels whose machine code is kept on the disk: a process that finds it loads neither numba nor LLVM.

numba takes a third of a second and a hundred megabytes by itself, which is more than many a command's whole work. So a
kernel here is compiled by numba once, and what comes out is kept like the emulator's translations are
(`emulator.engine.compiler`), named by the functions' code and the kinds of their arguments.

A kernel may not allocate: arrays for results and scratch are its arguments. It is called with C-contiguous arrays,
numbers, and named tuples of these, and returns an int or nothing.
"""

from __future__ import annotations

import functools
import hashlib
import platform
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from emulator.engine.compiler import Compiler

_RELAXED = frozenset({"contract", "nnan", "nsz"})
_FORMAT = 1  # of the entry that `_entry` writes


class Native:
    """A function of Python as machine code; other `Native` functions that it calls are compiled with it."""

    def __init__(self, function: Callable[..., Any], relaxed: bool = False) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.relaxed = relaxed
        self._entries: dict[tuple[Any, ...], Callable[[int], None]] = {}

    def __call__(self, *arguments: Any) -> Any:
        slots: list[int] = [0]
        kinds: list[Any] = []
        _lay(arguments, slots, kinds)
        key = tuple(kinds)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = self._load(kinds, arguments)
        table = np.array(slots, np.int64)
        entry(table.ctypes.data)
        return int(table[0])

    def _load(self, kinds: list[Any], arguments: tuple[Any, ...]) -> Callable[[int], None]:
        import ctypes

        key = f"measure kernel {_FORMAT} {platform.python_version()} {self.digest()} {kinds}"
        address = _compiler().compile(lambda: self._text(arguments), ["kernel"], key)["kernel"]
        prototype: Callable[[int], Callable[[int], None]] = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        return prototype(address)

    def digest(self) -> str:
        """Hash of the function's code, of the numbers that it uses, and of all functions that it calls.

        The compiler adds the version of LLVM's binding, which a release of numba has one of.
        """
        code = self.function.__code__
        parts = [
            code.co_code.hex(),
            repr(code.co_consts),
            repr(code.co_names),
            repr(self.relaxed),
        ]
        for name in code.co_names:
            value = self.function.__globals__.get(name)
            if isinstance(value, Native):
                parts.append(value.digest())
            elif isinstance(value, int | float):
                parts.append(repr(value))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def plain(self) -> Callable[..., Any]:
        """The function with numba's in place of the `Native` ones that it calls."""
        import numba

        options: dict[str, Any] = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True}
        used = {}
        for name in self.function.__code__.co_names:
            value = self.function.__globals__.get(name)
            if isinstance(value, Native):
                fastmath: Any = set(_RELAXED) if value.relaxed else False
                used[name] = numba.njit(fastmath=fastmath, **options)(value.plain())
        names = {**self.function.__globals__, **used}
        return types.FunctionType(self.function.__code__, names, self.function.__name__)

    def _text(self, arguments: tuple[Any, ...]) -> str:
        """LLVM IR of the kernel and of ``@kernel(ptr table)``, which takes its arguments from slots of 8 bytes."""
        from emulator.engine.numba_kernel import ir_of

        text = ir_of(self.plain(), [_numba_type(argument) for argument in arguments])
        return text.replace("@NAME.", "@part.") + _entry(arguments)


def native(function: Callable[..., Any]) -> Native:
    """Compile ``function``: sums run in the order in which they are written."""
    return Native(function)


def native_relaxed(function: Callable[..., Any]) -> Native:
    """As `native`, for estimates: a product and a sum may be rounded once, minima come in any order, no NaN is met."""
    return Native(function, relaxed=True)


@functools.cache
def _compiler() -> Compiler:
    return Compiler()


def _lay(arguments: Sequence[Any], slots: list[int], kinds: list[Any]) -> None:
    """Append the arguments' slots, and what code depends on of them. Raises `TypeError` for what no kernel takes."""
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            if not argument.flags.c_contiguous:
                raise TypeError("a kernel takes contiguous arrays")
            slots += (
                argument.size,
                argument.__array_interface__["data"][0],
                *argument.shape,
                *argument.strides,
            )
            kinds += (argument.dtype.str, argument.ndim)
        elif isinstance(argument, bool | int | np.integer):
            slots.append(int(argument))
            kinds.append("int")
        elif isinstance(argument, float):
            slots.append(int(np.float64(argument).view(np.int64)))
            kinds.append("float")
        elif isinstance(argument, tuple):
            kinds += (type(argument).__name__, len(argument))
            _lay(argument, slots, kinds)
        else:
            raise TypeError(f"a kernel takes arrays, numbers and named tuples, not {type(argument).__name__}")


def _numba_type(argument: Any) -> Any:
    from numba import from_dtype
    from numba import types as of_numba

    if isinstance(argument, np.ndarray):
        return of_numba.Array(from_dtype(argument.dtype), argument.ndim, "C")
    if isinstance(argument, float):
        return of_numba.float64
    if isinstance(argument, tuple):
        return of_numba.NamedTuple([_numba_type(part) for part in argument], type(argument))
    return of_numba.int64


def _entry(arguments: tuple[Any, ...]) -> str:
    """The IR of ``@kernel``: the result, an int, goes to the first slot."""
    lines, passed, slot = [], [], 1

    def load(kind: str) -> str:
        nonlocal slot
        lines.append(f"  %p{slot} = getelementptr i64, ptr %table, i64 {slot}")
        lines.append(f"  %s{slot} = load {kind}, ptr %p{slot}")
        slot += 1
        return f"{kind} %s{slot - 1}"

    def take(argument: Any) -> None:
        if isinstance(argument, np.ndarray):
            size, pointer = load("i64"), load("ptr")
            passed.extend(["ptr null", "ptr null", size, f"i64 {argument.itemsize}", pointer])
            passed.extend(load("i64") for _ in range(2 * argument.ndim))
        elif isinstance(argument, tuple):
            for part in argument:
                take(part)
        else:
            passed.append(load("double" if isinstance(argument, float) else "i64"))

    for argument in arguments:
        take(argument)
    return "\n".join([
        "", "define void @kernel(ptr %table) {", "  %result = alloca i64", "  %error = alloca ptr",
        "  store i64 0, ptr %result", *lines,
        f"  call i32 @part.0(ptr %result, ptr %error, {', '.join(passed)})",
        "  %value = load i64, ptr %result", "  store i64 %value, ptr %table", "  ret void", "}", "",
    ])  # fmt: skip
