"""Kernels that Python calls: what they take, what they return, and where their code is kept."""

from __future__ import annotations

import ctypes
import math
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from common.file_cache import OBJECTS, cache_directory
from emulator.events import OpClass
from emulator.kernels import jit
from emulator.kernels.jit import array_at, call_address, inline_kernel, kernel, relaxed_kernel

ROW = np.dtype([("small", "u1"), ("signed", "i2"), ("wide", "u8"), ("share", "f4")])
CALL = int(OpClass.CALL)
ROOT = Path(__file__).parents[3]
BIG = 0x9E3779B97F4A7C15


class Tables(NamedTuple):
    counts: Any
    grid: Any
    limit: int


@inline_kernel
def least(values: Any) -> Any:
    """The least of some numbers, and where it is."""
    place = 0
    for n in range(1, len(values)):
        if values[n] < values[place]:
            place = n
    return place, values[place]


@kernel
def spread(rows: Any, tables: Tables, words: Any, scale: Any) -> Any:
    """Something of every kind of memory."""
    total = 0.0
    code = np.uint64(7)
    for row in rows:
        if row["small"] == 0:
            continue
        row["signed"] = -np.int64(row["small"])
        row["wide"] = row["wide"] * np.uint64(BIG)
        row["share"] = row["share"] * np.float32(scale)
        total += float(row["share"])
        code = (code ^ row["wide"]) * np.uint64(3)
    for line in range(tables.grid.shape[0]):
        place, smallest = least(tables.grid[line])
        tables.grid[line, place] = tables.limit + CALL
        tables.counts[place] += smallest
    words[:] = 5
    words[1:3] = tables.counts.size
    inner = words[2:100]
    for word in inner:
        total += word
    tables.grid[0] = tables.grid[len(tables.grid) - 1]
    return total + len(inner), np.int64(code >> np.uint64(1)), total > 3.0


def spread_arguments(seed: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    rows = np.zeros(5, ROW)
    rows["small"], rows["wide"], rows["share"] = (
        rng.integers(0, 3, 5),
        rng.integers(0, 1 << 60, 5),
        rng.random(5),
    )
    tables = Tables(rng.integers(0, 9, 4), rng.integers(-5, 5, (3, 4)), int(rng.integers(9)))
    return rows, tables, rng.integers(0, 9, 6).astype(np.uint32), float(rng.random())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000))
def test_records_tuples_and_views_are_as_in_python(seed: int) -> None:
    ours, theirs = spread_arguments(seed), spread_arguments(seed)
    with np.errstate(over="ignore"):
        expected = spread.py_func(*theirs)
    assert spread(*ours) == expected
    for one, other in zip((ours[0], *ours[1][:2], ours[2]), (theirs[0], *theirs[1][:2], theirs[2]), strict=True):
        assert one.tobytes() == other.tobytes()


@kernel
def total_of(values: Any) -> Any:
    """Works for every type of element."""
    total = values[0]
    for n in range(1, len(values)):
        total += values[n]
    return total


NUMBERS = st.sampled_from([np.int8, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64])


@settings(max_examples=60, deadline=None)
@given(NUMBERS.flatmap(lambda dtype: hnp.arrays(dtype, st.integers(1, 9))))
def test_a_kernel_is_compiled_for_the_types_of_its_arguments(values: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        if values.dtype.kind == "f":
            expected = values[0]
            for value in values[1:]:
                expected = expected + value
        else:
            expected = values.astype(np.int64 if values.dtype.kind == "i" else np.uint64).sum()
    assert np.array_equal(total_of(values), expected, equal_nan=True)


@kernel
def kinds(a: Any, b: Any, c: Any) -> Any:
    return a == 2 and b > 0.5 and not c


def test_numbers_of_every_kind_are_taken() -> None:
    assert kinds(2, 0.75, False) is True
    assert kinds(np.uint64(2), np.float32(0.75), np.bool_(True)) is False
    assert kinds(OpClass(2), 1, 0) is True
    with pytest.raises(TypeError, match="more than 64 bits"):
        kinds(1 << 64, 1, 0)
    with pytest.raises(TypeError, match="argument b of kinds is 'x', expected a number"):
        kinds(2, "x", 0)
    with pytest.raises(TypeError, match="kinds was called with 2 arguments, expected 3"):
        kinds(2, 1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((4, 4), np.int64)[:, 1], "argument values of total_of is an array with gaps"),
        (np.zeros(4, ">i4"), "argument values of total_of is an array of >i4"),
        (np.array(["a"]), "argument values of total_of is an array of <U1"),
        (None, "argument values of total_of is None"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(values: Any, message: str) -> None:
    total_of(np.zeros(4, np.int64))
    with pytest.raises(TypeError, match=message):
        total_of(values)


@kernel
def root(x: float) -> float:
    return math.sqrt(abs(x)) * 2.0**3


def test_floats_are_as_in_python() -> None:
    assert root(-2.0) == math.sqrt(2.0) * 8.0


@relaxed_kernel
def fused(values: Any, factor: Any) -> Any:
    total = 0.0
    for value in values:
        total += value * factor
    return total


def test_relaxed_kernels_differ_by_rounding_alone() -> None:
    values = np.random.default_rng(1).random(100)
    assert fused(values, 0.1) == pytest.approx(fused.py_func(values, 0.1), rel=1e-14)


@kernel
def shares(values: Any, out: Any) -> Any:
    """With scratch, and functions of the C library."""
    if len(values) == 0:
        return 0.0
    logs, seen, pairs = np.empty(len(values)), np.zeros(4, np.uint8), np.zeros((2, 3), np.int64)
    for n in range(len(values)):
        logs[n] = math.log(1.0 + values[n])
        seen[n & 3] = 1
        pairs[n & 1, n % 3] += n
    if seen[3] == 0:
        return np.exp(logs[0])
    for n in range(len(values)):
        out[n] = math.log1p(values[n]) - logs[n] + pairs[1, n % 3]
    return float(seen[0] + seen[1])


@settings(max_examples=30, deadline=None)
@given(hnp.arrays(np.float64, st.integers(0, 9), elements=st.floats(0, 1e9)))
def test_scratch_lives_as_long_as_a_call(values: np.ndarray) -> None:
    ours, theirs = np.zeros((2, len(values)))
    expected = shares.py_func(values, theirs)
    for _ in range(3):
        assert shares(values, ours) == pytest.approx(expected, rel=1e-15)
    assert ours == pytest.approx(theirs, rel=1e-15, abs=1e-15)


PAIR = np.dtype([("small", "u2"), ("wide", "i8")])


@kernel
def swap_at(address: Any, pairs: NDArray[np.void], ints: NDArray[np.int32]) -> Any:
    """Add the pair at ``address`` to the int32 behind it, store that back, and return the pair's sum."""
    pair: Any = array_at(address, pairs)[0]
    total = pair["small"] + pair["wide"]
    behind = array_at(address + pairs.itemsize, ints)
    behind[0] += total
    pair["wide"] = -total
    return total


@pytest.mark.parametrize("offset", [0, 1, 7])
def test_an_array_at_a_host_address(offset: int) -> None:
    """Aligned or not, as in Python."""
    for call in (swap_at, swap_at.py_func):
        room = np.zeros(32, np.uint8)
        pair = room[offset : offset + PAIR.itemsize].view(PAIR)
        behind = room[offset + PAIR.itemsize : offset + PAIR.itemsize + 4].view(np.int32)
        pair[0], behind[0] = (7, -1000), 5
        assert call(room.ctypes.data + offset, np.zeros(1, PAIR), np.zeros(1, np.int32)) == -993
        assert pair[0].tolist() == (7, 993)
        assert behind[0] == -988
        assert not room[offset + PAIR.itemsize + 4 :].any()


@kernel
def refused_at(address: Any) -> Any:
    return array_at(address, address)[0]


def test_an_array_at_an_address_has_a_type() -> None:
    with pytest.raises(TypeError, match="array_at is not understood in a kernel"):
        refused_at(4096)


@kernel
def call_it(address: Any, argument: Any) -> None:
    call_address(address, argument)


def test_a_host_function_is_called_by_its_address() -> None:
    seen: list[int] = []
    note = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(seen.append)
    address = ctypes.cast(note, ctypes.c_void_p).value
    call_it(address, 4096)
    call_it.py_func(address, 8192)
    assert seen == [4096, 8192]


@kernel
def mixed(values: Any) -> Any:
    return np.uint64(1) + values[0]


@kernel
def endless(n: Any) -> Any:
    return endless(n)


@kernel
def sometimes(n: Any) -> Any:
    if n > 3:
        return 1


@kernel
def either(n: Any) -> Any:
    return n or 5


@kernel
def early(n: Any) -> Any:
    if n > 0:
        later = 3
    return later + unheard  # type: ignore[name-defined]  # noqa: F821


@kernel
def starred(n: Any) -> Any:
    return min(*n)


@kernel
def stepped(values: Any) -> Any:
    return len(values[::2])


@kernel
def listed(n: Any) -> Any:
    return [n]


@kernel
def in_a_loop(n: Any) -> Any:
    for _ in range(n):
        room = np.zeros(3)
    return room[0]


@kernel
def escapes(n: Any) -> Any:
    return np.zeros(n)


@pytest.mark.parametrize(
    ("function", "argument", "what"),
    [
        (mixed, np.zeros(1, np.int64), r"uint64 together with int64 \(convert one"),
        (endless, 1, "a recursive call of endless"),
        (sometimes, 1, "a function that returns something, but not at its end,"),
        (either, 1, "and, or of int64"),
        (early, 1, "unheard"),
        (starred, 1, r"the call min\(\*n\)"),
        (stepped, np.zeros(1), "the slice ::2"),
        (in_a_loop, 1, "an array made in a loop"),
        (escapes, 1, "a function that returns an array"),
        (listed, 1, r"List \(\[n\]\)"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_place(function: Any, argument: Any, what: str) -> None:
    name, first = function.py_func.__name__, function.py_func.__code__.co_firstlineno
    pattern = rf"test_jit\.py:(\d+): line \d+ of {name}: .*{what}.* is not understood in a kernel"
    with pytest.raises(TypeError, match=pattern) as raised:
        function(argument)
    line = int(str(raised.value).split("test_jit.py:")[1].split(":")[0])
    assert first <= line <= first + 4


@kernel
def post_and_wait(post: Any, wait: Any, ready: Any, go: Any) -> None:
    call_address(post, ready)
    call_address(wait, go)


def test_kernels_run_without_the_interpreter_lock() -> None:
    library = ctypes.CDLL(None)
    room = np.zeros((2, 4), np.uint64)  # of a sem_t each
    ready, go = (int(row.ctypes.data) for row in room)
    for address in (ready, go):
        library.sem_init(ctypes.c_void_p(address), 0, 0)
    post, wait = (ctypes.cast(one, ctypes.c_void_p).value for one in (library.sem_post, library.sem_wait))
    thread = threading.Thread(target=post_and_wait, args=(post, wait, ready, go), daemon=True)
    thread.start()
    library.sem_wait(ctypes.c_void_p(ready))
    library.sem_post(ctypes.c_void_p(go))  # the thread would hold the lock
    thread.join(60)
    assert not thread.is_alive()


# --- where code is kept

_COUNTED = """
import sys
from emulator.kernels import jit
from emulator.kernels import llvm_text as kernel_ir
made = []
real = kernel_ir.entry_text
kernel_ir.entry_text = lambda *arguments: made.append(1) or real(*arguments)
import numpy as np
sys.path.insert(0, sys.argv[1])
from some_kernel import twice
print(twice(np.arange(4)), len(made), "numba" in sys.modules)
"""
_SOURCE = """
from emulator.kernels.jit import inline_kernel, kernel

FACTOR = {factor}

@inline_kernel
def scaled(x):
    return x * FACTOR

@kernel
def twice(values):
    total = 0
    for value in values:
        total += scaled(value)
    return total
"""


def first_use(directory: Path, cache: Path, factor: int = 2, n_processes: int = 1) -> list[str]:
    """What so many processes print that use a kernel at once."""
    (directory / "some_kernel.py").write_text(_SOURCE.format(factor=factor))
    command = [sys.executable, "-B", "-c", _COUNTED, str(directory)]
    environment = {"XDG_CACHE_HOME": str(cache), "PATH": "/usr/bin:/bin"}
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(n_processes)
    ]
    return [process.communicate()[0].strip() for process in running]


def test_two_processes_compile_a_kernel_once_and_others_find_it(tmp_path: Path) -> None:
    at_once = first_use(tmp_path, tmp_path / "cache", n_processes=2)
    assert sorted(at_once) == ["12 0 False", "12 1 False"]
    assert first_use(tmp_path, tmp_path / "cache") == ["12 0 False"]
    # It depends on what it is made of, also in other functions.
    assert first_use(tmp_path, tmp_path / "cache", factor=5) == ["30 1 False"]


@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_damaged_code_is_compiled_again(tmp_path: Path, damage: bytes | None) -> None:
    assert first_use(tmp_path, tmp_path / "cache") == ["12 1 False"]
    files = [path for path in (tmp_path / "cache").rglob("translations/??/*") if path.is_file()]
    assert len(files) == 3  # the code, and the hashes of the sources that make its text, and it of that
    for kept in files:
        raw = bytearray(kept.read_bytes())
        raw[-9] ^= 1
        kept.write_bytes(raw if damage is None else damage)
    assert first_use(tmp_path, tmp_path / "cache") == ["12 1 False"]
    assert first_use(tmp_path, tmp_path / "cache") == ["12 0 False"]


def test_a_cache_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a directory should be")
    assert first_use(tmp_path, tmp_path / "cache") == ["12 1 False"]


def test_simulating_a_machine_and_tracing_need_no_numba() -> None:
    code = """
import sys
from pathlib import Path
import numpy as np
from emulator.first_use import compile_ahead
from emulator.timing.machine_file import load_machine
from measure.cycle_close import live_counts_kernel, online_kernel, signature_kernel
from measure.cycle_close import warmup_kernel
from emulator import probes_kernel
from emulator.execution import intervals_kernel
from emulator.timing import followed_kernel
compile_ahead(load_machine(Path("configs/machines/desktop.yaml")))
online_kernel.place_of(online_kernel.Due(np.full(4, -1), np.zeros(4, np.int64)), 3)
print("numba" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "False\n", done.stderr


@kernel
def add_to(total: Any, values: Any, scale: float, grid: Tables) -> None:
    for value in values:
        total[0] += value * scale + grid.limit


@kernel
def call_times(function: int, argument: int, times: int) -> None:
    for _ in range(times):
        call_address(function, argument)


def test_a_bound_kernel_is_called_by_address_and_reads_arrays_when_called() -> None:
    total, values = np.zeros(1), np.array([1, 2])
    bound = add_to.bound(total, values, 0.5, Tables(np.zeros(1), np.zeros((1, 1)), 3))
    call_times(bound.function, bound.argument, 2)
    assert total.tolist() == [2 * (1.5 + 6)]
    values[:] = 10
    bound()
    assert total.tolist() == [15 + 16]
    with pytest.raises(TypeError, match="argument values of add_to"):
        add_to.bound(total, "no array", 0.5, Tables(np.zeros(1), np.zeros((1, 1)), 3))


def test_code_is_kept_with_translations() -> None:
    total_of(np.zeros(4, np.int64))
    key_of: Callable[..., Any] = jit._compiler(cache_directory()).path_of
    assert key_of("x").parent.parent == cache_directory() / OBJECTS
