"""Chooses software metrics for the functions and loops where a program's time goes, and counts their events."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from common.yaml_document import YamlDocument
from instrumenter.errors import SourceError, SpecError
from instrumenter.spec.software_metrics import MetricSpec
from measure.campaign.campaign_model import Campaign
from measure.campaign.event_counts import Counts, count_events
from measure.errors import CampaignError
from measure.first_campaign.profile import HotFunction

MOST_FUNCTIONS, MOST_LOOPS = 3, 2
FEWEST_EVENTS = 100
_SMALLEST_SHARE = 0.01
_CANDIDATES = 8
_OPERATOR = re.compile(r"^operator(\W+)$")
_OPERATORS = {
    "()": "call", "[]": "index", "->": "arrow", "+": "plus", "-": "minus", "*": "times", "/": "divide", "%": "modulo",
    "++": "increment", "--": "decrement", "=": "assign", "==": "equal", "!=": "unequal", "<": "less", ">": "greater",
    "<=": "at_most", ">=": "at_least", "<=>": "compare", "<<": "left", ">>": "right", "&": "and", "|": "or",
    "^": "xor", "~": "not", "!": "no", "&&": "both", "||": "either", ",": "comma", "->*": "member",
}  # fmt: skip


@dataclass(frozen=True)
class _Candidate:
    """An event of a function, and the names by which the function can be given, the best one first."""

    function: HotFunction
    event: str
    names: Sequence[str]

    @property
    def spec(self) -> MetricSpec:
        narrowed = {"file": self.function.file} if self.function.namesake else {}
        return MetricSpec.model_validate({"event": self.event, "function": self.names[0], **narrowed})


@dataclass(frozen=True)
class ChosenCounter:
    """A software metric for a hot function: its name, specification and counts in a run."""

    name: str
    spec: MetricSpec
    function: HotFunction
    counts: Counts


def choose_counters(
    campaign: Campaign, document: YamlDocument, functions: Sequence[HotFunction], notify: Callable[[str], None]
) -> list[ChosenCounter]:
    """Entries of the hottest functions, then loops of the hottest ones; those that fire often enough to vary.

    Functions with a small share are candidates only if no other gives a counter, as in a program whose time goes in the
    libraries. Builds the program with all candidates and runs it once. Raises as `count_events`.
    """
    hot = [one for one in functions if one.share >= _SMALLEST_SHARE]
    for candidates in (hot, [one for one in functions if one not in hot]):
        chosen = _choose_among(campaign, document, candidates[:_CANDIDATES], notify)
        if chosen:
            return chosen
    return []


def _choose_among(
    campaign: Campaign, document: YamlDocument, functions: Sequence[HotFunction], notify: Callable[[str], None]
) -> list[ChosenCounter]:
    about: dict[str, _Candidate] = {}
    for function in functions:
        for event, ending in (("entry", "entries"), ("loop", "loops")):
            if function.loops if event == "loop" else function.name != "main":
                names = [name for name in (function.overload, function.name) if name]
                outside = [] if "::" in function.name or function.file.endswith(".c") else [f"::{one}" for one in names]
                candidate = _Candidate(function, event, (*names[:1], *outside[:1], *names[1:], *outside[1:]))
                if all(candidate.spec != one.spec for one in about.values()):
                    about[_metric_name(function.name, ending, about)] = candidate
    counted: dict[str, Counts] = {}
    while about and not counted:
        specs = {name: one.spec for name, one in about.items()}
        try:
            run = count_events(campaign.model_copy(update={"software_metrics": specs}), document, notify)
        except CampaignError as error:
            metric = _refused(error.__cause__, about)
            if metric is None:
                raise
            refused = about[metric].function
            _try_otherwise(metric, about)
            if isinstance(error.__cause__, SourceError) and all(one.function != refused for one in about.values()):
                notify(f"left out: {error.__cause__}")
            continue
        counted = {one.metric: one for one in run.metrics}
    found = [
        ChosenCounter(name, about[name].spec, about[name].function, one)
        for name, one in counted.items()
        if one.events >= FEWEST_EVENTS
    ]
    entries = [one for one in found if one.spec.event == "entry"][:MOST_FUNCTIONS]
    return entries + [one for one in found if one.spec.event == "loop"][:MOST_LOOPS]


def _metric_name(function: str, ending: str, taken: Container[str]) -> str:
    """A name for a metric of a function: the name with that of its class in C++, letters and digits only."""
    parts = [_OPERATOR.sub(_spelled_out, part) for part in function.split("::")[-2:]]
    words = [re.sub(r"\W+", "_", part.replace("~", "end of ")).strip("_") for part in parts]
    name = "_".join(word for word in words if word)
    name = name if re.match(r"[A-Za-z_]", name) else f"function_{name}"
    metric, number = f"{name}_{ending}", 2
    while metric in taken:
        metric, number = f"{name}_{number}_{ending}", number + 1
    return metric


def _spelled_out(operator: re.Match[str]) -> str:
    """``operator_plus_assign`` for ``operator+=``."""
    signs = operator[1]
    whole = _OPERATORS.get(signs) or f"{_OPERATORS.get(signs[:-1], '')}_assign"
    return f"operator_{whole.lstrip('_')}"


def _refused(cause: BaseException | None, about: Mapping[str, _Candidate]) -> str | None:
    """The candidate that the instrumenter refused: a loop in another part of the text, or a function that it does not
    instrument, such as a coroutine. None for other errors."""
    if isinstance(cause, SpecError):
        return cause.metric if cause.metric in about else None
    place = re.match(r"(?P<file>[^:\n]+):(?P<line>\d+): ", str(cause)) if isinstance(cause, SourceError) else None
    if place is None:
        return None
    same = [name for name, one in about.items() if one.function.file == Path(place["file"]).name]
    return min(same, key=lambda name: abs(about[name].function.line - int(place["line"])), default=None)


def _try_otherwise(metric: str, about: dict[str, _Candidate]) -> None:
    """Let a refused candidate count all overloads of its function, if none counts them yet; else take it out."""
    again = replace(about[metric], names=about[metric].names[1:])
    if again.names and all(again.spec != one.spec for one in about.values()):
        about[metric] = again  # in its place among hotter and cooler ones
    else:
        del about[metric]
