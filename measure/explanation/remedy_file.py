"""The campaign file of a remedy: the explained campaign with the remedy's changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from measure.explanation.explanation_types import Remedy
from measure.result_files import write_text_atomically
from measure.runs.campaign_model import Campaign

FRESH_SEED = 1000
"""Added to the campaign's seed: runs with its own were looked at, and the next seeds may have been."""


def remedy_campaign(campaign: Campaign, variant: str, remedy: Remedy) -> dict[str, Any]:
    """The content of the campaign file: one variant (or those that the remedy splits it into) and its metrics. Paths
    are absolute.

    It has at least as many runs as the remedy was judged with, and a seed of its own: a campaign of fewer runs, or of
    those that the explanation was chosen by, may contradict the verdict that recommends it.
    """
    metrics = campaign.variant_sets()[variant]
    data = campaign.model_dump(mode="json", exclude_defaults=True)
    data.pop("cumulative", None)
    data["name"] = f"{campaign.name}-{variant}-remedy"
    data["variants"] = {variant: list(metrics)}
    data["software_metrics"] = {
        metric: spec for metric, spec in data["software_metrics"].items() if metric in metrics
    }  # fmt: skip
    data["baselines"] = max(campaign.baselines, remedy.perturbation.n_baseline)
    data["replicates"] = max(campaign.replicates, remedy.perturbation.n_runs)
    data["seed"] = campaign.seed + FRESH_SEED
    changes = dict(remedy.campaign)
    if "variants" in changes:
        data.pop("variants")
    return _merged(data, changes)


def write_remedy(campaign: Campaign, variant: str, remedy: Remedy, path: Path) -> None:
    """Write the campaign file to ``path``. Raises `StoreError` when that is not possible."""
    import yaml

    header = (
        f"# {campaign.name}, variant {variant}, with the best remedy that `measure explain` found to write:\n"
        f"# {remedy.name} ({remedy.verdict}).\n"
        f"# It was judged in {remedy.perturbation.n_runs} pairs of runs. Here are at least as many, with a seed of "
        "their own:\n# fewer runs may leave the verdict open, and runs that were looked at already say nothing new.\n"
    )
    text = yaml.safe_dump(remedy_campaign(campaign, variant, remedy), sort_keys=False, allow_unicode=True)
    write_text_atomically(path, header + text)


def _merged(data: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """``data`` with ``changes``, mapping by mapping; a value of None takes its key out."""
    found = dict(data)
    for key, value in changes.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict):
            found[key] = _merged(found.get(key) or {}, value)
        else:
            found[key] = value
    return found
