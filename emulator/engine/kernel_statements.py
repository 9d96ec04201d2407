"""One function of a kernel as LLVM IR: its statements."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from emulator.engine.kernel_expressions import Expressions, result_type
from emulator.engine.kernel_memory import Element, Text
from emulator.engine.kernel_names import Functions, Made, Names, Source
from emulator.engine.kernel_types import (
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

_RESULT = "return"  # no name in Python


class FunctionWriter(Expressions):
    """Writes one function."""

    def write(self, types: Sequence[Type]) -> None:
        """The lines of the body, between ``%a0``, ``%a1`` and so on, the arguments' parts, and what is returned."""
        at = 0
        for parameter, type_ in zip(self.source.definition.args.args, types, strict=True):
            parts = tuple(f"%a{at + n}" for n in range(len(llvm_types(type_))))
            at += len(parts)
            self.assign_name(parameter.arg, Value(type_, parts))
        body = self.source.definition.body
        self._body(body)
        self.text.go("end")
        self.text.start("end")
        self.text.free()
        if _RESULT not in self.names.types:
            self.text.say("ret void")
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
                whole = self.text.let(f"insertvalue {result_type(kinds)} {whole}, {kind} {part}, {place}")
        self.text.say(f"ret {result_type(kinds)} {whole}")

    # --- statements
    def _body(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            with self.at(statement):
                self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
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
                self.text.jump(self.loops[-1][1])
            case ast.Continue():
                self.text.jump(self.loops[-1][0])
            case ast.Return(value=None | ast.Constant(value=None)):
                if _RESULT in self.names.types:
                    raise NotUnderstood("return without a value beside one with a value")
                self.text.jump("end")
            case ast.Return(value=ast.expr() as value):
                self.assign_name(_RESULT, self.value(value))
                self.text.jump("end")
            case _:
                raise NotUnderstood(type(node).__name__)

    def _assign(self, target: ast.expr, value: Value) -> None:
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
                self.text.put(self._field_of(self.value(holder), name), value)
            case ast.Subscript():
                place = self.place(target)
                if isinstance(place, Element):
                    self.text.put(place, value)
                else:
                    self._fill(place, value)
            case _:
                raise NotUnderstood(f"assigning to {ast.unparse(target)}")

    def _field_of(self, holder: Value, name: str) -> Element:
        if not hasattr(holder.type, "dtype") or isinstance(holder.type, ArrayType):
            raise NotUnderstood(f"assigning to {name} of {name_of(holder.type)}")
        return self.text.field(holder, name)

    def _change(self, target: ast.expr, op: ast.operator, node: ast.expr) -> None:
        """Write ``target op= node``; where the target is, is found out once."""
        match target:
            case ast.Name(id=name):
                before = self.read_name(name)
                self.assign_name(name, self.text.arithmetic(op, before, self.value(node)))
                return
            case ast.Attribute(value=holder, attr=name):
                place: Element | Value = self._field_of(self.value(holder), name)
            case ast.Subscript():
                place = self.place(target)
        if not isinstance(place, Element):
            raise NotUnderstood(f"changing {ast.unparse(target)} in place")
        before = self.text.get(place)
        self.text.put(place, self.text.arithmetic(op, before, self.value(node)))

    def _fill(self, array: Value, value: Value) -> None:
        """Let all elements of an array be a number, or those of another array like it."""
        fits = isinstance(value.type, Kind) or value.type == array.type
        if not isinstance(array.type, ArrayType) or not fits:
            raise NotUnderstood(f"{name_of(value.type)} in place of {name_of(array.type)}")
        size = self.text.product(array.parts[1:])
        flat = ArrayType(array.type.dtype, 1)

        def copy(place: Value) -> None:
            number = value
            if isinstance(value.type, ArrayType):
                number = self.text.item(Value(flat, (value.parts[0], size)), place.text)
            goal = self.text.element(Value(flat, (array.parts[0], size)), [place.text])
            if not isinstance(goal, Element):
                raise NotUnderstood(f"copying {name_of(array.type)}")
            self.text.put(goal, number)

        self._count(literal(0), Value(Kind.SIGNED, (size,)), literal(1), copy)

    # --- loops
    def _loop(
        self, test: Callable[[str, str], None], body: Callable[[], None], step: Callable[[], None]
    ) -> None:
        text = self.text
        head, inside, following, after = text.label(), text.label(), text.label(), text.label()
        text.go(head)
        text.start(head)
        test(inside, after)
        text.start(inside)
        self.loops.append((following, after))
        body()
        self.loops.pop()
        text.go(following)
        text.start(following)
        step()
        text.go(head)
        text.start(after)

    def _count(self, first: Value, end: Value, step: Value, body: Callable[[Value], None]) -> None:
        """Do ``body`` for each number of a ``range``."""
        text = self.text
        if not isinstance(step.constant, int) or step.constant == 0:
            raise NotUnderstood("a range whose step is not a constant")
        is_unsigned = joined(first, end) is Kind.UNSIGNED
        kind = Kind.UNSIGNED if is_unsigned else Kind.SIGNED
        place = text.room("i64")
        text.say(f"store i64 {text.integer(first).text}, ptr {place}")
        limit = text.integer(end).text
        compare = ("u" if is_unsigned else "s") + ("lt" if step.constant > 0 else "gt")

        wraps = " nsw" if not is_unsigned and abs(step.constant) == 1 else ""  # for LLVM to count the turns

        def test(inside: str, after: str) -> None:
            number = text.let(f"load i64, ptr {place}")
            text.split(text.let(f"icmp {compare} i64 {number}, {limit}"), inside, after)

        def on() -> None:
            number = text.let(f"load i64, ptr {place}")
            text.say(f"store i64 {text.let(f'add{wraps} i64 {number}, {step.constant}')}, ptr {place}")

        self._loop(test, lambda: body(Value(kind, (text.let(f"load i64, ptr {place}"),))), on)

    def _for(self, target: ast.expr, iterated: ast.expr, body: Sequence[ast.stmt]) -> None:
        if isinstance(iterated, ast.Call) and self.static(iterated.func) is range and not iterated.keywords:
            bounds = [self.value(bound) for bound in iterated.args]
            for bound in bounds:
                self.text.integer(bound)
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
            self._assign(target, self.text.item(array, number.text))
            self._body(body)

        self._count(literal(0), Value(Kind.SIGNED, (array.parts[1],)), literal(1), each)


def write_function(
    name: str, attributes: str, source: Source, functions: Functions, types: Sequence[Type], flags: str
) -> tuple[list[str], set[str], Made]:
    """The definition of ``@name`` for arguments of ``types``: lines, what they declare, and how it is called.

    It is written until the types of its names no longer grow.
    """
    names = Names()
    while True:
        names.is_settled = True
        text = Text(flags)
        FunctionWriter(source, functions, names, text).write(types)
        if names.is_settled:
            break
    result = names.types.get(_RESULT)
    kinds = [kind for type_ in types for kind in llvm_types(type_)]
    head = ", ".join(f"{kind} %a{n}" for n, kind in enumerate(kinds))
    lines = [
        f"define internal fastcc {result_type(llvm_types(result))} @{name}({head}) {attributes} {{",
        "entry:", *text.head, *text.lines, "}",
    ]  # fmt: skip
    return lines, text.declared, Made(name, result)


def _ends(statements: Sequence[ast.stmt]) -> bool:
    """Whether what is behind these is never reached."""
    match statements[-1] if statements else None:
        case ast.Return():
            return True
        case ast.If(body=body, orelse=orelse):
            return _ends(body) and _ends(orelse)
        case ast.While(test=ast.Constant(value=True)) as loop:
            return not any(isinstance(node, ast.Break) for node in ast.walk(loop))
    return False
