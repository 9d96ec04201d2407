"""Types of a partition search: groups, verdicts, oracle, progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Group = frozenset[int]
"""Metrics collected together, as indices below n."""

State = Literal["good", "bad", "undecided", "not assessable"]
Proof = Literal["optimal", "optimal among tested", "upper bound"]


@dataclass(frozen=True)
class GroupVerdict:
    """The result of testing one group.

    *good*: shown not to be perturbed, within runs and (when requested) across them; *bad*: shown to be perturbed;
    *undecided*: neither, with all the runs that were allowed; *not assessable*: neither, with any number of runs.
    ``reason``: a sentence. ``worst``: the pair that
    decided or, for a good group, came closest to the limit; ``change``: its change of z; ``kind``: "inner" or
    "outer"; ``runs``: instrumented runs that were compared.
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

    def test(self, groups: Sequence[Group]) -> list[GroupVerdict]:
        """One verdict per group, in order; several groups at once, so that all processors have work."""
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
    """What more time may bring.

    ``lower_bound``: the fewest groups that are possible, as far as proved. ``attempts``: attempts since the last one
    that improved the partition; ``chance``: 95% upper limit of the probability that one more attempt succeeds, if
    attempts are alike (nan before the first); ``calls_per_attempt``: mean; ``untested``: groups that were never tested.
    """

    lower_bound: int
    attempts: int = 0
    chance: float = float("nan")
    calls_per_attempt: float = float("nan")
    untested: int = 1

    def describe(self, proof: Proof) -> str:
        """A clause without a full stop."""
        if proof == "optimal":
            return "nothing is left to search"
        bound = f"; at least {self.lower_bound} groups needed" if self.lower_bound > 1 else ""
        if not self.untested:
            return f"every group was tested, only undecided ones could make a better partition{bound}"
        if not self.attempts:
            return f"not searched to the end{bound}"
        return (
            f"{self.attempts} attempts without a better one; the next succeeds with a chance of at most "
            f"{self.chance:.0%} and costs about {self.calls_per_attempt:.1f} tests{bound}"
        )

    def sentence(self, proof: Proof) -> str:
        """`describe` as a sentence."""
        clause = self.describe(proof)
        return f"{clause[0].upper()}{clause[1:]}."


@dataclass(frozen=True)
class Progress:
    """The state of a search. ``calls``: groups that the oracle tested in this search."""

    best: Partition
    calls: int
    stage: str
    outlook: Outlook
    proof: Proof
