"""Finds the events of metrics in a preprocessed source of either language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from instrumenter.find.sites import FoundSites
from instrumenter.spec.software_metrics import MetricSpec


def find_source_events(
    text: bytes, name: str, metrics: Mapping[str, MetricSpec], target: str | None, flags: Sequence[str],
    *, cplusplus: bool,
) -> FoundSites:  # fmt: skip
    """Find the events of ``metrics`` in preprocessed ``text`` of the file ``name``.

    Raises `SourceError` for text that does not parse and for an event that cannot be counted where it happens, and
    `SpecError` for a name that means several functions.
    """
    if cplusplus:
        from instrumenter.find.cplusplus.events import CplusplusFinder

        return CplusplusFinder(text, name, metrics, target, flags).find()
    from instrumenter.find.events import Finder

    return Finder(text, name, metrics, target, flags).find()
