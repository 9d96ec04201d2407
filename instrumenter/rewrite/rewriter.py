"""Writes counters into preprocessed C and C++, by byte-offset edits at the sites that `instrumenter.find` finds.

All other text stays unchanged, line markers included: insertions contain no line break, but for one line before the
text. Expressions become ``(count, expression)``, statements ``{count; statement}``, conditions
``((condition) ? (count, 1) : 0)``: the program's values, evaluation order and lines do not change. A count comes
before its event: before the arguments of a call, the right-hand side of a write, the value of a return.
longjmp leaves functions without passing their exits.

In C++, exits are counted by a variable at the start of the function whose cleanup counts: the value of a return and
the destructors of local variables come before it, and leaving by an exception counts, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from instrumenter.errors import SpecError
from instrumenter.find.expressions import check_expressions
from instrumenter.find.find import find_source_events
from instrumenter.find.sites import Form, FoundSites, Site
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
    text = preprocessed.encode("utf-8", "surrogateescape")
    events = find_source_events(text, name, metrics, target, flags, cplusplus=cplusplus)
    if not events.sites:
        return Rewritten(preprocessed, events)
    edits = Edits()
    for body, metric in dict.fromkeys((site.body, site.metric) for site in events.sites if site.metric in layout.local):
        if body < 0:
            raise SpecError(
                f"metric '{metric}': a counter with `local: true` cannot count what a constructor does before its body",
                metric,
            )
        edits.insert(body, layout.local_declaration(metric))
    leaving: list[tuple[str, ...]] = []
    stand_ins: dict[tuple[str, tuple[str, ...]], str] = {}
    for (form, start, end), group in groupby(_together(events.sites), key=_where):
        sites = list(group)
        if form is Form.LEAVING:
            for _, same in groupby(sites, key=lambda site: site.condition):
                _count_leaving(edits, list(same), layout, leaving)
        else:
            _edit(edits, form, start, end, sites, metrics, layout, stand_ins, cplusplus)
    head = [layout.declaration(cplusplus=cplusplus, leaving=leaving)]
    for (allocator, counted), stand_in in stand_ins.items():
        head.append(allocator_stand_in(stand_in, allocator, layout, counted))
    changed = edits.apply(text)
    marker = b"" if changed.startswith(b"# ") else f'# 1 "{name}"\n'.encode("utf-8", "surrogateescape")
    whole = " ".join(head).encode() + b"\n" + marker + changed
    adding = {site.function for site in events.sites if metrics[site.metric].add is not None}
    if adding:
        in_order = {metric: metrics[metric] for metric in layout.metrics}
        check_expressions(whole, name, in_order, adding, target, flags, cplusplus=cplusplus)
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
    count = layout.bump(site.metric, metrics[site.metric].add)
    if not cplusplus:
        return count
    condition = _condition(site)
    return f"({condition} ? (void)({count}) : (void)0)" if condition else f"(void)({count})"


def _condition(site: Site) -> str:
    conditions = ["!__builtin_is_constant_evaluated()"] * site.constant
    if site.condition:
        conditions.append(f"({site.condition})")
    return " && ".join(conditions)


def _count_leaving(edits: Edits, sites: Sequence[Site], layout: CounterLayout, leaving: list[tuple[str, ...]]) -> None:
    """Add the variable whose cleanup counts when the function is left, by return or by exception."""
    counts = tuple(layout.bump_shared(site.metric) for site in sites)
    if counts not in leaving:
        leaving.append(counts)
    number = leaving.index(counts)
    edits.insert(
        sites[0].start,
        f" unsigned char __measure_leaving{number} __attribute__((cleanup(__measure_left{number}), unused)) = "
        f"({_condition(sites[0]) or 'true'});",
    )
