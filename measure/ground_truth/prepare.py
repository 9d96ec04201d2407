"""Prepares a campaign's ground truth before its runs: calibration, probes, and baselines by the other sampler.

    prepared = prepare(plan, document, directory, notify)
    outcome = execute_plan(prepared.specs, store)
    truth = assess(prepared, outcome.runs)          # measure.truth_checks.assess

The result stays beside the runs' results, so that `assess` can be repeated without sources or compiler.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from common.yaml_document import YamlDocument
from measure.errors import CampaignError
from measure.ground_truth.calibration import Calibration, calibrate, load_calibration
from measure.ground_truth.probing import Probing, find_metric_probes
from measure.ground_truth.sampler import other_mode
from measure.result_files import write_text_atomically
from measure.run_types import BASELINE, RunSpec
from measure.runs.campaign_model import EACH_RUN, Campaign
from measure.runs.plan import Plan, content_keys, make_plan

FILE_NAME = "ground_truth.json"
SAMPLED = "baseline by the other sampler"
"""Group of the runs that show what the sampler changes."""
EVERYTHING = "everything"
MOST_VARIANTS = 6
_FORMAT = "perturbation-ground-truth-2"


@dataclass(frozen=True)
class Prepared:
    """A plan whose runs have probes, and what else the ground truth needs.

    ``plan``: the campaign's own, with probes; ``sampler_specs``: baselines by the other sampler, of variant `SAMPLED`;
    ``sampler_why_not``: why there are none; ``exact``: software metrics with an exact probe; ``refused``: those
    without, and why.
    """

    plan: Plan
    sampler_specs: tuple[RunSpec, ...]
    sampler_keys: tuple[str, ...]
    sampler_why_not: str
    calibration: Calibration
    exact: tuple[str, ...]
    refused: dict[str, str]

    @property
    def specs(self) -> tuple[RunSpec, ...]:
        """All runs to make."""
        return (*self.plan.specs, *self.sampler_specs)

    @property
    def keys(self) -> tuple[str, ...]:
        """`content_keys` of the specs."""
        return (*self.plan.keys, *self.sampler_keys)


def prepare(
    plan: Plan,
    document: YamlDocument,
    directory: Path,
    notify: Callable[[str], None] = lambda text: None,
    target: str = "emulated",
) -> Prepared:
    """Find reference events and probes of the plan's programs, and give these probes to its runs.

    The result is kept in ``directory``. Raises `CampaignError` for a campaign without software metrics, `MeasureError`
    when no event qualifies as a reference event.
    """
    campaign = plan.campaign
    if not campaign.variant_sets():
        raise CampaignError(f"{document.path}: ground truth needs software metrics, got none")
    calibrated = make_plan(_everything(campaign), document, notify, target)
    # As built: only that program has debug information, and its probes are found again in every layout by symbols.
    as_built = [replace(spec, layout_seed=None) for spec in calibrated.specs]
    plain = next(spec for spec in as_built if spec.variant == BASELINE)
    counting = next(spec for spec in as_built if spec.variant == EVERYTHING)
    other, why_not = other_mode(campaign)
    others = make_plan(other, document, notify, target) if other is not None else None
    variants = list({spec.variant: spec for spec in reversed(plan.specs)}.values())[: MOST_VARIANTS + 1]
    sampled = [others.specs[0]] if others is not None else []
    programs = [*plan.specs, *(others.specs if others is not None else ())]
    calibration = calibrate(
        plain, counting, [*variants, *sampled],
        binaries=list({spec.binary: None for spec in programs}), place=directory, notify=notify,
    )  # fmt: skip
    notify("Looking for exact probes of the software metrics")
    exact = find_metric_probes(campaign, plain, calibration)
    probing = Probing(calibration, exact)
    specs = tuple(probing.probed(spec) for spec in plan.specs)
    prepared = Prepared(
        replace(plan, specs=specs, keys=content_keys(specs)),
        tuple(replace(spec, variant=SAMPLED) for spec in others.specs) if others is not None else (),
        others.keys if others is not None else (),
        why_not,
        calibration,
        exact.exact,
        dict(exact.refused),
    )
    _save(prepared, directory)
    return prepared


def load_prepared(directory: Path, plan: Plan) -> Prepared | None:
    """The result of `prepare` from ``directory`` for ``plan``; None without it. Raises `CampaignError` if damaged."""
    path = directory / FILE_NAME
    if not path.exists():
        return None
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        if saved["format"] != _FORMAT:
            raise CampaignError(f"{path}: got format {saved['format']!r}, expected {_FORMAT}")
        specs = tuple(RunSpec.from_json(spec) for spec in saved["sampler"])
        return Prepared(
            plan, specs, tuple(saved["sampler_keys"]), saved["sampler_why_not"],
            load_calibration(directory / saved["calibration"]), tuple(saved["exact"]), saved["refused"],
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CampaignError(
            f"{path} is damaged ({type(error).__name__}): delete it, and `measure run` makes it again"
        ) from None


def _save(prepared: Prepared, directory: Path) -> None:
    """Write the preparation for `load_prepared`."""
    text = json.dumps(
        {
            "format": _FORMAT,
            "calibration": prepared.calibration.file_name,
            "exact": prepared.exact,
            "refused": prepared.refused,
            "sampler_why_not": prepared.sampler_why_not,
            "sampler": [asdict(spec) for spec in prepared.sampler_specs],
            "sampler_keys": prepared.sampler_keys,
        },
        indent=1,
    )

    write_text_atomically(directory / FILE_NAME, text)


def _everything(campaign: Campaign) -> Campaign:
    """A campaign of one plain run and one that counts all software metrics, both in the first code layout."""
    one_layout = campaign.noise.model_copy(update={"code_layouts": 1})
    changes: dict[str, Any] = {
        "variants": {EVERYTHING: tuple(campaign.software_metrics)},
        "cumulative": None,
        "controls": False,
        "variance_runs": 0,
        "sampling": campaign.sampling.model_copy(update={"mode": "ideal"}),
        "noise": campaign.noise if campaign.noise.code_layouts == EACH_RUN else one_layout,
        "baselines": 1,
        "replicates": 1,
    }
    return campaign.model_copy(update=changes)
