"""The small campaign, run once on the fake target."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from measure.campaign.run_command import make_campaign
from tests.measure.fake_runs import fake_runs_in_this_process
from tests.measure.library.library_campaign import write_campaign


def made(folder: Path, baselines: int, replicates: int) -> Path:
    campaign = write_campaign(folder, baselines, replicates)
    with fake_runs_in_this_process():
        make_campaign(campaign, folder / "out", Console(quiet=True), workers=2, target="fake")
    return folder / "out"


@pytest.fixture(scope="session")
def fake_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of results whose traces are made up, with runs enough for verdicts."""
    return made(tmp_path_factory.mktemp("fake"), 20, 4)


@pytest.fixture(scope="session")
def few_fake_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with few runs."""
    return made(tmp_path_factory.mktemp("few"), 2, 1)
