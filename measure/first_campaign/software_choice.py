"""Chooses software metrics for the functions and loops where a program's time goes, and counts their events."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from common.yaml_document import YamlDocument
from instrumenter.errors import SourceError, SpecError
from instrumenter.spec.software_metrics import MetricSpec
from measure.campaign.event_counts import Counts, count_events, counting_program
from measure.errors import CampaignError
from measure.first_campaign.profile import HotFunction
from measure.first_campaign.trial_run import counter_findings
from measure.perturbation.uninformative_metrics import MetricFinding
from measure.run_types import IntervalUnit
from measure.runs.campaign_model import Campaign

MOST_FUNCTIONS, MOST_LOOPS = 3, 2
FEWEST_EVENTS = 100
_SMALLEST_SHARE = 0.01
_INSTRUCTIONS_OF_A_COUNT = 4  # address, load, add and store of a counter, where nothing was measured
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


@dataclass(frozen=True)
class Choice:
    """``counters``: the chosen ones; ``left_out``: what was found about candidates that vary too little from record to
    record; ``steady``: findings about chosen counters that vary as little, where no
    counter varies more; ``instructions_an_event``: that the counters of all candidates added together, None if they
    added none, as where the compiler made shorter code around them; ``notices``: about the program with them, see
    `Build`; ``starts_tasks``: whether the program starts threads or processes."""

    counters: tuple[ChosenCounter, ...] = ()
    left_out: tuple[MetricFinding, ...] = ()
    steady: tuple[MetricFinding, ...] = ()
    instructions_an_event: float | None = None
    notices: tuple[str, ...] = ()
    starts_tasks: bool = False

    def added_percent(self, counter: ChosenCounter, instructions: int) -> float:
        """About how many instructions ``counter`` adds, in percent of the ``instructions`` of the plain program."""
        an_event = self.instructions_an_event or _INSTRUCTIONS_OF_A_COUNT
        return 100 * an_event * counter.counts.events / instructions


@dataclass(frozen=True)
class _Counted:
    """``counters``: candidates that fire often enough; ``poor``: what is wrong with some of them; and as `Choice`."""

    counters: list[ChosenCounter]
    poor: dict[str, MetricFinding]
    instructions_an_event: float | None = None
    notices: tuple[str, ...] = ()
    starts_tasks: bool = False


def choose_counters(
    campaign: Campaign,
    document: YamlDocument,
    functions: Sequence[HotFunction],
    every: int,
    unit: IntervalUnit,
    notify: Callable[[str], None],
    instructions: int,
) -> Choice:
    """Entries of the hottest functions, then loops of the hottest ones; those that fire often enough and vary from
    record to record of ``every`` cycles or instructions.

    Functions with a small share are candidates only if no other gives such a counter, as in a program whose time goes
    in the libraries; all are built and counted at once, since building a project can take minutes. Builds the program
    with all candidates, runs it once, and once more on the timing model. ``instructions``: of the plain program.
    Raises as `count_events`.
    """
    hot = [one for one in functions if one.share >= _SMALLEST_SHARE]
    others = [one for one in functions if one not in hot]
    candidates = hot[:_CANDIDATES] + others[:_CANDIDATES]
    counted = _count(campaign, document, candidates, every, unit, notify, instructions)
    found, poor, cost = counted.counters, counted.poor, counted.instructions_an_event
    left_out = tuple(poor.values())
    for group in (hot, others):
        chosen = _hottest([one for one in found if one.function in group and one.name not in poor])
        if chosen:
            return Choice(tuple(chosen), left_out, (), cost, counted.notices, counted.starts_tasks)
    of_hot = [one for one in found if one.function in hot] or found
    least_tied = _hottest(sorted(of_hot, key=lambda one: poor[one.name].share))
    steady = tuple(poor[one.name] for one in least_tied)
    varying = tuple(one for one in left_out if one not in steady)
    return Choice(tuple(least_tied), varying, steady, cost, counted.notices, counted.starts_tasks)


def _hottest(counters: Sequence[ChosenCounter]) -> list[ChosenCounter]:
    """Entries, then loops, as many of both as a campaign gets, in this order."""
    entries = [one for one in counters if one.spec.event == "entry"][:MOST_FUNCTIONS]
    return entries + [one for one in counters if one.spec.event == "loop"][:MOST_LOOPS]


def _count(
    campaign: Campaign,
    document: YamlDocument,
    functions: Sequence[HotFunction],
    every: int,
    unit: IntervalUnit,
    notify: Callable[[str], None],
    instructions: int,
) -> _Counted:
    """Counters of ``functions``, in this order. ``instructions``: of the plain program."""
    about: dict[str, _Candidate] = {}
    for function in functions:
        for event, ending in (("entry", "entries"), ("loop", "loops")):
            if function.loops if event == "loop" else function.name != "main":
                names = [name for name in (function.overload, function.name) if name]
                outside = [] if "::" in function.name or function.file.endswith(".c") else [f"::{one}" for one in names]
                candidate = _Candidate(function, event, (*names[:1], *outside[:1], *names[1:], *outside[1:]))
                if all(candidate.spec != one.spec for one in about.values()):
                    about[_metric_name(function.name, ending, about)] = candidate
    while about:
        draft = campaign.model_copy(update={"software_metrics": {name: one.spec for name, one in about.items()}})
        try:
            counts = count_events(draft, document, notify)
        except CampaignError as error:
            metrics = _refused(error.__cause__, about)
            if not metrics:
                raise
            for metric in metrics:
                refused = about[metric].function
                _try_otherwise(metric, about)
                if isinstance(error.__cause__, SourceError) and all(one.function != refused for one in about.values()):
                    notify(f"left out: {error.__cause__}")
            continue
        found = [
            ChosenCounter(one.metric, about[one.metric].spec, about[one.metric].function, one)
            for one in counts.metrics
            if one.events >= FEWEST_EVENTS
        ]
        poor = counter_findings(draft, counting_program(draft, document)[0], every, unit) if found else {}
        events = sum(one.events for one in counts.metrics)
        cost = (counts.instructions - instructions) / events if events else 0.0
        of_found = {one.name: poor[one.name] for one in found if one.name in poor}
        return _Counted(found, of_found, cost if cost > 0 else None, counts.notices, counts.starts_tasks)
    return _Counted([], {})


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


def _refused(cause: BaseException | None, about: Mapping[str, _Candidate]) -> list[str]:
    """The candidates that the instrumenter refused: loops in another part of the text, or a function that it does not
    instrument, such as a coroutine. Empty for other errors."""
    if isinstance(cause, SpecError):
        return [metric for metric in (cause.metric, *cause.others) if metric is not None and metric in about]
    if not isinstance(cause, SourceError) or cause.place is None:
        return []
    file, line = cause.place
    same = [name for name, one in about.items() if Path(one.function.file).name == Path(file).name]
    return sorted(same, key=lambda name: abs(about[name].function.line - line))[:1]


def _try_otherwise(metric: str, about: dict[str, _Candidate]) -> None:
    """Let a refused candidate count all overloads of its function, if none counts them yet; else take it out."""
    again = replace(about[metric], names=about[metric].names[1:])
    if again.names and all(again.spec != one.spec for one in about.values()):
        about[metric] = again  # in its place among hotter and cooler ones
    else:
        del about[metric]
