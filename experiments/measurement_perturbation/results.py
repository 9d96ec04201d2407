"""What the campaigns of the reproduction left: the tables of `collect`, and the traces themselves."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from experiments.measurement_perturbation.collect import TABLES
from experiments.measurement_perturbation.figures import Figure, slug
from measure.errors import MeasureError
from measure.run_types import BASELINE
from measure.runs.campaign_file import load_campaign
from measure.runs.campaign_model import Campaign


class Results:
    """Results of a figure's campaigns below ``directory``."""

    def __init__(self, directory: Path, figure: Figure) -> None:
        self._directory = directory
        self.campaigns: dict[str, Campaign] = {}
        for path in figure.campaigns:
            campaign = load_campaign(path)[0]
            self.campaigns[campaign.name] = campaign

    def table(self, name: str, campaign: str, setting: str | None = None) -> pd.DataFrame:
        """One of the tables of `collect`. Raises `MeasureError` when it is not there."""
        assert name in TABLES
        path = self.place(campaign, setting) / f"{name}.parquet"
        if not path.is_file():
            raise MeasureError(f"{path}: no such table; `python -m experiments.measurement_perturbation.run` makes it")
        return pd.read_parquet(path)

    def place(self, campaign: str, setting: str | None = None) -> Path:
        """Where the results of a campaign are, or of one of its settings."""
        if setting is None:
            return self._directory / campaign
        return self._directory / "settings" / slug(setting) / campaign

    def trace(self, campaign: str, key: str) -> pd.DataFrame:
        """The trace of a run, a column a metric."""
        return pd.read_parquet(self.place(campaign) / "traces" / f"{key}.parquet")

    def points(self, campaign: str) -> pd.DataFrame:
        """The runs with counters, by order and step, with each order's start: the first baseline, as step 0."""
        runs = self.table("runs", campaign)
        instrumented = runs[runs["order"] > 0]
        first = runs[(runs["group"] == BASELINE) & (runs["replicate"] == 0)]
        starts = [first.assign(order=order) for order in sorted(instrumented["order"].unique())]
        return pd.concat([*starts, instrumented]).sort_values(["order", "step"], ignore_index=True)
