"""Expressions of a kernel's function as LLVM IR: names, memory, conditions and calls. `llvm_text` defines the subset
of Python."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from emulator.kernels.array_access import Element, MemoryEmitter
from emulator.kernels.function import array_at, call_address
from emulator.kernels.names import EmittedFunction, Functions, Names, Source, assigned
from emulator.kernels.value_types import (
    ArrayType,
    Kind,
    NotUnderstood,
    RecordType,
    TupleType,
    Value,
    literal,
    llvm_types,
    name_of,
    tuple_of,
)

_NOTHING: Any = object()
_LIBRARY: dict[Any, str] = {
    np.exp: "exp", math.exp: "exp", np.log: "log", math.log: "log", np.log1p: "log1p", math.log1p: "log1p",
}  # fmt: skip
_SCRATCH: dict[Any, bool] = {np.zeros: True, np.empty: False}  # whether the new array is zeroed
_EXTREMES: dict[Any, ast.cmpop] = {min: ast.Lt(), max: ast.Gt()}


class ExpressionEmitter:
    """Emits expressions of one function."""

    def __init__(self, source: Source, functions: Functions, names: Names, emitter: MemoryEmitter) -> None:
        self.source, self.functions, self.names, self.emitter = source, functions, names, emitter
        self.places: dict[str, tuple[str, ...]] = {}  # pointers to the variables of local names
        self.loops: list[tuple[str, str]] = []  # of each enclosing loop: labels for ``continue`` and ``break``
        self._own = assigned(source.definition)

    @contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """Turn `NotUnderstood` inside ``node`` into a `TypeError` with file and line."""
        try:
            yield
        except NotUnderstood as problem:
            line = self.source.first_line + getattr(node, "lineno", 1) - 1
            name = self.source.definition.name
            raise TypeError(
                f"{self.source.file}:{line}: line {line} of {name}: {problem} is not understood in a kernel"
            ) from None

    # --- names
    def assign_name(self, name: str, value: Value) -> None:
        """Assign ``value`` to a local name."""
        type_ = self.names.take(name, value)
        kinds = llvm_types(type_)
        if name not in self.places:
            self.places[name] = tuple(self.emitter.variable(kind) for kind in kinds)
        if not self.names.is_stable:
            return  # the function is emitted again
        for kind, part, place in zip(kinds, self.emitter.converted(value, type_).parts, self.places[name], strict=True):
            self.emitter.say(f"store {kind} {part}, ptr {place}")

    def read_name(self, name: str) -> Value:
        """The value of a local name."""
        type_ = self.names.types.get(name)
        if type_ is None:
            raise NotUnderstood(f"{name}, which has no value yet,")
        kinds = llvm_types(type_)
        if name not in self.places:
            self.places[name] = tuple(self.emitter.variable(kind) for kind in kinds)
        parts = [
            self.emitter.let(f"load {kind}, ptr {place}") for kind, place in zip(kinds, self.places[name], strict=True)
        ]
        return Value(type_, tuple(parts))

    def static(self, node: ast.expr) -> Any:
        """The Python object that a name from outside of the function refers to; `_NOTHING` for any other expression."""
        match node:
            case ast.Name(id=name) if name not in self._own:
                return self.source.names.get(name, getattr(builtins, name, _NOTHING))
            case ast.Attribute(value=holder, attr=name):
                found = self.static(holder)
                if isinstance(found, ModuleType | type):
                    return getattr(found, name, _NOTHING)
        return _NOTHING

    # --- values
    def value(self, node: ast.expr) -> Value:
        with self.at(node):
            return self._value(node)

    def _value(self, node: ast.expr) -> Value:
        """The value of an expression. Raises `NotUnderstood`."""
        emitter = self.emitter
        match node:
            case ast.Constant(value=bool() | int() | float() as number):
                return literal(number)
            case ast.Name(id=name) if name in self._own:
                return self.read_name(name)
            case ast.BinOp(left=left, op=op, right=right):
                return emitter.arithmetic(op, self.value(left), self.value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return emitter.negative(self.value(operand))
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return emitter.inverted(self.value(operand))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Value(Kind.BOOL, (emitter.let(f"xor i1 {self._truth(operand)}, true"),))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if not isinstance(op, ast.In | ast.NotIn):
                return Value(Kind.BOOL, (emitter.compared(op, self.value(left), self.value(right)),))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._chosen(node, test, lambda: self.value(body), lambda: self.value(orelse))
            case ast.Compare() | ast.BoolOp():
                return self._chosen(node, node, lambda: literal(True), lambda: literal(False), strictly=True)
            case ast.Attribute(value=holder, attr=name) if self.static(node) is _NOTHING:
                return self._attribute(self.value(holder), name)
            case ast.Subscript():
                found = self.place(node)
                return self.emitter.get(found) if isinstance(found, Element) else found
            case ast.Tuple(elts=items):
                return tuple_of(tuple(self.value(item) for item in items))
            case ast.Call():
                made = self.call(node)
                if made is None:
                    raise NotUnderstood(f"the result of {ast.unparse(node.func)}, which returns nothing,")
                return made
            case ast.Name() | ast.Attribute():
                return self._constant(node)
        raise NotUnderstood(f"{type(node).__name__} ({ast.unparse(node)})")

    def _constant(self, node: ast.expr) -> Value:
        """The value of a name from outside of the function."""
        found = self.static(node)
        if isinstance(found, bool | np.bool_):
            return literal(bool(found))
        if isinstance(found, int | np.integer):
            made = literal(int(found))
            return Value(Kind.UNSIGNED, made.parts, made.constant) if isinstance(found, np.uint64) else made
        if isinstance(found, float | np.floating):
            return literal(float(found))
        if isinstance(found, tuple) and all(isinstance(item, int) for item in found):
            return tuple_of(tuple(literal(int(item)) for item in found))
        raise NotUnderstood(ast.unparse(node))

    def _attribute(self, holder: Value, name: str) -> Value:
        """An attribute of an array, a record or a NamedTuple."""
        match holder.type:
            case ArrayType(dtype, ndim, sized):
                lengths = [Value(Kind.SIGNED, (part,)) for part in holder.parts[1:]]
                if name == "itemsize":
                    return literal(dtype.itemsize)
                if name == "ndim":
                    return literal(ndim)
                if name == "shape" and sized:
                    return tuple_of(tuple(lengths))
                if name == "size" and sized:
                    return Value(Kind.SIGNED, (self.emitter.product([length.text for length in lengths]),))
            case RecordType(dtype) if dtype.fields is not None and name in dtype.fields:
                return self.emitter.get(self.emitter.field(holder, name))
            case TupleType(_, names) if name in names:
                return holder.items[names.index(name)]
        raise NotUnderstood(f"{name} of {name_of(holder.type)}")

    def _chosen(
        self, node: ast.expr, test: ast.expr, one: Callable[[], Value], other: Callable[[], Value],
        strictly: bool = False,
    ) -> Value:  # fmt: skip
        """The value of ``one`` if ``test`` holds, else of ``other``; ``node`` names the result."""
        name = f"{node.lineno}:{node.col_offset}:{node.end_lineno}:{node.end_col_offset}"
        self.choose(test, lambda: self.assign_name(name, one()), lambda: self.assign_name(name, other()), strictly)
        return self.read_name(name)

    # --- conditions
    def choose(
        self, test: ast.expr, one: Callable[[], None], other: Callable[[], None], strictly: bool = False
    ) -> None:
        """Emit ``one`` for the case that ``test`` holds, and ``other`` for the other case."""
        emitter = self.emitter
        yes, no, after = emitter.label(), emitter.label(), emitter.label()
        self.branch(test, yes, no, strictly)
        for label, part in ((yes, one), (no, other)):
            emitter.start(label)
            part()
            emitter.go(after)
        emitter.start(after)

    def branch(self, node: ast.expr, yes: str, no: str, strictly: bool = False) -> None:
        """Emit a branch to ``yes`` if ``node`` holds, else to ``no``, with short-circuit evaluation.

        ``strictly``: ``node`` is used as a value: ``a or b`` gives one of its operands in Python, so operands other
        than truth values are refused.
        """
        with self.at(node):
            self._branch(node, yes, no, strictly)

    def _branch(self, node: ast.expr, yes: str, no: str, strictly: bool) -> None:
        """As `branch`; raises `NotUnderstood`."""
        emitter = self.emitter
        match node:
            case ast.BoolOp(op=op, values=[*firsts, last]):
                for one in firsts:
                    on = emitter.label()
                    self.branch(one, *((on, no) if isinstance(op, ast.And) else (yes, on)), strictly)
                    emitter.start(on)
                self.branch(last, yes, no, strictly)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.branch(operand, no, yes)
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn() as membership], comparators=[right]):
                found = self.value(left)
                one_way, other_way = (yes, no) if isinstance(membership, ast.In) else (no, yes)
                items = self.value(right)
                if not isinstance(items.type, TupleType):
                    raise NotUnderstood(f"in {name_of(items.type)}")
                members = [self.value(item) for item in right.elts] if isinstance(right, ast.Tuple) else items.items
                holds = "false"
                for item in members:
                    holds = emitter.let(f"or i1 {holds}, {emitter.compared(ast.Eq(), found, item)}")
                emitter.split(holds, one_way, other_way)
            case ast.Compare(left=left, ops=ops, comparators=comparators) if len(ops) > 1:
                value = self.value(left)
                for place, (relation, comparator) in enumerate(zip(ops, comparators, strict=True)):
                    following = self.value(comparator)
                    on = emitter.label() if place < len(ops) - 1 else yes
                    emitter.split(emitter.compared(relation, value, following), on, no)
                    if on != yes:
                        emitter.start(on)
                    value = following
            case _:
                found = self.value(node)
                if strictly and found.type is not Kind.BOOL:
                    raise NotUnderstood(f"and, or of {name_of(found.type)} ({ast.unparse(node)}) as a value")
                emitter.split(emitter.truth(found).text, yes, no)

    def _truth(self, node: ast.expr) -> str:
        return self.emitter.truth(self.value(node)).text

    # --- calls
    def call(self, node: ast.Call) -> Value | None:
        """Emit a call; its result, None for none."""
        with self.at(node):
            return self._call(node)

    def _call(self, node: ast.Call) -> Value | None:
        """As `call`; raises `NotUnderstood`."""
        emitter, found = self.emitter, self.static(node.func)
        if node.keywords or any(isinstance(one, ast.Starred) for one in node.args) or found is _NOTHING:
            raise NotUnderstood(f"the call {ast.unparse(node)}")
        if _is_in(found, _SCRATCH):
            return self._scratch(node.args, _SCRATCH[found])
        arguments = [self.value(one) for one in node.args]
        match arguments:
            case [one] if found is int:
                return emitter.cast(one, np.dtype(np.int64))
            case [one] if found is bool:
                return emitter.truth(one)
            case [one] if found is float:
                return emitter.floating(one, Kind.DOUBLE)
            case [one] if isinstance(found, type) and issubclass(found, np.generic):
                return emitter.cast(one, np.dtype(found))
            case [one] if found is len:
                return self._length(one)
            case [one] if found is abs:
                return emitter.absolute(one)
            case [one] if found is math.sqrt or found is np.sqrt:
                return emitter.root(one)
            case [one] if _is_in(found, _LIBRARY):
                return emitter.by_library(_LIBRARY[found], one)
            case [_, _, *_] if _is_in(found, _EXTREMES):
                return emitter.extreme(_EXTREMES[found], arguments)
            case [function, argument] if found is call_address:
                pointer = emitter.let(f"inttoptr i64 {emitter.integer(function).text} to ptr")
                emitter.say(f"call void {pointer}(i64 {emitter.integer(argument).text})")
                return None
            case [address, Value(type=ArrayType(dtype=dtype))] if found is array_at:
                pointer = emitter.let(f"inttoptr i64 {emitter.integer(address).text} to ptr")
                return Value(ArrayType(dtype, 1, sized=False), (pointer, "0"))
        made = self.functions.emitted(found, tuple(argument.type for argument in arguments))
        if made is None:
            raise NotUnderstood(f"the call of {ast.unparse(node.func)}")
        return self._call_function(made, arguments)

    def _scratch(self, arguments: Sequence[ast.expr], is_zero: bool) -> Value:
        """A new array (np.zeros, np.empty), freed when the function returns."""
        emitter = self.emitter
        kind = np.float64 if len(arguments) == 1 else self.static(arguments[-1])
        if self.loops or len(arguments) not in (1, 2) or not (isinstance(kind, type) and issubclass(kind, np.generic)):
            raise NotUnderstood("an array made in a loop, or of a type that is not numpy's,")
        dtype = np.dtype(kind)
        shape = self.value(arguments[0])
        lengths = shape.items if isinstance(shape.type, TupleType) else (shape,)
        parts = [emitter.integer(length).text for length in lengths]
        pointer = emitter.scratch(emitter.product(parts), dtype.itemsize, is_zero)
        return Value(ArrayType(dtype, len(parts)), (pointer, *parts))

    def _call_function(self, made: EmittedFunction, arguments: Sequence[Value]) -> Value | None:
        """Emit the call of an emitted function."""
        emitter, kinds = self.emitter, llvm_types(made.result)
        given = ", ".join(
            f"{kind} {part}"
            for argument in arguments
            for kind, part in zip(llvm_types(argument.type), argument.parts, strict=True)
        )
        result = result_type(kinds)
        call = f"call fastcc {result} @{made.name}({given})"
        if made.result is None:
            emitter.say(call)
            return None
        whole = emitter.let(call)
        if len(kinds) == 1:
            return Value(made.result, (whole,))
        parts = [emitter.let(f"extractvalue {result} {whole}, {place}") for place in range(len(kinds))]
        return Value(made.result, tuple(parts))

    def _length(self, value: Value) -> Value:
        """``len(value)``."""
        match value.type:
            case ArrayType(_, _, True):
                return Value(Kind.SIGNED, (value.parts[1],))
            case TupleType(items):
                return literal(len(items))
        raise NotUnderstood(f"the length of {name_of(value.type)}")

    # --- memory
    def place(self, node: ast.Subscript) -> Element | Value:
        """The target of an index: a number in memory, a record, an item of a tuple, or a subarray."""
        holder = self.value(node.value)
        with self.at(node):
            match holder.type, node.slice:
                case RecordType(), ast.Constant(value=str() as name):
                    return self.emitter.field(holder, name)
                case TupleType(items), index:
                    number = self.value(index).constant
                    if not isinstance(number, int) or not -len(items) <= number < len(items):
                        raise NotUnderstood(f"the index {ast.unparse(index)} of a tuple")
                    return holder.items[number]
                case ArrayType(_, ndim, _), index:
                    indices = index.elts if isinstance(index, ast.Tuple) else [index]
                    if len(indices) <= ndim:
                        return self._indexed(holder, indices)
            raise NotUnderstood(f"{ast.unparse(node)}, where {ast.unparse(node.value)} is {name_of(holder.type)},")

    def _indexed(self, array: Value, indices: Sequence[ast.expr]) -> Element | Value:
        """The element or subarray of ``array`` at ``indices``."""
        starts, length = [], None
        for place, (index, extent) in enumerate(zip(indices, array.parts[1:], strict=False)):
            if isinstance(index, ast.Slice):
                if place != len(indices) - 1 or index.step is not None or not array.type.sized:
                    raise NotUnderstood(f"the slice {ast.unparse(index)}")
                start, length = self._slice(index, extent)
            else:
                start = self._index(self.value(index), extent)
            starts.append(start)
        return self.emitter.element(array, starts, length)

    def _index(self, index: Value, length: str) -> str:
        if isinstance(index.constant, int) and index.constant < 0:
            return self.emitter.let(f"add nsw i64 {length}, {index.text}")
        return self.emitter.integer(index).text

    def _slice(self, index: ast.Slice, length: str) -> tuple[str, str]:
        """First element and length of a slice; the length is 0 where the first element is behind the end."""
        emitter = self.emitter
        start = "0" if index.lower is None else self._index(self.value(index.lower), length)
        if index.upper is None:
            stop = length
        else:
            stop = self._index(self.value(index.upper), length)
            stop = emitter.call("i64", "llvm.smin.i64", f"i64 {stop}, i64 {length}")
        size = emitter.let(f"sub nsw i64 {stop}, {start}")
        return start, emitter.call("i64", "llvm.smax.i64", f"i64 {size}, i64 0")


def _is_in(found: Any, table: dict[Any, Any]) -> bool:
    return callable(found) and found in table


def result_type(kinds: Sequence[str]) -> str:
    """The LLVM return type of a function whose result has parts of these types."""
    if len(kinds) < 2:
        return kinds[0] if kinds else "void"
    return f"{{{', '.join(kinds)}}}"
