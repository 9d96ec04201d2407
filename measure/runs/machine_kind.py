"""Which keys of a campaign have a meaning on the host, and which on an emulated machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from common.yaml_document import YamlDocument
from measure.errors import CampaignError

if TYPE_CHECKING:
    from measure.runs.campaign_model import Campaign, SharedKeys

_MEMORY = "a real machine's pages and caches are as they come, and differ from run to run"


def check_machine_kind(campaign: Campaign, document: YamlDocument) -> None:
    """Raise `CampaignError`, with file and line, for keys that the campaign's machine cannot do."""
    for keys, problem in _problems(campaign, document.data):
        raise CampaignError(f"{document.where(*keys)}: {'.'.join(map(str, keys))}: {problem}")


def _problems(campaign: Campaign, given: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Keys and what is wrong with each. ``given``: what the file has, without defaults."""
    unit = campaign.sampling.interval[1]
    if campaign.host is None:
        if unit == "nanoseconds":
            yield (
                ("sampling", "every"),
                f"got '{campaign.sampling.every}', expected cycles or instructions on an emulated machine, such as "
                "'100000 cycles'",
            )
        yield from _with_ideal_sampler(campaign)
        return
    where = ("sampling", "every") if "every" in (given.get("sampling") or {}) else ("machine",)
    if unit != "nanoseconds":
        yield where, f"the host samples by processor time: expected sampling: {{every: 1 ms}}, got {unit}"
    if (given.get("sampling") or {}).get("mode") == "ideal":
        yield ("sampling", "mode"), "on the host the program itself reads the counters: expected signal"
    yield from _emulated_only(campaign)
    noise = given.get("noise") or {}
    for key in ("page_placement", "cache_state"):
        if key in noise:
            yield ("noise", key), f"{_MEMORY}: leave the key out"
    if campaign.noise.interrupts:
        yield ("noise", "interrupts"), "a real machine has interrupts of its own: leave the key out"


def _with_ideal_sampler(campaign: Campaign) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """What does not go together with counts from a second run."""
    for metric in campaign.in_second_run(tuple(campaign.software_metrics)):
        where = ("software_metrics", metric, "method")
        if campaign.sampling.mode == "signal":
            yield (
                where,
                "a sampler in the program takes its records in the second run at other places: expected sampling.mode "
                "ideal, or a counter (leave the key out)",
            )
        if campaign.ground_truth:
            yield where, "ground_truth compares counters with probes in one run: use a counter (leave the key out)"


def _emulated_only(campaign: Campaign) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Keys for which runs are made that no processor can make."""
    for metric, spec in campaign.software_metrics.items():
        where = ("software_metrics", metric, "method")
        if spec.method == "probe":
            yield (
                where,
                "a probe watches an emulated program from outside: use a counter (leave the key out), or an emulated "
                "machine",
            )
        elif spec.method == "second_run":
            yield (
                where,
                "two runs of a real processor differ, and none can be stopped where another was: use a counter (leave "
                "the key out), or an emulated machine",
            )
    for key in ("explain", "ground_truth"):
        if getattr(campaign, key):
            yield (key,), "this needs runs that no processor can make: give a machine file"
    if campaign.variance_runs:
        yield ("variance_runs",), "sources of noise cannot be drawn one by one on the host: leave the key out"


def check_emulated(campaign: SharedKeys, document: YamlDocument, command: str) -> None:
    """Raise `CampaignError`, with file and line, if the campaign is for the host: ``command`` needs the emulator."""
    if campaign.host is not None:
        raise CampaignError(
            f"{document.where('machine')}: {command} works on an emulated machine only: name the file of one, in the "
            "campaign or by --set machine=FILE with a --set sampling.every in cycles"
        )


def uncounted_metrics(campaign: SharedKeys, document: YamlDocument) -> list[str]:
    """What keeps this machine from counting the hardware metrics of a campaign on the host, a line each."""
    from measure.host.metrics import problems

    place = {name: n for n, name in enumerate(campaign.hardware_metrics)}
    return [
        f"{document.where('hardware_metrics', *([place[name]] if name else []))}: {name or 'these metrics'}: {why}"
        for name, why in problems(campaign.hardware_metrics).items()
    ]
