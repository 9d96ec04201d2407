"""Groups the findings of a report by what they are about, so that a list names it once and not in each sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from measure.perturbation.finding import Finding
from measure.report.model import VariantReport


@dataclass(frozen=True)
class FindingGroup:
    """Findings under one heading: a variant and where it was compared; empty for those about the whole campaign."""

    heading: str
    findings: tuple[Finding, ...]

    def sentences(self, results: str = "") -> tuple[str, ...]:
        """The findings as text below the heading. ``results``: as for `Finding.text_in`."""
        return tuple(one.sentence_in(results) if self.heading else one.text_in(results) for one in self.findings)


def grouped(findings: Sequence[Finding], variants: Sequence[VariantReport]) -> list[FindingGroup]:
    """The findings by comparison, in the order of each one's first; then the others; then what to do next.

    What is said of every comparison stands once, among those without a heading.
    """
    comparisons = sum(1 if variant.outer_held_out is None else 2 for variant in variants)
    of_comparisons: dict[str, list[Finding]] = {}
    others: list[Finding] = []
    for finding in findings:
        (of_comparisons.setdefault(finding.heading, []) if finding.of_comparison else others).append(finding)
    if comparisons == len(of_comparisons) > 1:
        first, *further = ([one.sentence for one in found] for found in of_comparisons.values())
        common = [sentence for sentence in first if all(sentence in one for one in further)]
        for found in of_comparisons.values():
            found[:] = [one for one in found if one.sentence not in common]
        others[:0] = [Finding(sentence, heading="Every comparison") for sentence in common]
    others.sort(key=lambda finding: finding.kind == "next")
    groups = [FindingGroup(heading, tuple(found)) for heading, found in of_comparisons.items() if found]
    return [*groups, FindingGroup("", tuple(others))] if others else groups
