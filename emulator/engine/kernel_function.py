"""What a function of a kernel is before it is compiled, and what tells it from others: all that a process needs that
finds the code on the disk."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

import numpy as np

# Of numpy's array object (PyArrayObject_fields in its C interface): where the address and the lengths are.
DATA_OFFSET, LENGTHS_OFFSET = 16, 32
ENTRY = "entry."  # what the name of a kernel begins with that Python calls


class KernelFunction:
    """A function that is compiled. ``inlined``: at each place that calls it; ``relaxed``: a product and a sum of
    floating-point numbers may be rounded once, minima come in any order, and none is not a number."""

    def __init__(self, function: Callable[..., Any], inlined: bool, relaxed: bool = False) -> None:
        self.py_func = function
        self.inlined, self.relaxed = inlined, relaxed


def call_address(function: int, argument: int) -> None:
    """Call the host function at the address ``function``, which takes an address and returns nothing."""
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)(argument)


def identity(function: KernelFunction) -> str:
    """Tells kernels apart: by the code of all functions that it calls, and the numbers that they refer to."""
    parts: list[str] = []
    _identify(function, parts, {})
    return "\0".join(parts)


def _identify(function: KernelFunction, parts: list[str], seen: dict[int, int]) -> None:
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
