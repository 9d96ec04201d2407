"""Parses preprocessed C++ by libclang, although the compiler's standard library is newer than libclang.

`_DECLARATIONS` declares for the analysis what headers of the newer library take for built in. What libclang cannot
parse in headers of the system even so is passed over: the compiler compiles that text, and no counters go there.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from clang import cindex
from clang.cindex import Cursor

from instrumenter.errors import SourceError
from instrumenter.find.line_markers import LineMap

_FILE, _DECLARED = "program.ii", "/measure-analysis/builtins.h"
_FLAG = re.compile(
    r"-(std=.*|ansi|f(no-)?(signed-char|unsigned-char|short-enums|ms-extensions|exceptions|rtti|declspec|builtin.*"
    r"|freestanding|char8_t|coroutines.*|concepts.*|aligned-.*|sized-.*|permissive|operator-names|template-depth=.*))"
)
# The text is preprocessed: no predefined macro may change it again.
_ALWAYS = ("-x", "c++", "-undef", "-nostdinc", "-w", "-ferror-limit=0", "-fsized-deallocation", "-include", _DECLARED)
_DEFAULT_STANDARD = "-std=gnu++17"
_SYSTEM_MARKER = re.compile(rb'^#[ \t]*\d+[ \t]+"(?:[^"\\]|\\.)*"([ \t0-9]*)$', re.MULTILINE)

_DECLARATIONS = """#pragma clang system_header
#define __diagnose_if__(...)
#define __exception_guard __exception_guard_exceptions
#define __is_nothrow_convertible(from, to) __is_convertible(from, to)
namespace __measure_parse {
template <class...> using __void = void;
template <class _T> __add_rvalue_reference(_T) __value() noexcept;
template <class _A, class _B> using __conditional = __decay(decltype(false ? __value<_A>() : __value<_B>()));
template <class _V, template <class...> class _C, template <class> class _I, class _E, class... _T>
struct __common { using __base = _E; };
template <class _V, bool, template <class...> class _C, template <class> class _I, class _E, class _A, class _B>
struct __two { using __base = _E; };
template <template <class...> class _C, template <class> class _I, class _E, class _A, class _B>
struct __two<__void<_C<__decay(_A), __decay(_B)>>, false, _C, _I, _E, _A, _B> {
    using __base = _I<_C<__decay(_A), __decay(_B)>>;
};
template <template <class...> class _C, template <class> class _I, class _E, class _A, class _B>
struct __two<__void<__conditional<_A, _B>>, true, _C, _I, _E, _A, _B> { using __base = _I<__conditional<_A, _B>>; };
template <template <class...> class _C, template <class> class _I, class _E, class _A>
struct __common<__void<_C<_A, _A>>, _C, _I, _E, _A> { using __base = _I<_C<_A, _A>>; };
template <template <class...> class _C, template <class> class _I, class _E, class _A, class _B>
struct __common<void, _C, _I, _E, _A, _B>
    : __two<void, __is_same(_A, __decay(_A)) && __is_same(_B, __decay(_B)), _C, _I, _E, _A, _B> {};
template <template <class...> class _C, template <class> class _I, class _E, class _A, class _B, class _D, class... _T>
struct __common<__void<_C<_C<_A, _B>, _D, _T...>>, _C, _I, _E, _A, _B, _D, _T...> {
    using __base = _I<_C<_C<_A, _B>, _D, _T...>>;
};
}
template <template <class...> class _C, template <class> class _I, class _E, class... _T>
using __builtin_common_type = typename __measure_parse::__common<void, _C, _I, _E, _T...>::__base;
template <class _T> constexpr int __builtin_clzg(_T _v, int _zero = 0) noexcept {
    return _v ? __builtin_clzll((unsigned long long)_v) - (64 - 8 * (int)sizeof(_T)) : _zero;
}
template <class _T> constexpr int __builtin_ctzg(_T _v, int _zero = 0) noexcept {
    return _v ? __builtin_ctzll((unsigned long long)_v) : _zero;
}
template <class _T> constexpr int __builtin_popcountg(_T _v) noexcept {
    return __builtin_popcountll((unsigned long long)_v);
}
template <class _F, class... _A>
constexpr auto __builtin_invoke(_F &&_f, _A &&..._a) noexcept(noexcept(((_F &&)_f)((_A &&)_a...)))
    -> decltype(((_F &&)_f)((_A &&)_a...)) { return ((_F &&)_f)((_A &&)_a...); }
template <class _M, class _C, class _O, class... _A>
constexpr auto __builtin_invoke(_M _C::*_m, _O &&_o, _A &&..._a) -> decltype((((_O &&)_o).*_m)((_A &&)_a...))
{ return (((_O &&)_o).*_m)((_A &&)_a...); }
template <class _M, class _C, class _O, class... _A>
constexpr auto __builtin_invoke(_M _C::*_m, _O &&_o, _A &&..._a) -> decltype(((*(_O &&)_o).*_m)((_A &&)_a...))
{ return ((*(_O &&)_o).*_m)((_A &&)_a...); }
template <class _M, class _C, class _O>
constexpr auto __builtin_invoke(_M _C::*_m, _O &&_o) -> decltype((((_O &&)_o).*_m)) { return ((_O &&)_o).*_m; }
"""


class SystemText:
    """Which parts of a preprocessed text come from headers of the system, by the flags of the line markers."""

    def __init__(self, text: bytes) -> None:
        self._starts, self._system = [0], [False]
        for match in _SYSTEM_MARKER.finditer(text):
            self._starts.append(match.end())
            self._system.append(b"3" in match[1].split())

    def contains(self, offset: int) -> bool:
        """Whether the byte at ``offset`` belongs to a header of the system."""
        return self._system[bisect_right(self._starts, offset) - 1]


def parse_leniently(
    text: bytes, target: str | None, flags: Sequence[str], macros: str = ""
) -> tuple[list[Any], Cursor]:
    """The diagnostics and the root of the syntax tree, even for text with errors. Raises `SourceError`.

    ``macros``: lines of ``#define`` that apply to the text.
    """
    arguments = [*_ALWAYS, _DEFAULT_STANDARD, *(flag for flag in flags if _FLAG.fullmatch(flag))]
    arguments += [f"--target={target}"] if target else []
    try:
        given = [(_FILE, text), (_DECLARED, _DECLARATIONS + macros)]
        unit = cindex.Index.create().parse(_FILE, arguments, unsaved_files=given)
    except cindex.TranslationUnitLoadError:
        raise SourceError(f"libclang could not analyse the program with the flags {' '.join(arguments)}") from None
    return list(unit.diagnostics), unit.cursor


def parse(text: bytes, name: str, target: str | None, lines: LineMap, flags: Sequence[str]) -> Cursor:
    """The root of the syntax tree. Raises `SourceError` for errors outside the headers of the system."""
    diagnostics, root = parse_leniently(text, target, flags)
    system = SystemText(text)
    errors = [
        diagnostic for diagnostic in diagnostics
        if diagnostic.severity == cindex.Diagnostic.Fatal or (
            diagnostic.severity == cindex.Diagnostic.Error and diagnostic.location.file is not None
            and diagnostic.location.file.name == _FILE and not system.contains(diagnostic.location.offset)
        )
    ]  # fmt: skip
    if errors:
        where = [f"  {lines.place(d.location.offset)}: {d.spelling}" for d in errors[:5]]
        raise SourceError(
            f"{name} cannot be analysed (C++ is analysed by libclang 18, which knows C++20 and older):\n"
            + "\n".join(where)
        )
    return root
