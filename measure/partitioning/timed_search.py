"""Runs a search and the validation of its result; a time limit, Ctrl-C or SIGTERM may end both at any time.

Whatever ends it, `Session.result` is the best partition of the verdicts so far. The oracles make the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from common.interrupts import OutOfTime, Terminated, TimeLimit, exit_status, time_limit
from measure.partitioning.budget import Budget
from measure.partitioning.search import PartitionSearch
from measure.partitioning.search_types import Group, GroupVerdict, Oracle, Outlook, Partition, Progress


@dataclass(frozen=True)
class SessionOracles:
    """The oracles of a session.

    ``search``: the oracle of the search; ``fresh``: one with runs that are independent of the search's;
    ``earlier_verdicts``, ``earlier_fresh_verdicts``: of each, from before. ``validation_seconds``: estimated time of
    validating groups with these verdicts; ``record_failure``: stores that fresh runs refuted a group;
    ``judge_unfinished``: adds verdicts on the groups whose test was interrupted, by the runs that were made, the
    quickest first.
    """

    search: Oracle
    fresh: Oracle
    earlier_verdicts: Mapping[Group, GroupVerdict] = field(default_factory=dict)
    earlier_fresh_verdicts: Mapping[Group, GroupVerdict] = field(default_factory=dict)
    validation_seconds: Callable[[Mapping[Group, GroupVerdict]], float] = lambda groups: 0.0
    record_failure: Callable[[Group, GroupVerdict], None] = lambda group, verdict: None
    judge_unfinished: Callable[[dict[Group, GroupVerdict]], None] = lambda found: None


@dataclass(frozen=True)
class SessionResult:
    """The end of a session. ``tested``: all verdicts of the search, also earlier ones; ``validated``: good verdicts of
    fresh runs; ``calls``: groups tested in this session; ``remembered``: number of earlier verdicts; ``stopped``: what
    ended the session early, or ""; ``unfinished``: open verdicts on groups whose test the time limit ended."""

    progress: Progress
    tested: dict[Group, GroupVerdict]
    validated: dict[Group, GroupVerdict]
    calls: int = 0
    remembered: int = 0
    stopped: str = ""
    unfinished: dict[Group, GroupVerdict] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there is no verdict on any group, not even an open one."""
        return not self.tested and not self.unfinished


class Session:
    """Searches for the fewest groups of ``n`` metrics until fresh runs confirm them, or the time is up.

    As long as no group is good, time is kept to compare the runs of the groups under test, for a time limit must not
    end with runs that nothing is said about.

    ``prepare`` is called first, and returns the oracles. The time limit does not end it, so that verdicts from before
    are read however short the limit is; where it has to build programs, it calls `hold_limit` before. ``changed`` is
    called after every change of `describe`, ``tell`` with messages for the user. ``width``: groups tested at once.
    """

    def __init__(
        self,
        n: int,
        prepare: Callable[[], SessionOracles],
        budget: Budget,
        *,
        seed: int = 0,
        width: int = 1,
        exact: bool | None = None,
        changed: Callable[[], None] = lambda: None,
        tell: Callable[[str], None] = lambda text: None,
        names: Callable[[Group], str] = str,
    ) -> None:
        self.exit_status = 0
        self._n, self._prepare, self._budget = n, prepare, budget
        self._seed, self._width, self._exact = seed, width, exact
        self._changed, self._tell, self._names = changed, tell, names
        self._oracles: SessionOracles | None = None
        self._search: PartitionSearch | None = None
        self._progress: Progress | None = None
        self._activity = "building, and measuring baselines and all metrics together"
        self._validated: dict[Group, GroupVerdict] = {}
        self._unfinished: dict[Group, GroupVerdict] = {}
        self._stopped = ""
        self._limit: TimeLimit | None = None

    def hold_limit(self) -> None:
        """Let the time limit end what ``prepare`` does from now on."""
        if self._limit is not None and self._search is None:
            self._limit.set(self._budget.measuring_ends)

    def run(self) -> None:
        """Search and validate until the best is confirmed or something ends it; then see `result`. Raises what the
        oracles raise."""
        try:
            with time_limit(None) as limit:
                self._limit = limit
                self._oracles = self._prepare()
                earlier_fresh = self._oracles.earlier_fresh_verdicts.items()
                self._validated = {group: verdict for group, verdict in earlier_fresh if verdict.good}
                self._search = PartitionSearch(
                    self._n, self._oracles.search, seed=self._seed, width=self._width,
                    earlier_verdicts=self._oracles.earlier_verdicts, confirmed=self._validated, exact=self._exact,
                )  # fmt: skip
                while True:
                    self._look(self._oracles, self._search, limit)
                    if self._validate(self._oracles, self._search):
                        break
        except OutOfTime:
            self._stopped = self._budget.name
        except KeyboardInterrupt as error:
            self._stopped = "SIGTERM" if isinstance(error, Terminated) else "Ctrl-C"
            self.exit_status = exit_status(error)
            self._tell("Interrupted; the best so far, and all verdicts are kept.")
            return
        if self._stopped:
            measured = self._unfinished or (self._search is not None and self._search.verdicts)
            kept = "the best so far, and all verdicts are kept" if measured else "no group was measured"
            self._tell(f"{self._budget.name.capitalize()} leaves no time for another step; {kept}.")

    def describe(self) -> list[str]:
        """The current activity, the time, the best so far, and how much was tested: parts of a line, by importance."""
        parts = [self._activity, self._budget.describe()]
        if self._progress is None or self._search is None:
            return parts
        best = self._progress.best
        count = len(best.groups)
        lacking = f", {len(best.uncovered)} metric{'s' * (len(best.uncovered) > 1)} in none" if best.uncovered else ""
        return [
            *parts, f"best so far: {count} group{'s' if count != 1 else ''}{lacking}",
            f"groups tested: {self._search.calls}", self._progress.outlook.describe(self._progress.proof),
        ]  # fmt: skip

    @property
    def state(self) -> object:
        """A value that changes with the activity and with the best partition."""
        return self._activity, self._progress and self._progress.best.rank

    def _look(self, oracles: SessionOracles, search: PartitionSearch, limit: TimeLimit) -> None:
        """Search until it ends, or until the time left is needed for the validation."""
        stage = self._progress.stage if self._progress else "stopped"
        self._stopped = ""
        try:
            limit.set(self._search_ends(oracles, search))
            for self._progress in search.run():
                stage = self._activity = self._progress.stage
                self._changed()
                limit.set(self._search_ends(oracles, search))
        except OutOfTime:
            if search.reported.groups and self._budget.is_over():
                raise
            self._stopped = self._budget.name
        compares = self._stopped and not search.reported.groups
        limit.set(self._budget.comparing_ends if compares else self._budget.measuring_ends)
        self._progress = search.conclude(stage)
        if compares:
            self._activity = "comparing the runs that were made"
            self._changed()
            oracles.judge_unfinished(self._unfinished)

    def _search_ends(self, oracles: SessionOracles, search: PartitionSearch) -> float | None:
        best = search.reported.groups
        if not best:
            return self._budget.comparing_begins
        open_ = {group: search.verdicts[group] for group in best if group not in self._validated}
        return self._budget.search_ends(oracles.validation_seconds(open_) if open_ else 0.0)

    def _validate(self, oracles: SessionOracles, search: PartitionSearch) -> bool:
        """Test the best partition's groups on fresh runs; False when some failed, whose verdicts are then replaced."""
        groups = [group for group in search.reported.groups if group not in self._validated]
        confirmed = True
        for start in range(0, len(groups), self._width):
            batch = groups[start : start + self._width]
            self._activity = f"validating group {start + 1} of {len(groups)} on fresh runs"
            self._changed()
            for group, verdict in zip(batch, oracles.fresh.test(batch), strict=True):
                if verdict.good:
                    self._validated[group] = verdict
                else:
                    confirmed = False
                    self._revoke(oracles, search, group, verdict)
        return confirmed

    def _revoke(self, oracles: SessionOracles, search: PartitionSearch, group: Group, verdict: GroupVerdict) -> None:
        failed = GroupVerdict(
            verdict.state, f"good at first, but not on fresh runs: {verdict.reason}", verdict.worst,
            verdict.change, verdict.kind, verdict.runs,
        )  # fmt: skip
        oracles.record_failure(group, failed)
        search.revoke(group, failed)
        self._tell(f"{self._names(group)}: {failed.reason}")

    def result(self) -> SessionResult:
        """The best partition of all verdicts so far, with these verdicts. Verdicts by a part of the planned runs are
        kept in no memory; they count when they are *good* or *bad*."""
        search = self._search
        if search is None or self._oracles is None:
            nothing = Partition((), frozenset(range(self._n)))
            outlook = Outlook(lower_bound=1, untested=(1 << self._n) - 1)
            progress = Progress(nothing, 0, "baselines", outlook, "upper bound")
            return SessionResult(progress, {}, {}, stopped=self._stopped)
        undecided = {group: one for group, one in self._unfinished.items() if one.state == "undecided"}
        search.verdicts.update((group, one) for group, one in self._unfinished.items() if group not in undecided)
        progress = search.conclude(self._progress.stage if self._progress else "baselines")
        return SessionResult(
            progress,
            dict(search.verdicts),
            dict(self._validated),
            search.calls,
            len(self._oracles.earlier_verdicts),
            self._stopped,
            undecided,
        )
