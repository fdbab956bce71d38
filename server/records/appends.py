"""Appends that may have to wait: batches whose records must be checked or recompressed first, and large batches.

Small batches are prepared on the event loop, where that costs less than passing them on; `decoder` prepares the others.
The checksum and the write of a large batch are done in slices (`slices`), and its memory is freed in slices, too. The
appends of one partition stay in order: later appends to that partition wait, other partitions do not.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ...log.files import RealFileSystem
from ...log.validation import (
    LARGE_BYTES,
    Prepared,
    batch_in,
    checked_batch,
    needs_recompression,
    needs_records,
    prepared_batch,
)
from ...protocol.checksum import crc32c_steps
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records import ATTRIBUTES_POSITION, CODEC_MASK, LOG_OVERHEAD, Buffer
from ..network.huge_frames import free_steps
from .decode_jobs import Outcome, Prepare, copy_of, internal_error
from .decoder import INLINE_BYTES

if TYPE_CHECKING:
    from ...log.config import LogConfig
    from ...log.partition_log import WrittenAhead
    from ...log.verification import Verification
    from ...replication.partition import Partition
    from ..concurrency.slices import Sliced, Slices
    from .decoder import Decoder

logger = logging.getLogger(__name__)

RECOMPRESSED_INLINE_BYTES = 4096
"""The largest batch that is recompressed on the event loop. Up to this size, an uncompressed batch goes directly to the
log: checking the records of so few bytes is short."""

_FAILURE_LOG_SECONDS = 10.0

LENGTH_POSITION = 8  # of the batch's length


class Append(Protocol):
    """Appends the prepared batch. ``validated``: its records have been checked. ``ahead``: the part of it that has
    already been written."""

    def __call__(self, prepared: Buffer, *, validated: bool, ahead: WrittenAhead | None = None) -> None: ...


Done = Callable[[KafkaError | None], None]


class _Queue:
    """The appends of a partition. The first one is being prepared."""

    __slots__ = ("appends", "cancel", "cancelled")

    def __init__(self) -> None:
        self.appends: deque[tuple[Buffer, Append, Done, Verification | None]] = deque()
        self.cancel: Callable[[], None] | None = None
        self.cancelled = False  # see `slices.Owner`


class AppendQueues:
    """The partitions with pending appends, each with its queue."""

    def __init__(self, decoder: Decoder, slices: Slices, now_ms: Callable[[], int]) -> None:
        self._decoder = decoder
        self._failure_logged = -math.inf
        self._slices = slices
        self._now_ms = now_ms
        self._queues: dict[Partition, _Queue] = {}

    def is_waiting(self, partition: Partition) -> bool:
        """Whether the partition has pending appends, which later ones must not overtake."""
        return bool(self._queues) and partition in self._queues

    def must_queue(self, partition: Partition, records: Buffer) -> bool:
        """Whether this append must use `submit`."""
        return len(records) > LARGE_BYTES or self.is_waiting(partition) or self._must_prepare(partition, records)

    def _must_prepare(self, partition: Partition, records: Buffer) -> bool:
        """Whether checking the records may take long. Small uncompressed batches never do."""
        if len(records) <= RECOMPRESSED_INLINE_BYTES and (
            len(records) <= ATTRIBUTES_POSITION + 1 or not records[ATTRIBUTES_POSITION + 1] & CODEC_MASK
        ):
            return False
        return needs_records(records, partition.log.config, now_ms=self._now_ms())

    def submit(
        self,
        partition: Partition,
        records: Buffer,
        append: Append,
        done: Done,
        verification: Verification | None = None,
    ) -> None:
        """Prepare ``records`` if needed, then call ``append`` and ``done``, on the event loop, in order.

        The calls may happen before this returns. ``done`` gets the `KafkaError` of either step. Until then the caller
        must not change ``records``. The memory of large records may be changed here, and freed. ``verification``: see
        `Log.append`.
        """
        queue = self._queues.get(partition)
        if queue is not None:
            queue.appends.append((records, append, done, verification))
            return
        queue = self._queues[partition] = _Queue()
        queue.appends.append((records, append, done, verification))
        self._next(partition, queue)

    def storage_failed(self, error: KafkaError) -> None:
        """An append failed because of the disk: log this, but not for each of thousands of requests."""
        now = self._slices.clock()
        if now - self._failure_logged >= _FAILURE_LOG_SECONDS:
            self._failure_logged = now
            logger.error("An append failed; the request was rejected: %s", error)

    def forget(self, partition: Partition) -> None:
        """The partition is no longer served: pending appends are rejected."""
        queue = self._queues.pop(partition, None)
        if queue is None:
            return
        if queue.cancel is not None:
            queue.cancel()
        queue.cancelled = True
        while queue.appends:
            _, _, done, _ = queue.appends.popleft()
            _complete(done, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _next(self, partition: Partition, queue: _Queue) -> None:
        while queue.appends:
            records, append, done, _ = queue.appends[0]
            if len(records) > LARGE_BYTES:
                self._slices.begin(self._in_slices(partition, queue), queue, immediately=False)
                return
            if not self._must_prepare(partition, records):
                queue.appends.popleft()
                _run(partial(append, records, validated=False), done)
                continue
            config = partition.log.config
            job = Prepare(records, config, self._now_ms(), directory=_spool_directory(partition))
            recompresses = needs_recompression(records, config)
            partition.traffic.conversions += recompresses
            limit = RECOMPRESSED_INLINE_BYTES if recompresses else INLINE_BYTES
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
            self._decoder.process.release_result(outcome.held_bytes)
            return
        if outcome.held_bytes or len(queue.appends[0][0]) > LARGE_BYTES:
            self._slices.begin(self._append_checked(partition, queue, config, outcome), queue, immediately=False)
            return
        records, append, done, _ = queue.appends.popleft()
        _append(outcome, records, config, append, done)
        self._next(partition, queue)

    # -- large batches -------------------------------------------------------------------------------------------------

    def _in_slices(self, partition: Partition, queue: _Queue) -> Sliced[None]:
        """Verify the checksum of the first batch of the queue, then append it or submit its records for checking."""
        try:
            records = queue.appends[0][0]
            config, now_ms = partition.log.config, self._now_ms()
            crc = yield from _crc_steps(records)
            batch = checked_batch(records, config, crc)
            if needs_records(records, config, now_ms=now_ms):
                job = Prepare(batch.data, config, now_ms, checked=True, directory=_spool_directory(partition))
                queue.cancel = self._decoder.submit(job, partial(self._prepared, partition, queue, config))
                return
            error = yield from self._append_large(partition, queue, records, crc, validated=False)
        except KafkaError as refused:
            error = copy_of(refused)
        except Exception:
            logger.exception("An append failed with an unexpected error")
            error = internal_error()
        yield from self._end_large(partition, queue, error)

    def _append_checked(self, partition: Partition, queue: _Queue, config: LogConfig, outcome: Outcome) -> Sliced[None]:
        """Append the first batch of the queue, whose records have been checked. It is large before or after that."""
        error = outcome.error
        try:
            if error is None:
                prepared = outcome.value
                assert isinstance(prepared, Prepared)
                records = prepared_batch(queue.appends[0][0], prepared, config)
                # Batches from the decode process have a valid CRC.
                crc = batch_in(records).crc
                error = yield from self._append_large(partition, queue, records, crc, validated=True)
                if prepared.pieces is not None:
                    yield from free_steps(records)
        except Exception:
            logger.exception("An append failed with an unexpected error")
            error = internal_error()
        finally:
            self._decoder.process.release_result(outcome.held_bytes)
        yield from self._end_large(partition, queue, error)

    def _append_large(
        self, partition: Partition, queue: _Queue, records: Buffer, crc: int, *, validated: bool
    ) -> Sliced[KafkaError | None]:
        """Append this batch in place of the first batch of the queue."""
        _, append, _, verification = queue.appends[0]
        log = partition.log
        ahead = yield from log.write_ahead(records, now_ms=self._now_ms(), crc=crc, verification=verification)
        try:
            append(records, validated=validated, ahead=ahead)
        except KafkaError as refused:
            return copy_of(refused)
        finally:
            log.discard_ahead(ahead)
        return None

    def _end_large(self, partition: Partition, queue: _Queue, error: KafkaError | None) -> Sliced[None]:
        records, _, done, _ = queue.appends[0]
        yield from free_steps(records)
        queue.appends.popleft()
        _complete(done, error)
        self._next(partition, queue)


def _crc_steps(records: Buffer) -> Sliced[int]:
    """The CRC of the first batch, in slices. The result is undefined for malformed bytes."""
    size = LOG_OVERHEAD + int.from_bytes(records[LENGTH_POSITION:LOG_OVERHEAD], "big")
    return (yield from crc32c_steps(memoryview(records)[ATTRIBUTES_POSITION:size]))


def _spool_directory(partition: Partition) -> str | None:
    log = partition.log
    return log.log_dir if isinstance(log.files.file_system, RealFileSystem) else None


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
        error = copy_of(refused)  # its frames refer to the batch
    except Exception:
        logger.exception("An append failed with an unexpected error")
        error = internal_error()
    _complete(done, error)


def _complete(done: Done, error: KafkaError | None) -> None:
    try:
        done(error)
    except Exception:  # the appends behind this one must not wait forever
        logger.exception("Completing an append failed with an unexpected error")
