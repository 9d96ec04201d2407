"""The dependencies that an installation takes: bounded, and the compilers exact, so that recorded figures stay true."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = [requirement for extra in PROJECT["optional-dependencies"].values() for requirement in extra]
REQUIREMENTS = [
    requirement
    for requirement in [*PROJECT["dependencies"], *EXTRAS]
    if not requirement.startswith(PROJECT["name"])  # an extra that another extra takes
]


@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_every_dependency_has_an_upper_bound(requirement: str) -> None:
    assert re.search(r"(<|==)\d", requirement), f"{requirement} takes any later release"


@pytest.mark.parametrize("compiler", ["ziglang", "libclang"])
def test_the_compilers_are_exact_because_another_version_gives_other_figures(compiler: str) -> None:
    assert any(re.fullmatch(rf"{compiler}==[\d.]+", requirement) for requirement in REQUIREMENTS)
