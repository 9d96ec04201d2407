"""Sites: the places of a program text at which metrics count, and what else was found on the way to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from instrumenter.lines import Place


class Form(Enum):
    """How the text at a site can hold a count."""

    EXPRESSION = "before the value of the expression [start, end)"
    STATEMENT = "before the statement [start, end)"
    POINT = "at offset start, between statements"
    CONDITION = "when the condition [start, end) is true"
    SHORT_CONDITION = "when the operand [start, end) of `?:` without a middle is true"
    CALLEE = "in a function that stands in for the callee [start, end)"


@dataclass(frozen=True)
class Site:
    """One place at which a metric counts.

    ``start``, ``end``: byte offsets in the preprocessed text. ``anchor_start``, ``anchor_end``: the text whose
    machine code runs once an event (empty: none is known). ``name``: the allocator, for `Form.CALLEE`.
    """

    metric: str
    form: Form
    start: int
    end: int
    place: Place
    function: str
    anchor_start: int = 0
    anchor_end: int = 0
    name: str = ""


@dataclass
class Events:
    """The sites of one source in program order, and the names that it has, for suggestions."""

    sites: list[Site] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)
    recursive: set[str] = field(default_factory=set)  # functions that name themselves
    variables: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)
    callees: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
