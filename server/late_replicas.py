"""Replicas that the metadata place here, and whose logs could not be made yet: made later, without a restart.

A topic is committed to the metadata log before its directories are made, so it exists when there is no room for one of
them, or no descriptor. Such a partition answers KAFKA_STORAGE_ERROR, which clients retry, as one on a full disk does
(docs/decisions/0009, 0016). It is tried again by a timer, and not by each request that asks for it: thousands of
requests a second must not become thousands of attempts. Nothing runs while nothing is late.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..protocol.errors import KafkaError
    from .timers import Timer, TimerWheel

logger = logging.getLogger(__name__)

RETRY_MS = 1000

_FAILURES_PER_PASS = 16
"""Most likely the next one would fail, too: one disk is full, or there is no descriptor for any."""

_MADE_PER_PASS = 32
"""About a millisecond of the loop."""

Replica = tuple[bytes, int]
"""Topic id and index of a partition."""


class LateReplicas:
    """See the module's text. Belongs to the broker's event loop."""

    def __init__(self, timers: TimerWheel, make: Callable[[bytes, int], None]) -> None:
        """``make`` tries again, and calls `discard` if the replica is made, or cannot be made later either."""
        self._timers = timers
        self._make = make
        self._waiting: dict[Replica, None] = {}
        self._timer: Timer | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, topic: str, topic_id: bytes, index: int, error: KafkaError) -> None:
        """The log of this replica could not be made."""
        if not self._waiting:
            logger.error(
                "%s-%d cannot be served yet, and is tried again every %g s: %s",
                topic,
                index,
                RETRY_MS / 1000,
                error.message,
            )
        self._waiting[topic_id, index] = None
        self._wait(RETRY_MS)

    def discard(self, topic_id: bytes, index: int) -> bool:
        """It is made, or not wanted any more; whether it was late."""
        return self._waiting.pop((topic_id, index), True) is None

    def close(self) -> None:
        """Try nothing more."""
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
            except OSError as error:  # of a module that is loaded now, and needs a descriptor
                logger.warning("A partition cannot be served yet: %s", error)
            except Exception:
                logger.exception("A partition that could not be served was given up by an unexpected error")
                self._waiting.pop(replica, None)
            if replica in self._waiting:
                failed += 1
                del self._waiting[replica]
                self._waiting[replica] = None  # behind the others
            else:
                made += 1
        if not self._waiting:
            logger.info("No partition waits for its log any more")
        elif made == _MADE_PER_PASS:
            self._wait(0)
        else:
            self._wait(RETRY_MS)
