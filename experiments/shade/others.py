"""Other tools that trace: how each is called, and which level of ours it stands beside.

QEMU's user mode, alone and with plug-ins of its source tree (`contrib/plugins`, `tests/plugin`), which the user builds;
unicorn with hooks that call Python; Valgrind's lackey on the native program. A tool that is not there is left
out.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from experiments.benchmarks.host import qemu

VALGRIND = "valgrind"


@dataclass(frozen=True)
class Place:
    """Where things are: the program for the host, for any x86-64 (Valgrind does not know the newest instructions), and
    for the guest; QEMU's plug-ins (none if None)."""

    native: Path
    plain: Path
    guest: Path
    plugins: Path | None = None


@dataclass(frozen=True)
class Tool:
    """One way of running a program under another tool.

    ``level``: ours that it stands beside; ``does``: what it does, in words; ``command``: how it is called before the
    whether it is given less to do.
    """

    level: int
    does: str
    command: Callable[[Place], list[str] | None]
    is_slow: bool = False


def _qemu(plugin: str = "", options: str = "") -> Callable[[Place], list[str] | None]:
    def command(place: Place) -> list[str] | None:
        emulator = qemu()
        if emulator is None:
            return None
        if not plugin:
            return [emulator, str(place.guest)]
        library = place.plugins / f"lib{plugin}.so" if place.plugins is not None else None
        if library is None or not library.is_file():
            return None
        return [emulator, "-plugin", f"{library}{options}", "-d", "plugin", "-D", "/dev/null", str(place.guest)]

    return command


def _unicorn(hook: str = "none") -> Callable[[Place], list[str] | None]:
    def command(place: Place) -> list[str] | None:
        if find_spec("unicorn") is None:
            return None
        return [sys.executable, "-m", "experiments.shade.under_unicorn", hook, str(place.guest)]

    return command


def _valgrind(tool: str, *options: str) -> Callable[[Place], list[str] | None]:
    def command(place: Place) -> list[str] | None:
        if shutil.which(VALGRIND) is None:
            return None
        return [VALGRIND, f"--tool={tool}", "--log-file=/dev/null", *options, str(place.plain)]

    return command


TOOLS: dict[str, Tool] = {
    "qemu": Tool(0, "QEMU's user mode", _qemu()),
    "qemu-insn": Tool(1, "plug-in insn: instructions counted in line", _qemu("insn", ",inline=on")),
    "qemu-hotblocks": Tool(1, "plug-in hotblocks: blocks counted in line", _qemu("hotblocks", ",inline=on")),
    "qemu-mem": Tool(2, "plug-in mem: a C function for each access", _qemu("mem", ",callback=on")),
    "qemu-cache": Tool(2, "plug-in cache: L1I, L1D and L2 simulated", _qemu("cache", ",l2=on")),
    "qemu-execlog": Tool(4, "plug-in execlog: a line of text an instruction", _qemu("execlog"), is_slow=True),
    "unicorn": Tool(0, "unicorn", _unicorn()),
    "unicorn-block": Tool(1, "unicorn: a Python function for each block", _unicorn("block"), is_slow=True),
    "unicorn-code": Tool(5, "unicorn: a Python function for each instruction", _unicorn("code"), is_slow=True),
    "unicorn-memory": Tool(2, "unicorn: a Python function for each access", _unicorn("memory"), is_slow=True),
    "valgrind": Tool(0, "Valgrind's none, on the native program", _valgrind("none")),
    "lackey": Tool(1, "Valgrind's lackey, on the native program: counts", _valgrind("lackey"), is_slow=True),
    "lackey-memory": Tool(
        2, "Valgrind's lackey: a line of text an access", _valgrind("lackey", "--trace-mem=yes"), is_slow=True
    ),
}  # fmt: skip
