"""Statements of a kernel's function as LLVM IR, and the emission of a whole function."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from emulator.kernels.array_access import Element, MemoryEmitter
from emulator.kernels.expressions import ExpressionEmitter, result_type
from emulator.kernels.names import EmittedFunction, Functions, Names, Source
from emulator.kernels.value_types import (
    ArrayType,
    Kind,
    NotUnderstood,
    TupleType,
    Type,
    Value,
    joined,
    literal,
    llvm_types,
    name_of,
)

_RESULT = "return"  # the name of the result; a keyword, so no variable has it


class FunctionEmitter(ExpressionEmitter):
    """Emits one function."""

    def write(self, types: Sequence[Type]) -> None:
        """Emit the body. The parts of the arguments, of ``types``, are ``%a0``, ``%a1`` and so on."""
        at = 0
        for parameter, type_ in zip(self.source.definition.args.args, types, strict=True):
            parts = tuple(f"%a{at + n}" for n in range(len(llvm_types(type_))))
            at += len(parts)
            self.assign_name(parameter.arg, Value(type_, parts))
        body = self.source.definition.body
        self._body(body)
        self.emitter.go("end")
        self.emitter.start("end")
        self.emitter.free()
        if _RESULT not in self.names.types:
            self.emitter.say("ret void")
            return
        if not _ends(body):
            with self.at(self.source.definition):
                raise NotUnderstood("a function that returns something, but not at its end,")
        value = self.read_name(_RESULT)
        kinds = llvm_types(value.type)
        if "ptr" in kinds:
            with self.at(self.source.definition):
                raise NotUnderstood("a function that returns an array")
        whole = value.parts[0]
        if len(kinds) > 1:
            whole = "poison"
            for place, (kind, part) in enumerate(zip(kinds, value.parts, strict=True)):
                whole = self.emitter.let(f"insertvalue {result_type(kinds)} {whole}, {kind} {part}, {place}")
        self.emitter.say(f"ret {result_type(kinds)} {whole}")

    # --- statements
    def _body(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            with self.at(statement):
                self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        """Emit one statement. Raises `NotUnderstood`."""
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass  # a docstring
            case ast.Expr(value=ast.Call() as call):
                self.call(call)
            case ast.Assign(targets=targets, value=value):
                made = self.value(value)
                for target in targets:
                    self._assign(target, made)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, self.value(value))
            case ast.AugAssign(target=target, op=op, value=value):
                self._change(target, op, value)
            case ast.If(test=test, body=body, orelse=orelse):
                self.choose(test, lambda: self._body(body), lambda: self._body(orelse))
            case ast.While(test=test, body=body, orelse=[]):
                self._loop(lambda on, out: self.branch(test, on, out), lambda: self._body(body), lambda: None)
            case ast.For(target=target, iter=iterated, orelse=[]):
                self._for(target, iterated, node.body)
            case ast.Break():
                self.emitter.jump(self.loops[-1][1])
            case ast.Continue():
                self.emitter.jump(self.loops[-1][0])
            case ast.Return(value=None | ast.Constant(value=None)):
                if _RESULT in self.names.types:
                    raise NotUnderstood("return without a value in a function that returns values")
                self.emitter.jump("end")
            case ast.Return(value=ast.expr() as value):
                self.assign_name(_RESULT, self.value(value))
                self.emitter.jump("end")
            case _:
                raise NotUnderstood(type(node).__name__)

    def _assign(self, target: ast.expr, value: Value) -> None:
        """Emit an assignment of ``value`` to ``target``."""
        match target:
            case ast.Name(id=name):
                self.assign_name(name, value)
            case ast.Tuple(elts=targets):
                if not isinstance(value.type, TupleType) or len(value.type.items) != len(targets):
                    raise NotUnderstood(f"{name_of(value.type)} for {ast.unparse(target)}")
                items = value.items
                for one, item in zip(targets, items, strict=True):
                    self._assign(one, item)
            case ast.Attribute(value=holder, attr=name):
                self.emitter.put(self._field_of(self.value(holder), name), value)
            case ast.Subscript():
                place = self.place(target)
                if isinstance(place, Element):
                    self.emitter.put(place, value)
                else:
                    self._fill(place, value)
            case _:
                raise NotUnderstood(f"assigning to {ast.unparse(target)}")

    def _field_of(self, holder: Value, name: str) -> Element:
        if not hasattr(holder.type, "dtype") or isinstance(holder.type, ArrayType):
            raise NotUnderstood(f"assigning to {name} of {name_of(holder.type)}")
        return self.emitter.field(holder, name)

    def _change(self, target: ast.expr, op: ast.operator, node: ast.expr) -> None:
        """Emit ``target op= node``; the target's place is evaluated once."""
        match target:
            case ast.Name(id=name):
                before = self.read_name(name)
                self.assign_name(name, self.emitter.arithmetic(op, before, self.value(node)))
                return
            case ast.Attribute(value=holder, attr=name):
                place: Element | Value = self._field_of(self.value(holder), name)
            case ast.Subscript():
                place = self.place(target)
        if not isinstance(place, Element):
            raise NotUnderstood(f"changing {ast.unparse(target)} in place")
        before = self.emitter.get(place)
        self.emitter.put(place, self.emitter.arithmetic(op, before, self.value(node)))

    def _fill(self, array: Value, value: Value) -> None:
        """Set all elements of an array to a number, or to those of an array of the same type."""
        fits = isinstance(value.type, Kind) or value.type == array.type
        if not isinstance(array.type, ArrayType) or not fits:
            raise NotUnderstood(f"{name_of(value.type)} in place of {name_of(array.type)}")
        size = self.emitter.product(array.parts[1:])
        flat = ArrayType(array.type.dtype, 1)

        def copy(place: Value) -> None:
            number = value
            if isinstance(value.type, ArrayType):
                number = self.emitter.item(Value(flat, (value.parts[0], size)), place.text)
            destination = self.emitter.element(Value(flat, (array.parts[0], size)), [place.text])
            if not isinstance(destination, Element):
                raise NotUnderstood(f"copying {name_of(array.type)}")
            self.emitter.put(destination, number)

        self._count(literal(0), Value(Kind.SIGNED, (size,)), literal(1), copy)

    # --- loops
    def _loop(self, test: Callable[[str, str], None], body: Callable[[], None], step: Callable[[], None]) -> None:
        """Emit a loop: ``test`` branches to its two labels, ``step`` follows the body."""
        emitter = self.emitter
        head, inside, following, after = emitter.label(), emitter.label(), emitter.label(), emitter.label()
        emitter.go(head)
        emitter.start(head)
        test(inside, after)
        emitter.start(inside)
        self.loops.append((following, after))
        body()
        self.loops.pop()
        emitter.go(following)
        emitter.start(following)
        step()
        emitter.go(head)
        emitter.start(after)

    def _count(self, first: Value, end: Value, step: Value, body: Callable[[Value], None]) -> None:
        """Emit a loop of ``body`` over the numbers of a ``range``."""
        emitter = self.emitter
        if not isinstance(step.constant, int) or step.constant == 0:
            raise NotUnderstood("a range whose step is not a constant")
        is_unsigned = joined(first, end) is Kind.UNSIGNED
        kind = Kind.UNSIGNED if is_unsigned else Kind.SIGNED
        place = emitter.variable("i64")
        emitter.say(f"store i64 {emitter.integer(first).text}, ptr {place}")
        limit = emitter.integer(end).text
        compare = ("u" if is_unsigned else "s") + ("lt" if step.constant > 0 else "gt")

        wraps = " nsw" if not is_unsigned and abs(step.constant) == 1 else ""  # lets LLVM compute the trip count

        def test(inside: str, after: str) -> None:
            number = emitter.let(f"load i64, ptr {place}")
            emitter.split(emitter.let(f"icmp {compare} i64 {number}, {limit}"), inside, after)

        def on() -> None:
            number = emitter.let(f"load i64, ptr {place}")
            emitter.say(f"store i64 {emitter.let(f'add{wraps} i64 {number}, {step.constant}')}, ptr {place}")

        self._loop(test, lambda: body(Value(kind, (emitter.let(f"load i64, ptr {place}"),))), on)

    def _for(self, target: ast.expr, iterated: ast.expr, body: Sequence[ast.stmt]) -> None:
        """Emit a for loop over a ``range`` or an array."""
        if isinstance(iterated, ast.Call) and self.static(iterated.func) is range and not iterated.keywords:
            bounds = [self.value(bound) for bound in iterated.args]
            for bound in bounds:
                self.emitter.integer(bound)
            first, end, step = literal(0), bounds[0], literal(1)
            if len(bounds) > 1:
                first, end = bounds[:2]
            if len(bounds) > 2:
                step = bounds[2]

            def counted(number: Value) -> None:
                self._assign(target, number)
                self._body(body)

            self._count(first, end, step, counted)
            return
        array = self.value(iterated)
        if not isinstance(array.type, ArrayType) or not array.type.sized:
            raise NotUnderstood(f"for over {name_of(array.type)}")

        def each(number: Value) -> None:
            self._assign(target, self.emitter.item(array, number.text))
            self._body(body)

        self._count(literal(0), Value(Kind.SIGNED, (array.parts[1],)), literal(1), each)


def emit_function(
    name: str, attributes: str, source: Source, functions: Functions, types: Sequence[Type], flags: str
) -> tuple[list[str], set[str], EmittedFunction]:
    """The definition of ``@name`` for arguments of ``types``: its lines, their declarations, and the function.

    The function is emitted again until the types of its names are stable.
    """
    names = Names()
    while True:
        names.is_stable = True
        emitter = MemoryEmitter(flags)
        FunctionEmitter(source, functions, names, emitter).write(types)
        if names.is_stable:
            break
    result = names.types.get(_RESULT)
    kinds = [kind for type_ in types for kind in llvm_types(type_)]
    head = ", ".join(f"{kind} %a{n}" for n, kind in enumerate(kinds))
    lines = [
        f"define internal fastcc {result_type(llvm_types(result))} @{name}({head}) {attributes} {{",
        "entry:", *emitter.head, *emitter.lines, "}",
    ]  # fmt: skip
    return lines, emitter.declared, EmittedFunction(name, result)


def _ends(statements: Sequence[ast.stmt]) -> bool:
    """Whether control never reaches the end of ``statements``."""
    match statements[-1] if statements else None:
        case ast.Return():
            return True
        case ast.If(body=body, orelse=orelse):
            return _ends(body) and _ends(orelse)
        case ast.While(test=ast.Constant(value=True)) as loop:
            return not any(isinstance(node, ast.Break) for node in ast.walk(loop))
    return False
