"""Which of the counters of hot functions a first campaign takes."""

from __future__ import annotations

from instrumenter.spec.software_metrics import MetricSpec
from measure.campaign.event_counts import Counts
from measure.first_campaign.profile import HotFunction
from measure.first_campaign.software_choice import ChosenCounter, _hottest


def test_of_counters_with_one_number_of_events_the_first_is_taken() -> None:
    def counter(name: str, event: str, events: int) -> ChosenCounter:
        function = HotFunction(name, None, False, "a.c", 1, 0.1, 1, loops=True)
        spec = MetricSpec.model_validate({"event": event, "function": name})
        return ChosenCounter(f"{name}_{event}", spec, function, Counts(name, "", events, events, False, 1, {}))

    found = [
        counter("caller", "entry", 4_432_780), counter("called", "entry", 4_432_780), counter("other", "entry", 900),
        counter("other", "loop", 4_432_780), counter("third", "loop", 901),
    ]  # fmt: skip
    assert [one.name for one in _hottest(found)] == ["caller_entry", "other_entry", "third_loop"]
