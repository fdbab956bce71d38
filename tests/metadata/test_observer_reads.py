"""The responses of the leader of the metadata log to an observer: records, a truncation, or a snapshot."""

import itertools
from collections.abc import Iterator

import pytest

from moldau.log.leader_epochs import LeaderEpochs
from moldau.metadata.checkpoint import SnapshotId
from moldau.metadata.observer_reads import (
    Diverging,
    FromSnapshot,
    LeaderLog,
    Observers,
    Piece,
    Records,
    check_leader_epoch,
    position_of,
    snapshot_piece,
)
from moldau.protocol.errors import ErrorCode

FORMATTED = SnapshotId(0, 0)

Epochs = tuple[int, ...]
"""A log: the epoch of each record."""


def leader_log(records: Epochs, *, start: int = 0, snapshots: tuple[SnapshotId, ...] = (FORMATTED,)) -> LeaderLog:
    epochs = LeaderEpochs()
    for offset, epoch in enumerate(records):
        if epoch != epochs.latest:
            epochs.assign(epoch, offset)
    epochs.truncate_from_start(start)
    return LeaderLog(
        start,
        snapshots[0] if snapshots else None,
        snapshots[-1] if snapshots else None,
        records[-1],
        lambda epoch: epochs.end_offset(epoch, len(records)),
    )


# A log of 5 records of the epochs 1 and 3; its snapshot at offset 3 has the records of epoch 1 and one of epoch 3.
LOG: Epochs = (1, 1, 3, 3, 3)
SNAPSHOT = SnapshotId(3, 3)


@pytest.mark.parametrize(
    ("fetch_offset", "last_fetched_epoch", "expected"),
    [
        (0, 0, Records()),
        (1, 1, Records()),
        (2, 1, Records()),
        (3, 3, Records()),
        (5, 3, Records()),
        (3, 1, Diverging(1, 2)),  # a record of epoch 1 that was never committed
        (3, 2, Diverging(1, 2)),  # of a leader that this log does not know
        (6, 3, Diverging(3, 5)),  # ahead in the same epoch: the leader has lost its end
        (5, 4, Diverging(3, 5)),  # an epoch after all known ones
        (2, 0, Diverging(0, 0)),  # an epoch before all known ones
    ],
)
def test_position_in_a_complete_log(fetch_offset: int, last_fetched_epoch: int, expected: object) -> None:
    assert position_of(fetch_offset, last_fetched_epoch, leader_log(LOG)) == expected
    assert position_of(fetch_offset, last_fetched_epoch, leader_log(LOG, snapshots=())) == expected


@pytest.mark.parametrize(
    ("fetch_offset", "last_fetched_epoch", "expected"),
    [
        (0, 0, FromSnapshot(SNAPSHOT)),
        (2, 1, FromSnapshot(SNAPSHOT)),
        (3, 1, FromSnapshot(SNAPSHOT)),  # ends where the log begins, after other records
        (3, 3, Records()),
        (4, 3, Records()),
        (5, 3, Records()),
        (6, 3, Diverging(3, 5)),
        (5, 4, Diverging(3, 5)),
        (4, 2, FromSnapshot(SNAPSHOT)),
    ],
)
def test_position_in_a_log_that_begins_after_a_snapshot(
    fetch_offset: int, last_fetched_epoch: int, expected: object
) -> None:
    log = leader_log(LOG, start=3, snapshots=(SNAPSHOT,))
    assert position_of(fetch_offset, last_fetched_epoch, log) == expected


def test_an_empty_copy_gets_the_latest_snapshot_although_the_log_is_complete() -> None:
    log = leader_log(LOG, snapshots=(FORMATTED, SNAPSHOT))
    assert position_of(0, 0, log) == FromSnapshot(SNAPSHOT)
    assert position_of(1, 1, log) == Records()


def test_a_copy_before_the_log_gets_the_latest_of_several_snapshots() -> None:
    log = leader_log(LOG, start=2, snapshots=(SnapshotId(2, 1), SnapshotId(4, 3)))
    assert position_of(1, 1, log) == FromSnapshot(SnapshotId(4, 3))
    assert position_of(2, 1, log) == Records()
    assert position_of(3, 3, log) == Records()


def histories(length: int) -> Iterator[Epochs]:
    return (epochs for n in range(length + 1) for epochs in itertools.combinations_with_replacement((1, 2, 3), n))


def match(a: Epochs, b: Epochs) -> bool:
    """Logs of one quorum: an epoch has one leader, so logs with records of the same epoch are equal up to them."""
    return all(a[: a.index(epoch)] == b[: b.index(epoch)] for epoch in set(a) & set(b))


def test_every_copy_converges() -> None:
    """Every copy that a quorum permits becomes the log of every leader, with and without snapshots."""
    checked = 0
    for records, copy in itertools.product(histories(4), histories(5)):
        if not records or not match(records, copy):
            continue
        if copy and copy[-1] > records[-1]:
            continue  # the leader of such a copy has a later epoch: see test_requests_name_the_epoch_of_the_leader
        for snapshot, start in itertools.product(range(len(records) + 1), repeat=2):
            if start > snapshot:
                continue
            kept = [FORMATTED if start == 0 else SnapshotId(start, records[start - 1])]
            if snapshot > start:
                kept.append(SnapshotId(snapshot, records[snapshot - 1]))
            log = leader_log(records, start=start, snapshots=tuple(kept))
            assert followed(copy, records, log) == records, (copy, records, kept)
            checked += 1
    assert checked > 1000


def followed(copy: Epochs, records: Epochs, log: LeaderLog) -> Epochs:
    """The copy after as many responses as it can need."""
    for _ in range(len(copy) + 3):
        match position_of(len(copy), copy[-1] if copy else 0, log):
            case Records():
                assert len(copy) >= log.start_offset
                assert copy == records[: len(copy)]
                return copy + records[len(copy) :]
            case Diverging(epoch, end_offset):
                kept = [each for each in copy if each <= epoch][:end_offset]
                assert len(kept) < len(copy), "nothing was truncated"
                copy = tuple(kept)
            case FromSnapshot(snapshot):
                copy = records[: snapshot.end_offset]
    return copy


def test_requests_name_the_epoch_of_the_leader() -> None:
    assert check_leader_epoch(4, 5) == ErrorCode.FENCED_LEADER_EPOCH
    assert check_leader_epoch(5, 5) == ErrorCode.NONE
    assert check_leader_epoch(6, 5) == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize(
    ("position", "max_bytes", "expected"),
    [
        (0, 100, Piece(0, 10)),
        (0, 4, Piece(0, 4)),
        (8, 4, Piece(8, 2)),
        (9, 1, Piece(9, 1)),
        (0, -1, Piece(0, 0)),
        (10, 1, ErrorCode.POSITION_OUT_OF_RANGE),
        (-1, 1, ErrorCode.POSITION_OUT_OF_RANGE),
    ],
)
def test_a_piece_of_a_snapshot_of_ten_bytes(position: int, max_bytes: int, expected: Piece | ErrorCode) -> None:
    assert snapshot_piece(position, max_bytes, 10) == expected


def test_observers_are_listed_with_their_latest_fetch() -> None:
    observers = Observers()
    observers.fetched(2, b"b", 5, 10, 1000)
    observers.fetched(1, b"a", 10, 10, 1000)
    observers.fetched(1, b"a", 10, 12, 2000)
    assert [tuple(state) for state in observers.states(2000)] == [(1, b"a", 10, 2000, 1000), (2, b"b", 5, 1000, -1)]


def test_an_observer_that_no_longer_fetches_is_not_listed() -> None:
    observers = Observers()
    observers.fetched(1, b"a", 0, 0, 1000)
    assert observers.states(300_999)
    assert not observers.states(301_000)
