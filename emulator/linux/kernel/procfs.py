"""procfs: contents of the files in /proc and /sys, for the guest's processes and the guest's machine.

All values are the guest's; no value comes from the host.
"""

from __future__ import annotations

import errno
import posixpath
import re

from emulator.linux.abi.numbers import GID, UID
from emulator.linux.kernel.clock import NANOSECONDS
from emulator.linux.kernel.limits import MAX_TASKS
from emulator.linux.kernel.scheduler import Scheduler
from emulator.linux.kernel.tasks import Process, Thread
from emulator.linux.vfs.open_files import OpenFile
from emulator.memory import EXEC, PAGE_SHIFT, READ, WRITE

_FIXED = {
    "/proc/version": "Linux version 6.6.0 (guest) #1\n",
    "/proc/filesystems": "nodev\tproc\nnodev\ttmpfs\n",
    "/proc/loadavg": "0.00 0.00 0.00 1/1 1000\n",
    "/proc/stat": "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\nbtime 1700000000\n",
    "/proc/cpuinfo": "processor\t: 0\nhart\t\t: 0\nisa\t\t: rv64imafdc_zicsr_zifencei_zba_zbb_zbs\nmmu\t\t: sv39\n\n",
    "/proc/sys/kernel/osrelease": "6.6.0\n",
    "/proc/sys/kernel/ostype": "Linux\n",
    "/proc/sys/kernel/hostname": "guest\n",
    "/proc/sys/kernel/pid_max": "4194304\n",
    "/proc/sys/kernel/threads-max": f"{MAX_TASKS}\n",
    "/proc/sys/kernel/cap_last_cap": "40\n",
    "/proc/sys/vm/overcommit_memory": "0\n",
    "/proc/sys/vm/max_map_count": "65530\n",
    "/proc/sys/fs/pipe-max-size": "1048576\n",
    "/sys/devices/system/cpu/online": "0\n",
    "/sys/devices/system/cpu/possible": "0\n",
    "/sys/devices/system/cpu/present": "0\n",
    "/sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n",
    "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size": "2097152\n",
}
_MOUNTS = "guest / tmpfs rw 0 0\nproc /proc proc rw 0 0\n"
_MACHINE_FILES = {"/proc/meminfo", "/proc/uptime"}
_TASK_FILES = ("auxv", "cmdline", "comm", "environ", "maps", "mounts", "stat", "statm", "status")
_LINKS = ("cwd", "exe", "root")
_TASK = re.compile(r"/proc/(self|thread-self|\d+)(?:/task/(\d+))?(?:/(.*))?")


class ProcFs:
    """/proc and /sys as ``process`` sees them: /proc/self is that process."""

    def __init__(self, scheduler: Scheduler, process: Process) -> None:
        self._scheduler = scheduler
        self._process = process
        self._directories: dict[str, set[str]] = {}
        for path in [*_FIXED, *_MACHINE_FILES]:
            while path != "/":
                above = posixpath.dirname(path)
                self._directories.setdefault(above, set()).add(posixpath.basename(path))
                path = above
        del self._directories["/"]

    def covers(self, path: str) -> bool:
        if not path.startswith(("/proc", "/sys")):
            return False
        if path in _FIXED or path in _MACHINE_FILES or path in self._directories or path == "/proc/mounts":
            return True
        found = self._find(path)
        if found is None:
            return False
        _, name = found
        if name in ("", "fd", "task", *_TASK_FILES, *_LINKS):
            return True
        return name.startswith("fd/") and self.descriptor(path) is not None

    def contents(self, path: str) -> bytes:
        if path in _FIXED:
            return _FIXED[path].encode()
        if path in _MACHINE_FILES:
            return self._machine_file(path).encode()
        found = self._find(path)
        if path == "/proc/mounts":
            return _MOUNTS.encode()
        if found is None or found[1] not in _TASK_FILES:
            raise OSError(errno.EISDIR, "a directory")
        thread, name = found
        made: bytes = getattr(self, f"_{name}")(thread)
        return made

    def names(self, path: str) -> list[str] | None:
        if path in self._directories:
            processes = [str(pid) for pid in self._scheduler.processes] if path == "/proc" else []
            own = ["self", "thread-self", "mounts"] if path == "/proc" else []
            return sorted([*self._directories[path], *own, *processes])
        found = self._find(path)
        if found is None:
            return None
        thread, name = found
        if name == "fd":
            return [str(number) for number, _ in thread.process.files.descriptors.items()]
        if name == "task":
            return [str(one.tid) for one in thread.process.threads]
        return sorted(["fd", "task", *_TASK_FILES, *_LINKS]) if not name else None

    def target(self, path: str) -> str | None:
        if path in ("/proc/self", "/proc/thread-self", "/proc/mounts"):
            return None
        found = self._find(path)
        if found is None or found[1] not in _LINKS:
            return None
        process = found[0].process
        return {"cwd": process.files.working_directory, "root": "/", "exe": process.program_path}[found[1]]

    def program(self, path: str) -> tuple[str, bytes] | None:
        found = self._find(path)
        if found is None or found[1] != "exe":
            return None
        process = found[0].process
        return process.program_path, process.program.image.data

    def link(self, path: str) -> str:
        if path == "/proc/self":
            return str(self._process.pid)
        target, opened = self.target(path), self.descriptor(path)
        if target is None and opened is None:
            raise OSError(errno.EINVAL, "not a link")
        return target or (opened.path if opened is not None else "")

    def descriptor(self, path: str) -> OpenFile | None:
        found = self._find(path)
        if found is None or not found[1].startswith("fd/") or not found[1][3:].isdecimal():
            return None
        try:
            return found[0].process.files.descriptors.file(int(found[1][3:]))
        except OSError:
            return None

    def _find(self, path: str) -> tuple[Thread, str] | None:
        """The thread of a path /proc/PID[/task/TID]/REST, and REST; None for other paths and missing tasks."""
        parts = _TASK.fullmatch(path)
        if parts is None:
            return None
        which, tid, rest = parts.groups()
        process: Process | None = self._process
        if which not in ("self", "thread-self"):
            process = self._scheduler.processes.get(int(which))
        if process is None or not process.threads:
            return None
        thread = self._scheduler.current if which == "thread-self" else process.threads[0]
        if tid is not None:
            thread = next((one for one in process.threads if one.tid == int(tid)), None)  # type: ignore[assignment]
        return None if thread is None else (thread, rest or "")

    # Contents of each file

    def _machine_file(self, path: str) -> str:
        if path == "/proc/uptime":
            return f"{self._scheduler.clock.elapsed() / NANOSECONDS:.2f} 0.00\n"
        memory = self._process.memory
        total, free = memory.limit_bytes >> 10, max(0, memory.limit_bytes - memory.mapped_bytes) >> 10
        lines = (("MemTotal", total), ("MemFree", free), ("MemAvailable", free), ("Buffers", 0), ("Cached", 0),
                 ("SwapTotal", 0), ("SwapFree", 0))  # fmt: skip
        return "".join(f"{name + ':':<15}{value:>10} kB\n" for name, value in lines)

    def _auxv(self, thread: Thread) -> bytes:
        return thread.process.program.auxiliary

    def _cmdline(self, thread: Thread) -> bytes:
        return b"".join(text.encode(errors="surrogateescape") + b"\0" for text in thread.process.program.arguments)

    def _comm(self, thread: Thread) -> bytes:
        return thread.name + b"\n"

    def _environ(self, thread: Thread) -> bytes:
        return b"".join(text.encode(errors="surrogateescape") + b"\0" for text in thread.process.program.environment)

    def _maps(self, thread: Thread) -> bytes:
        process = thread.process
        lines = []
        for address, length, perm in process.memory.areas():
            for start, end, offset, name in process.mappings.mappings_in(address, address + length):
                letters = "".join(
                    letter if perm & bit else "-" for letter, bit in (("r", READ), ("w", WRITE), ("x", EXEC))
                )
                inode = process.files.inode_of(name) if name.startswith("/") else 0
                line = f"{start:08x}-{end:08x} {letters}p {offset:08x} 00:01 {inode}"
                lines.append(f"{line:<73}{name}".rstrip() if name else line + " ")
        return ("\n".join(lines) + "\n").encode(errors="surrogateescape")

    def _mounts(self, thread: Thread) -> bytes:
        return _MOUNTS.encode()

    def _stat(self, thread: Thread) -> bytes:
        process = thread.process
        parent = 1 if process.parent is None else process.parent.pid
        ticks = self._scheduler.clock.processor() // (NANOSECONDS // 100)
        state = _state(thread)[0]
        size = process.memory.mapped_bytes
        fields = [parent, process.group, process.session, 0, -1, 0, 0, 0, 0, 0, ticks, 0, 0, 0, 20, 0,
                  len(process.threads), 0, 0, size, size >> PAGE_SHIFT, (1 << 64) - 1, process.program.image.start,
                  process.program.image.end, process.program.stack_pointer] + [0] * 24  # fmt: skip
        head = f"{thread.tid} (".encode() + thread.name + f") {state} ".encode()
        return head + " ".join(str(field) for field in fields).encode() + b"\n"

    def _statm(self, thread: Thread) -> bytes:
        pages = thread.process.memory.mapped_bytes >> PAGE_SHIFT
        return f"{pages} {pages} 0 0 0 {pages} 0\n".encode()

    def _status(self, thread: Thread) -> bytes:
        process, size = thread.process, thread.process.memory.mapped_bytes >> 10
        signals = thread.process.signals
        parent = 1 if process.parent is None else process.parent.pid
        lines = (
            f"Umask:\t{thread.process.files.umask:04o}\nState:\t{_state(thread)}\nTgid:\t{process.pid}\n"
            f"Pid:\t{thread.tid}\nPPid:\t{parent}\n"
            f"TracerPid:\t0\nUid:\t{UID}\t{UID}\t{UID}\t{UID}\nGid:\t{GID}\t{GID}\t{GID}\t{GID}\nFDSize:\t64\n"
            f"VmPeak:\t{size:8} kB\nVmSize:\t{size:8} kB\nVmHWM:\t{size:8} kB\nVmRSS:\t{size:8} kB\n"
            f"Threads:\t{len(process.threads)}\nSigPnd:\t{thread.signals.pending_mask:016x}\n"
            f"ShdPnd:\t{signals.shared_pending_mask:016x}\nSigBlk:\t{thread.signals.mask:016x}\n"
            f"SigIgn:\t{signals.actions_mask(True):016x}\nSigCgt:\t{signals.actions_mask(False):016x}\n"
            "CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n"
            "Seccomp:\t0\nCpus_allowed:\t1\nCpus_allowed_list:\t0\n"
        )
        return b"Name:\t" + thread.name + b"\n" + lines.encode()


def _state(thread: Thread) -> str:
    if thread.process.stopped:
        return "T (stopped)"
    return "S (sleeping)" if thread.wait is not None else "R (running)"
