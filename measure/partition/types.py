"""What a partition search asks, hears, and tells: groups, verdicts, oracle, progress. Types only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Group = frozenset[int]
"""Metrics collected together, as indices below n."""

State = Literal["good", "bad", "undecided"]
Proof = Literal["optimal", "optimal among tested", "upper bound"]


@dataclass(frozen=True)
class Verdict:
    """What testing one group showed.

    *good*: shown not to be perturbed, within runs and (when asked for) across them; *bad*: shown to be;
    *undecided*: neither, with all the runs that were allowed. ``reason``: a sentence. ``worst``: the pair that
    decided or, when good, came closest; ``change``: its change of z; ``kind``: "inner" or "outer"; ``runs``:
    instrumented runs that were compared.
    """

    state: State
    reason: str = ""
    worst: tuple[str, str] | None = None
    change: float = float("nan")
    kind: str = ""
    runs: int = 0

    @property
    def good(self) -> bool:
        return self.state == "good"


class Oracle(Protocol):
    """Tests groups; expensive, and not monotone: a subset of a good group may be bad, and the other way round."""

    def test(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict a group, in order; several groups at once so that all processors have work."""
        ...


@dataclass(frozen=True)
class Partition:
    """Groups tested good that together collect ``covered``; a metric may be in several.

    ``uncovered``: metrics that no group tested good collects.
    """

    groups: tuple[Group, ...]
    uncovered: Group

    @property
    def rank(self) -> tuple[int, int]:
        """Smaller is better: more metrics first, then fewer groups."""
        return len(self.uncovered), len(self.groups)


@dataclass(frozen=True)
class Outlook:
    """What more time may bring, honestly.

    ``lower_bound``: no collection of groups has fewer (proved by what was tested). ``attempts``: attempts at a
    better partition since the last one that succeeded; ``chance``: 95% upper limit of the chance that one
    more attempt succeeds, taking attempts as alike (nan before there were any); ``calls_per_attempt``: mean;
    ``untested``: groups that were never tested.
    """

    lower_bound: int
    attempts: int = 0
    chance: float = float("nan")
    calls_per_attempt: float = float("nan")
    untested: int = 1

    def describe(self, proof: Proof) -> str:
        """One sentence."""
        if proof == "optimal":
            return "No fewer groups are possible."
        bound = f"at least {self.lower_bound} group{'s' if self.lower_bound > 1 else ''} needed"
        if not self.untested:
            return f"Every group was tested: only those that are undecided could make a better one; {bound}."
        if not self.attempts:
            return f"Not searched to the end; {bound}."
        return (
            f"{self.attempts} attempts without a better one; the next succeeds with a chance of at most "
            f"{self.chance:.0%} and costs about {self.calls_per_attempt:.1f} tests; {bound}."
        )


@dataclass(frozen=True)
class Progress:
    """How far a search is. ``calls``: groups that the oracle was asked about in this search."""

    best: Partition
    calls: int
    stage: str
    outlook: Outlook
    proof: Proof
