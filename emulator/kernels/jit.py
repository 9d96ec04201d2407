"""Decorators for kernels: Python functions compiled at their first call by the project's own compiler, whose subset of
Python `emulator.kernels.llvm_text` defines; their code is kept on disk by a hash of all that it depends on.

A kernel takes numbers, C-contiguous arrays, and tuples of them; the caller holds every array and ensures that those
that the kernel writes are writable. A kernel runs without the interpreter lock. It is compiled for the types of its
arguments; a call with others compiles it again. ``kernel.py_func`` is the Python function.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common.file_cache import cache_directory
from common.source_digest import kept_source_digest
from emulator.kernels.function import (
    DATA_OFFSET,
    ENTRY,
    LENGTHS_OFFSET,
    KernelFunction,
    array_at,
    call_address,
    identity,
)
from emulator.kernels.value_types import ArrayType, Kind, TupleType, Type

__all__ = ["Integer", "array_at", "call_address", "inline_kernel", "kernel", "relaxed_kernel"]

Integer = Any  # int or np.int64: the same inside a kernel

_ndarray = np.ndarray
_compiling = threading.RLock()
_KINDS: dict[type, Kind] = {
    bool: Kind.BOOL, np.bool_: Kind.BOOL, int: Kind.SIGNED, float: Kind.DOUBLE, np.uint64: Kind.UNSIGNED,
    np.uint32: Kind.SMALL, np.uint16: Kind.SMALL, np.uint8: Kind.SMALL, np.int64: Kind.SIGNED, np.int32: Kind.SIGNED,
    np.int16: Kind.SIGNED, np.int8: Kind.SIGNED, np.float64: Kind.DOUBLE, np.float32: Kind.SINGLE,
}  # fmt: skip
_FORMATS = {Kind.BOOL: "?7x", Kind.UNSIGNED: "Q", Kind.SINGLE: "f4x", Kind.DOUBLE: "d"}
_RESULTS = {
    None: None, Kind.BOOL: ctypes.c_bool, Kind.SIGNED: ctypes.c_int64, Kind.SMALL: ctypes.c_int64,
    Kind.UNSIGNED: ctypes.c_uint64, Kind.SINGLE: ctypes.c_float, Kind.DOUBLE: ctypes.c_double,
}  # fmt: skip


def kernel(function: Callable[..., Any]) -> Any:
    """Make ``function`` a kernel: it is compiled on first use, and its code is kept for later processes."""
    return functools.update_wrapper(Kernel(function, inlined=False), function)


def inline_kernel(function: Callable[..., Any]) -> Any:
    """As `kernel`, for small functions that are inlined into each caller."""
    return functools.update_wrapper(Kernel(function, inlined=True), function)


def relaxed_kernel(function: Callable[..., Any]) -> Any:
    """As `kernel`, for estimates: a product and a sum may be fused, minima reordered, and NaNs must not occur."""
    return functools.update_wrapper(Kernel(function, inlined=False, relaxed=True), function)


class _Code(NamedTuple):
    """A kernel compiled for arguments of ``types``: the host function, its address, and the packing of its
    arguments."""

    types: tuple[Type, ...]
    call: Any
    address: int
    pack: Callable[..., bytes]


class BoundKernel:
    """A kernel with its arguments, for kernels that call it by address: ``call_address(function, argument)``.

    ``function``, ``argument``: host addresses, valid while this object exists. Calling the object calls the kernel, in
    less time than with its arguments anew.
    """

    def __init__(self, code: _Code, packed: bytes, arguments: tuple[Any, ...]) -> None:
        self._call, self._packed, self._arguments = code.call, packed, arguments  # the arrays have to stay
        self._buffer = ctypes.create_string_buffer(packed, len(packed))
        self.function, self.argument = code.address, ctypes.addressof(self._buffer)

    def __call__(self) -> Any:
        return self._call(self._packed)


class Kernel(KernelFunction):
    """A kernel that Python can call."""

    def __init__(self, function: Callable[..., Any], inlined: bool, relaxed: bool = False) -> None:
        super().__init__(function, inlined, relaxed)
        self._codes: dict[tuple[Type, ...], _Code] = {}
        self._latest: _Code | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Call the kernel; compile it for new types. Raises `TypeError`, with their names, for arguments that no kernel
        takes."""
        code, packed = self._packed(arguments)
        return code.call(packed)

    def bound(self, *arguments: Any) -> BoundKernel:
        """The kernel with these arguments; arrays are read when it is called. Raises `TypeError` as a call does."""
        code, packed = self._packed(arguments)
        return BoundKernel(code, packed, arguments)

    def _packed(self, arguments: tuple[Any, ...]) -> tuple[_Code, bytes]:
        """The code for ``arguments``, and the arguments packed. Raises `TypeError`."""
        latest = self._latest
        words: list[Any] = []
        if latest is None or not _put_words(words, arguments, latest.types):
            types = tuple(self._type_of(argument, place) for place, argument in enumerate(arguments))
            latest = self._latest = self._codes.get(types) or self._compiled(types)
            words.clear()
            _put_words(words, arguments, types)
        try:
            return latest, latest.pack(*words)
        except struct.error:
            raise TypeError(f"{self.py_func.__name__} was called with a number of more than 64 bits") from None

    def _compiled(self, types: tuple[Type, ...]) -> _Code:
        """The code for arguments of ``types``, compiled or loaded from disk. Raises `TypeError`."""
        count = self.py_func.__code__.co_argcount
        if len(types) != count:
            raise TypeError(f"{self.py_func.__name__} was called with {len(types)} arguments, expected {count}")
        with _compiling:
            if types in self._codes:
                return self._codes[types]
            _check_arrays()
            key = hashlib.sha256(f"{identity(self)}\0{types}\0{_compiler_identity()}".encode()).hexdigest()
            address, results = _load(key, functools.partial(_text, self, types))
            call = _function(address, results)
            code = self._codes[types] = _Code(types, call, address, struct.Struct("=" + _format(types)).pack)
            return code

    def _type_of(self, argument: Any, place: int) -> Type:
        """The type of the argument at ``place``. Raises `TypeError`."""
        if isinstance(argument, np.ndarray):
            if not argument.flags.c_contiguous:
                raise TypeError(
                    f"argument {self._name_of(place)} of {self.py_func.__name__} is an array with gaps "
                    f"(strides {argument.strides}), expected a C-contiguous one: np.ascontiguousarray makes one"
                )
            if argument.dtype.kind not in "biufV" or not argument.dtype.isnative:
                raise TypeError(
                    f"argument {self._name_of(place)} of {self.py_func.__name__} is an array of {argument.dtype}, "
                    "expected numbers or records in the host's order of bytes"
                )
            return ArrayType(argument.dtype, argument.ndim)
        if isinstance(argument, tuple):
            names = getattr(type(argument), "_fields", ())
            return TupleType(tuple(self._type_of(item, place) for item in argument), names)
        kind = _kind_of(argument)
        if kind is None:
            raise TypeError(
                f"argument {self._name_of(place)} of {self.py_func.__name__} is {argument!r:.80}, "
                "expected a number, an array or a tuple of them"
            )
        return kind

    def _name_of(self, place: int) -> str:
        names = self.py_func.__code__.co_varnames[: self.py_func.__code__.co_argcount]
        return names[place] if place < len(names) else str(place)


def _kind_of(argument: Any) -> Kind | None:
    return _KINDS.get(type(argument)) or (Kind.SIGNED if isinstance(argument, int) else None)


def _put_words(words: list[Any], arguments: tuple[Any, ...], types: tuple[Type, ...]) -> bool:
    """Append the word of each argument to ``words``; whether the arguments have these types."""
    if len(arguments) != len(types):
        return False
    for argument, type_ in zip(arguments, types):  # noqa: B905  # of the same length; this has to be fast
        if type(type_) is ArrayType:
            if not isinstance(argument, _ndarray):
                return False
            own = argument.dtype
            if (
                (own is not type_[0] and own != type_[0])
                or argument.ndim != type_[1]
                or not argument.flags.c_contiguous
            ):
                return False
            words.append(id(argument))
        elif type(type_) is TupleType:
            if not isinstance(argument, tuple) or not _put_words(words, argument, type_.items):
                return False
        elif _KINDS.get(type(argument)) is type_ or _kind_of(argument) is type_:
            words.append(argument)
        else:
            return False
    return True


def _format(types: tuple[Type, ...]) -> str:
    return "".join(
        _format(type_.items) if isinstance(type_, TupleType) else _FORMATS.get(type_, "q")  # type: ignore[arg-type]
        for type_ in types
    )


def _text(function: Kernel, types: tuple[Type, ...]) -> str:
    from emulator.kernels.llvm_text import entry_text

    return entry_text(function, types)


def _function(address: int, results: list[Kind]) -> Callable[[bytes], Any]:
    """The compiled function at ``address``, for packed arguments."""
    if len(results) < 2:
        kind = results[0] if results else None
        return ctypes.CFUNCTYPE(_RESULTS[kind], ctypes.c_char_p)(address)
    call = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p)(address)
    unpack = struct.Struct("=" + _format(tuple(results))).unpack

    def of_tuple(packed: bytes) -> tuple[Any, ...]:
        room = ctypes.create_string_buffer(8 * len(results))
        call(packed, room)
        return unpack(room.raw)

    return of_tuple


def _load(key: str, text: Callable[[], str]) -> tuple[int, list[Kind]]:
    """The host address of a kernel, and the kinds of its results."""
    compiler = _compiler(cache_directory())
    image = compiler.image(text, key, is_kernel=True)
    (name,) = (name for name in image.symbols if name.startswith(ENTRY))
    results = [Kind(result) for result in name.removeprefix(ENTRY).split("-") if result]
    return compiler.load([image], [name])[name], results


@functools.cache
def _compiler(directory: Path) -> Any:
    from emulator.native_code.compiler import Compiler

    return Compiler()


@functools.cache
def _check_arrays() -> None:
    """Check the layout of numpy's array objects that compiled code assumes. Raises `RuntimeError`."""
    array = np.arange(6.0).reshape(2, 3)
    words = ctypes.POINTER(ctypes.c_uint64)
    data = ctypes.c_uint64.from_address(id(array) + DATA_OFFSET).value
    lengths = ctypes.cast(ctypes.c_uint64.from_address(id(array) + LENGTHS_OFFSET).value, words)
    if data != array.ctypes.data or lengths[:2] != [2, 3]:
        raise RuntimeError(
            f"got numpy {np.__version__}, whose array objects have another layout than those of versions 1 and 2: "
            "install one of these"
        )


@functools.cache
def _compiler_identity() -> str:
    """A hash of the sources that make a kernel's text; what makes code of it, `Compiler` adds to the name."""
    return kept_source_digest([Path(__file__).parent])
