"""What two machines must have in common for a run to give the same trace, to the bit, on both."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import platform
from pathlib import Path

PARTS = ("perturbation", "sources", "Python", "numpy", "llvmlite", "ziglang", "processor")


@functools.cache
def machine_identity() -> dict[str, str]:
    """By the names in `PARTS`: versions, a hash of this project's sources, and the processor's model and features."""
    import common
    import emulator
    import instrumenter
    from common.source_digest import source_digest
    from emulator.native_code.compiler import Compiler

    folders = [*(Path(package.__path__[0]) for package in (common, emulator, instrumenter)), Path(__file__).parents[1]]
    versions = {name: importlib.metadata.version(name) for name in ("perturbation", "numpy", "llvmlite", "ziglang")}
    return versions | {
        "sources": " ".join(source_digest([folder])[:16] for folder in folders),
        "Python": platform.python_version(),
        "processor": Compiler().host,
    }


def digest(identity: dict[str, str]) -> str:
    """A short hash of an identity."""
    text = "\0".join(f"{part}={identity.get(part, '')}" for part in PARTS)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def difference(mine: dict[str, str], theirs: dict[str, str]) -> str:
    """How ``theirs`` differs from ``mine``, for a person; empty where it does not."""
    found = []
    for part in PARTS:
        here, there = mine.get(part, "none"), theirs.get(part, "none")
        if here == there:
            continue
        if part == "processor":
            found.append(f"its processor is {model(there)}, here it is {model(here)}")
        elif part == "sources":
            found.append("its sources of perturbation are not those of here")
        else:
            found.append(f"it has {part} {there}, here it is {here}")
    return "; ".join(found)


def model(processor: str) -> str:
    """The model in the text of a processor, and a hash of its features."""
    named = [line.partition(":")[2].strip() for line in processor.splitlines() if line.startswith("model name")]
    features = hashlib.sha256(processor.encode()).hexdigest()[:6]
    return f"{named[0] if named else 'of another kind'} (features {features})"
