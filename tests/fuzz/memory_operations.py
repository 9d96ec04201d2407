"""Random operations on memory, by one C program in the guest and on the host: both must answer the same.

What cannot be the same is left out: where mappings begin and end that Linux might have merged (mremap is tried on
single pages, on what was just mapped, and over holes), MADV_PAGEOUT after MADV_FREE, and pages past the end of a file.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
from functools import cache
from itertools import zip_longest
from pathlib import Path

from emulator.machine import Machine
from instrumenter.compiler.toolchain import Toolchain

SOURCE = Path(__file__).with_suffix(".c")
OPERATIONS = 300
_SECONDS = 60
_HOSTS = {"x86_64": "x86_64-linux-musl", "aarch64": "aarch64-linux-musl"}
_CONTEXT = 2


def is_comparable() -> bool:
    """Whether the host is a Linux that the program can be compiled for."""
    return sys.platform == "linux" and platform.machine() in _HOSTS


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="memory-operations-")


@cache
def _program(target: str) -> Path:
    path = Path(_folder().name, target)
    Toolchain(target).link([SOURCE], ["-O1", "-w"], path)
    return path


def on_host(seed: int, operations: int) -> list[str]:
    command = [str(_program(_HOSTS[platform.machine()])), str(seed), str(operations)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    return [*done.stdout.splitlines(), f"status {done.returncode}"]


def in_guest(seed: int, operations: int) -> list[str]:
    with Machine(_program("riscv64-linux-musl"), [str(seed), str(operations)]) as machine:
        ending = machine.run()
        return [*machine.files.output(1).decode().splitlines(), f"status {ending.status}"]


def check_memory(seed: int, operations: int = OPERATIONS) -> list[str]:
    """The first operation after which the two differ, with those before it; nothing when they agree."""
    if not is_comparable():
        return []
    host, guest = on_host(seed, operations), in_guest(seed, operations)
    for number, (wanted, found) in enumerate(zip_longest(host, guest)):
        if wanted != found:
            before = host[max(0, number - _CONTEXT) : number]
            return [*before, f"host:  {wanted}", f"guest: {found}"]
    return []
