"""execve: executing another program in the same process. Every public method is the system call of that name."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import replace

from emulator.errors import EmulatorError, GuestImageError
from emulator.linux.abi.numbers import MASK_64, signed
from emulator.linux.kernel.hart_protocol import Hart
from emulator.linux.kernel.signals import AlternateStack
from emulator.linux.kernel.tasks import Registers, Replaced
from emulator.linux.loader.elf import ElfImage, load_image
from emulator.linux.loader.process_image import build_process
from emulator.linux.syscalls.base import AT_FDCWD, KernelCalls
from emulator.linux.syscalls.clone_and_exit import end_thread
from emulator.linux.syscalls.futex import release_futexes
from emulator.linux.syscalls.system_limits import command_name
from emulator.memory import MemoryLimit

_ARGUMENTS_BYTES = 1 << 20
_MAX_ARGUMENTS = 1 << 16
_MAX_SCRIPTS = 4
_SCRIPT_LINE_BYTES = 256
_STACK_POINTER = 2
_MAX_IMAGES = 8
_AT_SYMLINK_NOFOLLOW, _AT_EMPTY_PATH = 0x100, 0x1000


class ExecCalls(KernelCalls):
    def execve(self, hart: Hart, path: int, arguments: int, environment: int) -> int:
        return self.execveat(hart, AT_FDCWD & MASK_64, path, arguments, environment, 0)

    def execveat(
        self, hart: Hart, directory: int, path: int, arguments: int, environment: int, flags: int
    ) -> int:
        number, flags = signed(directory, 32), flags & 0xFFFF_FFFF
        if flags & ~(_AT_EMPTY_PATH | _AT_SYMLINK_NOFOLLOW):
            raise OSError(errno.EINVAL, "execveat")
        name = self._text(path)
        if not name and flags & _AT_EMPTY_PATH and number != AT_FDCWD:
            self._files.descriptors.file(number)
            name = f"/dev/fd/{number}"
        elif not name:
            raise OSError(errno.ENOENT, "empty path")
        where = self._files.absolute(name, None if number == AT_FDCWD else number)
        if flags & _AT_SYMLINK_NOFOLLOW and stat.S_ISLNK(self._files.status(where, follow=False).mode):
            raise OSError(errno.ELOOP, "a link")
        return self._execute(hart, where, self._strings(arguments), self._strings(environment))

    def _execute(self, hart: Hart, path: str, arguments: list[str], environment: list[str]) -> int:
        from emulator.linux.kernel.linux_kernel import LinuxKernel

        path, data, arguments = self._program(path, arguments)
        memory = self._memory.another()
        try:
            image = self._image(data, path)
            variables = dict(text.partition("=")[::2] for text in environment)
            process = build_process(
                memory, image, arguments, variables, self._kernel.process.layout, self._files.contents
            )
        except MemoryLimit:
            memory.close()
            raise
        except GuestImageError as error:
            memory.close()
            raise OSError(errno.ENOEXEC, str(error)) from error
        except EmulatorError as error:
            memory.close()
            raise OSError(errno.E2BIG, str(error)) from error

        thread = self._scheduler.current
        for other in list(self._owner.threads):
            if other is not thread:
                end_thread(self._scheduler, other, self._memory)
        release_futexes(self._scheduler, thread, self._memory)
        thread.tid = self._owner.pid
        thread.clear_tid_address = thread.robust_list = 0
        thread.signals.alternate_stack = AlternateStack()
        thread.name = command_name(process)
        self._files.descriptors.close_for_exec()
        before = self._kernel
        kernel = LinuxKernel(memory, process, self._files, before=before, owner=self._owner)
        kernel.times.continue_from(before.times)
        before.release()
        kernel.signals.copy_actions(before.signals, keep_handlers=False)
        kernel.signals.copy_pending(before.signals)
        kernel.signals.thread = thread.signals
        self._owner.borrows_memory, self._owner.has_executed = False, True
        Registers.zeros(process.entry).with_x(_STACK_POINTER, process.stack_pointer).put(hart)
        if self._scheduler.listener is not None:
            self._scheduler.listener.task_switched()
        raise Replaced

    def _image(self, data: bytes, path: str) -> ElfImage:
        """The ELF image of ``data``; recently executed programs share one image."""
        images = self._scheduler.images
        found = next((image for image in images if image.data == data), None)
        if found is None:
            found = load_image(data, path)
        else:
            images.remove(found)
        images.insert(0, found)
        del images[_MAX_IMAGES:]
        return replace(found, name=path)

    def _program(self, path: str, arguments: list[str]) -> tuple[str, bytes, list[str]]:
        """The path, contents and arguments of the executable at ``path``, or of the interpreter of the script there."""
        for _ in range(_MAX_SCRIPTS):
            where, data = self._executable(self._files.absolute(path))
            if not data.startswith(b"#!"):
                return where, data, arguments
            line = os.fsdecode(data[2:_SCRIPT_LINE_BYTES].split(b"\n", 1)[0]).strip().split(None, 1)
            if not line:
                raise OSError(errno.ENOEXEC, "script without interpreter")
            arguments = [*line, path, *arguments[1:]]
            path = line[0]
        raise OSError(errno.ELOOP, "scripts")

    def _executable(self, path: str) -> tuple[str, bytes]:
        """The path and contents of the executable at ``path``, which may be a link in /proc to a running program or to
        an open file, even if that file has no name any more. Raises OSError."""
        running, opened = self._files.running_program(path), self._files.open_file_at(path)
        if running is not None:
            return running
        status = self._files.status(path) if opened is None else opened.status()
        if not status.mode & 0o111 or not stat.S_ISREG(status.mode):
            raise OSError(errno.EACCES, "not executable")
        if opened is None:
            return path, self._files.contents(path)
        data = opened.read_at(status.size_bytes, 0) if opened.readable else self._files.contents(opened.path)
        return opened.path, data

    def _strings(self, address: int) -> list[str]:
        texts: list[str] = []
        total = 0
        while address and (where := self._memory.read_int(address + 8 * len(texts), 8)):
            raw = self._memory.read_cstring(where, _ARGUMENTS_BYTES)
            total += _ARGUMENTS_BYTES if raw is None else len(raw) + 1
            if raw is None or total > _ARGUMENTS_BYTES or len(texts) >= _MAX_ARGUMENTS:
                raise OSError(errno.E2BIG, "arguments")
            texts.append(os.fsdecode(raw))
        return texts
