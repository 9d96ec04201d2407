"""The loaded ELF files of a guest: the program, its dynamic linker and its libraries, which are loaded and unloaded.

A dynamic linker calls an empty function after each change of its mappings and before code in them runs; debuggers set a
breakpoint there, and so do analyzers. Source: the run-time linker's interface to debuggers, `r_brk` in <link.h>; in
glibc and musl the function is ``_dl_debug_state``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.cplusplus_symbols import readable_name
from emulator.events import FIRST_PROGRAM
from emulator.execution.backtrace import mapped_library
from emulator.linux.loader.elf import ElfImage, Symbol
from emulator.memory import EXEC, PAGE_BYTES, PAGE_SHIFT

if TYPE_CHECKING:
    from emulator.machine import Machine

_CHANGED = "_dl_debug_state"


class Objects:
    """The ELF files from which the guest of ``machine`` has mapped code: those of the program that it began with, and
    apart from them those of each program that its processes execute, at the same addresses."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._programs = machine.programs
        self._libraries: dict[tuple[str, int, int], ElfImage | None] = {}  # by path, address and offset
        self._images: dict[int, list[ElfImage]] = {FIRST_PROGRAM: self._own(FIRST_PROGRAM)}  # by program
        self._unloaded: dict[int, list[ElfImage]] = {}
        self._mapped: list[tuple[int, int, str]] = []
        self._anonymous_pages: set[tuple[int, int]] = set()  # programs and their pages of code that are in no file
        self.refresh()

    @property
    def loads_libraries(self) -> bool:
        """Whether the program is dynamically linked and may load more files."""
        return self._programs[FIRST_PROGRAM].interpreter is not None

    @property
    def load_hook(self) -> int | None:
        """The address of the dynamic linker's function that it calls after each change; None if there is none."""
        interpreter = self._programs[FIRST_PROGRAM].interpreter
        symbol = interpreter.find_symbol(_CHANGED) if interpreter is not None else None
        return symbol.address if symbol is not None else None

    @property
    def images(self) -> list[ElfImage]:
        """The program, its dynamic linker and its libraries at the last `refresh`."""
        return self._images[FIRST_PROGRAM]

    def refresh(self) -> None:
        """Read the files that the current process has mapped now."""
        program = self._current()
        if program not in self._programs:  # it began before these objects were asked for
            return
        known = self._own(program)
        names = {self._machine.kernel.files.absolute(image.name) for image in known}
        for start, _, offset, name in self._files():
            key = name, start, offset
            if name not in names:
                if key not in self._libraries:
                    self._libraries[key] = mapped_library(self._machine.kernel, *key)
                image = self._libraries[key]
                if image is not None and image not in known:
                    known.append(image)
        before = (*self._images.get(program, ()), *self._unloaded.get(program, ()))
        self._unloaded[program] = [image for image in before if image not in known]
        self._images[program] = known
        if program == FIRST_PROGRAM:
            self._mapped = [(start, end, name) for start, end, _, name in self._files()]

    def mapped(self) -> list[tuple[int, int, str]]:
        """The code that the program had mapped from files at the last `refresh`: start, end and path."""
        return self._mapped

    def function_at(self, pc: int, program: int = FIRST_PROGRAM) -> Symbol | None:
        """The function of ``program`` that contains ``pc`` in any file, also in a library that was unloaded; None
        without one."""
        owners = self._owners(pc, program)
        page = program, pc >> PAGE_SHIFT
        if not owners and page not in self._anonymous_pages:
            self.refresh()
            owners = self._owners(pc, program)
            if not owners:
                self._anonymous_pages.add(page)
        return next((found for image in owners if (found := image.function_at(pc)) is not None), None)

    def name_of(self, pc: int, program: int = FIRST_PROGRAM) -> str:
        """The name of the function of ``program`` that contains ``pc``; without one the page, such as
        ``(libc.so.6+0x2000..)`` or ``(0x7f5c4000..)``. That of another program than the first has the program's name
        behind it: ``main [ls]``."""
        function = self.function_at(pc, program)
        page = pc & -PAGE_BYTES
        is_current = program == self._current()
        mapped = self._machine.kernel.mappings.file_at(page) if function is None and is_current else None
        place = f"({mapped.rpartition('/')[2] if mapped else f'{page:#x}'}..)"
        if program == FIRST_PROGRAM:
            return place if function is None else function.name
        process = self._programs.get(program)
        path = "" if process is None else process.image.name
        return f"{place if function is None else readable_name(function.name)} [{path.rpartition('/')[2]}]"

    def _current(self) -> int:
        """The number of the program that the current process executes."""
        return self._machine.program_of(self._machine.kernel.process)

    def _own(self, program: int) -> list[ElfImage]:
        """The files with which ``program`` begins: its own and its dynamic linker's."""
        process = self._programs.get(program)
        images = (process.image, process.interpreter) if process is not None else ()
        return [image for image in images if image is not None]

    def _owners(self, pc: int, program: int) -> list[ElfImage]:
        known = self._images.get(program) or self._own(program)
        return [image for image in (*known, *self._unloaded.get(program, ())) if image.start <= pc < image.end]

    def _files(self) -> list[tuple[int, int, int, str]]:
        kernel = self._machine.kernel
        return [
            found
            for address, length, perm in kernel.memory.areas()
            if perm & EXEC
            for found in kernel.mappings.mappings_in(address, address + length)
            if found[3].startswith("/")
        ]
