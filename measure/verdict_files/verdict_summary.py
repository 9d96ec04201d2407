"""`verdicts.json`: the verdicts of a campaign in a small document with a published schema.

`summary.json` has everything that the analysis found; this document has what a program needs to act on a verdict, and
changes only with its version.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from common.plain_json import plain_json
from measure.judging.controls import CONTROL_NAMES
from measure.perturbation.analysis_types import VERDICTS, Perturbation
from measure.report.model import ReportData, VariantReport, VariantWithoutRuns
from measure.result_files import write_text_atomically

VERDICTS_SCHEMA = 2
_RELATION = {
    "type": ["object", "null"],
    "description": "null: not compared",
    "required": [
        "verdict", "text", "p", "delta", "level", "together", "baselines", "runs", "paired", "pairs", "findings",
    ],
    "additionalProperties": False,
    "properties": {
        "verdict": {"enum": list(VERDICTS)},
        "text": {"type": "string", "description": "The verdict in words, with its restrictions"},
        "p": {
            "type": ["number", "null"], "minimum": 0, "maximum": 1,
            "description": "Of no change in any pair, familywise over what was tested together; null: not tested",
        },
        "delta": {"type": "number", "exclusiveMinimum": 0, "description": "Change of z that counts as none"},
        "level": {"type": "number", "description": "Level of this test: share of alpha of what was tested together"},
        "together": {
            "type": "integer", "minimum": 1,
            "description": "Comparisons (variants, within and across runs) that were tested together with this one",
        },
        "baselines": {"type": "integer", "minimum": 0},
        "runs": {"type": "integer", "minimum": 0, "description": "Instrumented runs compared"},
        "paired": {"type": "boolean", "description": "Whether baseline i and run i share their noise"},
        "extra_runs": {
            "type": ["integer", "null"],
            "description": "Further baselines and runs that would probably settle an open verdict; null: none would",
        },
        "pairs": {
            "type": "object", "description": "Number of pairs by verdict", "additionalProperties": False,
            "properties": {verdict: {"type": "integer", "minimum": 1} for verdict in VERDICTS},
        },
        "findings": {"type": "array", "items": {"type": "string"}},
    },
}  # fmt: skip
_OF_ALL = "The gravest of all variants; not assessable without any, and instead of equivalent if one has no runs"
VERDICTS_JSON_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "verdicts.json of a campaign",
    "type": "object",
    "required": [
        "schema", "campaign", "verdict", "valid", "invalidating", "failed_controls", "controls", "hardware_metrics",
        "variants", "findings",
    ],
    "additionalProperties": False,
    "properties": {
        "schema": {"const": VERDICTS_SCHEMA, "description": "Version of this schema"},
        "campaign": {"type": "string"},
        "verdict": {"enum": list(VERDICTS), "description": _OF_ALL},
        "valid": {
            "type": "boolean",
            "description": "Whether `invalidating` is empty; if not, read it before any verdict",
        },
        "invalidating": {
            "type": "array", "items": {"type": "string"},
            "description": "What makes figures or verdicts wrong: runs that are missing or failed, counts that are too "
            "low, programs without counters, controls that failed",
        },
        "failed_controls": {
            "type": "object", "additionalProperties": {"type": "string"},
            "propertyNames": {"enum": list(CONTROL_NAMES)},
            "description": "The sentences of `invalidating` on controls that failed, by control: after a failed null "
            "control, verdicts of perturbed and changed may be false alarms; after a failed positive control, changes "
            "may be overlooked",
        },
        "controls": {
            "type": ["string", "null"],
            "description": "Verdicts of the null control and the positive control; null without controls",
        },
        "hardware_metrics": {"type": "array", "items": {"type": "string"}},
        "variants": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "verdict", "caveat", "software_metrics", "overhead_percent", "inner", "outer"],
                "additionalProperties": False,
                "properties": {
                    "name": {"type": "string"},
                    "verdict": {"enum": list(VERDICTS), "description": "The gravest of inner and outer"},
                    "caveat": {"type": ["string", "null"], "description": "Restriction of an equivalent verdict"},
                    "software_metrics": {"type": "array", "items": {"type": "string"}},
                    "overhead_percent": {
                        "type": "object", "required": ["instructions", "cycles", "code"],
                        "additionalProperties": {"type": ["number", "null"]},
                        "description": "Percent of the mean baseline; null: unknown",
                    },
                    "inner": {**_RELATION, "description": "Relations of metrics within a run"},
                    "outer": {**_RELATION, "description": "Metrics across aligned runs, held out; null: not compared"},
                },
            },
        },
        "findings": {"type": "array", "items": {"type": "string"}, "description": "The gravest first"},
    },
}  # fmt: skip


def verdict_document(data: ReportData) -> dict[str, Any]:
    """The document as plain JSON types (`VERDICTS_JSON_SCHEMA`)."""
    return {
        "schema": VERDICTS_SCHEMA,
        "campaign": data.title,
        "verdict": data.verdict,
        "valid": not data.invalidating,
        "invalidating": list(data.invalidating),
        "failed_controls": dict(data.failed_controls),
        "controls": data.controls or None,
        "hardware_metrics": list(data.hardware_metrics),
        "variants": plain_json([*map(_variant, data.variants), *map(_variant_without_runs, data.without_runs)]),
        "findings": list(data.all_findings),
    }


def write_verdicts(data: ReportData, directory: Path) -> None:
    """Write ``directory``/verdicts.json. Raises `StoreError`."""
    text = json.dumps(verdict_document(data), indent=1, allow_nan=False)
    write_text_atomically(directory / "verdicts.json", text)


def _variant(one: VariantReport) -> dict[str, Any]:
    return {
        "name": one.name,
        "verdict": one.verdict,
        "caveat": one.caveat or None,
        "software_metrics": list(one.software_metrics),
        "overhead_percent": {
            "instructions": np.mean(one.instructions_percent),
            "cycles": np.mean(one.cycles_percent),
            "code": one.code_percent,
        },
        "inner": _relation(one, one.inner),
        "outer": _relation(one, one.outer_held_out),
    }


def _variant_without_runs(one: VariantWithoutRuns) -> dict[str, Any]:
    return {
        "name": one.name,
        "verdict": one.verdict,
        "caveat": None,
        "software_metrics": list(one.software_metrics),
        "overhead_percent": dict.fromkeys(("instructions", "cycles", "code")),
        "inner": None,
        "outer": None,
    }


def _relation(variant: VariantReport, one: Perturbation | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "verdict": one.verdict, "text": variant.in_words(one), "p": one.p_value, "delta": one.delta,
        "level": one.level, "together": one.together, "baselines": one.n_baseline, "runs": one.n_runs,
        "paired": one.paired,
        "extra_runs": one.extra_runs_needed,
        "pairs": {verdict: len(one.of(verdict)) for verdict in VERDICTS if one.of(verdict)},
        "findings": list(one.findings),
    }  # fmt: skip
