"""Fetch, request by request: where it begins, how much it brings, how long it waits, and its sessions (KIP-227)."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData
from moldau.protocol.records import build_batch, iter_records
from moldau.protocol.uuid import ZERO_UUID
from moldau.testing import topic_requests as w
from moldau.testing.client import CODECS
from moldau.testing.topic_requests import Topic
from moldau.testing.wire import WireClient


@pytest.fixture
def wire(bootstrap_servers: str) -> Iterator[WireClient]:
    with WireClient(bootstrap_servers) as client:
        yield client


@pytest.fixture
def other(bootstrap_servers: str) -> Iterator[WireClient]:
    """A second connection, to produce while the first waits."""
    with WireClient(bootstrap_servers) as client:
        yield client


@pytest.fixture
def topic(bootstrap_servers: str, topic_name: Callable[[], str]) -> Topic:
    return w.create_topic(bootstrap_servers, topic_name(), 3)


def produce(wire: WireClient, topic: Topic, *values: bytes, partition: int = 0, codec: str = "none") -> int:
    """Produce one batch, and return its base offset."""
    batch = build_batch(w.records(*values), codec=CODECS.index(codec))
    answer = w.produce(wire, topic.name, batch, partition=partition)
    assert answer.error_code == 0
    return answer.base_offset


def offsets(data: PartitionData) -> list[int]:
    """The offsets of all records in whole batches."""
    return [record.offset for batch in w.batches_of(data) for record in iter_records(batch)]


def partitions_of(response: Any) -> dict[int, PartitionData]:
    """The partitions of a response about one topic."""
    return {data.partition_index: data for each in response.responses for data in each.partitions}


class Waiting:
    """How long something takes."""

    def __enter__(self) -> "Waiting":
        self._started = time.monotonic()
        return self

    def __exit__(self, *exception: object) -> None:
        self.seconds = time.monotonic() - self._started


# Where it begins


def test_an_empty_partition(wire: WireClient, topic: Topic) -> None:
    data = w.fetch(wire, topic.name, 0)
    assert (data.error_code, data.high_watermark, data.last_stable_offset, data.log_start_offset) == (0, 0, 0, 0)
    assert offsets(data) == []
    assert data.records is not None


@pytest.mark.parametrize("offset", [-1, -2, 1, 1_000])
def test_out_of_range_of_an_empty_partition(wire: WireClient, topic: Topic, offset: int) -> None:
    data = w.fetch(wire, topic.name, offset)
    assert (data.error_code, data.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert offsets(data) == []


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_an_offset_inside_a_batch_brings_the_whole_batch(wire: WireClient, topic: Topic, codec: str) -> None:
    produce(wire, topic, b"a", b"b", b"c", codec=codec)
    produce(wire, topic, b"d", b"e", codec=codec)
    assert offsets(w.fetch(wire, topic.name, 0)) == [0, 1, 2, 3, 4]
    assert offsets(w.fetch(wire, topic.name, 2)) == [0, 1, 2, 3, 4]
    assert offsets(w.fetch(wire, topic.name, 3)) == [3, 4]
    assert offsets(w.fetch(wire, topic.name, 4)) == [3, 4]
    end = w.fetch(wire, topic.name, 5)
    assert (end.error_code, offsets(end), end.high_watermark) == (0, [], 5)
    assert w.fetch(wire, topic.name, 6).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_below_the_log_start_offset(wire: WireClient, topic: Topic) -> None:
    produce(wire, topic, b"a", b"b", b"c", b"d")
    partition = DeleteRecordsPartition(partition_index=0, offset=2)
    deletion = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic.name, partitions=[partition])], timeout_ms=5_000
    )
    assert wire.call(deletion, 2).topics[0].partitions[0].low_watermark == 2
    assert w.fetch(wire, topic.name, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    data = w.fetch(wire, topic.name, 2)
    assert data.log_start_offset == 2
    # The batch is there as a whole; what lies before is the client's to skip.
    assert offsets(data) == [0, 1, 2, 3]


def test_unknown_topics_and_partitions(wire: WireClient, topic: Topic) -> None:
    assert w.fetch(wire, topic.name, 0, partition=3).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert w.fetch(wire, "no-such-topic", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, ErrorCode.NONE), (0, ErrorCode.NONE), (1_000, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_current_leader_epoch(wire: WireClient, topic: Topic, epoch: int, code: ErrorCode) -> None:
    request = w.fetch_request(topic.name, {0: 0}, max_wait_ms=0)
    request.topics[0].partitions[0].current_leader_epoch = epoch
    assert partitions_of(wire.call(request, 12))[0].error_code == code


def test_divergence_by_last_fetched_epoch(wire: WireClient, topic: Topic) -> None:
    """A reader with an epoch that the leader never had gets the offset where they diverge (KIP-595)."""
    produce(wire, topic, b"a", b"b")
    request = w.fetch_request(topic.name, {0: 1}, max_wait_ms=0)
    request.topics[0].partitions[0].last_fetched_epoch = 0
    data = partitions_of(wire.call(request, 12))[0]
    assert (data.error_code, data.diverging_epoch.end_offset) == (0, -1)
    request = w.fetch_request(topic.name, {0: 2}, max_wait_ms=0)
    request.topics[0].partitions[0].last_fetched_epoch = 0
    data = partitions_of(wire.call(request, 12))[0]
    assert (data.error_code, data.diverging_epoch.end_offset) == (0, -1)


def test_by_topic_id(wire: WireClient, topic: Topic) -> None:
    produce(wire, topic, b"a")
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic_id=topic.topic_id, partitions=[partition])]
    )
    for version in range(13, 19):
        (answer,) = wire.call(request, version).responses
        assert (answer.topic_id, offsets(answer.partitions[0])) == (topic.topic_id, [0])
    request.topics[0].topic_id = ZERO_UUID
    (answer,) = wire.call(request, 17).responses
    assert answer.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_isolation_levels_without_transactions(wire: WireClient, topic: Topic, isolation_level: int) -> None:
    produce(wire, topic, b"a")
    request = w.fetch_request(topic.name, {0: 0}, max_wait_ms=0)
    request.isolation_level = isolation_level
    data = partitions_of(wire.call(request, 12))[0]
    assert (offsets(data), data.last_stable_offset) == ([0], 1)
    assert data.aborted_transactions in (None, []), "nothing was aborted"
    assert (data.aborted_transactions is None) == (isolation_level == 0)


def test_zstd_before_version_10(wire: WireClient, topic: Topic) -> None:
    """Apache Kafka 4 sends stored batches unchanged: it does not support clients that old."""
    produce(wire, topic, b"a", codec="zstd")
    assert offsets(partitions_of(wire.call(w.fetch_request(topic.name, {0: 0}), 9))[0]) == [0]


# How much it brings


def test_partition_max_bytes_gives_at_least_one_batch(wire: WireClient, topic: Topic) -> None:
    for value in (bytes(1_000), bytes(10), bytes(1_000)):
        produce(wire, topic, value)
    for limit in (0, 1, 100, 1_000):
        request = w.fetch_request(topic.name, {0: 0}, partition_max_bytes=limit)
        assert offsets(partitions_of(wire.call(request, 12))[0]) == [0], limit
    # The second batch fits, the third in part only, which may be sent and counts for nothing.
    request = w.fetch_request(topic.name, {0: 0}, partition_max_bytes=1_200)
    assert offsets(partitions_of(wire.call(request, 12))[0]) == [0, 1]


def test_max_bytes_is_for_all_partitions_together(wire: WireClient, topic: Topic) -> None:
    for partition in range(3):
        produce(wire, topic, bytes(1_000), partition=partition)
        produce(wire, topic, bytes(1_000), partition=partition)
    everything = partitions_of(wire.call(w.fetch_request(topic.name, {0: 0, 1: 0, 2: 0}), 12))
    assert [offsets(everything[partition]) for partition in range(3)] == [[0, 1]] * 3
    # The first partition with records brings a batch whatever the limit is; the others only what is left of it.
    one = partitions_of(wire.call(w.fetch_request(topic.name, {2: 0, 0: 0, 1: 0}, max_bytes=1), 12))
    assert {partition: offsets(data) for partition, data in one.items()} == {2: [0], 0: [], 1: []}
    some = partitions_of(wire.call(w.fetch_request(topic.name, {0: 0, 1: 0, 2: 0}, max_bytes=2_500), 12))
    assert sum(len(data.records or b"") for data in some.values()) <= 2_500
    assert offsets(some[0]) == [0, 1]


def test_an_empty_partition_does_not_use_up_the_one_batch(wire: WireClient, topic: Topic) -> None:
    produce(wire, topic, bytes(1_000), partition=2)
    got = partitions_of(wire.call(w.fetch_request(topic.name, {0: 0, 1: 0, 2: 0}, max_bytes=1), 12))
    assert offsets(got[2]) == [0]


def test_a_batch_larger_than_all_limits(wire: WireClient, topic: Topic) -> None:
    value = bytes(900_000)
    produce(wire, topic, value)
    request = w.fetch_request(topic.name, {0: 0}, max_bytes=10, partition_max_bytes=10)
    (batch,) = w.batches_of(partitions_of(wire.call(request, 12))[0])
    assert [record.value for record in iter_records(batch)] == [value]


# How long it waits


def test_min_bytes_0_waits_for_nothing(wire: WireClient, topic: Topic) -> None:
    with Waiting() as waiting:
        wire.call(w.fetch_request(topic.name, {0: 0}, max_wait_ms=25_000, min_bytes=0), 12)
    assert waiting.seconds < 20


def test_max_wait_is_waited_and_not_more(wire: WireClient, topic: Topic) -> None:
    for max_wait_ms in (1, 100, 700):
        with Waiting() as waiting:
            got = partitions_of(
                wire.call(w.fetch_request(topic.name, {0: 0}, max_wait_ms=max_wait_ms, min_bytes=1), 12)
            )
        assert (got[0].error_code, offsets(got[0])) == (0, [])
        assert max_wait_ms / 1_000 * 0.95 <= waiting.seconds < max_wait_ms / 1_000 + 20


def test_an_append_ends_the_waiting(wire: WireClient, other: WireClient, topic: Topic) -> None:
    produce(other, topic, b"before")
    with Waiting() as waiting:
        wire.send(w.fetch_request(topic.name, {0: 1, 1: 0}, max_wait_ms=25_000, min_bytes=1), 12)
        produce(other, topic, b"now", partition=1)
        got = partitions_of(wire.receive())
    assert waiting.seconds < 20
    assert (offsets(got[0]), offsets(got[1])) == ([], [0])


def test_min_bytes_are_waited_for(wire: WireClient, other: WireClient, topic: Topic) -> None:
    with Waiting() as waiting:
        wire.send(w.fetch_request(topic.name, {0: 0, 1: 0}, max_wait_ms=25_000, min_bytes=2_500), 12)
        for partition in (0, 1, 0):
            produce(other, topic, bytes(1_000), partition=partition)
        got = partitions_of(wire.receive())
    assert waiting.seconds < 20
    assert (offsets(got[0]), offsets(got[1])) == ([0, 1], [0])


def test_fewer_than_min_bytes_come_at_the_end_of_max_wait(wire: WireClient, topic: Topic) -> None:
    produce(wire, topic, b"little")
    with Waiting() as waiting:
        got = partitions_of(wire.call(w.fetch_request(topic.name, {0: 0}, max_wait_ms=300, min_bytes=10_000), 12))
    assert waiting.seconds >= 0.28
    assert offsets(got[0]) == [0]


def test_an_offset_out_of_range_ends_the_waiting_at_once(wire: WireClient, topic: Topic) -> None:
    with Waiting() as waiting:
        got = partitions_of(wire.call(w.fetch_request(topic.name, {0: 0, 1: 5}, max_wait_ms=25_000, min_bytes=1), 12))
    assert waiting.seconds < 20
    assert (got[0].error_code, got[1].error_code) == (0, ErrorCode.OFFSET_OUT_OF_RANGE)


def test_an_unknown_partition_does_not_end_the_waiting(wire: WireClient, topic: Topic) -> None:
    """Otherwise a client that keeps fetching a deleted topic would do so without a pause."""
    with Waiting() as waiting:
        got = partitions_of(wire.call(w.fetch_request(topic.name, {0: 0, 7: 0}, max_wait_ms=300, min_bytes=1), 12))
    assert waiting.seconds >= 0.28
    assert (got[0].error_code, got[7].error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_fetch_of_nothing_is_answered_at_once(wire: WireClient) -> None:
    with Waiting() as waiting:
        response = wire.call(w.fetch_request("", {}, max_wait_ms=25_000, min_bytes=1), 12)
    assert waiting.seconds < 20
    assert (response.error_code, response.responses) == (0, [])


def test_requests_behind_a_waiting_fetch_are_answered_after_it(wire: WireClient, topic: Topic) -> None:
    wire.send(w.fetch_request(topic.name, {0: 0}, max_wait_ms=300, min_bytes=1), 12)
    wire.send(ApiVersionsRequest(), 0)
    assert offsets(partitions_of(wire.receive())[0]) == []
    assert wire.receive().error_code == 0


def test_many_waiting_fetches_are_woken_by_one_append(bootstrap_servers: str, other: WireClient, topic: Topic) -> None:
    waiters = [WireClient(bootstrap_servers) for _ in range(40)]
    try:
        for waiter in waiters:
            waiter.send(w.fetch_request(topic.name, {0: 0}, max_wait_ms=25_000, min_bytes=1), 12)
        with Waiting() as waiting:
            produce(other, topic, b"for all")
            assert [offsets(partitions_of(waiter.receive())[0]) for waiter in waiters] == [[0]] * 40
        assert waiting.seconds < 20
    finally:
        for waiter in waiters:
            waiter.close()


def test_a_waiting_fetch_of_a_topic_that_is_deleted(
    wire: WireClient, other: WireClient, topic: Topic, bootstrap_servers: str
) -> None:
    """It ends, with an error or with nothing, and not only after its max_wait."""
    from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    with Waiting() as waiting:
        wire.send(w.fetch_request(topic.name, {0: 0}, max_wait_ms=25_000, min_bytes=1), 12)
        other.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic.name)], timeout_ms=5_000), 6)
        w.wait_for_no_topic(bootstrap_servers, topic.name)
        data = partitions_of(wire.receive())[0]
    assert waiting.seconds < 20
    assert data.error_code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )


# Sessions


class Session:
    """A fetch session of one topic, as a client keeps it."""

    def __init__(self, wire: WireClient, topic: Topic, from_offsets: Mapping[int, int]) -> None:
        self._wire = wire
        self._topic = topic
        first = wire.call(w.fetch_request(topic.name, from_offsets, max_wait_ms=0, session_epoch=0), 12)
        assert first.error_code == 0
        assert first.session_id > 0
        self.first = partitions_of(first)
        self.session_id = first.session_id
        self.epoch = 1

    def fetch(
        self, changed: Mapping[int, int] | None = None, forget: list[int] | None = None, **settings: int
    ) -> dict[int, PartitionData]:
        """An incremental fetch: what changed in the request, and what changed in the answer."""
        response = self.ask(changed, forget, epoch=self.epoch, **settings)
        assert (ErrorCode(response.error_code), response.session_id) == (ErrorCode.NONE, self.session_id)
        self.epoch += 1
        return partitions_of(response)

    def ask(
        self,
        changed: Mapping[int, int] | None = None,
        forget: list[int] | None = None,
        *,
        epoch: int,
        session_id: int | None = None,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
    ) -> Any:
        """A fetch in this session or another."""
        request = w.fetch_request(
            self._topic.name,
            changed or {},
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            session_id=self.session_id if session_id is None else session_id,
            session_epoch=epoch,
        )
        if forget:
            request.forgotten_topics_data = [ForgottenTopic(topic=self._topic.name, partitions=forget)]
        return self._wire.call(request, 12)


def test_no_session_unless_one_is_asked_for(wire: WireClient, topic: Topic) -> None:
    assert wire.call(w.fetch_request(topic.name, {0: 0}, session_epoch=-1), 12).session_id == 0


def test_the_first_fetch_of_a_session_is_full(wire: WireClient, topic: Topic) -> None:
    produce(wire, topic, b"a", partition=1)
    session = Session(wire, topic, {0: 0, 1: 0})
    assert {index: offsets(data) for index, data in session.first.items()} == {0: [], 1: [0]}


def test_later_fetches_tell_what_is_new(wire: WireClient, topic: Topic) -> None:
    session = Session(wire, topic, {0: 0, 1: 0, 2: 0})
    assert session.fetch() == {}
    produce(wire, topic, b"a", partition=1)
    assert {index: offsets(data) for index, data in session.fetch().items()} == {1: [0]}
    # The client has not moved on, so it is sent again; with a new offset it is not.
    assert {index: offsets(data) for index, data in session.fetch().items()} == {1: [0]}
    assert session.fetch({1: 1}) == {}
    produce(wire, topic, b"b", partition=1)
    produce(wire, topic, b"c", partition=2)
    assert {index: offsets(data) for index, data in session.fetch().items()} == {1: [1], 2: [0]}


def test_partitions_are_added_and_forgotten(wire: WireClient, topic: Topic) -> None:
    session = Session(wire, topic, {0: 0})
    for partition in range(3):
        produce(wire, topic, b"a", partition=partition)
    assert set(session.fetch()) == {0}
    assert set(session.fetch({2: 0})) == {0, 2}
    assert set(session.fetch(forget=[0])) == {2}
    assert set(session.fetch({1: 0}, forget=[2])) == {1}
    # A session of nothing ends.
    response = session.ask(forget=[1], epoch=session.epoch)
    assert (response.error_code, response.session_id, response.responses) == (0, 0, [])
    assert session.ask(epoch=session.epoch + 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_errors_are_returned_in_a_session(wire: WireClient, topic: Topic) -> None:
    session = Session(wire, topic, {0: 0, 9: 0})
    assert session.first[9].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # And again, as long as it stays so.
    assert session.fetch()[9].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert session.fetch({0: 5})[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_wrong_epoch(wire: WireClient, topic: Topic) -> None:
    session = Session(wire, topic, {0: 0})
    for epoch in (2, 5):
        response = session.ask(epoch=epoch)
        assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert response.responses == []
    assert session.fetch() == {}
    assert session.ask(epoch=1).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_an_unknown_session(wire: WireClient, topic: Topic) -> None:
    session = Session(wire, topic, {0: 0})
    response = session.ask(epoch=1, session_id=session.session_id ^ 0x1234)
    assert (response.error_code, response.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


def test_a_session_is_closed(wire: WireClient, topic: Topic) -> None:
    """Epoch -1 with the id of a session ends it, and is itself a fetch without a session."""
    session = Session(wire, topic, {0: 0})
    response = session.ask({0: 0}, epoch=-1)
    assert (response.error_code, response.session_id) == (0, 0)
    assert session.ask(epoch=1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_is_begun_anew(wire: WireClient, topic: Topic) -> None:
    """Epoch 0 with the id of a session ends it and begins another."""
    produce(wire, topic, b"a")
    session = Session(wire, topic, {0: 0, 1: 0})
    response = session.ask({0: 0, 2: 0}, epoch=0)
    assert response.error_code == 0
    assert response.session_id not in (0, session.session_id)
    assert set(partitions_of(response)) == {0, 2}


def test_a_session_waits_for_all_its_partitions(wire: WireClient, other: WireClient, topic: Topic) -> None:
    session = Session(wire, topic, {0: 0, 1: 0, 2: 0})
    request = w.fetch_request(
        topic.name, {}, max_wait_ms=25_000, min_bytes=1, session_id=session.session_id, session_epoch=1
    )
    with Waiting() as waiting:
        wire.send(request, 12)
        produce(other, topic, b"now", partition=2)
        got = partitions_of(wire.receive())
    assert waiting.seconds < 20
    assert {index: offsets(data) for index, data in got.items()} == {2: [0]}


def test_a_session_outlives_its_connection(wire: WireClient, other: WireClient, topic: Topic) -> None:
    """It is not bound to a connection."""
    session = Session(wire, topic, {0: 0})
    produce(wire, topic, b"a")
    session._wire = other
    assert set(session.fetch()) == {0}


def test_sessions_by_topic_id(wire: WireClient, topic: Topic) -> None:
    def ask(partitions: list[int], session_id: int, epoch: int, forget: list[int] | None = None) -> Any:
        asked = [FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=1_000) for each in partitions]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            session_id=session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic_id=topic.topic_id, partitions=asked)] if asked else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=topic.topic_id, partitions=forget)] if forget else [],
        )
        return wire.call(request, 17)

    produce(wire, topic, b"a")
    produce(wire, topic, b"a", partition=1)
    first = ask([0], 0, 0)
    assert set(partitions_of(first)) == {0}
    assert set(partitions_of(ask([1], first.session_id, 1))) == {0, 1}
    assert set(partitions_of(ask([], first.session_id, 2, forget=[0]))) == {1}
