"""Appends that may have to wait: batches whose records must be looked at or recompressed before they can be appended.

Small ones are prepared on the loop, where that costs less than handing them over; `decoding` does the others elsewhere.
The appends of one partition stay in order: whatever comes for that partition later waits behind, and no other one does.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ..log.validation import Prepared, needs_recompression, needs_records, prepared_batch
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.records import ATTRIBUTES_POSITION, CODEC_MASK
from .decode_jobs import Outcome, Prepare, copy_of, internal_error
from .decoding import INLINE_BYTES

if TYPE_CHECKING:
    from ..log.config import LogConfig
    from ..replication.partition import Partition
    from .decoding import Decoder

logger = logging.getLogger(__name__)

RECOMPRESSED_INLINE_BYTES = 4096
"""The largest batch that is recompressed on the loop. One that is not compressed is given to the log as it is up to
this size: a look at the records of so few bytes is short."""

Buffer = bytes | bytearray | memoryview


class Append(Protocol):
    """Appends the prepared batch; ``validated`` says that its records were looked at already."""

    def __call__(self, prepared: Buffer, *, validated: bool) -> None: ...


Done = Callable[[KafkaError | None], None]


class _Queue:
    """The appends of a partition; the first is being prepared."""

    __slots__ = ("appends", "cancel")

    def __init__(self) -> None:
        self.appends: deque[tuple[Buffer, Append, Done]] = deque()
        self.cancel: Callable[[], None] | None = None


class AppendQueues:
    """The partitions that have appends on their way, each with its queue."""

    def __init__(self, decoder: Decoder, now_ms: Callable[[], int]) -> None:
        self._decoder = decoder
        self._now_ms = now_ms
        self._queues: dict[Partition, _Queue] = {}

    def is_waiting(self, partition: Partition) -> bool:
        """Whether appends of this partition are on their way, which later ones may not overtake."""
        return bool(self._queues) and partition in self._queues

    def must_queue(self, partition: Partition, records: Buffer) -> bool:
        """Whether this append has to go by way of `submit`."""
        return self.is_waiting(partition) or self._must_prepare(partition, records)

    def _must_prepare(self, partition: Partition, records: Buffer) -> bool:
        """Could looking at the records take long? Not those of a small batch that is not compressed."""
        if len(records) <= RECOMPRESSED_INLINE_BYTES and (
            len(records) <= ATTRIBUTES_POSITION + 1 or not records[ATTRIBUTES_POSITION + 1] & CODEC_MASK
        ):
            return False
        return needs_records(records, partition.log.config, now_ms=self._now_ms())

    def submit(self, partition: Partition, records: Buffer, append: Append, done: Done) -> None:
        """Prepare ``records`` if they need it, and call ``append`` and then ``done``, on the loop, in order; perhaps
        before this returns.

        ``done`` gets the `KafkaError` of either step. ``records`` may not be changed before.
        """
        queue = self._queues.get(partition)
        if queue is not None:
            queue.appends.append((records, append, done))
            return
        queue = self._queues[partition] = _Queue()
        queue.appends.append((records, append, done))
        self._next(partition, queue)

    def forget(self, partition: Partition) -> None:
        """The partition is not served any more: what waits is refused."""
        queue = self._queues.pop(partition, None)
        if queue is None:
            return
        if queue.cancel is not None:
            queue.cancel()
        while queue.appends:
            _, _, done = queue.appends.popleft()
            _complete(done, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _next(self, partition: Partition, queue: _Queue) -> None:
        while queue.appends:
            records, append, done = queue.appends[0]
            if not self._must_prepare(partition, records):
                queue.appends.popleft()
                _run(partial(append, records, validated=False), done)
                continue
            config = partition.log.config
            job = Prepare(records, config, self._now_ms())
            limit = RECOMPRESSED_INLINE_BYTES if needs_recompression(records, config) else INLINE_BYTES
            outcome = self._decoder.attempt_now(job, limit)
            if outcome is None:
                queue.cancel = self._decoder.submit(job, partial(self._prepared, partition, queue, config))
                return
            queue.appends.popleft()
            _append(outcome, records, config, append, done)
        if self._queues.get(partition) is queue:
            del self._queues[partition]

    def _prepared(self, partition: Partition, queue: _Queue, config: LogConfig, outcome: Outcome) -> None:
        queue.cancel = None
        if self._queues.get(partition) is not queue:
            return
        records, append, done = queue.appends.popleft()
        _append(outcome, records, config, append, done)
        self._next(partition, queue)


def _append(outcome: Outcome, records: Buffer, config: LogConfig, append: Append, done: Done) -> None:
    if outcome.error is not None:
        _complete(done, outcome.error)
        return
    prepared = outcome.value
    assert isinstance(prepared, Prepared)
    _run(lambda: append(prepared_batch(records, prepared, config), validated=True), done)


def _run(append: Callable[[], None], done: Done) -> None:
    error: KafkaError | None = None
    try:
        append()
    except KafkaError as refused:
        error = copy_of(refused)  # its frames hold the batch
    except Exception:
        logger.exception("An append failed with an unexpected error")
        error = internal_error()
    _complete(done, error)


def _complete(done: Done, error: KafkaError | None) -> None:
    try:
        done(error)
    except Exception:  # those that wait behind must not wait for ever
        logger.exception("The end of an append could not be handled")
