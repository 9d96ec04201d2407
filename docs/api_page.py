"""Makes the API page from the docstrings of the public names of `measure` and `emulator`.

    python docs/api_page.py [DIRECTORY]

The page goes to DIRECTORY/index.html, build/api by default. Exit status 1, with a line for each defect, when a name has
no docstring, a parameter has no type or is not explained, a function or class of the library has no example,
or a reference in backticks leads to nothing. Needs the extra ``docs`` (pdoc). `tests/docs` runs the examples.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
import sys
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pdoc.doc
import pdoc.render

PACKAGES = ("measure", "emulator")
_FENCED = re.compile(r"^```(?:\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^|(?<=\n\n))(?: {4}.*\n?)+", re.MULTILINE)
_REFERENCE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\(\))?")
_TERM = re.compile(r"(``\w+``(?:(?:, | and )``\w+``)*)( \([^)]*\))?: ")
_NAME = re.compile(r"``(\w+)``")


@dataclass(frozen=True)
class Member:
    """A documented name: ``path`` such as "measure.Result.trace", the object, and its docstring."""

    path: str
    doc: pdoc.doc.Doc[Any]
    text: str


def modules() -> dict[str, pdoc.doc.Module]:
    """The packages with all their public names loaded; they load them on demand."""
    found = {}
    for name in PACKAGES:
        package = importlib.import_module(name)
        for public in package.__all__:
            getattr(package, public)
        found[name] = module = pdoc.doc.Module(package)
        for doc in module.members.values():
            if name == "measure" and isinstance(doc, pdoc.doc.Class):
                doc.members.pop("__init__", None)  # functions make these objects, not the reader of the page
    return found


def members(module: pdoc.doc.Module) -> Iterator[Member]:
    """The module, its public names, and the public names that its classes define themselves."""
    yield Member(module.modulename, module, module.docstring)
    for doc in module.own_members:
        yield Member(f"{module.modulename}.{doc.name}", doc, doc.docstring)
        if isinstance(doc, pdoc.doc.Class):
            terms: dict[str, str] = {}
            for base in reversed(doc.obj.__mro__):
                terms |= terms_of(inspect.cleandoc(base.__doc__ or ""))
            for own in doc.own_members:
                if not own.name.startswith("_"):
                    text = own.docstring or _sentence(terms.get(own.name, ""))
                    yield Member(f"{module.modulename}.{doc.name}.{own.name}", own, text)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else ""


def explained(paragraph: str) -> tuple[str, list[tuple[str, str]], str]:
    """A paragraph that explains names as "``name``: explanation": its text before the first name, each name or group
    of names with its explanation, and the sentences after the last explanation."""
    parts = _TERM.split(" ".join(paragraph.split()))
    after = ""
    found = []
    for number in range(1, len(parts), 3):
        names, unit, text = parts[number], parts[number + 1] or "", parts[number + 2]
        if number + 3 == len(parts):
            text, raises, rest = text.partition(" Raises ")
            after = (raises + rest).strip()
        found.append((names, f"{unit.strip()} {text.strip().rstrip(';.')}".strip()))
    return parts[0].strip(), found, after


def terms_of(docstring: str) -> dict[str, str]:
    """The explanation of each name in a docstring that explains names as "``name``: explanation"."""
    paragraphs = _FENCED.sub("", docstring).split("\n\n")
    entries = [entry for paragraph in paragraphs for entry in explained(paragraph)[1]]
    return {name: text for names, text in entries for name in _NAME.findall(names)}


def readable(docstring: str, elsewhere: Collection[str] = ()) -> str:
    """The docstring as Markdown: names that a paragraph explains, one after the other, become a list.

    ``elsewhere``: names that the page explains in another place, and not in this list, too.
    """
    made = []
    for block in re.split(r"(^```.*?^```$)", docstring, flags=re.MULTILINE | re.DOTALL):
        if block.startswith("```"):
            made.append(block)
            continue
        for paragraph in block.strip("\n").split("\n\n"):
            made.append(paragraph if paragraph.startswith("    ") else _as_list(paragraph, elsewhere))
    return "\n\n".join(part for part in made if part)


def _as_list(paragraph: str, elsewhere: Collection[str]) -> str:
    """A paragraph; where it explains names, these as a list, and the sentences after the last one below it."""
    before, entries, after = explained(paragraph)
    if not entries:
        return paragraph
    shown = [(names, text) for names, text in entries if not set(_NAME.findall(names)) <= set(elsewhere)]
    lines = "\n".join(f"- {names}: {text}" for names, text in shown)
    return "\n\n".join(part for part in (before, lines, after) if part)


def examples(module: pdoc.doc.Module) -> list[tuple[str, str]]:
    """Each example of the page: the name that it belongs to, and its code."""
    return [
        (member.path, code.group(1))
        for member in members(module)
        for code in re.finditer(r"^```python\n(.*?)^```$", member.text, re.MULTILINE | re.DOTALL)
    ]


def defects(module: pdoc.doc.Module) -> list[str]:
    """A line for each defect of the page of one package; see the top of this file."""
    found = []
    for member in members(module):
        if not member.text.strip():
            found.append(f"{member.path}: no docstring")
        found += [f"{member.path}: `{name}` leads to nothing" for name in broken_references(member)]
        if isinstance(member.doc, pdoc.doc.Function):
            found += _untyped(member)
        public = member.path.count(".") == 1
        is_error = isinstance(member.doc, pdoc.doc.Class) and issubclass(member.doc.obj, Exception)
        data = isinstance(member.doc, pdoc.doc.Class) and member.doc.obj.__module__ not in _LIBRARY
        if public and not is_error and not data and "```python" not in member.text:
            found.append(f"{member.path}: no example")
    return found


# Classes of other modules are results that examples of these modules' functions make.
_LIBRARY = {
    "emulator.analyzers.analyzer", "emulator.machine", "measure.library.campaigns", "measure.library.comparisons",
    "measure.library.plots", "measure.library.programs",
}  # fmt: skip


def _untyped(member: Member) -> list[str]:
    function = member.doc.obj
    signature = inspect.signature(inspect.unwrap(getattr(function, "__func__", function)))
    found = []
    explained = set(_NAME.findall(member.text))
    for name, parameter in signature.parameters.items():
        if name in ("self", "cls"):
            continue
        if parameter.annotation is inspect.Parameter.empty:
            found.append(f"{member.path}: parameter {name} has no type")
        if member.path.startswith("measure.") and name not in explained:
            found.append(f"{member.path}: parameter {name} is not explained: expected ``{name}`` in the docstring")
    if signature.return_annotation is inspect.Signature.empty:
        found.append(f"{member.path}: the result has no type")
    return found


def broken_references(member: Member) -> list[str]:
    """References in single backticks that are identifiers and lead to no object."""
    prose = _INDENTED.sub("", _FENCED.sub("", member.text))
    wanted = [name for name in _REFERENCE.findall(prose) if _IDENTIFIER.fullmatch(name)]
    return [name for name in wanted if not resolves(name.removesuffix("()"), member)]


def resolves(name: str, member: Member) -> bool:
    """Whether ``name`` is known where the docstring stands: in its class, its module, its package, or by full path."""
    package = importlib.import_module(member.path.split(".", 1)[0])
    owners: list[Any] = [package, builtins]
    parts = member.path.split(".")
    if len(parts) > 1:
        public = getattr(package, parts[1])
        owners += [public, importlib.import_module(public.__module__)]
        tree = ast.parse(inspect.getsource(sys.modules[public.__module__]))
        # Names that the module imports for type checkers only.
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    if (alias.asname or alias.name) == name.split(".")[0]:
                        owners.append(importlib.import_module(node.module))
    return any(_has(owner, name) for owner in owners) or _importable(name)


def _has(owner: Any, name: str) -> bool:
    for part in name.split("."):
        fields = getattr(owner, "__dataclass_fields__", {})
        annotated = getattr(owner, "__annotations__", {}) if inspect.isclass(owner) else {}
        if part in fields or part in annotated:
            return True
        if not hasattr(owner, part):
            return False
        owner = getattr(owner, part)
    return True


def _importable(name: str) -> bool:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        return length == len(parts) or _has(module, ".".join(parts[length:]))
    return False


def build(directory: Path) -> list[str]:
    """Write the page into ``directory``; returns its defects. A warning of pdoc is raised as an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = modules()
        wrong = [line for module in found.values() for line in defects(module)]
        for module in found.values():
            for member in list(members(module)):
                doc = member.doc
                own = [one.name for one in doc.own_members] if isinstance(doc, pdoc.doc.Class) else []
                doc.docstring = readable(member.text, own)
        pdoc.render.configure(
            docformat="markdown", show_source=False, search=True,
            template_directory=Path(__file__).parent / "templates",
        )  # fmt: skip
        directory.mkdir(parents=True, exist_ok=True)
        for name, module in found.items():
            (directory / f"{name}.html").write_text(pdoc.render.html_module(module, found), encoding="utf-8")
        (directory / "index.html").write_text(pdoc.render.html_index(found), encoding="utf-8")
        (directory / "search.js").write_text(pdoc.render.search_index(found), encoding="utf-8")
    return wrong


if __name__ == "__main__":
    complaints = build(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("build") / "api")
    sys.stderr.writelines(f"{line}\n" for line in complaints)
    sys.exit(1 if complaints else 0)
