"""Calls of the compiler wrapper that are the compiler's own: those that only compile, and count nothing.

A build calls the wrapper for each source, and most sources have no counters: those of a program without metrics, and
of a program with metrics all that mention none of the functions and variables that these are about. This part finds
out which, and imports nothing that takes long to load.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from instrumenter.compiler.toolchain import ALWAYS, GUEST_TARGET, SECTION_FLAGS, Toolchain
from instrumenter.wrapper.arguments import CommandLine, Kind, Token
from instrumenter.wrapper.listing import write_entry

SPEC_VARIABLE = "INSTRUMENT_SPEC"
_CPLUSPLUS = ("C++", "c++", "c++-cpp-output")  # by `-x`, and by `instrumenter.wrapper.arguments`
_LAST_NAME = re.compile(r"[A-Za-z_]\w*$")  # of ns::Class::method, or struct.field; not of operators and overloads
_SPACE = re.compile(rb"(?:\s|^#[^\n]*)*", re.M)  # and line markers
_ATTRIBUTE = re.compile(rb"(?:__attribute__|__asm__|asm)\s*\(")
_PARENTHESIS = re.compile(rb"[()]")
_NO_BODY = frozenset(bytes([one]) for one in b";,]}:?=<>+-*/%&|^.")  # after a declaration or a call
_PLAIN_FILE = re.compile(r"[\w.-]+", re.A)
_SUBJECTS = ("function", "callee", "variable", "field")


class PlainSpec(NamedTuple):
    """What a call without counters needs of the specification: ``target``, ``flags`` for the compiler, ``metrics`` as
    they are in the file, ``root`` of the project that is built."""

    target: str = GUEST_TARGET
    flags: tuple[str, ...] = ()
    metrics: Mapping[str, Mapping[str, Any]] = {}
    root: str | None = None


def plain_spec() -> PlainSpec | None:
    """The specification that the environment names; None if it must be read and checked whole."""
    name = os.environ.get(SPEC_VARIABLE)
    if not name:
        return PlainSpec()
    try:
        spec = json.loads(Path(name).read_bytes())
        flags = (*root_flags(spec["root"]), *(SECTION_FLAGS if spec["sections"] else ()))
        return PlainSpec(spec["target"], flags, spec["metrics"], spec["root"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # it was written by hand: `WrapperSpec` reads such a file, or says what is wrong


def counts_nothing(line: CommandLine, spec: PlainSpec, driver: str, directory: Path) -> bool:
    """Whether a call only compiles a source, and no metric can have a site in it. Lists the source then, if there are
    metrics, as `instrumenter.wrapper.compile_call` would. Raises `ToolchainError` when the compiler cannot start."""
    if line.stage != "compile" or len(line.sources) != 1:
        return False
    if not spec.metrics:
        return True
    (source,) = line.sources
    if line.output == "-" or (source.kind is not Kind.C and not is_cplusplus_source(source)):
        return False
    words = [*preprocessor_words(line, source), *spec.flags]
    status, text, _ = Toolchain(spec.target).run(words, directory, driver)
    cplusplus = is_cplusplus_source(source)
    if status or any(may_have_sites(text, metric, cplusplus) for metric in spec.metrics.values()):
        return False
    name = line.output or f"{Path(source.words[0]).stem}.o"
    entry = {"kind": "unit", "source": source.words[0], "directory": str(directory), "driver": driver}
    unit = {"instrumented": True, "sites": {}, "warnings": [], "words": line.all_words()}
    write_entry(directory / name, {**entry, **unit})
    return True


def may_have_sites(text: bytes, metric: Mapping[str, Any], cplusplus: bool) -> bool:
    """Whether a metric may count in preprocessed ``text``: each name that it is about is in it, and the C function in
    which it counts may have its body there."""
    if not all(name.encode() in text for name in _names(metric)):
        return False
    function = metric.get("function")
    return cplusplus or not function or not function.isidentifier() or may_define(text, function)


def may_define(text: bytes, function: str) -> bool:
    """Whether C ``text`` may have the body of ``function``: not if each mention is a declaration, a call or a name."""
    for found in re.finditer(rb"\b%s\b" % re.escape(function.encode()), text):
        after = _SPACE.match(text, found.end())
        assert after is not None
        at = after.end()
        if text[at : at + 1] == b")":  # int (function)(void) {
            return True
        if text[at : at + 1] != b"(":
            continue
        end = _end_of_parentheses(text, at)
        rest = _SPACE.match(text, end)
        while rest is not None and (attribute := _ATTRIBUTE.match(text, rest.end())):
            rest = _SPACE.match(text, _end_of_parentheses(text, attribute.end() - 1))
        if rest is not None and text[rest.end() : rest.end() + 1] not in _NO_BODY:
            return True
    return False


def _end_of_parentheses(text: bytes, at: int) -> int:
    """Behind the parenthesis that closes the one at ``at``. Those in strings count, too; parameters have no strings."""
    depth = 0
    for found in _PARENTHESIS.finditer(text, at):
        depth += 1 if found[0] == b"(" else -1
        if not depth:
            return found.end()
    return len(text)


def _names(metric: Mapping[str, Any]) -> Iterable[str]:
    for key in _SUBJECTS:
        found = _LAST_NAME.search(metric.get(key) or "")
        if found:
            yield found[0]
    file = Path(metric.get("file") or "").name
    if _PLAIN_FILE.fullmatch(file):
        yield file  # in a line marker, where it is written as it is


def preprocessor_words(line: CommandLine, source: Token) -> list[str]:
    """The compiler's arguments to preprocess ``source`` of a command line, without those for other outputs."""
    words = line.words(Kind.PREPROCESSOR, Kind.OTHER)
    words = [word for word in words if word not in ("-C", "-CC", "-P", "-H") and not word.startswith("-d")]
    return ["-E", *ALWAYS, *words, *line.header_words(source), *input_words(line, source)]


def input_words(line: CommandLine, source: Token) -> list[str]:
    """The words that name ``source``, after the last -x before it."""
    before = line.tokens[: line.tokens.index(source)]
    given = [token for token in before if token.kind is Kind.LANGUAGE]
    return [*(given[-1].words if given else ()), source.words[0]]


def root_flags(root: str | None) -> list[str]:
    """The flags that keep the directory ``root`` out of programs: it becomes ``.``."""
    return [f"-ffile-prefix-map={root}=."] if root else []


def is_cplusplus_source(source: Token) -> bool:
    """Whether a source on a command line is C++."""
    return source.language in _CPLUSPLUS
