"""Registry of analyzers: built-in ones by name, and user-written ones by file and class."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.errors import EmulatorError

if TYPE_CHECKING:
    from emulator.analyzers.analyzer import Analyzer

# Module and class by name. Modules are imported at their first use.
ANALYZERS: dict[str, tuple[str, str]] = {
    "mix": ("mix", "InstructionMix"),
    "caches": ("caches", "CacheSweep"),
    "hierarchy": ("caches", "CacheHierarchy"),
    "branches": ("branches", "BranchPredictors"),
    "values": ("values", "ValueLocality"),
    "callgraph": ("callgraph", "CallGraph"),
    "footprint": ("footprint", "Footprint"),
    "coverage": ("coverage", "Coverage"),
    "bbv": ("vectors", "BlockVectors"),
}


class AnalyzerError(EmulatorError):
    """The analyzer does not exist, or does not have the option."""


def find(name: str) -> type[Analyzer]:
    """The class of a built-in analyzer, or of ``FILE.py:CLASS``. Raises `AnalyzerError`."""
    if ".py:" in name:
        return _from_file(name)
    if name not in ANALYZERS:
        close = get_close_matches(name, ANALYZERS, 1)
        hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(ANALYZERS)}"
        raise AnalyzerError(f"analyzer {name!r} is unknown; {hint} (your own: FILE.py:CLASS)")
    module, attribute = ANALYZERS[name]
    found: type[Analyzer] = getattr(importlib.import_module(f"emulator.analyzers.{module}"), attribute)
    return found


def make(name: str, options: Sequence[str] = (), selection: str = "") -> Analyzer:
    """Create an analyzer by name with ``KEY=VALUE`` options, restricted to a selection. Raises `EmulatorError`."""
    found = find(name)
    known = inspect.signature(found).parameters
    given: dict[str, str | int | float] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or key not in known:
            takes = ", ".join(f"{p.name}={p.default}" for p in known.values()) or "no options"
            raise AnalyzerError(f"analyzer {name}: got option {option!r}, expected KEY=VALUE of {takes}")
        given[key] = _converted(name, key, value, known[key].default)
    analyzer = found(**given)
    if selection:
        if not _takes_selection(found):
            raise AnalyzerError(f"analyzer {name}: got a selection, but it is always of the whole program")
        analyzer.restrict(selection)
    return analyzer


def _takes_selection(kind: type[Analyzer]) -> bool:
    """Whether analyzers of a kind get events, or do more with a selection."""
    from emulator.analyzers.analyzer import Analyzer

    return kind.consume is not Analyzer.consume or kind.restrict is not Analyzer.restrict or kind.function is not None


def describe() -> list[tuple[str, str, str]]:
    """Name, first sentence of the docstring, and options with their defaults, of each built-in analyzer."""
    rows = []
    for name in ANALYZERS:
        found = find(name)
        options = [f"{p.name}={p.default}" for p in inspect.signature(found).parameters.values()]
        text = " ".join(inspect.cleandoc(found.__doc__ or "").split())
        rows.append((name, text.partition(". ")[0].rstrip("."), " ".join(options)))
    return rows


def _converted(name: str, key: str, text: str, default: object) -> str | int | float:
    """The text converted to the type of the default; numbers may have a suffix: 10K, 100M. Raises `AnalyzerError`."""
    if not isinstance(default, (int, float)) or isinstance(default, bool):
        return text
    factor = {"K": 10**3, "k": 10**3, "M": 10**6, "G": 10**9}.get(text[-1:], 1)
    try:
        number = float(text[:-1] if factor > 1 else text) * factor
    except ValueError:
        raise AnalyzerError(f"analyzer {name}: got {key}={text}, expected a number such as {default}") from None
    return number if isinstance(default, float) else round(number)


def _from_file(name: str) -> type[Analyzer]:
    from emulator.analyzers.analyzer import Analyzer

    path_text, _, attribute = name.rpartition(":")
    path = Path(path_text)
    if not path.is_file():
        raise AnalyzerError(f"analyzer {name!r}: there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # numba and dataclasses look it up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise AnalyzerError(f"analyzer {name!r}: {path}: {type(error).__name__}: {error}") from error
    found = getattr(module, attribute, None)
    if not (isinstance(found, type) and issubclass(found, Analyzer)):
        classes = [n for n, v in vars(module).items() if isinstance(v, type) and issubclass(v, Analyzer)]
        names = ", ".join(n for n in classes if n != "Analyzer") or "none"
        raise AnalyzerError(f"analyzer {name!r}: {path} has no subclass of Analyzer of that name; it has {names}")
    return found
