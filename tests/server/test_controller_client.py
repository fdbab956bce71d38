"""Late or missing responses of the controller: handlers wait, other clients are served, and no request is lost."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.log.memory_files import MemoryFileSystem
from moldau.metadata.outcome import Versioned
from moldau.metadata.records import BrokerEndpoint, RegisterBrokerRecord
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from moldau.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from moldau.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from moldau.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.describe_quorum import DescribeQuorumRequest
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from moldau.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.unregister_broker import UnregisterBrokerRequest
from moldau.protocol.messages.update_features import UpdateFeaturesRequest
from moldau.server.concurrency.slices import SlicedFuture
from moldau.server.controller_client import Origin
from moldau.server.records import group_commit
from moldau.testing.broker import Broker
from moldau.testing.builders import batch, fetch, produce, values
from moldau.testing.wire import WireClient

METADATA_LOG = "__cluster_metadata-0"


def create(name: str, *, timeout_ms: int = 60_000) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1)]
    return CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms)


def describe(*names: str, create: bool = False) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


class LateController:
    """Replaces the controller client of a broker. Each request waits until the test releases it, or makes it fail."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._client = server.broker.controller
        self.waiting: list[tuple[Any, SlicedFuture[None]]] = []
        self.requests: list[Any] = []
        self.origins: list[Origin | None] = []
        server.broker.controller = self

    def request(self, request: Any, version: int, origin: Origin | None) -> Any:
        later: SlicedFuture[None] = SlicedFuture(self._server.broker.slices)
        self.requests.append(request)
        self.origins.append(origin)
        self.waiting.append((request, later))
        yield from later.result()
        return (yield from self._client.request(request, version, origin))

    def wait_for(self, count: int) -> None:
        self._server.wait_until(lambda: len(self.waiting) == count)

    def release(self) -> None:
        def succeed() -> None:
            for _, later in self.waiting:
                later.succeed(None)
            self.waiting.clear()

        self._server.call(succeed)

    def refuse(self, error: KafkaError) -> None:
        def fail() -> None:
            for _, later in self.waiting:
                later.fail(error)
            self.waiting.clear()

        self._server.call(fail)


@pytest.fixture
def late(server: Any) -> LateController:
    return LateController(server)


def test_a_request_waits_for_a_late_controller_while_other_clients_are_served(
    server: Any, late: LateController
) -> None:
    with server.wire() as asking, server.wire() as other:
        asking.send(create("t"), 7)
        late.wait_for(1)
        assert other.call(describe("t"), 12).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        late.release()
        assert asking.receive().topics[0].error_code == 0
        assert other.call(describe("t"), 12).topics[0].error_code == 0


def test_later_requests_of_the_same_client_are_served_afterwards(server: Any, late: LateController) -> None:
    with server.wire() as wire:
        wire.send(create("t"), 7)
        wire.send(describe("t"), 12)
        late.wait_for(1)
        late.release()
        assert wire.receive().topics[0].error_code == 0
        assert wire.receive().topics[0].error_code == 0


REQUESTS: list[tuple[Any, int, Any]] = [
    (create("t"), 7, lambda answer: answer.topics[0].error_code),
    (
        DeleteTopicsRequest(topics=[DeleteTopicState(name="x")], timeout_ms=60_000),
        6,
        lambda answer: answer.responses[0].error_code,
    ),
    (
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="x", count=2)], timeout_ms=60_000),
        3,
        lambda answer: answer.results[0].error_code,
    ),
    (
        AlterConfigsRequest(resources=[AlterConfigsResource(resource_type=2, resource_name="x")]),
        2,
        lambda answer: answer.responses[0].error_code,
    ),
    (
        IncrementalAlterConfigsRequest(resources=[IncrementalResource(resource_type=2, resource_name="x")]),
        1,
        lambda answer: answer.responses[0].error_code,
    ),
    (ElectLeadersRequest(topic_partitions=None), 2, lambda answer: answer.error_code),
    (AlterPartitionReassignmentsRequest(), 0, lambda answer: answer.error_code),
    (ListPartitionReassignmentsRequest(topics=None), 0, lambda answer: answer.error_code),
    (UpdateFeaturesRequest(), 2, lambda answer: answer.error_code),
    (UnregisterBrokerRequest(broker_id=9), 0, lambda answer: answer.error_code),
    (DescribeQuorumRequest(), 2, lambda answer: answer.error_code),
    (FindCoordinatorRequest(coordinator_keys=["g"]), 4, lambda answer: answer.coordinators[0].error_code),
    (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4, lambda answer: answer.error_code),
    (describe("new", create=True), 12, lambda answer: answer.topics[0].error_code),
]


@pytest.mark.parametrize(("request_", "version", "code_of"), REQUESTS, ids=lambda value: type(value).__name__)
def test_a_request_that_the_controller_rejects_fails_with_its_error(
    server: Any, late: LateController, request_: Any, version: int, code_of: Any
) -> None:
    with server.wire() as wire:
        wire.send(request_, version)
        late.wait_for(1)
        late.refuse(KafkaError(ErrorCode.NOT_CONTROLLER, "it has moved"))
        assert code_of(wire.receive()) == ErrorCode.NOT_CONTROLLER


def test_the_controller_gets_the_client_and_the_deadline_of_a_request(server: Any, late: LateController) -> None:
    def origin_of(request: Any, version: int) -> Origin | None:
        wire.send(request, version)
        late.wait_for(1)
        late.release()
        wire.receive()
        return late.origins.pop()

    def now_ms() -> int:
        return int(server.call(server.broker.timers.now_ms))

    client = Origin("User:ANONYMOUS", "/127.0.0.1")
    with server.wire() as wire:
        earliest_ms = now_ms() + 1000
        origin = origin_of(create("t", timeout_ms=1000), 7)
        assert origin is not None
        assert origin.deadline_ms is not None
        assert origin._replace(deadline_ms=None) == client
        assert earliest_ms <= origin.deadline_ms <= now_ms() + 1000
        assert origin_of(describe("missing", create=True), 12) == client
        assert origin_of(DescribeQuorumRequest(), 2) == client
        assert origin_of(FindCoordinatorRequest(coordinator_keys=["g"]), 4) is None  # the broker's own request
        assert origin_of(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4) is None


TIMED: list[tuple[Any, int, Any]] = [
    (create("t", timeout_ms=0), 7, lambda answer: answer.topics[0].error_code),
    (create("t", timeout_ms=-1), 7, lambda answer: answer.topics[0].error_code),
    (
        DeleteTopicsRequest(topics=[DeleteTopicState(name="there")]),
        6,
        lambda answer: answer.responses[0].error_code,
    ),
    (
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="there", count=2)]),
        3,
        lambda answer: answer.results[0].error_code,
    ),
    (ElectLeadersRequest(topic_partitions=None, timeout_ms=0), 2, lambda answer: answer.error_code),
    (AlterPartitionReassignmentsRequest(timeout_ms=0), 0, lambda answer: answer.error_code),
    (ListPartitionReassignmentsRequest(topics=None, timeout_ms=0), 0, lambda answer: answer.error_code),
    (UpdateFeaturesRequest(timeout_ms=0), 2, lambda answer: answer.error_code),
]


@pytest.mark.parametrize(("request_", "version", "code_of"), TIMED, ids=lambda value: type(value).__name__)
def test_a_timeout_of_0_always_expires_and_the_request_changes_nothing(
    server: Any, request_: Any, version: int, code_of: Any
) -> None:
    server.create_topic("there")
    offset = server.call(lambda: server.broker.metadata.image.offset)
    with server.wire() as wire:
        assert code_of(wire.call(request_, version)) == ErrorCode.REQUEST_TIMED_OUT
    assert server.call(lambda: server.broker.metadata.controller.end_offset) == offset + 1


def test_a_waiting_request_is_freed_when_its_client_disconnects(server: Any, late: LateController) -> None:
    with server.wire() as wire:
        wire.send(create("t"), 7)
        late.wait_for(1)
    late.release()
    server.wait_until(lambda: not server.broker.slices._ages)
    assert server.call(lambda: server.broker.slices.elements) == 0


def test_a_shutdown_does_not_wait_for_a_controller_that_never_responds(server: Any, late: LateController) -> None:
    with server.wire() as wire:
        wire.send(create("t"), 7)
        late.wait_for(1)
        server.stop()


def test_concurrent_requests_that_need_the_same_coordinator_topic_all_find_it(
    server: Any, late: LateController
) -> None:
    wires = [server.wire() for _ in range(3)]
    for wire in wires:
        wire.send(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    late.wait_for(3)
    late.release()
    for wire in wires:
        assert wire.receive().coordinators[0].error_code == 0
        wire.close()


# Producer ids


def init_producer_id(wire: Any) -> Any:
    return wire.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)


def test_requests_wait_for_the_first_block_of_producer_ids(server: Any, late: LateController) -> None:
    wires = [server.wire() for _ in range(3)]
    for wire in wires:
        wire.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
    late.wait_for(1)
    late.release()
    assert sorted(wire.receive().producer_id for wire in wires) == [0, 1, 2]
    assert len(late.requests) == 1
    for wire in wires:
        wire.close()


def test_the_next_block_is_requested_before_the_current_one_is_used_up(server: Any, late: LateController) -> None:
    with server.wire() as wire:
        wire.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        late.wait_for(1)
        late.release()
        assert wire.receive().producer_id == 0
        ids = server.broker.producer_ids
        assert server.call(lambda: [ids.next() for _ in range(898)]) == list(range(1, 899))
        assert len(late.requests) == 1
        assert init_producer_id(wire).producer_id == 899
        late.wait_for(1)  # no request waits for it
        assert init_producer_id(wire).producer_id == 900
        late.release()
        server.wait_until(lambda: len(ids._blocks) == 2)
        assert server.call(lambda: [ids.next() for _ in range(200)]) == list(range(901, 1101))
        assert [type(request) for request in late.requests] == [AllocateProducerIdsRequest] * 2


def test_without_an_id_a_decision_is_rejected_and_a_block_is_requested(server: Any, late: LateController) -> None:
    def next_id() -> Any:
        try:
            return server.broker.producer_ids.next()
        except KafkaError as error:
            return error.code

    assert server.call(next_id) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    late.wait_for(1)
    late.release()
    server.wait_until(lambda: bool(server.broker.producer_ids._blocks))
    assert server.call(next_id) == 0


def test_after_an_error_the_next_request_requests_a_block_again(server: Any, late: LateController) -> None:
    with server.wire() as wire:
        for refused, received in (
            (ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER),
            # Clients do not retry after this one, which does not concern them.
            (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ):
            wire.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
            server.wait_until(lambda: bool(late.waiting))
            late.refuse(KafkaError(refused))
            assert wire.receive().error_code == received
        wire.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        server.wait_until(lambda: bool(late.waiting))
        late.release()
        assert wire.receive().producer_id == 0


# Brokers in the image


def register(server: Any, *, fenced: bool) -> None:
    """Register another broker."""
    endpoint = BrokerEndpoint(name="PLAINTEXT", host="other", port=9099)
    elsewhere = BrokerEndpoint(name="ELSEWHERE", host="hidden", port=9098)

    def registration(offset: int) -> Versioned:
        endpoints = [endpoint, elsewhere]
        record = RegisterBrokerRecord(broker_id=9, broker_epoch=offset, end_points=endpoints, rack="r", fenced=fenced)
        return Versioned(record, 4)

    server.append_metadata(registration)
    server.wait_until(lambda: 9 in server.broker.metadata.image.brokers)


@pytest.mark.parametrize("fenced", [False, True])
def test_brokers_and_their_endpoints_come_from_the_image(server: Any, fenced: bool) -> None:
    register(server, fenced=fenced)
    host, _, port = server.bootstrap_servers.rpartition(":")
    expected = [(1, host, int(port), None)] + ([] if fenced else [(9, "other", 9099, "r")])
    with server.wire() as wire:
        metadata = wire.call(describe(), 12)
        cluster = wire.call(DescribeClusterRequest(), 0)
    assert [(b.node_id, b.host, b.port, b.rack) for b in metadata.brokers] == expected
    assert [(b.broker_id, b.host, b.port, b.rack) for b in cluster.brokers] == expected
    assert metadata.controller_id == cluster.controller_id == 1


# The sync of the metadata log


class SlowDevice:
    """A disk on which syncs of the metadata log wait until the test releases them."""

    def __init__(self) -> None:
        self.disk = MemoryFileSystem(recording=False)
        self.syncs = 0
        self.code: int | None = None
        self._begun = threading.Semaphore(0)
        self._free = threading.Event()
        self._free.set()
        self.disk.fail_with = self._operate

    def _operate(self, operation: str, path: str) -> int | None:
        if operation != "sync" or METADATA_LOG not in path:
            return None
        self.syncs += 1
        if self._free.is_set():
            return None
        self._begun.release()
        assert self._free.wait(60)
        return self.code

    def hold(self) -> None:
        self.syncs = 0
        self._free.clear()

    def wait_for_sync(self) -> None:
        assert self._begun.acquire(timeout=60)

    def release(self) -> None:
        self._free.set()


@pytest.fixture
def device() -> Iterator[SlowDevice]:
    device = SlowDevice()
    yield device
    device.release()


def test_other_clients_are_served_while_the_device_is_slow(make_server: Any, device: SlowDevice) -> None:
    server = make_server(log_dirs=["/data"], file_system=device.disk)
    server.create_topic("there")
    with server.wire() as asking, server.wire() as other:
        device.hold()
        asking.send(create("t"), 7)
        device.wait_for_sync()
        produce(other, "there", batch(b"x"))
        assert values(fetch(other, "there")) == [b"x"]
        assert other.call(describe("there"), 12).topics[0].error_code == 0
        assert "t" not in server.call(lambda: server.broker.metadata.image.topics_by_name)
        device.release()
        assert asking.receive().topics[0].error_code == 0


def test_changes_during_a_sync_share_the_next_one(make_server: Any, device: SlowDevice) -> None:
    server = make_server(log_dirs=["/data"], file_system=device.disk)
    server.create_topic("there")
    wires = [server.wire() for _ in range(6)]
    device.hold()
    wires[0].send(create("t0"), 7)
    device.wait_for_sync()
    for number, wire in enumerate(wires[1:], 1):
        wire.send(create(f"t{number}"), 7)
    controller = server.broker.metadata.controller
    server.wait_until(lambda: len(controller._pending) == 6)
    assert device.syncs == 1
    device.release()
    for wire in wires:
        assert wire.receive().topics[0].error_code == 0
        wire.close()
    assert device.syncs == 2
    server.restart()
    assert len(server.broker.metadata.image.topics_by_name) == 7


def test_a_request_times_out_while_its_change_waits_for_the_device(make_server: Any, device: SlowDevice) -> None:
    server = make_server(log_dirs=["/data"], file_system=device.disk)
    with server.wire() as wire, server.wire() as other:
        device.hold()
        wire.send(create("t", timeout_ms=1000), 7)
        other.send(create("u"), 7)
        device.wait_for_sync()
        assert wire.receive().topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert wire.call(MetadataRequest(topics=None), 12).topics == []
        device.release()
        assert other.receive().topics[0].error_code == 0
        assert wire.call(describe("t"), 12).topics[0].error_code == 0  # the change has taken effect
        assert wire.call(create("v", timeout_ms=10_000), 7).topics[0].error_code == 0
    assert server.call(lambda: server.broker.slices.elements) == 0


def test_a_failed_sync_fails_all_pending_and_all_later_changes(make_server: Any, device: SlowDevice) -> None:
    server = make_server(log_dirs=["/data", "/other"], config={"metadata.log.dir": "/meta"}, file_system=device.disk)
    wires = [server.wire() for _ in range(3)]
    device.hold()
    for number, wire in enumerate(wires):
        wire.send(create(f"t{number}"), 7)
    device.wait_for_sync()
    server.wait_until(lambda: len(server.broker.metadata.controller._pending) == 3)
    device.code = errno.EIO
    device.release()
    for wire in wires:
        assert wire.receive().topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert wire.call(create("later"), 7).topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not wire.call(MetadataRequest(topics=None), 12).topics
        wire.close()


def test_a_shutdown_waits_for_the_device(make_server: Any, device: SlowDevice) -> None:
    server = make_server(log_dirs=["/data"], file_system=device.disk)
    with server.wire() as wire:
        device.hold()
        wire.send(create("t"), 7)
        device.wait_for_sync()
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        device.release()
        stopping.join(60)
    server.start()
    assert set(server.broker.metadata.image.topics_by_name) == {"t"}


def test_a_shutdown_applies_a_deletion_whose_sync_was_postponed(make_server: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(group_commit, "_RETRY_SECONDS", 3600)
    disk = MemoryFileSystem()
    server = make_server(log_dirs=["/data"], file_system=disk)
    server.create_topic("t")
    log = server.broker.metadata.log
    begin = type(log).begin_flush
    has_descriptors = False

    def begin_flush(self: Any, *arguments: Any) -> Any:
        if self is log and not has_descriptors:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "too many open files")
        return begin(self, *arguments)

    monkeypatch.setattr(type(log), "begin_flush", begin_flush)
    with server.wire() as wire:
        wire.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=60_000), 6)
        server.wait_until(lambda: log in server.broker.group_commit._postponed)
    has_descriptors = True
    server.stop()
    server.start()
    assert "t" not in server.broker.metadata.image.topics_by_name
    _, directories = disk.list_directory("/data")
    assert [name for name in directories if name.startswith("t-0") and not name.endswith("-delete")] == []


def test_other_clients_are_served_while_the_log_is_synced_for_a_snapshot(make_server: Any, device: SlowDevice) -> None:
    interval_ms = 3_600_000
    config = {"metadata.log.max.snapshot.interval.ms": str(interval_ms)}
    server = make_server(log_dirs=["/data"], config=config, file_system=device.disk)
    server.create_topic("there")
    device.hold()
    server.clock.advance(interval_ms)
    written = asyncio.run_coroutine_threadsafe(server.broker.metadata_snapshots.work(), server.loop)
    device.wait_for_sync()
    with server.wire() as other:
        produce(other, "there", batch(b"x"))
        assert values(fetch(other, "there")) == [b"x"]
    device.release()
    written.result(60)
    assert len(server.broker.metadata._log._snapshots.stored) == 2


def test_a_change_is_durable_when_its_response_is_sent(make_server: Any) -> None:
    disk = MemoryFileSystem()
    server = make_server(log_dirs=["/data"], file_system=disk)
    server.create_topic("t")
    survivor = server.call(lambda: disk.crash(discard_unsynced=True))
    server.stop()
    server.file_system = survivor
    server.start()
    assert set(server.broker.metadata.image.topics_by_name) == {"t"}


def test_a_created_topic_survives_a_kill_after_its_response(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        for name in ("a", "b", "c"):
            with WireClient(broker.bootstrap_servers) as wire:
                assert wire.call(create(name), 7).topics[0].error_code == 0
                broker.kill()
            broker.start()
            with WireClient(broker.bootstrap_servers) as wire:
                assert wire.call(describe(name), 12).topics[0].error_code == 0
                assert produce(wire, name, batch(b"x")).error_code == 0
