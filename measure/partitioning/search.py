"""Searches for the fewest groups of which every one was tested good, over any oracle; can stop at any time.

Groups are not monotone (two metrics can be good together and bad beside a third, and the other way round), so a
verdict holds for its own group only. Up to `cover.EXACT_METRICS` metrics the search can prove its answer: it tests
larger groups first, until no fewer groups would do even if all untested groups were good. Beyond that it tries the
full set, bisection, merging and first-fit, then dissolves groups and exchanges their metrics, with an integer program
over all groups tested good in between. `Suspicion` only chooses what to test next; claims rest on tests alone.

A search is deterministic: repeated with the verdicts of an earlier one, it retraces its steps without a test and
continues where that one ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice

import numpy as np

from measure.partitioning.cover import EXACT_METRICS, as_bits, as_group, cover_rank_by_table, minimum_cover
from measure.partitioning.recolour import recolour
from measure.partitioning.search_types import Group, GroupVerdict, Oracle, Outlook, Partition, Progress, Proof
from measure.partitioning.suspicion import Suspicion

EXACT_BY_DEFAULT = 10
"""Largest number of metrics for which the answer is proved by default (at most 1023 groups)."""
_EJECTIONS = 12  # metrics moved out for others in one attempt, before it is given up
_PROOF_BATCH = 16  # tests between two checks whether the proof is complete
_REPAIRS = 4  # metrics taken out of a planned group before the plan is given up
_COVER_EVERY = 10  # attempts between integer programs


class PartitionSearch:
    """Searches for the fewest groups of ``n`` metrics.

    ``width``: groups tested at once. ``earlier_verdicts``: verdicts of earlier searches; the oracle is not asked about
    their groups. They do not change the order of the search, so that it retraces its own steps; a better partition
    made of them is reported from the start, and is taken up when the search ends with a worse one. ``confirmed``:
    groups that fresh runs confirmed before: of equally good partitions one of these is reported. ``patience``: give up
    after this many attempts in a row without improvement; None: chosen from the number of groups. ``exact``: prove the
    answer; default: up to `EXACT_BY_DEFAULT` metrics.

    Attributes: ``verdicts``: all verdicts, also earlier ones; ``tested``: those that this search has come to;
    ``calls``: groups that the oracle tested; ``best``: the best partition of the search itself.

    Raises ValueError without metrics, and for ``exact`` with more than `EXACT_METRICS`.
    """

    def __init__(
        self,
        n: int,
        oracle: Oracle,
        *,
        seed: int = 0,
        width: int = 1,
        earlier_verdicts: Mapping[Group, GroupVerdict] | None = None,
        confirmed: Iterable[Group] = (),
        patience: int | None = None,
        exact: bool | None = None,
    ) -> None:
        if n < 1 or width < 1:
            raise ValueError(f"{n} metrics, {width} groups at once: expected at least one of each")
        if exact and n > EXACT_METRICS:
            raise ValueError(
                f"{n} metrics: proving the fewest groups is affordable for up to {EXACT_METRICS}; search without"
            )
        self.n = n
        self.calls = 0
        self.tested: dict[Group, GroupVerdict] = {}
        self._oracle = oracle
        self._rng = np.random.default_rng(seed)
        self._width = width
        self._patience = patience
        self._exact = n <= EXACT_BY_DEFAULT if exact is None else exact
        self._suspicion = Suspicion(n)
        self._cover_proved = True
        self._attempts = self._attempt_calls = self._stagnation = 0
        self._bound = 1
        self._proved = self._constructed = False
        self._current: list[Group] = []
        self.best = Partition((), self.everything)
        self.verdicts = dict(earlier_verdicts or {})
        good = (group for group in confirmed if group in self.verdicts and self.verdicts[group].good)
        self._best_confirmed = minimum_cover(n, good)[0]
        self.conclude()

    @property
    def everything(self) -> Group:
        return frozenset(range(self.n))

    def revoke(self, group: Group, verdict: GroupVerdict) -> None:
        """Replace a verdict that fresh runs refuted by ``verdict``, and find the best partition without the group."""
        self.best = Partition((), self.everything)  # first: after an interruption nothing may contain the group
        self._bound, self._proved, self._stagnation, self._current = 1, False, 0, []
        self.verdicts[group] = verdict
        self._record(group, verdict)
        self._adopt_cover()
        self.conclude()

    def run(self) -> Iterator[Progress]:
        """Search; yields after every round of tests. May be stopped at any yield or by an exception."""
        if not self._constructed:
            yield from self._construct()
        if self._settled():
            yield self.progress("full set")
            return
        if self._exact:
            yield from self._prove()
            return
        yield from self._improve()

    # -- testing -----------------------------------------------------------------------------------------------

    def _record(self, group: Group, verdict: GroupVerdict) -> None:
        self.tested[group] = verdict
        self._suspicion.note(group, verdict.state)

    def _ask(self, groups: Sequence[Group]) -> list[GroupVerdict]:
        """Verdicts of all ``groups``, known or from the oracle, ``width`` groups at a time."""
        new = list(dict.fromkeys(group for group in groups if group not in self.tested))
        for start in range(0, len(new), self._width):
            batch = new[start : start + self._width]
            unknown = [group for group in batch if group not in self.verdicts]
            if unknown:
                verdicts = self._oracle.test(unknown)
                self.verdicts.update(zip(unknown, verdicts, strict=True))
                self.calls += len(unknown)
            for group in batch:
                self._record(group, self.verdicts[group])
            self._cover_proved = False
        return [self.tested[group] for group in groups]

    def _first_good(self, groups: Sequence[Group]) -> int | None:
        """Index of the first good group, None without one; tests no further than the batch that contains it."""
        for start in range(0, len(groups), self._width):
            for offset, verdict in enumerate(self._ask(groups[start : start + self._width])):
                if verdict.good:
                    return start + offset
        return None

    # -- the best so far ---------------------------------------------------------------------------------------

    def _offer(self, groups: Sequence[Group]) -> bool:
        """Make ``groups``, all tested good, the best partition if they are better; redundant groups are dropped."""
        kept = sorted(dict.fromkeys(groups), key=lambda group: (-len(group), sorted(group)))
        for group in list(reversed(kept)):
            others = frozenset[int]().union(*(other for other in kept if other is not group))
            if group <= others:
                kept.remove(group)
        offered = Partition(tuple(kept), self.everything - frozenset[int]().union(*kept))
        if offered.rank < self.best.rank:
            self.best = offered
            return True
        return False

    def _adopt_cover(self) -> bool:
        """Offer the best partition that can be made of all groups tested good; whether it is better."""
        good = (group for group, verdict in self.tested.items() if verdict.good)
        return self._offer(minimum_cover(self.n, good)[0].groups)

    def conclude(self, stage: str = "stopped") -> Progress:
        """The best partition that can be made of all verdicts, and whether it is proved."""
        good = (group for group, verdict in self.verdicts.items() if verdict.good)
        self._best_known, self._cover_proved = minimum_cover(self.n, good)
        return self.progress(stage)

    @property
    def reported(self) -> Partition:
        """The best partition of all verdicts, those of earlier searches included."""
        return min(self._best_confirmed, self.best, self._best_known, key=lambda one: one.rank)

    def _lower_bound(self) -> int:
        full = self.verdicts.get(self.everything)
        refuted = full is not None and full.state == "bad"
        return max(self._bound, 2 if refuted and not self.reported.uncovered else 1)

    def _settled(self) -> bool:
        best = self.reported
        return not best.uncovered and len(best.groups) <= self._lower_bound()

    def progress(self, stage: str) -> Progress:
        """The state of the search; ``stage`` names what it is doing."""
        proof: Proof = "upper bound"
        if self._settled() or self._proved:
            proof = "optimal"
        elif self._cover_proved and self.verdicts:  # of no verdicts, no cover is the best one
            proof = "optimal among tested"
        stagnation = self._stagnation
        outlook = Outlook(
            lower_bound=min(self._lower_bound(), max(1, len(self.reported.groups))),
            attempts=stagnation,
            chance=1 - 0.05 ** (1 / stagnation) if stagnation else float("nan"),
            calls_per_attempt=self._attempt_calls / self._attempts if self._attempts else float("nan"),
            untested=(1 << self.n) - 1 - len(self.verdicts),
        )
        return Progress(self.reported, self.calls, stage, outlook, proof)

    # -- construction ------------------------------------------------------------------------------------------

    def _construct(self) -> Iterator[Progress]:
        """Build a first partition: full set, bisection, merging, first-fit."""
        self._ask([self.everything])
        if self.tested[self.everything].good:
            self._offer([self.everything])
        yield self.progress("full set")
        if self._settled():
            return
        order = [int(k) for k in self._rng.permutation(self.n)]
        good_parts: list[Group] = []
        frontier = [order]
        while frontier:
            halves = [half for part in frontier if len(part) > 1 for half in _halves(part)]
            verdicts = self._ask([frozenset(half) for half in halves])
            good_parts += [frozenset(h) for h, verdict in zip(halves, verdicts, strict=True) if verdict.good]
            frontier = [h for h, verdict in zip(halves, verdicts, strict=True) if not verdict.good]
            self._offer(good_parts)
            yield self.progress("bisect")
        for merged in self._merged(good_parts):
            self._offer(merged)
            yield self.progress("merge")
        for placed in self._first_fit(order):
            self._offer(placed)
            yield self.progress("first-fit")
        self._constructed = True
        self._adopt_cover()
        yield self.progress("cover")

    def _merged(self, groups: Sequence[Group]) -> Iterator[list[Group]]:
        """Join groups whose union is good, the least suspicious first; yields the groups after each join."""
        current = list(groups)
        while True:
            pairs = [
                (self._suspicion.between(a, b), len(a | b), a, b)
                for a, b in combinations(current, 2)
                if (a | b not in self.tested or self.tested[a | b].good) and not self._suspicion.hopeless(a, b)
            ]
            if not pairs:
                return
            pairs.sort(key=lambda pair: (pair[0], pair[1]))
            candidates = [(a, b) for _, _, a, b in islice(pairs, self._width)]
            found = self._first_good([a | b for a, b in candidates])
            if found is not None:
                a, b = candidates[found]
                current = [group for group in current if group not in (a, b)] + [a | b]
            yield current

    def _first_fit(self, order: Sequence[int]) -> Iterator[list[Group]]:
        """Put each metric into the first group that stays good, or into a group of its own; yields the groups."""
        groups: list[Group] = []
        for metric in order:
            place = self._place(metric, groups)
            if place is not None:
                groups[place] |= {metric}
            elif self._ask([frozenset({metric})])[0].good:
                groups.append(frozenset({metric}))
            yield groups

    def _place(self, metric: int, groups: Sequence[Group]) -> int | None:
        """Index of a group that stays good with ``metric``; tests the least suspicious and largest first."""
        likely = [k for k, group in enumerate(groups) if not self._suspicion.hopeless([metric], group)]
        likely.sort(key=lambda k: (self._suspicion.between([metric], groups[k]), -len(groups[k])))
        found = self._first_good([groups[k] | {metric} for k in likely])
        return None if found is None else likely[found]

    # -- improvement -------------------------------------------------------------------------------------------

    def _improve(self) -> Iterator[Progress]:
        """Attempts to remove a group or to collect another metric, until patience ends."""
        while not self._settled() and self.best.groups:
            patience = self._patience or 10 + 5 * len(self.best.groups)
            if self._stagnation >= patience:
                self.conclude()
                if self._best_known.rank >= self.best.rank:
                    break
                self.best, self._stagnation, self._current = self._best_known, 0, []
            before = self.calls
            if self._attempts % _COVER_EVERY == _COVER_EVERY - 1:
                better = self._adopt_cover()
            else:
                better = False
            better |= self._attempt() if self._attempts % 2 else self._plan_attempt()
            self._attempts += 1
            self._attempt_calls += self.calls - before
            self._stagnation = 0 if better else self._stagnation + 1
            yield self.progress("local")
        yield self.conclude("cover")

    def _attempt(self) -> bool:
        """Dissolve a group (or take a metric that no group collects) and find places for its metrics."""
        groups = list(self._current or self.best.groups)
        lost = sorted(self.best.uncovered)
        gone: Group = frozenset()
        if lost and self._rng.random() < 0.5:
            pending = [lost[int(self._rng.integers(len(lost)))]]
        else:
            # Small groups are easier to dissolve, but it must not always be the same one.
            weights = 1.0 / np.array([len(group) for group in groups]) ** 2
            gone = groups.pop(int(self._rng.choice(len(groups), p=weights / weights.sum())))
            covered = frozenset[int]().union(*groups)
            pending = [int(metric) for metric in self._rng.permutation(sorted(gone - covered))]
        stuck = self._settle(pending, groups)
        if stuck:
            if gone:
                self._keep_smaller_group(groups, frozenset(stuck), gone)
            return False
        self._current = []
        return self._offer(groups)

    def _settle(self, pending: list[int], groups: list[Group]) -> list[int]:
        """Find places in ``groups`` (modified) for all of ``pending``; returns the metrics without a place."""
        moved: set[tuple[int, int]] = set()
        stuck: list[int] = []
        ejections = 0
        while pending and groups:
            metric = pending.pop(0)
            place = self._place(metric, groups)
            if place is not None:
                groups[place] |= {metric}
                continue
            ejected = self._eject_for(metric, groups, moved) if ejections < _EJECTIONS else None
            if ejected is None:
                stuck.append(metric)
                continue
            ejections += 1
            if not any(ejected in group for group in groups):
                pending.append(ejected)
        return [*stuck, *pending]

    def _plan_attempt(self) -> bool:
        """Sort all metrics anew into one group less, by suspicion; groups that fail are repaired."""
        groups = list(self.best.groups)
        fewer = len(groups) - 1
        if fewer < 2:
            return False
        colours = self._rng.integers(fewer, size=self.n)
        for colour, group in enumerate(groups[:fewer]):
            colours[sorted(group)] = colour
        colours = recolour(self._suspicion.weights(), colours, fewer, self._rng)
        wanted = self.everything - self.best.uncovered
        planned = [frozenset(np.flatnonzero(colours == colour).tolist()) & wanted for colour in range(fewer)]
        planned = [group for group in planned if group]
        pending: list[int] = []
        kept: list[Group] = []
        for group, verdict in zip(planned, self._ask(planned), strict=True):
            for _ in range(_REPAIRS):
                if verdict.good or len(group) < 3:
                    break
                culprit = self._isolate(group)
                pending.append(culprit)
                group = group - {culprit}
                verdict = self._ask([group])[0]
            if not verdict.good:
                return False
            kept.append(group)
        return not self._settle(pending, kept) and self._offer(kept)

    def _isolate(self, group: Group) -> int:
        """A metric of a bad group that seems to make it bad, by two binary searches.

        The shortest bad prefix ends in a metric that conflicts with some metric before it; the shortest prefix of
        those, backwards, that is bad with it ends in the other one. The tests are facts, the conclusion is not.
        """
        order = [int(metric) for metric in self._rng.permutation(sorted(group))]
        ends = order[: self._shortest_bad(order, [])]
        culprit, before = ends[-1], ends[-2::-1]
        if before:
            self._shortest_bad(before, [culprit])
        return culprit

    def _shortest_bad(self, order: Sequence[int], fixed: Sequence[int]) -> int:
        """Length of the shortest prefix that is not good together with ``fixed``, were groups monotone."""
        low, high = 0, len(order)
        while high - low > 1:
            middle = (low + high) // 2
            if self._ask([frozenset([*order[:middle], *fixed])])[0].good:
                low = middle
            else:
                high = middle
        return high

    def _keep_smaller_group(self, groups: list[Group], left: Group, gone: Group) -> None:
        """Keep a group that could only be dissolved in part, smaller, for the next attempt."""
        if len(left) < len(gone) and self._ask([left])[0].good:
            self._current = [*groups, left]

    def _eject_for(self, metric: int, groups: list[Group], moved: set[tuple[int, int]]) -> int | None:
        """Put ``metric`` into a group in exchange for another metric, which is returned; None: no exchange is good."""
        choices = []
        for k, group in enumerate(groups):
            if (metric, k) in moved or len(group) < 2:
                continue
            total = self._suspicion.between([metric], group)
            for other in sorted(group):
                left = total - self._suspicion.between([metric], [other])
                if not self._suspicion.hopeless([metric], group - {other}):
                    choices.append((left + 1e-3 * self._rng.random(), k, other))
        choices.sort()
        tried = choices[: max(4, self._width)]
        found = self._first_good([groups[k] - {other} | {metric} for _, k, other in tried])
        if found is None:
            return None
        _, k, other = tried[found]
        groups[k] = groups[k] - {other} | {metric}
        moved.add((other, k))
        return other

    # -- proof -------------------------------------------------------------------------------------------------

    def _prove(self) -> Iterator[Progress]:
        """Test larger groups first until no partition would be better even if all untested groups were good."""
        left = sorted(range(1, 1 << self.n), key=lambda bits: (-bits.bit_count(), bits))
        while True:
            self._adopt_cover()
            optimistic = self._optimistic_rank()
            if optimistic == self.best.rank:
                self._proved = True
                break
            if not self.best.uncovered:
                self._bound = optimistic[1]
            left = [bits for bits in left if as_group(bits) not in self.tested]
            if not left:
                break  # undecided groups keep the best from being proved
            self._ask([as_group(bits) for bits in left[: max(self._width, _PROOF_BATCH)]])
            yield self.progress("exact")
        yield self.conclude("exact")

    def _optimistic_rank(self) -> tuple[int, int]:
        """The rank of the best partition if every group that was not shown to be bad were good."""
        allowed = np.ones(1 << self.n, np.bool_)
        for group, verdict in self.tested.items():
            allowed[as_bits(group)] = verdict.state != "bad"
        return cover_rank_by_table(self.n, allowed)


def _halves(part: list[int]) -> tuple[list[int], list[int]]:
    middle = len(part) // 2
    return part[:middle], part[middle:]
