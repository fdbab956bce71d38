"""The metadata of one node on a directory: formatting, changes, restarts, crashes, failed disks, other nodes' logs."""

import errno
import random
from typing import Any

import pytest

from moldau.config.broker_config import BrokerConfig
from moldau.log.files import RealFileSystem
from moldau.log.memory_files import MemoryFileSystem, SimulatedCrash
from moldau.metadata.auto_create import missing_topics
from moldau.metadata.batches import control_batch, metadata_batches, read_batches
from moldau.metadata.checkpoint import SnapshotId, decode_snapshot, encode_snapshot, parse_file_name
from moldau.metadata.controller import RemoteBrokers
from moldau.metadata.create_topics import auto_create_request
from moldau.metadata.image import MetadataDelta, MetadataImage
from moldau.metadata.observer_reads import Observers
from moldau.metadata.outcome import Versioned
from moldau.metadata.quorum import Metadata, MetadataLogError
from moldau.metadata.quorum_state import QuorumState, QuorumStateError, decode_quorum_state
from moldau.metadata.records import (
    BeginTransactionRecord,
    ControllerFeature,
    FeatureLevelRecord,
    NoOpRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from moldau.metadata.registrations import NO_LEADER, Endpoint
from moldau.metadata.sessions import BrokerSessions
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages import incremental_alter_configs as incremental
from moldau.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from moldau.protocol.messages.control_records import (
    Endpoint as VoterEndpoint,
)
from moldau.protocol.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    ResponseVoter,
    SnapshotHeaderRecord,
    VotersRecord,
)
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from moldau.protocol.messages.unregister_broker import UnregisterBrokerRequest
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.protocol.records import Record, build_batch

from .lookups import partition_of

DIRECTORY = "/data"
LOG = f"{DIRECTORY}/__cluster_metadata-0"
SEGMENT = f"{LOG}/{0:020d}.log"
DIRECTORY_ID = b"d" * 16
NOW = 1_700_000_000_000


def start(file_system: Any, *, now_ms: int = NOW, directory: str = DIRECTORY, **changes: Any) -> Metadata:
    arguments: dict[str, Any] = {
        "node_id": 1,
        "cluster_id": "cluster",
        "directory_ids": [DIRECTORY_ID],
        "listeners": [Endpoint("PLAINTEXT", "localhost", 9092)],
        "now_ms": now_ms,
    }
    return Metadata.open(file_system, directory, BrokerConfig({}), **(arguments | changes))


def create(metadata: Metadata, *names: str, partitions: int = 1) -> list[int]:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    response = metadata.request(CreateTopicsRequest(topics=topics), now_ms=NOW)
    return [topic.error_code for topic in response.topics]


def batches(file_system: Any, path: str = SEGMENT) -> list[Any]:
    return list(read_batches(file_system.read_file(path), what=path))


def kinds(batch: Any) -> list[str]:
    return [type(record).__name__ for record in (*batch.control, *batch.records)]


@pytest.fixture
def disk() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def metadata(disk: MemoryFileSystem) -> Metadata:
    return start(disk)


# Formatting and the first startup


def test_a_new_directory_is_formatted_as_a_standalone_voter(disk: MemoryFileSystem) -> None:
    start(disk).abandon()
    bootstrap = decode_snapshot(disk.read_file(f"{DIRECTORY}/bootstrap.checkpoint"), name="bootstrap")
    assert bootstrap.records == [
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="transaction.version", feature_level=2),
    ]
    assert (bootstrap.kraft_version, bootstrap.voters, bootstrap.last_contained_timestamp_ms) == (0, None, 0)
    first = decode_snapshot(disk.read_file(f"{LOG}/{0:020d}-{0:010d}.checkpoint"), name="first")
    assert first.records == []
    assert first.kraft_version == 1
    assert first.voters is not None
    (voter,) = first.voters.voters
    assert (voter.voter_id, voter.voter_directory_id) == (1, DIRECTORY_ID)
    assert voter.endpoints == [VoterEndpoint(name="CONTROLLER", host="localhost", port=9093)]
    assert disk.read_file(f"{LOG}/partition.metadata") == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    assert disk.read_file(f"{LOG}/quorum-state") == (
        b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )


def test_the_first_startup_writes_the_records_of_apache_kafka(disk: MemoryFileSystem) -> None:
    start(disk).abandon()
    assert [kinds(batch) for batch in batches(disk)] == [
        ["LeaderChangeMessage", "KRaftVersionRecord", "VotersRecord"],
        ["BeginTransactionRecord", *["FeatureLevelRecord"] * 3, "EndTransactionRecord"],
        ["RegisterControllerRecord"],
        ["RegisterBrokerRecord"],
        ["BrokerRegistrationChangeRecord", "BrokerRegistrationChangeRecord"],
    ]
    assert {(batch.epoch, batch.timestamp_ms) for batch in batches(disk)} == {(1, NOW)}


def test_a_started_node_is_an_active_broker(metadata: Metadata) -> None:
    broker = metadata.image.brokers[1]
    assert broker.is_active
    assert broker.listeners == {"PLAINTEXT": Endpoint("PLAINTEXT", "localhost", 9092)}
    assert broker.directories == (DIRECTORY_ID,)
    assert metadata.broker_epoch == broker.epoch == 9
    levels = {"metadata.version": 30, "kraft.version": 1, "group.version": 1, "transaction.version": 2}
    assert metadata.image.features == metadata.finalized_features == levels
    assert (metadata.node_id, metadata.cluster_id) == (1, "cluster")
    assert metadata.supported_features["metadata.version"] == (7, 30)
    assert create(metadata, "a", partitions=3) == [0]
    assert partition_of(metadata.image, "a", 2).directories == (DIRECTORY_ID,)


def test_with_several_directories_the_replica_is_unassigned(disk: MemoryFileSystem) -> None:
    metadata = start(disk, directory_ids=[DIRECTORY_ID, b"e" * 16])
    create(metadata, "a")
    assert partition_of(metadata.image, "a", 0).directories == (bytes(15) + b"\1",)
    assert partition_of(metadata.image, "a", 0).leader == 1


@pytest.mark.parametrize("operations", range(1, 26))
def test_a_startup_recovers_from_an_interrupted_startup(disk: MemoryFileSystem, operations: int) -> None:
    disk.operations_left = operations
    with pytest.raises(SimulatedCrash):
        start(disk)
    for survivor in (disk.crash(), disk.crash(random.Random(operations))):
        metadata = start(survivor)
        assert metadata.image.brokers[1].is_active
        assert metadata.image.metadata_version == 30
        assert create(metadata, "a") == [0]


# Changes


def test_a_change_is_one_durable_batch_before_listeners_are_notified(disk: MemoryFileSystem) -> None:
    metadata = start(disk)
    received: list[tuple[MetadataDelta, MetadataImage]] = []

    def listener(delta: MetadataDelta, image: MetadataImage) -> None:
        survivors = disk.crash(random.Random(1))
        assert batches(survivors)[-1].next_offset - 1 == image.offset
        received.append((delta, image))

    metadata.subscribe(listener)
    before = metadata.image
    create(metadata, "a", "b", partitions=2)
    ((delta, image),) = received
    assert (delta.before, delta.after, image) == (before, metadata.image, metadata.image)
    assert {topic.name for topic in delta.created_topics} == {"a", "b"}
    assert len(batches(disk)[-1].records) == 6
    assert metadata.image.offset == batches(disk)[-1].next_offset - 1


def test_a_request_without_changes_accesses_no_file(disk: MemoryFileSystem) -> None:
    metadata = start(disk)
    create(metadata, "a")
    received: list[Any] = []
    metadata.subscribe(lambda delta, image: received.append(delta))
    disk.operations_left = 0
    assert create(metadata, "a") == [ErrorCode.TOPIC_ALREADY_EXISTS]
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="b", num_partitions=1, replication_factor=1)], validate_only=True
    )
    assert metadata.request(request, now_ms=NOW).topics[0].error_code == 0
    assert received == []


def test_a_listener_that_raises_does_not_stop_the_others(metadata: Metadata, caplog: pytest.LogCaptureFixture) -> None:
    def failing(delta: MetadataDelta, image: MetadataImage) -> None:
        raise ValueError("cannot follow")

    received: list[Any] = []
    metadata.subscribe(failing)
    metadata.subscribe(lambda delta, image: received.append(delta))
    assert create(metadata, "a") == [0]
    assert len(received) == 1
    assert "cannot follow" in caplog.text


def test_a_change_with_too_many_records_for_a_batch_is_several_batches(disk: MemoryFileSystem) -> None:
    metadata = start(disk)
    create(metadata, "a", partitions=6_000)
    create(metadata, "b", partitions=6_000)
    metadata.abandon()
    disk = disk.crash()
    count = len(batches(disk))
    again = start(disk)
    # Fencing: 12,000 partitions and the registration. Unfencing: two changes of it, and 12,000 partitions.
    assert [len(batch.records) for batch in batches(disk)[count + 2 :]] == [10_000, 2_001, 10_000, 2_002]
    assert {p.leader_epoch for p in again.image.topics_by_name["a"].partitions.values()} == {2}


def test_unknown_topics_are_missing_and_invalid_names_are_rejected(metadata: Metadata) -> None:
    create(metadata, "there", "a.b")
    missing, errors = missing_topics(metadata.image, ["there", "new", "no/name", "a_b", "new", "__cluster_metadata"])
    assert missing == ["new", "a_b"]
    assert errors == {
        "no/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "__cluster_metadata": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    response = metadata.request(auto_create_request([*missing, "__consumer_offsets"], BrokerConfig({})), now_ms=NOW)
    assert {topic.name: topic.error_code for topic in response.topics} == {
        "new": ErrorCode.NONE,
        "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "__consumer_offsets": ErrorCode.NONE,
    }
    assert partition_of(metadata.image, "new", 0).leader == 1
    assert metadata.image.topic_configs("__consumer_offsets")["cleanup.policy"] == "compact"


def allocate_producer_ids(metadata: Metadata) -> range:
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=metadata.broker_epoch)
    block = metadata.request(request, now_ms=NOW)
    return range(block.producer_id_start, block.producer_id_start + block.producer_id_len)


def test_producer_ids_are_never_assigned_twice_across_restarts(disk: MemoryFileSystem) -> None:
    metadata = start(disk)
    blocks = [allocate_producer_ids(metadata) for _ in range(2)]
    metadata = start(disk.crash())
    blocks.append(allocate_producer_ids(metadata))
    assert blocks == [range(1000), range(1000, 2000), range(2000, 3000)]


def test_this_broker_registers_again_when_it_is_unregistered(metadata: Metadata) -> None:
    create(metadata, "a")
    epoch = metadata.broker_epoch
    response = metadata.request(UnregisterBrokerRequest(broker_id=1), now_ms=NOW)
    assert response.error_code == 0
    assert metadata.broker_epoch > epoch
    assert metadata.image.brokers[1].is_active
    assert partition_of(metadata.image, "a", 0).leader == 1
    with pytest.raises(KafkaError) as refused:
        metadata.request(UnregisterBrokerRequest(broker_id=2), now_ms=NOW)
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_features_are_updated_in_the_log(disk: MemoryFileSystem) -> None:
    metadata = start(disk)
    keys = [FeatureUpdateKey(feature="metadata.version", max_version_level=30)]
    metadata.request(UpdateFeaturesRequest(feature_updates=keys), version=2, now_ms=NOW)
    assert kinds(batches(disk)[-1]) == ["FeatureLevelRecord"]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_quorum_describes_itself(metadata: Metadata, version: int) -> None:
    from moldau.protocol.codec import decode, encode

    requested = [TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    response = metadata.request(DescribeQuorumRequest(topics=requested), version=version, now_ms=NOW + 5)
    response = decode(type(response), encode(response, version), version)
    (partition,) = response.topics[0].partitions
    assert (partition.leader_id, partition.leader_epoch, partition.error_code) == (1, 1, 0)
    assert partition.high_watermark == metadata.image.offset + 1
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (1, metadata.image.offset + 1)
    assert voter.last_caught_up_timestamp == (NOW + 5 if version >= 1 else -1)
    assert voter.replica_directory_id == (DIRECTORY_ID if version >= 2 else bytes(16))
    assert [node.node_id for node in response.nodes] == ([1] if version >= 2 else [])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_quorum_describes_its_observers(metadata: Metadata, version: int) -> None:
    from moldau.protocol.codec import decode, encode

    observers, end_offset = Observers(), metadata.image.offset + 1
    observers.fetched(2, b"2" * 16, end_offset, end_offset, NOW)
    observers.fetched(2, b"2" * 16, end_offset - 1, end_offset, NOW + 3)
    metadata.controller.remote = RemoteBrokers(BrokerSessions(9000), observers, lambda: 0)
    requested = [TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    response = metadata.request(DescribeQuorumRequest(topics=requested), version=version, now_ms=NOW + 5)
    response = decode(type(response), encode(response, version), version)
    (observer,) = response.topics[0].partitions[0].observers
    assert (observer.replica_id, observer.log_end_offset) == (2, end_offset - 1)
    assert observer.last_fetch_timestamp == (NOW + 3 if version >= 1 else -1)
    assert observer.last_caught_up_timestamp == (NOW if version >= 1 else -1)
    assert observer.replica_directory_id == (b"2" * 16 if version >= 2 else bytes(16))


def test_only_the_metadata_partition_has_a_quorum(metadata: Metadata) -> None:
    for name, index in (("a", 0), ("__cluster_metadata", 1)):
        requested = [TopicData(topic_name=name, partitions=[PartitionData(partition_index=index)])]
        response = metadata.request(DescribeQuorumRequest(topics=requested), version=2, now_ms=NOW)
        assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Restarts


def test_all_metadata_survive_a_restart(disk: MemoryFileSystem) -> None:
    metadata = start(disk)
    create(metadata, "a", "b", partitions=2)
    change = incremental.AlterableConfig(name="retention.ms", config_operation=0, value="5000")
    resource = incremental.AlterConfigsResource(resource_type=2, resource_name="a", configs=[change])
    metadata.request(incremental.IncrementalAlterConfigsRequest(resources=[resource]), now_ms=NOW)
    metadata.request(DeleteTopicsRequest(topics=[DeleteTopicState(name="b")]), now_ms=NOW)
    before = metadata.image
    metadata.close(NOW)
    assert disk.open_files == 0
    again = start(disk)
    assert again.repairs == []
    assert set(again.image.topics_by_name) == {"a"}
    assert again.image.topics_by_name["a"].topic_id == before.topics_by_name["a"].topic_id
    assert again.image.topic_configs("a") == {"retention.ms": "5000"}
    assert again.image.offset > before.offset


def test_every_startup_starts_an_epoch_of_the_quorum(disk: MemoryFileSystem) -> None:
    for epoch in (1, 2, 3):
        metadata = start(disk)
        state = decode_quorum_state(disk.read_file(f"{LOG}/quorum-state"))
        assert (state.leader_id, state.leader_epoch) == (1, epoch)
        assert metadata.image.epoch == epoch
        metadata.close(NOW)
    changes = [batch for batch in batches(disk) if batch.control]
    assert [batch.epoch for batch in changes] == [1, 2, 3]
    assert [kinds(batch) for batch in changes[1:]] == [["LeaderChangeMessage"]] * 2


def test_an_epoch_that_is_only_in_quorum_state_is_not_reused(disk: MemoryFileSystem) -> None:
    start(disk).close(NOW)
    state = QuorumState(leader_id=1, leader_epoch=41).encode(1)
    disk.replace_file(f"{LOG}/quorum-state", state, sync=True)
    assert start(disk).image.epoch == 42


def test_a_clean_shutdown_fences_the_broker_and_leaves_no_leaders(disk: MemoryFileSystem) -> None:
    metadata = start(disk)
    create(metadata, "a", partitions=2)
    metadata.close(NOW)
    assert [kinds(batch) for batch in batches(disk)[-2:]] == [
        ["BrokerRegistrationChangeRecord", "PartitionChangeRecord", "PartitionChangeRecord"],
        ["BrokerRegistrationChangeRecord"],
    ]
    (controlled, leaderless, _), (fenced,) = (batch.records for batch in batches(disk)[-2:])
    assert controlled.in_controlled_shutdown == 1
    assert (leaderless.leader, leaderless.isr) == (NO_LEADER, None)
    assert fenced.fenced == 1


@pytest.mark.parametrize("clean", [True, False])
def test_after_a_restart_a_broker_leads_its_partitions_in_a_later_epoch(disk: MemoryFileSystem, clean: bool) -> None:
    metadata = start(disk)
    create(metadata, "a", "b", partitions=3)
    before = {(topic, p): r for topic in "ab" for p, r in metadata.image.topics_by_name[topic].partitions.items()}
    if clean:
        metadata.close(NOW)
    else:
        disk = disk.crash()
    again = start(disk)
    for (topic, index), registration in before.items():
        after = partition_of(again.image, topic, index)
        assert (after.leader, after.isr) == (1, (1,))
        assert after.leader_epoch > registration.leader_epoch
        assert after.partition_epoch > registration.partition_epoch


def test_a_new_address_of_the_controller_is_written_to_the_log(disk: MemoryFileSystem) -> None:
    start(disk).close(NOW)
    moved = Endpoint("CONTROLLER", "elsewhere", 19093)
    start(disk, controller_endpoint=moved).close(NOW)
    written = [batch for batch in batches(disk) if batch.control][-1]
    assert kinds(written) == ["LeaderChangeMessage", "KRaftVersionRecord", "VotersRecord"]
    assert written.control[-1].voters[0].endpoints[0].host == "elsewhere"
    start(disk, controller_endpoint=moved).close(NOW)
    assert kinds([batch for batch in batches(disk) if batch.control][-1]) == ["LeaderChangeMessage"]


def test_a_torn_tail_is_truncated(disk: MemoryFileSystem) -> None:
    metadata = start(disk)
    create(metadata, "a")
    whole = disk.size(SEGMENT)
    create(metadata, "b", partitions=5)
    metadata.abandon()
    file = disk.open(SEGMENT)
    file.truncate(whole + (disk.size(SEGMENT) - whole) // 2)
    file.close()
    again = start(disk)
    assert set(again.image.topics_by_name) == {"a"}
    assert again.repairs
    assert create(again, "b") == [0]


def test_acknowledged_changes_survive_any_power_failure(disk: MemoryFileSystem) -> None:
    """A seeded run of changes, crashes and power failures: acknowledged changes are kept, and epochs only increase."""
    dice = random.Random(20)
    topics: set[str] = set()
    epochs: dict[str, int] = {}
    producer_ids = 0
    last_epoch = 0
    for life in range(40):
        disk.operations_left = dice.choice([None, dice.randint(5, 60)])
        doing: set[str] = set()
        try:
            metadata = start(disk)
            assert metadata.image.epoch > last_epoch
            last_epoch = metadata.image.epoch
            assert topics - doing <= set(metadata.image.topics_by_name) <= topics | doing
            for name in topics:
                assert partition_of(metadata.image, name, 0).leader_epoch > epochs[name]
                epochs[name] = partition_of(metadata.image, name, 0).leader_epoch
            topics = set(metadata.image.topics_by_name)
            for step in range(dice.randint(0, 4)):
                doing = {f"t-{life}-{step}"}
                assert create(metadata, *doing, partitions=dice.randint(1, 3)) == [0]
                topics |= doing
                epochs |= dict.fromkeys(doing, 0)
                doing = set()
                if dice.random() < 0.3:
                    block = allocate_producer_ids(metadata)
                    assert block.start >= producer_ids
                    producer_ids = block.stop
            if dice.random() < 0.5:
                metadata.close(NOW)
        except SimulatedCrash:
            pass
        disk.operations_left = None
        # A pending change may be durable or not; the next startup shows which.
        disk = disk.crash(random.Random(life) if dice.random() < 0.7 else None)
        survivors = {t.name for t in start(disk.crash()).image.topics_by_name.values()}
        assert topics <= survivors <= topics | doing
        for name in survivors - topics:
            epochs[name] = 0
        topics = survivors
    assert len(topics) > 20


# Snapshots


def test_snapshots_are_named_after_their_end() -> None:
    assert SnapshotId(216, 5).file_name == "00000000000000000216-0000000005.checkpoint"
    assert parse_file_name("00000000000000000216-0000000005.checkpoint") == SnapshotId(216, 5)
    for other in ("00000000000000000216.log", "216-5.checkpoint", "00000000000000000216-0000000005.checkpoint.part"):
        assert parse_file_name(other) is None


def test_an_incomplete_snapshot_is_rejected() -> None:
    whole = encode_snapshot(
        [Versioned(TopicRecord(name="a"))], epoch=1, timestamp_ms=1, last_contained_timestamp_ms=1, voters=None
    )
    assert decode_snapshot(whole, name="x").records == [TopicRecord(name="a")]
    for size in (0, 30, len(whole) - 75, len(whole) - 1):
        with pytest.raises(MetadataLogError, match="x is incomplete"):
            decode_snapshot(whole[:size], name="x")
    broken = bytearray(whole)
    broken[120] ^= 1
    with pytest.raises(MetadataLogError, match="x is corrupt"):
        decode_snapshot(bytes(broken), name="x")


# Failed disks


def test_a_full_disk_rejects_changes_until_there_is_space(disk: MemoryFileSystem) -> None:
    metadata = start(disk)
    create(metadata, "a")
    before = metadata.image
    disk.capacity_bytes = disk.used_bytes() + 100
    with pytest.raises(KafkaError) as refused:
        create(metadata, "b", partitions=50)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert metadata.image is before
    disk.capacity_bytes = None
    assert create(metadata, "b", partitions=50) == [0]
    assert set(start(disk.crash()).image.topics_by_name) == {"a", "b"}


def test_after_a_failed_sync_no_change_is_acknowledged(disk: MemoryFileSystem) -> None:
    metadata = start(disk)
    create(metadata, "a")
    before = metadata.image
    received: list[Any] = []
    metadata.subscribe(lambda delta, image: received.append(delta))
    disk.fail_with = lambda operation, path: errno.EIO if operation == "sync" else None
    for _ in range(2):
        with pytest.raises(KafkaError) as refused:
            create(metadata, "b")
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        disk.fail_with = None
    assert metadata.image is before
    assert received == []
    with pytest.raises(KafkaError):
        metadata.close(NOW)
    assert disk.open_files == 0
    assert "a" in start(disk.crash()).image.topics_by_name


# Logs of other software


def foreign(disk: MemoryFileSystem, *parts: bytes) -> MemoryFileSystem:
    """A formatted directory with a metadata log of these batches."""
    start(disk).abandon()
    disk = disk.crash()
    file = disk.open(SEGMENT)
    file.truncate(0)
    data = b"".join(parts)
    file.write_at((data,), 0, len(data))
    file.close()
    for name in ("quorum-state", "leader-epoch-checkpoint"):
        disk.unlink(f"{LOG}/{name}")
    return disk


def records(*wanted: Any, offset: int = 0, epoch: int = 3) -> bytes:
    versioned = [each if isinstance(each, Versioned) else Versioned(each) for each in wanted]
    ((_, batch),) = metadata_batches(versioned, base_offset=offset, epoch=epoch, timestamp_ms=NOW, max_records=100)
    return batch


LEVEL = FeatureLevelRecord(name="metadata.version", feature_level=30)


def test_an_unfinished_transaction_is_aborted(disk: MemoryFileSystem) -> None:
    begun = records(BeginTransactionRecord(name="t"), TopicRecord(name="a", topic_id=b"a" * 16), offset=1)
    disk = foreign(disk, records(LEVEL), begun)
    metadata = start(disk)
    assert metadata.image.topics_by_name == {}
    assert [kinds(batch) for batch in batches(disk)[2:4]] == [
        ["LeaderChangeMessage", "KRaftVersionRecord", "VotersRecord"],
        ["AbortTransactionRecord"],
    ]
    assert create(metadata, "a") == [0]
    assert set(start(disk.crash()).image.topics_by_name) == {"a"}


def test_an_interrupted_bootstrap_is_written_again(disk: MemoryFileSystem) -> None:
    disk = foreign(disk, records(BeginTransactionRecord(name="Bootstrap records"), LEVEL))
    metadata = start(disk)
    assert metadata.image.metadata_version == 30
    assert kinds(batches(disk)[2]) == [
        "AbortTransactionRecord",
        "BeginTransactionRecord",
        *["FeatureLevelRecord"] * 3,
        "EndTransactionRecord",
    ]
    assert start(disk.crash()).image.metadata_version == 30


def test_bootstrap_records_are_written_to_the_log(disk: MemoryFileSystem) -> None:
    credential = UserScramCredentialRecord(name="u", mechanism=1, iterations=4096)
    group_version = FeatureLevelRecord(name="group.version", feature_level=1)
    share_version = FeatureLevelRecord(name="share.version", feature_level=1)
    level = FeatureLevelRecord(name="metadata.version", feature_level=29)
    content = encode_snapshot(
        [Versioned(record) for record in (level, group_version, share_version, credential)],
        epoch=0,
        timestamp_ms=NOW,
        last_contained_timestamp_ms=0,
        voters=None,
    )
    disk.make_directory(DIRECTORY)
    disk.replace_file(f"{DIRECTORY}/bootstrap.checkpoint", content, sync=True)
    metadata = start(disk)
    assert metadata.image.scram_credentials["u", 1].iterations == 4096
    levels = {"metadata.version": 29, "group.version": 1, "kraft.version": 1}
    assert metadata.image.features == levels | {"share.version": 1}
    assert metadata.finalized_features == levels
    create(metadata, "a")
    assert partition_of(metadata.image, "a", 0).leader == 1


def registered_controller(**features: int) -> RegisterControllerRecord:
    """The registration of a controller that supports these features up to these levels."""
    return RegisterControllerRecord(
        controller_id=1,
        features=[
            ControllerFeature(name=name.replace("_", "."), max_supported_version=level)
            for name, level in features.items()
        ],
    )


def test_a_directory_of_older_software_gets_the_features_supported_now(disk: MemoryFileSystem) -> None:
    disk = foreign(disk, records(LEVEL, registered_controller(metadata_version=30, kraft_version=1)))
    metadata = start(disk)
    levels = {"group.version": 1, "transaction.version": 2}
    assert metadata.finalized_features.items() >= levels.items()
    written = [record for batch in batches(disk)[1:] for record in batch.records]
    for name, level in levels.items():
        assert FeatureLevelRecord(name=name, feature_level=level) in written
    metadata.abandon()
    before = len(batches(disk))
    start(disk).abandon()
    assert "FeatureLevelRecord" not in [kind for batch in batches(disk)[before:] for kind in kinds(batch)]


def test_a_directory_without_transactions_gets_only_their_feature(disk: MemoryFileSystem) -> None:
    registered = registered_controller(metadata_version=30, kraft_version=1, group_version=1)
    disk = foreign(disk, records(LEVEL, registered))
    metadata = start(disk)
    assert metadata.finalized_features["transaction.version"] == 2
    assert "group.version" not in metadata.finalized_features  # the feature was disabled by a user


@pytest.mark.parametrize("feature", ["group.version", "transaction.version"])
def test_a_disabled_feature_stays_disabled(disk: MemoryFileSystem, feature: str) -> None:
    metadata = start(disk)
    keys = [FeatureUpdateKey(feature=feature, max_version_level=0, upgrade_type=2)]
    metadata.request(UpdateFeaturesRequest(feature_updates=keys), version=2, now_ms=NOW)
    assert feature not in metadata.finalized_features
    metadata.close(NOW)
    assert feature not in start(disk).finalized_features


@pytest.mark.parametrize(
    ("metadata_version", "features"),
    [(21, set()), (22, {"group.version"}), (23, {"group.version"}), (24, {"group.version", "transaction.version"})],
)
def test_a_feature_requires_the_metadata_version_that_introduced_it(
    disk: MemoryFileSystem, metadata_version: int, features: set[str]
) -> None:
    level = FeatureLevelRecord(name="metadata.version", feature_level=metadata_version)
    disk = foreign(disk, records(level, registered_controller(metadata_version=30)))
    assert start(disk).finalized_features.keys() - {"metadata.version", "kraft.version"} == features


def test_older_logs_are_continued_in_their_format(disk: MemoryFileSystem) -> None:
    """metadata.version 3.3: no transactions, no registered controllers, no directories, kraft.version 0."""
    level = FeatureLevelRecord(name="metadata.version", feature_level=7)
    disk = foreign(disk, records(level))
    disk.unlink(f"{LOG}/{0:020d}-{0:010d}.checkpoint")
    metadata = start(disk)
    create(metadata, "a")
    found = batches(disk)
    assert [kinds(batch) for batch in found[1:4]] == [
        ["LeaderChangeMessage"],
        ["RegisterBrokerRecord"],
        ["BrokerRegistrationChangeRecord"],
    ]
    assert metadata.image.controllers == {}
    assert metadata.finalized_features == {"metadata.version": 7}
    assert disk.read_file(f"{LOG}/quorum-state") == (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":4,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1}],"data_version":0}'
    )
    again = start(disk.crash())
    assert partition_of(again.image, "a", 0).leader == 1


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (b"\x01\x63\x00\x00", "type 99"),
        (b"\x01\x02\x07\x00", "offset 1"),
        (b"", "offset 1"),
        (b"\x02\x02\x00", "offset 1"),
    ],
)
def test_unknown_records_are_rejected(disk: MemoryFileSystem, value: bytes, complaint: str) -> None:
    unknown = build_batch([Record(value=value)], base_offset=1, leader_epoch=3)
    disk = foreign(disk, records(LEVEL), unknown)
    with pytest.raises(MetadataLogError, match=complaint):
        start(disk)
    assert disk.open_files == 0


def test_a_newer_metadata_version_is_rejected(disk: MemoryFileSystem) -> None:
    newer = FeatureLevelRecord(name="metadata.version", feature_level=31)
    with pytest.raises(MetadataLogError, match="31"):
        start(foreign(disk, records(newer)))


def test_a_directory_of_another_voter_is_rejected(disk: MemoryFileSystem) -> None:
    start(disk).close(NOW)
    for changes in ({"node_id": 2}, {"directory_ids": [b"x" * 16]}):
        with pytest.raises(MetadataLogError, match="belongs to a quorum with voters node 1"):
            start(disk, **changes)
    assert start(disk).image.epoch == 2


def test_a_directory_of_a_larger_quorum_is_rejected(disk: MemoryFileSystem) -> None:
    voters = VotersRecord(
        voters=[ResponseVoter(voter_id=number, voter_directory_id=DIRECTORY_ID) for number in (1, 2, 3)]
    )
    control = control_batch(
        [LeaderChangeMessage(leader_id=1), KRaftVersionRecord(kraft_version=1), voters],
        base_offset=0,
        epoch=3,
        timestamp_ms=NOW,
    )
    with pytest.raises(MetadataLogError, match="node 3"):
        start(foreign(disk, control))


def test_an_earlier_registration_of_another_broker_is_kept(disk: MemoryFileSystem) -> None:
    other = Versioned(RegisterBrokerRecord(broker_id=9, broker_epoch=1, fenced=True), 4)
    disk = foreign(disk, records(LEVEL, other))
    metadata = start(disk)
    assert set(metadata.image.brokers) == {1, 9}
    assert not metadata.image.brokers[9].is_active


def test_encoded_control_records_can_be_decoded() -> None:
    written: list[Any] = [
        SnapshotHeaderRecord(version=0, last_contained_log_timestamp=5),
        LeaderChangeMessage(leader_id=1),
    ]
    data = control_batch(written, base_offset=7, epoch=2, timestamp_ms=9)
    (batch,) = read_batches(data, what="x")
    assert (list(batch.control), batch.records) == (written, [])
    assert (batch.base_offset, batch.next_offset, batch.epoch, batch.timestamp_ms) == (7, 9, 2, 9)


def test_the_number_of_batches_is_minimal() -> None:
    noops = [Versioned(NoOpRecord())] * 25
    counts = [count for count, _ in metadata_batches(noops, base_offset=0, epoch=1, timestamp_ms=1, max_records=10)]
    assert counts == [10, 10, 5]
    large = [Versioned(TopicRecord(name="x" * 30_000))] * 300
    built = list(metadata_batches(large, base_offset=0, epoch=1, timestamp_ms=1, max_records=1000))
    assert sum(count for count, _ in built) == 300
    assert len(built) == 2
    assert all(len(batch) <= 8 * 1024 * 1024 for _, batch in built)


# quorum-state


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_encoded_quorum_state_can_be_decoded(kraft_version: int) -> None:
    state = QuorumState(leader_id=3, leader_epoch=7, voted_id=-1)
    assert decode_quorum_state(state.encode(kraft_version)) == state


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[1]",
        b"\xff",
        b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"data_version":1}',
        b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"data_version":2}',
        b'{"leaderId":"one","leaderEpoch":1,"votedId":-1,"data_version":0}',
        b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"x","data_version":1}',
    ],
)
def test_an_unreadable_quorum_state_is_rejected(disk: MemoryFileSystem, content: bytes) -> None:
    with pytest.raises(QuorumStateError):
        decode_quorum_state(content)
    start(disk).close(NOW)
    disk.replace_file(f"{LOG}/quorum-state", content, sync=True)
    with pytest.raises(MetadataLogError, match="quorum-state"):
        start(disk)


# Files of the operating system


def test_metadata_survive_restarts_on_real_files(tmp_path: Any) -> None:
    file_system = RealFileSystem()
    metadata = start(file_system, directory=str(tmp_path))
    create(metadata, "a", partitions=3)
    metadata.abandon()
    metadata = start(file_system, directory=str(tmp_path))
    assert len(metadata.image.topics_by_name["a"].partitions) == 3
    metadata.close(NOW)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["__cluster_metadata-0", "bootstrap.checkpoint"]


# A controller without a broker


def test_a_controller_without_a_broker_registers_only_itself(disk: MemoryFileSystem) -> None:
    for epoch in (1, 2):
        metadata = start(disk, is_broker=False)
        assert not metadata.image.brokers
        assert set(metadata.image.controllers) == {1}
        assert metadata.metadata_log.epoch == epoch
        metadata.close(NOW)
        assert not metadata.image.brokers
