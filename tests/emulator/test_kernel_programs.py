"""Random programs in what kernels may be written in: compiled, they do what Python and numpy do."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.jit import kernel

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
    st.sampled_from(["x", "y", "z", "longs[0]", "longs[-1]", "longs[y & 3]", "np.int64(words[1])", "np.int64(len(words))"]),
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
    assert spec is not None and spec.loader is not None
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
