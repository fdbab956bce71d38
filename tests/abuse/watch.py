"""The resources of a server process in /proc: memory, descriptors, threads, child processes."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

MEGABYTE = 1024 * 1024
SAMPLE_S = 0.05


def status_kb(pid: int, name: str) -> int:
    """A line of ``/proc/PID/status`` in kB; 0 if the process has exited."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1])
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def descendants(pid: int) -> list[int]:
    """The child processes of a process, theirs included."""
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            pids = [int(text) for text in children.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in pids:
            found += [child, *descendants(child)]
    return found


class Descriptors(NamedTuple):
    """The open descriptors of a process, counted by kind."""

    sockets: int
    deleted_files: int
    files: int
    others: int


def descriptors(pid: int) -> Descriptors:
    sockets = deleted = files = others = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(link)
        except FileNotFoundError:
            continue
        if target.startswith("socket:"):
            sockets += 1
        elif target.endswith(" (deleted)"):
            deleted += 1
        elif target.startswith("/"):
            files += 1
        else:
            others += 1
    return Descriptors(sockets, deleted, files, others)


def memory_bytes(pid: int) -> int:
    """Resident memory of a process and its child processes."""
    return sum(status_kb(each, "VmRSS") for each in (pid, *descendants(pid))) * 1024


class MemoryWatch:
    """The largest resident memory of a process and its children, within a ``with`` block.

    The kernel keeps the exact peak of each process. That of the server itself is reset and read; its child processes
    may have exited by then, so they are sampled periodically.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak_kb = 0
        self.children: set[int] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory-watch", daemon=True)

    @property
    def peak_bytes(self) -> int:
        return self._peak_kb * 1024

    def __enter__(self) -> Self:
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")  # resets VmHWM
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._sample()

    def _run(self) -> None:
        while not self._stopping.wait(SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        children = descendants(self._pid)
        self.children.update(children)
        total = status_kb(self._pid, "VmRSS") + sum(status_kb(child, "VmHWM") for child in children)
        self._peak_kb = max(self._peak_kb, total, status_kb(self._pid, "VmHWM"))
