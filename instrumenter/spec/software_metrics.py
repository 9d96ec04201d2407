"""Specification of software metrics: the event, its place, and the amount that it adds to its counter."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from instrumenter.spec.counter_layout import Placement
from instrumenter.tokens import tokens

Event = Literal["call", "entry", "exit", "write", "loop", "branch", "alloc", "alloc_bytes"]

# The keys that name the subject of each event; all other keys only narrow it down.
_SUBJECT: dict[str, tuple[str, ...]] = {
    "call": ("callee",),
    "entry": ("function",),
    "exit": ("function",),
    "write": ("variable", "field"),
    "loop": ("function",),
    "branch": ("function",),
    "alloc": (),
    "alloc_bytes": (),
}


def _subjects_in_schema() -> list[JsonValue]:
    """Conditions of a JSON Schema: each event has the key of its subject, or, a loop or branch, a line."""
    conditions: list[JsonValue] = []
    for event, subjects in _SUBJECT.items():
        keys = [*subjects, *(["line"] if event in ("loop", "branch") else [])]
        if keys:
            event_is: JsonValue = {"properties": {"event": {"const": event}}, "required": ["event"]}
            conditions.append({"if": event_is, "then": {"anyOf": [{"required": [key]} for key in keys]}})
    return conditions


class MetricSpec(BaseModel):
    """One software metric: a counter that grows when its event happens."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra={"allOf": _subjects_in_schema()})

    event: Event = Field(
        description="call: a direct call of `callee`; entry, exit: of `function`; write: an assignment, ++ or -- to "
        "`variable` (or any part of it) or to a struct `field`; loop: an iteration of a loop of `function` "
        "(a `do ... while (0)`, as macros have it, is none); "
        "branch: an if or ?: of `function` whose condition is true; alloc, alloc_bytes: calls of "
        "malloc, calloc, realloc and aligned_alloc, and the bytes they ask for; alloc counts `new` in C++, too. "
        "Both count what the program's own sources write: allocations inside of libraries, such as those of the C++ "
        "library's containers and strings, are not counted"
    )
    function: str | None = Field(
        None,
        description="Function the event is about (entry, exit, loop, branch), or in which it must happen. In C++ "
        "`ns::Class::method` (or its last parts, where they mean one; `::f` only outside of namespaces and classes), "
        "`ns::f(int, const char *)`, `Box<int>::push`, "
        "`Box::Box`, `Box::~Box`, or `main::lambda@12` for a lambda that begins on line 12",
    )
    callee: str | None = Field(
        None,
        description="Function whose calls are counted (event: call); in C++ also `operator new` and `operator delete`",
    )
    variable: str | None = Field(
        None,
        description="Variable whose writes are counted: a global, a static, or a local of `function`; in C++ also "
        "`ns::variable` and `Class::variable`",
    )
    field: str | None = Field(
        None,
        description="Struct field whose writes are counted: `name`, or `struct_tag.name` or `Class::name` if several "
        "have it",
    )
    file: str | None = Field(
        None,
        description="Count only events in this source file: its name, after as many directories as tell it from others "
        "(`util.c`, `store/util.c`)",
    )
    line: int | None = Field(None, ge=1, description="Count only events that begin on this source line")
    add: str | None = Field(
        None,
        coerce_numbers_to_str=True,
        description="C expression added instead of 1, a whole number; evaluated where the event happens, before it: "
        "for `call` in the caller, for `entry` in the function, where its parameters are known. Macros are not known "
        "there",
    )

    method: Literal["counter", "probe", "second_run"] = Field(
        "counter",
        description="counter: the program counts, at its cost; probe: the emulated machine does not see the counter, "
        "which takes no time and counts as nothing; second_run: the measured program has no counter, and a second run, "
        "without timing, gives each record the counts of the same part of the program. Both are for `measure` with "
        "sampling mode ideal on an emulated machine, probe also for mode signal. Default: counter",
    )

    local: bool = Field(
        False,
        description="Count in a local variable, which the compiler can keep in a register, and add it to the counter "
        "when the function returns: cheap in loops, but counts arrive at the ends of functions, and are lost when "
        "exit or longjmp leaves one. Default: false",
    )
    sampled: int | None = Field(
        None,
        ge=2,
        le=1 << 20,
        description="Add N to the counter at every Nth event: an estimate of the count, wrong by less than N in a "
        "record, with a standard error of N / sqrt(6). Default: count every event",
    )

    @model_validator(mode="after")
    def _form(self) -> MetricSpec:
        given = [key for key in ("local", "sampled") if getattr(self, key)]
        if len(given) > 1:
            raise ValueError("`local:` and `sampled:` are two ways to count cheaply: give one of them")
        for key in given:
            if self.method != "counter":
                raise ValueError(f"`{key}:` means nothing beside `method: {self.method}`, which costs nothing")
            if self.event == "alloc_bytes":
                raise ValueError(f"`{key}:` means nothing for event `alloc_bytes`, which counts in the allocator")
        if self.sampled and self.add is not None:
            raise ValueError("`sampled:` means nothing beside `add:`: a sum cannot be estimated from every Nth term")
        return self

    @model_validator(mode="after")
    def _complete(self) -> MetricSpec:
        subjects = _SUBJECT[self.event]
        given = [name for name in subjects if getattr(self, name) is not None]
        if subjects and len(given) != 1 and not (self.event in ("loop", "branch") and self.line):
            wanted = " or ".join(f"`{name}:`" for name in subjects)
            got = " and ".join(f"`{name}:`" for name in given) or "none of them"
            raise ValueError(f"event `{self.event}` needs exactly one of {wanted}, got {got}")
        for name in ("callee", "variable", "field"):
            if getattr(self, name) is not None and name not in subjects:
                raise ValueError(f"`{name}:` means nothing for event `{self.event}`")
        if self.event == "alloc_bytes" and self.add is not None:
            raise ValueError("`add:` means nothing for event `alloc_bytes`: it adds the bytes asked for")
        return self

    @field_validator("callee", "function")
    @classmethod
    def _function_name(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Za-z_$]\w*", value):
            from instrumenter.spec.cplusplus_names import read_name

            read_name(value)
        return value

    @field_validator("variable")
    @classmethod
    def _identifier(cls, value: str | None) -> str | None:
        return _check_identifiers(value, 1)

    @field_validator("field")
    @classmethod
    def _qualified(cls, value: str | None) -> str | None:
        return _check_identifiers(value, 2)

    @field_validator("add")
    @classmethod
    def _one_expression(cls, value: str | None) -> str | None:
        if value is not None:
            problem = _problem_with(value)
            if problem is not None:
                raise ValueError(f"got {value!r}, expected one C expression{problem}")
        return value

    def describe(self) -> str:
        """The metric in words, for reports."""
        subject = self.callee or self.variable or self.field or ("heap" if self.event.startswith("alloc") else "")
        function = f"in {self.function}" if subject and self.function else self.function or ""
        place = self.file or ""
        if self.line:
            place = f"{self.file}:{self.line}" if self.file else f"line {self.line}"
        words = (self.event, subject, function, f"at {place}" if place else "", f"+= {self.add}" if self.add else "")
        return " ".join(filter(None, words))


def _problem_with(expression: str) -> str | None:
    """Why a text cannot be put between parentheses as one C expression, "" without a detail; None if it can."""
    found = list(tokens(expression.encode("utf-8", "surrogateescape"), 0))
    signs = [token for kind, token, _ in found if kind == "sign"]
    if not found or "\n" in expression or any(kind == "comment" for kind, _, _ in found):
        return ""
    if any(sign in b";{}#'\"" for sign in signs):
        return ""
    depth = 0
    for sign in signs:
        depth += (sign in b"([") - (sign in b")]")
        if depth < 0:
            break
    return ": its parentheses do not match" if depth else None


def _check_identifiers(value: str | None, most: int) -> str | None:
    if value is not None:
        parts = value.removeprefix("::").replace("::", ".").split(".") if "::" in value else value.split(".")
        most = max(most, len(parts)) if "::" in value else most
        if len(parts) > most or not all(re.fullmatch(r"[A-Za-z_$]\w*", part) for part in parts):
            wanted = "a C identifier" if most == 1 else "a field's name, or `struct_tag.name`"
            raise ValueError(f"got {value!r}, expected {wanted}")
    return value


def check_metric_names(value: dict[str, MetricSpec]) -> dict[str, MetricSpec]:
    """``value`` if its keys can be names of metrics. Raises ValueError."""
    for name in value:
        if not re.fullmatch(r"[A-Za-z_][\w.-]*", name):
            raise ValueError(f"got the metric name {name!r}, expected letters, digits, '_', '.' and '-'")
    return value


class InstrumentSpec(BaseModel):
    """A file for the ``instrument`` command: a program, and the metrics to count in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sources: tuple[Path, ...] = Field(min_length=1, description="C and C++ files, relative to this file")
    flags: tuple[str, ...] = Field(("-O2",), description="Compiler flags; default: -O2")
    libraries: tuple[str, ...] = Field((), description="Libraries to link, without -l")
    metrics: dict[str, MetricSpec] = Field(default_factory=dict, description="Metrics by name")
    placement: Placement = Field(
        "packed", description="packed: counters in one array; cache_line: each on a 64-byte line of its own"
    )
    volatile: bool = Field(
        True, description="Count where the event is; without it the optimiser moves counts out of loops"
    )
    atomic: bool = Field(False, description="Count by atomic additions, as a program that starts threads needs it")
    target: str = Field(
        "riscv64-linux-musl",
        description="What to compile for; `host`: this machine. Default: riscv64-linux-musl",
    )

    _names = field_validator("metrics")(check_metric_names)
