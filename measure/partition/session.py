"""A search with the validation of what it finds, which a time limit, Ctrl-C or SIGTERM may end anywhere.

Whatever ends it, `Session.found` is the best of what is known then. Oracles are asked, runs are left to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from measure.interrupts import OutOfTime, Terminated, TimeLimit, exit_status, time_limit
from measure.partition.budget import Budget
from measure.partition.search import PartitionSearch
from measure.partition.types import Group, Oracle, Outlook, Partition, Progress, Verdict


@dataclass(frozen=True)
class Asked:
    """What a session asks.

    ``search``: the oracle of the search; ``fresh``: another one, of runs that have nothing to do with the search's;
    ``known``: verdicts of the search's oracle from before. ``validation_seconds``: how long validating groups with
    these verdicts is going to take, about; ``doubt``: keeps that a group did not stand on fresh runs.
    """

    search: Oracle
    fresh: Oracle
    known: Mapping[Group, Verdict] = field(default_factory=dict)
    validation_seconds: Callable[[Mapping[Group, Verdict]], float] = lambda groups: 0.0
    doubt: Callable[[Group, Verdict], None] = lambda group, verdict: None


@dataclass(frozen=True)
class Found:
    """The end of a session. ``tested``: all verdicts of the search, also from before; ``validated``: good verdicts of
    fresh runs; ``calls``: groups that were tested now; ``remembered``: verdicts from before; ``stopped``: what ended
    it, "" when it was through."""

    standing: Progress
    tested: dict[Group, Verdict]
    validated: dict[Group, Verdict]
    calls: int = 0
    remembered: int = 0
    stopped: str = ""


class Session:
    """Looks for the fewest groups of ``n`` metrics until they are confirmed by fresh runs, or the time is up.

    ``prepare`` is called first, within the time limit, and says whom to ask; ``changed`` after everything that changes
    what `describe` says, ``tell`` with what a user should know at once. ``width``: groups tested at once.
    """

    def __init__(
        self,
        n: int,
        prepare: Callable[[], Asked],
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
        self._asked: Asked | None = None
        self._search: PartitionSearch | None = None
        self._progress: Progress | None = None
        self._activity = "building, and measuring baselines and all metrics together"
        self._validated: dict[Group, Verdict] = {}
        self._stopped = ""

    def run(self) -> None:
        """Until the best is confirmed, or something ends it. Afterwards `found` has the result. Raises what the oracles
        raise."""
        try:
            with time_limit(self._budget.measuring_ends) as limit:
                self._asked = self._prepare()
                self._search = PartitionSearch(
                    self._n, self._asked.search, seed=self._seed, width=self._width,
                    known=self._asked.known, exact=self._exact,
                )  # fmt: skip
                while True:
                    self._look(self._asked, self._search, limit)
                    if self._validate(self._asked, self._search):
                        return
        except OutOfTime:
            self._stopped = self._budget.name
            self._tell(f"{self._budget.name.capitalize()} is up; the best so far, and all verdicts are kept.")
        except KeyboardInterrupt as error:
            self._stopped = "SIGTERM" if isinstance(error, Terminated) else "Ctrl-C"
            self.exit_status = exit_status(error)
            self._tell("Interrupted; the best so far, and all verdicts are kept.")

    def describe(self) -> str:
        """What is going on, the best so far, and the time."""
        if self._progress is None or self._search is None:
            return f"{self._activity}; {self._budget.describe()}"
        best = self._progress.best
        count = len(best.groups)
        lacking = f", {len(best.uncovered)} metrics in none" if best.uncovered else ""
        return (
            f"{self._activity}; best so far: {count} group{'s' if count != 1 else ''}{lacking}; "
            f"{self._search.calls} groups tested; {self._budget.describe()}. "
            f"{self._progress.outlook.describe(self._progress.proof)}"
        )

    @property
    def state(self) -> object:
        """Changes with what is going on and with the best."""
        return self._activity, self._progress and self._progress.best.rank

    def _look(self, asked: Asked, search: PartitionSearch, limit: TimeLimit) -> None:
        """Search until nothing more is found, or until the time left is what the validation needs."""
        stage = self._progress.stage if self._progress else "stopped"
        self._stopped = ""
        try:
            for self._progress in search.run():
                stage = self._activity = self._progress.stage
                self._changed()
                limit.set(self._search_ends(asked, search))
        except OutOfTime:
            if self._budget.is_over():
                raise
            self._stopped = self._budget.name
        limit.set(self._budget.measuring_ends)
        self._progress = search.conclude(stage)

    def _search_ends(self, asked: Asked, search: PartitionSearch) -> float | None:
        best = search.reported.groups
        open_ = {group: search.known[group] for group in best if group not in self._validated}
        return self._budget.search_ends(asked.validation_seconds(open_) if open_ else 0.0)

    def _validate(self, asked: Asked, search: PartitionSearch) -> bool:
        """Test the best partition's groups on fresh runs; False when some did not stand, and are marked."""
        groups = [group for group in search.reported.groups if group not in self._validated]
        stood = True
        for start in range(0, len(groups), self._width):
            batch = groups[start : start + self._width]
            self._activity = f"validating group {start + 1} of {len(groups)} on fresh runs"
            self._changed()
            for group, verdict in zip(batch, asked.fresh.test(batch), strict=True):
                if verdict.good:
                    self._validated[group] = verdict
                else:
                    stood = False
                    self._revoke(asked, search, group, verdict)
        return stood

    def _revoke(self, asked: Asked, search: PartitionSearch, group: Group, verdict: Verdict) -> None:
        failed = Verdict(
            verdict.state, f"good at first, but not on fresh runs: {verdict.reason}", verdict.worst,
            verdict.change, verdict.kind, verdict.runs,
        )  # fmt: skip
        asked.doubt(group, failed)
        search.revoke(group, failed)
        self._tell(f"{self._names(group)}: {failed.reason}")

    def found(self) -> Found:
        """The best that can be made of all that is known now."""
        search = self._search
        if search is None or self._asked is None:
            nothing = Partition((), frozenset(range(self._n)))
            outlook = Outlook(lower_bound=1, untested=(1 << self._n) - 1)
            standing = Progress(nothing, 0, "baselines", outlook, "upper bound")
            return Found(standing, {}, {}, stopped=self._stopped)
        standing = search.conclude(self._progress.stage if self._progress else "baselines")
        return Found(
            standing,
            dict(search.known),
            dict(self._validated),
            search.calls,
            len(self._asked.known),
            self._stopped,
        )
