"""Random C programs: the instrumented one prints the same, and its counters are those of a model of the language.

A program is a tree of nodes. Each node writes itself as C, and runs itself in Python, counting what happens. Side
effects stand only where C says in what order they happen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.file_cache import cache_directory
from instrumenter.building.program_build import build_program
from instrumenter.find.find import find_source_events
from instrumenter.spec.software_metrics import MetricSpec
from tests.instrumenter.native_counters import count, run

GLOBALS = ("a", "b", "c")
FUNCTIONS = ("leaf", "inner", "outer")
MASK = 0xFFFFFFFF


@dataclass
class Model:
    """A running program: its globals, its functions, and the events so far."""

    functions: dict[str, Function]
    values: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GLOBALS, 1))
    events: Counter[str] = field(default_factory=Counter)
    within: str = ""

    def write(self, name: str, value: int) -> int:
        self.events[f"write {name}"] += 1
        self.values[name] = value & MASK
        return self.values[name]

    def call(self, name: str, argument: int) -> int:
        caller, kept = self.within, self.values.get("n", 0)
        self.events[f"call {name}"] += 1
        self.events[f"entry {name}"] += 1
        self.within, self.values["n"] = name, argument
        try:
            self.functions[name].body.run(self)
            result = 0
            self.events[f"exit {name}"] += 1
        except Returned as returned:
            result = returned.value
        self.within, self.values["n"] = caller, kept
        return result


class Returned(Exception):
    """A return statement was reached."""

    def __init__(self, value: int) -> None:
        self.value = value


class Broken(Exception):
    """A break statement was reached."""


class Continued(Exception):
    """A continue statement was reached."""


class Expression(Protocol):
    """Something with a value."""

    def c(self) -> str: ...
    def value(self, model: Model) -> int: ...


class Statement(Protocol):
    """Something that is done."""

    def c(self) -> str: ...
    def run(self, model: Model) -> None: ...


@dataclass(frozen=True)
class Constant:
    number: int

    def c(self) -> str:
        return f"{self.number}u"

    def value(self, model: Model) -> int:
        return self.number


@dataclass(frozen=True)
class Name:
    name: str

    def c(self) -> str:
        return self.name

    def value(self, model: Model) -> int:
        return model.values[self.name]


@dataclass(frozen=True)
class Arithmetic:
    operator: str
    left: Expression
    right: Expression

    def c(self) -> str:
        return f"(unsigned)({self.left.c()} {self.operator} {self.right.c()})"

    def value(self, model: Model) -> int:
        return operate(self.operator, self.left.value(model), self.right.value(model))


def operate(operator: str, left: int, right: int) -> int:
    results = {
        "+": left + right, "-": left - right, "*": left * right, "^": left ^ right, "&": left & right,
        "<": int(left < right), "==": int(left == right),
    }  # fmt: skip
    return results[operator] & MASK


@dataclass(frozen=True)
class Call:
    function: str
    argument: Expression

    def c(self) -> str:
        return f"{self.function}({self.argument.c()})"

    def value(self, model: Model) -> int:
        return model.call(self.function, self.argument.value(model))


@dataclass(frozen=True)
class Step:
    name: str
    operator: str
    prefix: bool

    def c(self) -> str:
        return f"({self.operator}{self.name})" if self.prefix else f"({self.name}{self.operator})"

    def value(self, model: Model) -> int:
        before = model.values[self.name]
        after = model.write(self.name, before + (1 if self.operator == "++" else -1))
        return after if self.prefix else before


@dataclass(frozen=True)
class Both:
    operator: str  # &&, || or the comma
    left: Expression
    right: Expression

    def c(self) -> str:
        return f"({self.left.c()}{self.operator} {self.right.c()})"

    def value(self, model: Model) -> int:
        left = self.left.value(model)
        if self.operator == ",":
            return self.right.value(model)
        if (left != 0) == (self.operator == "||"):
            return int(left != 0)
        return int(self.right.value(model) != 0)


@dataclass(frozen=True)
class Choice:
    condition: Expression
    yes: Expression | None
    no: Expression

    def c(self) -> str:
        return f"({self.condition.c()} ? {self.yes.c() if self.yes else ''} : {self.no.c()})"

    def value(self, model: Model) -> int:
        condition = self.condition.value(model)
        if not condition:
            return self.no.value(model)
        model.events[f"branch {model.within}"] += 1
        return self.yes.value(model) if self.yes else condition


@dataclass(frozen=True)
class Assign:
    name: str
    operator: str  # "" for =
    right: Expression

    def c(self) -> str:
        return f"{self.name} {self.operator}= {self.right.c()};"

    def run(self, model: Model) -> None:
        right = self.right.value(model)
        model.write(self.name, operate(self.operator, model.values[self.name], right) if self.operator else right)


@dataclass(frozen=True)
class Evaluate:
    expression: Expression

    def c(self) -> str:
        return f"{self.expression.c()};"

    def run(self, model: Model) -> None:
        self.expression.value(model)


@dataclass(frozen=True)
class Jump:
    kind: str

    def c(self) -> str:
        return f"{self.kind};"

    def run(self, model: Model) -> None:
        raise Broken if self.kind == "break" else Continued


@dataclass(frozen=True)
class Return:
    expression: Expression

    def c(self) -> str:
        return f"return {self.expression.c()};"

    def run(self, model: Model) -> None:
        model.events[f"exit {model.within}"] += 1
        raise Returned(self.expression.value(model))


@dataclass(frozen=True)
class Block:
    statements: tuple[Statement, ...]

    def c(self) -> str:
        return "{ " + " ".join(statement.c() for statement in self.statements) + " }"

    def run(self, model: Model) -> None:
        for statement in self.statements:
            statement.run(model)


@dataclass(frozen=True)
class If:
    condition: Expression
    yes: Statement
    no: Statement | None

    def c(self) -> str:
        # Braces would be too easy; but an else must find its if.
        yes = "{ " + self.yes.c() + " }" if self.no and isinstance(self.yes, If | Loop) else self.yes.c()
        return f"if ({self.condition.c()}) {yes}" + (f"\n else {self.no.c()}" if self.no else "")

    def run(self, model: Model) -> None:
        if self.condition.value(model):
            model.events[f"branch {model.within}"] += 1
            self.yes.run(model)
        elif self.no:
            self.no.run(model)


@dataclass(frozen=True)
class Loop:
    kind: str
    times: int
    body: Statement
    variable: str

    def c(self) -> str:
        name, times = self.variable, self.times
        if self.kind == "for":
            return f"for (unsigned {name} = 0; {name} < {times}; {name}++)\n {self.body.c()}"
        if self.kind == "while":
            return f"{{ unsigned {name} = 0; while ({name}++ < {times}) {self.body.c()} }}"
        return f"{{ unsigned {name} = 0; do {self.body.c()} while (++{name} < {times}); }}"

    def run(self, model: Model) -> None:
        for _ in range(max(1, self.times) if self.kind == "do" else self.times):
            model.events[f"loop {model.within}"] += 1
            try:
                self.body.run(model)
            except Continued:
                continue
            except Broken:
                break


@dataclass(frozen=True)
class Function:
    name: str
    body: Block

    def c(self) -> str:
        return f"static unsigned {self.name}(unsigned n)\n{{ {self.body.c()} return 0; }}"


class Generator:
    """Draws programs. ``size``: statements of a function's body; smaller programs come of smaller sizes."""

    def __init__(self, seed: int, size: int) -> None:
        self.random = Random(seed)
        self.size = size
        self.callees: tuple[str, ...] = ()

    def program(self) -> dict[str, Function]:
        found = {}
        for name in FUNCTIONS:
            found[name] = Function(name, Block(tuple(self.statement(3, False) for _ in range(self.size))))
            self.callees += (name,)
        return found

    def pure(self, depth: int = 2) -> Expression:
        if depth and self.random.random() < 0.5:
            operator = self.random.choice(["+", "-", "*", "^", "&", "<", "=="])
            return Arithmetic(operator, self.pure(depth - 1), self.pure(depth - 1))
        if self.random.random() < 0.3:
            return Constant(self.random.randrange(6))
        return Name(self.random.choice((*GLOBALS, "n")))

    def effect(self, depth: int = 3) -> Expression:
        kind = self.random.randrange(6 if depth else 3)
        if kind == 0 and self.callees:
            return Call(self.random.choice(self.callees), self.pure())
        if kind == 1:
            operator = self.random.choice(["++", "--"])
            return Step(self.random.choice(GLOBALS), operator, self.random.random() < 0.5)
        if kind == 3:
            operator = self.random.choice(["&&", "||", ","])
            return Both(operator, self.effect(depth - 1), self.effect(depth - 1))
        if kind == 4:
            yes = self.effect(depth - 1) if self.random.random() < 0.7 else None
            return Choice(self.effect(depth - 1), yes, self.effect(depth - 1))
        return self.pure()

    def assignment(self) -> Statement:
        name = self.random.choice(GLOBALS)
        kind = self.random.randrange(3)
        if kind == 0:
            return Assign(name, self.random.choice(["+", "^", "-"]), self.pure())
        if kind == 1 and self.callees:
            return Assign(name, "", Call(self.random.choice(self.callees), self.pure()))
        return Assign(name, "", Choice(self.effect(), self.pure(), self.pure()))

    def statement(self, depth: int, looping: bool) -> Statement:
        kind = self.random.randrange(7 if depth else 2)
        if kind == 0:
            return Evaluate(self.effect())
        if kind in (2, 3):
            yes = self.jump(looping) if self.random.random() < 0.2 else self.statement(depth - 1, looping)
            no = self.statement(depth - 1, looping) if self.random.random() < 0.5 else None
            return If(self.effect(), yes, no)
        if kind in (4, 5):
            times = self.random.randrange(4)
            body = self.statement(depth - 1, True)
            return Loop(self.random.choice(["for", "while", "do"]), times, body, f"i{depth}")
        if kind == 6:
            return Block(tuple(self.statement(depth - 1, looping) for _ in range(self.random.randrange(4))))
        return self.assignment()

    def jump(self, looping: bool) -> Statement:
        if looping and self.random.random() < 0.7:
            return Jump(self.random.choice(["break", "continue"]))
        return Return(self.effect())


def as_c(functions: dict[str, Function]) -> str:
    parts = [
        "int printf(const char *, ...);",
        "unsigned " + ", ".join(f"{name} = 1" for name in GLOBALS) + ";",
    ]
    parts += [function.c() for function in functions.values()]
    parts.append('int main(void) { unsigned r = outer(3); printf("%u %u %u %u\\n", r, a, b, c); return 0; }')
    return "\n".join(parts) + "\n"


METRICS = {
    **{f"{event} {name}": MetricSpec(event=event, function=name) for name in FUNCTIONS
       for event in ("entry", "exit", "loop", "branch")},
    **{f"call {name}": MetricSpec(event="call", callee=name) for name in FUNCTIONS},
    **{f"write {name}": MetricSpec(event="write", variable=name) for name in GLOBALS},
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where programs are written and built; the compiler keeps its own cache."""
    path = tmp_path_factory.mktemp("random")
    (path / "perturbation").mkdir()
    zig = cache_directory() / "zig"
    zig.mkdir(parents=True, exist_ok=True)
    (path / "perturbation/zig").symlink_to(zig)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(path))
        yield path


@settings(max_examples=25, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(2, 12), level=st.sampled_from(["-O0", "-O2"]))
def test_counts_are_those_of_the_model(folder: Path, seed: int, size: int, level: str) -> None:
    functions = Generator(seed, size).program()
    model = Model(functions)
    result = model.call("outer", 3)
    source = folder / "random.c"
    source.write_text(as_c(functions))
    sites = find_source_events(source.read_bytes(), str(source), METRICS, None, (), cplusplus=False).sites
    metrics = {name: METRICS[name] for name in METRICS if any(site.metric == name for site in sites)}
    plain = run(build_program([source], [level], target=None))
    values = [result & MASK, *(model.values[name] for name in GLOBALS)]
    assert plain.stdout == " ".join(map(str, values)) + "\n"
    done, counted = count(source, [level], metrics, folder)
    assert (done.stdout, done.returncode) == (plain.stdout, 0)
    assert counted == {name: model.events[name] for name in metrics}
    assert not set(model.events) - set(metrics)
