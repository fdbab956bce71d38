"""A process that has imported the modules of a server, and forks servers on request: for tests with many servers.

The requests arrive on a Unix socket that is the standard input. Each message is a JSON object; a request to start a
server is accompanied by the descriptors of its standard input, output and error:

    -> {"start": [argument, ...], "environment": {...}, "name": "..."}    <- {"pid": 5}, or {"error": "..."}
    -> {"signal": 9, "pid": 5}                                            sent only if the process has not been reaped
                                                                          <- {"ended": 5, "code": -9}, when it has ended

The process ends with the socket. Servers that still run end with their standard input.
"""

from __future__ import annotations

import array
import json
import os
import selectors
import signal
import socket
from typing import Any, Final

from .forking import Main, fork, preload

MAX_MESSAGE: Final = 1024 * 1024
"""The environment of a process has at most a quarter of this, by default."""


class ForkHost:
    """See the module docstring."""

    def __init__(self, main: Main, requests: socket.socket) -> None:
        self._main = main
        self._requests = requests
        self._running: set[int] = set()
        self._readable, self._writable = socket.socketpair()

    def run(self) -> None:
        """Serve until the socket ends."""
        self._readable.setblocking(False)
        self._writable.setblocking(False)
        signal.set_wakeup_fd(self._writable.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # only wakes up the loop
        preload()
        with selectors.DefaultSelector() as selector:
            selector.register(self._requests, selectors.EVENT_READ)
            selector.register(self._readable, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._readable:
                        self._readable.recv(4096)
                        self._reap()
                    elif not self._serve():
                        return

    def _serve(self) -> bool:
        message, control, _, _ = self._requests.recvmsg(MAX_MESSAGE, socket.CMSG_SPACE(3 * array.array("i").itemsize))
        if not message:
            return False
        descriptors = array.array("i")
        for level, kind, data in control:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(data)
        request = json.loads(message)
        if "start" in request:
            self._start(request, descriptors)
        elif request["pid"] in self._running:
            os.kill(request["pid"], request["signal"])
        return True

    def _start(self, request: dict[str, Any], descriptors: array.array[int]) -> None:
        try:
            pid = fork(
                self._main,
                request["start"],
                descriptors,
                name=request["name"],
                environment=request["environment"],
            )
        except OSError as error:
            self._send({"error": error.strerror or str(error)})
        else:
            self._running.add(pid)
            self._send({"pid": pid})
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _reap(self) -> None:
        for pid in list(self._running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._running.remove(pid)
                self._send({"ended": pid, "code": os.waitstatus_to_exitcode(status)})

    def _send(self, message: dict[str, Any]) -> None:
        self._requests.sendall(json.dumps(message).encode())
