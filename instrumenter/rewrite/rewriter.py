"""Writes counters into preprocessed C and C++, by byte-offset edits at the sites that `instrumenter.find` finds.

All other text stays unchanged, line markers included: insertions contain no line break, but for one line before the
text. Expressions become ``(count, expression)``, statements ``{count; statement}``, conditions
``((condition) ? (count, 1) : 0)``: the program's values, evaluation order and lines do not change. A count comes
before its event: before the arguments of a call, the right-hand side of a write.

Exits are counted by a variable at the start of the function whose cleanup counts: the value of a return and the
destructors of local variables come before it. longjmp leaves functions without that; leaving by an exception counts.
Where a function returns by a call that may get back to it, it counts before that call and clears the variable, so that
optimised code can still jump there. An expression to add is evaluated before the value of the return.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from instrumenter.errors import SpecError
from instrumenter.find.expressions import check_expressions
from instrumenter.find.find import find_source_events
from instrumenter.find.sites import Form, FoundSites, Site
from instrumenter.large_stack import on_large_stack
from instrumenter.rewrite.edits import Edits
from instrumenter.spec.counter_layout import CounterLayout, allocator_stand_in
from instrumenter.spec.software_metrics import MetricSpec


@dataclass(frozen=True)
class Rewritten:
    """One source with its counters, and its events."""

    text: str
    events: FoundSites

    def count_sites(self, metric: str) -> int:
        """Number of places at which a metric counts."""
        return sum(site.metric == metric for site in self.events.sites)

    def places(self, metric: str) -> dict[str, int]:
        """``file:line`` of each place at which a metric counts, and the number of its sites there."""
        return dict(Counter(str(site.place) for site in self.events.sites if site.metric == metric))


def rewrite(
    preprocessed: str,
    name: str,
    metrics: Mapping[str, MetricSpec],
    layout: CounterLayout,
    target: str | None,
    flags: Sequence[str] = (),
    *,
    cplusplus: bool = False,
) -> Rewritten:
    """Instrument one preprocessed source. Without metrics the text is returned unchanged.

    ``target``, ``flags``: of the later compilation; ``cplusplus``: the text is C++. Raises `SourceError` for text that
    does not parse or cannot hold a counter, and `SpecError` for an ``add`` expression that is not valid where its event
    happens.
    """
    if not metrics:
        return Rewritten(preprocessed, FoundSites())
    return on_large_stack(lambda: _rewritten(preprocessed, name, metrics, layout, target, flags, cplusplus))


def _rewritten(
    preprocessed: str, name: str, metrics: Mapping[str, MetricSpec], layout: CounterLayout, target: str | None,
    flags: Sequence[str], cplusplus: bool,
) -> Rewritten:  # fmt: skip
    """As `rewrite`, with metrics, on the stack of the caller."""
    text = preprocessed.encode("utf-8", "surrogateescape")
    events = find_source_events(text, name, metrics, target, flags, cplusplus=cplusplus)
    if not events.sites:
        return Rewritten(preprocessed, events)
    edits = Edits()
    at_bodies = [(site.body, site.metric) for site in events.sites if site.form is not Form.LEAVING and not site.shared]
    for body, metric in dict.fromkeys(place for place in at_bodies if place[1] in layout.local):
        if body < 0:
            raise SpecError(
                f"metric '{metric}': a counter with `local: true` cannot count what a constructor does before its "
                "body, what initialisers do outside of functions, or what happens in the handlers of a function whose "
                "body is a `try`",
                metric,
            )
        edits.insert(body, layout.local_declaration(metric))
    leaving = _Leaving(edits, layout)
    stand_ins: dict[tuple[str, tuple[str, ...]], str] = {}
    for (form, start, end), group in groupby(_together(events.sites), key=_where):
        sites = list(group)
        if form is Form.LEAVING:
            for _, same in groupby(sites, key=lambda site: site.condition):
                leaving.declare(list(same), "true" if cplusplus else "1")
        elif form is Form.TAIL_CALL:
            leaving.count_before(sites)
        else:
            _edit(edits, form, start, end, sites, metrics, layout, stand_ins, cplusplus)
    head = [layout.declaration(cplusplus=cplusplus, leaving=leaving.counts)]
    for (allocator, counted), stand_in in stand_ins.items():
        head.append(allocator_stand_in(stand_in, allocator, layout, counted))
    changed = edits.apply(text)
    marker = b"" if changed.startswith(b"# ") else f'# 1 "{name}"\n'.encode("utf-8", "surrogateescape")
    whole = " ".join(head).encode() + b"\n" + marker + changed
    adding = {site.function for site in events.sites if metrics[site.metric].add is not None}
    if adding:
        in_order = {metric: metrics[metric] for metric in layout.metrics}
        events.warnings += check_expressions(whole, name, in_order, adding, target, flags, cplusplus=cplusplus)
    return Rewritten(whole.decode("utf-8", "surrogateescape"), events)


def _where(site: Site) -> tuple[Form, int, int]:
    return site.form, site.start, site.end


def _together(sites: Iterable[Site]) -> list[Site]:
    """The sites, with those of the same text and form side by side, else in their original order."""
    groups: dict[tuple[Form, int, int], list[Site]] = {}
    for site in sites:
        groups.setdefault(_where(site), []).append(site)
    return [site for group in groups.values() for site in group]


def _edit(
    edits: Edits,
    form: Form,
    start: int,
    end: int,
    sites: Sequence[Site],
    metrics: Mapping[str, MetricSpec],
    layout: CounterLayout,
    stand_ins: dict[tuple[str, tuple[str, ...]], str],
    cplusplus: bool,
) -> None:
    """Add the edits of the sites with one form and text; ``stand_ins``: names of functions that replace allocators."""
    if form is Form.CALLEE:
        key = (sites[0].name, tuple(site.metric for site in sites))
        edits.replace(start, end, stand_ins.setdefault(key, f"__measure_{sites[0].name}{len(stand_ins)}"))
        return
    count = ", ".join(_count(site, metrics, layout, cplusplus) for site in sites)
    one = "true" if cplusplus else "1"
    if form is Form.POINT:
        edits.insert(start, f" {count};")
    elif form is Form.STATEMENT:
        edits.wrap(start, end, f"{{{count}; ", "}")
    elif form is Form.EXPRESSION:
        edits.wrap(start, end, f"({count}, ", ")")
    elif form is Form.CONDITION:
        edits.wrap(start, end, "((", f") ? ({count}, {one}) : {'false' if cplusplus else '0'})")
    else:
        kind = "auto" if cplusplus else "__auto_type"
        edits.wrap(
            start, end, f"({{ {kind} __measure_value = (",
            f"); if (__measure_value) {{ {count}; }} __measure_value; }})",
        )  # fmt: skip


def _count(site: Site, metrics: Mapping[str, MetricSpec], layout: CounterLayout, cplusplus: bool) -> str:
    """The expression that counts at a site.

    In C++ it is void, so that no comma operator of the program applies to it.
    """
    count = (layout.bump_shared if site.shared else layout.bump)(site.metric, metrics[site.metric].add)
    if not cplusplus:
        return count
    condition = _condition(site)
    return f"({condition} ? (void)({count}) : (void)0)" if condition else f"(void)({count})"


def _condition(site: Site) -> str:
    conditions = ["!__builtin_is_constant_evaluated()"] * site.constant
    if site.condition:
        conditions.append(f"({site.condition})")
    return " && ".join(conditions)


@dataclass
class _Leaving:
    """Writes the variables whose cleanups count when functions are left, by return or by exception.

    ``counts``: what is counted together, by the number of the cleanup.
    """

    edits: Edits
    layout: CounterLayout
    counts: list[tuple[str, ...]] = field(default_factory=list)
    _numbers: dict[tuple[int, str], int] = field(default_factory=dict)  # by body and metric

    def declare(self, sites: Sequence[Site], always: str) -> None:
        """Add the variable of one function for sites with one condition, which is ``always`` where they have none."""
        counts = tuple(self.layout.bump_shared(site.metric, None) for site in sites)
        if counts not in self.counts:
            self.counts.append(counts)
        number = self.counts.index(counts)
        self._numbers.update({(site.body, site.metric): number for site in sites})
        self.edits.insert(
            sites[0].start,
            f" unsigned char __measure_leaving{number} __attribute__((cleanup(__measure_left{number}), unused)) = "
            f"({_condition(sites[0]) or always});",
        )

    def count_before(self, sites: Sequence[Site]) -> None:
        """Count before a call by which the function returns, and not again when it is left."""
        early = "".join(
            f"__measure_leaving{number} ? __measure_left{number}(&__measure_leaving{number}), "
            f"(void)(__measure_leaving{number} = 0) : (void)0, "
            for number in dict.fromkeys(self._numbers[site.body, site.metric] for site in sites)
        )
        self.edits.wrap(sites[0].start, sites[0].end, f"({early}", ")")
