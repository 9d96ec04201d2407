"""From a test's assembly source to a Linux program: the clang and the linker of the ziglang package."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ENVIRONMENT = Path(__file__).parent / "env"
_TARGET = ("-target", "riscv64-unknown-elf", "-mabi=lp64d", "-mno-relax", "-Wno-macro-redefined")
_SECONDS = 300


class BuildError(Exception):
    """A test that does not assemble; the message has what the assembler said."""


@dataclass(frozen=True)
class Source:
    """One program to build. ``includes``: directories, searched after the environment's; ``defines``: NAME=VALUE."""

    path: Path
    march: str
    includes: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()


def build(source: Source, folder: Path) -> bytes:
    """The program of ``source``; objects, and programs from earlier runs, lie in ``folder``.

    Raises `BuildError` with the assembler's or linker's words.
    """
    command = [*_TARGET, f"-march={source.march}", *(f"-D{name}" for name in source.defines)]
    key = hashlib.sha256(repr(command).encode() + source.path.read_bytes())
    for path in (*sorted(ENVIRONMENT.iterdir()), *_headers(source.includes)):
        key.update(path.read_bytes())
    command += [f"-I{path}" for path in (ENVIRONMENT, *source.includes)]
    program = folder / f"{source.path.stem}-{key.hexdigest()[:16]}"
    if not program.exists():
        made, rounds, new = (program.with_suffix(suffix) for suffix in (".o", ".rounds.o", ".new"))
        _zig("clang", *command, "-c", str(source.path), "-o", str(made))
        _zig("clang", *_TARGET, "-march=rv64gc", "-c", str(ENVIRONMENT / "rounds.S"), "-o", str(rounds))
        _zig("ld.lld", "-T", str(ENVIRONMENT / "link.ld"), str(rounds), str(made), "-o", str(new))
        new.replace(program)
        made.unlink()
        rounds.unlink()
    return program.read_bytes()


def _headers(folders: tuple[Path, ...]) -> list[Path]:
    return sorted(path for folder in folders for path in folder.glob("*.h"))


def _zig(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False,
    )  # fmt: skip
    if done.returncode:
        raise BuildError("\n".join(done.stderr.splitlines()[:12]))
