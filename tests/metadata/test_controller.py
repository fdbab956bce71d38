"""The controller with an external flush of its log: decisions, commits and errors."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from moldau.config.broker_config import BrokerConfig
from moldau.log.memory_files import MemoryFileSystem
from moldau.metadata.controller import Change, RemoteBrokers
from moldau.metadata.features import SUPPORTED_FEATURES
from moldau.metadata.image import MetadataImage
from moldau.metadata.observer_reads import Observers
from moldau.metadata.outcome import Outcome, Versioned
from moldau.metadata.quorum import Endpoint, Metadata
from moldau.metadata.records import NoOpRecord, PartitionChangeRecord
from moldau.metadata.registrations import NO_LEADER, RECOVERED, RECOVERING
from moldau.metadata.sessions import BrokerSessions
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from moldau.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from moldau.protocol.messages.unregister_broker import UnregisterBrokerRequest
from moldau.protocol.schema import Request
from moldau.protocol.steps import Steps, completed

NOW = 1_700_000_000_000


class Served:
    """A controller. The test flushes its log and completes the listeners of its changes."""

    def __init__(self) -> None:
        self.disk = MemoryFileSystem()
        self.metadata = Metadata.open(
            self.disk,
            "/data",
            BrokerConfig({}),
            node_id=1,
            cluster_id="cluster",
            directory_ids=[bytes(15) + b"\7"],
            listeners=[Endpoint("PLAINTEXT", "localhost", 9092)],
            now_ms=NOW,
        )
        self.controller = self.metadata.controller
        self.flushes = 0
        self.following: list[Steps[None]] = []
        self.controller.serve(self._flush_soon, self.following.append)

    def _flush_soon(self) -> None:
        self.flushes += 1

    def request(self, request: Request) -> tuple[Any, Change | None]:
        decide = self.controller.deciding(request, 0, lambda: NOW)
        return completed(self.controller.change(decide, lambda: NOW))

    def create(self, name: str) -> tuple[int, Change | None]:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        response, change = self.request(CreateTopicsRequest(topics=[topic]))
        return response.topics[0].error_code, change

    def flush(self) -> None:
        self.metadata.log.flush(NOW)

    def follow(self) -> None:
        for steps in self.following:
            completed(steps)
        self.following.clear()


@pytest.fixture
def served() -> Served:
    return Served()


def test_a_change_is_visible_when_durable_and_done_when_listeners_have_applied_it(served: Served) -> None:
    before = served.metadata.image
    code, change = served.create("a")
    assert change is not None
    assert (code, served.flushes) == (0, 1)
    assert served.metadata.image is before
    assert served.metadata.is_changing
    served.flush()
    assert "a" in served.metadata.image.topics_by_name
    assert not change.is_done
    served.follow()
    assert change.is_done
    assert change.error is None
    assert not served.metadata.is_changing


def test_unclean_elections_are_counted_when_they_are_durable(served: Served) -> None:
    served.create("a")
    topic = served.controller.image.topics_by_name["a"]

    def change(**fields: Any) -> None:
        record = PartitionChangeRecord(topic_id=topic.topic_id, partition_id=0, **fields)
        served.controller.append([Versioned(record, 2)], NOW)

    change(leader=2, isr=[2], leader_recovery_state=RECOVERING)
    assert served.controller.unclean_elections == 0
    served.flush()
    served.follow()
    assert served.controller.unclean_elections == 1
    change(leader_recovery_state=RECOVERED)  # the leader has recovered
    change(leader=3, isr=[3], leader_recovery_state=RECOVERING)
    change(isr=[3, 4])
    change(leader=4)  # it is in sync
    change(leader=5, isr=[5])  # still recovering, and not in sync
    change(leader=NO_LEADER)
    served.flush()
    served.follow()
    assert served.controller.unclean_elections == 3


def test_several_changes_share_a_sync_and_are_published_in_order(served: Served) -> None:
    received: list[tuple[str, bool]] = []
    served.metadata.subscribe(
        lambda delta, image: received.append((delta.created_topics[0].name, "b" in image.topics_by_name))
    )
    ended: list[str] = []
    for name in "ab":
        _, change = served.create(name)
        assert change is not None
        change.when_done(lambda name=name: ended.append(name))  # type: ignore[misc]
    served.flush()
    served.follow()
    assert received == [("a", True), ("b", True)]
    assert ended == ["a", "b"]


def test_requests_are_decided_on_appended_changes(served: Served) -> None:
    _, first = served.create("a")
    code, second = served.create("a")
    assert code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert second is first  # the response must wait for this change
    _, seen = served.request(ListPartitionReassignmentsRequest(topics=None))
    assert seen is first
    served.flush()
    assert served.create("a") == (ErrorCode.TOPIC_ALREADY_EXISTS, None)


def test_a_failed_sync_fails_all_pending_and_all_later_changes(served: Served) -> None:
    failures: list[OSError] = []
    served.metadata.on_log_failure(failures.append)
    before = served.metadata.image
    changes = [served.create(name)[1] for name in "ab"]
    served.disk.fail_with = lambda operation, path: errno.EIO if operation == "sync" else None
    with pytest.raises(KafkaError):
        served.flush()
    served.disk.fail_with = None
    for change in changes:
        assert change is not None
        assert change.is_done
        assert change.error is not None
        assert change.error.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert served.metadata.image is served.controller.image is before
    assert len(failures) == 1
    with pytest.raises(KafkaError) as refused:
        served.create("c")
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    # The change that the response has seen may be lost, and there is no change left to wait for.
    response, change = served.request(ListPartitionReassignmentsRequest(topics=None))
    assert (response.error_code, change) == (0, None)


def test_a_decision_on_a_change_that_is_lost_before_it_ends_is_repeated(served: Served) -> None:
    """A topic that exists in the image of the decision is created again, which fails as the log has failed."""
    served.create("a")
    topic = CreatableTopic(name="a", num_partitions=1, replication_factor=1)
    decide = served.controller.deciding(CreateTopicsRequest(topics=[topic]), 0, lambda: NOW)

    def decide_in_two_steps(image: MetadataImage) -> Steps[Outcome[Any]]:
        outcome = yield from decide(image)
        yield 0
        return outcome

    steps = served.controller.change(decide_in_two_steps, lambda: NOW)
    while next(steps) or "a" not in served.controller.image.topics_by_name:
        pass
    served.disk.fail_with = lambda operation, path: errno.EIO if operation == "sync" else None
    with pytest.raises(KafkaError):
        served.flush()
    served.disk.fail_with = None
    with pytest.raises(KafkaError) as refused:
        completed(steps)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("count", [0, 1, 5000])
def test_soft_state_changes_once_when_the_records_are_appended(served: Served, count: int) -> None:
    """Also if the metadata changed during the decision, which is then repeated, and for many and for no records."""
    effects: list[int] = []
    ends = served.controller.end_offset

    def decide(image: MetadataImage) -> Steps[Outcome[None]]:
        yield 0
        records = [Versioned(NoOpRecord()) for _ in range(count)]
        return Outcome(None, records, lambda: effects.append(served.controller.end_offset))

    steps = served.controller.change(decide, lambda: NOW)
    next(steps)
    served.create("a")  # the decision was based on an earlier image
    appended = served.controller.end_offset
    assert appended > ends
    completed(steps)
    assert effects == [appended + count]


@pytest.mark.parametrize("count", [1, 5000])
def test_soft_state_is_unchanged_if_the_append_fails(served: Served, count: int) -> None:
    effects: list[None] = []

    def decide(image: MetadataImage) -> Steps[Outcome[None]]:
        yield 0
        return Outcome(None, [Versioned(NoOpRecord()) for _ in range(count)], lambda: effects.append(None))

    served.disk.capacity_bytes = served.disk.used_bytes()
    with pytest.raises(KafkaError):
        completed(served.controller.change(decide, lambda: NOW))
    assert not effects


def registration(broker_id: int) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id="cluster",
        incarnation_id=bytes([broker_id]) * 16,
        features=[
            Feature(name=name, min_supported_version=versions.minimum, max_supported_version=versions.maximum)
            for name, versions in SUPPORTED_FEATURES.items()
        ],
        log_dirs=[bytes([broker_id]) * 16],
    )


def test_a_remote_broker_registers_beats_and_is_fenced(served: Served) -> None:
    now_ms = 0
    sessions = BrokerSessions(9000)
    served.controller.remote = RemoteBrokers(sessions, Observers(), lambda: now_ms)
    registered, _ = served.request(registration(2))
    epoch = registered.broker_epoch
    served.flush()
    assert served.metadata.image.brokers[2].fenced

    def beat() -> BrokerHeartbeatResponse:
        offset = served.metadata.image.offset
        response: BrokerHeartbeatResponse
        response, _ = served.request(
            BrokerHeartbeatRequest(broker_id=2, broker_epoch=epoch, current_metadata_offset=offset)
        )
        served.flush()
        return response

    assert not beat().is_fenced
    assert served.metadata.image.brokers[2].is_active
    now_ms = 8999
    assert completed(served.controller.change(served.controller.fence_expired, lambda: NOW)) == (None, None)
    now_ms = 9000
    fenced, change = completed(served.controller.change(served.controller.fence_expired, lambda: NOW))
    assert fenced == 2
    assert change is not None
    assert sessions.expired(now_ms) is None
    assert beat().is_fenced  # the response to a broker that has not applied the fencing
    assert not beat().is_fenced


def test_an_unflushed_change_waits_for_the_next_flush(served: Served) -> None:
    _, change = served.create("a")
    assert change is not None
    served.disk.capacity_bytes = served.disk.used_bytes()
    with pytest.raises(KafkaError) as refused:
        served.create("b")
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not change.is_done
    served.disk.capacity_bytes = None
    served.flush()
    served.follow()
    assert change.error is None
    assert set(served.metadata.image.topics_by_name) == {"a"}


def test_unregistering_this_broker_registers_it_again_in_the_same_change(served: Served) -> None:
    epoch = served.metadata.broker_epoch
    present = []
    served.metadata.subscribe(lambda delta, image: present.append(1 in delta.after.brokers))
    served.request(UnregisterBrokerRequest(broker_id=1))
    served.flush()
    served.follow()
    assert present == [True]
    assert served.metadata.broker_epoch > epoch
    assert served.metadata.image.brokers[1].is_active


def test_a_shutdown_commits_pending_changes(served: Served) -> None:
    _, change = served.create("a")
    served.metadata.close(NOW)
    assert change is not None
    assert change.is_done
    assert "a" in served.metadata.image.topics_by_name
