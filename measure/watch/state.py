"""The state of a campaign, read from its directory of results without writing or locking anything there.

`Observer` may be asked before a campaign, while it runs, and after it. Verdicts on the runs that are there are
preliminary: they come from the test within runs only, at the level of the final analysis, and are not part of it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from measure.console.time_left import TimeLeft
from measure.errors import CampaignError, MeasureError
from measure.judging.comparison import Compared, VariantComparison, compared, runs_of
from measure.perturbation.wording import in_words
from measure.result_files import SUMMARY_NAME
from measure.run_types import BASELINE, Run
from measure.runs.plan import Plan
from measure.runs.plan_file import FILE_NAME, load_plan
from measure.runs.store import LEDGER_NAME, LOCK_NAME, read_run, trace_name
from measure.verdict_files.summary_file import read_summary

Phase = Literal["no campaign", "running", "stopped", "analysing", "finished"]
FEWEST_RUNS = 3
"""Least number of baselines, and of runs of a variant, for a preliminary verdict."""
_NEW_SHARE = 0.1  # of the runs that must be new before verdicts are computed again
_MOST_TIME = 0.1  # largest share of the time to spend on verdicts, while the campaign runs
_LOCKS = Path("/proc/locks")


@dataclass(frozen=True)
class GroupState:
    """Runs of the baselines or a variant. ``verdict``, ``words``: preliminary, or final; empty when there is none."""

    name: str
    done: int
    planned: int
    failed: int
    verdict: str = ""
    words: str = ""


@dataclass(frozen=True)
class CampaignState:
    """What is known of a campaign. ``left``: time left in words; ``problem``: why there is nothing to tell;
    ``final``: whether the verdicts are those of the report; ``report``: whether report.html is there."""

    directory: str
    phase: Phase
    title: str = ""
    groups: tuple[GroupState, ...] = ()
    left: str = ""
    quiet_seconds: float = 0.0
    problem: str = ""
    failures: tuple[str, ...] = ()
    final: bool = False
    report: bool = False

    @property
    def done(self) -> int:
        """Runs that are stored."""
        return sum(group.done for group in self.groups)

    @property
    def planned(self) -> int:
        """Runs of the plan."""
        return sum(group.planned for group in self.groups)


class Observer:
    """Reads the campaign in ``directory``. May be asked from several threads. Raises `CampaignError` for a file."""

    def __init__(self, directory: Path) -> None:
        if directory.exists() and not directory.is_dir():
            raise CampaignError(f"{directory}: is a file, expected the directory of a campaign's results")
        self.directory = directory
        self._lock = threading.Lock()
        self._plan: tuple[int, Plan] | None = None
        self._runs: dict[str, Run] = {}
        self._verdicts: tuple[int, dict[str, tuple[str, str]]] = (0, {})
        self._rest_until = 0.0

    def state(self) -> CampaignState:
        """The state now. A plan that cannot be read is told in ``problem``."""
        with self._lock:
            try:
                plan = self._current_plan()
            except CampaignError as error:
                return CampaignState(str(self.directory), "no campaign", problem=str(error))
            if plan is None:
                return CampaignState(str(self.directory), "no campaign")
            return self._state_of(plan)

    def _current_plan(self) -> Plan | None:
        try:
            changed = (self.directory / FILE_NAME).stat().st_mtime_ns
        except OSError:
            return None
        if self._plan is None or self._plan[0] != changed:
            self._plan = changed, load_plan(self.directory)
            self._runs, self._verdicts = {}, (0, {})
        return self._plan[1]

    def _state_of(self, plan: Plan) -> CampaignState:
        stored = self._stored()
        done = {key: stored[key] for key in plan.keys if key in stored}
        failures = {key: reason for key, reason in self._failures().items() if key in plan.keys and key not in done}
        latest = max(done.values(), default=0.0)
        summary = self._summary(latest)
        locked = _locked(self.directory / LOCK_NAME)
        complete = len(done) + len(failures) >= len(plan.keys)
        # A campaign that compares its runs has nothing locked any more.
        phase: Phase = "analysing" if complete else "running" if locked else "stopped"
        if complete and summary is not None and not locked:
            phase = "finished"
        final = phase == "finished" and summary is not None
        verdicts = _final_verdicts(summary or {}) if final else self._preliminary(plan, done)
        groups = []
        known = (BASELINE, *plan.campaign.variant_sets())
        for variant in (*known, *sorted({spec.variant for spec in plan.specs} - set(known))):
            mine = [key for key, spec in zip(plan.keys, plan.specs, strict=True) if spec.variant == variant]
            verdict, words = verdicts.get(variant, ("", ""))
            groups.append(
                GroupState(
                    variant, sum(key in done for key in mine), len(mine), sum(key in failures for key in mine),
                    verdict, words,
                )
            )  # fmt: skip
        now = time.time()
        return CampaignState(
            str(self.directory), phase, plan.campaign.name, tuple(groups),
            left=self._left(done, len(plan.keys), now) if phase == "running" else "",
            quiet_seconds=now - max(latest, self._begun()) if phase == "running" else 0.0,
            failures=tuple(dict.fromkeys(failures.values())),
            final=final,
            report=(self.directory / "report.html").is_file(),
        )  # fmt: skip

    def _begun(self) -> float:
        """When the campaign was started last: it writes its plan then."""
        return self._plan[0] / 1e9 if self._plan else 0.0

    def _stored(self) -> dict[str, float]:
        """By key of each stored run: when it was stored."""
        try:
            with os.scandir(self.directory / "traces") as entries:
                return {
                    entry.name.removesuffix(trace_name("")): entry.stat().st_mtime
                    for entry in entries
                    if entry.name.endswith(trace_name("")) and not entry.name.startswith(".")
                }
        except OSError:
            return {}

    def _failures(self) -> dict[str, str]:
        """By key of each failed run: the reason. Reads the ledger without a lock, so that no writer ever waits."""
        path = self.directory / LEDGER_NAME
        if not path.is_file():
            return {}
        try:
            ledger = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
            try:
                rows: list[tuple[str, str]] = ledger.execute(
                    "select key, reason from runs where state = 'failed'"
                ).fetchall()
            finally:
                ledger.close()
        except sqlite3.Error:  # in the middle of a write: the next look finds it whole
            return {}
        return dict(rows)

    def _summary(self, latest: float) -> dict[str, Any] | None:
        """summary.json, unless it cannot be read or is older than the start or than a run."""
        try:
            if (self.directory / SUMMARY_NAME).stat().st_mtime < max(latest, self._begun()):
                return None
            return read_summary(self.directory)
        except (OSError, CampaignError):
            return None

    def _left(self, done: dict[str, float], planned: int, now: float) -> str:
        """The time left, as the terminal of the campaign tells it, from the runs made since it was started."""
        times = sorted(at for at in done.values() if at >= self._begun())
        clock = [self._begun()]
        estimate = TimeLeft(len(times) + planned - len(done), os.cpu_count() or 1, lambda: clock[0])
        for at in times:
            clock[0] = at
            estimate.advance()
        clock[0] = now
        return estimate.describe()

    def _preliminary(self, plan: Plan, done: Iterable[str]) -> dict[str, tuple[str, str]]:
        """By variant: the verdict within a run on the runs so far.

        Computed anew when a tenth of the runs are new and `_MOST_TIME` allows it.
        """
        keys = set(done)
        before, verdicts = self._verdicts
        incomplete = len(keys) < len(plan.keys)
        began = time.monotonic()
        few = len(keys) - before < _NEW_SHARE * before
        if len(keys) == before or (incomplete and (few or began < self._rest_until)):
            return verdicts
        for key, spec in zip(plan.keys, plan.specs, strict=True):
            if key in keys and key not in self._runs:
                run = _run_or_none(self.directory / "traces" / trace_name(key), spec)
                if run is not None:
                    self._runs[key] = run
        runs = [self._runs[key] for key in plan.keys if key in self._runs]
        baselines = runs_of(runs, BASELINE)
        verdicts = {}
        by_variant = {name: runs_of(runs, name) for name in plan.campaign.variant_sets()}
        if len(baselines) >= FEWEST_RUNS:
            # Until a paired campaign has enough pairs nothing can be significant.
            by_variant = {
                name: mine
                for name, mine in by_variant.items()
                if len(mine) >= FEWEST_RUNS
                and not (
                    incomplete and plan.campaign.pairs and not _has_pairs(compared(plan.campaign, baselines, mine))
                )
            }
            within = plan.campaign.model_copy(update={"outer": False})  # aligning runs takes too long for a live page
            comparison = VariantComparison(within, baselines, by_variant)
            with contextlib.suppress(MeasureError, ValueError):  # traces too short: the campaign itself reports it
                found = {name: comparison.within_runs(name) for name in by_variant}
                verdicts = {name: (one.verdict, in_words(one)) for name, one in found.items()}
        self._verdicts = len(keys), verdicts
        now = time.monotonic()
        self._rest_until = now + (now - began) / _MOST_TIME
        return verdicts


def _has_pairs(sides: Compared) -> bool:
    """Whether there are enough pairs for a change to be shown."""
    return sides.paired and not sides.has_few_pairs


def _run_or_none(path: Path, spec: Any) -> Run | None:
    try:
        return read_run(path, spec)
    except (OSError, ValueError, KeyError, TypeError):  # damaged: `measure run` makes it again, and says so
        return None


def _final_verdicts(summary: dict[str, Any]) -> dict[str, tuple[str, str]]:
    variants = summary.get("variants", {})
    return {name: (one["verdict"], one.get("caveat") or "") for name, one in variants.items()}


def _locked(path: Path) -> bool:
    """Whether a process has the results open, without asking for the lock: the system lists the files with locks."""
    try:
        inode = path.stat().st_ino
        lines = _LOCKS.read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    return any(
        "FLOCK" in fields and fields[-3].rpartition(":")[2] == str(inode)
        for fields in map(str.split, lines)
        if len(fields) >= 4
    )
