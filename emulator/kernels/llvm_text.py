"""The kernel compiler: functions in a subset of Python as LLVM IR text.

Kernels that every process needs from its first instructions must be compiled after a fresh installation in a fraction
of the seconds that a general compiler of Python takes. The subset:

Numbers
    Integers of 64 bits, signed or unsigned, which wrap; truth values; float32 and float64. A mixture of int64 and
    uint64 is refused (a constant takes the other side's kind; so does what is narrower and unsigned): ``np.int64(x)``,
    ``np.uint32(x)`` and the like convert, as ``int``, ``float`` and ``bool`` do. Python's operators, with ``//`` and
    ``%`` rounding down, ``**`` with a small constant or of floating-point numbers; ``and``, ``or``, ``not``,
    comparisons (chains of them, ``in`` a tuple), ``a if b else c``, ``min``, ``max``, ``abs``; ``sqrt``, ``exp``,
    ``log`` and ``log1p`` of ``math`` or numpy.
Arrays
    C-contiguous ones of numbers or records (``row["field"]`` or ``row.field``), of any number of dimensions, tuples
    and NamedTuples of them; indices and slices, which are views, ``len``, ``shape``, ``size``, ``ndim``,
    ``itemsize``; ``array[:] = number`` or another array of the same shape; ``np.zeros`` and ``np.empty`` outside of
    loops, freed when the function returns. An index is not negative, or a negative constant; bounds are not checked.
Statements
    Assignments, ``if``, ``while``, ``for`` over a ``range`` or an array, ``break``, ``continue``, ``return``,
    ``pass``, calls of other kernels, of a host function at an address (`call_address`), and of `array_at`, which gives
    the array at an address. A name has one type; a name that is assigned both an int and a float is a float.
Names from outside
    Numbers, truth values and tuples of integers, as they are when the kernel is compiled, and kernels.

Anything else is refused by name, with file and line.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from emulator.kernels.expressions import result_type
from emulator.kernels.function import DATA_OFFSET, ENTRY, LENGTHS_OFFSET, KernelFunction
from emulator.kernels.names import EmittedFunction, Source
from emulator.kernels.statements import emit_function
from emulator.kernels.value_types import (
    ArrayType,
    Kind,
    NotUnderstood,
    TupleType,
    Type,
    llvm_types,
    name_of,
)

_RELAXED = "contract nnan nsz"


class _Module:
    """The functions of a module, which call each other; each is emitted once for each combination of argument types."""

    def __init__(self, helpers: Iterable[Callable[..., Any]] = ()) -> None:
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self._helpers = {helper: KernelFunction(helper, inlined=True) for helper in helpers}
        self._made: dict[tuple[int, tuple[Type, ...]], EmittedFunction | None] = {}
        self._sources: dict[int, Source] = {}

    def emitted(self, function: Any, types: tuple[Type, ...]) -> EmittedFunction | None:
        """``function`` for arguments of ``types``, emitted on first use; None if it is no kernel and no helper."""
        if not isinstance(function, KernelFunction):
            function = self._helpers.get(function) if callable(function) else None
        if function is None:
            return None
        key = id(function), types
        if key not in self._made:
            self._made[key] = None
            self._made[key] = self._write(function, types)
        made = self._made[key]
        if made is None:
            raise NotUnderstood(f"a recursive call of {function.py_func.__name__}")
        return made

    def _write(self, function: KernelFunction, types: tuple[Type, ...]) -> EmittedFunction:
        """Emit ``function`` for arguments of ``types``. Raises `NotUnderstood`."""
        if id(function) not in self._sources:
            self._sources[id(function)] = _read(function.py_func)
        source = self._sources[id(function)]
        parameters = source.definition.args
        n_parameters = len(parameters.args)
        is_plain = not (parameters.vararg or parameters.kwarg or parameters.kwonlyargs or parameters.defaults)
        if n_parameters != len(types) or not is_plain:
            raise NotUnderstood(
                f"a call of {function.py_func.__name__} with {len(types)} arguments, which has {n_parameters},"
            )
        attributes = "alwaysinline nounwind" if function.inlined else "nounwind"
        flags = _RELAXED if function.relaxed else ""
        name = f"{function.py_func.__name__}.{len(self._made)}"
        lines, declared, made = emit_function(name, attributes, source, self, types, flags)
        self.lines += lines
        self.declared |= declared
        return made


def entry_text(function: KernelFunction, types: Sequence[Type]) -> str:
    """IR of ``@entry.KIND(ptr words)``, which calls ``function`` and returns its result, a number of that `Kind`; of
    ``@entry.KIND-KIND(ptr words, ptr results)`` for a tuple, which is written to ``results``, a 64-bit word for each
    number.

    ``words``: a 64-bit word for each number, and for each array the address of numpy's object; for a tuple the words of
    its items. Raises `TypeError` for what is not understood.
    """
    module, lines = _Module(), list[str]()
    made = _emitted(module, function, tuple(types))
    arguments: list[str] = []
    for place, type_ in enumerate(_leaves(types)):
        arguments += _unpacked(lines, place, type_)
    results = [] if made.result is None else _leaves([made.result])
    if not all(isinstance(one, Kind) for one in results):
        raise TypeError(f"{function.py_func.__name__} returns {name_of(made.result)}, expected numbers")
    kinds = llvm_types(made.result)
    result, name = result_type(kinds), ENTRY + "-".join(map(name_of, results))
    call = f"call fastcc {result} @{made.name}({', '.join(arguments)})"
    returned, parameters = result, "ptr %words"
    if len(kinds) > 1:
        returned, parameters = "void", "ptr %words, ptr %results"
        lines.append(f"%result = {call}")
        for n, kind in enumerate(kinds):
            lines += [
                f"%r{n} = extractvalue {result} %result, {n}", f"%s{n} = getelementptr i64, ptr %results, i64 {n}",
                f"store {kind} %r{n}, ptr %s{n}",
            ]  # fmt: skip
        lines.append("ret void")
    elif kinds:
        lines += [f"%result = {call}", f"ret {result} %result"]
    else:
        lines += [call, "ret void"]
    own = [f"define {returned} @{name}({parameters}) nounwind {{", *lines, "}"]
    return "\n".join([*own, *module.lines, *sorted(module.declared)])


def kernel_text(
    name: str,
    function: Callable[..., Any],
    helpers: Sequence[Callable[..., Any]],
    examples: Sequence[Any],
) -> str:
    """IR of ``@name(ptr table)``, which calls ``function`` with contiguous arrays at the addresses in the table and
    returns its result, an int64.

    ``examples``: of each argument, an array or a NamedTuple of arrays, with the types and shapes of the arrays, of
    which the first length is not used. The table has the addresses of all arrays in order. ``helpers``: functions that
    it calls. Raises `TypeError` for what is not understood.
    """
    module, lines = _Module(helpers), list[str]()
    types = tuple(_example_type(one) for one in examples)
    arrays = [array for one in examples for array in (one if isinstance(one, tuple) else (one,))]
    made = _emitted(module, KernelFunction(function, inlined=True), types)
    if made.result is not Kind.SIGNED:
        raise TypeError(f"{function.__name__} returns {name_of(made.result)}, expected int64")
    arguments = []
    for place, array in enumerate(arrays):
        lines += [
            f"%w{place} = getelementptr ptr, ptr %table, i64 {place}",
            f"%p{place} = load ptr, ptr %w{place}",
        ]
        arguments += [f"ptr %p{place}", "i64 0", *(f"i64 {length}" for length in array.shape[1:])]
    lines += [f"%result = call fastcc i64 @{made.name}({', '.join(arguments)})", "ret i64 %result"]
    own = [f"define i64 @{name}(ptr %table) nounwind {{", *lines, "}"]
    return "\n".join([*own, *module.lines, *sorted(module.declared)])


def _example_type(example: Any) -> Type:
    """The type of an array whose first length is unknown, or of a NamedTuple of such arrays."""
    if isinstance(example, tuple):
        return TupleType(tuple(_example_type(one) for one in example), getattr(type(example), "_fields", ()))
    return ArrayType(example.dtype, example.ndim, sized=False)


def _emitted(module: _Module, function: KernelFunction, types: tuple[Type, ...]) -> EmittedFunction:
    """``function`` for arguments of ``types``. Raises `TypeError`."""
    try:
        made = module.emitted(function, types)
    except NotUnderstood as problem:
        raise TypeError(f"{problem} is not understood in a kernel") from None
    assert made is not None
    return made


def _leaves(types: Iterable[Type]) -> list[Type]:
    found: list[Type] = []
    for type_ in types:
        found += _leaves(type_.items) if isinstance(type_, TupleType) else [type_]
    return found


def _unpacked(lines: list[str], place: int, type_: Type) -> list[str]:
    """Emit the unpacking of an argument's word; the LLVM values of the argument, with types."""
    w = f"%w{place}"
    lines.append(f"{w} = getelementptr i64, ptr %words, i64 {place}")
    if isinstance(type_, ArrayType):
        lines += [
            f"{w}o = load ptr, ptr {w}",
            f"{w}a = getelementptr i8, ptr {w}o, i64 {DATA_OFFSET}", f"{w}d = load ptr, ptr {w}a",
            f"{w}b = getelementptr i8, ptr {w}o, i64 {LENGTHS_OFFSET}", f"{w}s = load ptr, ptr {w}b",
        ]  # fmt: skip
        parts = [f"ptr {w}d"]
        for n in range(type_.ndim):
            lines += [f"{w}e{n} = getelementptr i64, ptr {w}s, i64 {n}", f"{w}n{n} = load i64, ptr {w}e{n}"]
            parts.append(f"i64 {w}n{n}")
        return parts
    (kind,) = llvm_types(type_)
    if kind == "i1":
        lines += [f"{w}v = load i64, ptr {w}", f"{w}n = icmp ne i64 {w}v, 0"]
    else:
        lines.append(f"{w}n = load {kind}, ptr {w}")
    return [f"{kind} {w}n"]


def _read(function: Callable[..., Any]) -> Source:
    """The source of a function. Raises `NotUnderstood`."""
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except OSError:
        raise NotUnderstood(f"{function.__name__}, whose source is in no file,") from None
    (definition,) = ast.parse(text).body
    assert isinstance(definition, ast.FunctionDef)
    code = function.__code__
    return Source(definition, code.co_filename, code.co_firstlineno, _names(function))


def _names(function: Callable[..., Any]) -> dict[str, Any]:
    """The objects that a function can refer to, by name: globals and free variables."""
    code, inner = function.__code__, {}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        inner[name] = cell.cell_contents
    return {**function.__globals__, **inner}
