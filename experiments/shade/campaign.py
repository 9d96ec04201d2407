"""The campaign file of this experiment: which programs, how much of them, at which levels, beside which tools."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from common.suggestions import nearest
from common.yaml_document import YamlDocument
from experiments.shade.levels import LEVELS
from experiments.shade.others import TOOLS
from measure.errors import CampaignError

SIZES = ("tiny", "small", "medium", "large")
WORKLOADS = Path(__file__).resolve().parents[1] / "workloads"


class Campaign(BaseModel):
    """What is run, and how often."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    shows: str = Field(description="What the experiment shows; the title of its picture.")
    programs: tuple[str, ...] = Field(min_length=1, description="Names in experiments/workloads, without .c")
    size: str = Field("large", description="The programs' argument.")
    slow_size: str = Field("small", description="The argument for what is slow.")
    rounds: int = Field(3, ge=1, description="Runs of each; the best counts.")
    levels: tuple[int, ...] = Field(min_length=1, description="Levels of tracing of ours.")
    others: tuple[str, ...] = Field((), description="Other tools, as far as they are there.")

    @field_validator("programs")
    @classmethod
    def _are_there(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        known = sorted(path.stem for path in WORKLOADS.glob("*.c"))
        for name in names:
            if name not in known:
                raise ValueError(f"no program '{name}'{nearest(name, known)}; expected some of {', '.join(known)}")
        return names

    @field_validator("size", "slow_size")
    @classmethod
    def _is_a_size(cls, size: str) -> str:
        if size not in SIZES:
            raise ValueError(f"got '{size}', expected one of {', '.join(SIZES)}")
        return size

    @field_validator("levels")
    @classmethod
    def _are_levels(cls, numbers: tuple[int, ...]) -> tuple[int, ...]:
        if 0 not in numbers or not set(numbers) <= set(range(len(LEVELS))):
            raise ValueError(f"got {list(numbers)}, expected 0 and others up to {len(LEVELS) - 1}")
        return numbers

    @field_validator("others")
    @classmethod
    def _are_tools(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in TOOLS:
                raise ValueError(f"no tool '{name}'{nearest(name, list(TOOLS))}; expected some of {', '.join(TOOLS)}")
        return names


def load_campaign(path: Path) -> Campaign:
    """Read a campaign file. Raises `CampaignError`, with file and line."""
    return YamlDocument.read(path, CampaignError).validate(Campaign, {})
