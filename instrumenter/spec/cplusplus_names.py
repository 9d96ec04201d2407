"""Names of C++ functions, variables and members, and whether a metric's name means them.

A metric names a function by its qualified name, ``ns::Box::push``, or by its last parts, ``Box::push`` or ``push``, as
long as these mean one function (its overloads together); ``::push`` only one outside of namespaces and classes.
``ns::f(int, const char *)`` is one overload,
``Box<int>::push`` the code of a template for these arguments. A lambda is ``main::lambda@12``: the function around it
and the line on which it begins. Inline and unnamed namespaces are left out of names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from clang import cindex
from clang.cindex import Cursor, CursorKind, TemplateArgumentKind

from common.listed_names import listed
from instrumenter.errors import SpecError

FUNCTIONS = (
    CursorKind.FUNCTION_DECL, CursorKind.CXX_METHOD, CursorKind.CONSTRUCTOR, CursorKind.DESTRUCTOR,
    CursorKind.CONVERSION_FUNCTION, CursorKind.FUNCTION_TEMPLATE,
)  # fmt: skip
RECORDS = (
    CursorKind.CLASS_DECL, CursorKind.STRUCT_DECL, CursorKind.UNION_DECL, CursorKind.CLASS_TEMPLATE,
    CursorKind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION,
)  # fmt: skip
_TEMPLATES = (CursorKind.CLASS_TEMPLATE, CursorKind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION)
PARAMETERS = (
    CursorKind.TEMPLATE_TYPE_PARAMETER, CursorKind.TEMPLATE_NON_TYPE_PARAMETER,
    CursorKind.TEMPLATE_TEMPLATE_PARAMETER,
)  # fmt: skip
_OPERATOR = re.compile(r"operator\s*(\"\"\s*\w+|\(\)|\[\]|new\[\]|delete\[\]|->\*?|<=>|<<=?|>>=?|[<>]=?|[^\w\s(<]+)?")
_MOST_CANDIDATES = 8


@dataclass(frozen=True)
class Part:
    """One part of a qualified name: ``Box`` with the template arguments ``("int", "4")``, None without any."""

    name: str
    arguments: tuple[str, ...] | None = None


@dataclass(frozen=True)
class WantedName:
    """A name in a metric: its parts, and the parameters' types of one overload (None: all of them); whether it begins
    with ``::`` and so is a whole name."""

    text: str
    parts: tuple[Part, ...]
    signature: tuple[str, ...] | None = None
    whole: bool = False

    def matches_parts(self, parts: tuple[str, ...]) -> bool:
        """Whether the qualified name ``parts`` ends in this name, or is it if this name is whole."""
        own = tuple(part.name for part in self.parts)
        return parts == own if self.whole else parts[-len(own) :] == own

    def matches_signature(self, cursor: Cursor) -> bool:
        """Whether a function has these types of parameters."""
        if self.signature is None:
            return True
        types = [argument for argument in cursor.get_children() if argument.kind == CursorKind.PARM_DECL]
        wanted = [_plain(one) for one in self.signature]
        spelled = [_plain(one.type.spelling) for one in types]
        canonical = [_plain(one.type.get_canonical().spelling) for one in types]
        return len(types) == len(wanted) and all(
            want in pair for want, *pair in zip(wanted, spelled, canonical, strict=True)
        )


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"\s*([*&<>,:()])\s*", r"\1", text.strip()))


def split_arguments(text: str) -> tuple[str, ...]:
    """The arguments in ``int, std::pair<int, long>``, split at the commas outside of brackets."""
    found, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += character in "(<[{"
        depth -= character in ")>]}"
        if character == "," and depth == 0:
            found.append(text[start:position].strip())
            start = position + 1
    last = text[start:].strip()
    return (*found, last) if last or found else ()


def read_name(text: str) -> WantedName:
    """The parts of a name as users write it. Raises ValueError."""
    parts: list[Part] = []
    signature: tuple[str, ...] | None = None
    rest = text.strip().removeprefix("::").strip()
    while True:
        match = _OPERATOR.match(rest) if re.match(r"operator\b", rest) else re.match(r"~?[A-Za-z_$][\w$]*(@\d+)?", rest)
        if match is None:
            raise ValueError(f"got {text!r}, expected a name such as 'f', 'ns::Class::method' or 'ns::f(int)'")
        name, rest = match[0], rest[match.end() :]
        if name.startswith("operator") and match.lastindex is None:  # a conversion, or operator new, or a literal's
            conversion = re.match(r"[^(]*", rest)
            name, rest = f"{name} {conversion[0].strip()}" if conversion else name, rest[len(conversion[0]) :]  # type: ignore[index]
        name = re.sub(r"^operator\s+(?=\W)", "operator", re.sub(r"\s+", " ", name)).strip()
        name = name.replace('"" ', '""')
        arguments = None
        if rest.lstrip().startswith("<"):
            inside, rest = _bracketed(rest.lstrip(), text)
            arguments = split_arguments(inside)
        parts.append(Part(name, arguments))
        rest = rest.strip()
        if rest.startswith("("):
            inside, rest = _bracketed(rest, text)
            signature = split_arguments(inside) if inside.strip() != "void" else ()
            rest = rest.strip().removeprefix("const").strip()
        if rest.startswith("::") and signature is None:
            rest = rest[2:].strip()
            continue
        if rest:
            raise ValueError(f"got {text!r}, expected nothing after '{text[: len(text) - len(rest)].strip()}'")
        return WantedName(text, tuple(parts), signature, text.strip().startswith("::"))


def _bracketed(text: str, whole: str) -> tuple[str, str]:
    """What is inside the bracket that ``text`` begins with, and what follows it. Raises ValueError."""
    depth = 0
    for position, character in enumerate(text):
        depth += character in "(<"
        depth -= character in ")>"
        if depth == 0:
            return text[1:position], text[position + 1 :]
    raise ValueError(f"got {whole!r}: its brackets do not match")


def own_name(cursor: Cursor) -> str:
    """The last part of a declaration's name, without template parameters."""
    name = str(cursor.spelling)
    if name.startswith("operator"):
        return name
    return name.split("<", 1)[0]


def qualified_parts(cursor: Cursor) -> tuple[str, ...]:
    """The parts of the qualified name of a declaration; inline and unnamed namespaces are left out."""
    parts = [own_name(cursor)]
    parent = cursor.semantic_parent
    while parent is not None and parent.kind != CursorKind.TRANSLATION_UNIT:
        named = parent.kind in RECORDS or parent.kind in FUNCTIONS or parent.kind == CursorKind.NAMESPACE
        if named and parent.spelling and "(" not in parent.spelling and not is_inline_namespace(parent):
            parts.append(own_name(parent))
        parent = parent.semantic_parent
    return tuple(reversed(parts))


def is_inline_namespace(cursor: Cursor) -> bool:
    """Whether the cursor is an inline namespace."""
    library: Any = cindex.conf.lib
    return cursor.kind == CursorKind.NAMESPACE and bool(library.clang_Cursor_isInlineNamespace(cursor))


def choose_names(metric: str, wanted: WantedName, candidates: Iterable[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """The qualified name that ``wanted`` means among ``candidates``, as a set of one, or the empty set.

    A whole name wins over names that end in it. Raises `SpecError` with the candidates for a name that several end in.
    """
    found = {parts for parts in candidates if wanted.matches_parts(parts)}
    whole = tuple(part.name for part in wanted.parts)
    if whole in found:
        return {whole}
    if len(found) > 1:
        names = sorted("::".join(parts) for parts in found)
        raise SpecError(
            f"metric '{metric}': '{wanted.text}' may be any of {listed(names, _MOST_CANDIDATES)}: "
            "give the qualified name",
            metric,
        )
    return found


def template_parameters(cursor: Cursor) -> list[Cursor]:
    """The template parameters that a declaration introduces itself."""
    return [child for child in cursor.get_children() if child.kind in PARAMETERS]


def instance_condition(metric: str, wanted: WantedName, function: Cursor) -> str | None:
    """The C++ condition under which the code of a template is the wanted instance; "" if it always is.

    None: this function is another one, such as a specialisation for other arguments. Raises `SpecError` for arguments
    that cannot be compared.
    """
    conditions: list[str] = []
    declared: Cursor | None = function
    for part in reversed(wanted.parts):
        if declared is None:
            break
        if part.arguments is not None:
            found = _part_condition(metric, wanted, part, declared, function)
            if found is None:
                return None
            conditions += found
        declared = declared.semantic_parent
        while declared is not None and (not declared.spelling or is_inline_namespace(declared)):
            declared = declared.semantic_parent
    return " && ".join(conditions)


def _own_arguments(specialisation: Cursor) -> list[set[str]]:
    """The template arguments of a specialisation, defaults included, each by the names that it may be given."""
    display = str(specialisation.displayname)
    written = split_arguments(display[display.find("<") + 1 : display.rfind(">")]) if "<" in display else ()
    own = [{_plain(one)} for one in written]
    for number in range(max(specialisation.get_num_template_arguments(), 0)):
        if specialisation.get_template_argument_kind(number) == TemplateArgumentKind.TYPE:
            kind = specialisation.get_template_argument_type(number)
            names = {_plain(kind.spelling), _plain(kind.get_canonical().spelling)}
        else:
            names = {str(specialisation.get_template_argument_value(number))}
        own[number:] = [(own[number] if number < len(own) else set()) | names, *own[number + 1 :]]
    return own


def _part_condition(
    metric: str, wanted: WantedName, part: Part, declared: Cursor, function: Cursor
) -> list[str] | None:
    assert part.arguments is not None
    if declared.kind not in (*_TEMPLATES, CursorKind.FUNCTION_TEMPLATE):
        own = _own_arguments(declared)
        given = [_plain(one) for one in part.arguments]
        matches = (
            bool(own) and len(given) <= len(own) and all(one in names for one, names in zip(given, own, strict=False))
        )
        return [] if matches else None
    if declared.kind == CursorKind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION:
        raise SpecError(
            f"metric '{metric}': '{wanted.text}': one instance of a partial specialisation cannot be told apart; "
            f"count all instances, or narrow it by `file:` and `line:`",
            metric,
        )
    parameters = template_parameters(declared)
    if declared != function and function.lexical_parent != declared:
        # A member defined outside of its class may call the class's parameters by other names.
        outside = template_parameters(function)
        is_template = function.kind == CursorKind.FUNCTION_TEMPLATE
        n_own = len(template_parameters(function.canonical)) if is_template else 0
        parameters = outside[n_own:] or parameters
    if len(part.arguments) > len(parameters):
        raise SpecError(
            f"metric '{metric}': '{wanted.text}': {part.name} has {len(parameters)} template parameters, "
            f"got {len(part.arguments)} arguments",
            metric,
        )
    conditions = []
    for argument, parameter in zip(part.arguments, parameters, strict=False):
        if not parameter.spelling or parameter.kind == CursorKind.TEMPLATE_TEMPLATE_PARAMETER:
            raise SpecError(
                f"metric '{metric}': '{wanted.text}': a template parameter of {part.name} has no name, or is a "
                "template itself; one instance cannot be told apart, count all of them",
                metric,
            )
        same = parameter.kind == CursorKind.TEMPLATE_TYPE_PARAMETER
        conditions.append(
            f"__is_same({parameter.spelling}, {argument})" if same else f"({parameter.spelling}) == ({argument})"
        )
    return conditions
