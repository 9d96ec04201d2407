"""A kernel's function before compilation, and its identity: all that a process needs to find compiled code on disk."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Offsets of the data pointer and the shape in numpy's array object (PyArrayObject_fields in its C interface).
DATA_OFFSET, LENGTHS_OFFSET = 16, 32
ENTRY = "entry."  # prefix of the symbols of kernels that Python calls


class KernelFunction:
    """A function to compile. ``inlined``: into each caller; ``relaxed``: a floating-point product and sum may be fused
    (rounded once), operands of minima may be reordered, and NaNs are assumed not to occur."""

    def __init__(self, function: Callable[..., Any], inlined: bool, relaxed: bool = False) -> None:
        self.py_func = function
        self.inlined, self.relaxed = inlined, relaxed


def call_address(function: int, argument: int) -> None:
    """Call the host function at the address ``function``, which takes an address and returns nothing."""
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)(argument)


def array_at(address: int, like: NDArray[Any]) -> NDArray[Any]:
    """The array of the type of ``like`` at a host address, of unknown length in kernels and of length 1 in Python."""
    return np.frombuffer(memoryview((ctypes.c_uint8 * like.itemsize).from_address(address)), like.dtype)


def identity(function: KernelFunction) -> str:
    """A text that identifies a kernel: the code of all functions that it calls, and the constants they refer to."""
    parts: list[str] = []
    _identify(function, parts, {})
    return "\0".join(parts)


def _identify(function: KernelFunction, parts: list[str], seen: dict[int, int]) -> None:
    """Append the identity of ``function`` to ``parts``; ``seen``: functions that are there, by id."""
    if id(function) in seen:
        parts.append(f"function {seen[id(function)]}")
        return
    seen[id(function)] = len(seen)
    code: CodeType = function.py_func.__code__
    names = function.py_func.__globals__
    parts.append(
        f"{code.co_name} {function.inlined} {function.relaxed} {code.co_code.hex()} {code.co_consts!r} "
        f"{code.co_varnames!r} {code.co_names!r} {code.co_freevars!r}"
    )
    cells = zip(code.co_freevars, function.py_func.__closure__ or (), strict=True)
    found = [(name, names[name]) for name in code.co_names if name in names]
    found += [(name, cell.cell_contents) for name, cell in cells]
    for name, value in found:
        parts.append(name)
        if isinstance(value, KernelFunction):
            _identify(value, parts, seen)
        elif isinstance(value, ModuleType | type):
            inner = [getattr(value, one, None) for one in code.co_names]
            parts.append(f"{value.__name__} {[one for one in inner if isinstance(one, int | float)]}")
        elif isinstance(value, int | float | tuple | np.generic):
            parts.append(f"{type(value).__name__} {value!r}")
