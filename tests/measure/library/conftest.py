"""The small campaign, run once on the fake target."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from measure.campaign.run_command import make_campaign
from tests.measure.library.library_campaign import write_campaign


@pytest.fixture(scope="session")
def fake_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of results whose traces are made up."""
    folder = tmp_path_factory.mktemp("fake")
    make_campaign(write_campaign(folder), folder / "out", Console(quiet=True), workers=2, target="fake")
    return folder / "out"
