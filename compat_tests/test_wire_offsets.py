"""ListOffsets and OffsetForLeaderEpoch: which offset belongs to a time, a special timestamp, an epoch.

Clients have been broken by answers that were almost right: the batch's first offset instead of the record's, a negative
timestamp, the partition's epoch instead of the record's (docs/compatibility.md).
"""

from collections.abc import Callable, Iterator

import pytest

from moldau.compat_tests.scenarios import KEEP, T0
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.protocol.records import Record, build_batch
from moldau.testing import topic_requests as w
from moldau.testing.client import CODECS
from moldau.testing.topic_requests import Topic
from moldau.testing.wire import WireClient

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6


@pytest.fixture
def wire(bootstrap_servers: str) -> Iterator[WireClient]:
    with WireClient(bootstrap_servers) as client:
        yield client


@pytest.fixture
def topic(bootstrap_servers: str, topic_name: Callable[[], str]) -> Topic:
    return w.create_topic(bootstrap_servers, topic_name(), 2, KEEP)


def produce(wire: WireClient, topic: Topic, *times: int, codec: str = "none") -> None:
    """One batch with records of these times after T0."""
    batch = build_batch([Record(timestamp=T0 + when, value=b"-") for when in times], codec=CODECS.index(codec))
    assert w.produce(wire, topic.name, batch).error_code == 0


def ask(
    wire: WireClient,
    topic: Topic,
    timestamp: int,
    *,
    version: int = 11,
    partition: int = 0,
    isolation_level: int = 0,
    current_leader_epoch: int = -1,
) -> ListOffsetsPartitionResponse:
    """One question about one partition."""
    asked = ListOffsetsPartition(
        partition_index=partition, timestamp=timestamp, current_leader_epoch=current_leader_epoch
    )
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation_level, topics=[ListOffsetsTopic(name=topic.name, partitions=[asked])]
    )
    (answer,) = wire.call(request, version).topics[0].partitions
    assert isinstance(answer, ListOffsetsPartitionResponse)
    return answer


def fields_of(answer: ListOffsetsPartitionResponse) -> tuple[str, int, int, int]:
    """Code, offset, timestamp, leader epoch."""
    return ErrorCode(answer.error_code).name, answer.offset, answer.timestamp, answer.leader_epoch


def test_an_empty_partition(wire: WireClient, topic: Topic) -> None:
    assert {name: fields_of(ask(wire, topic, name)) for name in range(-6, 0)} == {
        LATEST: ("NONE", 0, -1, 0),
        EARLIEST: ("NONE", 0, -1, 0),
        MAX_TIMESTAMP: ("NONE", -1, -1, -1),
        EARLIEST_LOCAL: ("NONE", 0, -1, 0),
        LATEST_TIERED: ("NONE", -1, -1, -1),
        EARLIEST_PENDING_UPLOAD: ("NONE", -1, -1, -1),
    }
    assert fields_of(ask(wire, topic, 0)) == ("NONE", -1, -1, -1)
    assert fields_of(ask(wire, topic, T0)) == ("NONE", -1, -1, -1)


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_the_grid(wire: WireClient, topic: Topic, codec: str, isolation_level: int) -> None:
    produce(wire, topic, 0, 10, 20, codec=codec)
    produce(wire, topic, 30, 25, 60, 40, codec=codec)
    produce(wire, topic, 50, codec=codec)
    special = {
        LATEST: (8, -1),
        EARLIEST: (0, -1),
        MAX_TIMESTAMP: (5, T0 + 60),
        EARLIEST_LOCAL: (0, -1),
        LATEST_TIERED: (-1, -1),
        EARLIEST_PENDING_UPLOAD: (-1, -1),
    }
    by_time = {
        0: (0, T0),
        T0 - 1: (0, T0),
        T0: (0, T0),
        T0 + 1: (1, T0 + 10),
        T0 + 10: (1, T0 + 10),
        T0 + 11: (2, T0 + 20),
        T0 + 21: (3, T0 + 30),
        T0 + 26: (3, T0 + 30),
        T0 + 31: (5, T0 + 60),
        T0 + 60: (5, T0 + 60),
        T0 + 61: (-1, -1),
        2**62: (-1, -1),
    }
    for timestamp, (offset, time) in {**special, **by_time}.items():
        epoch = -1 if offset == -1 else 0
        answer = ask(wire, topic, timestamp, isolation_level=isolation_level)
        assert fields_of(answer) == ("NONE", offset, time, epoch), timestamp


def test_max_timestamp_is_the_first_record_that_has_it(wire: WireClient, topic: Topic) -> None:
    produce(wire, topic, 5, 9, 9, codec="lz4")
    produce(wire, topic, 9, 8)
    assert fields_of(ask(wire, topic, MAX_TIMESTAMP)) == ("NONE", 1, T0 + 9, 0)


def test_after_deletion(wire: WireClient, topic: Topic) -> None:
    produce(wire, topic, 0, 10, 20, 30)
    produce(wire, topic, 5)
    assert delete_before(wire, topic, 2).low_watermark == 2
    assert fields_of(ask(wire, topic, EARLIEST))[:3] == ("NONE", 2, -1)
    assert fields_of(ask(wire, topic, EARLIEST_LOCAL))[:3] == ("NONE", 2, -1)
    assert fields_of(ask(wire, topic, LATEST))[:3] == ("NONE", 5, -1)
    # A time before the deletion gives the first remaining record, not a deleted one.
    assert fields_of(ask(wire, topic, T0))[:3] == ("NONE", 2, T0 + 20)


@pytest.mark.parametrize("version", range(1, 12))
def test_old_versions_tell_what_they_can(wire: WireClient, topic: Topic, version: int) -> None:
    produce(wire, topic, 0, 10)
    epoch = 0 if version >= 4 else -1
    assert fields_of(ask(wire, topic, LATEST, version=version)) == ("NONE", 2, -1, epoch)
    assert fields_of(ask(wire, topic, T0 + 1, version=version)) == ("NONE", 1, T0 + 10, epoch)


@pytest.mark.parametrize(
    ("timestamp", "since"), [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (EARLIEST_PENDING_UPLOAD, 11)]
)
def test_special_timestamps_in_versions_before_theirs(
    wire: WireClient, topic: Topic, timestamp: int, since: int
) -> None:
    produce(wire, topic, 0, 10)
    assert ask(wire, topic, timestamp, version=since - 1).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert ask(wire, topic, timestamp, version=since).error_code == 0


@pytest.mark.parametrize("timestamp", [-7, -100, -(2**62)])
def test_timestamps_that_mean_nothing(wire: WireClient, topic: Topic, timestamp: int) -> None:
    produce(wire, topic, 0, 10)
    assert fields_of(ask(wire, topic, timestamp))[:3] == ("UNSUPPORTED_VERSION", -1, -1)


@pytest.mark.parametrize(("epoch", "code"), [(-1, "NONE"), (0, "NONE"), (1_000, "UNKNOWN_LEADER_EPOCH")])
def test_current_leader_epoch(wire: WireClient, topic: Topic, epoch: int, code: str) -> None:
    assert fields_of(ask(wire, topic, LATEST, current_leader_epoch=epoch))[0] == code


def test_unknown_partitions(wire: WireClient, topic: Topic) -> None:
    assert fields_of(ask(wire, topic, LATEST, partition=7)) == ("UNKNOWN_TOPIC_OR_PARTITION", -1, -1, -1)
    assert fields_of(ask(wire, Topic("no-such-topic", b""), LATEST)) == ("UNKNOWN_TOPIC_OR_PARTITION", -1, -1, -1)


def test_the_same_partition_twice(wire: WireClient, topic: Topic) -> None:
    asked = [ListOffsetsPartition(partition_index=0, timestamp=when) for when in (LATEST, EARLIEST)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=asked)])
    codes = {each.error_code for each in wire.call(request, 7).topics[0].partitions}
    assert codes == {ErrorCode.INVALID_REQUEST}


# Deletion


def delete_before(wire: WireClient, topic: Topic, offset: int, partition: int = 0) -> DeleteRecordsPartitionResult:
    """Delete the records before an offset."""
    asked = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic.name, partitions=[asked])], timeout_ms=5_000)
    (answer,) = wire.call(request, 2).topics[0].partitions
    assert isinstance(answer, DeleteRecordsPartitionResult)
    return answer


def test_delete_records(wire: WireClient, topic: Topic) -> None:
    produce(wire, topic, 0, 1, 2, 3, 4)

    def deleted(offset: int, partition: int = 0) -> tuple[str, int]:
        answer = delete_before(wire, topic, offset, partition)
        return ErrorCode(answer.error_code).name, answer.low_watermark

    assert deleted(0) == ("NONE", 0)
    assert deleted(3) == ("NONE", 3)
    assert deleted(1) == ("NONE", 3)  # deleted records stay deleted
    assert deleted(6) == ("OFFSET_OUT_OF_RANGE", -1)
    assert deleted(-2) == ("OFFSET_OUT_OF_RANGE", -1)
    assert deleted(-1) == ("NONE", 5)  # up to the high watermark
    assert deleted(0, partition=9) == ("UNKNOWN_TOPIC_OR_PARTITION", -1)


def test_delete_records_of_a_compacted_topic(
    wire: WireClient, bootstrap_servers: str, topic_name: Callable[[], str]
) -> None:
    topic = w.create_topic(bootstrap_servers, topic_name(), 1, {"cleanup.policy": "compact"})
    assert delete_before(wire, topic, 0).error_code == ErrorCode.POLICY_VIOLATION


# Epochs


def end_of(
    wire: WireClient, topic: Topic, epoch: int, *, current: int = -1, partition: int = 0, version: int = 4
) -> tuple[str, int, int]:
    """What OffsetForLeaderEpoch says of an epoch: code, epoch, end offset."""
    asked = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic.name, partitions=[asked])]
    )
    (answer,) = wire.call(request, version).topics[0].partitions
    assert isinstance(answer, EpochEndOffset)
    return ErrorCode(answer.error_code).name, answer.leader_epoch, answer.end_offset


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_end_of_an_epoch(wire: WireClient, topic: Topic, version: int) -> None:
    produce(wire, topic, 0, 1, 2)
    assert end_of(wire, topic, 0, version=version) == ("NONE", 0, 3)
    assert end_of(wire, topic, 0, current=0, version=version) == ("NONE", 0, 3)
    assert end_of(wire, topic, 5, version=version) == ("NONE", -1, -1)
    assert end_of(wire, topic, -1, version=version) == ("NONE", -1, -1)
    assert end_of(wire, topic, 0, current=7, version=version) == ("UNKNOWN_LEADER_EPOCH", -1, -1)
    assert end_of(wire, topic, 0, partition=9, version=version) == ("UNKNOWN_TOPIC_OR_PARTITION", -1, -1)


def test_the_end_of_an_epoch_of_an_empty_partition(wire: WireClient, topic: Topic) -> None:
    assert end_of(wire, topic, 0, partition=1) == ("NONE", 0, 0)
