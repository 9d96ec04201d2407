"""Errors of a plan name the line of the metric that they are about; input files are hashed once."""

from __future__ import annotations

from pathlib import Path

import pytest

from measure.errors import CampaignError
from measure.run_types import RunSpec
from measure.runs.campaign_file import load_campaign
from measure.runs.plan import content_keys, make_plan

ROOT = Path(__file__).parents[3]
CAMPAIGN = """\
name: demo
program: {{source: demo.c}}
machine: {machine}
sampling: {{every: 4000 cycles}}
hardware_metrics:
  - PAPI_TOT_INS
  - {second}
  - PAPI_LD_INS
software_metrics:
  work: {{event: entry, function: work}}
  work_twice: {{event: entry, function: {function}}}
  last: {{event: entry, function: main}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "demo.c").write_text(
        "static int x; void work(int n) { x += n; } int main(void) { work(2); return x; }\n"
    )
    return tmp_path


def plan_error(folder: Path, second: str = "PAPI_SR_INS", function: str = "work") -> str:
    path = folder / "demo.yaml"
    machine = ROOT / "configs" / "machines" / "desktop.yaml"
    path.write_text(CAMPAIGN.format(machine=machine, second=second, function=function))
    campaign, document = load_campaign(path)
    with pytest.raises(CampaignError) as error:
        make_plan(campaign, document, lambda text: None, "fake")
    return str(error.value)


def test_a_name_that_begins_like_another_has_its_own_line(folder: Path) -> None:
    assert "demo.yaml:7: machine 'desktop' cannot count 'PAPI_TOT_INX'" in plan_error(folder, "PAPI_TOT_INX")


def test_a_software_metric_whose_name_holds_another_has_its_own_line(folder: Path) -> None:
    assert "demo.yaml:11: metric 'work_twice': no function 'wrok'" in plan_error(folder, function="wrok")


def test_each_input_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "in.txt"
    path.write_text("input")
    read: list[Path] = []
    read_bytes = Path.read_bytes

    def counted(self: Path) -> bytes:
        read.append(self)
        return read_bytes(self)

    specs = [
        RunSpec(
            "baseline", number, number, "key", "binary", (), str(path), (("/in", str(path)),), "name: m\n", "m.yaml",
            ("PAPI_TOT_INS",), (), "ideal", 1000, "cycles", target="fake",
        )
        for number in range(5)
    ]  # fmt: skip
    monkeypatch.setattr(Path, "read_bytes", counted)
    keys = content_keys(specs)
    assert read.count(path) == 1
    assert len(set(keys)) == 5
    monkeypatch.undo()
    path.write_text("other")
    assert not set(keys) & set(content_keys(specs))
