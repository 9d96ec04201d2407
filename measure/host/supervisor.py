"""A script that runs a program on the host and ends all that the program leaves, with the standard library only.

Each run has a process of its own for it, to which Linux gives the program's orphans (a child subreaper), also those
with a session of their own and another environment. So all its children are the run's, and nothing else is. It ends
them when the program has ended, when its time is over, and when the process that started it has ended.

The first line of its standard input is a task in JSON, see `main`; the end of its input ends the program. It prints
the answer in JSON: ``status`` of the program (negative: ended by a signal; null: it ran longer than allowed), and the
number of processes that still ran after it, ``left``, and that cannot be ended, ``remaining``.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from typing import Any

_SET_CHILD_SUBREAPER = 36  # of prctl
_END_SECONDS = 10.0  # for processes to end that were killed
_CANNOT_START = 127  # exit status, as a shell's


def main() -> None:
    """Run the task: ``arguments``, the first of which is the program's path, ``environment``, in whose values
    `{process}` stands for the program's process, ``directory``, ``stdin``, ``stdout``, ``stderr`` (paths),
    ``processor`` to run on, its ``personality``, ``limit_seconds`` or null."""
    task = json.loads(sys.stdin.buffer.readline())
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_SET_CHILD_SUBREAPER, *map(ctypes.c_ulong, (1, 0, 0, 0))):
        raise OSError(ctypes.get_errno(), "prctl: Linux does not give the program's orphans to this process")
    woken, wakes = os.pipe()
    for end in (woken, wakes):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    program = os.fork()
    if program == 0:
        _become_program(task, library)
    status = _wait_for(program, woken, task["limit_seconds"])
    left, remaining = _end_children()
    print(json.dumps({"status": status, "left": left, "remaining": remaining}), flush=True)


def _become_program(task: dict[str, Any], library: ctypes.CDLL) -> None:
    """In the new process: execute the program, or say on its standard error why not, and end."""
    try:
        os.setsid()
        for number, name, mode in ((0, "stdin", os.O_RDONLY), (1, "stdout", os.O_RDWR), (2, "stderr", os.O_RDWR)):
            os.dup2(os.open(task[name], mode), number)  # what it opens is closed when the program is executed
        os.chdir(task["directory"])
        os.sched_setaffinity(0, {task["processor"]})
        library.personality(ctypes.c_ulong(task["personality"]))
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python
            signal.signal(ignored, signal.SIG_DFL)
        process = f"{os.getpid():#010x}"  # of one length, as that of the environment moves the stack
        environment = {name: value.replace("{process}", process) for name, value in task["environment"].items()}
        os.execve(task["arguments"][0], task["arguments"], environment)
    except OSError as error:
        os.write(2, f"the program cannot be started on processor {task['processor']}: {error}\n".encode())
    finally:
        os._exit(_CANNOT_START)


def _wait_for(program: int, woken: int, limit_seconds: float | None) -> int | None:
    """Wait for the process ``program``: its status as of `subprocess.Popen.returncode`, or None at the limit."""
    ends_at = None if limit_seconds is None else time.monotonic() + limit_seconds
    events = select.poll()
    events.register(woken, select.POLLIN)
    events.register(0, 0)  # tells its end only
    while True:
        with contextlib.suppress(BlockingIOError):
            os.read(woken, 4096)
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:  # other processes that came to this one, too
            if ended[0] == program:
                return os.waitstatus_to_exitcode(ended[1])
        seconds = None if ends_at is None else ends_at - time.monotonic()
        if seconds is not None and seconds <= 0:
            return None
        if any(file == 0 for file, _ in events.poll(None if seconds is None else 1000 * seconds + 1)):
            return None


def _end_children() -> tuple[int, int]:
    """End all children, and theirs, which come to this process; how many ran, and how many of them do not end."""
    ended: set[int] = set()
    ends_at = time.monotonic() + _END_SECONDS
    while time.monotonic() < ends_at:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return len(ended), 0
        for child in _running_children():
            with contextlib.suppress(PermissionError):
                os.kill(child, signal.SIGKILL)  # still this child: its number is kept until it was waited for
            ended.add(child)
        time.sleep(0.001)
    return len(ended), len(_running_children())


def _running_children() -> list[int]:
    """Children of this process that have not ended."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]  # after the name, which may have spaces
                if int(parent) == os.getpid() and state not in (b"Z", b"X"):
                    found.append(int(name))
    return found


if __name__ == "__main__":
    main()
