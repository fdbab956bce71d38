"""A fetcher with a scripted leader, and proposals of in-sync sets with a scripted controller.

Connections are in memory, and the test moves the clock. This broker has the id 1, the leader has the id 2.
"""

from __future__ import annotations

import errno
import logging
from concurrent.futures import Future
from typing import Any

import pytest

from moldau.config.sources import StaticValue, load
from moldau.log.partition_log import Log
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from moldau.replication.following import Following
from moldau.replication.partition import Partition
from moldau.server.concurrency.slices import Sliced, SlicedFuture, Slices
from moldau.server.network.links import LinkSettings
from moldau.server.replication.fetcher import Fetcher, FetcherSettings, Local, fetch_version
from moldau.server.replication.in_sync_changes import InSyncChanges
from moldau.server.replication.throttling import Throttling
from moldau.server.replication.truncation import Truncations

from ..replication.partitions import NOW, TOPIC_ID, append, follow, lead, new_partition, plain_batch
from ..replication.test_following import from_leader
from .test_links import PEER, ScriptedPeer, SteppedLinks, versions_of

SETTINGS = FetcherSettings(
    max_wait_ms=500, min_bytes=1, max_bytes=10_000, partition_max_bytes=5000, max_pause_ms=1000, timeout_ms=30_000
)
MAX_LAG_MS = 30_000
LISTENERS = "listeners=PLAINTEXT://127.0.0.1:9092"


class Checkpoints:
    """The checkpoints of logs that are truncated; see `LogManager.begin_truncations`."""

    def __init__(self) -> None:
        self.are_ahead = False
        self.written: list[Any] = []

    def begin_truncations(self, truncations: Any) -> Any:
        self.offsets = list(truncations.values())
        return self if self.are_ahead else None

    def run(self) -> None:
        self.written.append(self.offsets)

    def end_truncation_checkpoints(self, files: Any, truncations: Any) -> Any:
        assert files is self
        return lambda: self.written.append("synced")


class Device:
    """The file work in threads, which the test completes."""

    def __init__(self) -> None:
        self.checkpoints = Checkpoints()
        self.jobs: list[tuple[Any, Future[Any]]] = []
        self.flushes: list[tuple[Log, Future[bool]]] = []

    def run(self, work: Any) -> Future[Any]:
        """See `JobExecutor`."""
        self.jobs.append((work, Future()))
        return self.jobs[-1][1]

    def flush(self, log: Log) -> Future[bool]:
        self.flushes.append((log, Future()))
        return self.flushes[-1][1]

    def complete_job(self) -> None:
        work, future = self.jobs.pop(0)
        try:
            future.set_result(work())
        except OSError as error:
            future.set_exception(error)

    def complete_flush(self) -> None:
        log, future = self.flushes.pop(0)
        log.flush(NOW)
        future.set_result(True)


class Followers(SteppedLinks):
    """A fetcher, and the requests that it has sent."""

    def __init__(self) -> None:
        super().__init__(capacity=1 << 20)
        self.peers: list[ScriptedPeer] = []
        self.network.listen(PEER, lambda end: self.peers.append(ScriptedPeer(end)))
        self.link = self.links.open(PEER, "broker-1-fetcher-0", LinkSettings())
        self.hurried: list[Any] = []
        """The headers of requests behind a fetch, which complete it early."""
        self.is_registered = True
        self.slices = Slices(self._callbacks.append)
        self.throttling = Throttling(1, lambda: self, self.timers.now_ms)  # type: ignore[arg-type, return-value]
        self.configs: dict[str, str] = {}
        self.device = Device()
        device: Any = self.device
        truncations = Truncations(self.slices, self.timers, lambda: NOW, device.checkpoints, device, device.flush)
        local = Local(
            node_id=1,
            broker_epoch=lambda: 51,
            metadata_version=lambda: 30,
            slices=self.slices,
            timers=self.timers,
            now_ms=lambda: NOW,
            run_soon=self._callbacks.append,
            throttling=self.throttling,
            truncations=truncations,
        )
        self.fetcher = Fetcher(2, lambda: self.link if self.is_registered else None, local, SETTINGS)

    def topic_configs(self, _topic: str) -> dict[str, str]:
        """See `MetadataImage`."""
        return self.configs

    def follow(self, partition: Partition, leader_epoch: int = 4) -> None:
        assert follow(partition, leader_epoch, partition_epoch=leader_epoch)
        self.fetcher.follow(Following(partition))
        self.run()

    def connect(self) -> None:
        self.run()
        self.peers[-1].negotiate((ApiKey.FETCH, 4, 18), (ApiKey.LIST_OFFSETS, 1, 11), (ApiKey.API_VERSIONS, 0, 4))
        self.run()

    def request(self) -> tuple[Any, Any]:
        """The only fetch, or request for offsets, that has arrived."""
        [found] = [each for each in self.requests() if not isinstance(each[1], ApiVersionsRequest)]
        return found

    def requests(self) -> list[tuple[Any, Any]]:
        """The requests that have arrived."""
        arrived = self.peers[-1].requests()
        self.hurried += [header for header, request in arrived if isinstance(request, ApiVersionsRequest)]
        return arrived

    def respond(
        self, header: Any, *partitions: PartitionData, error: ErrorCode = ErrorCode.NONE, session: int = 7
    ) -> None:
        topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(partitions))] if partitions else []
        response = FetchResponse(error_code=error, session_id=session, responses=topics)
        self.peers[-1].respond(header, response)
        while self.hurried:
            self.peers[-1].respond(self.hurried.pop(), versions_of())
        self.run()


@pytest.fixture
def followers() -> Followers:
    return Followers()


def positions(request: FetchRequest) -> list[tuple[int, int, int]]:
    """Leader epoch, offset and last fetched epoch of the partitions that a request names."""
    return [
        (each.current_leader_epoch, each.fetch_offset, each.last_fetched_epoch)
        for topic in request.topics
        for each in topic.partitions
    ]


def records(offset: int, *, high_watermark: int = 0) -> PartitionData:
    return PartitionData(high_watermark=high_watermark, log_start_offset=0, records=from_leader(offset, 4))


def test_the_next_request_acknowledges_what_was_appended(followers: Followers) -> None:
    partition = new_partition()
    followers.follow(partition)
    followers.connect()
    header, request = followers.request()
    assert header.request_api_version == 18
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (1, 51)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10_000)
    assert (request.session_id, request.session_epoch, positions(request)) == (0, 0, [(4, 0, -1)])
    followers.respond(header, records(0))
    header, request = followers.request()
    assert (request.session_id, request.session_epoch, positions(request)) == (7, 1, [(4, 1, 4)])
    followers.respond(header, PartitionData(high_watermark=1, log_start_offset=0, records=b""))
    assert (partition.log.log_end_offset, partition.high_watermark) == (1, 1)
    # Nothing has changed: the session has everything.
    assert positions(followers.request()[1]) == []


def test_records_that_must_be_flushed_are_acknowledged_after_the_flush(followers: Followers) -> None:
    wanted: list[Any] = []
    partition = new_partition(request_flush=wanted.append, flush_messages=1)
    followers.follow(partition)
    followers.connect()
    header, _ = followers.request()
    followers.respond(header, records(0))
    assert (partition.log.log_end_offset, partition.durable_offset) == (1, 0)
    assert followers.peers[-1].requests() == []
    followers.fetcher.wake()  # another partition has changed
    followers.run()
    assert followers.peers[-1].requests() == []
    wanted.pop().flush(NOW)
    followers.run()
    assert positions(followers.request()[1]) == [(4, 1, 4)]


def test_a_log_directory_that_fails_during_a_flush_does_not_stop_other_partitions(followers: Followers) -> None:
    wanted: list[Any] = []
    partition, other = new_partition(request_flush=wanted.append, flush_messages=1), new_partition()
    other.index = 1
    followers.follow(partition)
    followers.follow(other)
    followers.connect()
    header, _ = followers.request()
    followers.respond(header, records(0))
    assert followers.peers[-1].requests() == []
    partition.go_offline()
    followers.fetcher.forget((TOPIC_ID, 0))
    followers.run()
    assert [each.partitions for each in followers.request()[1].forgotten_topics_data] == [[0]]


def test_a_partition_of_a_later_leader_epoch_ignores_the_response_and_is_requested_again(followers: Followers) -> None:
    partition = new_partition()
    followers.follow(partition)
    followers.connect()
    header, _ = followers.request()
    followers.follow(partition, 5)
    followers.respond(header, records(0))
    assert partition.log.log_end_offset == 0
    assert positions(followers.request()[1]) == [(5, 0, -1)]


def test_a_forgotten_partition_leaves_the_session(followers: Followers) -> None:
    partition, other = new_partition(), new_partition()
    other.index = 1
    followers.follow(partition)
    followers.follow(other)
    followers.connect()
    header, _ = followers.request()
    followers.fetcher.forget((TOPIC_ID, 0))
    followers.respond(header, records(0))
    assert partition.log.log_end_offset == 0
    _, request = followers.request()
    assert [(each.topic_id, each.partitions) for each in request.forgotten_topics_data] == [(TOPIC_ID, [0])]


def names(followers: Followers) -> list[str]:
    """The requests that have arrived."""
    return [type(request).__name__ for _, request in followers.requests()]


def test_a_new_partition_ends_the_wait_of_the_request_in_flight(followers: Followers) -> None:
    """The leader completes a fetch early when another request arrives."""
    followers.follow(new_partition())
    followers.connect()
    header, _ = followers.request()
    for index in (1, 2):
        other = new_partition()
        other.index = index
        followers.follow(other)
    assert names(followers) == ["ApiVersionsRequest"]
    followers.respond(header)
    _, request = followers.request()
    assert [each.partition for topic in request.topics for each in topic.partitions] == [1, 2]


def test_the_end_of_a_pause_ends_the_wait_of_the_request_in_flight(followers: Followers) -> None:
    other = new_partition()
    other.index = 1
    followers.follow(new_partition())
    followers.follow(other)
    followers.connect()
    header, _ = followers.request()
    failed = PartitionData(partition_index=0, error_code=ErrorCode.UNKNOWN_LEADER_EPOCH, high_watermark=-1, records=b"")
    followers.respond(header, failed)
    header, _ = followers.request()
    followers.advance(60)
    assert names(followers) == ["ApiVersionsRequest"]
    followers.respond(header)
    _, request = followers.request()
    assert [each.partition for topic in request.topics for each in topic.partitions] == [0]


def test_a_lost_connection_is_followed_by_a_full_request(followers: Followers) -> None:
    followers.follow(new_partition())
    followers.connect()
    header, _ = followers.request()
    followers.respond(header, records(0))
    followers.request()
    followers.peers[-1].end.close()
    followers.run()
    followers.advance(200)
    followers.connect()
    _, request = followers.request()
    assert (request.session_id, request.session_epoch, positions(request)) == (7, 0, [(4, 1, 4)])


def test_a_lost_session_is_followed_by_a_full_request(followers: Followers) -> None:
    followers.follow(new_partition())
    followers.connect()
    header, _ = followers.request()
    followers.respond(header, records(0))
    header, _ = followers.request()
    followers.respond(header, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, session=0)
    _, request = followers.request()
    assert (request.session_id, request.session_epoch, positions(request)) == (0, 0, [(4, 1, 4)])


def test_a_failed_partition_pauses_and_the_others_continue(followers: Followers) -> None:
    partition, other = new_partition(), new_partition()
    other.index = 1
    followers.follow(partition)
    followers.follow(other)
    followers.connect()
    header, _ = followers.request()
    failed = PartitionData(partition_index=0, error_code=ErrorCode.UNKNOWN_LEADER_EPOCH, high_watermark=-1, records=b"")
    appended = records(0)
    appended.partition_index = 1
    followers.respond(header, failed, appended)
    header, request = followers.request()
    assert [each.partition for topic in request.topics for each in topic.partitions] == [1]
    assert [each.partitions for each in request.forgotten_topics_data] == [[0]]
    followers.advance(60)
    followers.respond(header)
    _, request = followers.request()
    assert [each.partition for topic in request.topics for each in topic.partitions] == [0]


def test_a_response_that_is_rejected_again_and_again_is_a_warning(
    followers: Followers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    followers.follow(new_partition())
    followers.connect()
    damaged = records(0)
    damaged.records = bytes(damaged.records[:-1]) + b"?"  # type: ignore[index]
    for _ in range(10):
        header, _ = followers.request()
        followers.respond(header, damaged)
        followers.advance(2000)
    header, _ = followers.request()
    followers.respond(header, records(0))
    warned, resumed = caplog.records
    assert (warned.levelname, resumed.levelname) == ("WARNING", "INFO")
    assert warned.message.startswith("t-0 makes no progress, retrying: CORRUPT_MESSAGE: ")
    assert resumed.message == "t-0 makes progress again"


def test_errors_of_a_leader_are_no_warnings(followers: Followers, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    followers.follow(new_partition())
    followers.connect()
    for _ in range(10):
        header, _ = followers.request()
        failed = PartitionData(error_code=ErrorCode.UNKNOWN_LEADER_EPOCH, high_watermark=-1, records=b"")
        followers.respond(header, failed)
        followers.advance(2000)
    header, _ = followers.request()
    followers.respond(header, records(0))
    assert [each.levelname for each in caplog.records] == ["INFO"]


def test_a_fetcher_without_partitions_that_are_due_sends_when_the_pause_ends(followers: Followers) -> None:
    followers.follow(new_partition())
    followers.connect()
    header, _ = followers.request()
    followers.respond(header, PartitionData(error_code=ErrorCode.UNKNOWN_LEADER_EPOCH, high_watermark=-1, records=b""))
    assert followers.peers[-1].requests() == []
    followers.advance(60)
    # The session of the leader still has the partition.
    assert followers.request()[1].session_epoch == 1


def test_a_leader_that_is_not_registered_is_fetched_from_when_it_is(followers: Followers) -> None:
    followers.is_registered = False
    followers.follow(new_partition())
    assert followers.peers == []
    followers.is_registered = True
    followers.fetcher.wake()
    followers.connect()
    assert positions(followers.request()[1]) == [(4, 0, -1)]


def test_a_follower_with_a_longer_log_asks_for_the_leaders_offsets(followers: Followers) -> None:
    partition = new_partition()
    lead(partition, leader_epoch=3, partition_epoch=0)
    append(partition)
    append(partition)
    followers.follow(partition)
    followers.connect()
    header, _ = followers.request()
    followers.respond(header, PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=-1, records=b""))
    for timestamp, offset in ((-1, 1), (-2, 0)):
        header, request = followers.request()
        assert isinstance(request, ListOffsetsRequest)
        (wanted,) = request.topics[0].partitions
        assert (request.replica_id, wanted.timestamp, wanted.current_leader_epoch) == (1, timestamp, 4)
        found = ListOffsetsPartitionResponse(offset=offset)
        topic = ListOffsetsTopicResponse(name="t", partitions=[found])
        followers.peers[-1].respond(header, ListOffsetsResponse(topics=[topic]))
        followers.run()
    assert partition.log.log_end_offset == 1
    followers.device.complete_flush()
    followers.run()
    assert positions(followers.request()[1]) == [(4, 1, 3)]


def led_before(count: int = 3) -> Partition:
    """A partition with records that its next leader does not have."""
    partition = new_partition()
    lead(partition, leader_epoch=3, partition_epoch=0)
    for _ in range(count):
        append(partition)
    return partition


def diverging(end_offset: int, index: int = 0) -> PartitionData:
    return PartitionData(
        partition_index=index,
        high_watermark=0,
        log_start_offset=0,
        diverging_epoch=EpochEndOffset(epoch=3, end_offset=end_offset),
        records=b"",
    )


def test_a_truncation_waits_for_checkpoints_and_the_next_request_for_its_flush(followers: Followers) -> None:
    device = followers.device
    device.checkpoints.are_ahead = True
    partition, other = led_before(), led_before()
    other.index = 1
    followers.follow(partition)
    followers.follow(other)
    followers.connect()
    header, _ = followers.request()
    followers.respond(header)
    header, _ = followers.request()  # the first one that names both
    followers.respond(header, diverging(1), diverging(2, 1))
    for written in ([], [[1, 2]]):
        assert device.checkpoints.written == written
        assert (partition.log.log_end_offset, other.log.log_end_offset) == (3, 3)
        device.complete_job()
        followers.run()
    assert device.checkpoints.written == [[1, 2], "synced"]
    assert device.jobs == []
    assert (partition.log.log_end_offset, other.log.log_end_offset) == (1, 2)
    for log in (partition.log, other.log):
        assert log.cut_is_unsynced
        assert followers.peers[-1].requests() == []
        device.complete_flush()
        followers.run()
        assert not log.cut_is_unsynced
    assert positions(followers.request()[1]) == [(4, 1, 3), (4, 2, 3)]


def test_a_partition_that_changes_its_leader_before_the_truncation_keeps_its_records(followers: Followers) -> None:
    followers.device.checkpoints.are_ahead = True
    partition = led_before()
    followers.follow(partition)
    followers.connect()
    header, _ = followers.request()
    followers.respond(header, diverging(1))
    followers.follow(partition, 5)
    followers.device.complete_job()
    followers.run()
    followers.device.complete_job()
    followers.run()
    assert (partition.log.log_end_offset, followers.device.flushes) == (3, [])
    assert positions(followers.request()[1]) == [(5, 3, 3)]


def test_a_directory_whose_checkpoint_cannot_be_synced_fails(followers: Followers) -> None:
    device = followers.device
    device.checkpoints.are_ahead = True
    partition = led_before()
    partition.log.on_failure = lambda _log, _error: partition.go_offline()
    followers.follow(partition)
    followers.connect()
    header, _ = followers.request()
    followers.respond(header, diverging(1))
    device.complete_job()
    followers.run()
    device.jobs.pop()[1].set_exception(OSError(errno.EIO, "the device failed"))
    followers.run()
    assert partition.offline
    assert device.flushes == []
    assert followers.peers[-1].requests() == []


def test_a_log_without_leader_epochs_is_truncated_before_the_first_request(followers: Followers) -> None:
    partition = new_partition()
    for _ in range(3):
        partition.log.append(plain_batch(), now_ms=NOW, leader_epoch=-1)
    partition.restore_high_watermark(1)
    followers.follow(partition)
    assert followers.peers == []
    followers.device.complete_flush()
    followers.connect()
    assert positions(followers.request()[1]) == [(4, 1, -1)]


def test_a_closed_fetcher_sends_nothing(followers: Followers) -> None:
    followers.follow(new_partition())
    followers.connect()
    header, _ = followers.request()
    followers.fetcher.close()
    followers.respond(header, records(0))
    assert followers.peers[-1].requests() == []


@pytest.mark.parametrize(("level", "version"), [(30, 18), (27, 18), (26, 17), (20, 16), (12, 15), (9, 14), (7, 13)])
def test_the_version_of_fetch_depends_on_the_metadata_version(level: int, version: int) -> None:
    assert fetch_version(level) == version


def limit(followers: Followers, bytes_per_second: int) -> None:
    """The rate of this broker as follower. The replica of partition 0 is throttled."""
    followers.configs["follower.replication.throttled.replicas"] = "0:1,3:2"
    followers.throttling.update_config(
        load(overrides=[LISTENERS]).with_static(
            {"follower.replication.throttled.rate": StaticValue(str(bytes_per_second), "test")}
        )
    )


def test_a_replica_above_the_rate_is_not_fetched_until_the_rate_has_decreased(followers: Followers) -> None:
    partition = new_partition()
    limit(followers, 10)
    followers.follow(partition)
    followers.connect()
    header, _ = followers.request()
    followers.respond(header, records(0, high_watermark=5))
    followers.advance(1000)
    assert followers.peers[-1].requests() == []  # more than 10 B were received in a second
    followers.advance(12_000)
    assert positions(followers.request()[1]) == [(4, 1, 4)]


def test_a_replica_above_the_rate_is_fetched_when_the_rate_rises(followers: Followers) -> None:
    limit(followers, 10)
    followers.follow(new_partition())
    followers.connect()
    header, _ = followers.request()
    followers.respond(header, records(0, high_watermark=5))
    limit(followers, 1_000_000)
    followers.advance(100)
    assert positions(followers.request()[1]) == [(4, 1, 4)]


def test_a_replica_that_is_caught_up_is_fetched_at_any_rate(followers: Followers) -> None:
    limit(followers, 10)
    followers.follow(new_partition())
    followers.connect()
    header, _ = followers.request()
    followers.respond(header, records(0, high_watermark=1))
    assert positions(followers.request()[1]) == [(4, 1, 4)]


# -- in-sync sets ------------------------------------------------------------------------------------------------------


class Leader(SteppedLinks):
    """Proposals, and a controller that responds when the test calls it."""

    def __init__(self) -> None:
        super().__init__(capacity=1024)
        self.slices = Slices(self._callbacks.append)
        self.partition = new_partition()
        lead(self.partition, replicas=(1, 2, 3), isr=(1, 2))
        self.requests: list[tuple[AlterPartitionRequest, SlicedFuture[Any]]] = []
        self.changes = InSyncChanges(
            1, lambda: 51, self, self.slices, self.timers, lambda: [self.partition], max_lag_ms=MAX_LAG_MS
        )

    def request(self, request: Any, version: int, origin: Any) -> Sliced[Any]:
        """See `ControllerClient`."""
        assert (version, origin, request.broker_id, request.broker_epoch) == (3, None, 1, 51)
        later: SlicedFuture[Any] = SlicedFuture(self.slices)
        self.requests.append((request, later))
        return (yield from later.result())

    def versions(self, _api_key: int) -> None:
        """See `ControllerClient`."""

    def fetched(self, replica_id: int) -> None:
        """A follower has everything."""
        self.partition.follower_fetched(
            replica_id, self.partition.log.log_end_offset, now_ms=self.timers.now_ms(), eligible=True, broker_epoch=52
        )
        self.partition.advance_high_watermark()
        self.changes.expand(self.partition)
        self.run()

    def proposed(self) -> list[int]:
        """The set in the only request without a response."""
        [(request, _)] = self.requests
        return [member.broker_id for member in request.topics[0].partitions[0].new_isr_with_epochs]

    def respond(self, isr: list[int], error: ErrorCode = ErrorCode.NONE, epoch: int = 1) -> None:
        [(_, later)] = self.requests
        self.requests.clear()
        result = ResponsePartitionData(error_code=error, leader_id=1, leader_epoch=3, isr=isr, partition_epoch=epoch)
        topic = ResponseTopicData(topic_id=TOPIC_ID, partitions=[result])
        later.succeed(AlterPartitionResponse(topics=[topic]))
        self.run()


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_a_replica_that_has_caught_up_joins_the_in_sync_set(leader: Leader) -> None:
    leader.fetched(3)
    assert leader.proposed() == [1, 2, 3]
    leader.fetched(3)
    assert len(leader.requests) == 1
    leader.respond([1, 2, 3])
    assert leader.partition.isr == (1, 2, 3)
    assert leader.requests == []


def test_a_request_without_a_response_is_repeated_after_a_pause(leader: Leader) -> None:
    leader.fetched(3)
    [(_, later)] = leader.requests
    leader.requests.clear()
    later.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    leader.run()
    assert leader.requests == []
    leader.advance(60)
    assert leader.proposed() == [1, 2, 3]
    leader.respond([1, 2, 3])
    assert leader.partition.isr == (1, 2, 3)


def test_a_proposal_that_the_metadata_log_has_settled_is_not_repeated(leader: Leader) -> None:
    leader.fetched(3)
    [(_, later)] = leader.requests
    leader.requests.clear()
    lead(leader.partition, partition_epoch=1, replicas=(1, 2, 3), isr=(1, 2, 3))
    later.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    leader.advance(2000)
    assert leader.requests == []


def test_an_outdated_proposal_waits_for_the_metadata_log(leader: Leader) -> None:
    leader.fetched(3)
    leader.respond([], ErrorCode.INVALID_UPDATE_VERSION)
    leader.advance(2000)
    assert leader.requests == []
    assert leader.partition.in_sync is not None
    assert leader.partition.in_sync.proposed == (1, 2, 3)


def test_a_replica_that_lags_leaves_the_in_sync_set(leader: Leader) -> None:
    leader.changes.start()
    append(leader.partition)
    leader.advance(MAX_LAG_MS)
    # By the clock of the partition, which began at `NOW`, nothing lags yet.
    in_sync = leader.partition.in_sync
    assert in_sync is not None
    follower = in_sync.follower(2)
    assert follower is not None
    follower.caught_up_ms = leader.timers.now_ms() - MAX_LAG_MS - 1
    leader.advance(MAX_LAG_MS / 2 + 10)
    assert leader.proposed() == [1]
    leader.respond([1])
    assert leader.partition.isr == (1,)
