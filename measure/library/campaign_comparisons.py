"""Two campaigns compared, as a library call, with its tables as DataFrames."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from common.suggestions import nearest
from measure.arguments import check_number
from measure.errors import MeasureError
from measure.library.campaigns import Result, directory_of
from measure.two_campaigns.comparison import CampaignsCompared, compare_results

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class CampaignComparison:
    """Two campaigns, compared by how their instrumentation changes the relations of hardware metrics.

    ``found``: everything that the page of `measure compare` shows, as plain data.

    ```python
    import measure

    found = measure.compare("results/before", "results/after")
    found.verdicts            # a DataFrame: one row a variant
    found.pairs("heavy")      # a DataFrame: the change of each pair of metrics in both campaigns
    found.design              # a DataFrame: how the campaigns differ
    ```
    """

    found: CampaignsCompared

    def __repr__(self) -> str:
        found = [(one.name, one.verdict) for one in self.found.variants]
        found += [(one.name, one.verdict) for one in self.found.without_runs]
        verdicts = ", ".join(f"{name} {verdict}" for name, verdict in found)
        return f"<{type(self).__name__} {self.found.before!r}, then {self.found.after!r}: {verdicts}>"

    @property
    def variants(self) -> tuple[str, ...]:
        """The names of the variants that both campaigns have runs of, that with the gravest verdict first."""
        return tuple(one.name for one in self.found.variants)

    @property
    def findings(self) -> tuple[str, ...]:
        """Sentences, the gravest first; what makes either campaign wrong comes before all others."""
        return self.found.findings

    @property
    def verdicts(self) -> pd.DataFrame:
        """One row for each variant of both campaigns; one without runs in either is *not assessable*.

        Columns: ``variant``; ``before`` and ``after``, its verdicts in the campaigns; ``verdict`` on the difference of
        its changes (perturbed, changed, inconclusive, equivalent, not assessable); ``p`` (familywise over all
        comparisons, nan where undefined) and the ``level`` up to which it is significant, alpha; ``runs_before``,
        ``runs_after`` that were compared; and ``paired``, whether runs with the same seed were.
        """
        import pandas as pd

        rows = [
            (
                one.name, one.before.verdict, one.after.verdict, one.verdict, one.p_value, one.alpha, one.n_before,
                one.n_after, one.paired,
            )
            for one in self.found.variants
        ]  # fmt: skip
        nan = float("nan")
        rows += [
            (one.name, one.before, one.after, one.verdict, nan, nan, 0, 0, False) for one in self.found.without_runs
        ]
        names = ["variant", "before", "after", "verdict", "p", "level", "runs_before", "runs_after", "paired"]
        return pd.DataFrame(rows, columns=names)

    def pairs(self, variant: str) -> pd.DataFrame:
        """How much otherwise each relation changed in the second campaign, the gravest verdict first.

        ``variant``: name of a variant of both campaigns.

        Columns: ``a``, ``b`` (the same metric twice across runs); ``before`` and ``after``, the pair's verdicts in the
        campaigns; ``delta_z_before`` and ``delta_z_after``, the mean changes of z; their ``difference`` with its
        interval ``ci_low`` to ``ci_high``, and ``simultaneous_low`` to ``simultaneous_high`` for all comparisons
        together; ``p`` (familywise over these, too), and ``verdict`` on the difference. ``attrs`` has ``delta`` and
        ``alpha``.

        Raises `MeasureError` for a variant that was not compared.
        """
        import pandas as pd

        if variant not in self.variants:
            known = ", ".join(self.variants)
            raise MeasureError(f"no variant {variant!r}: expected one of {known}{nearest(variant, self.variants)}")
        (found,) = (one for one in self.found.variants if one.name == variant)
        rows = [
            (
                pair.a, pair.b, pair.before, pair.after, pair.test.before, pair.test.after, pair.test.difference,
                *pair.test.ci, *pair.test.simultaneous, pair.test.p_adjusted, pair.test.verdict,
            )
            for pair in found.pairs
        ]  # fmt: skip
        names = [
            "a", "b", "before", "after", "delta_z_before", "delta_z_after", "difference", "ci_low", "ci_high",
            "simultaneous_low", "simultaneous_high", "p", "verdict",
        ]  # fmt: skip
        table = pd.DataFrame(rows, columns=names)
        table.attrs = {"delta": self.found.delta, "alpha": self.found.alpha}
        return table

    @property
    def design(self) -> pd.DataFrame:
        """The settings in which the campaigns differ; columns ``name``, ``before`` and ``after``, all text."""
        import pandas as pd

        return pd.DataFrame([asdict(fact) for fact in self.found.facts], columns=["name", "before", "after"])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(one.name)}</td><td>{one.before.verdict}</td><td>{one.after.verdict}</td>"
            f"<td><b>{one.verdict}</b></td></tr>"
            for one in self.found.variants
        )
        findings = "".join(f"<li>{escape(text)}</li>" for text in self.findings)
        return (
            f"<h3>{escape(self.found.before)}, then {escape(self.found.after)}</h3>"
            "<table><tr><th>variant</th><th>before</th><th>after</th><th>difference of the changes</th></tr>"
            f"{rows}</table><ul>{findings}</ul>"
        )


def compare(
    before: Result | Path | str,
    after: Result | Path | str,
    *,
    delta: float | None = None,
    alpha: float | None = None,
) -> CampaignComparison:
    """Test whether instrumentation changes relations otherwise in a second campaign, as `measure compare` does.

    ``before``, ``after``: directories of results, or a `Result` each. ``delta``: the difference of changes of z that
    counts as none, and ``alpha``, the level of the tests: by default the smaller of the two campaigns'. Two variants
    with different verdicts are no evidence of a difference: the test is on the changes themselves.

    Writes nothing. Raises `CampaignError` for a directory without results or without a report, and for campaigns with
    no variant, or fewer than two hardware metrics, in common.

    ```python
    import measure

    found = measure.compare("results/quickstart", "results/quickstart-seed2")
    print(found.verdicts[["variant", "before", "after", "verdict"]])
    ```
    """
    if delta is not None:
        check_number("delta", delta, above=0, what="a change of z = atanh(rho)")
    if alpha is not None:
        check_number("alpha", alpha, above=0, below=0.5, what="the chance of any false alarm")
    expected = "a directory of results, or a Result; traces are compared by measure.perturb(baseline, runs)"
    sides = [directory_of("before", before, expected), directory_of("after", after, expected)]
    return CampaignComparison(compare_results(*sides, delta=delta, alpha=alpha))
