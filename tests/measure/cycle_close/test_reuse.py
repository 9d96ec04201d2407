"""Waiting for memory from reuse times."""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.engine.reuse_counts import (
    BINS_PER_OCTAVE,
    CLASS_SHIFT,
    LINE_SET_FIELDS,
    LINE_SETS,
    NEAR_BITS,
    PAGE_FIELDS,
    PAGE_SET_FIELDS,
    PAGE_SETS,
    REUSE_BINS,
    REUSE_FIELDS,
    TIME_CLASSES,
    TURN_BINS,
    TURN_FIELDS,
    bin_of,
    turn_bin_of,
    turn_bin_starts,
)
from emulator.events import BLOCK_DTYPE, NEVER
from emulator.execution.intervals import Intervals
from emulator.timing.machine_file import load_machine
from measure.cycle_close.code_lines import CodeLines
from measure.cycle_close.reuse import WaitModel
from measure.cycle_close.reuse_kernel import add_evictions, find_distances, misses_of, room_for_distances
from measure.cycle_close.set_kernel import (
    SetCounts,
    find_classes,
    misses_by_turns,
    misses_of_sets,
    random_misses,
    room_for_classes,
)

EXAMPLES = settings(max_examples=60, derandomize=True, deadline=None)
MACHINES = Path(__file__).parents[3] / "configs" / "machines"


def reuse_counts(accesses: list[int], instructions_each: int = 1, sets: int = 1) -> np.ndarray:
    """Fields of `emulator.engine.reuse_counts`, but for pages, of an access every so many instructions;
    lines as numbers."""
    last: dict[int, int] = {}
    out = np.zeros(REUSE_FIELDS, np.int64)
    turns, taken_at, last_of_set = [0] * sets, dict[int, int](), [-1] * sets
    for now, line in enumerate(accesses):
        age = (now - last[line]) * instructions_each if line in last else 1 << 31
        last[line] = now
        if age >= 1 << NEAR_BITS:
            out[bin_of(age)] += 1
            own = line % sets
            turns[own] += last_of_set[own] != line
            last_of_set[own] = line
            out[TURN_FIELDS + turn_bin_of(turns[own] - taken_at.get(line, -(1 << 31)))] += 1
            out[LINE_SET_FIELDS + (bin_of(age) >> CLASS_SHIFT) * LINE_SETS + line % LINE_SETS] += 1
            taken_at[line] = turns[own]
    return out


def lru_misses(accesses: list[int], lines: int, sets: int = 1) -> int:
    held: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(sets)]
    misses = 0
    for line in accesses:
        mine = held[line % sets]
        if line in mine:
            mine.move_to_end(line)
            continue
        misses += 1
        mine[line] = None
        if len(mine) > lines // sets:
            mine.popitem(last=False)
    return misses


def estimated_misses(accesses: list[int], lines: int, sets: int = 1, instructions_each: int = 1) -> float:
    """As `add_wait` has them."""
    counts, instructions = reuse_counts(accesses, instructions_each, sets), len(accesses) * instructions_each
    if sets == 1:
        return misses_by_time(counts, instructions, lines)
    by_turns = float(misses_by_turns(counts, lines / sets, turn_bin_starts()))
    return by_turns if lines == sets else max(by_turns, misses_by_set(counts, instructions, lines, sets))


def misses_by_set(counts: np.ndarray, instructions: int, lines: int, sets: int) -> float:
    edges, classes = room_for_distances().edges, room_for_classes()
    find_classes(counts, 0, edges, classes)
    of_level = SetCounts(*(np.array([one]) for one in (min(sets, LINE_SETS), 0, LINE_SET_FIELDS, LINE_SETS)))
    return float(misses_of_sets(float(lines), of_level, 0, counts, 0, instructions, edges, classes))


def misses_by_time(counts: np.ndarray, instructions: int, lines: int) -> float:
    distances = room_for_distances()
    find_distances(counts, 0, instructions, distances)
    return float(misses_of(distances, float(lines)))


@pytest.mark.parametrize("lines", [128, 256, 1024])
@pytest.mark.parametrize("kind", ["zipf", "uniform", "mixed"])
def test_misses_are_near_those_of_an_lru_cache(kind: str, lines: int) -> None:
    rng = np.random.default_rng(lines)
    n = 60_000
    zipf = np.minimum(rng.zipf(1.3, n), 5000)
    uniform = rng.integers(3000, size=n)
    accesses = {
        "zipf": zipf,
        "uniform": uniform,
        "mixed": np.where(rng.random(n) < 0.7, zipf, 10_000 + uniform),
    }[kind].tolist()
    assert estimated_misses(accesses, lines) == pytest.approx(lru_misses(accesses, lines), rel=0.03)
    sets = 16
    assert estimated_misses(accesses, lines, sets) == pytest.approx(lru_misses(accesses, lines, sets), rel=0.05)


@pytest.mark.parametrize("kind", ["anywhere", "one line again and again"])
@pytest.mark.parametrize(("lines", "sets"), [(128, 32), (512, 64), (512, 16), (1024, 16), (512, 512)])
@pytest.mark.parametrize("part", [0.5, 0.8, 1.5, 3.0])
def test_misses_of_lines_at_random_places_are_near_those_of_their_sets(
    kind: str, lines: int, sets: int, part: float
) -> None:
    """Some sets have more lines than others. One in ten accesses to a single line does not make its set a full one."""
    rng = np.random.default_rng(lines)
    n = 40_000
    places = rng.integers(1 << 20, size=int(part * lines))
    random = places[rng.integers(len(places), size=n)]
    if kind != "anywhere":
        random = np.where(rng.random(n) < 0.1, 5, random)
    accesses = random.tolist()
    found, expected = estimated_misses(accesses, lines, sets, 4), lru_misses(accesses, lines, sets)
    assert found == pytest.approx(expected, abs=(0.06 if lines == 4 * sets else 0.035) * n)


@pytest.mark.parametrize("ways", [1, 4, 8, 16])
@pytest.mark.parametrize("stride", [1, 16, 65, 256])
@pytest.mark.parametrize("fill", [0.5, 0.8, 1.5, 3.0])
def test_a_loop_over_lines_misses_if_they_do_not_fit_into_their_sets(stride: int, ways: int, fill: float) -> None:
    """Of 64 sets with ``ways`` lines, a stride of 16 lines uses 4, one of 256 a single one."""
    sets = 64
    n_used = len({stride * place % sets for place in range(sets)})
    loop = [stride * place for place in range(max(int(fill * ways * n_used), 1))]
    accesses = loop * (20_000 // len(loop))
    expected = lru_misses(accesses, sets * ways, sets)
    found = estimated_misses(accesses, sets * ways, sets, instructions_each=16)
    assert found == pytest.approx(expected, abs=0.02 * len(accesses))


@pytest.mark.parametrize(("rows", "conflicts"), [(8, False), (9, True)])
def test_columns_that_come_one_after_the_other_conflict_while_they_last(rows: int, conflicts: bool) -> None:
    """The lines of a column are in one set, those of the next in another: over time all sets are used alike."""
    sets, ways = 64, 8
    one_column = [[column + sets * row for row in range(rows)] * 20 for column in range(4 * sets)]
    accesses = [line for column in one_column for line in column]
    expected = lru_misses(accesses, sets * ways, sets)
    assert (expected > 0.5 * len(accesses)) == conflicts
    found = estimated_misses(accesses, sets * ways, sets, instructions_each=8)
    assert found == pytest.approx(expected, abs=0.02 * len(accesses))


def randomly_replaced_misses(accesses: list[int], ways: int, sets: int) -> int:
    rng = np.random.default_rng(1)
    held: list[list[int]] = [[] for _ in range(sets)]
    misses = 0
    for line in accesses:
        mine = held[line % sets]
        if line not in mine:
            misses += 1
            if len(mine) == ways:
                mine[int(rng.integers(ways))] = line
            else:
                mine.append(line)
    return misses


@pytest.mark.parametrize("ways", [1, 4, 16])
@pytest.mark.parametrize("kind", ["loop", "random", "columns"])
@pytest.mark.parametrize("fill", [0.5, 0.9, 1.5, 3.0])
def test_misses_of_sets_that_replace_a_random_line(kind: str, ways: int, fill: float) -> None:
    sets = 32
    rng = np.random.default_rng(ways)
    n_lines = max(int(fill * ways * sets), 1)
    rows = max(int(fill * ways), 1)
    accesses = {
        "loop": lambda: list(range(n_lines)) * (30_000 // n_lines),
        "random": lambda: rng.integers(n_lines, size=30_000).tolist(),
        "columns": lambda: [c + sets * row for c in range(sets) for _ in range(30) for row in range(rows)],
    }[kind]()
    model = WaitModel(load_machine(MACHINES / "desktop.yaml"))
    counts = reuse_counts(accesses, 40, sets)
    first_touches = TURN_FIELDS + turn_bin_of(1 << 31)  # they fill a cache that is empty: no line goes
    expected = randomly_replaced_misses(accesses, ways, sets) - counts[first_touches]
    counts[first_touches] = 0
    found = random_misses(counts, TURN_FIELDS, model.arrays.turn_middles, 1.0, float(ways))
    assert found == pytest.approx(expected, abs=0.06 * len(accesses))


def naive_misses_by_turns(counts: np.ndarray, ways: float) -> float:
    """Each bin's number of other lines between, then the part of its accesses that have too many."""
    starts = turn_bin_starts()
    inside = counts[TURN_FIELDS : TURN_FIELDS + TURN_BINS].astype(float)
    inside[0] = 0
    comes_later = inside.sum() - np.cumsum(inside)
    widths = np.diff(starts)
    kept = np.where(widths == 1, comes_later, comes_later + inside / 2) * widths / max(inside.sum(), 1)
    kept[0] = 0
    between = np.concatenate([[0], np.cumsum(kept)])
    limit = ways - 0.5
    beyond = np.clip((between[1:] - limit) / np.maximum(np.diff(between), 1e-12), 0, 1)
    beyond[widths == 1] = between[:-1][widths == 1] >= limit
    return float((inside * beyond).sum())


def naive_misses_by_set(counts: np.ndarray, instructions: int, lines: int, sets: int) -> float:
    """Each set's own accesses by reuse time, then its misses as those of a cache of its own."""
    edges = np.array(room_for_distances().edges)
    by_class = counts[:REUSE_BINS].astype(float).reshape(TIME_CLASSES, -1)
    in_sets = counts[LINE_SET_FIELDS : LINE_SET_FIELDS + TIME_CLASSES * LINE_SETS].reshape(TIME_CLASSES, -1, sets)
    total = 0.0
    for one in range(sets):
        share = in_sets[:, :, one].sum(axis=1) / np.maximum(by_class.sum(axis=1), 1)
        own = (share[:, None] * by_class).ravel()
        left = own.sum() - np.concatenate([[0], np.cumsum(own)])
        rates = np.diff(edges) * (left[:-1] + left[1:]) / 2
        between = left[0] / instructions + np.concatenate([[0], np.cumsum(rates)]) / instructions
        total += np.interp(lines / sets + 0.5, between, left, left=left[0], right=0.0)
    return float(total)


@EXAMPLES
@given(st.integers(0, 2**32 - 1), st.sampled_from([8, 64, 256]), st.sampled_from([1, 4, 32, 100]))
def test_misses_of_sets_are_those_of_their_definitions(seed: int, sets: int, ways: int) -> None:
    rng = np.random.default_rng(seed)
    accesses = np.where(rng.random(3000) < 0.5, rng.integers(2000, size=3000), 64 * rng.integers(90, size=3000))
    counts, n = reuse_counts(accesses.tolist(), 9, sets), 27_000
    by_turns = float(misses_by_turns(counts, float(ways), turn_bin_starts()))
    assert by_turns == pytest.approx(naive_misses_by_turns(counts, ways), rel=1e-6, abs=1e-6)
    by_set = misses_by_set(counts, n, sets * ways, sets)
    assert by_set == pytest.approx(naive_misses_by_set(counts, n, sets * ways, sets), rel=1e-6, abs=1e-6)


@given(st.lists(st.integers(0, 500), min_size=33, max_size=REUSE_BINS), st.integers(1, 10**6))
def test_larger_caches_miss_no_more(counts: list[int], instructions: int) -> None:
    fields = np.zeros(REUSE_FIELDS, np.int64)
    fields[: len(counts)] = counts
    length = max(instructions, sum(counts))
    misses = [misses_by_time(fields, length, lines) for lines in (1, 16, 256, 4096, 1 << 30)]
    assert all(a >= b - 1e-6 for a, b in pairwise(misses))
    assert 0 <= misses[-1] <= misses[0] <= sum(counts)


def fill_sets_alike(times: np.ndarray) -> None:
    """Count the accesses of each class of reuse time in all sets alike."""
    for first, first_set, sets in ((0, LINE_SET_FIELDS, LINE_SETS), (PAGE_FIELDS, PAGE_SET_FIELDS, PAGE_SETS)):
        in_class = times[:, first : first + REUSE_BINS].reshape(len(times), TIME_CLASSES, -1).sum(axis=2)
        place = np.arange(sets)
        in_sets = (in_class[..., None] * (place + 1)) // sets - (in_class[..., None] * place) // sets
        times[:, first_set : first_set + TIME_CLASSES * sets] = in_sets.reshape(len(times), -1)


def test_waiting_is_misses_times_latency() -> None:
    config = load_machine(MACHINES / "strongarm.yaml")
    model = WaitModel(config)
    times = np.zeros((3, REUSE_FIELDS), np.int64)
    times[1, bin_of(1 << 31)] = 1000  # never touched before
    times[2, bin_of(1)] = 1000  # touched the instruction before
    fill_sets_alike(times)
    waits = model.add(np.array([10_000, 20_000, 30_000]), times)
    assert waits.tolist() == pytest.approx([0, 0.1 * config.memory.latency_cycles, 0], rel=0.35)
    assert model.selection.line_bits == 5


@pytest.mark.parametrize("replacement", ["lru", "random"])
def test_waiting_for_page_walks_is_that_of_a_cache_of_pages(replacement: str) -> None:
    """A walk through 64 KiB and one through 1 MiB miss the same cache, and only the second misses the TLB."""
    config = load_machine(MACHINES / "strongarm.yaml", [f"dtlb.replacement={replacement}"])
    assert config.dtlb is not None
    assert config.dtlb.entries == 128
    n, length = 40, 100_000
    waits = []
    for pages in (16, 256):
        times = np.zeros((n, REUSE_FIELDS), np.int64)
        times[:, bin_of(20_000)] = 5000  # lines come back after longer than the cache holds any
        times[0, [bin_of(1 << 31), PAGE_FIELDS + bin_of(1 << 31)]] = 128 * pages, pages  # never touched before
        visits = 5000 // 128  # of a page, 128 lines long: the first access comes after all other pages
        times[:, PAGE_FIELDS + bin_of(200)] = 5000 - visits
        times[:, PAGE_FIELDS + bin_of(pages * 128 * 20)] = visits
        fill_sets_alike(times)
        model = WaitModel(config)
        waits.append(model.add(length * np.arange(1, n + 1), times)[-1])
    penalty = config.dtlb.miss_penalty_cycles
    assert waits[1] - waits[0] == pytest.approx(visits * penalty / length, rel=0.1)
    without = WaitModel(load_machine(MACHINES / "strongarm.yaml", ["dtlb=null"]))
    assert waits[0] == pytest.approx(without.add(length * np.arange(1, n + 1), times)[-1], rel=0.02)


def naive_fills(ends: list[int], reuse_times: np.ndarray, lines: float) -> list[float]:
    """Misses so far after each interval, by bisection, one interval after the other."""
    fills = [0.0]
    for number, (begin, end) in enumerate(pairwise(ends)):
        counts, length = reuse_times[number].reshape(-1, BINS_PER_OCTAVE).sum(axis=1), end - begin
        is_full = fills[-1] >= lines

        def missed(guess: float, counts=counts, begin=begin, length=length, is_full=is_full) -> float:  # type: ignore[no-untyped-def]
            total = float(counts[-1])
            for bin_, accesses in enumerate(counts[:-1]):
                time, evicted = 1.5 * 2.0**bin_, 0.0
                moment = begin + length / 2 - time
                if moment < begin:
                    was = float(np.interp(max(moment, 0), ends[: len(fills)], fills))
                    evicted += max(fills[-1] - lines, 0.0) - max(was - lines, 0.0)
                if is_full:
                    evicted += guess * min(time, length / 2) / length
                total += accesses * (1 - np.exp(-evicted / lines))
            return total

        low, high = 0.0, float(counts.sum())
        if missed(high) >= high - 1e-9:
            low = high
        for _ in range(80):  # the largest solution: above it, fewer are missed than guessed
            middle = (low + high) / 2
            low, high = (middle, high) if missed(middle) > middle else (low, middle)
        fills.append(fills[-1] + high)
    return fills


@EXAMPLES
@given(st.integers(1, 6), st.integers(0, 2**32 - 1), st.sampled_from([8.0, 64.0, 512.0]))
def test_misses_with_random_replacement_follow_from_the_intervals_so_far(n: int, seed: int, lines: float) -> None:
    random = np.random.default_rng(seed)
    ends = np.concatenate([[0], np.cumsum(random.integers(1000, 5000, n))])
    reuse_times = random.poisson(random.choice([0.0, 1.0, 20.0], (n, REUSE_BINS)))
    reuse_times[:, 19 * BINS_PER_OCTAVE : 31 * BINS_PER_OCTAVE] = 0
    fills = np.zeros(n + 1)
    add_evictions(ends, reuse_times, 0, 0, lines, fills)
    expected = naive_fills(ends.tolist(), reuse_times, lines)
    assert fills == pytest.approx(np.array(expected), rel=0.02, abs=2.0)
    by_parts = np.zeros(n + 1)
    of_pages = np.concatenate([random.integers(0, 9, (n, PAGE_FIELDS)), reuse_times], axis=1)
    for number in range(n):
        add_evictions(ends, of_pages[number : number + 1], PAGE_FIELDS, number, lines, by_parts)
    assert by_parts.tolist() == fills.tolist()


@EXAMPLES
@given(st.lists(st.dictionaries(st.integers(0, 4), st.integers(1, 50), max_size=4), min_size=1, max_size=5))
def test_lines_of_code_are_as_old_as_their_youngest_block(executed: list[dict[int, int]]) -> None:
    starts = [0x2000, 0x1018, 0x1000, 0x1020, 0x3FF0]  # 24 bytes each: some share lines of 32 bytes
    blocks = np.zeros(len(starts), BLOCK_DTYPE)
    blocks["pc"], blocks["end_pc"] = starts, np.array(starts) + 24
    code = CodeLines(load_machine(MACHINES / "strongarm.yaml"))
    ages: dict[int, float] = {}
    now = 1000 * len(executed) + 7
    for number, counts in enumerate(executed):
        end = 1000 * (number + 1)
        ran = Intervals(
            np.array([end]), np.array([0, len(counts)]), np.array(list(counts), np.uint32),
            np.array(list(counts.values()), np.int64), np.zeros((1, 33), np.int64),
        )  # fmt: skip
        code.add(end - 1000, ran)
        ages |= {block: now - end + 1000 / (times + 1) for block, times in counts.items()}
    expected: dict[int, int] = {}
    for block, age in ages.items():
        for line in range(starts[block] // 32, (starts[block] + 23) // 32 + 1):
            expected[32 * line] = min(int(age), expected.get(32 * line, 1 << 40))
    found = code.before(now, SimpleNamespace(n_blocks=len(starts), blocks=blocks))  # type: ignore[arg-type]
    assert dict(zip(found.addresses.tolist(), found.ages.tolist(), strict=True)) == expected
    assert (found.written == NEVER).all()
