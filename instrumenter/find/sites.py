"""Sites: the places of a program text at which metrics count; and the names and warnings found with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from instrumenter.find.line_markers import Place

LIBRARY_ALLOCATIONS = "allocations inside the C++ library, such as those of its containers and strings, are not counted"
"""What users are told of metrics that count allocations in C++."""


Meant = dict[tuple[str, str], set[str]]
"""In C++, the qualified names that a name of a metric means, by metric and key of its specification."""


class Form(Enum):
    """How the text at a site can be changed to count."""

    EXPRESSION = "before the value of the expression [start, end)"
    STATEMENT = "before the statement [start, end)"
    POINT = "at offset start, between statements"
    CONDITION = "when the condition [start, end) is true"
    SHORT_CONDITION = "when the operand [start, end) of `?:` without a middle is true"
    LEAVING = "when the function whose body begins before offset start is left, in C++ by an exception, too"
    TAIL_CALL = "before the call [start, end), after which the function has only to return: in the place of LEAVING"
    CALLEE = "in a function that stands in for the callee [start, end)"


@dataclass(frozen=True)
class Site:
    """One place at which a metric counts.

    ``start``, ``end``: byte offsets in the preprocessed text. ``probed_start``, ``probed_end``: where a probe may be
    put, the text whose machine code runs exactly once per event; both equal: unknown. ``name``: the allocator, for
    `Form.CALLEE`; ``body``: where declarations may begin in the body of the function, -1 where there is none.
    ``condition``: a C++ condition for one instance of a template; ``constant``: the compiler may evaluate the function,
    which does not count. ``shared``: it counts in the counter itself, for the function cannot hold a local one that is
    added when it is left. ``function`` is a key of `FoundSites.bodies` in C++.
    """

    metric: str
    form: Form
    start: int
    end: int
    place: Place
    function: str
    probed_start: int = 0
    probed_end: int = 0
    name: str = ""
    body: int = 0
    condition: str = ""
    constant: bool = False
    shared: bool = False


@dataclass
class FoundSites:
    """The sites of one source in program order, and the names in it, for suggestions."""

    sites: list[Site] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)
    recursive: set[str] = field(default_factory=set)  # functions that name themselves
    variables: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)
    callees: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    allocates_in_headers: bool = False  # C++: the library's containers are included
    meant: Meant = field(default_factory=dict)
