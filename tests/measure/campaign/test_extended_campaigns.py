"""Campaigns that extend others, and `--set`: what runs, what is stored, and which commands know them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result

from emulator.timing.machine_file import load_machine, machine_text, parse_machine
from measure.campaign import run_command
from measure.cli import main
from measure.errors import CampaignError
from measure.runs.campaign_file import load_campaign
from tests.measure.demo_program import PROGRAM, source_file
from tests.measure.fake_runs import fake_runs_in_this_process

ROOT = Path(__file__).parents[3]
BASE = """\
name: base
program: {source: demo.c}
machine: fast.yaml
sampling: {every: 4000 cycles}
hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS, PAPI_BR_MSP]
software_metrics:
  rounds: {event: entry, function: work}
  perturbing: {event: call, callee: next}
variants: {light: [rounds], heavy: [rounds, perturbing]}
baselines: 8
outer: false
replicates: 8
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/demo.c").symlink_to(source_file(PROGRAM))
    (tmp_path / "shared/base.yaml").write_text(BASE)
    (tmp_path / "shared/fast.yaml").write_text(
        f"extends: {ROOT}/configs/machines/strongarm.yaml\nname: fast\nclock_hz: 1_000_000_000\n"
    )
    (tmp_path / "mine.yaml").write_text(
        "extends: shared/base.yaml\nname: mine\nvariants: {heavy: [perturbing]}\nnoise: {stack_offset: false}\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def measure(*arguments: object) -> Result:
    with fake_runs_in_this_process():
        return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.slow
def test_results_stand_alone_with_the_merged_campaign(folder: Path) -> None:
    made = measure("run", "mine.yaml", "--out", "out", "--target", "fake", "--set", "delta=0.1", "--set", "seed=4")
    assert made.exit_code == 0, made.output
    plan = json.loads((folder / "out/plan.json").read_text())
    campaign = plan["campaign"]
    assert {key: campaign[key] for key in ("name", "delta", "seed", "replicates")} == {
        "name": "mine", "delta": 0.1, "seed": 4, "replicates": 8,
    }  # fmt: skip
    assert campaign["variants"] == {"light": ["rounds"], "heavy": ["perturbing"]}  # maps are merged, lists replaced
    assert campaign["program"]["source"] == str(source_file(PROGRAM))
    machine = parse_machine(plan["machine_text"], "stored")
    assert (machine.name, machine.clock_hz) == ("fast", 1_000_000_000)
    assert machine.l1d == load_machine(ROOT / "configs/machines/strongarm.yaml").l1d
    shutil.rmtree(folder / "shared")
    (folder / "mine.yaml").unlink()
    again = measure("report", "out")
    assert again.exit_code == 0, again.output
    assert json.loads((folder / "out/summary.json").read_text())["campaign"] == "mine"


@pytest.mark.slow
def test_a_campaign_that_ends_before_its_verdicts_leaves_no_other_ones(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdicts of the campaign that had the directory before lay beside the new plan."""
    verdicts = {"summary.json", "verdicts.json", "pairs.csv", "pairs.parquet", "report.html"}
    options = "--out", "out", "--target", "fake"
    assert measure("run", "mine.yaml", *options).exit_code == 0

    def files() -> set[str]:
        return {path.name for path in (folder / "out").iterdir()}

    assert verdicts < files()

    def ended(*_: object, **__: object) -> None:
        raise CampaignError("ended")

    with monkeypatch.context() as patched:
        patched.setattr(run_command, "execute_plan", ended)
        assert measure("run", "mine.yaml", *options).exit_code == 2
        assert verdicts < files()  # these are of the same runs
        assert measure("run", "mine.yaml", *options, "--set", "seed=7").exit_code == 2
        assert not verdicts & files()
    assert measure("run", "mine.yaml", *options, "--set", "seed=7").exit_code == 0
    plan = json.loads((folder / "out/plan.json").read_text())
    assert (plan["campaign"]["seed"], plan["history"]["replaced"]) == (7, 1)
    assert verdicts < files()


def test_errors_name_the_file_that_set_the_value(folder: Path) -> None:
    base = folder / "shared/base.yaml"
    base.write_text(BASE.replace("every: 4000 cycles", "every: 4000 rounds").replace("source: demo.c", "source: d.c"))
    result = measure("run", "mine.yaml")
    assert result.exit_code == 2
    assert "shared/base.yaml:4: sampling.every: got '4000 rounds', expected a length and a unit" in result.output
    with pytest.raises(CampaignError, match=r"shared/base\.yaml:2: no such file: d\.c \(looked for .*shared/d\.c\)"):
        load_campaign(folder / "mine.yaml", ["sampling.every=4k cycles"])
    campaign, _ = load_campaign(folder / "mine.yaml", ["sampling.every=4k cycles", "program.source=shared/demo.c"])
    assert campaign.program.source == source_file(PROGRAM)  # of a setting, relative to the current directory
    result = measure("run", "mine.yaml", "--set", "sampling.evry=1")
    assert "--set sampling.evry=1: sampling.evry: unknown key" in result.output
    assert "did you mean 'every'?" in result.output
    (folder / "shared/fast.yaml").write_text("extends: fast.yaml\n")
    assert "these files extend each other: " in measure("metrics", "shared/fast.yaml").output


def test_every_command_that_reads_a_file_takes_settings(folder: Path) -> None:
    listed = measure("metrics", "mine.yaml", "--set", "hardware_metrics=[PAPI_L1_DCM, PAPI_TOT_CYC]")
    assert listed.exit_code == 0, listed.output
    assert [line.split()[1] for line in listed.output.splitlines() if line.startswith("* ")] == [
        "PAPI_TOT_CYC", "PAPI_L1_DCM",
    ]  # fmt: skip
    machine = measure("metrics", "shared/fast.yaml", "--set", "itlb=null")
    assert "PAPI_TLB_IM" not in machine.output
    assert "PAPI_TLB_IM" in measure("metrics", "shared/fast.yaml").output
    for command in (
        ["run", "mine.yaml"], ["report", "mine.yaml"], ["partition", "mine.yaml"], ["check-sampling", "mine.yaml"],
        ["run", "--counts", "mine.yaml"], ["run", "--dry-run", "mine.yaml"],
    ):  # fmt: skip
        result = measure(*command, "--set", "replicats=3")
        assert result.exit_code == 2, result.output
        assert "--set replicats=3: replicats: unknown key" in result.output, command
    for command in (["cycleclose"], ["phases"]):
        result = measure(*command, "--machine", "shared/fast.yaml", "--set", "l1d.size=3", "shared/demo.c")
        assert result.exit_code == 2, result.output
        assert "--set l1d.size=3: l1d.size: unknown key" in result.output, command
    assert measure("report", "shared", "--set", "delta=1").exit_code == 2
    assert measure("phases", "--set", "name=x", "shared/demo.c").exit_code == 2


def test_a_file_that_extends_is_valid_for_editors(folder: Path) -> None:
    for kind, name in (("campaign", "mine.yaml"), ("campaign", "shared/base.yaml"), ("machine", "shared/fast.yaml")):
        schema = json.loads(measure("schema", kind).output)
        jsonschema.validate(yaml.safe_load((folder / name).read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"name": "incomplete"}, json.loads(measure("schema", "campaign").output))


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        ("extends: base.yaml\nsoftware_metrics: {rounds: {method: second_run}}", True),  # has `event` in the other file
        ("extends: base.yaml\nvariants: {light: null}\nbaselines: null", True),
        ("extends: base.yaml\nprogram: {args: [small]}", True),
        ("extends: base.yaml\nsoftware_metrics: {rounds: {methd: second_run}}", False),
        (BASE, True),
        (BASE.replace("{source: demo.c}", "{}"), False),
        (BASE.replace("{source: demo.c}", "{source: demo.c, catalogue: lua}"), False),
        (BASE.replace("{source: demo.c}", "{build: make, directory: ., binary: a}"), True),
        (BASE.replace("event: call, callee: next", "event: call, function: next"), False),
        (BASE.replace("event: call, callee: next", "event: loop, line: 3"), True),
        (BASE.replace("baselines: 8", "baselines: null"), False),
    ],
)
def test_editors_are_told_what_the_command_refuses_and_nothing_else(folder: Path, text: str, is_valid: bool) -> None:
    """Files that extend another were marked as wrong for what only the other file has."""
    schema = json.loads(measure("schema", "campaign").output)
    (folder / "shared" / "one.yaml").write_text(text)
    (folder / "shared" / "a").touch()
    problem = jsonschema.Draft202012Validator(schema).is_valid(yaml.safe_load(text))
    assert problem == is_valid
    if "catalogue" in text or not is_valid:
        with pytest.raises(CampaignError):
            load_campaign(folder / "shared" / "one.yaml")
    else:
        load_campaign(folder / "shared" / "one.yaml")


def test_every_shipped_file_is_valid_for_editors() -> None:
    for kind, pattern in (("campaign", "campaigns/*.yaml"), ("machine", "machines/*.yaml")):
        schema = json.loads(measure("schema", kind).output)
        for path in sorted((ROOT / "configs").glob(pattern)):
            document = yaml.safe_load(path.read_text())
            if "configurations" not in document and "sweep" not in document:
                jsonschema.validate(document, schema)


def test_a_machine_that_extends_nothing_keeps_its_text(folder: Path) -> None:
    """Keys of stored runs depend on the text: comments and all."""
    path = ROOT / "configs/machines/desktop.yaml"
    assert machine_text(path) == path.read_text()
