"""The program's own file, its dynamic linker and its libraries: which code is whose, as they come and go.

A dynamic linker calls a function that does nothing whenever what it has mapped has changed, before code of it runs:
that is where debuggers look, and where analyzers do. Source: the run-time linker's interface to debuggers, `r_brk` in
<link.h>; in glibc and musl the function is ``_dl_debug_state``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.errors import EmulatorError
from emulator.linux.elf import ElfImage, Symbol, load_library
from emulator.memory import EXEC

if TYPE_CHECKING:
    from emulator.machine import Machine

_CHANGED = "_dl_debug_state"


class Objects:
    """The files that code of the guest of ``machine`` is mapped from."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._libraries: dict[tuple[str, int, int], ElfImage | None] = {}  # by path, address and offset
        self._images: list[ElfImage] = []
        self.look()

    @property
    def may_come(self) -> bool:
        """Whether there may be more of them later."""
        return self._machine.process.interpreter is not None

    @property
    def changed_at(self) -> int | None:
        """Where control comes when they have changed; None when that is not known."""
        interpreter = self._machine.process.interpreter
        symbol = interpreter.find_symbol(_CHANGED) if interpreter is not None else None
        return symbol.address if symbol is not None else None

    @property
    def images(self) -> list[ElfImage]:
        """The program, its dynamic linker, and libraries, as they were at the last `look`."""
        return self._images

    def look(self) -> None:
        """See what is mapped now."""
        process = self._machine.process
        known = [image for image in (process.image, process.interpreter) if image is not None]
        names = {self._machine.kernel.files.absolute(image.name) for image in known}
        for start, _, offset, name in self._files():
            key = name, start, offset
            if name not in names:
                if key not in self._libraries:
                    self._libraries[key] = self._read(*key)
                image = self._libraries[key]
                if image is not None and image not in known:
                    known.append(image)
        self._images = known

    def mapped(self) -> list[tuple[int, int, str]]:
        """Code that is mapped from files now: from where to where, and the path."""
        return [(start, end, name) for start, end, _, name in self._files()]

    def function_at(self, pc: int) -> Symbol | None:
        """The function that ``pc`` lies in, whoever it belongs to; of libraries that were seen and are gone, too."""
        gone = [image for image in self._libraries.values() if image is not None]
        for image in (*self._images, *gone):
            if image.start <= pc < image.end:
                found = image.function_at(pc)
                if found is not None:
                    return found
        return None

    def _files(self) -> list[tuple[int, int, int, str]]:
        kernel = self._machine.kernel
        return [
            found
            for address, length, perm in kernel.memory.areas()
            if perm & EXEC
            for found in kernel.memory_calls.names_of(address, address + length)
            if found[3].startswith("/")
        ]

    def _read(self, path: str, address: int, offset: int) -> ElfImage | None:
        """None for a file that is gone, or is no library."""
        try:
            data = self._machine.kernel.files.for_onlooker().contents(path)
            return load_library(data, path, address, offset)
        except (EmulatorError, OSError):
            return None
