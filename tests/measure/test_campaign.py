"""Campaign files: what is accepted, and what exactly is said about what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from measure.campaign import Campaign, load_campaign
from measure.errors import CampaignError

GOOD = """\
name: demo
program: {source: demo.c, args: [small, 3]}
machine: machine.yaml
sampling: {every: 40k cycles}
hardware_metrics: [PAPI_TOT_INS, PAPI_L1_DCM]
software_metrics:
  nodes: {event: entry, function: search}
variants:
  light: [nodes]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "demo.c").write_text("int main(void) { return 0; }\n")
    (tmp_path / "machine.yaml").write_text("name: m\n")
    return tmp_path


def load(folder: Path, text: str) -> Campaign:
    path = folder / "c.yaml"
    path.write_text(text)
    return load_campaign(path)[0]


def complaint(folder: Path, text: str) -> str:
    with pytest.raises(CampaignError) as caught:
        load(folder, text)
    assert caught.value.exit_status == 2
    return str(caught.value).replace(str(folder), "DIR")


def test_good_campaign(folder: Path) -> None:
    campaign = load(folder, GOOD)
    assert campaign.sampling.interval == (40_000, "cycles")
    assert campaign.program.source == folder / "demo.c"
    assert campaign.machine == folder / "machine.yaml"
    assert campaign.baselines == 20
    assert campaign.variant_sets() == {"light": ("nodes",)}


def test_one_variant_of_everything_by_default(folder: Path) -> None:
    text = GOOD[: GOOD.index("variants:")]
    assert load(folder, text).variant_sets() == {"all": ("nodes",)}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: demo", "nam: demo", "DIR/c.yaml:1: unknown key 'nam'"),
        ("name: demo", "name: demo", ""),
        ("{every: 40k cycles}", "{evry: 40k cycles}", "DIR/c.yaml:4: unknown key 'sampling.evry', expected one of: "
         "mode, every; did you mean 'every'?"),
        ("40k cycles", "40k seconds", "DIR/c.yaml:4: sampling.every: expected a length and a unit, such as "
         "'40000 cycles' or '100k instructions'"),
        ("[PAPI_TOT_INS, PAPI_L1_DCM]", "PAPI_TOT_INS", "DIR/c.yaml:5: hardware_metrics: input should be a valid "
         "tuple, got 'PAPI_TOT_INS'"),
        ("light: [nodes]", "light: [node]", "variant 'light': no software metric 'node'; did you mean 'nodes'?"),
        ("light: [nodes]", "light: []", "variant 'light' collects nothing"),
        ("function: search", "", "event `entry` needs exactly one of `function:`, got none of them"),
        ("source: demo.c", "source: gone.c", "DIR/c.yaml:2: no such file: gone.c (looked for DIR/gone.c)"),
        ("machine: machine.yaml", "machine: gone.yaml", "DIR/c.yaml:3: no such file: gone.yaml"),
        ("source: demo.c", "source: demo.c, catalogue: lua", "expected exactly one of source, sources and "
         "catalogue, got source and catalogue"),
        ("machine: machine.yaml\n", "", "DIR/c.yaml:1: 'machine' is missing"),
        ("name: demo", "name: demo\nname: again", "DIR/c.yaml:2: 'name' is given twice, first in line 1"),
        ("name: demo", "name: [", "not YAML"),
        ("[PAPI_TOT_INS, PAPI_L1_DCM]", "[PAPI_TOT_INS, PAPI_TOT_INS]", "hardware_metrics given twice: PAPI_TOT_INS"),
    ],
)  # fmt: skip
def test_messages(folder: Path, old: str, new: str, message: str) -> None:
    text = GOOD.replace(old, new)
    if not message:
        load(folder, text)
    else:
        assert message in complaint(folder, text)


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match=r"gone\.yaml: cannot be read: No such file"):
        load_campaign(tmp_path / "gone.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CampaignError, match="is not UTF-8 text"):
        load_campaign(tmp_path / "binary.yaml")


def test_every_field_of_the_schema_is_described() -> None:
    schema = Campaign.model_json_schema()
    models = {"Campaign": schema, **schema["$defs"]}
    for model in ("Campaign", "Program", "Sampling", "Noise", "Limits", "MetricSpec"):
        for name, field in models[model]["properties"].items():
            assert "description" in field or "$ref" in str(field), f"{model}.{name}"
