"""execve: executing another program in the same process. Every public function handles the system call of that name."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import replace

from emulator.errors import EmulatorError, GuestImageError
from emulator.linux.abi.numbers import MASK_64, signed
from emulator.linux.kernel.programs import command_name, replace_program
from emulator.linux.kernel.signals import AlternateStack
from emulator.linux.kernel.task import AT_FDCWD, Task
from emulator.linux.kernel.tasks import Registers
from emulator.linux.loader.elf import ElfImage, load_image
from emulator.linux.loader.process_image import build_process
from emulator.linux.syscalls.clone_and_exit import end_thread
from emulator.linux.syscalls.futex import release_futexes
from emulator.memory import MemoryLimit

_ARGUMENTS_BYTES = 1 << 20
_MAX_ARGUMENTS = 1 << 16
_MAX_SCRIPTS = 4
_SCRIPT_LINE_BYTES = 256
_STACK_POINTER = 2
_MAX_IMAGES = 8
_AT_SYMLINK_NOFOLLOW, _AT_EMPTY_PATH = 0x100, 0x1000


def execve(task: Task, path: int, arguments: int, environment: int) -> None:
    return execveat(task, AT_FDCWD & MASK_64, path, arguments, environment, 0)


def execveat(task: Task, directory: int, path: int, arguments: int, environment: int, flags: int) -> None:
    number, flags = signed(directory, 32), flags & 0xFFFF_FFFF
    if flags & ~(_AT_EMPTY_PATH | _AT_SYMLINK_NOFOLLOW):
        raise OSError(errno.EINVAL, "execveat")
    name = task.text(path)
    if not name and flags & _AT_EMPTY_PATH and number != AT_FDCWD:
        task.files.descriptors.file(number)
        name = f"/dev/fd/{number}"
    elif not name:
        raise OSError(errno.ENOENT, "empty path")
    where = task.files.absolute(name, None if number == AT_FDCWD else number)
    if flags & _AT_SYMLINK_NOFOLLOW and stat.S_ISLNK(task.files.status(where, follow=False).mode):
        raise OSError(errno.ELOOP, "a link")
    return _execute(task, where, _strings(task, arguments), _strings(task, environment))


def _execute(task: Task, path: str, arguments: list[str], environment: list[str]) -> None:
    path, data, arguments = _program(task, path, arguments)
    memory = task.memory.another()
    try:
        image = _image(task, data, path)
        variables = dict(text.partition("=")[::2] for text in environment)
        program = build_process(memory, image, arguments, variables, task.process.program.layout, task.files.contents)
    except MemoryLimit:
        memory.close()
        raise
    except GuestImageError as error:
        memory.close()
        raise OSError(errno.ENOEXEC, str(error)) from error
    except EmulatorError as error:
        memory.close()
        raise OSError(errno.E2BIG, str(error)) from error

    thread = task.thread
    for other in list(task.process.threads):
        if other is not thread:
            end_thread(task.system, other)
    release_futexes(task.system.futexes, thread, task.memory)
    thread.tid = task.process.pid
    thread.clear_tid_address = thread.robust_list = 0
    thread.signals.alternate_stack = AlternateStack()
    thread.name = command_name(program)
    task.files.descriptors.close_for_exec()
    replace_program(task.system, task.process, memory, program)
    task.process.signals.thread = thread.signals
    task.process.borrows_memory, task.process.has_executed = False, True
    Registers.zeros(program.entry).with_x(_STACK_POINTER, program.stack_pointer).put(task.hart)
    if task.scheduler.listener is not None:
        task.scheduler.listener.task_switched()


def _image(task: Task, data: bytes, path: str) -> ElfImage:
    """The ELF image of ``data``; recently executed programs share one image."""
    images = task.system.images
    found = next((image for image in images if image.data == data), None)
    if found is None:
        found = load_image(data, path)
    else:
        images.remove(found)
    images.insert(0, found)
    del images[_MAX_IMAGES:]
    return replace(found, name=path)


def _program(task: Task, path: str, arguments: list[str]) -> tuple[str, bytes, list[str]]:
    """The path, contents and arguments of the executable at ``path``, or of the interpreter of the script there."""
    for _ in range(_MAX_SCRIPTS):
        where, data = _executable(task, task.files.absolute(path))
        if not data.startswith(b"#!"):
            return where, data, arguments
        line = os.fsdecode(data[2:_SCRIPT_LINE_BYTES].split(b"\n", 1)[0]).strip().split(None, 1)
        if not line:
            raise OSError(errno.ENOEXEC, "script without interpreter")
        arguments = [*line, path, *arguments[1:]]
        path = line[0]
    raise OSError(errno.ELOOP, "scripts")


def _executable(task: Task, path: str) -> tuple[str, bytes]:
    """The path and contents of the executable at ``path``, which may be a link in /proc to a running program or to
    an open file, even if that file has no name any more. Raises OSError."""
    running, opened = task.files.running_program(path), task.files.open_file_at(path)
    if running is not None:
        return running
    try:
        status = task.files.status(path) if opened is None else opened.status()
    except FileNotFoundError:
        task.files.note_not_found(path)
        raise
    if not status.mode & 0o111 or not stat.S_ISREG(status.mode):
        raise OSError(errno.EACCES, "not executable")
    if opened is None:
        return path, task.files.contents(path)
    data = opened.read_at(status.size_bytes, 0) if opened.readable else task.files.contents(opened.path)
    return opened.path, data


def _strings(task: Task, address: int) -> list[str]:
    texts: list[str] = []
    total = 0
    while address and (where := task.memory.read_int(address + 8 * len(texts), 8)):
        raw = task.memory.read_cstring(where, _ARGUMENTS_BYTES)
        total += _ARGUMENTS_BYTES if raw is None else len(raw) + 1
        if raw is None or total > _ARGUMENTS_BYTES or len(texts) >= _MAX_ARGUMENTS:
            raise OSError(errno.E2BIG, "arguments")
        texts.append(os.fsdecode(raw))
    return texts
