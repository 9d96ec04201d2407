"""Campaign files: what is accepted, and what exactly is said about what is not."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from measure.built_in.machine import built_in_machine
from measure.errors import CampaignError
from measure.runs import campaign_file
from measure.runs.campaign_file import load_campaign
from measure.runs.campaign_model import Campaign

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
    assert campaign.baselines == campaign.replicates == campaign.pairs == 10
    assert campaign.variant_sets() == {"light": ("nodes",)}


def test_a_directory_stands_for_the_files_below_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "in/deep").mkdir(parents=True)
    for name in ("in/b.txt", "in/deep/a.txt", "c.txt"):
        (folder / name).touch()
    text = GOOD.replace("3]}", "3], files: {/data: in, /in/c: c.txt}}")
    assert load(folder, text).program.files == {
        "/data/b.txt": folder / "in/b.txt", "/data/deep/a.txt": folder / "in/deep/a.txt", "/in/c": folder / "c.txt"
    }  # fmt: skip
    monkeypatch.setattr(campaign_file, "MOST_FILES", 1)
    assert complaint(folder, text).startswith("DIR/c.yaml:2: DIR/in has more than 1 files, all of which would be read")
    gone = GOOD.replace("3]}", "3], files: {/data: gone}}")
    assert complaint(folder, gone) == "DIR/c.yaml:2: no such file: gone (looked for DIR/gone)"


def test_one_variant_of_everything_by_default(folder: Path) -> None:
    text = GOOD[: GOOD.index("variants:")]
    assert load(folder, text).variant_sets() == {"all": ("nodes",)}


def test_cumulative_sets_grow_one_metric_at_a_time(folder: Path) -> None:
    names = ["one", "two", "three", "four"]
    metrics = "".join(f"  {name}: {{event: entry, function: f{name}}}\n" for name in names)
    text = GOOD[: GOOD.index("software_metrics:")] + f"software_metrics:\n{metrics}cumulative: {{orders: 2}}\n"
    sets = load(folder, text).variant_sets()
    assert list(sets) == [f"order{order}-{number}" for order in (1, 2) for number in (1, 2, 3, 4)]
    for order in (1, 2):
        grown = [set(sets[f"order{order}-{number}"]) for number in (1, 2, 3, 4)]
        assert [len(one) for one in grown] == [1, 2, 3, 4]
        assert all(smaller < larger for smaller, larger in itertools.pairwise(grown))
    assert sets["order1-4"] == sets["order2-4"] == tuple(names)
    assert load(folder, text + "seed: 2\n").variant_sets() != sets
    stepped = load(folder, text.replace("orders: 2", "orders: 1, step: 3")).variant_sets()
    assert [len(one) for one in stepped.values()] == [3, 4]


def test_names_of_cumulative_sets_are_taken(folder: Path) -> None:
    text = GOOD.replace("light:", "order1-1:") + "cumulative: {orders: 2}\n"
    assert "taken by `cumulative`" in complaint(folder, text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: demo", "name: ../demo", "1: name: got '../demo', expected text that matches "
         "'^[A-Za-z0-9][A-Za-z0-9._-]*$'"),
        ("program: {source: demo.c, args: [small, 3]}", "program: demo.c", "2: program: got the text 'demo.c', "
         "expected keys that say what it is: write `program: {source: demo.c}`"),
        ("program: {source: demo.c, args: [small, 3]}", "program: lua", "2: program: got the text 'lua', expected keys "
         "that say what it is: write `program: {source: FILE.c}`, or `program: {catalogue: lua}` for a program of the "
         "catalogue"),
        ("program: {source: demo.c, args: [small, 3]}", "program: [demo.c]", "2: program: got a list, expected a "
         "mapping of keys to values"),
        ("[PAPI_TOT_INS, PAPI_L1_DCM]", "[PAPI_TOT_INS]", "5: hardware_metrics: got only PAPI_TOT_INS, expected at "
         "least two metrics: a campaign watches how metrics relate to one another, pair by pair; add another, "
         "`measure metrics` with the machine's file lists them"),
        ("{every: 40k cycles}", "{evry: 40k cycles}", "4: sampling.evry: unknown key, expected one of: mode, every; "
         "did you mean 'every'?"),
        ("40k cycles", "40k seconds", "4: sampling.every: got '40k seconds', expected a length and a unit, such as "
         "'40000 cycles' or '100k instructions', or '1 ms' on the host"),
        ("40k cycles", "40000", "4: sampling.every: got '40000', expected a length and a unit, such as "
         "'40000 cycles' or '100k instructions', or '1 ms' on the host"),
        ("40k cycles", "1.2.3k cycles", "4: sampling.every: got '1.2.3k cycles', expected a length and a unit, such "
         "as '40000 cycles' or '100k instructions', or '1 ms' on the host"),
        ("40k cycles", "99 cycles", "4: sampling.every: got '99 cycles', expected at least 100: a record itself takes "
         "that long"),
        ("{every: 40k cycles}", "{mode: signal, every: 40k instructions}", "4: sampling: mode signal samples by a "
         "timer: expected an interval in cycles"),
        ("[PAPI_TOT_INS, PAPI_L1_DCM]", "PAPI_TOT_INS", "5: hardware_metrics: got 'PAPI_TOT_INS', expected a list"),
        ("[PAPI_TOT_INS, PAPI_L1_DCM]", "[PAPI_TOT_INS, PAPI_TOT_INS]", "5: hardware_metrics.1: PAPI_TOT_INS is "
         "given twice"),
        ("function: search", "", "7: software_metrics.nodes: event `entry` needs exactly one of `function:`, got none "
         "of them"),
        ("  nodes:", "  PAPI_L1_DCM:", "7: software_metrics.PAPI_L1_DCM: 'PAPI_L1_DCM' is the name of a hardware "
         "metric: choose another"),
        ("  nodes:", "  begin_cycles:", "7: software_metrics.begin_cycles: got the name 'begin_cycles', expected "
         "letters, digits, '_', '.' and '-', and none of begin_cycles, end_cycles, begin_instructions, "
         "end_instructions"),
        ("light: [nodes]", "light: [node]", "9: variants.light.0: no software metric 'node'; did you mean 'nodes'?"),
        ("light: [nodes]", "light: [nodes, nodes]", "9: variants.light.1: 'nodes' is given twice"),
        ("light: [nodes]", "light: []", "9: variants.light: collects nothing: name at least one software metric"),
        ("light: [nodes]", "baseline: [nodes]", "9: variants.baseline: this name is taken by the runs without "
         "software metrics: choose another"),
        ("source: demo.c", "source: gone.c", "2: no such file: gone.c (looked for DIR/gone.c)"),
        ("machine: machine.yaml", "machine: gone.yaml", "3: no such file: gone.yaml (looked for DIR/gone.yaml). "
         f"The machine that is built in is {built_in_machine()}"),
        ("source: demo.c", "source: demo.c, catalogue: lua", "2: program: expected exactly one of source, sources, "
         "catalogue and build, got source and catalogue"),
        ("machine: machine.yaml\n", "", "1: machine: missing; it has no default"),
        ("name: demo", "name: demo\nname: again", "2: name: given twice, first in line 1"),
        ("name: demo", "name: demo\nbaselines: 1", "2: baselines: got 1, expected greater than or equal to 2"),
        ("name: demo", "name: demo\nlimits: {instructions: 2X}", "2: limits.instructions: expected a count such as "
         "500000, 500k or 2G"),
    ],
)  # fmt: skip
def test_messages(folder: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    assert complaint(folder, GOOD.replace(old, new)) == f"DIR/c.yaml:{message}"


def test_every_problem_is_told_at_once(folder: Path) -> None:
    text = GOOD.replace("name: demo", "nam: demo").replace("40k cycles", "forty")
    lines = complaint(folder, text).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("DIR/c.yaml:1: nam: unknown key, expected one of: name, program, machine, sampling,")
    assert lines[0].endswith("; did you mean 'name'?")
    assert lines[1] == "DIR/c.yaml:1: name: missing; it has no default"
    assert lines[2].startswith("DIR/c.yaml:4: sampling.every: got 'forty', expected")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [", "c.yaml:1: not YAML: "),
        ("- name", "c.yaml:1: got a list, expected a mapping of keys to values"),
        ("", "c.yaml:1: got nothing, expected a mapping of keys to values"),
        ("name: &a [*a]", "c.yaml:1: name.0: got an alias of a mapping or list that contains it"),
        ("? [a, b]\n: c", "c.yaml:1: got a list as a key, expected a name"),
        ("name: \x07", "c.yaml:1: not YAML: "),
    ],
)
def test_what_is_not_a_mapping(folder: Path, text: str, message: str) -> None:
    assert complaint(folder, text).startswith(f"DIR/{message}")


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
            about = field.get("description", "")
            assert about or "$ref" in str(field), f"{model}.{name}"
            default = field.get("default")
            if model != "MetricSpec" and default not in (None, [], {}):
                assert "efault: " in about, f"{model}.{name} has the default {default!r}, which is not described"
