"""Writes counters into preprocessed C, by byte-offset edits at the sites that `instrumenter.find.events` finds.

All other text stays unchanged, line markers included: insertions contain no line break, but for one line before the
text. Expressions become ``(count, expression)``, statements ``{count; statement}``, conditions
``((condition) ? (count, 1) : 0)``: the program's values, evaluation order and lines do not change. A count comes
before its event: before the arguments of a call, the right-hand side of a write, the value of a return.
longjmp leaves functions without passing their exits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from instrumenter.find.events import find_events
from instrumenter.find.expressions import check_expressions
from instrumenter.find.sites import Form, FoundSites, Site
from instrumenter.rewrite.counter_layout import CounterLayout, allocator_stand_in
from instrumenter.rewrite.edits import Edits
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
) -> Rewritten:
    """Instrument one preprocessed source. Without metrics the text is returned unchanged.

    ``target``, ``flags``: of the later compilation. Raises `SourceError` for text that does not parse or cannot hold a
    counter, and `SpecError` for an ``add`` expression that is not valid where its event happens.
    """
    if not metrics:
        return Rewritten(preprocessed, FoundSites())
    text = preprocessed.encode("utf-8", "surrogateescape")
    events = find_events(text, name, metrics, target, flags)
    if not events.sites:
        return Rewritten(preprocessed, events)
    edits = Edits()
    for body, metric in dict.fromkeys((site.body, site.metric) for site in events.sites if site.metric in layout.local):
        edits.insert(body, layout.local_declaration(metric))
    stand_ins: dict[tuple[str, tuple[str, ...]], str] = {}
    for (form, start, end), group in groupby(_together(events.sites), key=_where):
        _edit(edits, form, start, end, list(group), metrics, layout, stand_ins)
    head = [layout.declaration()]
    for (allocator, counted), stand_in in stand_ins.items():
        head.append(allocator_stand_in(stand_in, allocator, [layout.lvalue(metric) for metric in counted]))
    changed = edits.apply(text)
    marker = b"" if changed.startswith(b"# ") else f'# 1 "{name}"\n'.encode("utf-8", "surrogateescape")
    whole = " ".join(head).encode() + b"\n" + marker + changed
    adding = {site.function for site in events.sites if metrics[site.metric].add is not None}
    if adding:
        in_order = {metric: metrics[metric] for metric in layout.metrics}
        check_expressions(whole, name, in_order, adding, target, flags)
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
) -> None:
    """Add the edits of the sites with one form and text; ``stand_ins``: names of functions that replace allocators."""
    if form is Form.CALLEE:
        key = (sites[0].name, tuple(site.metric for site in sites))
        edits.replace(start, end, stand_ins.setdefault(key, f"__measure_{sites[0].name}{len(stand_ins)}"))
        return
    count = ", ".join(layout.bump(site.metric, metrics[site.metric].add) for site in sites)
    if form is Form.POINT:
        edits.insert(start, f" {count};")
    elif form is Form.STATEMENT:
        edits.wrap(start, end, f"{{{count}; ", "}")
    elif form is Form.EXPRESSION:
        edits.wrap(start, end, f"({count}, ", ")")
    elif form is Form.CONDITION:
        edits.wrap(start, end, "((", f") ? ({count}, 1) : 0)")
    else:
        edits.wrap(
            start, end, "({ __auto_type __measure_value = (",
            f"); if (__measure_value) {{ {count}; }} __measure_value; }})",
        )  # fmt: skip
