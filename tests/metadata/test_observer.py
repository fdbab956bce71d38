"""The observer: which request follows which response, and the effects of responses."""

import pytest

from moldau.metadata.checkpoint import SnapshotId
from moldau.metadata.observer import (
    Address,
    Append,
    Committed,
    Identity,
    LeaderKnown,
    Observer,
    ObserverError,
    SnapshotComplete,
    SnapshotPiece,
    Truncate,
)
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import fetch as fetches
from moldau.protocol.messages import fetch_snapshot as snapshots
from moldau.protocol.messages.fetch import FetchRequest, FetchResponse
from moldau.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse

A, B, C = (Address("a", 1), Address("b", 2), Address("c", 3))
ADDRESSES = {101: A, 102: B, 103: C}


class Copy:
    """The copy of the log: epochs with their end offsets."""

    def __init__(self, *epochs: tuple[int, int]) -> None:
        self.epochs = list(epochs)

    @property
    def end_offset(self) -> int:
        return self.epochs[-1][1] if self.epochs else 0

    @property
    def latest_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else 0

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return max((each for each in self.epochs if each[0] <= epoch), default=(-1, -1))


def observer(copy: Copy | None = None, *, epoch: int = 0, high_watermark: int = -1) -> Observer:
    identity = Identity(1, "cluster", bytes(16))
    return Observer(identity, [A, B, C], copy or Copy(), epoch=epoch, high_watermark=high_watermark)


def fetched(
    *,
    error: ErrorCode = ErrorCode.NONE,
    leader: int = 101,
    epoch: int = 1,
    high_watermark: int = -1,
    records: bytes | None = None,
    diverging: tuple[int, int] | None = None,
    snapshot: tuple[int, int] | None = None,
) -> FetchResponse:
    partition = fetches.PartitionData(
        error_code=error,
        high_watermark=high_watermark,
        current_leader=fetches.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
        records=records,
    )
    if diverging is not None:
        partition.diverging_epoch = fetches.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
    if snapshot is not None:
        partition.snapshot_id = fetches.SnapshotId(end_offset=snapshot[0], epoch=snapshot[1])
    nodes = [fetches.NodeEndpoint(node_id=n, host=a.host, port=a.port) for n, a in ADDRESSES.items() if n == leader]
    return FetchResponse(
        responses=[fetches.FetchableTopicResponse(partitions=[partition])], node_endpoints=nodes, session_id=0
    )


def piece(
    data: bytes = b"", *, size: int = 0, position: int = 0, error: ErrorCode = ErrorCode.NONE
) -> FetchSnapshotResponse:
    partition = snapshots.ResponsePartitionSnapshot(
        error_code=error, size=size, position=position, unaligned_records=data
    )
    return FetchSnapshotResponse(topics=[snapshots.ResponseTopicSnapshot(partitions=[partition])])


def following(copy: Copy | None = None) -> Observer:
    """An observer that knows the leader 101 of epoch 1."""
    made = observer(copy)
    made.handle(fetched(error=ErrorCode.FENCED_LEADER_EPOCH))
    return made


def test_the_first_server_names_the_leader() -> None:
    made = observer()
    assert made.destination == A
    effects = made.handle(fetched(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=102, epoch=4))
    assert effects == [LeaderKnown(102, 4)]
    assert (made.destination, made.pause_ms, made.problem) == (B, 0, None)
    request = made.request()
    assert isinstance(request, FetchRequest)
    assert request.topics[0].partitions[0].current_leader_epoch == 4


def test_records_are_appended_and_committed_separately() -> None:
    made = following()
    assert made.handle(fetched(records=b"x")) == [Append(b"x", 1)]
    assert made.handle(fetched(records=b"y", high_watermark=7)) == [Append(b"y", 1), Committed(7)]
    assert made.handle(fetched(high_watermark=7)) == []
    assert made.high_watermark == 7


def test_the_high_watermark_of_a_new_leader_does_not_lower_the_known_one() -> None:
    made = following(Copy((1, 7)))
    made.handle(fetched(high_watermark=7))
    assert made.handle(fetched(leader=102, epoch=2, records=b"z", high_watermark=-1)) == [
        LeaderKnown(102, 2),
        Append(b"z", 2),
    ]
    assert made.high_watermark == 7


def test_a_response_of_an_older_epoch_is_ignored() -> None:
    made = observer(epoch=5)
    assert made.handle(fetched(epoch=4, records=b"old", high_watermark=9)) == []
    assert (made.epoch, made.high_watermark) == (5, -1)
    assert made.pause_ms > 0


def test_divergence_cuts_to_the_common_part_and_ignores_the_high_watermark() -> None:
    made = following(Copy((1, 10), (3, 20)))
    assert made.handle(fetched(diverging=(1, 8), high_watermark=30)) == [Truncate(8)]
    assert made.handle(fetched(diverging=(2, 15))) == [Truncate(10)]
    assert made.handle(fetched(diverging=(3, 15))) == [Truncate(15)]
    assert made.high_watermark == -1


def test_committed_records_are_never_truncated() -> None:
    made = following(Copy((1, 10)))
    made.handle(fetched(high_watermark=9))
    with pytest.raises(ObserverError, match="has lost metadata"):
        made.handle(fetched(diverging=(1, 8)))


def test_a_snapshot_is_fetched_in_pieces() -> None:
    made = following()
    assert made.handle(fetched(snapshot=(100, 1))) == []
    request = made.request()
    assert isinstance(request, FetchSnapshotRequest)
    assert request.topics[0].partitions[0].position == 0
    snapshot = SnapshotId(100, 1)
    assert made.handle(piece(b"abc", size=5)) == [SnapshotPiece(snapshot, 0, b"abc")]
    request = made.request()
    assert isinstance(request, FetchSnapshotRequest)
    assert request.topics[0].partitions[0].position == 3
    assert made.handle(piece(b"de", size=5, position=3)) == [
        SnapshotPiece(snapshot, 3, b"de"),
        SnapshotComplete(snapshot),
    ]
    assert made.high_watermark == 100
    assert isinstance(made.request(), FetchRequest)


@pytest.mark.parametrize("error", [ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE])
def test_a_deleted_snapshot_is_requested_again(error: ErrorCode) -> None:
    made = following()
    made.handle(fetched(snapshot=(100, 1)))
    assert made.handle(piece(error=error)) == []
    assert isinstance(made.request(), FetchRequest)
    assert made.pause_ms == 0


def test_an_empty_piece_is_no_progress() -> None:
    made = following()
    made.handle(fetched(snapshot=(100, 1)))
    assert made.handle(piece(b"", size=5)) == []
    assert made.pause_ms > 0


def test_the_wait_grows_while_the_log_does_not_change() -> None:
    seen = following()
    seen.handle(fetched(high_watermark=5, records=b"records"))
    waits = []
    for _ in range(6):
        request = seen.request()
        assert isinstance(request, FetchRequest)
        waits.append((request.max_wait_ms, seen.extra_wait_ms))
        seen.handle(fetched(high_watermark=5))
    assert waits == [(500, 0), (1000, 500), (2000, 1500), (4000, 3500), (7700, 7200), (7700, 7200)]
    seen.handle(fetched(high_watermark=5, records=b"records"))
    assert seen.extra_wait_ms == 0
    seen.handle(fetched(high_watermark=5))
    seen.handle(fetched(high_watermark=6))
    assert seen.extra_wait_ms == 0
    seen.handle(fetched(high_watermark=6))
    seen.failed("no response")
    assert seen.extra_wait_ms == 0


def test_after_a_failure_of_the_leader_all_servers_are_tried_with_growing_pauses() -> None:
    made = following()
    requested, pauses = [], []
    for _ in range(8):
        requested.append(made.destination)
        made.failed("connection refused")
        pauses.append(made.pause_ms)
    assert set(requested) == {A, B, C}
    assert pauses == [20, 40, 80, 160, 320, 320, 320, 320]
    assert made.problem == "connection refused"
    made.handle(fetched(leader=103, epoch=2))
    assert (made.destination, made.pause_ms) == (C, 0)
    assert made.problem is None


def test_another_cluster_is_refused() -> None:
    with pytest.raises(ObserverError, match="belongs to another cluster"):
        observer().handle(FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, session_id=0))


def test_a_server_that_is_no_controller_is_named() -> None:
    made = observer()
    made.handle(fetched(error=ErrorCode.UNKNOWN_TOPIC_ID, leader=-1, epoch=-1))
    assert made.problem is not None
    assert "not a listener of a controller" in made.problem
    assert made.destination == B
