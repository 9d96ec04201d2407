"""Parses compiler command lines like those of gcc and clang; runs nothing.

A `CommandLine` is a list of `Token`s. Each is an option with its value or an input, and its `Kind` says to which step
of the work it belongs; the arguments of the preprocessor, the compiler and the linker are composed from the tokens.
Options for other machines that build systems pass (`instrumenter.compiler.processor_options`), options that would
remove the program's symbols or make it relocatable, and OpenMP (`instrumenter.compiler.openmp`) are left out.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path, PurePath

from instrumenter.compiler import openmp
from instrumenter.compiler.processor_options import is_left_out, is_probe
from instrumenter.compiler.toolchain import ALWAYS, GUEST_TARGET
from instrumenter.errors import SourceError


class Kind(Enum):
    """The step of the work that a token belongs to."""

    C = "a C source"
    PREPROCESSED = "a C source after the preprocessor"
    OTHER_SOURCE = "a source in another language"
    FILE = "an object, library or linker script"
    LANGUAGE = "-x"
    OUTPUT = "-o"
    STAGE = "-c, -S, -E and the like"
    DEPENDENCY = "-MD and the like"
    PREPROCESSOR = "-I, -D and the like"
    LINKER = "options of the linker"
    STRICT = "options that make warnings errors"
    LEFT_OUT = "not for this machine"
    OTHER = "anything else"


@dataclass(frozen=True)
class Token:
    """One option with its value, or one input, as it was written; ``language`` of a source, for messages."""

    kind: Kind
    words: tuple[str, ...]
    language: str = ""

    @property
    def value(self) -> str:
        """The last word, or the value attached to a two-letter option."""
        return self.words[1] if len(self.words) > 1 else self.words[0][2:]

    @property
    def for_linker(self) -> str | None:
        """The word for the linker of ``-Wl,WORD`` and ``-Xlinker WORD``; None for others."""
        first = self.words[0]
        return self.words[1] if first == "-Xlinker" else first[4:] if first.startswith("-Wl,") else None


# Languages by the ending of a source's name; a file with any other ending is an input of the linker.
_LANGUAGES = {
    "c": "c", "i": "cpp-output",
    **dict.fromkeys(("cc", "cp", "cxx", "cpp", "CPP", "c++", "C", "ii"), "C++"),
    **dict.fromkeys(("s", "S", "sx", "asm"), "assembler"), **dict.fromkeys(("m", "mi"), "Objective-C"),
    **dict.fromkeys(("mm", "M", "mii"), "Objective-C++"), **dict.fromkeys(("h", "hh", "hpp"), "a header"),
    **dict.fromkeys(("ll", "bc"), "LLVM"), **dict.fromkeys(("f", "F", "f90", "F90"), "Fortran"),
}  # fmt: skip
_WITH_HEADERS = ("c", "C++", "c++", "a header", "c-header", "c++-header")
WITH_VALUE = frozenset((
    "-o", "-x", "-I", "-D", "-U", "-include", "-imacros", "-isystem", "-iquote", "-idirafter", "-iprefix",
    "-iwithprefix", "-iwithprefixbefore", "-isysroot", "--sysroot", "-L", "-l", "-u", "-z", "-T", "-e", "-Xlinker",
    "-Xpreprocessor", "-Xassembler", "-Xclang", "-mllvm", "-MF", "-MT", "-MQ", "-target", "--param", "-arch", "-A",
    "-aux-info", "-dumpbase", "-rpath", "-soname", "-h", "-wrapper",
))  # fmt: skip
"""Options whose value is the next word."""
_PREPROCESSOR = re.compile(
    r"-([DUI].*|include|imacros|isystem.*|iquote.*|idirafter.*|iprefix|iwithprefix.*"
    r"|Xpreprocessor|A.*|C|CC|P|H|nostdinc|undef|trigraphs|d[DMNIU]|Wp,.*)"
)
_DEPENDENCY = re.compile(r"-M([MDGP]|MD|[FTQ].*)?")
_LINKER = re.compile(
    r"-([lLuzTe].*|Wl,.*|Xlinker|shared|static(-.*)?|s|r|pie|no-pie|nopie|rdynamic|nostdlib|nostartfiles|nodefaultlibs"
    r"|nolibc|rpath|soname|h|fuse-ld=.*|Bstatic|Bdynamic)"
)
# -Werror=... could turn harmless warnings on the counters' text into errors; -w silences the rest.
_STRICT = re.compile(r"-(Werror(=.*)?|pedantic(-errors)?|Wfatal-errors|Weverything)")
# `native` is the compiling machine; of the emulated machine's names zig knows none, and needs none.
_LEFT_OUT = re.compile(
    r"-(m(arch|cpu|tune)=native|mtune=.*|march=rv64(gc|imafdc?)(_zicsr|_zifencei)*|mabi=lp64d|mcmodel=(medlow|medany)"
    r"|fcf-protection(=.*)?|pie|static-pie|s|fsyntax-only|rpath|soname|h)"
)
# Words to the linker that only print, that concern shared libraries, or that remove the symbols.
_LEFT_OUT_LINKER = re.compile(
    r"-s|--strip-all|-S|--strip-debug|-?-pie|-?-Map(=.*)?|--cref|--print-map|-M|--trace|-t|-?-Bsymbolic.*"
    r"|--hash-style=.*|-?-soname(=.*)?|-O\d?|--enable-new-dtags|--disable-new-dtags|-?-rpath(-link)?(=.*)?"
    r"|-h|-R.*"
)
_LINKER_WITH_VALUE = re.compile(r"-?-(Map|soname|rpath|rpath-link)|-[hR]")  # all are left out
_ASKS = re.compile(r"--version|--help|--target-help|-###|-dump(machine|version|fullversion|specs)|--?print-.*")


@dataclass(frozen=True)
class CommandLine:
    """A parsed compiler command line, with response files expanded.

    ``stage``: ``link``, ``compile`` (-c), ``assembly`` (-S), ``check`` (-fsyntax-only), or ``ask`` for a command that
    neither compiles nor links (-E, -M, --version) or compiles a header. ``processor_options``: those for another
    processor, which are left out.
    """

    tokens: tuple[Token, ...]
    stage: str
    shared: bool
    relocatable: bool
    processor_options: tuple[str, ...] = ()

    @property
    def output(self) -> str | None:
        """The value of -o."""
        return next((t.value for t in reversed(self.tokens) if t.kind is Kind.OUTPUT), None)

    @property
    def sources(self) -> tuple[Token, ...]:
        """The inputs that are to be compiled."""
        return tuple(t for t in self.tokens if t.kind in (Kind.C, Kind.PREPROCESSED, Kind.OTHER_SOURCE))

    @property
    def without_openmp(self) -> bool:
        """Whether an option for OpenMP is left out."""
        return any(_is_openmp(token) for token in self.tokens)

    def words(self, *kinds: Kind) -> list[str]:
        """The words of all tokens of these kinds, in order."""
        return [word for token in self.tokens if token.kind in kinds for word in token.words]

    def all_words(self) -> list[str]:
        """The whole command line, except tokens that are left out."""
        return [word for token in self.tokens if token.kind is not Kind.LEFT_OUT for word in token.words]

    def plain_words(self) -> list[str]:
        """The whole command line for a direct call of the compiler; its default output replaces -o -."""
        words = [w for t in self.tokens if t.kind is not Kind.LEFT_OUT and t.words != ("-o", "-") for w in t.words]
        return [*ALWAYS, *words, *next(filter(None, map(self.header_words, self.sources)), ())]

    def header_words(self, source: Token) -> tuple[str, ...]:
        """Options after all others with which ``source`` finds headers that the C library does not have; none if it is
        not preprocessed, for the compiler warns of options that it does not use."""
        assembler = any(t.kind is Kind.LANGUAGE and t.value == "assembler" for t in self.tokens)
        has_headers = not assembler if source.words == ("-",) else source.language in _WITH_HEADERS
        return openmp.HEADER_WORDS if has_headers else ()

    def compile_words(self) -> list[str]:
        """The arguments for any source, the preprocessor's included."""
        return self.words(Kind.PREPROCESSOR, Kind.STRICT, Kind.OTHER)

    def dependency_words(self, output: str, target: str) -> list[str]:
        """Arguments for a dependency file that does not depend on the compiler's temporary output name.

        ``output``: gives the dependency file's name; ``target``: the name that depends on the source in it.
        """
        words = self.words(Kind.DEPENDENCY)
        if not any(word in ("-MD", "-MMD") for word in words):
            return []
        if not any(word.startswith("-MF") for word in words):
            words += ["-MF", str(PurePath(output).with_suffix(".d"))]
        if not any(word.startswith(("-MT", "-MQ")) for word in words):
            words += ["-MQ", target]
        return words


def read_command_line(
    arguments: Sequence[str], directory: Path, cplusplus: bool = False, target: str | None = GUEST_TARGET
) -> CommandLine:
    """Parse a command line; response files are searched for in ``directory``.

    ``cplusplus``: the driver's default language; ``target``: what is compiled for. Raises `SourceError` for an option
    without its value.
    """
    tokens = tuple(_join_for_linker(_tokens(_expand(arguments, directory, 0), cplusplus)))
    tokens, processor_options = _for_target(tokens, directory, target)
    stage = "link"
    for token in tokens:
        word = token.words[0]
        header = token.language == "a header" or token.language.endswith("-header")
        if word in ("-E", "-M", "-MM") or _ASKS.fullmatch(word) or header:
            stage = "ask"
        elif stage != "ask" and word in ("-c", "-S", "-fsyntax-only"):
            stage = {"-c": "compile", "-S": "assembly", "-fsyntax-only": "check"}[word]
    inputs = any(t.kind in (Kind.C, Kind.PREPROCESSED, Kind.OTHER_SOURCE, Kind.FILE) for t in tokens)
    shared = any(token.words[0] == "-shared" for token in tokens)
    relocatable = any("-r" in (token.words[0], token.for_linker) for token in tokens)
    return CommandLine(tokens, stage if inputs else "ask", shared, relocatable, processor_options)


def _for_target(
    tokens: tuple[Token, ...], directory: Path, target: str | None
) -> tuple[tuple[Token, ...], tuple[str, ...]]:
    """The tokens, with options for another processor left out, and these; unchanged where it is asked whether the
    compiler has them."""
    sources = [t.words[0] for t in tokens if t.kind in (Kind.C, Kind.PREPROCESSED, Kind.OTHER_SOURCE)]
    if is_probe(sources, directory):
        return tokens, ()
    options = [t.words[0] for t in tokens if len(t.words) == 1 and is_left_out(t.words[0], target)]
    return tuple(replace(t, kind=Kind.LEFT_OUT) if t.words[0] in options else t for t in tokens), tuple(options)


def _expand(arguments: Sequence[str], directory: Path, depth: int) -> Iterator[str]:
    """The arguments with ``@file`` replaced by that file's; an unreadable file is an ordinary argument."""
    for argument in arguments:
        file = directory / argument[1:]
        if argument.startswith("@") and len(argument) > 1 and depth < 20 and file.is_file():
            text = file.read_text("utf-8", "surrogateescape")
            yield from _expand(shlex.split(text), directory, depth + 1)
        else:
            yield argument


def _tokens(arguments: Iterator[str], cplusplus: bool) -> Iterator[Token]:
    """The tokens of expanded arguments. Raises `SourceError` for an option without its value."""
    language = "none"
    for word in arguments:
        if word in WITH_VALUE:
            value = next(arguments, None)
            if value is None:
                raise SourceError(f"{word}: expected a value after it")
            words: tuple[str, ...] = (word, value)
        else:
            words = (word,)
        if word == "-" or not word.startswith("-"):
            yield _input(word, language, cplusplus)
        elif word.startswith("-Wl,") or word == "-Xlinker":
            yield from _for_linker(words)
        elif word.startswith("-Wp,"):
            yield from _tokens(iter(_for_preprocessor(word)), cplusplus)
        elif word == "-x" or (word.startswith("-x") and len(words) == 1):
            language = words[-1].removeprefix("-x") if len(words) == 1 else words[1]
            yield Token(Kind.LANGUAGE, ("-x", language))
        else:
            token = Token(_kind(word), words)
            yield replace(token, kind=Kind.LEFT_OUT) if _is_openmp(token) else token


def _is_openmp(token: Token) -> bool:
    """Whether it is an option that turns OpenMP on, also as one for a part of the compiler, or OpenMP's library."""
    first = token.words[0]
    if first.startswith("-l"):
        return token.value in openmp.LIBRARIES
    whole = len(token.words) == 1 or first in ("-Xclang", "-Xpreprocessor")
    return whole and bool(openmp.LEFT_OUT.fullmatch(token.words[-1]))


def _kind(word: str) -> Kind:
    if word == "-o" or (word.startswith("-o") and not word.startswith("-objc")):
        return Kind.OUTPUT
    if word in ("-c", "-S", "-E"):
        return Kind.STAGE
    for kind, pattern in (
        (Kind.LEFT_OUT, _LEFT_OUT), (Kind.DEPENDENCY, _DEPENDENCY), (Kind.PREPROCESSOR, _PREPROCESSOR),
        (Kind.STRICT, _STRICT), (Kind.LINKER, _LINKER),
    ):  # fmt: skip
        if pattern.fullmatch(word):
            return kind
    return Kind.OTHER


def _input(word: str, language: str, cplusplus: bool) -> Token:
    """A source or an input of the linker, by ``-x`` or by the ending of its name."""
    if language == "none":
        ending = PurePath(word).suffix[1:]
        language = _LANGUAGES.get(ending, "")
        if not language:
            return Token(Kind.FILE, (word,))
        if cplusplus and ending in ("c", "h", "i"):
            language = "C++"
    if word == "-":
        return Token(Kind.OTHER_SOURCE, (word,), "standard input")
    kinds = {"c": Kind.C, "cpp-output": Kind.PREPROCESSED}
    return Token(kinds.get(language, Kind.OTHER_SOURCE), (word,), language)


def _join_for_linker(tokens: Iterable[Token]) -> Iterator[Token]:
    """The tokens, where those for the linker that have a value have it in the next token for the linker, as for the
    linker itself: libtool writes ``-Wl,-soname -Wl,NAME``. They are left out with it."""
    waiting: Token | None = None
    for token in tokens:
        is_word = token.for_linker is not None
        if waiting is not None and (is_word or token.kind is Kind.FILE):
            if is_word:
                yield replace(waiting, words=(*waiting.words, *token.words))
            else:  # the linker would take it for the value, and say so
                yield waiting
                yield token
            waiting = None
        elif is_word and _LINKER_WITH_VALUE.fullmatch(token.for_linker or ""):
            waiting = token
        else:
            yield token
    if waiting is not None:
        yield waiting


def _for_linker(words: Sequence[str]) -> Iterator[Token]:
    """``-Wl,a,b`` as one token per word for the linker; or ``-Xlinker a``."""
    each_word = [("-Wl," + word,) for word in words[0].split(",")[1:]] if len(words) == 1 else [tuple(words)]
    for each in each_word:
        token = Token(Kind.LINKER, each)
        left_out = _LEFT_OUT_LINKER.fullmatch(token.for_linker or "")
        yield replace(token, kind=Kind.LEFT_OUT) if left_out else token


def _for_preprocessor(word: str) -> Iterator[str]:
    """``-Wp,a,b`` as options of the compiler; here ``-MD`` and ``-MMD`` have a file name."""
    words = iter(word.removeprefix("-Wp,").split(","))
    for each in words:
        yield each
        if each in ("-MD", "-MMD"):
            file = next(words, None)
            if file is not None:
                yield from ("-MF", file)
