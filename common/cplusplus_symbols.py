"""Names of C++ functions as people write them, from the symbols that compilers make of them.

The run-time library of C++ on this machine decodes a symbol (``__cxa_demangle`` of the Itanium C++ ABI, chapter 3.4);
without such a library symbols stay as they are, as do those whose names would be longer than any real one's. What it
writes is shortened to what a metric's key ``function:`` takes: namespaces, classes and template arguments, without
result and unnamed namespaces; parameters where several functions share the name. Inline namespaces stay, as symbols
do not tell them from others, but for the standard library's.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache, lru_cache

_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1", "libc++.so.1")
_LONGEST_SYMBOL = 8192  # the library's decoder recurses, and uses stack in proportion
_LONGEST_NAME = 1 << 16  # of a decoded symbol; real ones stay below a few thousand
_LONGEST_ESTIMATE = 1 << 22  # decoding that many characters takes a tenth of a second
_LONGEST_ARGUMENTS = 48
_PART_OF_SYMBOL = re.compile(
    r"(?P<length>\d+)|(?P<reference>[ST][0-9A-Z]*_)|(?P<pack>Dp|sp)|(?P<open>[NIJX])|(?P<close>E)|.", re.S
)
_SPECIAL = re.compile(r"(?:[a-z][\w-]* )*?(?:for|to)(?: #\d+)? ")
_OPERATOR = re.compile(r"operator(\(\)|\[\]|->\*?|<=>|<<=?(?= |\(|$)|>>=?|[<>]=?(?=[ (]|$)|[-+*/%^&|~!=,]+)")
_DECLARED_OPERATOR = re.compile(
    r"operator(?:\"\"\s*\w+|\(\)|<<=?(?=[ <]|$)|<=>|<=?|->\*?|>>=?|>=?|[^\w\s<(]+)"
)  # fmt: skip
_DEFAULTS = re.compile(r",\s*std::(?:allocator|char_traits|default_delete|less|equal_to|hash)<")
_QUALIFIERS = re.compile(r"(?: const| volatile| &&?| noexcept)+(?=::|$| \[clone)")
_LAMBDA = re.compile(r"(?:\{lambda\(|'lambda\d*')")
_VERSION = re.compile(r"([CD][012])E")
_VERSIONS = {
    "C1": "complete object", "C2": "base object", "D0": "deleting", "D1": "complete object", "D2": "base object",
}  # fmt: skip
_CONST_AFTER = re.compile(r"^([^*&()]*[^*&() ]) const(?=[*&]|$)")
_CLOSING = {"(": ")", "<": ">", "[": "]", "{": "}"}


def demangled(symbol: str) -> str:
    """The whole name that a symbol stands for, with types; the symbol itself if it is none of C++."""
    if not symbol.startswith("_Z") or len(symbol) > _LONGEST_SYMBOL or "\0" in symbol:
        return symbol
    decode = _decoder()
    if decode is None or _estimated_length(symbol) > _LONGEST_ESTIMATE:
        return symbol
    name = decode(symbol) or symbol
    return name if len(name) <= _LONGEST_NAME else symbol


def _estimated_length(symbol: str) -> int:
    """About how long the name of a symbol is at most, in characters.

    A symbol refers to parts of itself (substitutions, template parameters), and these to others: 200 characters can
    stand for gigabytes. Each reference is taken to be as long as the longest part that is complete by then.
    """
    longest, position = 0, 2
    open_parts = [0]
    while match := _PART_OF_SYMBOL.match(symbol, position):
        position, kind = match.end(), match.lastgroup
        if kind == "length":
            length = int(match[0][:5])
            position += length
            open_parts[-1] += length + 2
            longest = max(longest, length + 2)
        elif kind == "reference":
            open_parts[-1] += longest + 2
        elif kind == "pack":
            open_parts[-1] += longest * symbol.count("E")  # a pattern, for each element of a pack
        elif kind == "open":
            open_parts.append(0)
        elif kind == "close" and len(open_parts) > 1:
            part = open_parts.pop() + open_parts[-1]  # arguments, with the name that they belong to
            longest = max(longest, part)
            open_parts[-1] = part
        else:
            open_parts[-1] += 20  # a type or an operator, spelled out
        if longest > _LONGEST_ESTIMATE:
            break
    return max(longest, sum(open_parts))


def readable_name(symbol: str, line: int | None = None) -> str:
    """The qualified name, without result and parameters: ``geo::Stack<int>::push``. The symbol itself if it is none.

    ``line``: on which the function begins; a lambda is then ``main::lambda@12``.
    """
    return _named(symbol, line)[0]


def readable_names(symbols: Iterable[str], lines: Callable[[str], int | None] = lambda _: None) -> dict[str, str]:
    """`readable_name` of each symbol; with parameters where several have the same name, ``mix(int)``. All differ.

    Versions of a constructor or destructor are told apart as the ABI does, others with one name by numbers: ``f#2``.

    ``lines``: the line on which a symbol's function begins, None if it is not known.
    """
    given = list(dict.fromkeys(symbols))
    found = {symbol: _named(symbol, lines(symbol) if symbol.startswith("_Z") else None) for symbol in given}
    short = Counter(name for name, _ in found.values())
    whole = {symbol: name if short[name] == 1 else name + parameters for symbol, (name, parameters) in found.items()}
    times = Counter(whole.values())
    seen: Counter[str] = Counter()
    for symbol, name in sorted(whole.items()):
        version = _VERSION.search(symbol) if times[name] > 1 and name != symbol else None
        if version is not None:
            name = f"{name} ({_VERSIONS[version[1]]})"
        seen[name] += 1
        whole[symbol] = name if seen[name] == 1 or name == symbol else f"{name}#{seen[name]}"
    return whole


def without_arguments(name: str) -> str:
    """The name of a declaration in debug information without the arguments of a template: ``push`` for ``push<int>``,
    ``operator<`` for ``operator<<int>``, ``operator<<`` for ``operator<< <int>``."""
    operator = _DECLARED_OPERATOR.match(name)
    return operator[0] if operator else name.split("<", 1)[0]


@cache
def _decoder() -> Callable[[str], str | None] | None:
    """A function that decodes a symbol, None for one that is not valid; None without a library that has it."""
    library = next((found for name in _LIBRARIES if (found := _loaded(name)) is not None), None)
    if library is None:
        return None
    decode, free = library.__cxa_demangle, ctypes.CDLL(None).free
    decode.restype, free.restype = ctypes.c_void_p, None
    decode.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    free.argtypes = [ctypes.c_void_p]

    def decoded(symbol: str) -> str | None:
        status = ctypes.c_int()
        text = decode(symbol.encode("utf-8", "surrogateescape"), None, None, ctypes.byref(status))
        if not text:
            return None
        try:
            return ctypes.string_at(text).decode("utf-8", "surrogateescape")
        finally:
            free(text)

    return decoded


def _loaded(name: str) -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(name)
    except OSError:
        return None
    return library if hasattr(library, "__cxa_demangle") else None


@lru_cache(maxsize=1 << 16)
def _named(symbol: str, line: int | None) -> tuple[str, str]:
    """The short name of a symbol, and its parameters as ``(int, const char *)``; "" if it has none."""
    text = demangled(symbol)
    if text == symbol:
        return symbol, ""
    name, parameters = shortened(text)
    return (f"{name}@{line}", "") if line is not None and name.endswith("lambda") else (name, parameters)


def shortened(text: str) -> tuple[str, str]:
    """The short name in a whole one, and its parameters as ``(int, const char*)``; "" if it has none."""
    text = re.sub(r"\[abi:\w+\]", "", text).replace("(anonymous namespace)::", "")
    text = without_library_details(text).replace("std::basic_string<char>", "std::string")
    special = _SPECIAL.match(text)
    start = special.end() if special else 0
    name, parameters = _split(text[start:])
    name, clone, rest = name.partition(" [clone")
    name = _without_result(name)
    name = re.sub(r"(\$_\d+|lambda)::operator\(\)(<.*>)?$", "lambda", name)
    name = re.sub(r"(\$_\d+|lambda)::operator\(\)(?=::)", "lambda", name)
    name = name.replace('operator"" ', 'operator""')
    return text[:start] + name + clone + rest, _in_order(parameters)


def _split(text: str) -> tuple[str, str]:
    """A name without the lists of parameters in it, and the last of these with its brackets, "" without one.

    Template arguments longer than is read are replaced by ``...``.
    """
    found, position, parameters = "", 0, ""
    while position < len(text):
        operator = _OPERATOR.match(text, position) if not re.search(r"\w$", found) else None
        if operator:
            found, position = found + operator[0], operator.end()
            continue
        one = _LAMBDA.match(text, position)
        if one is not None:
            position = _after(text, position) if text[position] == "{" else one.end()
            found, parameters = f"{found}lambda", ""
            continue
        if text[position] in "(<" and (found or text[position] == "<"):
            end = _after(text, position)
            inside = text[position:end]
            if text[position] == "(":
                parameters = inside
                qualifiers = _QUALIFIERS.match(text, end)
                end = qualifiers.end() if qualifiers else end
            else:
                found += inside if len(inside) <= _LONGEST_ARGUMENTS else "<...>"
            position = end
            continue
        if text.startswith("::", position):
            parameters = ""
        found, position = found + text[position], position + 1
    return found, parameters


def _after(text: str, start: int) -> int:
    """The position after the bracket that closes the one at ``start``; the end if none does."""
    opened: list[str] = []
    for position in range(start, len(text)):
        one = text[position]
        if one in _CLOSING and not (one == "<" and text.startswith("operator", position - 8)):
            opened.append(_CLOSING[one])
        elif opened and one == opened[-1] and not (one == ">" and text[position - 1] == "-"):
            opened.pop()
            if not opened:
                return position + 1
    return len(text)


def without_library_details(text: str) -> str:
    """Types without the standard library's inline namespace, default template arguments and suffixes of numbers, as
    sources have them: ``std::vector<int>``, ``std::array<int, 4>``."""
    text = re.sub(r"(?<=>) (?=>)", "", text.replace("std::__1::", "std::"))
    text = re.sub(r"(?<=[<, ])(\d+)[uUlL]+(?=[,>])", r"\1", text)
    while (found := _DEFAULTS.search(text)) is not None:
        text = text[: found.start()] + text[_after(text, found.end() - 1) :]
    return text


def _without_result(name: str) -> str:
    """A name without the type of a result before it, which instances of templates have."""
    depth = 0
    limit = re.search(r"(?:^|::|(?<= ))operator\b", name)
    for position in range(limit.start() if limit else len(name), 0, -1):
        one = name[position - 1]
        depth += one in ">)" and not name.endswith("->", 0, position)
        depth -= one in "<("
        if one == " " and depth == 0:
            return name[position:]
    return name


def _in_order(parameters: str) -> str:
    """Parameters with ``const`` before the type, as most sources and ``function:`` have it: ``(const char *)``."""
    if parameters in ("", "()"):
        return parameters
    found, depth, start = [], 0, 1
    for position in range(1, len(parameters)):
        one = parameters[position]
        if (one == "," or position == len(parameters) - 1) and depth == 0:
            found.append(parameters[start:position].strip())
            start = position + 1
        depth += one in "(<[{"
        depth -= one in ")>]}"
    return "(" + ", ".join(_CONST_AFTER.sub(r"const \1", one) for one in found) + ")"
