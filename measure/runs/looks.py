"""The design of a campaign, hashed before its first run, and the looks at its results.

A design is everything that decides which runs are made and how they are judged. Its hash is in plan.json before the
first run is made, and in the report. A campaign whose file asks for more baselines or replicates than before, and
changes nothing else, is *extended*: its runs are kept, new ones are added, and the result is looked at again. Each of
``looks`` planned looks is judged at alpha / looks (Bonferroni over looks; the boundary of Pocock 1977, "Group
sequential methods in the design and analysis of clinical trials", Biometrika 64, is a little less strict, as it counts
on how alike the looks are). So the chance of any false alarm in all of them stays at most alpha.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from measure.errors import CampaignError
from measure.runs.builds import BuildFacts
from measure.runs.campaign_model import Campaign

_JUDGED_BY = ("hardware_metrics", "delta", "alpha", "outer", "alignment", "seed", "looks", "controls")


@dataclass(frozen=True)
class Look:
    """One look at a campaign's results: the hash of its design, and the runs that it has.

    ``made``: the number of runs that there were, where some were missing.
    """

    design: str
    baselines: int
    replicates: int
    made: int | None = None

    @property
    def text(self) -> str:
        """Its runs in words: ``12 + 36``, or ``20 of 12 + 36`` where some were missing."""
        planned = f"{self.baselines} + {self.replicates}"
        return planned if self.made is None else f"{self.made} of {planned}"


@dataclass(frozen=True)
class Other:
    """The looks at results of another kind in the same directory. ``kind``: see `History`."""

    kind: str
    looks: tuple[Look, ...]


@dataclass(frozen=True)
class History:
    """The looks at the results in a directory, the present one last. ``kind``: hash of what all looks share;
    ``replaced``: number of other designs whose results were in the directory before; ``others``: those of other kinds,
    which may come back."""

    kind: str
    looks: tuple[Look, ...]
    replaced: int = 0
    others: tuple[Other, ...] = ()

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> History:
        """The history that `dataclasses.asdict` turned into plain JSON types. Raises `KeyError` and `TypeError`."""
        others = tuple(Other(one["kind"], _looks(one)) for one in saved["others"])
        return cls(saved["kind"], _looks(saved), saved["replaced"], others)

    @property
    def design(self) -> str:
        """Hash of the present design."""
        return self.looks[-1].design

    def text(self, campaign: Campaign) -> str:
        """The design, the looks and their levels in a line."""
        counts = ", then ".join(look.text for look in self.looks)
        extra = len(self.looks) > campaign.looks
        planned = f"look {len(self.looks)}" + (
            f", {campaign.looks} planned" if extra else f" of {campaign.looks} planned"
        )
        text = f"{self.design[:12]}, {planned} ({counts} runs), each at alpha {campaign.alpha_of_a_look:g}"
        return text + (f"; other designs run in this directory before: {self.replaced}" if self.replaced else "")

    def warnings(self, campaign: Campaign) -> tuple[str, ...]:
        """Sentences on looks that were not planned."""
        if len(self.looks) <= campaign.looks:
            return ()
        chance = min(1.0, len(self.looks) * campaign.alpha_of_a_look)
        return (
            f"This is look {len(self.looks)} at a campaign that planned {campaign.looks}: the chance of a false alarm "
            f"in any of them is up to {chance:.1%}, not {campaign.alpha:.1%}. Plan for it (`looks:`) in a new campaign "
            "with another seed.",
        )


def judging_design(campaign: Campaign) -> dict[str, Any]:
    """How a campaign's runs are judged, as plain JSON data: what verdicts rest on beside the runs themselves and the
    code that judges them. Remembered verdicts and explanations have it in their keys."""
    values = campaign.model_dump(mode="json", include=set(_JUDGED_BY))
    return {**values, "pairs": bool(campaign.pairs), "variants": campaign.variant_sets()}


def design_of(campaign: Campaign, machine_text: str, keys: tuple[str, ...]) -> Look:
    """The design of a campaign whose runs have the `drawn_keys` ``keys``, in the order of their execution."""
    identity = {**judging_design(campaign), "machine": machine_text, "runs": list(keys)}
    return Look(_digest(identity), campaign.baselines, campaign.replicates)


def first_look(
    campaign: Campaign, machine_text: str, keys: tuple[str, ...], *builds: Mapping[str, Sequence[BuildFacts]]
) -> History:
    """The history of a campaign that was not run in this directory before. ``builds``: facts of programs by variant."""
    kind = _digest(
        {**judging_design(campaign), "machine": machine_text, "builds": _build_keys(builds), "noise": _noise(campaign)}
    )
    return History(kind, (design_of(campaign, machine_text, keys),))


def continued(now: History, before: History | None, looked_at: bool) -> History:
    """``now`` after ``before``, the history in the directory; ``looked_at``: whether its results were analysed.

    The same design again is the same look. More runs of the same kind are a further look if the last was looked at,
    also when runs of another kind were made in the directory between.
    """
    if before is None:
        return now
    earlier = before.looks if looked_at or before.looks[-1].made is not None else before.looks[:-1]
    if now.kind == before.kind:
        if now.design == before.design:
            return _further(before, now.looks[-1])
        return _further(replace(before, looks=earlier), now.looks[-1])
    looks_by_kind = {one.kind: one.looks for one in before.others}
    back = looks_by_kind.pop(now.kind, ())
    others = tuple(Other(kind, looks) for kind, looks in {**looks_by_kind, before.kind: earlier}.items() if looks)
    history = replace(now, looks=back, replaced=before.replaced + looked_at - bool(back), others=others)
    return _further(history, now.looks[-1])


def after_look(history: History, made: int, planned: int) -> History:
    """``history`` once its results were looked at when ``made`` of the ``planned`` runs of its last design were there.

    The same runs again are the same look; more of them are a further one.
    """
    *earlier, last = history.looks
    this = replace(last, made=made if made < planned else None)
    if last.made is not None:
        earlier.append(last)
    return replace(history, looks=(*earlier, this) if this not in earlier[-1:] else tuple(earlier))


def _further(history: History, this: Look) -> History:
    """``history``, all of whose looks were taken, before ``this`` look at a design of its kind."""
    if not history.looks:
        return replace(history, looks=(this,))
    last = history.looks[-1]
    if this.design == last.design:
        return history if last.made is None else replace(history, looks=(*history.looks, this))
    if this.baselines >= last.baselines and this.replicates >= last.replicates:
        return replace(history, looks=(*history.looks, this))
    return replace(history, looks=(this,), replaced=history.replaced + 1)


def _looks(saved: Mapping[str, Any]) -> tuple[Look, ...]:
    return tuple(Look(**look) for look in saved["looks"])


def load_history(path: Path) -> History | None:
    """The history in a plan.json; None without such a file. Raises `CampaignError` when it is damaged."""
    try:
        return History.from_json(json.loads(path.read_text(encoding="utf-8"))["history"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CampaignError(
            f"{path} is damaged ({type(error).__name__}), so it is not known how often the results were looked at: if "
            "they never were, delete it; else run the campaign with another seed, in another directory (--out)"
        ) from None


def _noise(campaign: Campaign) -> dict[str, Any]:
    sampling = campaign.sampling.model_dump(mode="json")
    return {"noise": campaign.noise.model_dump(mode="json"), "sampling": sampling, "args": list(campaign.program.args)}


def _build_keys(builds: Iterable[Mapping[str, Sequence[BuildFacts]]]) -> dict[str, list[str]]:
    """For each variant, the keys of its programs in the first of their layouts."""
    found: dict[str, list[str]] = {}
    for programs in builds:
        for variant, layouts in programs.items():
            found.setdefault(variant, []).extend(facts.key for facts in layouts[:1])
    return found


def _digest(identity: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()
