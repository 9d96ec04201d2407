"""Kernels written in a small part of Python, as LLVM IR text.

A kernel that every process needs from its first instructions on has to be there after a fresh installation, too, in a
fraction of the seconds that a general compiler of Python takes. What is understood: signed 64-bit integers, arrays of
integers and of records and what is in them, assignments, ``if``, ``while``, ``for`` over a ``range``, ``break``,
``return``, and calls of helpers, which are written in line. Arithmetic wraps. Anything else is refused by name.
"""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_ARITHMETIC = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.LShift: "shl", ast.RShift: "ashr", ast.BitAnd: "and",
    ast.BitOr: "or", ast.BitXor: "xor",
}  # fmt: skip
_COMPARISONS = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "slt", ast.LtE: "sle", ast.Gt: "sgt", ast.GtE: "sge",
}  # fmt: skip


class _Array(NamedTuple):
    """Elements of ``dtype`` from ``pointer`` on; ``shape`` without the first length, which nobody asks for."""

    pointer: str
    dtype: np.dtype[Any]
    inner: tuple[int, ...]


class _Element(NamedTuple):
    pointer: str
    dtype: np.dtype[Any]


class _Record(NamedTuple):
    pointer: str
    dtype: np.dtype[np.void]


_Value = str | int | _Array | _Record  # the name of an i64, a constant, or what is at an address


class _Function(NamedTuple):
    """Of the source, and what its names outside of it stand for."""

    definition: ast.FunctionDef
    names: dict[str, Any]


class _Scope:
    """Local names of a function or of a helper in the middle of it: integers live in memory, which LLVM promotes."""

    def __init__(self, function: _Function, result: str, end: str) -> None:
        self.function, self.result, self.end = function, result, end
        self.places: dict[str, str] = {}
        self.bound: dict[str, _Value] = {}


class _Writer:
    """Writes one kernel."""

    def __init__(self, helpers: dict[str, _Function]) -> None:
        self._helpers = helpers
        self._head: list[str] = []  # allocations
        self._lines: list[str] = []
        self._count = 0
        self._loops: list[str] = []  # labels behind them
        self._scope: _Scope

    def write(self, name: str, function: _Function, arrays: Sequence[NDArray[Any]]) -> str:
        """The text of ``@name(ptr table)``."""
        self._scope = _Scope(function, self._allocate(), "end")
        for n, (parameter, array) in enumerate(zip(function.definition.args.args, arrays, strict=True)):
            place = self._let(f"getelementptr ptr, ptr %table, i64 {n}")
            pointer = self._let(f"load ptr, ptr {place}")
            self._scope.bound[parameter.arg] = _Array(pointer, array.dtype, array.shape[1:])
        self._body(function.definition.body)
        self._say("br label %end")
        self._start("end")
        self._say(f"ret i64 {self._let(f'load i64, ptr {self._scope.result}')}")
        lines = [f"define i64 @{name}(ptr %table) nounwind {{", "entry:", *self._head, *self._lines, "}"]
        return "\n".join([*lines, "declare i64 @llvm.abs.i64(i64, i1)"])

    # --- text
    def _let(self, text: str) -> str:
        self._count += 1
        self._lines.append(f"%k{self._count} = {text}")
        return f"%k{self._count}"

    def _say(self, text: str) -> None:
        self._lines.append(text)

    def _label(self) -> str:
        self._count += 1
        return f"l{self._count}"

    def _start(self, label: str) -> None:
        self._lines.append(f"{label}:")

    def _allocate(self) -> str:
        """Room for an integer, which is 0."""
        self._count += 1
        self._head += [f"%m{self._count} = alloca i64", f"store i64 0, ptr %m{self._count}"]
        return f"%m{self._count}"

    def _refuse(self, node: ast.AST, what: str) -> Exception:
        name = self._scope.function.definition.name
        return TypeError(
            f"line {getattr(node, 'lineno', '?')} of {name}: {what} is not understood in a kernel"
        )

    # --- statements
    def _body(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(value=ast.Constant()):
                pass  # a docstring
            case ast.Expr(value=ast.Call() as call):
                self._call(call)
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                for target, value in zip(targets, [self._value(one) for one in values], strict=True):
                    self._assign(target, value)
            case ast.Assign(targets=[target], value=value):
                self._assign(target, self._value(value))
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, self._value(value))
            case ast.AugAssign(target=target, op=op, value=value):
                self._assign(target, self._arithmetic(node, op, self._value(target), self._value(value)))
            case ast.If(test=test, body=body, orelse=orelse):
                self._if(test, lambda: self._body(body), lambda: self._body(orelse))
            case ast.While(test=test, body=body, orelse=[]):
                self._loop(lambda on, out: self._branch(test, on, out), body, lambda: None)
            case ast.For(
                target=ast.Name() as counter, iter=ast.Call(func=ast.Name("range"), args=bounds), orelse=[]
            ):
                self._for(counter, bounds, node.body)
            case ast.Break():
                self._jump(self._loops[-1])
            case ast.Return(value=ast.expr() as value):
                self._say(f"store i64 {self._integer(value)}, ptr {self._scope.result}")
                self._jump(self._scope.end)
            case _:
                raise self._refuse(node, type(node).__name__)

    def _jump(self, label: str) -> None:
        """Go there; what is written behind it is never reached."""
        self._say(f"br label %{label}")
        self._start(self._label())

    def _if(self, test: ast.expr, body: Callable[[], None], otherwise: Callable[[], None]) -> None:
        yes, no, after = self._label(), self._label(), self._label()
        self._branch(test, yes, no)
        for label, part in ((yes, body), (no, otherwise)):
            self._start(label)
            part()
            self._say(f"br label %{after}")
        self._start(after)

    def _loop(
        self, test: Callable[[str, str], None], body: Sequence[ast.stmt], step: Callable[[], None]
    ) -> None:
        head, inside, after = self._label(), self._label(), self._label()
        self._say(f"br label %{head}")
        self._start(head)
        test(inside, after)
        self._start(inside)
        self._loops.append(after)
        self._body(body)
        self._loops.pop()
        step()
        self._say(f"br label %{head}")
        self._start(after)

    def _for(self, counter: ast.Name, bounds: Sequence[ast.expr], body: Sequence[ast.stmt]) -> None:
        first, end = (0, self._integer(bounds[0])) if len(bounds) == 1 else map(self._integer, bounds)
        self._assign(counter, first)
        place = self._scope.places[counter.id]

        def test(inside: str, after: str) -> None:
            left = self._let(f"icmp slt i64 {self._let(f'load i64, ptr {place}')}, {end}")
            self._say(f"br i1 {left}, label %{inside}, label %{after}")

        def step() -> None:
            more = self._let(f"add i64 {self._let(f'load i64, ptr {place}')}, 1")
            self._say(f"store i64 {more}, ptr {place}")

        self._loop(test, body, step)

    def _assign(self, target: ast.expr, value: _Value) -> None:
        match target:
            case ast.Name(id=name):
                if isinstance(value, _Array | _Record):
                    self._scope.bound[name] = value
                    return
                if name not in self._scope.places:
                    self._scope.places[name] = self._allocate()
                self._say(f"store i64 {value}, ptr {self._scope.places[name]}")
            case ast.Attribute(value=holder, attr=name):
                record = self._value(holder)
                if not isinstance(record, _Record):
                    raise self._refuse(target, ast.unparse(target))
                self._put(self._field(record, name, target), value)
            case ast.Subscript():
                element = self._element(target)
                if not isinstance(element, _Element):
                    raise self._refuse(target, ast.unparse(target))
                self._put(element, value)
            case _:
                raise self._refuse(target, ast.unparse(target))

    # --- conditions
    def _branch(self, node: ast.expr, yes: str, no: str) -> None:
        """Go to ``yes`` if it holds and to ``no`` otherwise; what need not be looked at is not."""
        match node:
            case ast.BoolOp(op=op, values=[*firsts, last]):
                for one in firsts:
                    on = self._label()
                    self._branch(one, *((on, no) if isinstance(op, ast.And) else (yes, on)))
                    self._start(on)
                self._branch(last, yes, no)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self._branch(operand, no, yes)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
                holds = f"icmp {_COMPARISONS[type(op)]} i64 {self._integer(left)}, {self._integer(right)}"
                self._say(f"br i1 {self._let(holds)}, label %{yes}, label %{no}")
            case _:
                holds = self._let(f"icmp ne i64 {self._integer(node)}, 0")
                self._say(f"br i1 {holds}, label %{yes}, label %{no}")

    # --- values
    def _integer(self, node: ast.expr) -> str | int:
        value = self._value(node)
        if isinstance(value, _Array | _Record):
            raise self._refuse(node, f"{ast.unparse(node)} as a number")
        return value

    def _value(self, node: ast.expr) -> _Value:
        match node:
            case ast.Constant(value=int() as number):
                return int(number)
            case ast.Name(id=name):
                return self._named(node, name)
            case ast.BinOp(left=left, op=op, right=right):
                return self._arithmetic(node, op, self._value(left), self._value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._let(f"sub i64 0, {self._integer(operand)}")
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return self._let(f"xor i64 {self._integer(operand)}, -1")
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._chosen(test, body, orelse)
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return self._chosen(node, ast.Constant(1), ast.Constant(0))
            case ast.Attribute(value=holder, attr=name):
                found = self._value(holder)
                if isinstance(found, _Array) and name == "itemsize":
                    return found.dtype.itemsize
                if isinstance(found, _Record):
                    return self._get(self._field(found, name, node))
            case ast.Subscript():
                element = self._element(node)
                return self._get(element) if isinstance(element, _Element) else element
            case ast.Call():
                return self._call(node)
        raise self._refuse(node, ast.unparse(node))

    def _named(self, node: ast.expr, name: str) -> _Value:
        if name in self._scope.places:
            return self._let(f"load i64, ptr {self._scope.places[name]}")
        value = self._scope.bound.get(name, self._scope.function.names.get(name))
        if isinstance(value, str | int | _Array | _Record):
            return value if not isinstance(value, int) else int(value)
        raise self._refuse(node, name)

    def _arithmetic(self, node: ast.AST, op: ast.operator, left: _Value, right: _Value) -> str:
        if type(op) not in _ARITHMETIC or isinstance(left, _Array | _Record):
            raise self._refuse(node, type(op).__name__)
        return self._let(f"{_ARITHMETIC[type(op)]} i64 {left}, {right}")

    def _chosen(self, test: ast.expr, one: ast.expr, other: ast.expr) -> str:
        place = self._allocate()

        def put(node: ast.expr) -> Callable[[], None]:
            return lambda: self._say(f"store i64 {self._integer(node)}, ptr {place}")

        self._if(test, put(one), put(other))
        return self._let(f"load i64, ptr {place}")

    def _call(self, node: ast.Call) -> _Value:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name("np"), attr="int64"), args=[number]):
                return self._integer(number)
            case ast.Call(func=ast.Name("abs"), args=[number]):
                return self._let(f"call i64 @llvm.abs.i64(i64 {self._integer(number)}, i1 false)")
            case ast.Call(func=ast.Name(name), args=arguments) if name in self._helpers:
                return self._in_line(self._helpers[name], [self._value(one) for one in arguments])
        raise self._refuse(node, ast.unparse(node.func))

    def _in_line(self, helper: _Function, arguments: Sequence[_Value]) -> str:
        outer, self._scope = self._scope, _Scope(helper, self._allocate(), self._label())
        mine = self._scope
        self._say(f"store i64 0, ptr {mine.result}")
        for parameter, value in zip(helper.definition.args.args, arguments, strict=True):
            mine.bound[parameter.arg] = value
        self._body(helper.definition.body)
        self._say(f"br label %{mine.end}")
        self._start(mine.end)
        self._scope = outer
        return self._let(f"load i64, ptr {mine.result}")

    # --- memory
    def _element(self, node: ast.Subscript) -> _Array | _Element | _Record:
        """What is there: an element, a record, or what is left of an array with more indices."""
        array = self._value(node.value)
        if not isinstance(array, _Array):
            raise self._refuse(node, ast.unparse(node))
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        pointer = array.pointer
        for place, index in enumerate(indices):
            n_bytes = array.dtype.itemsize * math.prod(array.inner[place:])
            offset = self._let(f"mul i64 {self._integer(index)}, {n_bytes}")
            pointer = self._let(f"getelementptr i8, ptr {pointer}, i64 {offset}")
        if len(indices) <= len(array.inner):
            return _Array(pointer, array.dtype, array.inner[len(indices) :])
        return _Record(pointer, array.dtype) if array.dtype.names else _Element(pointer, array.dtype)

    def _field(self, record: _Record, name: str, node: ast.expr) -> _Element:
        fields = record.dtype.fields
        if fields is None or name not in fields:
            raise self._refuse(node, f"field {name}")
        dtype, offset = fields[name][:2]
        return _Element(self._let(f"getelementptr i8, ptr {record.pointer}, i64 {offset}"), np.dtype(dtype))

    def _get(self, element: _Element) -> str:
        kind = _kind(element)
        value = self._let(f"load {kind}, ptr {element.pointer}, align 1")
        if kind == "i64":
            return value
        return self._let(f"{'zext' if element.dtype.kind == 'u' else 'sext'} {kind} {value} to i64")

    def _put(self, element: _Element, value: _Value) -> None:
        kind = _kind(element)
        number = self._let(f"trunc i64 {value} to {kind}") if kind != "i64" else value
        self._say(f"store {kind} {number}, ptr {element.pointer}, align 1")


def _kind(element: _Element) -> str:
    if element.dtype.kind not in "iu":
        raise TypeError(f"elements of {element.dtype} in a kernel, expected integers")
    return f"i{8 * element.dtype.itemsize}"


def kernel_text(
    name: str,
    function: Callable[..., Any],
    helpers: Sequence[Callable[..., Any]],
    arrays: Sequence[NDArray[Any]],
) -> str:
    """IR of ``@name(ptr table)``, which calls ``function(*arrays)`` with arrays like these, contiguous, at the
    addresses in the table and returns its result, an int64. ``helpers``: functions that it calls.

    Raises `TypeError` for what is not understood.
    """
    known = {helper.__name__: _read(helper) for helper in helpers}
    return _Writer(known).write(name, _read(function), arrays)


def _read(function: Callable[..., Any]) -> _Function:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(definition, ast.FunctionDef)
    return _Function(definition, function.__globals__)
