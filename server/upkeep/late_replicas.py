"""Replicas that the metadata place here, but whose logs could not be created: retried later, without a restart.

A topic is committed to the metadata log before its directories are created. Therefore it exists even if a directory
could not be created for lack of disk space or file descriptors. Such a partition returns KAFKA_STORAGE_ERROR, which
clients retry, as on a full disk (docs/decisions/0009, 0016). A timer retries, not each request for the partition:
thousands of requests per second must not become thousands of attempts. Without late replicas there is no timer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...protocol.errors import KafkaError
    from ..concurrency.timers import Timer, TimerWheel

logger = logging.getLogger(__name__)

RETRY_MS = 1000

_FAILURES_PER_PASS = 16
"""After this many failures the next one would probably fail, too: the disk is full, or no descriptor is free."""

_MADE_PER_PASS = 32
"""These take about a millisecond on the event loop."""

Replica = tuple[bytes, int]
"""Topic id and index of a partition."""


class LateReplicas:
    """See the module docstring. Belongs to the broker's event loop."""

    def __init__(self, timers: TimerWheel, make: Callable[[bytes, int], None]) -> None:
        """``make`` retries, and calls `discard` if the log is created or is no longer needed."""
        self._timers = timers
        self._make = make
        self._waiting: dict[Replica, None] = {}
        self._timer: Timer | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, topic: str, topic_id: bytes, index: int, error: KafkaError) -> None:
        """The log of this replica could not be created."""
        if not self._waiting:
            logger.error(
                "Cannot serve %s-%d yet; retrying every %g s: %s",
                topic,
                index,
                RETRY_MS / 1000,
                error.message,
            )
        self._waiting[topic_id, index] = None
        self._wait(RETRY_MS)

    def discard(self, topic_id: bytes, index: int) -> bool:
        """The log has been created, or is no longer needed. Returns whether the replica was late."""
        return self._waiting.pop((topic_id, index), True) is None

    def close(self) -> None:
        """Stop retrying."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, delay_ms: int) -> None:
        if self._timer is None and not self._closed:
            self._timer = self._timers.call_after(delay_ms, self._try_again)

    def _try_again(self) -> None:
        self._timer = None
        failed = made = 0
        for replica in list(self._waiting):
            if failed == _FAILURES_PER_PASS or made == _MADE_PER_PASS:
                break
            try:
                self._make(*replica)
            except OSError as error:  # from the first import of a module, which needs a descriptor
                logger.warning("Cannot serve a partition yet: %s", error)
            except Exception:
                logger.exception("Retrying a partition failed with an unexpected error; it is not retried again")
                self._waiting.pop(replica, None)
            if replica in self._waiting:
                failed += 1
                del self._waiting[replica]
                self._waiting[replica] = None  # behind the others
            else:
                made += 1
        if not self._waiting:
            logger.info("All partitions are served again")
        elif made == _MADE_PER_PASS:
            self._wait(0)
        else:
            self._wait(RETRY_MS)
