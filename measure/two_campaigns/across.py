"""How much instrumentation changes the similarity of each metric with itself across aligned runs, run by run.

The change of run i is its mean similarity to other baselines less that of the baseline that it belongs to, each metric
aligned on the others as in `measure.perturbation.outer`. A verdict of one campaign compares each baseline with all
others, so that two changes share an alignment, and tests with labellings that know it. A test of two campaigns
exchanges whole changes, which must be independent: here, of any two baselines, only one is compared with the other
(`opponents`). With all of them, 5% of false alarms became up to 16% where alignments are all the noise there is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measure.alignment.setting import AlignmentSetting
from measure.perturbation.outer import Memo, mean_defined, similarities
from measure.perturbation.similarity import Aligner, SimilarityRule, align_in_threads, near_duplicates, prepare


def opponents(n: int) -> list[list[int]]:
    """For each of ``n``, about half of the others, so that of any two exactly one has the other."""
    found = []
    for one in range(n):
        steps = list(range(1, (n - 1) // 2 + 1))
        if n % 2 == 0 and one < n // 2:
            steps.append(n // 2)
        found.append([(one + step) % n for step in steps])
    return found


class AcrossRuns:
    """The baselines of one campaign, ready to be aligned. ``tables``: ``(n, m)`` each; ``memo``: keeps similarities for
    other variants with the same baselines.

    Raises ValueError, with the number of the baseline, for a table that cannot be aligned.
    """

    def __init__(
        self, tables: Sequence[ArrayLike], metrics: Sequence[str], alignment: AlignmentSetting,
        aligner: Aligner = align_in_threads, memo: Memo | None = None,
    ) -> None:  # fmt: skip
        self.metrics, self._alignment, self._aligner = metrics, alignment, aligner
        self._memo: Memo = {} if memo is None else memo
        self.baselines = [prepare(table, metrics, f"baseline {n}") for n, table in enumerate(tables)]

    def duplicates(self) -> tuple[tuple[int, ...], ...]:
        """For each metric the metrics that nearly duplicate it: it must not be aligned on them."""
        return near_duplicates(self.baselines)

    def changes(self, tables: Sequence[ArrayLike], duplicates: tuple[tuple[int, ...], ...]) -> NDArray[np.float64]:
        """The change of z of each metric with itself, ``(R, m)``, of the runs ``tables``; nan where undefined.

        Run i belongs to baseline i; baselines without a run are compared with all.
        """
        runs = [prepare(table, self.metrics, f"run {n}") for n, table in enumerate(tables)]
        spare = list(range(len(runs), len(self.baselines)))
        cells = [(i, j) for i, others in enumerate(opponents(len(runs))) for j in [*others, *spare]]
        prepared, n = [*self.baselines, *runs], len(self.baselines)
        wanted = [cell for i, j in cells for cell in ((n + i, j), (i, j))]
        how = SimilarityRule(True, self._alignment, duplicates)
        z = similarities(prepared, wanted, how, None, self._memo, self._aligner)
        differences = np.full((len(runs), n, len(self.metrics)), np.nan)
        for i, j in cells:
            differences[i, j] = z[n + i, j] - z[i, j]
        return mean_defined(differences)


def common_duplicates(sides: Sequence[AcrossRuns]) -> tuple[tuple[int, ...], ...]:
    """For each metric the metrics that nearly duplicate it in any campaign: it is aligned on the same ones in all."""
    return tuple(tuple(sorted(set().union(*found))) for found in zip(*(one.duplicates() for one in sides), strict=True))
