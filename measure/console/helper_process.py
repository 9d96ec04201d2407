"""A second Python process that loads libraries while this process works, and then calls functions that need them.

Loading pandas and matplotlib takes most of a second. A command that needs them only to write its results starts a
`HelperProcess` at its beginning.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from common.startup import starting

_START = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from measure.console.helper_process import serve; serve()"
)


class HelperProcess:
    """Starts a process that calls ``prepare``, a function of a module. Use it in a ``with`` statement, which ends it.

    The helper ends, too, when this process is killed, since it reads its commands from a pipe. It has a session of its
    own, so that Ctrl-C does not reach it. If it cannot be started, or is killed, calls are made in this process.
    """

    def __init__(self, prepare: Callable[[], object]) -> None:
        self._prepare = prepare
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> HelperProcess:
        # -P: a file of the working directory must not be taken for a module.
        command = [sys.executable, "-P", "-c", _START]
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
            self._send(sys.path)
            self._send(self._prepare)
        return self

    def __exit__(self, *details: Any) -> None:
        process = self._process
        if process is not None:
            assert process.stdin is not None
            assert process.stdout is not None
            if details[0] is not None:
                process.kill()
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.wait()
            process.stdout.close()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``function``, one of a module, with ``arguments``; its exceptions are raised here."""
        process = self._process
        if process is not None and process.stdout is not None:
            try:
                self._send((function, arguments))
                succeeded, result = pickle.load(process.stdout)
            except (OSError, EOFError, pickle.UnpicklingError):
                pass
            else:
                if succeeded:
                    return result
                raise result
        return function(*arguments)

    def _send(self, message: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(pickle.dumps(message))
        self._process.stdin.flush()


def serve() -> None:
    """The helper's main function: prepare, then call one function after the other until the pipe is closed."""
    inbox, outbox = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # output of the functions must not mix with the answers
    with contextlib.suppress(EOFError):
        prepare = pickle.load(inbox)
        with starting(), contextlib.suppress(Exception):  # the call that needs it will raise it again
            prepare()
        while True:
            function, arguments = pickle.load(inbox)
            try:
                answer = pickle.dumps((True, function(*arguments)))
            except Exception as error:
                answer = pickle.dumps((False, error))
            outbox.write(answer)
            outbox.flush()
    os._exit(0)  # an ordinary exit takes a tenth of a second to unload modules
