"""What a comparison of two campaigns finds of one variant: its verdicts in both, the test of each pair, and the
sentence."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from common.listed_names import listed
from measure.perturbation.analysis_types import BROKEN, Verdict, gravest
from measure.perturbation.verdict import overall_verdict
from measure.perturbation.wording import p_number, p_text
from measure.report.style import short
from measure.two_campaigns.change_test import ChangeTest, smallest_p

_MOST_RUNS = 50  # that are looked at for how many suffice


@dataclass(frozen=True)
class SideVerdicts:
    """The verdicts of a variant in one campaign, as its summary.json has them. ``across``: None if not compared;
    ``pairs``: by pair of metrics within a run, and by a metric alone across runs."""

    verdict: Verdict
    within: Verdict
    across: Verdict | None
    pairs: Mapping[frozenset[str], Verdict]

    def of(self, a: str, b: str) -> Verdict:
        """The verdict on a pair of metrics."""
        return self.pairs.get(frozenset((a, b)), "not assessable")

    def on(self, metrics: Collection[str], across: bool) -> Verdict:
        """The verdict on the pairs of ``metrics`` alone, and across runs only if ``across``."""
        scopes: tuple[list[Verdict], ...] = ([], [])
        for pair, verdict in self.pairs.items():
            if pair <= {*metrics}:
                scopes[len(pair) == 1].append(verdict)
        return gravest(overall_verdict(scope) for scope in scopes[: 1 + across])


@dataclass(frozen=True)
class PairChange:
    """One pair of metrics within a run, or (``a`` is ``b``) a metric with itself across runs, in both campaigns;
    ``before``, ``after``: its verdicts."""

    a: str
    b: str
    before: Verdict
    after: Verdict
    test: ChangeTest

    @property
    def name(self) -> str:
        """The metrics, for messages."""
        return f"{self.a} across runs" if self.is_across else f"{self.a} - {self.b}"

    @property
    def short_name(self) -> str:
        """The metrics without what all of their names begin with, for tables and figures."""
        return f"{short(self.a)} across runs" if self.is_across else f"{short(self.a)} - {short(self.b)}"

    @property
    def is_across(self) -> bool:
        """Whether it is a metric with itself across runs."""
        return self.a == self.b


@dataclass(frozen=True)
class NotCompared:
    """A variant of both campaigns of which one has no runs, or both. ``before``, ``after``: its verdicts in them;
    ``reason``: which campaign lacks runs, and what makes them."""

    name: str
    before: Verdict
    after: Verdict
    reason: str

    @property
    def verdict(self) -> Verdict:
        """Nothing can be told of the difference."""
        return "not assessable"

    @property
    def text(self) -> str:
        """What is missing, as a sentence."""
        return f"{self.name}: {self.reason}."


@dataclass(frozen=True)
class VariantChange:
    """One variant in both campaigns. ``verdict``: on the difference of its changes; ``pairs``: the gravest first;
    ``n_before``, ``n_after``: runs tested; ``paired``: replicates with the same seed were paired; ``alpha``: up to
    which p-value a difference is significant; ``comparisons``: how many p-values count, of each variant within and
    across runs; ``smallest_p``: that so many runs allow;
    ``is_paired_by_design``: whether the runs would be paired if none were missing; ``is_repeated``: both campaigns have
    the same runs; ``agrees_on_shared``: the campaigns' verdicts on what both of them compare are the same."""

    name: str
    before: SideVerdicts
    after: SideVerdicts
    verdict: Verdict
    p_value: float
    pairs: tuple[PairChange, ...]
    n_before: int
    n_after: int
    paired: bool
    alpha: float
    comparisons: int
    smallest_p: float
    at_ceiling: tuple[str, ...] = ()
    is_paired_by_design: bool = False
    is_repeated: bool = False
    agrees_on_shared: bool = False

    @property
    def text(self) -> str:
        """The result as a sentence."""
        verdicts = (
            f"{self.before.verdict} before and after"
            if self.before.verdict == self.after.verdict
            else f"{self.before.verdict} before, {self.after.verdict} after"
        )
        shown = [pair for pair in self.pairs if pair.test.verdict in BROKEN]
        if shown:
            what = f"the instrumentation changes relations otherwise than before, {', and '.join(_sizes(shown))}"
        elif self.verdict == "equivalent":
            what = "the changes of all pairs that can be assessed are shown to be the same within delta"
        elif self.verdict == "not assessable" and self.is_repeated:
            what = "the runs have the same numbers in both campaigns, so that nothing is shown"
        elif self.verdict == "not assessable":
            what = "that the changes are the same cannot be shown"
        elif self.p_value <= self.alpha:
            what = (
                "the changes differ measurably, by less than delta; elsewhere no difference is shown, nor its absence"
            )
        else:
            what = "no difference of the changes is shown, nor its absence"
            if self.before.verdict != self.after.verdict and self.smallest_p <= self.alpha:
                what += (
                    ": the verdicts differ on what only one of the campaigns compares"
                    if self.agrees_on_shared
                    else ": the verdicts may differ by chance"
                )
        if self.smallest_p > self.alpha and self.verdict not in ("equivalent", "not assessable"):
            runs = f"{self.n_before} pairs" if self.paired else f"{self.n_before} and {self.n_after} runs"
            what += (
                f": {runs} allow no p-value below {p_number(self.smallest_p)}, so give both campaigns {self._enough}"
            )
        p = f"{p_text(self.p_value)} over all comparisons, at a level of {self.alpha:.3g}"
        return f"{self.name}: {verdicts}; {what} ({p})."

    @property
    def _enough(self) -> str:
        """How many runs of the variant, and as many baselines, allow a significant difference."""
        more = range(max(self.n_before, self.n_after) + 1, _MOST_RUNS)
        paired = self.paired or self.is_paired_by_design  # with so many runs of both none is missing
        least = ((n, smallest_p(n, n, paired=paired, comparisons=self.comparisons)) for n in more)
        enough = next((n for n, p in least if p <= self.alpha), None)
        return f"{enough} or more" if enough is not None else "more"


def _sizes(shown: Sequence[PairChange]) -> list[str]:
    """By how much pairs that changed differ, in words, with their names: those shown to exceed delta come first."""
    sizes = {"perturbed": "by more than delta", "changed": "perhaps by less than delta"}
    names = {verdict: [pair.name for pair in shown if pair.test.verdict == verdict] for verdict in sizes}
    return [f"{sizes[verdict]}: {listed(mine, 3)}" for verdict, mine in names.items() if mine]
