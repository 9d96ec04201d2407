"""Kernels that walk the record, compiled by the project's own compiler (`emulator.engine.kernel_ir` says what it
understands) when they are called first, and kept on the disk by what they are made of.

A kernel takes numbers, C-contiguous arrays, and tuples of them; who calls it holds every array, and sees to it that
those may be written which it writes. It runs without the interpreter lock. It is compiled for the types of its
arguments: a call with others compiles it again. Without a compiler it is what its source says: ``kernel.py_func`` is
Python's function.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import hashlib
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from emulator.engine.kernel_function import (
    DATA_OFFSET,
    ENTRY,
    LENGTHS_OFFSET,
    KernelFunction,
    call_address,
    identity,
)
from emulator.engine.kernel_types import ArrayType, Kind, TupleType, Type
from emulator.kept import cache_directory

__all__ = ["Integer", "call_address", "inline_kernel", "kernel", "relaxed_kernel"]

Integer = Any  # int or np.int64: the same inside a kernel

_ndarray = np.ndarray
_LOCKS = "kernels.lock"  # a byte of it for a kernel that is compiled
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
    """Compile ``function`` on first use and keep the machine code for later processes."""
    return functools.update_wrapper(Kernel(function, inlined=False), function)


def inline_kernel(function: Callable[..., Any]) -> Any:
    """As `kernel`, for small functions that are worth a copy at each place that calls them."""
    return functools.update_wrapper(Kernel(function, inlined=True), function)


def relaxed_kernel(function: Callable[..., Any]) -> Any:
    """As `kernel`, for estimates: a product and a sum may be rounded once, minima come in any order, no NaN is met."""
    return functools.update_wrapper(Kernel(function, inlined=False, relaxed=True), function)


class _Code(NamedTuple):
    """A kernel for arguments of ``types``: how it is called, and how its arguments are packed."""

    types: tuple[Type, ...]
    call: Any
    pack: Callable[..., bytes]


class Kernel(KernelFunction):
    """A kernel that Python can call."""

    def __init__(self, function: Callable[..., Any], inlined: bool, relaxed: bool = False) -> None:
        super().__init__(function, inlined, relaxed)
        self._codes: dict[tuple[Type, ...], _Code] = {}
        self._latest: _Code | None = None

    def __call__(self, *arguments: Any) -> Any:
        """What ``py_func`` returns. Raises `TypeError` for arguments that no kernel takes, with their names."""
        latest = self._latest
        words: list[Any] = []
        if latest is None or not _put_words(words, arguments, latest.types):
            types = tuple(self._type_of(argument, place) for place, argument in enumerate(arguments))
            latest = self._latest = self._codes.get(types) or self._compiled(types)
            words.clear()
            _put_words(words, arguments, types)
        try:
            packed = latest.pack(*words)
        except struct.error:
            raise TypeError(
                f"{self.py_func.__name__} was called with a number of more than 64 bits"
            ) from None
        return latest.call(packed)

    def _compiled(self, types: tuple[Type, ...]) -> _Code:
        count = self.py_func.__code__.co_argcount
        if len(types) != count:
            raise TypeError(
                f"{self.py_func.__name__} was called with {len(types)} arguments, expected {count}"
            )
        with _compiling:
            if types in self._codes:
                return self._codes[types]
            _check_arrays()
            key = hashlib.sha256(f"{identity(self)}\0{types}\0{_compiler_identity()}".encode()).hexdigest()
            address, results = _load(key, functools.partial(_text, self, types))
            call = _function(address, results)
            code = self._codes[types] = _Code(types, call, struct.Struct("=" + _format(types)).pack)
            return code

    def _type_of(self, argument: Any, place: int) -> Type:
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
    """Append what is packed for each argument; whether they are of these types."""
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
    from emulator.engine.kernel_ir import entry_text

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
    """The address of a kernel's code, and what it returns."""
    compiler = _compiler(cache_directory())
    with contextlib.nullcontext() if compiler.path_of(key).exists() else _alone(key):
        image = compiler.image(text, key, is_kernel=True)
    (name,) = (name for name in image.symbols if name.startswith(ENTRY))
    results = [Kind(result) for result in name.removeprefix(ENTRY).split("-") if result]
    return compiler.load([image], [name])[name], results


@contextlib.contextmanager
def _alone(key: str) -> Iterator[None]:
    """Let no other process compile the same kernel meanwhile: it finds it on the disk afterwards."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # it is compiled twice then
            directory = cache_directory()
            directory.mkdir(parents=True, exist_ok=True)
            file = held.enter_context((directory / _LOCKS).open("a+b"))
            fcntl.lockf(file, fcntl.LOCK_EX, 1, int(key[:15], 16))
        yield


@functools.cache
def _compiler(directory: Path) -> Any:
    from emulator.engine.compiler import Compiler

    return Compiler()


@functools.cache
def _check_arrays() -> None:
    """See to it that numpy's array objects are as compiled code takes them: their C interface says so."""
    array = np.arange(6.0).reshape(2, 3)
    words = ctypes.POINTER(ctypes.c_uint64)
    data = ctypes.c_uint64.from_address(id(array) + DATA_OFFSET).value
    lengths = ctypes.cast(ctypes.c_uint64.from_address(id(array) + LENGTHS_OFFSET).value, words)
    if data != array.ctypes.data or lengths[:2] != [2, 3]:
        raise RuntimeError(
            f"numpy {np.__version__} keeps the address of an array elsewhere than versions 1 and 2 do: kernels need "
            "one of those"
        )


@functools.cache
def _compiler_identity() -> str:
    """Of what makes text of a kernel."""
    digest = hashlib.sha256()
    engine = Path(__file__).parent / "engine"
    for path in (*sorted(engine.glob("kernel_*.py")), engine / "llvm.py"):
        digest.update(path.read_bytes())
    return digest.hexdigest()
