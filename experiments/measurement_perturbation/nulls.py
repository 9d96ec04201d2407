"""Null runs: how many runs that change nothing are called perturbed by the baselines of a campaign.

The runs of a campaign share their baselines, so that a few odd baselines make many runs look odd at once: a count of
perturbed runs means something only beside that of null runs, which share baselines just so. Null runs are plain runs
with further seeds. Plain runs are exchangeable, so other choices of the baselines among them are as good, and show how
much the count varies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from common.yaml_document import YamlDocument
from experiments.measurement_perturbation.collect import judge_alone
from measure.errors import MeasureError
from measure.perturbation.analysis_types import VERDICTS
from measure.perturbation.outer import Memo
from measure.run_types import BASELINE
from measure.runs.campaign_model import Campaign
from measure.runs.executor import execute_plan
from measure.runs.plan import make_plan
from measure.runs.store import Store

if TYPE_CHECKING:
    from rich.console import Console

SPLITS = 20
"""Choices of baselines among the plain runs; the first is that of the campaign."""


def count_null_runs(
    campaign: Campaign,
    document: YamlDocument,
    directory: Path,
    count: int,
    *,
    workers: int | None,
    console: Console,
    splits: int = SPLITS,
) -> pd.DataFrame:
    """Make ``count`` null runs, kept in ``directory`` beside the campaign's, and judge each as the campaign's runs are.

    One row a split and kind of comparison: the number of null runs, and of those with each verdict. Raises
    `MeasureError` when runs fail.
    """
    plain: dict[str, Any] = {
        "variants": {},
        "cumulative": None,
        "software_metrics": {},
        "controls": False,
        "variance_runs": 0,
    }
    larger = campaign.model_copy(update=plain | {"baselines": campaign.baselines + count})
    plan = make_plan(larger, document, lambda text: console.print(text, style="dim"))
    with Store(directory) as store:
        outcome = execute_plan(plan.specs, store, keys=plan.keys, workers=workers)
    if outcome.failures:
        raise MeasureError(f"{directory.name}: {len(outcome.failures)} null runs failed: {outcome.failures[0].reason}")
    runs = sorted(
        (run for run in outcome.runs if run.spec.variant == BASELINE), key=lambda run: run.spec.replicate
    )  # fmt: skip
    values = [run.trace.columns(campaign.hardware_metrics) for run in runs]
    memo: Memo = {}
    rows = []
    for split, chosen in enumerate(_splits(len(values), campaign.baselines, splits, campaign.seed)):
        baselines = [values[n] for n in chosen]
        judged = [
            judge_alone(campaign, baselines, [value], memo) for n, value in enumerate(values) if n not in set(chosen)
        ]  # fmt: skip
        for results in zip(*judged, strict=True):
            verdicts = Counter(result.verdict for result in results)
            rows.append((campaign.name, split, results[0].kind, len(results), *(verdicts[one] for one in VERDICTS)))
    columns = ["campaign", "split", "kind", "runs", *(verdict.replace(" ", "_") for verdict in VERDICTS)]
    return pd.DataFrame(rows, columns=columns)


def _splits(n: int, n_baseline: int, splits: int, seed: int) -> Iterator[Sequence[int]]:
    """Numbers of the baselines: the first ``n_baseline``, then random ones."""
    yield range(n_baseline)
    rng = np.random.default_rng([seed, n])
    for _ in range(splits - 1):
        yield sorted(rng.choice(n, n_baseline, replace=False).tolist())


def said_of(nulls: pd.DataFrame, kind: str, of_runs: int) -> str:
    """The number of ``of_runs`` runs that null runs would have perturbed: median and 95th percentile over splits."""
    share = nulls[nulls["kind"] == kind].assign(share=lambda table: table["perturbed"] / table["runs"])["share"]
    middle, high = np.quantile(share, [0.5, 0.95]) * of_runs
    return f"{middle:.0f} (95th percentile {high:.0f})"
