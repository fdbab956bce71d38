"""The load generators in C, compiled for a test, and servers for their requests."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

from moldau import benchmarks
from moldau.testing.requirements import missing

SOURCES = Path(benchmarks.__file__).parent


def compiled(name: str, folder: Path) -> Path:
    """A program, compiled into ``folder`` so that no cache hides a source that does not compile."""
    compiler = shutil.which("cc")
    if compiler is None:
        missing("cc", "a C compiler (Debian: apt-get install gcc libc6-dev)")
    program = folder / name
    options = ["-O2", "-Wall", "-Wextra", "-Werror", "-o", str(program)]
    subprocess.run([compiler, *options, str(SOURCES / f"{name}.c")], check=True)
    return program


def run_generator(program: Path, given: bytes, address: str, *options: object) -> dict[str, Any]:
    """The output of a generator; CalledProcessError if it fails."""
    command = [str(program), *(str(option) for option in options), *address.split(":")]
    done = subprocess.run(command, input=given, capture_output=True, check=True, timeout=60)
    result: dict[str, Any] = json.loads(done.stdout)
    assert 0 < result["p50_us"] <= result["p99_us"] <= result["p999_us"] <= result["max_us"]
    return result


def refused(program: Path, given: bytes, *options: str) -> bytes:
    """The error of a generator that does not connect."""
    command = [str(program), *options, "127.0.0.1", "1"]
    done = subprocess.run(command, input=given, capture_output=True, check=False, timeout=60)
    assert done.returncode == 2
    assert b"usage" in done.stderr
    return done.stderr


class Stub(ABC):
    """A server listening in a ``with`` block, with a thread for each connection until the client disconnects."""

    def __init__(self) -> None:
        self.connections = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept)]
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"

    @abstractmethod
    def serve(self, connection: socket.socket) -> None:
        """Respond to the requests, and then close the connection."""

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            self.serve(connection)
