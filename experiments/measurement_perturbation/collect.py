"""Runs campaigns and compares their runs with the baselines; every run and every comparison is kept as it ends.

Beside what `measure run` keeps of a campaign this leaves four tables: ``runs``, ``inner`` and ``outer`` (correlations
of every run, as the paper plots them) and ``verdicts`` (what the paper has no test for), read by `results`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from common.source_digest import source_digest
from common.yaml_document import YamlDocument
from measure.console.progress import RunsBar
from measure.errors import MeasureError
from measure.perturbation.analysis_types import Perturbation
from measure.perturbation.perturbation import Memo, inner_perturbation, outer_perturbation, outer_z
from measure.result_files import write_atomically, write_text_atomically
from measure.run_types import BASELINE, Run
from measure.runs.campaign_model import Campaign
from measure.runs.executor import Outcome, execute_plan
from measure.runs.plan import Plan, make_plan
from measure.runs.plan_file import save_plan
from measure.runs.store import Store
from measure.stats.correlation import spearman

if TYPE_CHECKING:
    from rich.console import Console

TABLES = ("runs", "inner", "outer", "verdicts")


def collect(
    campaign: Campaign, document: YamlDocument, directory: Path, *, workers: int | None, console: Console
) -> None:
    """Make what is missing of a campaign's runs, comparisons and tables in ``directory``.

    Raises `MeasureError` when runs fail.
    """
    plan = make_plan(campaign, document, lambda text: console.print(text, style="dim"))
    with Store(directory) as store:
        with RunsBar(console) as bar:
            save_plan(plan, directory)
            outcome = execute_plan(
                plan.specs, store, keys=plan.keys, workers=workers, started=bar.start, progress=bar.advance
            )
        if outcome.failures:
            failure = outcome.failures[0]
            raise MeasureError(
                f"{directory.name}: {len(outcome.failures)} runs failed, the first of {failure.spec.variant}: "
                f"{failure.reason}"
            )
        for name, table in tabulate(plan, outcome, directory / "comparisons", console).items():
            write_atomically(directory / f"{name}.parquet", functools.partial(_write_table, table))


def tabulate(plan: Plan, outcome: Outcome, kept: Path, console: Console) -> dict[str, pd.DataFrame]:
    """The tables of a campaign; comparisons that are in ``kept`` already are read there."""
    from rich.progress import track

    campaign, hardware = plan.campaign, plan.campaign.hardware_metrics
    keys = {(spec.variant, spec.replicate): key for spec, key in zip(plan.specs, plan.keys, strict=True)}
    groups = {group: _group(outcome.runs, group) for group in (BASELINE, *campaign.variant_sets())}
    baselines = groups[BASELINE]
    tables: dict[str, list[Any]] = {name: [] for name in TABLES}
    mean_instructions = float(np.mean([run.total_instructions for run in baselines]))
    for group, runs in groups.items():
        for run in runs:
            about = (group, run.spec.replicate)
            percent = 100 * (run.total_instructions / mean_instructions - 1)
            added = " ".join(_added(campaign, group))
            tables["runs"].append(
                (*about, *order_and_step(group), added, keys[about], run.trace.n_records,
                 run.total_instructions, run.total_cycles, percent, run.seconds)
            )  # fmt: skip
            rho = spearman(run.trace.columns(hardware), hardware).rho
            tables["inner"] += [
                (*about, hardware[i], hardware[j], rho[i, j]) for i, j in combinations(range(len(hardware)), 2)
            ]
    memo: Memo = {}
    for group, runs in track(
        groups.items(), f"comparing {campaign.name}", console=console, disable=not console.is_terminal
    ):
        identity = [campaign.delta, campaign.alpha, campaign.seed, comparisons_digest(), group == BASELINE]
        identity += [sorted(keys[BASELINE, run.spec.replicate] for run in baselines)]
        identity += [sorted(keys[group, run.spec.replicate] for run in runs)]
        path = kept / f"{hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]}.json"
        if not path.is_file():
            found = _compare(campaign, baselines, None if group == BASELINE else runs, memo)
            text = json.dumps(found)
            write_text_atomically(path, text)
        found = json.loads(path.read_text(encoding="utf-8"))
        tables["outer"] += [(group, *row) for row in found["outer"]]
        tables["verdicts"] += [(group, *row) for row in found["verdicts"]]
    columns = {
        "runs": ["group", "replicate", "order", "step", "added", "key", "records", "instructions", "cycles",
                 "instructions_percent", "seconds"],
        "inner": ["group", "replicate", "a", "b", "rho"],
        "outer": ["group", "replicate", "metric", "rho_joint", "rho_held_out"],
        "verdicts": ["group", "kind", "a", "b", "baseline_rho", "baseline_sd", "run_rho", "delta_z", "low", "high",
                     "p_adjusted", "verdict"],
    }  # fmt: skip
    return {name: pd.DataFrame(rows, columns=columns[name]) for name, rows in tables.items()}


def order_and_step(group: str) -> tuple[int, int]:
    """Order and number of metrics of ``order2-07``; 0 and 0 for other groups."""
    match = re.fullmatch(r"order(\d+)-(\d+)", group)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _added(campaign: Campaign, group: str) -> tuple[str, ...]:
    """What a set of an order has beyond the one before."""
    order, step = order_and_step(group)
    if not order:
        return ()
    sets = campaign.variant_sets()
    earlier = [name for name in sets if order_and_step(name)[0] == order and order_and_step(name)[1] < step]
    before = sets[max(earlier, key=order_and_step)] if earlier else ()
    return tuple(metric for metric in sets[group] if metric not in before)


def _group(runs: Sequence[Run], group: str) -> list[Run]:
    return sorted((run for run in runs if run.spec.variant == group), key=lambda run: run.spec.replicate)


def _compare(campaign: Campaign, baselines: Sequence[Run], runs: Sequence[Run] | None, memo: Memo) -> dict[str, Any]:
    """Outer correlations with the first baseline (of the other baselines, without ``runs``), and all verdicts."""
    hardware = campaign.hardware_metrics
    values = [run.trace.columns(hardware) for run in baselines]
    others = values[1:] if runs is None else [run.trace.columns(hardware) for run in runs]
    outer = []
    for index, other in enumerate(others):
        joint, held_out = (
            np.tanh(outer_z(values[0], other, hardware, held_out=held_out)) for held_out in (False, True)
        )
        replicate = (baselines[1:] if runs is None else runs)[index].spec.replicate
        outer += [(replicate, metric, _plain(joint[n]), _plain(held_out[n])) for n, metric in enumerate(hardware)]
    if runs is None:
        return {"outer": outer, "verdicts": []}
    results = judge_alone(campaign, values, others, memo)
    return {"outer": outer, "verdicts": [row for result in results for row in _pair_rows(result)]}


def judge_alone(
    campaign: Campaign, baselines: Sequence[NDArray[np.float64]], runs: Sequence[NDArray[np.float64]], memo: Memo
) -> list[Perturbation]:
    """Each verdict on ``runs``, each kind of comparison with the whole alpha: within runs, across them if the campaign
    aligns, on all metrics and on the others. Runs are traces ``(n, metrics)``."""
    hardware = campaign.hardware_metrics
    settings: Any = {"delta": campaign.delta, "alpha": campaign.alpha, "seed": campaign.seed}
    inner = inner_perturbation(
        [spearman(value, hardware) for value in baselines], [spearman(value, hardware) for value in runs], **settings
    )
    if not campaign.outer:
        return [inner]
    settings["alignment"] = campaign.alignment_setting
    return [
        inner,
        *(
            outer_perturbation(baselines, runs, hardware, held_out=held_out, memo=memo, **settings)
            for held_out in (False, True)
        ),
    ]


def _pair_rows(result: Perturbation) -> list[tuple[Any, ...]]:
    rows = []
    for pair in result.pairs:
        told = asdict(pair)
        numbers = [told[key] for key in ("baseline_rho", "baseline_z_sd", "run_rho", "delta_z")]
        numbers += [*pair.ci, pair.p_adjusted]
        rows.append((result.kind, pair.a, pair.b, *map(_plain, numbers), pair.verdict))
    return rows


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


@functools.cache
def comparisons_digest() -> str:
    """Hash of the code that compares runs: comparisons of one version are not taken for another's."""
    import measure

    root = Path(measure.__path__[0])
    return source_digest([root / "perturbation", root / "alignment", root / "stats", Path(__file__)])


def _write_table(table: pd.DataFrame, path: Path) -> None:
    table.to_parquet(path, index=False)
