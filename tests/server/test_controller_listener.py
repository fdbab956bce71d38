"""The listener of a controller (`process.roles=controller`), request by request."""

import ipaddress
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from moldau.metadata.features import SUPPORTED_FEATURES
from moldau.protocol.codec import decode, encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from moldau.protocol.messages.alter_partition import AlterPartitionRequest
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from moldau.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from moldau.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.protocol.messages.default_principal import DefaultPrincipalData
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from moldau.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from moldau.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    PartitionSnapshot,
    ResponsePartitionSnapshot,
    SnapshotId,
    TopicSnapshot,
)
from moldau.protocol.uuid import ONE_UUID
from moldau.testing.controllers import CONTROLLER, Controller
from moldau.testing.server_process import ServerProcess
from moldau.testing.server_run import BrokerError
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

DIRECTORY = b"\1" * 16


@pytest.fixture
def controller(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Controller]:
    """No session expires on a busy machine, unless a test wants it."""
    session_ms = getattr(request, "param", 3_600_000)
    controller = Controller(tmp_path, **{"broker.session.timeout.ms": str(session_ms)})
    controller.start()
    yield controller
    controller.stop()


@pytest.fixture
def wire(controller: Controller) -> Iterator[WireClient]:
    with WireClient(controller.address) as client:
        yield client


@dataclass
class FakeBroker:
    """A broker that only registers and sends heartbeats."""

    wire: WireClient
    cluster_id: str
    epoch: int = -1

    def register(self, life: int = 1) -> int:
        response = self.wire.call(
            BrokerRegistrationRequest(
                broker_id=1,
                cluster_id=self.cluster_id,
                incarnation_id=bytes([life]) * 16,
                listeners=[Listener(name="PLAINTEXT", host="localhost", port=1, security_protocol=0)],
                features=[
                    Feature(name=name, min_supported_version=each.minimum, max_supported_version=each.maximum)
                    for name, each in SUPPORTED_FEATURES.items()
                ],
                log_dirs=[DIRECTORY],
            )
        )
        self.epoch = response.broker_epoch
        return int(response.error_code)

    def beat(self, *, offset: int | None = None, stop: bool = False) -> BrokerHeartbeatResponse:
        response: BrokerHeartbeatResponse = self.wire.call(
            BrokerHeartbeatRequest(
                broker_id=1,
                broker_epoch=self.epoch,
                current_metadata_offset=self.epoch if offset is None else offset,
                want_shut_down=stop,
            )
        )
        assert response.error_code == ErrorCode.NONE
        return response


@pytest.fixture
def broker(controller: Controller, wire: WireClient) -> FakeBroker:
    broker = FakeBroker(wire, controller.cluster_id)
    assert broker.register() == ErrorCode.NONE
    assert not broker.beat().is_fenced
    return broker


def topic_on_broker(name: str) -> CreateTopicsRequest:
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[1])
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


def fetch(
    offset: int,
    *,
    last_epoch: int = 1,
    leader_epoch: int = 1,
    high_watermark: int = -1,
    max_wait_ms: int = 0,
    cluster_id: str | None = None,
    max_bytes: int = 1 << 20,
) -> FetchRequest:
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=0,
        replica_directory_id=DIRECTORY,
        high_watermark=high_watermark,
    )
    return FetchRequest(
        cluster_id=cluster_id,
        replica_state=ReplicaState(replica_id=1, replica_epoch=-1),
        max_wait_ms=max_wait_ms,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic_id=ONE_UUID, partitions=[partition])],
    )


def fetched(response: FetchResponse) -> PartitionData:
    assert response.error_code == ErrorCode.NONE
    assert [(each.node_id, each.host) for each in response.node_endpoints] == [(CONTROLLER, "127.0.0.1")]
    (partition,) = response.responses[0].partitions
    assert partition.current_leader.leader_id == CONTROLLER
    return partition


def test_the_apis_and_features_are_those_of_a_controller(wire: WireClient) -> None:
    response = wire.call(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
    keys = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert keys[1][1] == 18
    assert keys[62] == (0, 4)
    assert keys[63] == (0, 2)
    assert 0 not in keys  # Produce
    assert "metadata.version" in {each.name for each in response.finalized_features}


def test_the_controllers_are_described(controller: Controller, wire: WireClient) -> None:
    response = wire.call(DescribeClusterRequest(endpoint_type=2))
    (described,) = response.brokers
    assert (response.controller_id, response.cluster_id) == (CONTROLLER, controller.cluster_id)
    assert (described.broker_id, f"{described.host}:{described.port}") == (CONTROLLER, controller.address)
    assert wire.call(DescribeClusterRequest(endpoint_type=1)).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_the_log_is_fetched_from_its_start_to_its_end(wire: WireClient) -> None:
    partition = fetched(wire.call(fetch(0, last_epoch=0)))
    assert partition.records
    end = partition.high_watermark
    at_end = fetched(wire.call(fetch(end, high_watermark=end)))
    assert not at_end.records
    assert at_end.high_watermark == end


@pytest.mark.parametrize(
    ("leader_epoch", "error"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_the_response_to_another_leader_epoch_contains_the_leader(
    wire: WireClient, leader_epoch: int, error: ErrorCode
) -> None:
    partition = fetched(wire.call(fetch(0, leader_epoch=leader_epoch)))
    assert partition.error_code == error
    assert partition.current_leader.leader_epoch == 1


def test_another_cluster_is_rejected(wire: WireClient) -> None:
    response = wire.call(fetch(0, cluster_id="other"))
    assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_a_longer_copy_is_truncated(wire: WireClient) -> None:
    end = fetched(wire.call(fetch(0, last_epoch=0))).high_watermark
    partition = fetched(wire.call(fetch(end + 5)))
    assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == (1, end)
    assert not partition.records


def test_a_fetch_at_the_end_waits_for_a_change(controller: Controller, wire: WireClient, broker: FakeBroker) -> None:
    with WireClient(controller.address) as observer:
        end = fetched(observer.call(fetch(0, last_epoch=0))).high_watermark
        observer.send(fetch(end, high_watermark=end, max_wait_ms=30_000), 18)
        assert wire.call(topic_on_broker("a")).topics[0].error_code == ErrorCode.NONE
        partition = fetched(observer.receive())
        assert partition.records
        assert partition.high_watermark > end


def test_a_fetch_with_an_older_high_watermark_returns_immediately(wire: WireClient) -> None:
    end = fetched(wire.call(fetch(0, last_epoch=0))).high_watermark
    partition = fetched(wire.call(fetch(end, high_watermark=end - 1, max_wait_ms=30_000)))
    assert partition.high_watermark == end
    assert not partition.records


def test_a_registered_broker_serves_until_it_stops(controller: Controller, broker: FakeBroker) -> None:
    other = FakeBroker(broker.wire, controller.cluster_id)
    assert other.register(life=2) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert broker.beat(stop=True).should_shut_down
    assert other.register(life=2) == ErrorCode.NONE


@pytest.mark.parametrize("controller", [1000], indirect=True)
def test_an_expired_session_fences_the_broker(broker: FakeBroker, controller: Controller) -> None:
    wait_until(lambda: "Fenced broker 1" in controller.log())
    assert broker.beat().is_fenced  # it has not applied the fencing
    end = fetched(broker.wire.call(fetch(0, last_epoch=0))).high_watermark
    assert not broker.beat(offset=end - 1).is_fenced


def test_an_earlier_incarnation_gets_stale_broker_epoch(wire: WireClient, broker: FakeBroker) -> None:
    stale = broker.epoch - 1
    for request in (
        BrokerHeartbeatRequest(broker_id=1, broker_epoch=stale),
        AlterPartitionRequest(broker_id=1, broker_epoch=stale),
        AllocateProducerIdsRequest(broker_id=1, broker_epoch=stale),
    ):
        assert wire.call(request).error_code == ErrorCode.STALE_BROKER_EPOCH


def envelope(data: bytes, principal: bytes | None = None) -> EnvelopeRequest:
    user = DefaultPrincipalData(type="User", name="ANONYMOUS", token_authenticated=False)
    return EnvelopeRequest(
        request_data=data,
        request_principal=b"\0\0" + encode(user, 0) if principal is None else principal,
        client_host_address=ipaddress.ip_address("127.0.0.1").packed,
    )


def test_the_response_to_a_forwarded_request_has_its_header(wire: WireClient, broker: FakeBroker) -> None:
    header = struct.pack(">hhih", 19, 7, 4711, -1) + b"\0"
    response: EnvelopeResponse = wire.call(envelope(header + encode(topic_on_broker("a"), 7)))
    assert response.error_code == ErrorCode.NONE
    assert response.response_data is not None
    assert response.response_data[:5] == struct.pack(">i", 4711) + b"\0"
    created = decode(CreateTopicsResponse, response.response_data[5:], 7)
    assert [(topic.name, topic.error_code) for topic in created.topics] == [("a", ErrorCode.NONE)]


@pytest.mark.parametrize(
    ("data", "principal", "error"),
    [
        (struct.pack(">hhih", 0, 9, 1, -1), None, ErrorCode.UNSUPPORTED_VERSION),  # Produce is not forwarded
        (struct.pack(">hhih", 19, 99, 1, -1), None, ErrorCode.UNSUPPORTED_VERSION),
        (struct.pack(">hhih", 19, 7, 1, -1), None, ErrorCode.INVALID_REQUEST),  # no body
        (b"\0", None, ErrorCode.INVALID_REQUEST),
        (struct.pack(">hhih", 19, 7, 1, -1), b"", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_request_that_cannot_be_forwarded_is_an_error_of_the_envelope(
    wire: WireClient, data: bytes, principal: bytes | None, error: ErrorCode
) -> None:
    assert wire.call(envelope(data, principal)).error_code == error


def piece(wire: WireClient, snapshot: tuple[int, int], position: int, max_bytes: int) -> ResponsePartitionSnapshot:
    response = wire.call(
        FetchSnapshotRequest(
            replica_id=1,
            max_bytes=max_bytes,
            topics=[
                TopicSnapshot(
                    name="__cluster_metadata",
                    partitions=[
                        PartitionSnapshot(
                            partition=0,
                            current_leader_epoch=1,
                            snapshot_id=SnapshotId(end_offset=snapshot[0], epoch=snapshot[1]),
                            position=position,
                        )
                    ],
                )
            ],
        )
    )
    assert response.error_code == ErrorCode.NONE
    (partition,) = response.topics[0].partitions
    assert isinstance(partition, ResponsePartitionSnapshot)
    return partition


def test_a_running_controller_writes_snapshots_which_observers_fetch(tmp_path: Path) -> None:
    controller = Controller(tmp_path, **{"metadata.log.max.record.bytes.between.snapshots": "1"})
    controller.start()
    with WireClient(controller.address) as wire:
        broker = FakeBroker(wire, controller.cluster_id)
        assert broker.register() == ErrorCode.NONE
        broker.beat()

        def named() -> tuple[int, int] | None:
            snapshot = fetched(wire.call(fetch(0, last_epoch=0))).snapshot_id
            return (snapshot.end_offset, snapshot.epoch) if snapshot.end_offset > broker.epoch else None

        snapshot = wait_until(named)
        content, size = b"", 1
        while len(content) < size:
            found = piece(wire, snapshot, len(content), 100)
            assert found.error_code == ErrorCode.NONE
            assert found.position == len(content)
            assert isinstance(found.unaligned_records, bytes | memoryview)
            assert 0 < len(found.unaligned_records) <= 100
            content, size = content + bytes(found.unaligned_records), found.size
        name = f"{snapshot[0]:020d}-{snapshot[1]:010d}.checkpoint"
        assert content == (controller.data_dir / "__cluster_metadata-0" / name).read_bytes()
        assert piece(wire, snapshot, size, 100).error_code == ErrorCode.POSITION_OUT_OF_RANGE
        assert piece(wire, (snapshot[0] + 1000, 1), 0, 100).error_code == ErrorCode.SNAPSHOT_NOT_FOUND
        assert fetched(wire.call(fetch(snapshot[0], last_epoch=snapshot[1]))).error_code == ErrorCode.NONE
    controller.stop()


def test_the_directory_of_a_broker_with_its_own_controller_is_refused(tmp_path: Path) -> None:
    controller = Controller(tmp_path)
    command = [sys.executable, "-m", "moldau", "serve", "--exit-with-stdin", "--listen", "127.0.0.1:0"]
    command += ["--data-dir", str(controller.data_dir), "--set", f"node.id={CONTROLLER}"]
    combined = ServerProcess(command, tmp_path / "combined.log")
    combined.wait_ready(60)
    combined.stop(60)
    with pytest.raises(BrokerError, match=r"process\.roles=broker,controller"):
        controller.start()
