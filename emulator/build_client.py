"""Runs a program that a project's build has just made, by the server of the build, and ends as the program ends.

    python -I -S emulator/build_client.py SOCKET TREE PROGRAM [ARGUMENTS...]

`emulator.build_server` listens at SOCKET; its docstring has the messages. Where it does not, this process becomes
`emulator.build_step`. A build may start thousands of programs, so this file imports nothing that takes long to load.
"""

from __future__ import annotations

import os
import socket
import sys

_FAILED = 126


def main() -> None:
    place, tree, *words = sys.argv[1:]
    variables = [name + b"=" + value for name, value in os.environb.items()]
    mask = os.umask(0)
    os.umask(mask)
    request = b"\0".join([b"%d" % mask, b"%d" % len(words), *map(os.fsencode, words), *variables])
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(place)
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        socket.send_fds(server, [len(request).to_bytes(8, "little")], [0, 1, 2, folder])
    except OSError:
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        code = f"import sys; sys.path.insert(0, {package!r}); from emulator.build_step import main; main()"
        os.execv(sys.executable, [sys.executable, "-P", "-c", code, tree, *words])
    try:
        server.sendall(request)
        answer = server.recv(1)
    except OSError:
        answer = b""
    if not answer:
        os.write(2, os.fsencode(words[0]) + b": the emulator ended before the program\n")
    os._exit(answer[0] if answer else _FAILED)


main()
