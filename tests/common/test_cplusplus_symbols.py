"""Symbols of C++ become names that people write; what is no such symbol stays as it is."""

from __future__ import annotations

import shutil
import string
import subprocess
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import cplusplus_symbols
from common.cplusplus_symbols import (
    demangled,
    readable_name,
    readable_names,
    without_arguments,
    without_library_details,
)
from instrumenter.spec.cplusplus_names import read_name

# Symbols that clang 19 makes; names as `function:` of a metric takes them.
NAMES = {
    "main": "main",
    "_ZN3geo5StackIiE4pushERKi": "geo::Stack<int>::push",
    "_ZL3mixiPKc": "mix",
    "_ZN12_GLOBAL__N_14foldILi31EEEjNSt3__117basic_string_viewIcNS1_11char_traitsIcEEEE": "fold<31>",
    "_ZNKR3geo1ScvbEv": "geo::S::operator bool",
    "_ZNO3geo1S1rEv": "geo::S::r",
    "_ZN3geo1SD0Ev": "geo::S::~S",
    "_ZN3geoli4_mixEy": 'geo::operator""_mix',
    "_ZN3geo5StackIiEclEi": "geo::Stack<int>::operator()",
    "_ZNK3geo5StackIiEltERKS1_": "geo::Stack<int>::operator<",
    "_ZN3geo5StackIiEptEv": "geo::Stack<int>::operator->",
    "_ZN3geolsIiEEbRNS_5StackIT_EES2_": "geo::operator<< <int>",
    "_ZZ4mainEN1L2atEi": "main::L::at",
    "_ZN3geo4callILi3EPFiiEEEDTclfp_T_EET0_": "geo::call<3, int (*)(int)>",
    "_ZN1a1b5TableINSt3__112basic_stringIcNS2_11char_traitsIcEENS2_9allocatorIcEEEElLi8EEixERKS8_":
        "a::b::Table<std::string, long, 8>::operator[]",
    "_ZNSt3__16vectorIjNS_9allocatorIjEEE9push_backB8ne180100ERKj": "std::vector<unsigned int>::push_back",
    "_ZdaPv": "operator delete[]",
    "_ZTVN3geo1SE": "vtable for geo::S",
    "_ZThn16_N3geo1SD1Ev": "non-virtual thunk to geo::S::~S",
    "_ZGVZN3geo4manyIiEEvvE5guard": "guard variable for geo::many<int>::guard",
    "_ZL3mixi.cold": "mix [clone .cold]",
}  # fmt: skip
LAMBDAS = {
    "_ZNK3$_0clEi": "lambda@7",
    "_ZZ4mainENK3$_0clEi": "main::lambda@7",
    "_ZZ4mainENK3$_1clIiEEDaT_": "main::lambda@7",
    "_ZNK1hMUliE_clEi": "h::lambda@7",
    "_ZZ2tlIfET_S0_ENKUlfE_clEf": "tl<float>::lambda@7",
    "_ZZZ4mainENK3$_0clEiENKUliE_clEi": "main::lambda::lambda@7",
}


@pytest.mark.parametrize("symbol", NAMES)
def test_a_symbol_becomes_the_name_that_people_write(symbol: str) -> None:
    assert readable_name(symbol, line=7) == NAMES[symbol]


@pytest.mark.parametrize("symbol", LAMBDAS)
def test_a_lambda_is_named_by_its_line(symbol: str) -> None:
    assert readable_name(symbol, line=7) == LAMBDAS[symbol]
    assert readable_name(symbol) == LAMBDAS[symbol].removesuffix("@7")


@pytest.mark.parametrize("name", [
    name for name in (*NAMES.values(), *LAMBDAS.values()) if not name.startswith(("vtable", "guard", "non-", "mix ["))
])  # fmt: skip
def test_metrics_take_the_names(name: str) -> None:
    assert read_name(name).text == name


@pytest.mark.parametrize(("declared", "name"), [
    ("push", "push"), ("push<int, Box<int> >", "push"), ("operator<<long>", "operator<"), ("operator<", "operator<"),
    ("operator<< <int>", "operator<<"), ("operator<<", "operator<<"), ("operator<<=<int>", "operator<<="),
    ("operator<=<int>", "operator<="), ("operator<=><int>", "operator<=>"), ("operator-><int>", "operator->"),
    ("operator()<int>", "operator()"), ('operator""_mix', 'operator""_mix'), ("operator bool", "operator bool"),
    ("operator+<long>", "operator+"), ("operator new[]", "operator new[]"),
])  # fmt: skip
def test_arguments_of_templates_are_left_out_of_declared_names(declared: str, name: str) -> None:
    assert without_arguments(declared) == name


@pytest.mark.parametrize(("whole", "short"), [
    ("std::__1::vector<int, std::__1::allocator<int> >", "std::vector<int>"),
    ("std::map<long, std::vector<char, std::allocator<char>>, std::less<long>, std::allocator<std::pair<const long, "
     "std::vector<char>>>>", "std::map<long, std::vector<char>>"),
    ("std::__1::array<int, 4UL>", "std::array<int, 4>"), ("Grid<u4, 4U, 5>", "Grid<u4, 4, 5>"), ("int", "int"),
])  # fmt: skip
def test_types_of_the_library_are_written_as_sources_have_them(whole: str, short: str) -> None:
    assert without_library_details(whole) == short


def test_functions_with_one_name_have_their_parameters() -> None:
    assert readable_names(["_ZL3mixi", "_ZL3mixiPKc", "_ZL3mixRKjPKPKc", "_Z4restv", "main"]) == {
        "_ZL3mixi": "mix(int)", "_ZL3mixiPKc": "mix(int, const char*)",
        "_ZL3mixRKjPKPKc": "mix(const unsigned int&, const char* const*)", "_Z4restv": "rest", "main": "main",
    }  # fmt: skip


def test_versions_of_constructors_and_destructors_differ() -> None:
    assert list(readable_names(["_ZN3geo1SC1Ei", "_ZN3geo1SC2Ei", "_ZN3geo1SD0Ev", "_ZN3geo1SD2Ev"]).values()) == [
        "geo::S::S(int) (complete object)", "geo::S::S(int) (base object)",
        "geo::S::~S() (deleting)", "geo::S::~S() (base object)",
    ]  # fmt: skip


def test_lines_tell_lambdas_apart() -> None:
    lines = {"_ZZ4mainENK3$_0clEi": 3, "_ZZ4mainENK3$_1clEi": 9}
    assert set(readable_names(lines, lines.get).values()) == {"main::lambda@3", "main::lambda@9"}
    assert set(readable_names(lines).values()) == {"main::lambda(int)", "main::lambda(int)#2"}


@pytest.mark.parametrize(
    "text", ["", "i", "_", "_Z", "_Zq", "_ZN3geo", "_ZN3geo1SC1", "_Z3\udcffx", "_Z1f\0v", "é", "Z1fv"]
)
def test_what_is_no_symbol_stays_as_it_is(text: str) -> None:
    assert demangled(text) == readable_name(text) == text


def test_a_symbol_too_long_to_decode_safely_stays_as_it_is() -> None:
    long = "_Z1f" + "P" * 1_000_000 + "i"
    assert readable_name(long) == long


def doubling(times: int) -> str:
    """The symbol of a function whose parameters have types of twice the length of the one before, ``times`` times."""
    digits = string.digits + string.ascii_uppercase
    return "_Z1f1aIiiE" + "".join(f"S_I{2 * f'S{digits[n]}_'}E" for n in range(times))


def test_a_symbol_whose_name_would_fill_the_memory_stays_as_it_is() -> None:
    """Some 300 characters that refer to one another stand for gigabytes."""
    assert demangled(doubling(3)).startswith("f(a<int, int>, a<a<int, int>, a<int, int> >, a<a<a<int, int>")
    assert demangled(doubling(11)) == doubling(11)  # within what is decoded, beyond any real name
    hostile = doubling(34)
    assert len(hostile) < 400
    started = time.process_time()
    assert demangled(hostile) == hostile
    assert readable_names([hostile, "_Z1fv"]) == {hostile: hostile, "_Z1fv": "f"}
    assert time.process_time() - started < 1


@given(st.text("_ZN3geo1SC1EiIPKc$0.<>()S_LTVX", max_size=40))
def test_garbage_never_fails(text: str) -> None:
    assert readable_name("_Z" + text, 1)
    assert len(set(readable_names(["_Z" + text, text, "f"]).values())) == len({"_Z" + text, text, "f"})


@pytest.mark.skipif(shutil.which("c++filt") is None, reason="needs c++filt")
def test_whole_names_are_those_of_cplusplus_filt() -> None:
    filtered = subprocess.run(["c++filt"], input="\n".join(NAMES), capture_output=True, text=True, check=True)
    assert [demangled(symbol) for symbol in NAMES] == filtered.stdout.splitlines()


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cplusplus_symbols, "_LIBRARIES", ("libno-such-thing.so.6", "libc.so.6"))
    for one in (cplusplus_symbols._decoder, cplusplus_symbols._named):
        one.cache_clear()
    yield
    for one in (cplusplus_symbols._decoder, cplusplus_symbols._named):
        one.cache_clear()


@pytest.mark.usefixtures("no_library")
def test_without_a_library_symbols_stay_as_they_are() -> None:
    assert readable_names(["_ZL3mixi", "main"]) == {"_ZL3mixi": "_ZL3mixi", "main": "main"}
