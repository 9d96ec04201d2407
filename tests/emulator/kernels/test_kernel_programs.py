"""Random programs in what kernels may be written in: compiled, they do what Python and numpy do."""

from __future__ import annotations

import importlib.util
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.kernels.jit import kernel

HEAD = "import math\nimport numpy as np\n\ndef program(longs, words, floats, x, y):\n    z, k, g = x ^ y, 0, 0.5\n"
NUMBERS = [0, 1, 2, 3, 7, 8, 63, 64, 255, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1]
_count = itertools.count()


def _joined(*parts: Any) -> st.SearchStrategy[str]:
    return st.tuples(*(st.just(part) if isinstance(part, str) else part for part in parts)).map("".join)


def _grown(leaves: st.SearchStrategy[str]) -> tuple[st.SearchStrategy[str], st.SearchStrategy[str]]:
    """Expressions of int64, and conditions, a few levels deep."""
    integer = leaves
    for _ in range(2):
        natural = _joined("np.uint64(", integer, ")")
        natural = st.one_of(
            natural, _joined("(", natural, st.sampled_from("+-*&|^/%").map(lambda op: f" {op * (1 + (op == '/'))} "),
                             natural, ")"),
            _joined("(", natural, st.sampled_from([" << ", " >> "]), "np.uint64(", st.integers(0, 63).map(str), "))"),
        )  # fmt: skip
        real = st.one_of(
            st.sampled_from(["g", "floats[0]", "floats[1]", "0.25"]), _joined("float(", integer, ")"),
            _joined("math.sqrt(abs(float(", integer, ")))"),
        )  # fmt: skip
        comparison = st.sampled_from([" < ", " <= ", " > ", " >= ", " == ", " != "])
        condition = st.one_of(
            _joined("(", integer, comparison, integer, ")"), _joined("(", natural, comparison, natural, ")"),
            _joined("(", real, comparison, real, ")"), _joined("(", integer, comparison, integer, " < 9)"),
            _joined("(", integer, st.sampled_from([" in ", " not in "]), "(1, 3, y))"),
        )  # fmt: skip
        condition = st.one_of(
            condition, _joined("(", condition, st.sampled_from([" and ", " or ", " & ", " ^ "]), condition, ")"),
            _joined("(not ", condition, ")"),
        )  # fmt: skip
        integer = st.one_of(
            integer, _joined("(", integer, st.sampled_from([" + ", " - ", " * ", " & ", " | ", " ^ ", " // ", " % "]),
                             st.one_of(integer, st.sampled_from(["2", "3", "8", "1"])), ")"),
            _joined("(", integer, st.sampled_from([" << ", " >> "]), "(", integer, " & 63))"),
            _joined("(-", integer, ")"), _joined("(~", integer, ")"), _joined("abs(", integer, ")"),
            _joined(st.sampled_from(["min", "max"]), "(", integer, ", ", integer, ", y)"),
            _joined("np.int64(np.", st.sampled_from(["int8", "int32", "uint16", "uint32"]), "(", integer, "))"),
            _joined("np.int64(", natural, ")"), _joined("(", integer, " if ", condition, " else ", integer, ")"),
            _joined("np.int64(", condition, ")"),
        )  # fmt: skip
    return integer, condition


LEAVES = st.one_of(
    st.sampled_from(["x", "y", "z", "longs[0]", "longs[-1]", "longs[y & 3]"]),
    st.sampled_from(["np.int64(words[1])", "np.int64(len(words))"]),
    st.sampled_from(NUMBERS).map(lambda number: f"np.int64({number})"),
)
INTEGER, CONDITION = _grown(LEAVES)
SIMPLE = st.one_of(
    _joined(st.sampled_from(["x", "z"]), st.sampled_from([" = ", " += ", " ^= ", " //= ", " -= "]), INTEGER),
    _joined("longs[", st.sampled_from("0123"), "]", st.sampled_from([" = ", " += ", " *= "]), INTEGER),
    _joined("words[", st.sampled_from("0123"), "] = np.uint32(", INTEGER, ")"),
    _joined("floats[k & 1] = float(", INTEGER, ")"),
    _joined("g = floats[1]", st.sampled_from(["+", "-", "*", "/"]), " (0.5 + abs(g))"),
    st.sampled_from(["x, z = z, x", "x = y = z", "longs[1:3] = z", "k += 1"]),
)


@st.composite
def programs(draw: st.DrawFn) -> str:
    """The source of a function that ends."""

    def lines(depth: int, in_loop: bool) -> list[str]:
        found: list[str] = []
        for _ in range(draw(st.integers(1, 3))):
            kind = draw(st.integers(0, 8 if depth else 4))
            indented = [f"    {line}" for line in lines(depth - 1, in_loop or kind > 6)] if kind > 4 else []
            if kind == 4 and in_loop:
                found += [f"if {draw(CONDITION)}:", f"    {draw(st.sampled_from(['break', 'continue']))}"]
            elif kind <= 4:
                found.append(draw(SIMPLE))
            elif kind == 5:
                found += [f"if {draw(CONDITION)}:", *indented]
            elif kind == 6:
                found += [f"if {draw(CONDITION)}:", *indented, "else:", f"    {draw(SIMPLE)}"]
            elif kind == 7:
                found += [f"for n in range({draw(st.sampled_from(['4', '1, 4', '5, -1, -2', 'len(words)']))}):"]
                found += ["    y = np.int64(n)", *indented]
            else:
                found += ["for item in longs[1:3]:", "    z += item", *indented]
        return found

    body = lines(2, False)
    return HEAD + "".join(f"    {line}\n" for line in body) + f"    return ({draw(INTEGER)}) + np.int64(y)\n"


def loaded(source: str, directory: Path) -> Any:
    """The function ``program`` of a file with this source."""
    path = directory / f"program_{next(_count)}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.program


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(source=programs(), seed=st.integers(0, 2**32))
def test_compiled_programs_do_what_python_does(directory: Path, source: str, seed: int) -> None:
    plain = loaded(source, directory)
    compiled = kernel(plain)
    rng = np.random.default_rng(seed)
    for _ in range(4):
        numbers = [np.int64(rng.choice([*NUMBERS, *rng.integers(-9, 9, 9)])) for _ in range(6)]
        arrays = (
            np.array(numbers[2:], np.int64), rng.integers(0, 1 << 32, 4, np.uint32), rng.normal(size=2),
        )  # fmt: skip
        copies = tuple(array.copy() for array in arrays)
        with np.errstate(all="ignore"):
            expected = plain(*copies, *numbers[:2])
        assert compiled(*arrays, *numbers[:2]) == expected
        for ours, theirs in zip(arrays, copies, strict=True):
            assert ours.tobytes() == theirs.tobytes() or np.array_equal(ours, theirs, equal_nan=True)


@kernel
def integer_operators(a: Any, b: Any, out: Any) -> None:
    """Every operator of int64, with what is not known before and with constants."""
    shift = b & 63
    out[0], out[1], out[2], out[3], out[4] = a + b, a - b, a * b, a // b, a % b
    out[5], out[6], out[7], out[8], out[9] = a & b, a | b, a ^ b, a << shift, a >> shift
    out[10], out[11], out[12], out[13] = -a, ~a, abs(a), min(a, b, 5)
    out[14], out[15], out[16], out[17] = max(a, b, -5), a // 8, a % 8, a // 7
    out[18], out[19], out[20], out[21] = a % 7, a // -3, a % -3, a**2
    out[22], out[23], out[24], out[25] = a < b, a <= b, a == b, a != b
    out[26], out[27], out[28], out[29] = a > b, a >= b, a < b < 9, a in (b, 0, 3)
    out[30], out[31] = np.int64(np.int8(a)), np.int64(np.uint16(a))
    out[32], out[33] = np.int64(np.int32(a)), np.int64(np.uint32(a))
    out[34], out[35], out[36] = not a, bool(a) and a < b, a // -1
    out[37] = np.int64(np.uint32(a)) - np.int64(np.uint32(b))


@kernel
def natural_operators(a: Any, b: Any, out: Any) -> None:
    """Every operator of uint64."""
    shift = b & np.uint64(63)
    out[0], out[1], out[2], out[3], out[4] = a + b, a - b, a * b, a // b, a % b
    out[5], out[6], out[7], out[8], out[9] = a & b, a | b, a ^ b, a << shift, a >> shift
    out[10], out[11], out[12], out[13] = ~a, a // np.uint64(10), a % np.uint64(16), a + np.uint64(3)
    out[14], out[15], out[16], out[17] = a < b, a <= b, a == b, a > np.uint64(7)
    out[18], out[19], out[20] = min(a, b), max(a, b), np.uint64(np.uint32(a))
    out[21] = np.uint64(np.int64(a))


@kernel
def real_operators(a: Any, b: Any, out: Any) -> None:
    """Every operator of float64 and float32."""
    single = np.float32(a) * np.float32(b)
    out[0], out[1], out[2], out[3], out[4] = a + b, a - b, a * b, a / b, -a
    out[5], out[6], out[7], out[8] = abs(a), math.sqrt(abs(a)), min(a, b), max(a, b)
    out[9], out[10], out[11], out[12] = a < b, a <= b, a == b, a != b
    out[13], out[14], out[15], out[16] = a > b, a >= b, np.sqrt(abs(single)), single
    out[17], out[18], out[19] = a**3, not a < b, np.float32(a) + np.float32(1.1)


INT64 = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-20, 20), st.sampled_from(NUMBERS))


@pytest.mark.parametrize("operators", [integer_operators, natural_operators, real_operators])
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_each_operator_does_what_numpy_does(operators: Any, data: st.DataObject) -> None:
    numbers: dict[Any, tuple[Any, st.SearchStrategy[Any]]] = {
        integer_operators: (np.int64, INT64),
        natural_operators: (np.uint64, INT64.map(lambda number: number & (1 << 64) - 1)),
        real_operators: (np.float64, st.floats(width=32)),
    }
    dtype, strategy = numbers[operators]
    a, b = dtype(data.draw(strategy)), dtype(data.draw(strategy))
    ours, theirs = np.zeros((2, 40), dtype)
    with np.errstate(all="ignore"):
        operators.py_func(a, b, theirs)
    operators(a, b, ours)
    assert np.array_equal(ours, theirs, equal_nan=dtype is np.float64)
