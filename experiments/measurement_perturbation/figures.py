"""What a figure's file says: which campaigns it shows, which pairs of metrics, which mechanisms are switched.

`load_figure` reads one, `settings_of` makes the campaigns of one whose mechanisms are switched. Running campaigns is
left to `collect`, reading what came of them to `results`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, model_validator

from common.suggestions import nearest
from common.yaml_document import YamlDocument, problem_at
from measure.errors import CampaignError
from measure.result_files import write_text_atomically
from measure.runs.campaign_file import load_campaign
from measure.runs.campaign_model import Campaign, StrictModel


class Figure(StrictModel):
    """One figure or table. Paths are absolute once read."""

    shows: str = Field(description="What the figure shows; its title.")
    campaigns: tuple[Path, ...] = Field(min_length=1, description="Campaign files, relative to this file.")
    pairs: tuple[tuple[str, str], ...] = Field((), description="Pairs of hardware metrics to show.")
    metrics: tuple[str, ...] = Field((), description="Hardware metrics to show.")
    variants: dict[str, tuple[str, ...]] = Field(
        {},
        description="Instead of the campaigns' own sets: names of software metrics, or with '-' those left out.",
    )
    common: dict[str, Any] = Field({}, description="Keys that differ from the campaigns' in all settings.")
    settings: dict[str, dict[str, Any]] = Field(
        {},
        description="Name: keys that differ from the campaigns'; `machine:` holds keys that differ from its machine's.",
    )

    @model_validator(mode="after")
    def _settings_need_variants(self) -> Figure:
        if bool(self.settings) != bool(self.variants):
            raise problem_at("expected settings and variants together, or neither", "settings")
        return self


def load_figure(path: Path) -> Figure:
    """Read a figure's file. Raises `CampaignError`, with file and line."""
    document = YamlDocument.read(path, CampaignError)
    figure = document.validate(Figure, {})
    here = path.resolve().parent
    found = []
    for index, given in enumerate(figure.campaigns):
        absolute = (here / given).resolve()
        if not absolute.is_file():
            where = document.where("campaigns", index)
            raise CampaignError(f"{where}: no such file: {given} (looked for {absolute})")
        found.append(absolute)
        known = load_campaign(absolute)[0].hardware_metrics
        wanted = [(("metrics", n), metric) for n, metric in enumerate(figure.metrics)]
        wanted += [(("pairs", n), metric) for n, pair in enumerate(figure.pairs) for metric in pair]
        for place, metric in wanted:
            if metric not in known:
                raise CampaignError(
                    f"{document.where(*place)}: {given} has no hardware metric '{metric}'{nearest(metric, known)}"
                )
    return figure.model_copy(update={"campaigns": tuple(found)})


def settings_of(figure: Figure, directory: Path) -> dict[tuple[str, str], tuple[Campaign, YamlDocument]]:
    """The campaigns of a figure with settings, by campaign's name and setting.

    Machines that differ are written below ``directory``. Raises `CampaignError` for settings that do not fit.
    """
    made = {}
    for path in figure.campaigns:
        campaign, document = load_campaign(path)
        sets = {name: _chosen(names, tuple(campaign.software_metrics)) for name, names in figure.variants.items()}
        for setting, changes in figure.settings.items():
            data = campaign.model_dump() | {"variants": sets, "cumulative": None}
            keys = _merged(figure.common, changes)
            if "machine" in keys:
                keys["machine"] = _machine(
                    campaign.machine_file, keys["machine"], directory / f"{campaign.name}_{slug(setting)}.yaml"
                )
            try:
                made[campaign.name, setting] = Campaign.model_validate(_merged(data, keys)), document
            except ValueError as error:
                raise CampaignError(f"setting '{setting}' of {path}: {error}") from None
    return made


def _chosen(names: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """``names``; or, when all begin with '-' or there are none, what is ``known`` but those."""
    left_out = {name.removeprefix("-") for name in names if name.startswith("-")}
    if len(left_out) < len(names) or left_out - set(known):
        return tuple(names)
    return tuple(name for name in known if name not in left_out)


def slug(name: str) -> str:
    """A name as part of a path."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        nested = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if nested else value
    return merged


def _machine(path: Path, changes: Mapping[str, Any], target: Path) -> Path:
    text = yaml.safe_dump(_merged(yaml.safe_load(path.read_text(encoding="utf-8")), changes), sort_keys=False)
    if not target.is_file() or target.read_text(encoding="utf-8") != text:
        write_text_atomically(target, text)
    return target
