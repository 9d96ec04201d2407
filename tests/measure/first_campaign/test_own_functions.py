"""Functions of a program's sources from its debug information: their names as metrics take them, and their code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from instrumenter.building.program_build import build_program
from instrumenter.spec.cplusplus_names import read_name
from measure.first_campaign.own_functions import own_functions

SOURCE = r"""
struct Options;
enum class Kind { a, b };
namespace geo { inline namespace v1 {
struct Box {
    int n;
    explicit Box(int n);
    ~Box();
    Box &operator+=(const Box &other);
    explicit operator bool() const;
    int operator()(unsigned long n, Kind kind) const;
};
Box::Box(int n) : n(n) {}
Box::~Box() { n = 0; }
Box &Box::operator+=(const Box &other) { n += other.n; return *this; }
Box::operator bool() const { return n; }
int Box::operator()(unsigned long n, Kind kind) const { return kind == Kind::a ? n : this->n; }
} }
int operator""_twice(unsigned long long n) { return 2 * n; }
namespace { int mix(const char *text, Kind kind, int (*turn)(int)) { return turn(text[0] + (int)kind); } }
static int mix(const geo::Box *const *box, volatile int &&n) { return box[0]->n + n; }
template <class T> bool operator<(const geo::Box &box, T n) { return box.n < n; }
template <class T> T larger(T a, T b) { return a < b ? b : a; }
auto outside = [](int n) { int h = n; for (int i = 0; i < n; i++) h ^= h << 3 ^ i; return h; };
int main(int argc, char **argv) {
    geo::Box box(argc);
    box += box;
    auto turn = [&](int n) {
        auto nested = [&](int m) { return m * n + argc; };
        return nested(n) + nested(2);
    };
    struct Local { int at(int n) { return n * 7; } } local;
    const geo::Box *boxes[] = {&box};
    return turn(3) + mix(argv[0], Kind::b, outside) + mix(boxes, 3) + (box < 3l) + larger(argc, 2) + larger(1.5, 0.5) +
        local.at(3) + 4_twice + (box ? 1 : 2) + box(3, Kind::a);
}
"""
NAMES = {
    "geo::Box::Box": ("int",), "geo::Box::~Box": (), "geo::Box::operator+=": ("const geo::Box &",),
    "geo::Box::operator bool": (), "geo::Box::operator()": ("unsigned long", "Kind"),
    'operator""_twice': ("unsigned long long",), "mix": ("const geo::Box * const *", "volatile int &&"),
    "operator<": ("const geo::Box &", "long"), "larger": None, "lambda@24": ("int",), "main": ("int", "char **"),
    "main::lambda@28": ("int",), "main::lambda@28::lambda@29": ("int",), "main::Local::at": ("int",),
}  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("own") / "box.cpp"
    source.write_text(SOURCE)
    return build_program([source], ["-O0", "-g"]).elf_path


def code_of(program: Path) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    with program.open("rb") as file:
        text: Any = ELFFile(file).get_section_by_name(".text")
        return np.arange(text["sh_addr"], text["sh_addr"] + text["sh_size"], 2)


def test_functions_are_named_as_metrics_take_them(program: Path) -> None:
    found = own_functions(program, np.zeros(0, np.int64))
    types = {one.name: types for one, types in found.definitions.items() if one.name != "mix"}
    assert types == {name: types for name, types in NAMES.items() if name != "mix"}
    # Types that cannot be written as the source has them, such as a pointer to a function, are not known.
    assert {types for one, types in found.definitions.items() if one.name == "mix"} == {NAMES["mix"], None}
    for one in found.definitions:
        assert read_name(one.name).matches_parts(one.parts)
        assert SOURCE.splitlines()[one.line - 1].strip()


def test_instructions_belong_to_the_functions_around_them(program: Path) -> None:
    pcs = code_of(program)
    found = own_functions(program, pcs)
    owners = {one.name for index, one in enumerate(found.definitions) if (found.owner == index).any()}
    assert owners == set(NAMES)
    for index, one in enumerate(found.definitions):
        lines = found.line[found.owner == index]
        assert lines[lines > 0].min() >= one.line
    assert (found.owner == -1).sum() > 1000  # the libraries


def test_lines_of_a_file_that_is_included_within_a_function_are_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "body.h").write_text("\nfor (int i = 0; i < n; i++)\n    sum = sum * 31 + i;\n")
    (tmp_path / "a.c").write_text(
        'int main(int n, char **a) {\n    int sum = n;\n#include "body.h"\n    return sum;\n}\n'
    )
    program = build_program([tmp_path / "a.c"], ["-O0"]).elf_path
    found = own_functions(program, code_of(program))
    lines = found.line[found.owner == 0]
    assert set(lines.tolist()) == {0, 1, 2, 4}
    assert (lines == 0).sum() > (lines > 0).sum()


def test_damaged_information_is_no_information(program: Path, tmp_path: Path) -> None:
    data = bytearray(program.read_bytes())
    with program.open("rb") as file:
        section: Any = ELFFile(file).get_section_by_name(".debug_abbrev")
    data[section["sh_offset"] : section["sh_offset"] + section["sh_size"]] = b"\x01" * section["sh_size"]
    damaged = tmp_path / "damaged"
    damaged.write_bytes(data)
    found = own_functions(damaged, code_of(damaged))
    assert not found.definitions
    assert (found.owner == -1).all()
