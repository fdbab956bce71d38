"""One partition that this broker follows: what to request next, and what to do with a response.

A follower fetches from its log end, and names the latest leader epoch of its log. If the leader's log has another
history, the response contains no records, but the epoch and the end offset up to which both logs can be the same
(KIP-595). The follower truncates its log to that point and fetches again, until the logs agree. A log without any
leader epoch is truncated to its high watermark first, because only the records below it are certainly the leader's.

A truncation must be durable before records are appended. So it is a separate step (`truncate`), which its caller
surrounds by the file work that waits for the device: `server.replication.truncation`.

A diverging response also has a high watermark and a log start offset. They are ignored: this log has not been
truncated yet (KAFKA-14704).

If the requested offset is not in the leader's log, the follower asks for the leader's log end, and continues from there
if its own log is longer. Otherwise the leader has deleted the records that come next, and the follower starts again at
the leader's log start offset, with an empty log.

A response counts only if the partition still has the leader and the leader epoch of the request, and the same log end.

`now_ms` is the time of a monotonic clock, except in parameters named `wall_ms`, which set the times of log segments.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from ..protocol.errors import ErrorCode, KafkaError, known_error

if TYPE_CHECKING:
    from ..log.truncation import PreparedTruncation
    from ..protocol.messages.fetch import PartitionData
    from ..protocol.steps import Steps
    from .partition import Partition

UNKNOWN_EPOCH: Final = -1
UNKNOWN_OFFSET: Final = -1

FIRST_PAUSE_MS: Final = 50
"""The pause after the first failure. It doubles with each further one, up to `replica.fetch.backoff.ms`."""


class Position(NamedTuple):
    """What a follower requests for a partition."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class Next(Enum):
    """What follows a response."""

    FETCH = "request the next records"
    TRUNCATE = "truncate the log"
    PAUSE = "request them again after a pause"
    FIND_OFFSET = "ask the leader for its log end and its log start offset"
    STOP = "wait for a change of the metadata, or of the log directory"


class Truncation(NamedTuple):
    """A truncation that is due."""

    offset: int
    """The records from this offset on are removed."""
    is_complete: bool = False
    """All records are removed; the next one has the offset."""


class Following:
    """A partition and the leader that it follows in one leader epoch."""

    __slots__ = (
        "_resume_ms",
        "failures",
        "is_caught_up",
        "is_obstructed",
        "leader_epoch",
        "leader_id",
        "partition",
        "problem",
        "stopped",
        "truncation",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_id = partition.leader_id
        self.leader_epoch = partition.leader_epoch
        self.problem: str | None = None
        """Why the latest response brought no progress; None if it did."""
        self.stopped = False
        self.is_caught_up = False
        """Whether this log had everything below the leader's high watermark after the latest response."""
        self.failures = 0
        """The number of failures since the latest progress."""
        self.is_obstructed = False
        """Whether this broker rejects what the leader sends: a full disk, corrupt records, another history. That does
        not end by itself."""
        self._resume_ms: int | None = None
        self.truncation: Truncation | None = None
        """What `truncate` does. Until then, nothing is requested."""
        log = partition.log
        if log.latest_epoch == UNKNOWN_EPOCH and log.log_end_offset > partition.high_watermark:
            self.truncation = Truncation(partition.high_watermark)

    @property
    def is_current(self) -> bool:
        """Whether the partition still has this leader in this epoch."""
        partition = self.partition
        return (
            partition.leader_epoch == self.leader_epoch
            and partition.leader_id == self.leader_id
            and not partition.offline
        )

    @property
    def resume_ms(self) -> int | None:
        """The end of the current pause; None if there is none."""
        return self._resume_ms

    def is_due(self, now_ms: int) -> bool:
        """Whether the next request may include the partition."""
        return not self.stopped and self.truncation is None and (self._resume_ms is None or now_ms >= self._resume_ms)

    @property
    def position(self) -> Position:
        """The next request for this partition."""
        log = self.partition.log
        return Position(self.leader_epoch, log.log_end_offset, log.latest_epoch, log.log_start_offset)

    # -- responses -----------------------------------------------------------------------------------------------------

    def handle(self, requested: Position, data: PartitionData, *, now_ms: int, wall_ms: int, max_pause_ms: int) -> Next:
        """Process the response to this request."""
        if not self.is_current:
            return Next.STOP
        if not self._is_next(requested):
            return Next.FETCH
        code = known_error(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return Next.FIND_OFFSET
        if code is not ErrorCode.NONE:
            return self.failed(f"the leader responds with {code.name}", now_ms=now_ms, max_pause_ms=max_pause_ms)
        try:
            if data.diverging_epoch.end_offset >= 0:
                self.truncation = self._truncation(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                return Next.TRUNCATE
            self.partition.append_as_follower(
                data.records or b"",  # type: ignore[arg-type]  # a response that was received has bytes
                high_watermark=data.high_watermark,
                log_start_offset=data.log_start_offset,
                now_ms=wall_ms,
            )
            self.is_caught_up = self.partition.log.log_end_offset >= data.high_watermark
        except KafkaError as error:
            return self._rejected(error, now_ms=now_ms, max_pause_ms=max_pause_ms)
        self._succeeded()
        return Next.FETCH

    def found_offsets(self, requested: Position, log_end_offset: int, log_start_offset: int) -> Next:
        """The leader's log end and log start offset, after a request that was out of range."""
        if not self.is_current:
            return Next.STOP
        own_end = self.partition.log.log_end_offset
        if not self._is_next(requested):
            return Next.FETCH
        if log_end_offset < own_end:
            self.truncation = Truncation(log_end_offset)
            return Next.TRUNCATE
        if log_start_offset > own_end:
            self.truncation = Truncation(log_start_offset, is_complete=True)
            return Next.TRUNCATE
        self._succeeded()
        return Next.FETCH

    def prepare_truncation(self) -> Steps[PreparedTruncation | None]:
        """What `truncate` would have to read, in steps (`Log.prepare_truncation`). None if it is not needed."""
        truncation = self.truncation
        if truncation is None or truncation.is_complete or not self.is_current:
            return None
        return (yield from self.partition.log.prepare_truncation(truncation.offset))

    def truncate(
        self,
        *,
        now_ms: int,
        wall_ms: int,
        max_pause_ms: int,
        sync: bool = True,
        prepared: PreparedTruncation | None = None,
    ) -> Next:
        """Truncate the log as `truncation` says. Without ``sync``, a flush of the log must follow."""
        truncation, self.truncation = self.truncation, None
        assert truncation is not None, "no truncation is due"
        if not self.is_current:
            return Next.STOP
        partition = self.partition
        before = self.position
        try:
            if truncation.is_complete:
                partition.restart_as_follower(truncation.offset, wall_ms, sync=sync)
            else:
                # At the log end, this removes the epoch of a leader that has not appended anything.
                partition.truncate_as_follower(truncation.offset, wall_ms, sync=sync, prepared=prepared)
        except KafkaError as error:
            return self._rejected(error, now_ms=now_ms, max_pause_ms=max_pause_ms)
        if self.position == before:
            problem = f"the leader's log diverges at offset {truncation.offset}, and this log has no other history"
            self.is_obstructed = True
            return self.failed(problem, now_ms=now_ms, max_pause_ms=max_pause_ms)
        self._succeeded()
        return Next.FETCH

    def failed(self, problem: str, *, now_ms: int, max_pause_ms: int) -> Next:
        """There was no progress because of ``problem``: pause."""
        self.problem = problem
        self._resume_ms = now_ms + min(FIRST_PAUSE_MS << min(self.failures, 16), max_pause_ms)
        self.failures += 1
        return Next.PAUSE

    def _is_next(self, requested: Position) -> bool:
        """Whether the request belongs to this leader epoch and to the present log end. The same leader may have been
        elected again since, with another history in between."""
        return (
            requested.leader_epoch == self.leader_epoch and requested.fetch_offset == self.partition.log.log_end_offset
        )

    def _rejected(self, error: KafkaError, *, now_ms: int, max_pause_ms: int) -> Next:
        if self.partition.log.offline is not None:
            self.problem = error.message
            self.stopped = True
            return Next.STOP
        self.is_obstructed = True
        return self.failed(str(error), now_ms=now_ms, max_pause_ms=max_pause_ms)

    def _succeeded(self) -> None:
        self.problem = None
        self.failures = 0
        self.is_obstructed = False
        self._resume_ms = None

    def _truncation(self, epoch: int, end_offset: int) -> Truncation:
        """To the end of what both logs can have in common: the leader has ``epoch`` up to ``end_offset``."""
        log = self.partition.log
        own_epoch, own_end_offset = log.end_offset_for_epoch(epoch) if epoch != UNKNOWN_EPOCH else (UNKNOWN_EPOCH, -1)
        return Truncation(end_offset if own_epoch == UNKNOWN_EPOCH else min(end_offset, own_end_offset))
