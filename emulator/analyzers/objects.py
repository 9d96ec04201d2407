"""The loaded ELF files of a guest: the program, its dynamic linker and its libraries, which are loaded and unloaded.

A dynamic linker calls an empty function after each change of its mappings and before code in them runs; debuggers set a
breakpoint there, and so do analyzers. Source: the run-time linker's interface to debuggers, `r_brk` in <link.h>; in
glibc and musl the function is ``_dl_debug_state``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.execution.backtrace import mapped_library
from emulator.linux.loader.elf import ElfImage, Symbol
from emulator.memory import EXEC, PAGE_BYTES, PAGE_SHIFT

if TYPE_CHECKING:
    from emulator.machine import Machine

_CHANGED = "_dl_debug_state"


class Objects:
    """The ELF files from which the guest of ``machine`` has mapped code."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._libraries: dict[tuple[str, int, int], ElfImage | None] = {}  # by path, address and offset
        self._images: list[ElfImage] = []
        self._anonymous_pages: set[int] = set()  # pages of code that are in no file
        self.refresh()

    @property
    def loads_libraries(self) -> bool:
        """Whether the program is dynamically linked and may load more files."""
        return self._machine.process.interpreter is not None

    @property
    def load_hook(self) -> int | None:
        """The address of the dynamic linker's function that it calls after each change; None if there is none."""
        interpreter = self._machine.process.interpreter
        symbol = interpreter.find_symbol(_CHANGED) if interpreter is not None else None
        return symbol.address if symbol is not None else None

    @property
    def images(self) -> list[ElfImage]:
        """The program, its dynamic linker and its libraries at the last `refresh`."""
        return self._images

    def refresh(self) -> None:
        """Read the files that are mapped now."""
        process = self._machine.process
        known = [image for image in (process.image, process.interpreter) if image is not None]
        names = {self._machine.kernel.files.absolute(image.name) for image in known}
        for start, _, offset, name in self._files():
            key = name, start, offset
            if name not in names:
                if key not in self._libraries:
                    self._libraries[key] = mapped_library(self._machine.kernel, *key)
                image = self._libraries[key]
                if image is not None and image not in known:
                    known.append(image)
        self._images = known

    def mapped(self) -> list[tuple[int, int, str]]:
        """The code that is mapped from files now: start, end and path."""
        return [(start, end, name) for start, end, _, name in self._files()]

    def function_at(self, pc: int) -> Symbol | None:
        """The function that contains ``pc`` in any file, also in a library that was unloaded; None without one."""
        owners = self._owners(pc)
        if not owners and pc >> PAGE_SHIFT not in self._anonymous_pages:
            self.refresh()
            owners = self._owners(pc)
            if not owners:
                self._anonymous_pages.add(pc >> PAGE_SHIFT)
        return next((found for image in owners if (found := image.function_at(pc)) is not None), None)

    def name_of(self, pc: int) -> str:
        """The name of the function that contains ``pc``; without one the page, such as ``(libc.so.6+0x2000..)`` or
        ``(0x7f5c4000..)``."""
        function = self.function_at(pc)
        if function is not None:
            return function.name
        page = pc & -PAGE_BYTES
        mapped = self._machine.kernel.mappings.file_at(page)
        return f"({mapped.rpartition('/')[2] if mapped else f'{page:#x}'}..)"

    def _owners(self, pc: int) -> list[ElfImage]:
        unloaded = [image for image in self._libraries.values() if image is not None and image not in self._images]
        return [image for image in (*self._images, *unloaded) if image.start <= pc < image.end]

    def _files(self) -> list[tuple[int, int, int, str]]:
        kernel = self._machine.kernel
        return [
            found
            for address, length, perm in kernel.memory.areas()
            if perm & EXEC
            for found in kernel.mappings.mappings_in(address, address + length)
            if found[3].startswith("/")
        ]
