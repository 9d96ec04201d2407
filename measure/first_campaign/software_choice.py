"""Chooses software metrics for the functions and loops where a program's time goes, and counts their events."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from common.yaml_document import YamlDocument
from instrumenter.errors import SpecError
from instrumenter.spec.software_metrics import MetricSpec
from measure.campaign.campaign_model import Campaign
from measure.campaign.event_counts import Counts, count_events
from measure.errors import CampaignError
from measure.first_campaign.profile import HotFunction

MOST_FUNCTIONS, MOST_LOOPS = 3, 2
FEWEST_EVENTS = 100
_SMALLEST_SHARE = 0.01
_CANDIDATES = 8


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

    Builds the program with all candidates and runs it once. Raises as `count_events`.
    """
    hot = [one for one in functions if one.share >= _SMALLEST_SHARE and re.fullmatch(r"[A-Za-z_]\w*", one.name)]
    about: dict[str, tuple[HotFunction, MetricSpec]] = {}
    for function in hot[:_CANDIDATES]:
        for event, ending in (("entry", "entries"), ("loop", "loops")):
            name = f"{function.name}_{ending}"
            if (event == "loop" and function.loops) or (event == "entry" and function.name != "main"):
                about.setdefault(
                    name, (function, MetricSpec.model_validate({"event": event, "function": function.name}))
                )
    counted: dict[str, Counts] = {}
    while about and not counted:
        specs = {name: spec for name, (_, spec) in about.items()}
        try:
            run = count_events(campaign.model_copy(update={"software_metrics": specs}), document, notify)
        except CampaignError as error:
            cause = error.__cause__
            if not isinstance(cause, SpecError) or cause.metric not in about:
                raise
            del about[cause.metric]  # a loop in another part of the text, or a function that is not instrumented
            continue
        counted = {one.metric: one for one in run.metrics}
    found = [
        ChosenCounter(name, about[name][1], about[name][0], one)
        for name, one in counted.items()
        if one.events >= FEWEST_EVENTS
    ]
    entries = [one for one in found if one.spec.event == "entry"][:MOST_FUNCTIONS]
    return entries + [one for one in found if one.spec.event == "loop"][:MOST_LOOPS]
