"""Campaigns of small programs for tests of explanations, run once a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from measure.explanation.paired_runs import PairedRuns
from measure.runs.campaign_file import load_campaign
from measure.runs.executor import Workers
from measure.runs.plan import make_plan
from measure.runs.store import Store

DESKTOP = Path(__file__).parents[3] / "configs" / "machines" / "desktop.yaml"
Planted = Callable[..., PairedRuns]


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """Processes that all tests of a file have: each loads the emulator once."""
    with Workers(2) as workers:
        yield workers


@pytest.fixture
def planted(tmp_path: Path, workers: Workers) -> Iterator[Planted]:
    """Pairs of runs of a program given as text: ``planted(source, metrics, machine changes, pairs)``."""
    opened: list[Store] = []

    def make(
        source: str, metrics: dict[str, object], machine: dict[str, object] | None = None, pairs: int = 3,
        every: str = "4000 cycles", **campaign: object,
    ) -> PairedRuns:  # fmt: skip
        (tmp_path / "program.c").write_text(source)
        described = yaml.safe_load(DESKTOP.read_text())
        for key, change in (machine or {}).items():
            described[key] = {**described[key], **change} if isinstance(change, dict) else change
        (tmp_path / "machine.yaml").write_text(yaml.safe_dump(described))
        content = {
            "name": "planted", "program": {"source": "program.c"}, "machine": "machine.yaml",
            "sampling": {"every": every},
            "hardware_metrics": ["PAPI_TOT_INS", "PAPI_LD_INS", "PAPI_BR_CN", "PAPI_L1_DCM"],
            "software_metrics": metrics, "baselines": 2, "replicates": 1, "noise": {"code_layouts": 1},
            **campaign,
        }  # fmt: skip
        (tmp_path / "campaign.yaml").write_text(yaml.safe_dump(content))
        loaded, document = load_campaign(tmp_path / "campaign.yaml")
        plan = make_plan(loaded, document, lambda text: None)
        store = Store(tmp_path / f"explain{len(opened)}")
        opened.append(store)
        return PairedRuns(plan, document, store, workers, pairs)

    yield make
    for store in opened:
        store.close()
