"""Reads the summary.json of a campaign; `measure.analysis.analysis` makes its content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from measure.errors import CampaignError
from measure.result_files import SUMMARY_NAME

SUMMARY_SCHEMA = 2
SUMMARY_FORMAT = f"perturbation-run-{SUMMARY_SCHEMA}"
PERTURB_FORMAT = f"perturbation-perturb-{SUMMARY_SCHEMA}"
"""Of what `measure.foreign` writes by the same schema."""


def read_summary(directory: Path) -> dict[str, Any]:
    """The content of ``directory``/summary.json, whose variants are a mapping.

    Raises `CampaignError` where it is missing, damaged, or not of this version.
    """
    path = directory / SUMMARY_NAME
    remedy = f"`measure report {directory}` writes it from the stored runs"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise CampaignError(f"{path} is missing or damaged: {remedy}") from None
    if not isinstance(found, dict) or not isinstance(found.get("variants"), dict):
        raise CampaignError(f"{path} is missing or damaged: {remedy}")
    if found.get("schema") != SUMMARY_SCHEMA:
        raise CampaignError(f"{path}: got schema {found.get('schema')!r}, expected {SUMMARY_SCHEMA}: {remedy}")
    return found
