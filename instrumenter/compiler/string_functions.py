"""memcpy, memmove, memset and strlen of programs for the emulated machine: an archive that all their links get.

zig's own, in its run-time library, take memory a byte at a time where the processor need not have unaligned access, as
RISC-V: with them a copy of 4,096 bytes has eight times the stores that it has on any other system. Those of
``runtime/string_functions.c`` take words of eight bytes, as glibc's and musl's do.

The archive comes after all that a link names, and before the libraries that zig adds. The functions are weak, and each
is a member of its own: where a program or one of its libraries has such a function, that one is linked.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from common.atomic_files import move_file, workspace
from common.file_cache import cache_directory
from common.library_sources import COMPILER_FOLDER, STRING_FUNCTIONS
from instrumenter.errors import ToolchainError

_SOURCE = Path(__file__).parents[1] / "runtime" / "string_functions.c"
_FUNCTIONS = ("memcpy", "memmove", "memset", "strlen")
# -fno-builtin: else the compiler makes calls of memcpy and of the others from their own loops.
_FLAGS = (
    "-O2", "-std=gnu11", "-w", "-g", "-fno-builtin", "-fno-unroll-loops", "-fomit-frame-pointer",
    "-fasynchronous-unwind-tables", "-fno-sanitize=all", "-fno-stack-protector",
)  # fmt: skip
FOR_LINKER_THAT_COMPILES = tuple(f"-Wl,-u,{name}" for name in _FUNCTIONS)
"""Options of links with -flto: the compiler's run-time library is taken before the program's calls are known."""
_WITHOUT_LIBRARIES = frozenset(("-shared", "-r", "-nostdlib", "-nodefaultlibs", "-nostartfiles", "-nolibc"))


def are_for(target: str | None, arguments: Sequence[str]) -> bool:
    """Whether a link for ``target`` with ``arguments`` gets the archive: not one that names the libraries itself."""
    is_emulated = target is not None and target.startswith("riscv64")
    return is_emulated and "-static" in arguments and _WITHOUT_LIBRARIES.isdisjoint(arguments)


def archive(zig: str, version: str, target: str, environment: Mapping[str, str], lock: Sequence[int]) -> Path:
    """The archive for ``target``, which is compiled where it is not in the user's cache yet.

    ``zig``: the compiler's program, of ``version``; ``environment``: in which it runs; ``lock``: descriptors that it
    inherits. Raises `ToolchainError` or `OSError`.
    """
    identity = json.dumps(
        [_SOURCE.read_text("utf-8"), _FUNCTIONS, _FLAGS, STRING_FUNCTIONS, COMPILER_FOLDER, version, target]
    )
    place = cache_directory() / "runtime" / f"{hashlib.sha256(identity.encode()).hexdigest()}.a"
    if place.is_file():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with workspace(place.parent) as folder:
        objects = [f"{name}.o" for name in _FUNCTIONS]
        # Debug information has the same paths everywhere, by which the functions are known to be a library's.
        places = {_SOURCE: STRING_FUNCTIONS, Path(zig).parent: COMPILER_FOLDER, folder: "."}
        names = [f"-ffile-prefix-map={place}={name}" for place, name in places.items()]
        compiler = ["cc", "-target", target, *_FLAGS, *names, "-c", str(_SOURCE)]
        calls = [[*compiler, f"-DMAKE_{name}", "-o", made] for name, made in zip(_FUNCTIONS, objects, strict=True)]
        for words in (*calls, ["ar", "rcs", place.name, *objects]):
            done = subprocess.run(
                [zig, *words], cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                errors="replace", pass_fds=lock, check=False,
            )  # fmt: skip
            if done.returncode:
                raise ToolchainError(f"{_SOURCE.name}: zig {words[0]} failed: {done.stderr[:500]}")
        move_file(folder / place.name, place)
    return place
