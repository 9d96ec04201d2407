"""Reads the explanation that `measure explain` or ``explain: true`` left beside a campaign's results.

`measure.explanation` writes it; the report shows its sentences, and runs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from measure.perturbation.finding import Finding
from measure.runs.plan import Plan

FOLDER = "explain"
FILE = "explain.json"


def stored_findings(results: Path, plan: Plan) -> dict[str, tuple[Finding, ...]] | None:
    """Of each variant that was explained, why it is perturbed and what helps; None without an explanation of these
    runs, judged as they are now."""
    path = results / FOLDER / FILE
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["plan"] != plan.history.design:
            return None
        return {name: _findings(name, one) for name, one in stored["variants"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _findings(variant: str, stored: Mapping[str, Any]) -> tuple[Finding, ...]:
    """The sentences of an explanation of ``variant``, the one with its remedy marked. Raises `KeyError` for a document
    without sentences."""
    remedy = stored["remedy"] or {}
    said = [Finding(str(text), variant=variant, heading=variant) for text in stored["sentences"]]
    return tuple(
        replace(one, kind="remedy", in_results=str(remedy["in_results"])) if n == remedy.get("sentence") else one
        for n, one in enumerate(said)
    )
