"""What is known and said before a campaign's runs are made: its design, the looks so far, and what it can find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from measure.judging.power import Spread, assumed_spread, measured_spread, plan_text
from measure.result_files import SUMMARY_NAME
from measure.run_types import BASELINE, NULL_CONTROL
from measure.runs.looks import continued, load_history
from measure.runs.plan import Plan
from measure.runs.plan_file import FILE_NAME
from measure.runs.store import Store
from measure.stats.correlation import fisher_z, spearman


def continue_history(plan: Plan, directory: Path) -> Plan:
    """``plan`` with the looks that ``directory``, where its results are or will be, has seen already.

    Raises `CampaignError` when the plan in ``directory`` is damaged.
    """
    before = load_history(directory / FILE_NAME)
    return replace(plan, history=continued(plan.history, before, (directory / SUMMARY_NAME).exists()))


def describe_plan(plan: Plan, store: Store) -> str:
    """The hash of the design, its runs, and the change that it can find, by the spread of the runs in ``store``."""
    campaign, history = plan.campaign, plan.history
    spread = _spread(plan, store) or assumed_spread(campaign)
    variants = list(campaign.variant_sets())
    text = plan_text(campaign, campaign.alpha_of_a_look, spread, variants)
    return " ".join([f"Plan {history.text(campaign)}: {text}", *history.warnings(campaign)])


def _spread(plan: Plan, store: Store) -> Spread | None:
    hardware = plan.campaign.hardware_metrics
    first, second = np.triu_indices(len(hardware), 1)
    z: dict[str, dict[int, NDArray[np.float64]]] = {}
    for key, spec in zip(plan.keys, plan.specs, strict=True):
        run, _ = store.load(key, spec) if spec.variant != NULL_CONTROL else (None, None)
        if run is not None:
            rho = spearman(run.trace.counts(hardware), hardware).rho[first, second]
            z.setdefault(spec.variant, {})[spec.replicate] = fisher_z(rho)
    return measured_spread(z, BASELINE, bool(plan.campaign.pairs))
