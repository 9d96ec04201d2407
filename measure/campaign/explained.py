"""Reads the explanation that `measure explain` or ``explain: true`` left beside a campaign's results.

`measure.explanation` writes it; the report shows its sentences, and runs nothing.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from measure.campaign.plan import Plan

FOLDER = "explain"
FILE = "explain.json"


def plan_digest(plan: Plan) -> str:
    """Hash of the runs and levels that verdicts rest on, by which an explanation knows its campaign."""
    campaign = plan.campaign
    text = "\n".join([*sorted(plan.keys), str(campaign.delta), str(campaign.alpha_of_a_look)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def stored_sentences(results: Path, plan: Plan) -> dict[str, tuple[str, ...]] | None:
    """Of each variant that was explained, why it is perturbed and what helps; None without an explanation of these
    runs."""
    path = results / FOLDER / FILE
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["plan"] != plan_digest(plan):
            return None
        return {name: tuple(map(str, one["sentences"])) for name, one in stored["variants"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
