"""Keys of runs follow the sources of their target, so that no stored run is taken that other code made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from measure.run_types import RunSpec
from measure.runs import plan
from measure.runs.plan import content_keys, drawn_keys
from measure.targets import target_named, target_sources
from tests.test_layers import MODULES, imports

ROOT = Path(__file__).parents[3]
# Code that decides no count: types and the version of a spec's identity, errors, checks of what users give.
WITHOUT_INFLUENCE = (
    "measure.run_types", "measure.errors", "measure.arguments", "measure.perturbation.analysis_types"
)  # fmt: skip
# By target, packages whose sources are not part of its keys, although its module imports from them: the instrumenter's
# are part of the program's key, and on the host the emulator only has names and constants for programs' files.
ELSEWHERE = {
    "emulated": ("instrumenter",), "cycleclose": ("instrumenter",), "host": ("instrumenter", "emulator", "common"),
    "fake": (),
}  # fmt: skip


def spec_for(target: str) -> RunSpec:
    return RunSpec(
        "baseline", 0, 0, "key", "binary", (), None, (), "name: m\n", "m.yaml", ("PAPI_TOT_INS",), (), "ideal", 1000,
        "cycles", target=target,
    )  # fmt: skip


def key_after(
    change: str, target: str, monkeypatch: pytest.MonkeyPatch, keys: Callable[..., tuple[str, ...]] = content_keys
) -> str:
    """The key of a run on ``target`` after a change of the source file ``change``."""
    place = ROOT / change
    assert place.is_file()

    def digest(paths: Iterable[Path]) -> str:
        return "changed" if any(place.is_relative_to(path) for path in paths) else "as before"

    monkeypatch.setattr(plan, "source_digest", digest)
    plan._target_digest.cache_clear()
    try:
        return keys([spec_for(target)])[0]
    finally:
        plan._target_digest.cache_clear()


@pytest.mark.parametrize(
    ("change", "targets"),
    [
        ("emulator/timing/inorder.py", {"emulated", "cycleclose"}),
        ("common/distinct.py", {"emulated", "cycleclose"}),
        ("measure/cycle_close/live_counts_kernel.py", {"cycleclose"}),
        ("measure/targets/cycleclose.py", {"cycleclose"}),
        ("measure/targets/second_run.py", {"emulated", "cycleclose"}),
        ("measure/targets/program_file.py", {"emulated", "cycleclose", "host"}),
        ("measure/targets/host.py", {"host"}),
        ("measure/host/metrics.py", {"host"}),
        ("measure/targets/fake.py", {"fake"}),
        ("measure/report/html.py", set()),
    ],
)
def test_a_change_of_its_sources_changes_the_keys_of_a_target(
    change: str, targets: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {target: key_after("pyproject.toml", target, monkeypatch) for target in ELSEWHERE}
    after = {target: key_after(change, target, monkeypatch) for target in ELSEWHERE}
    assert {target for target in ELSEWHERE if before[target] != after[target]} == targets
    for target in ELSEWHERE:  # another version was a further look at the same runs
        same = {key_after(one, target, monkeypatch, drawn_keys) for one in ("pyproject.toml", change)}
        assert len(same) == 1


@pytest.mark.parametrize("target", ELSEWHERE)
def test_the_sources_of_a_target_are_all_that_its_module_imports(target: str) -> None:
    wanted, sources = [type(target_named(target)).__module__], target_sources(target)
    found: set[str] = set()
    while wanted:
        module = wanted.pop()
        if module in found or module in WITHOUT_INFLUENCE or module.startswith(ELSEWHERE[target]):
            continue
        found.add(module)
        wanted += [name for name in imports(MODULES[module]) if name in MODULES]
    missing = {module for module in found if not any(MODULES[module].is_relative_to(path) for path in sources)}
    assert not missing
    assert all(path.exists() for path in sources)
