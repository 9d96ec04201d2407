"""Groups the findings of a report by what they are about, so that a list names it once and not in each sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from measure.report.model import VariantReport
from measure.report.next_steps import NEXT


@dataclass(frozen=True)
class FindingGroup:
    """Sentences under one heading: a variant and where it was compared; empty for those about the whole campaign."""

    heading: str
    sentences: tuple[str, ...]


def grouped(findings: Sequence[str], variants: Sequence[VariantReport]) -> list[FindingGroup]:
    """The findings by heading, in the order of each heading's first; then those without; then what to do next.

    What is said of every comparison stands once, among those without a heading.
    """
    headings = [
        variant.heading(compared)
        for variant in variants
        for compared in (variant.inner, variant.outer_held_out)
        if compared is not None
    ]
    sentences: dict[str, list[str]] = {}
    others: list[str] = []
    for finding in findings:
        # Of two names of which one begins with the other, the longer one is meant.
        heading = max((one for one in headings if finding.startswith(f"{one}: ")), key=len, default="")
        if heading:
            sentences.setdefault(heading, []).append(finding[len(heading) + 2 :])
        else:
            others.append(finding)
    common = [text for text in next(iter(sentences.values()), ()) if all(text in one for one in sentences.values())]
    if len(headings) == len(sentences) > 1:
        for found in sentences.values():
            found[:] = [text for text in found if text not in common]
        others[:0] = [f"Every comparison: {text}" for text in common]
    others.sort(key=lambda finding: finding.startswith(NEXT))
    groups = [FindingGroup(heading, tuple(found)) for heading, found in sentences.items() if found]
    return [*groups, FindingGroup("", tuple(others))] if others else groups
