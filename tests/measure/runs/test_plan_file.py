"""A plan that was saved beside its results is, loaded, the plan that it was: for every valid campaign."""

from __future__ import annotations

import contextlib
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from pydantic import BaseModel

from instrumenter.spec.software_metrics import MetricSpec
from measure.errors import CampaignError
from measure.run_types import (
    BASELINE,
    AddressRange,
    CounterPlace,
    Intervention,
    ProbePlaces,
    RunNoise,
    RunSpec,
)
from measure.runs.builds import BuildFacts
from measure.runs.campaign_file import load_campaign
from measure.runs.campaign_model import EACH_RUN, Alignment, Campaign, Cumulative, Limits, Noise, Program, Sampling
from measure.runs.looks import first_look
from measure.runs.plan import Plan
from measure.runs.plan_file import load_plan, save_plan

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True)
words = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=8)
counts = st.one_of(st.integers(1, 10**12), st.sampled_from(["500k", "2G", "1.5M", "1_000"]))


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A mapping with any of ``fields``; the rest keep their defaults."""
    return st.fixed_dictionaries({}, optional=fields)


def wholly(needed: dict[str, st.SearchStrategy[Any]], **fields: st.SearchStrategy[Any]) -> Any:
    return st.fixed_dictionaries(needed, optional=fields)


INPUT: dict[str, st.SearchStrategy[Any]] = {
    "args": st.lists(st.one_of(words, st.integers(), st.floats(allow_nan=False)), max_size=3),
    "size": st.sampled_from(["tiny", "medium"]),
    "stdin": st.just("demo.c"),
    "exit_status": st.integers(0, 255),
    "files": st.dictionaries(words.map("/".__add__), st.just("demo.c"), max_size=2),
}
COMPILED = {"flags": st.lists(st.sampled_from(["-O2", "-O0", "-g"])), "libraries": st.lists(st.just("m"))}
PROGRAMS = {
    "source": wholly({"source": st.just("demo.c")}, **INPUT, **COMPILED),
    "sources": wholly({"sources": st.lists(st.just("demo.c"), min_size=1)}, **INPUT, **COMPILED),
    "catalogue": wholly({"catalogue": names, "catalogue_file": st.just("programs.yaml")}, **INPUT, **COMPILED),
    "build": wholly({"build": words.filter(str.strip), "directory": st.just("."), "binary": names}, **INPUT),
}
METRICS = st.one_of(
    wholly(
        {"event": st.sampled_from(["entry", "exit", "loop", "branch"]), "function": names},
        add=st.one_of(names, st.integers(), st.floats(0, 9)), file=names, line=st.integers(1, 99),
    ),
    wholly(
        {"event": st.just("call"), "callee": names}, function=names, add=names,
        method=st.sampled_from(["counter", "probe"]),
    ),
    wholly({"event": st.just("write"), "variable": names}, add=names, local=st.booleans()),
    wholly(
        {"event": st.just("write"), "field": st.one_of(names, st.tuples(names, names).map(".".join))},
        sampled=st.integers(2, 1 << 20),
    ),
    wholly({"event": st.sampled_from(["alloc", "alloc_bytes"])}, file=names),
)  # fmt: skip
SAMPLING = st.one_of(
    some(every=st.sampled_from(["40k cycles", "1.5M instructions", "100 cycles"]), mode=st.just("ideal")),
    wholly({"mode": st.just("signal")}, every=st.sampled_from(["40k cycles", "1G cycles"])),
)
NOISE = some(
    code_layouts=st.one_of(st.just(EACH_RUN), st.integers(1, 64)),
    interrupts=st.one_of(st.just(0), counts), interrupt_lines=st.integers(1, 99),
    **{
        name: st.booleans()
        for name in (
            "stack_offset", "heap_offset", "environment_size", "page_placement", "cache_state", "timer_phase"
        )
    },
)  # fmt: skip


@st.composite
def campaigns(draw: st.DrawFn) -> dict[str, Any]:
    """What a valid campaign file holds."""
    software = draw(st.dictionaries(names, METRICS, max_size=4))
    sets = st.lists(st.sampled_from(sorted(software)), min_size=1, unique=True) if software else st.nothing()
    variants = st.dictionaries(names.filter(lambda name: name != BASELINE), sets, max_size=3)
    return draw(
        wholly(
            {
                "name": st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True),
                "program": st.one_of(*PROGRAMS.values()),
                "machine": st.just("machine.yaml"),
                "hardware_metrics": st.lists(names.map("PAPI_".__add__), min_size=2, max_size=4, unique=True),
                "software_metrics": st.just(software),
            },
            sampling=SAMPLING,
            variants=variants if software else st.just({}),
            cumulative=some(orders=st.integers(1, 99), step=st.integers(1, 5)),
            placement=st.sampled_from(["packed", "cache_line"]),
            volatile=st.booleans(),
            baselines=st.integers(2, 1000),
            replicates=st.integers(1, 1000),
            paired=st.booleans(),
            controls=st.booleans(),
            looks=st.integers(1, 20),
            variance_runs=st.integers(0, 100),
            seed=st.integers(0, 10**30),
            noise=NOISE,
            limits=some(instructions=counts, seconds=st.floats(0.1, 1e6)),
            delta=st.floats(0, exclude_min=True),
            alpha=st.floats(0, 0.5, exclude_min=True, exclude_max=True),
            alignment=some(step_penalty=st.floats(0, 1e6), band=st.floats(0, 1, exclude_min=True)),
            outer=st.booleans(),
            ground_truth=st.booleans(),
            explain=st.booleans(),
        )
    )


def plan_of(campaign: Campaign) -> Plan:
    """A plan with a run of each group; nothing is built."""
    length, unit = campaign.sampling.interval
    sets = {BASELINE: (), **campaign.variant_sets()}
    specs = tuple(
        RunSpec(
            group, number, 7, "key", "program", tuple(str(one) for one in campaign.program.args), None,
            (("/in", "/demo.c"),), "name: m\n", "m.yaml", campaign.hardware_metrics,
            tuple(CounterPlace(metric, "counters", 8 * n) for n, metric in enumerate(metrics)), campaign.sampling.mode,
            length, unit, RunNoise(**campaign.noise.model_dump()),
            probes=(ProbePlaces("p", (4, 8), (AddressRange(16, 24),)),),
            intervention=Intervention((4, 8), free=True, code_moves=((16, -4), (24, 0)), boundaries=(100, 200)),
        )
        for number, (group, metrics) in enumerate(sets.items())
    )  # fmt: skip
    builds: dict[str, tuple[BuildFacts, ...]] = {
        group: (BuildFacts("key", 100, ("missed",), ("told",)),) for group in sets
    }
    keys = tuple(spec.variant for spec in specs)
    history = first_look(campaign, "name: m\n", keys, builds)
    return Plan(campaign, "name: m\n", 10**9, specs, keys, builds, "c.yaml", history, ("delta=0.1",))


def load(folder: Path, data: dict[str, Any]) -> Campaign:
    for name in ("demo.c", "machine.yaml", "programs.yaml"):
        (folder / name).touch()
    path = folder / "c.yaml"
    path.write_text(yaml.safe_dump(data, allow_unicode=True), encoding="utf-8")
    return load_campaign(path)[0]


@settings(max_examples=100, deadline=None)
@given(campaigns())
def test_every_valid_campaign_survives_saving_and_loading(data: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan = plan_of(load(folder, data))
        save_plan(plan, folder)
        again = load_plan(folder)
        assert again == plan
        # All settings are written: later defaults are not taken for those of old runs.
        written = json.loads((folder / "plan.json").read_text())["campaign"]
    assert set(written) == set(Campaign.model_fields)
    assert set(written["noise"]) == set(Noise.model_fields)
    assert set(written["program"]) == set(Program.model_fields)


def test_the_campaigns_above_have_every_key() -> None:
    """A key that is added to campaigns has to be added here.

    What is drawn depends on the modules that are loaded, so many are drawn, until all keys were seen.
    """
    seen: dict[type[BaseModel], set[str]] = {}
    metrics: set[str] = set()

    def look(data: dict[str, Any]) -> bool:
        seen.setdefault(Campaign, set()).update(data)
        for model, key in (
            (Program, "program"), (Noise, "noise"), (Limits, "limits"), (Sampling, "sampling"),
            (Cumulative, "cumulative"), (Alignment, "alignment"),
        ):  # fmt: skip
            seen.setdefault(model, set()).update(data.get(key, {}))
        for metric in data["software_metrics"].values():
            metrics.update(metric)
        every = all(keys == set(model.model_fields) for model, keys in seen.items())
        return every and metrics == set(MetricSpec.model_fields)

    many = settings(max_examples=400, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    with contextlib.suppress(NoSuchExample):
        find(campaigns(), look, settings=many)
    for model, keys in seen.items():
        assert keys == set(model.model_fields), model
    assert metrics == set(MetricSpec.model_fields)


def test_columns_of_a_trace_are_in_the_order_of_its_metrics() -> None:
    spec = RunSpec(
        BASELINE, 0, 1, "key", "binary", (), None, (), "name: m\n", "m.yaml", ("h1", "h2"),
        (CounterPlace("s", "counters", 0),), "ideal", 1000, "cycles",
        probes=(ProbePlaces("p", (4,), ()),), extra_columns=("x",),
    )  # fmt: skip
    assert spec.metrics == ("h1", "h2", "s", "x", "probe:p", "before:p")
    boundaries = np.arange(4)
    parts = {
        "hardware": np.ones((3, 2), np.int64), "software": np.full((3, 1), 2), "extra": np.full((3, 1), 3),
        "probes": np.full((3, 2), 4),
    }  # fmt: skip
    trace = spec.trace(boundaries, boundaries, **parts)
    assert trace.values[0].tolist() == [1, 1, 2, 3, 4, 4]
    with pytest.raises(ValueError, match=r"expected 3 records of \[2, 1, 1, 2\] columns"):
        spec.trace(boundaries, boundaries, **{name: part for name, part in parts.items() if name != "extra"})
    with pytest.raises(TypeError, match="unexpected"):
        RunSpec.from_json(json.loads(json.dumps(asdict(spec))) | {"other": 1})
    assert RunSpec.from_json(json.loads(json.dumps(asdict(spec)))) == spec


def test_a_plan_of_another_format_is_refused(tmp_path: Path) -> None:
    data = {
        "name": "new", "program": {"source": "demo.c"}, "machine": "machine.yaml", "sampling": {"every": "1000 cycles"},
        "hardware_metrics": ["PAPI_TOT_INS", "PAPI_LD_INS"],
    }  # fmt: skip
    save_plan(plan_of(load(tmp_path, data)), tmp_path)
    saved = json.loads((tmp_path / "plan.json").read_text())
    (tmp_path / "plan.json").write_text(json.dumps(saved | {"format": "perturbation-plan-2"}))
    with pytest.raises(CampaignError, match="got format 'perturbation-plan-2', expected perturbation-plan-3"):
        load_plan(tmp_path)
