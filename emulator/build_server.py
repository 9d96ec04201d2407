"""Runs programs that a project's build has just made, each in a process that has the emulator loaded already.

    python -m emulator.build_server LISTENER LIFE TREE

A build may start thousands of programs, and loading the emulator takes longer than most of them run. So this process
loads it once, and forks for each request. LISTENER and LIFE are file descriptors: of a listening Unix socket, and of a
pipe at whose end the server ends.

A request (`emulator.build_client`) is the number of its bytes, in 8 bytes, with descriptors of the standard streams
and of the working directory; then, separated by zero bytes: the mask of file modes, the number of words, the words
(program and arguments), and the environment. The answer is a byte, the exit status. When the client ends first, as by a
signal, the program is ended, too.
"""

from __future__ import annotations

import fcntl
import gc
import os
import select
import signal
import socket
import sys
import traceback

from emulator.build_step import FAILED, load, run_program

_DESCRIPTORS = 4


def main() -> None:
    listener, life, tree = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), sys.argv[3]
    load()
    gc.collect()
    gc.freeze()  # what was loaded is not examined, and so not copied, in each child
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # this process does not wait for its children
    while True:
        ready, _, _ = select.select([listener.fileno(), life], [], [])
        if life in ready:
            return
        client, _ = listener.accept()
        if os.fork() == 0:
            os.close(life)
            listener.close()
            _serve(client, tree)
        client.close()


def _serve(client: socket.socket, tree: str) -> None:
    """Run the program that ``client`` asks for, answer, and end this process."""
    status = FAILED
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        program, arguments = _take(client)
        _end_with(client)
        status = run_program(tree, program, arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else FAILED
    except BaseException:
        traceback.print_exc()
    finally:
        fcntl.fcntl(client, fcntl.F_SETFL, 0)  # without O_ASYNC: the client ends on the answer
        client.send(bytes([status & 0xFF]))
        os._exit(0)


def _take(client: socket.socket) -> tuple[str, list[str]]:
    """The program and arguments of a request; the streams, directory and environment of this process, and its
    mask of file modes, become the client's."""
    head, descriptors, _, _ = socket.recv_fds(client, 8, _DESCRIPTORS)
    left, parts = int.from_bytes(head, "little"), []
    while left:
        parts.append(client.recv(min(left, 1 << 20)))
        if not parts[-1]:
            os._exit(FAILED)  # the client was ended
        left -= len(parts[-1])
    mask, n_words, *rest = b"".join(parts).split(b"\0")
    words, variables = rest[: int(n_words)], rest[int(n_words) :]
    os.umask(int(mask))
    os.fchdir(descriptors[3])
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    os.environb.clear()
    os.environb.update(dict(one.partition(b"=")[::2] for one in variables))
    program, *arguments = map(os.fsdecode, words)
    return program, arguments


def _end_with(client: socket.socket) -> None:
    """Let the kernel end this process when the client ends: it signals what happens at the connection."""
    fcntl.fcntl(client, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(client, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(client, fcntl.F_SETFL, os.O_ASYNC)
    state = select.poll()
    state.register(client, select.POLLHUP)
    if state.poll(0):  # it ended before
        os._exit(FAILED)


if __name__ == "__main__":
    main()
