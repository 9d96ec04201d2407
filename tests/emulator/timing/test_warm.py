"""Caches warmed up from last accesses against caches that saw all of them, by replacement policy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.events import NEVER, BlockFacts
from emulator.timing import layout
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_config import MachineConfig
from emulator.timing.machine_events import Event
from emulator.timing.machine_file import load_machine
from emulator.timing.order_kernel import first_of_each, merge_by_age, youngest_first
from emulator.timing.warm import Fills, Touched
from emulator.timing.warm_kernel import full_since, gather_history, random_rate, to_fills
from tests.emulator.timing.timing_naive import NaiveCache
from tests.emulator.timing.timing_programs import machines, programs, records, stream_of

LINE = 32
WAYS = 4
NOTHING = Touched(*(np.zeros(0, np.uint32) for _ in range(3)))
STRONGARM = load_machine(Path(__file__).parents[3] / "configs" / "machines" / "strongarm.yaml")
EXAMPLES = settings(max_examples=100, derandomize=True, deadline=None)


def machine(policy: str, sets: int, ways: int = WAYS) -> MachineConfig:
    changed = {"size_bytes": sets * ways * LINE, "associativity": ways, "replacement": policy}
    return STRONGARM.model_copy(update={"l1d": STRONGARM.l1d.model_copy(update=changed)})


def touched(accesses: list[tuple[int, bool]]) -> Touched:
    """What is known of accesses to lines, (line, whether written), the last one at age 1."""
    last, written = {}, {}
    for time, (line, is_store) in enumerate(accesses):
        last[line] = time
        if is_store:
            written[line] = time
    now = len(accesses)
    lines = list(last)
    return Touched(
        np.array([LINE * line for line in lines], np.uint32),
        np.array([now - last[line] for line in lines], np.uint32),
        np.array([now - written[line] if line in written else NEVER for line in lines], np.uint32),
    )


def contents(core: InOrderCore, cache: int = layout.L1D) -> list[dict[int, bool]]:
    """The lines of each set of a cache, and whether they are dirty, the one to leave first first."""
    ways, sets = int(core._longs[cache + layout.M_WAYS]), int(core._longs[cache + layout.M_SET_MASK]) + 1
    first = int(core._longs[cache + layout.M_BASE])
    found = []
    for set_ in range(sets):
        places = first + set_ * ways + np.arange(ways)
        by_stamp = places[np.argsort(core._longs[layout.STAMPS + places])]
        tags = [int(core._words[place]) for place in by_stamp if core._words[place] != layout.INVALID_TAG]
        assert len({tag >> 1 for tag in tags}) == len(tags)
        assert all((tag >> 1) % sets == set_ for tag in tags)
        found.append({tag >> 1: bool(tag & 1) for tag in tags})
    return found


def seen_all(policy: str, sets: int, ways: int, accesses: list[tuple[int, bool]], seed: int = 1) -> NaiveCache:
    cache = NaiveCache(sets, ways, policy, seed)
    for line, is_store in accesses:
        cache.lookup(line, is_store)
    return cache


ACCESSES = st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=1, max_size=200)


@EXAMPLES
@given(ACCESSES, st.sampled_from([1, 2, 8]))
def test_lru_is_exact(accesses: list[tuple[int, bool]], sets: int) -> None:
    core = InOrderCore(machine("lru", sets), 1)
    core.warm_caches(touched(accesses), NOTHING, 10**6)
    truth = seen_all("lru", sets, WAYS, accesses)
    for mine, theirs in zip(contents(core), truth.sets, strict=True):
        actual = {entry[0]: bool(entry[1]) for entry in theirs if entry is not None}
        assert list(mine) == sorted(actual, key=lambda line: truth.age[line])
        assert all(actual[line] for line, is_dirty in mine.items() if is_dirty)


@EXAMPLES
@given(ACCESSES, st.sampled_from(["lru", "fifo", "random"]), st.integers(0, 9))
def test_a_set_holds_what_it_can(accesses: list[tuple[int, bool]], policy: str, seed: int) -> None:
    told = touched(accesses)
    lines = set((told.addresses // LINE).tolist())
    written = {line for line, is_store in accesses if is_store}
    ago = np.array([0.0, 10.0, 300.0])
    fills = Fills(ago, ago**0.5, ago)
    found = []
    for _ in range(2):  # the same seed gives the same
        core = InOrderCore(machine(policy, 2), seed)
        core.warm_caches(told, NOTHING, 10**6, fills)
        found.append(contents(core))
        assert not core.counters.any()
    assert found[0] == found[1]
    for set_, mine in enumerate(found[0]):
        candidates = {line for line in lines if line % 2 == set_}
        assert len(mine) == min(WAYS, len(candidates))
        assert set(mine) <= candidates
        assert {line for line, is_dirty in mine.items() if is_dirty} <= written


@EXAMPLES
@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=20),
    st.lists(st.one_of(st.integers(0, 25_000).map(float), st.just(np.inf)), max_size=40),
    st.data(),
)
def test_ages_in_fills(gaps: list[int], ages: list[float], data: st.DataObject) -> None:
    ago = np.cumsum([0, *gaps]).astype(float)
    since = np.cumsum([0.0, *(data.draw(st.integers(0, 50)) for _ in gaps)])
    scale = (since[-1] + 1) / (ago[-1] + 1)
    converted = np.array(ages)
    to_fills(ago, since, float(scale), converted)
    for age, fills in zip(ages, converted, strict=True):
        if np.isinf(age):
            assert np.isinf(fills)
        else:
            inside = min(age, ago[-1])
            expected = np.interp(inside, ago, since) + scale * (age - inside) + 1e-6 * scale * inside
            assert fills == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("gaps", [[1] * 40 + [100_000], [100_000] + [1] * 40, [200] * 40, [0, 0, 0, 5]])
def test_ages_in_fills_between_unequal_intervals(gaps: list[int]) -> None:
    ago = np.cumsum([0, *gaps]).astype(float)
    since = np.sqrt(ago)
    random = np.random.default_rng(1)
    ages = np.concatenate([ago, random.choice(ago, 50), random.random(50) * ago[-1]])
    converted = ages.copy()
    to_fills(ago, since, 0.0, converted)
    assert converted == pytest.approx(np.interp(ages, ago, since), rel=1e-12)


def test_what_nobody_told_of_stays_until_it_is_old() -> None:
    core = InOrderCore(machine("lru", 1), 1)
    core.warm_caches(touched([(1, True), (2, False)]), NOTHING, 10**6)
    core.warm_caches(touched([(7, False)]), NOTHING, 100)
    assert contents(core) == [{2: False, 1: True, 7: False}] or contents(core) == [{1: True, 2: False, 7: False}]
    core.warm_caches(touched([(line, False) for line in range(10, 14)]), NOTHING, 100)
    assert contents(core) == [{10: False, 11: False, 12: False, 13: False}]


@EXAMPLES
@given(st.lists(ACCESSES, min_size=2, max_size=4), st.sampled_from([1, 2]), st.integers(0, 20))
def test_lru_is_exact_where_nobody_tells_of_some_lines_again(
    parts: list[list[tuple[int, bool]]], sets: int, n_untold: int
) -> None:
    """As of code that does not run again: it keeps its age, and does not become as young as the latest warm-up."""
    first, *later = parts
    parts = [first, *([access for access in part if access[0] >= n_untold] for part in later)]
    core, accesses = InOrderCore(machine("lru", sets), 1), []
    for number, part in enumerate(parts):
        accesses += part
        told = touched(accesses)
        if number:
            known = told.addresses >= LINE * n_untold
            told = Touched(told.addresses[known], told.ages[known], told.written[known])
        core.warm_caches(told, NOTHING, len(part))
        truth = seen_all("lru", sets, WAYS, accesses)
        for mine, theirs in zip(contents(core), truth.sets, strict=True):
            actual = {entry[0]: bool(entry[1]) for entry in theirs if entry is not None}
            assert list(mine) == sorted(actual, key=lambda line: truth.age[line])
            assert all(actual[line] for line, is_dirty in mine.items() if is_dirty)


def test_a_line_that_cannot_have_left_since_it_was_dirty_is_dirty() -> None:
    core = InOrderCore(machine("lru", 1), 1)
    core.warm_caches(touched([(1, True), (2, False), (3, False)]), NOTHING, 10**6)
    reads = [(1, True), (2, False), (3, False), (4, False), (1, False)]
    core.warm_caches(touched(reads), NOTHING, 2)
    assert contents(core) == [{2: False, 3: False, 4: False, 1: True}]
    more = [*reads, (5, False), (6, False), (1, False)]  # five lines since it was written, but never four between reads
    core.warm_caches(touched(more), NOTHING, 3)
    assert contents(core) == [{4: False, 5: False, 6: False, 1: True}]


@pytest.mark.parametrize(("policy", "tolerance"), [("lru", 1e-9), ("random", 0.012), ("fifo", 0.06)])
def test_the_next_access_hits_as_often(policy: str, tolerance: float) -> None:
    """A set of 8 ways and 40 lines of different popularity, 300 times: mean chance of a hit, and dirty lines.

    FIFO is rough here: the share of lines that their last access brought in is that of real programs, whose accesses
    are not independent.
    """
    ways, n_lines, trials = 8, 40, 300
    popularity = 1.0 / np.arange(1, n_lines + 1)
    popularity /= popularity.sum()
    random = np.random.default_rng(5)
    hits, dirty = np.zeros((trials, 2)), np.zeros((trials, 2))
    core = InOrderCore(machine(policy, 1, ways), 1)
    for trial in range(trials):
        lines = random.choice(n_lines, 600, p=popularity)
        accesses = [(int(line), bool(store)) for line, store in zip(lines, random.random(600) < 0.3, strict=True)]
        truth = seen_all(policy, 1, ways, accesses, seed=trial + 1).sets[0]
        held = {entry[0]: bool(entry[1]) for entry in truth if entry is not None}
        core.warm_caches(touched(accesses), NOTHING, 10**6)
        (mine,) = contents(core)
        for column, one in enumerate((held, mine)):
            hits[trial, column] = popularity[list(one)].sum()
            dirty[trial, column] = sum(one.values()) / ways
    assert hits[:, 1].mean() == pytest.approx(hits[:, 0].mean(), abs=tolerance)
    assert dirty[:, 1].mean() == pytest.approx(dirty[:, 0].mean(), abs=0.13)
    if policy == "random":  # which loading each line once, in order of its last access, is far from
        last = np.mean([popularity[list(contents_by_lru(random, popularity, ways))].sum() for _ in range(trials)])
        assert last - hits[:, 0].mean() > 2 * tolerance


def contents_by_lru(random: np.random.Generator, popularity: np.ndarray, ways: int) -> list[int]:
    lines = random.choice(len(popularity), 600, p=popularity)
    return list(dict.fromkeys(lines[::-1].tolist()))[:ways]


@EXAMPLES
@given(st.lists(st.floats(1, 1e7), min_size=5, max_size=60), st.integers(1, 4), st.just(0.0) | st.floats(1e-12, 1e6))
def test_rates_fill_a_set(ages: list[float], ways: int, guess: float) -> None:
    sorted_ages = np.sort(np.array(ages))
    stays = np.empty(len(ages))
    rate = random_rate(sorted_ages, ways, guess, stays)
    counted = rate * sorted_ages <= 45
    assert np.allclose(stays[counted], np.exp(-rate * sorted_ages[counted]), rtol=1e-12, atol=0)
    assert np.exp(-rate * sorted_ages).sum() == pytest.approx(ways, rel=2e-3)


@EXAMPLES
@given(
    st.lists(st.floats(1, 1e4), min_size=5, max_size=60), st.integers(1, 4), st.floats(1.0, 1e4), st.floats(0.0, 2e4)
)
def test_since_when_a_set_is_full(ages: list[float], ways: int, lines: float, fills: float) -> None:
    """Each fill of the cache evicts a line with probability 1 / lines, from when the sum of what stays is the ways."""
    sorted_ages = np.sort(np.array(ages))
    full = full_since(sorted_ages, ways, (lines, fills))
    all_stay = np.exp(-sorted_ages / lines).sum()
    if fills - lines >= sorted_ages[-1] or all_stay > ways * (1 + 1e-9):
        assert full == np.inf
    elif all_stay < ways * (1 - 1e-9):
        assert full >= fills - lines
        if full > fills - lines:
            assert np.exp(-np.minimum(sorted_ages, full) / lines).sum() == pytest.approx(ways, rel=1e-9)
    assert full_since(sorted_ages, ways, (0.0, fills)) == np.inf


@pytest.mark.parametrize("n_lines", [550, 900])
def test_while_a_cache_fills_lines_of_before_it_was_full_stay_alike(n_lines: int) -> None:
    """A random cache of 64 sets of 8 ways, and lines of which some sets get more than others, so that they are full
    sooner: mean number held of each quarter of the lines, the oldest first, by truth and by warm-up."""
    sets, ways, trials = 64, 8, 12
    random = np.random.default_rng(3)
    held = np.zeros((2, 4))
    for trial in range(trials):
        order: list[int] = []
        for line in random.permutation(60 * sets)[:n_lines].tolist():
            order += [line, order[random.integers(len(order))]] if order and random.random() < 0.3 else [line]
        truth, core = NaiveCache(sets, ways, "random", trial + 1), InOrderCore(machine("random", sets, ways), trial + 1)
        filled = np.cumsum([0.0, *(not truth.lookup(line)[0] for line in order)])
        since, told = (filled[-1] - filled)[::-1], touched([(line, False) for line in order])
        fills = Fills(np.arange(len(since), dtype=float), since, since, sets * ways, sets * ways)
        core.warm_caches(told, NOTHING, 10**6, fills)
        oldest_first = (told.addresses // LINE)[np.argsort(told.ages)[::-1]]
        true_lines = [entry[0] for set_ in truth.sets for entry in set_ if entry is not None]
        for row, mine in enumerate((true_lines, [line for set_ in contents(core) for line in set_])):
            held[row] += [np.isin(quarter, mine).sum() / trials for quarter in np.array_split(oldest_first, 4)]
    assert held[1] == pytest.approx(held[0], abs=6)  # where lines evicted each other from the first on: up to 15


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.data())
def test_branch_prediction_learns_as_if_it_had_been_simulated(data: st.DataObject) -> None:
    config: MachineConfig = data.draw(machines())
    facts: BlockFacts = data.draw(programs())
    stream = stream_of(data.draw(records(facts)))
    simulated, trained = InOrderCore(config, 1), InOrderCore(config, 1)
    simulated.consume(facts, stream)
    trained.train(facts, stream, 0)
    for mine, theirs in zip(trained._predictor_tables(), simulated._predictor_tables(), strict=True):
        assert np.array_equal(mine, theirs)
    assert trained._longs[layout.S_HISTORY] == simulated._longs[layout.S_HISTORY]
    nothing = InOrderCore(config, 1)
    before = [table.copy() for table in nothing._predictor_tables()]
    nothing.train(facts, stream, len(stream) + 1)
    assert all(np.array_equal(a, b) for a, b in zip(before, nothing._predictor_tables(), strict=True))


def fetches(facts: BlockFacts, stream: np.ndarray, skipped_words: int, line_bytes: int) -> list[int]:
    """The lines that the blocks of a record fetch, one after another, without those in its first words."""
    lines: list[int] = []
    position = 0
    while position < len(stream):
        block = facts.blocks[stream[position]]
        for line in range(int(block["pc"]) // line_bytes, (int(block["end_pc"]) - 1) // line_bytes + 1):
            if position >= skipped_words and lines[-1:] != [line]:
                lines.append(line)
        position += 1 + int(block["n_accesses"])
    return lines


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.data(), st.sampled_from(["lru", "fifo", "random"]))
def test_an_instruction_cache_learns_fetches_of_lines_that_it_was_told_of(data: st.DataObject, policy: str) -> None:
    config: MachineConfig = data.draw(machines())
    config = config.model_copy(update={"l1i": config.l1i.model_copy(update={"replacement": policy})})
    facts: BlockFacts = data.draw(programs())
    line_bytes = config.l1i.line_bytes
    everything = stream_of((block, [0] * int(facts.blocks[block]["n_accesses"])) for block in range(facts.n_blocks))
    told = data.draw(st.lists(st.sampled_from(sorted({*fetches(facts, everything, 0, line_bytes)})), unique=True))
    core = InOrderCore(config, 1)
    ages = np.arange(1, len(told) + 1, dtype=np.uint32)
    code = Touched(np.array(told, np.uint32) * np.uint32(line_bytes), ages, np.full(len(told), NEVER, np.uint32))
    core.warm_caches(NOTHING, code, 10**6)
    generator = int(core._longs[layout.L1I + layout.M_RANDOM]) % 2**64
    twin = NaiveCache(config.l1i.sets, config.l1i.associativity, policy, generator)
    held = [list(each) for each in contents(core, layout.L1I)]
    for lines in held:
        for line in lines:
            twin.lookup(line)
    for _ in range(2):
        stream = stream_of(data.draw(records(facts)))
        skipped = data.draw(st.sampled_from([0, len(stream) // 2, len(stream)]))
        core.train(facts, stream, skipped)
        for line in fetches(facts, stream, skipped, line_bytes):
            if line in told or twin.lookup(line, allocate=False)[0]:
                twin.lookup(line)
    expected = [{entry[0] for entry in ways if entry is not None} for ways in twin.sets]
    assert [set(each) for each in contents(core, layout.L1I)] == expected
    assert not core.counters[[Event.CYCLES, Event.L1I_ACCESSES, Event.L1I_MISSES]].any()


@pytest.mark.parametrize("policy", ["lru", "fifo", "random"])
def test_a_fifo_instruction_cache_is_not_told_what_was_fetched_last(policy: str) -> None:
    config = STRONGARM.model_copy(update={"l1i": STRONGARM.l1i.model_copy(update={"replacement": policy})})
    core = InOrderCore(config, 1)
    core.warm_caches(NOTHING, touched([(line, False) for line in range(5)]), 10**6)
    assert any(contents(core, layout.L1I)) == (policy != "fifo")


def misses_of_a_loop(order: list[int], loop: list[int], times: int) -> int:
    """Misses of the last round of a loop in one FIFO set that was filled in an order."""
    cache = NaiveCache(1, len(order), "fifo", 1)
    misses = 0
    for line in order:
        cache.lookup(line)
    for _ in range(times):
        misses = sum(not cache.lookup(line)[0] for line in loop)
    return misses


def test_a_loop_in_a_fifo_cache_never_forgets_in_which_order_its_lines_were_filled() -> None:
    """Why last fetches do not do: lines of one loop, filled in two orders, miss differently often for ever."""
    random = np.random.default_rng(4)
    loop = [int(line) for line in random.integers(0, 9, 24)]
    lines = list(dict.fromkeys(loop))[:7]
    after = {misses_of_a_loop([lines[place] for place in random.permutation(len(lines))], loop, 500) for _ in range(50)}
    assert len(after) > 1


@given(st.lists(st.one_of(st.integers(0, 5), st.integers(0, NEVER)), max_size=200), st.integers(0, 31))
@EXAMPLES
def test_lines_are_ordered_and_told_apart_as_numpy_does(numbers: list[int], shift: int) -> None:
    ages = np.array(numbers, np.uint32)
    assert youngest_first(ages).tolist() == np.argsort(ages, kind="stable").tolist()
    one, other = ages[: len(ages) // 3], ages[len(ages) // 3 :]
    merged = merge_by_age(one, youngest_first(one), other, youngest_first(other))
    assert merged.tolist() == np.argsort(ages, kind="stable").tolist()
    lines = ages.astype(np.int64) >> shift
    _, first = np.unique(lines, return_index=True)
    assert first_of_each(lines).tolist() == sorted(first.tolist())


@EXAMPLES
@given(st.lists(st.tuples(st.integers(0, NEVER), st.integers(0, NEVER), st.sampled_from([NEVER, 0, 5])), max_size=20))
def test_a_history_is_put_in_order(accesses: list[tuple[int, int, int]]) -> None:
    columns = np.array(accesses, np.uint32).reshape(-1, 3).T
    addresses, ages, written = (np.ascontiguousarray(column) for column in columns)
    order, n = np.random.default_rng(len(accesses)).permutation(len(accesses)), len(accesses)
    found = np.zeros(n, np.int64), np.zeros(n), np.zeros(n)
    gather_history(order, addresses, ages, written, *found)
    expected = [accesses[index] for index in order]
    assert found[0].tolist() == [one[0] for one in expected]
    assert found[1].tolist() == [one[1] for one in expected]
    assert found[2].tolist() == [np.inf if one[2] == NEVER else one[2] for one in expected]


DESKTOP = load_machine(Path(__file__).parents[3] / "configs" / "machines" / "desktop.yaml")


def lines_of(core: InOrderCore, cache: int) -> int:
    """The number of lines that a cache holds."""
    ways, sets = int(core._longs[cache + layout.M_WAYS]), int(core._longs[cache + layout.M_SET_MASK]) + 1
    first = int(core._longs[cache + layout.M_BASE])
    return int((core._words[first : first + ways * sets] != layout.INVALID_TAG).sum())


@EXAMPLES
@given(st.integers(1, 12), st.integers(0, 30))
def test_code_that_stays_in_the_first_level_does_not_fill_the_second(in_one_set: int, alone: int) -> None:
    cache = DESKTOP.l1i
    ways, sets = cache.associativity, cache.size_bytes // cache.line_bytes // cache.associativity
    numbers = [7 + sets * way for way in range(in_one_set)] + [8 + number for number in range(alone)]
    addresses = np.array(numbers, np.uint32) * np.uint32(cache.line_bytes)
    code = Touched(addresses, np.arange(1, len(numbers) + 1, dtype=np.uint32), np.full(len(numbers), NEVER, np.uint32))
    core = InOrderCore(DESKTOP, 1)
    core.warm_caches(NOTHING, code, 10**6)
    assert lines_of(core, layout.L1I) == min(in_one_set, ways) + alone
    assert lines_of(core, layout.L2) == (in_one_set if in_one_set > ways else 0)
    # A line that the second level holds from before stays there.
    core = InOrderCore(DESKTOP, 1)
    data = Touched(addresses[-1:], code.ages[-1:], code.written[-1:])
    core.warm_caches(data, NOTHING, 10**6)
    core.warm_caches(NOTHING, code, 10**6)
    assert lines_of(core, layout.L2) == (in_one_set + bool(alone) if in_one_set > ways else 1)


def test_the_first_level_needs_the_youngest_lines_alone() -> None:
    caches = {name: getattr(DESKTOP, name).model_copy(update={"replacement": "lru"}) for name in ("l1d", "l2")}
    core = InOrderCore(DESKTOP.model_copy(update=caches), 1)
    random = np.random.default_rng(3)
    lines = random.permutation(40_000)[:30_000]  # the youngest first
    ages = np.cumsum(random.integers(1, 9, len(lines))).astype(np.uint32)
    data = Touched(lines.astype(np.uint32) * np.uint32(64), ages, np.full(len(lines), NEVER, np.uint32))
    core.warm_caches(data, NOTHING, 10**7)
    sets, ways = DESKTOP.l1d.sets, DESKTOP.l1d.associativity
    expected = [[int(line) for line in lines if line % sets == set_][:ways][::-1] for set_ in range(sets)]
    assert [list(each) for each in contents(core)] == expected
    pages = list(dict.fromkeys((lines // 64).tolist()))
    assert DESKTOP.dtlb is not None
    assert [list(each) for each in contents(core, layout.DTLB)] == [pages[: DESKTOP.dtlb.entries][::-1]]
    assert lines_of(core, layout.L2) == 8192
