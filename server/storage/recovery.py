"""Support for the recovery of log directories after an unclean shutdown: read-ahead and progress.

Recovery itself runs in one thread. With small batches it is bound by the interpreter, so that more threads would not
help. With large batches it is as fast as the device, because the kernel reads ahead. But it need not wait for several
devices one after the other. The logs are recovered from each directory in turn. Meanwhile
`num.recovery.threads.per.data.dir` threads per directory read the segments of its next logs into the page cache: all
disks read at the same time. With one directory there is no gain, and there are no threads.

The threads stay close to recovery: a log is read ahead if fewer logs than threads come before it, and at most
`AHEAD_BYTES` of it. The threads only read, and ignore errors: recovery meets them again. After `kill -9` all data is in
the page cache: a thread that finds this for `WARM_LOGS` consecutive logs ends.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...log.names import LOG, parse_offset_file_name
from ..concurrency.background import start_thread

if TYPE_CHECKING:
    from ...log.broker_loading import UncleanLog
    from ...log.files import FileSystem

logger = logging.getLogger(__name__)

AHEAD_BYTES = 1 << 30
WARM_LOGS = 16
_PIECE_BYTES = 4 << 20
REPORT_SECONDS = 5.0


class _Directory:
    """A log directory under recovery."""

    def __init__(self, path: str, logs: Sequence[UncleanLog]) -> None:
        self.path = path
        self.logs = logs
        self.begun = 0
        """The number of logs that the loader has started."""
        self.taken = 0
        """The number of logs that a thread has taken for read-ahead."""


class Recovery:
    """See the module docstring. `LogManager.load` reports its progress here."""

    def __init__(
        self, file_system: FileSystem, threads_per_directory: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file_system = file_system
        self._threads_per_directory = threads_per_directory
        self._clock = clock
        self._directories: dict[str, _Directory] = {}
        self._threads: list[threading.Thread] = []
        self._moved = threading.Condition()
        self._closed = False
        self._last_report = clock()

    def begin(self, unclean: Mapping[str, Sequence[UncleanLog]]) -> None:
        """These logs will be recovered, by log directory, in this order."""
        for path, logs in unclean.items():
            if logs:
                logger.info("%s was not shut down cleanly: recovering %d partitions", path, len(logs))
                self._directories[path] = _Directory(path, logs)
        if len(self._directories) < 2:
            return
        for directory in self._directories.values():
            for _ in range(min(self._threads_per_directory, len(directory.logs))):
                thread = start_thread(partial(self._read_ahead, directory), "moldau-recovery")
                if thread is None:
                    logger.warning("Cannot start the read-ahead thread; recovery may take longer")
                    return
                self._threads.append(thread)

    def next(self, path: str) -> None:
        """The recovery of the next log of this directory starts now."""
        directory = self._directories.get(path)
        if directory is None:
            return
        with self._moved:
            directory.begun += 1
            self._moved.notify_all()
        if self._clock() - self._last_report >= REPORT_SECONDS:
            self._last_report = self._clock()
            logger.info(
                "Recovering: %s",
                ", ".join(
                    f"{one.path} has {len(one.logs) - one.begun + 1} of {len(one.logs)} partitions left"
                    for one in self._directories.values()
                    if one.begun <= len(one.logs)
                ),
            )

    def close(self) -> None:
        """Recovery is complete: end the threads."""
        with self._moved:
            self._closed = True
            self._moved.notify_all()
        for thread in self._threads:
            thread.join()

    def _read_ahead(self, directory: _Directory) -> None:
        """Runs in a thread."""
        warm_logs = 0
        while warm_logs < WARM_LOGS and (log := self._take(directory)) is not None:
            was_cold = False
            with contextlib.suppress(OSError):
                was_cold = self._read(log)
            warm_logs = 0 if was_cold else warm_logs + 1

    def _take(self, directory: _Directory) -> UncleanLog | None:
        with self._moved:
            # The loader's own log is read ahead, too: it may have many segments.
            self._moved.wait_for(
                lambda: (
                    self._closed
                    or directory.taken >= len(directory.logs)
                    or directory.taken < directory.begun + self._threads_per_directory
                )
            )
            if self._closed or directory.taken >= len(directory.logs):
                return None
            number = max(directory.taken, directory.begun - 1)  # skip logs that the loader has passed
            directory.taken = number + 1
            return directory.logs[number]

    def _read(self, log: UncleanLog) -> bool:
        """Read the part of a log that recovery needs into the page cache. Returns whether any of it was not cached."""
        names, _directories = self._file_system.list_directory(log.path)
        parsed = [parse_offset_file_name(name) for name in names]
        offsets = sorted(found[0] for found in parsed if found is not None and found[1] == LOG)
        left = AHEAD_BYTES
        was_cold = False
        for number, offset in enumerate(offsets):
            if number + 1 < len(offsets) and offsets[number + 1] < log.recovery_point:
                continue
            file = self._file_system.open(f"{log.path}/{offset:020d}{LOG}", read_only=True)
            try:
                size = min(file.size(), left)
                for position in range(0, size, _PIECE_BYTES):
                    if self._closed:
                        break
                    was_cold |= file.read_ahead(position, min(_PIECE_BYTES, size - position))
                left -= size
            finally:
                file.close()
        return was_cold
