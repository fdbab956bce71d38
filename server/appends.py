"""Appends that need a thread: batches whose records must be (de)compressed before they can be appended.

The codecs release the interpreter lock, so a thread can do it while the loop goes on. The appends of one partition stay
in order: whatever comes for that partition later waits behind, and nobody else does. Batches of up to
`INLINE_BYTES` are prepared on the loop, where they cost less than handing them over.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ..log.validation import needs_recompression, recompress
from ..protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ..replication.partition import Partition
    from .background import Lane

logger = logging.getLogger(__name__)

INLINE_BYTES = 4096

Buffer = bytes | bytearray | memoryview


class Append(Protocol):
    """Appends the prepared batch; ``validated`` says that its records were looked at already."""

    def __call__(self, prepared: Buffer, *, validated: bool) -> None: ...


Done = Callable[[KafkaError | None], None]


class AppendQueues:
    """The partitions that have appends in a thread, each with its queue."""

    def __init__(self, lane: Lane, now_ms: Callable[[], int]) -> None:
        self._lane = lane
        self._now_ms = now_ms
        self._queues: dict[Partition, deque[tuple[Buffer, Append, Done]]] = {}

    def is_waiting(self, partition: Partition) -> bool:
        """Whether appends of this partition are on their way, which later ones may not overtake."""
        return bool(self._queues) and partition in self._queues

    def must_queue(self, partition: Partition, records: Buffer) -> bool:
        """Whether this append has to go by way of `submit`."""
        if self.is_waiting(partition):
            return True
        config = partition.log.config
        return (
            config.compression_type != "producer"
            and len(records) > INLINE_BYTES
            and needs_recompression(records, config)
        )

    def submit(self, partition: Partition, records: Buffer, append: Append, done: Done) -> None:
        """Recompress ``records`` if they need it, and call ``append`` and then ``done``, on the loop, in order.

        ``done`` gets the `KafkaError` of either step. Nobody may change ``records`` before.
        """
        queue = self._queues.get(partition)
        if queue is not None:
            queue.append((records, append, done))
            return
        self._queues[partition] = deque([(records, append, done)])
        self._next(partition)

    def _next(self, partition: Partition) -> None:
        queue = self._queues[partition]
        while queue:
            records, append, done = queue[0]
            config = partition.log.config
            if len(records) > INLINE_BYTES and needs_recompression(records, config):
                work = partial(recompress, records, config, now_ms=self._now_ms())
                self._lane.run(work).add_done_callback(partial(self._prepared, partition))
                return
            queue.popleft()
            self._run(partial(append, records, validated=False), done)
        del self._queues[partition]

    def _prepared(self, partition: Partition, future: asyncio.Future[bytes]) -> None:
        _, append, done = self._queues[partition].popleft()
        self._run(lambda: append(future.result(), validated=True), done)
        self._next(partition)

    @staticmethod
    def _run(append: Callable[[], None], done: Done) -> None:
        error: KafkaError | None = None
        try:
            append()
        except KafkaError as refused:
            error = refused
        except asyncio.CancelledError:
            error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The server stops.")
        except Exception:
            logger.exception("An append failed by our own fault")
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The server has made a mistake; its log says more.")
        try:
            done(error)
        except Exception:  # whoever waits behind must not wait for ever
            logger.exception("The end of an append could not be told")
