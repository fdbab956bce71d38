"""The leader's half of the replication of the metadata log (KIP-595, KIP-630): what an observer may read.

An observer sends the end of its copy of the log: an offset, and the epoch of the last record before it. `Position`
compares it with the log of the leader. The copy is the beginning of the log, and its next records follow; or it has
records that the leader lacks, and is to be truncated; or the leader no longer has the records after it, and a snapshot
replaces the copy.

Only durable records are sent: in a quorum of one these are committed, so an observer never has a record that the leader
could lose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from ..protocol.errors import ErrorCode
from .checkpoint import SnapshotId

if TYPE_CHECKING:
    from .image import MetadataImage

_NO_SNAPSHOT: Final = SnapshotId(0, 0)
"""The snapshot that formatting writes. It holds no metadata, only the first voter, which the log names too."""


class Records(NamedTuple):
    """The copy is the beginning of the leader's log: the records from its end on follow."""


class Diverging(NamedTuple):
    """The copy has records that the leader does not have. It is to be truncated to this epoch and end offset."""

    epoch: int
    end_offset: int


class FromSnapshot(NamedTuple):
    """The leader no longer has the records after the copy. This snapshot replaces it."""

    snapshot: SnapshotId


Position = Records | Diverging | FromSnapshot


class LeaderLog(NamedTuple):
    """The log of the leader."""

    start_offset: int
    earliest_snapshot: SnapshotId | None
    latest_snapshot: SnapshotId | None
    latest_epoch: int
    """The epoch of the last record."""
    end_offset_for_epoch: Callable[[int], tuple[int, int]]
    """The largest epoch up to this one, and its end offset; (-1, -1) if unknown."""


def position_of(fetch_offset: int, last_fetched_epoch: int, log: LeaderLog) -> Position:
    """What the observer whose copy ends at `fetch_offset` needs next."""
    latest = log.latest_snapshot
    if fetch_offset == 0 and latest is not None and latest != _NO_SNAPSHOT:
        return FromSnapshot(latest)  # shorter than the log before its end
    if fetch_offset == 0 and last_fetched_epoch == 0 and log.start_offset == 0:
        return Records()
    earliest = log.earliest_snapshot
    if (
        earliest is not None
        and latest is not None
        and (
            fetch_offset < log.start_offset
            or (fetch_offset == log.start_offset and last_fetched_epoch != earliest.epoch)
            or last_fetched_epoch < earliest.epoch
        )
    ):
        return FromSnapshot(latest)
    # An epoch after all epochs of this log is one that the leader does not know: the copy can have at most this log.
    epoch, end_offset = log.end_offset_for_epoch(min(last_fetched_epoch, log.latest_epoch))
    if epoch != last_fetched_epoch or end_offset < fetch_offset:
        return Diverging(epoch, end_offset)
    return Records()


def check_leader_epoch(current_leader_epoch: int, epoch: int) -> ErrorCode:
    """The error of a request that was sent to the leader of another epoch."""
    if current_leader_epoch < epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if current_leader_epoch > epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE


class Piece(NamedTuple):
    """A range of bytes of a snapshot file."""

    position: int
    length: int


def snapshot_piece(position: int, max_bytes: int, size: int) -> Piece | ErrorCode:
    """The part of a snapshot file of `size` bytes that an observer requested."""
    if not 0 <= position < size:
        return ErrorCode.POSITION_OUT_OF_RANGE
    return Piece(position, min(max(max_bytes, 0), size - position))


class ObserverState(NamedTuple):
    """The latest fetch of an observer, for DescribeQuorum."""

    replica_id: int
    directory_id: bytes
    end_offset: int
    """The end of its copy of the log."""
    last_fetch_ms: int
    last_caught_up_ms: int


_EXPIRATION_MS: Final = 300_000
"""An observer that has not fetched for this time is no longer listed, as in Apache Kafka."""


class Observers:
    """The observers that fetch the log, by node and directory."""

    def __init__(self) -> None:
        self._states: dict[tuple[int, bytes], ObserverState] = {}

    def fetched(self, replica_id: int, directory_id: bytes, fetch_offset: int, end_offset: int, now_ms: int) -> None:
        """An observer has sent a valid fetch. `end_offset` is the end of the leader's log."""
        before = self._states.get((replica_id, directory_id))
        caught_up_ms = now_ms if fetch_offset >= end_offset else -1 if before is None else before.last_caught_up_ms
        state = ObserverState(replica_id, directory_id, fetch_offset, now_ms, caught_up_ms)
        self._states[replica_id, directory_id] = state

    def states(self, now_ms: int) -> list[ObserverState]:
        """The observers that are not expired, by node."""
        self._states = {
            key: state for key, state in self._states.items() if now_ms - state.last_fetch_ms < _EXPIRATION_MS
        }
        return sorted(self._states.values())


def controller_endpoints(image: MetadataImage) -> list[tuple[int, str, int]]:
    """Node id, host and port of each registered controller, for clients of the controllers (KIP-919)."""
    return [
        (controller.id, endpoint.host, endpoint.port)
        for controller in sorted(image.controllers.values(), key=lambda each: each.id)
        for endpoint in list(controller.listeners.values())[:1]
    ]
