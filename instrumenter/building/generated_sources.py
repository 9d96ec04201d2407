"""Makes the instrumented text of a program's sources: preprocessed, with a counter at each site of a metric."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from common.suggestions import nearest
from instrumenter.compiler.left_out_flags import notices_about_flags
from instrumenter.compiler.toolchain import GUEST_TARGET, Toolchain
from instrumenter.errors import SourceError, SpecError
from instrumenter.find.sites import LIBRARY_ALLOCATIONS, FoundSites, Meant
from instrumenter.languages import generated_ending, is_cplusplus
from instrumenter.rewrite.rewriter import rewrite
from instrumenter.spec.counter_layout import CounterLayout, Placement
from instrumenter.spec.software_metrics import MetricSpec

MOST_NAMED_SOURCES = 6  # in a message


@dataclass(frozen=True)
class Generated:
    """The C files of a build by name, with the sites of the instrumentation; ``warnings``, ``notices``: see `Build`."""

    files: dict[str, str]
    layout: CounterLayout
    sites: dict[str, int]
    warnings: tuple[str, ...] = ()
    places: dict[str, dict[str, int]] = field(default_factory=dict)
    notices: tuple[str, ...] = ()


def preprocess_all(sources: Sequence[Path], flags: Sequence[str], toolchain: Toolchain) -> dict[Path, str]:
    """Each source after the preprocessor. Raises `SourceError`."""
    if not sources:
        raise SourceError("no source files given, expected at least one")
    return {Path(source): toolchain.preprocess(Path(source), flags) for source in sources}


_LINE_MARKER = re.compile(r"#(?:line)? \d+ ")
_SOURCE_PATH = re.compile(r'"/[^"\n]*/([^"/\n]+\.(?:[ch](?:c|h|pp|xx|\+\+)?|inc|ipp|tcc))"')  # as __FILE__ has it


def without_places(preprocessed: str) -> str:
    """The text of a source after the preprocessor, without the folders that it and its headers lie in, and without
    empty lines, which are left of comments."""
    lines = (line.rstrip() for line in preprocessed.splitlines())
    kept = (line for line in lines if line and not _LINE_MARKER.match(line))
    return _SOURCE_PATH.sub(r'"\1"', "\n".join(kept))


def generate(
    preprocessed: Mapping[Path, str],
    flags: Sequence[str],
    metrics: Mapping[str, MetricSpec],
    *,
    placement: Placement = "packed",
    volatile: bool = True,
    atomic: bool = False,
    target: str | None = GUEST_TARGET,
) -> Generated:
    """The instrumented sources as text; writes nothing. Raises `SourceError` and `SpecError`."""
    layout = CounterLayout.of(metrics, placement, volatile, atomic)
    results = {
        source: rewrite(text, str(source), metrics, layout, target, flags, cplusplus=is_cplusplus(source))
        for source, text in preprocessed.items()
    }
    check_one_meaning((str(source), result.events.meant) for source, result in results.items())
    sites = {metric: sum(each.count_sites(metric) for each in results.values()) for metric in metrics}
    for metric, spec in metrics.items():
        if not sites[metric]:
            events = {str(source): result.events for source, result in results.items()}
            raise SpecError(explain_no_events(metric, spec, events), metric)
    files = {
        f"{n}_{source.stem}{generated_ending(source)}": result.text
        for n, (source, result) in enumerate(results.items())
    }
    if metrics:
        files["measure_counters.c"] = layout.definition()
    warnings = dict.fromkeys(warning for result in results.values() for warning in result.events.warnings)
    places: dict[str, dict[str, int]] = {metric: {} for metric in metrics}
    for metric, result in product(metrics, results.values()):
        add_places(places[metric], result.places(metric))
    return Generated(files, layout, sites, tuple(warnings), places, tuple(notices_about_flags(flags, target)))


def check_one_meaning(meant_in: Iterable[tuple[str, Meant]]) -> None:
    """Raise `SpecError` if a name in a metric means different C++ functions in different sources.

    ``meant_in``: pairs of a source's name and what the names mean there.
    """
    meant: dict[tuple[str, str], dict[str, str]] = {}
    for source, in_source in meant_in:
        for where, names in in_source.items():
            meant.setdefault(where, {}).update(dict.fromkeys(names, source))
    for (metric, key), found in meant.items():
        if len(found) > 1:
            listed = ", ".join(f"{name} ({source})" for name, source in sorted(found.items()))
            outside = next((f", which is '::{name}' for {name} itself" for name in found if "::" not in name), "")
            raise SpecError(
                f"metric '{metric}': its {key} may be any of {listed}: give the qualified name{outside}", metric
            )


def add_places(total: dict[str, int], more: Mapping[str, int]) -> None:
    """Add the sites of another source to ``total``, by ``file:line``; both sources may include the same header."""
    for place, number in more.items():
        total[place] = total.get(place, 0) + number


def explain_no_events(metric: str, spec: MetricSpec, events_of: Mapping[str, FoundSites]) -> str:
    """Why a metric has no event: an unknown name, with the nearest one, or an event that no line has.

    ``events_of``: the events and names of each source, by the source's name.
    """
    few = len(events_of) <= MOST_NAMED_SOURCES
    where = ", ".join(events_of) if few else f"the program's {len(events_of)} sources"
    events = list(events_of.values())
    names_of = {
        "function": set().union(*(e.functions for e in events)),
        "callee": set().union(*(e.callees for e in events)),
        "variable": set().union(*(e.variables for e in events)),
        "field": set().union(*(e.fields for e in events)),
    }
    files = {Path(file).name for e in events for file in e.files}
    if spec.file is not None and Path(spec.file).name not in files:
        return f"metric '{metric}': no functions come from a file '{spec.file}'{nearest(spec.file, files, most=3)}"
    for key, names in names_of.items():
        value = getattr(spec, key)
        if value is None or value.rpartition(".")[2] in names or _names_one(value, names):
            continue
        if key == "function" and (value in names_of["callee"] or _names_one(value, names_of["callee"])):
            return (
                f"metric '{metric}': function '{value}' is declared but has no body in {where}; "
                f"its calls can be counted: {{event: call, callee: {value}}}"
            )
        return f"metric '{metric}': no {key} '{value}' in {where}{nearest(value, names, most=3)}"
    warned = next(
        (f", but {warning}" for e in events for warning in e.warnings if f"metric '{metric}': " in warning), ""
    )
    warned = warned.replace(f"metric '{metric}': ", "")
    if spec.event == "write" and spec.variable and spec.function is None:
        return (
            f"metric '{metric}': nothing writes a global or static variable '{spec.variable}' by name in {where}"
            f"{warned or '; for a local variable say in which `function:`'}"
        )
    none = f"metric '{metric}': no line of {where} has its event ({spec.describe()})"
    if spec.event in ("alloc", "alloc_bytes") and any(e.allocates_in_headers for e in events):
        return f"{none}; {LIBRARY_ALLOCATIONS}"
    return f"{none}{warned or '; nothing to count'}"


def _names_one(value: str, names: set[str]) -> bool:
    """Whether a metric's name means one of these qualified C++ names."""
    from instrumenter.spec.cplusplus_names import read_name

    wanted = read_name(value.replace(".", "::"))
    return any(wanted.matches_parts(tuple(name.split("::"))) for name in names)
