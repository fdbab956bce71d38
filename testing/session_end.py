"""Processes that a test session has started end with the session, also if the session is killed.

Every process that a test starts inherits the variable ``MOLDAU_TEST_SESSION``: brokers, JVMs, Go programs, the workers
of pytest-xdist, and their children, in any process group or session. A watcher process waits for the end of
pytest, and then kills every process that has the value of this session in its environment. A broker or a client program
also exits at the end of its standard input; the watcher handles the others, and those that do not read their input.

Linux only: the watcher uses pidfd and /proc.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

VARIABLE = "MOLDAU_TEST_SESSION"

# A killed process takes milliseconds to exit, and may have started another one before.
_PASSES = 100
_PAUSE_S = 0.05


def end_processes_with_this_one() -> None:
    """Kill all descendants that this process starts from now on when it has exited. Once for a tree of processes."""
    if not sys.platform.startswith("linux") or VARIABLE in os.environ:
        return
    value = uuid4().hex
    # The watcher has no variable, so that it does not kill itself, and no controlling terminal, which could kill it.
    subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(os.getpid()), value],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.environ[VARIABLE] = value


def _processes_with(entry: bytes) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/environ"):
        # It has exited, or belongs to another user.
        with contextlib.suppress(OSError):
            if entry in path.read_bytes().split(b"\0"):
                yield int(path.parent.name)


def _watch(parent: int, value: str) -> None:
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(parent)
        if os.getppid() == parent:  # otherwise it has exited, and another process may have its id
            select.select([descriptor], [], [])
    entry = f"{VARIABLE}={value}".encode()
    for _ in range(_PASSES):
        found = list(_processes_with(entry))
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    _watch(int(sys.argv[1]), sys.argv[2])
