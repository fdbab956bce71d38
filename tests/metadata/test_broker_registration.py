"""BrokerRegistration: what a controller accepts, and what a new incarnation of a broker changes."""

from collections.abc import Callable

import pytest

from moldau.metadata.broker_registration import register
from moldau.metadata.brokers import fence_broker, shut_down_broker
from moldau.metadata.outcome import Versioned
from moldau.metadata.records import FeatureLevelRecord, PartitionChangeRecord, RegisterBrokerRecord
from moldau.metadata.registrations import NO_LEADER
from moldau.metadata.sessions import BrokerSessions
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from moldau.protocol.uuid import ONE_UUID

from .conftest import Cluster

TIMEOUT_MS = 9000


def uuid_of(number: int) -> bytes:
    return b"\x01" + number.to_bytes(15, "big")


def asks(broker_id: int = 2, *, life: int = 1, **fields: object) -> BrokerRegistrationRequest:
    request = BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id="test",
        incarnation_id=uuid_of(1000 * broker_id + life),
        listeners=[Listener(name="PLAINTEXT", host="localhost", port=9092 + broker_id, security_protocol=0)],
        features=[
            Feature(name="metadata.version", min_supported_version=7, max_supported_version=30),
            Feature(name="kraft.version", min_supported_version=0, max_supported_version=1),
            Feature(name="eligible.leader.replicas.version", min_supported_version=0, max_supported_version=1),
        ],
        log_dirs=[uuid_of(100 * broker_id)],
        rack="r",
        previous_broker_epoch=-1,
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def do(
    cluster: Cluster, sessions: BrokerSessions, request: BrokerRegistrationRequest, now_ms: int = 0
) -> tuple[int, list[Versioned]]:
    """The broker epoch and the records of an accepted registration."""
    end_offset = cluster.image.offset + 1
    outcome = register(cluster.image, request, sessions, cluster.context, end_offset=end_offset, session_ms=now_ms)
    response = cluster.do(outcome)
    assert outcome.on_appended is not None
    outcome.on_appended()
    return response.broker_epoch, outcome.records


def rejected(cluster: Cluster, sessions: BrokerSessions, request: BrokerRegistrationRequest, now_ms: int = 0) -> int:
    with pytest.raises(KafkaError) as raised:
        register(cluster.image, request, sessions, cluster.context, end_offset=1, session_ms=now_ms)
    return raised.value.code


@pytest.fixture
def sessions() -> BrokerSessions:
    return BrokerSessions(TIMEOUT_MS)


def test_a_new_broker_is_registered_as_fenced(cluster: Cluster, sessions: BrokerSessions) -> None:
    end_offset = cluster.image.offset + 1
    epoch, records = do(cluster, sessions, asks(), 500)
    assert epoch == end_offset
    assert [type(each.record) for each in records] == [RegisterBrokerRecord]
    broker = cluster.image.brokers[2]
    assert broker.fenced
    assert not broker.in_controlled_shutdown
    assert broker.epoch == epoch
    assert broker.directories == (uuid_of(200),)
    assert broker.rack == "r"
    assert broker.listeners["PLAINTEXT"].port == 9094
    assert sessions.is_valid(2, epoch, 500 + TIMEOUT_MS - 1)
    assert sessions.required_offset(2, epoch) == epoch


def test_nothing_changes_before_the_records_are_appended(cluster: Cluster, sessions: BrokerSessions) -> None:
    outcome = register(cluster.image, asks(), sessions, cluster.context, end_offset=100, session_ms=0)
    assert not sessions.is_valid(2, 100, 0)
    assert outcome.on_appended is not None
    outcome.on_appended()
    assert sessions.is_valid(2, 100, 0)


def test_the_cluster_id_must_be_that_of_the_controller(cluster: Cluster, sessions: BrokerSessions) -> None:
    assert rejected(cluster, sessions, asks(cluster_id="other")) == ErrorCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.parametrize(
    ("directories", "accepted"),
    [
        ([uuid_of(200)], True),
        ([uuid_of(200), uuid_of(201)], True),
        ([], False),
        ([uuid_of(200), uuid_of(200)], False),
        ([bytes(16)], False),
        ([ONE_UUID], False),
        ([bytes(15) + b"\x63"], False),  # 99 is the last reserved id
        ([bytes(15) + b"\x64"], True),
        ([uuid_of(100)], False),  # of broker 1
    ],
)
def test_directories(cluster: Cluster, sessions: BrokerSessions, directories: list[bytes], accepted: bool) -> None:
    if accepted:
        do(cluster, sessions, asks(log_dirs=directories))
        assert cluster.image.brokers[2].directories == tuple(sorted(directories))
    else:
        assert rejected(cluster, sessions, asks(log_dirs=directories)) == ErrorCode.INVALID_REGISTRATION


def test_directories_do_not_exist_before_their_metadata_version(cluster: Cluster, sessions: BrokerSessions) -> None:
    cluster.commit([Versioned(FeatureLevelRecord(name="metadata.version", feature_level=14))])
    do(cluster, sessions, asks(log_dirs=[]))
    assert cluster.image.brokers[2].directories == ()


@pytest.mark.parametrize(
    ("supported", "accepted"),
    [((7, 30), True), ((30, 31), True), ((7, 29), False), ((31, 32), False), (None, False)],
)
def test_every_finalized_feature_must_be_supported(
    cluster: Cluster, sessions: BrokerSessions, supported: tuple[int, int] | None, accepted: bool
) -> None:
    request = asks()
    request.features = [each for each in request.features if each.name != "metadata.version"]
    if supported is not None:
        low, high = supported
        request.features.append(Feature(name="metadata.version", min_supported_version=low, max_supported_version=high))
    if accepted:
        do(cluster, sessions, request)
    else:
        assert rejected(cluster, sessions, request) == ErrorCode.UNSUPPORTED_VERSION


def test_a_feature_with_level_zero_need_not_be_named(cluster: Cluster, sessions: BrokerSessions) -> None:
    cluster.image = cluster.image._replace(features={**cluster.image.features, "share.version": 0})
    do(cluster, sessions, asks())
    cluster.image = cluster.image._replace(features={**cluster.image.features, "share.version": 1})
    assert rejected(cluster, sessions, asks(3)) == ErrorCode.UNSUPPORTED_VERSION


def shutting_down(cluster: Cluster, epoch: int) -> None:
    cluster.commit(shut_down_broker(cluster.image, 2, cluster.context))


def unchanged(cluster: Cluster, epoch: int) -> None:
    pass


@pytest.mark.parametrize(
    ("life", "before", "now_ms", "accepted"),
    [
        (1, unchanged, 100, True),  # the same process
        (2, unchanged, TIMEOUT_MS - 1, False),
        (2, unchanged, TIMEOUT_MS, True),
        (2, shutting_down, 100, True),
    ],
)
def test_another_incarnation_waits_for_the_end_of_the_session(
    cluster: Cluster,
    sessions: BrokerSessions,
    life: int,
    before: Callable[[Cluster, int], None],
    now_ms: int,
    accepted: bool,
) -> None:
    epoch, _ = do(cluster, sessions, asks(life=1))
    before(cluster, epoch)
    if accepted:
        do(cluster, sessions, asks(life=life), now_ms)
    else:
        assert rejected(cluster, sessions, asks(life=life), now_ms) == ErrorCode.DUPLICATE_BROKER_REGISTRATION


@pytest.mark.parametrize(
    ("is_connected", "log_dirs", "accepted"),
    [
        (False, None, True),  # the same directories: their locks have been released
        (True, None, False),
        (False, [b"another-director"], False),
    ],
)
def test_another_incarnation_with_the_directories_of_a_disconnected_one_is_accepted(
    cluster: Cluster, sessions: BrokerSessions, is_connected: bool, log_dirs: list[bytes] | None, accepted: bool
) -> None:
    do(cluster, sessions, asks(life=1))
    sessions.is_connected = lambda broker_id, epoch: is_connected
    request = asks(life=2) if log_dirs is None else asks(life=2, log_dirs=log_dirs)
    if accepted:
        do(cluster, sessions, request)
    else:
        assert rejected(cluster, sessions, request) == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_the_same_incarnation_keeps_its_epoch_and_state(new_cluster: type[Cluster], sessions: BrokerSessions) -> None:
    cluster = new_cluster(1, 2)
    before = cluster.image.brokers[2]
    assert not before.fenced
    request = asks(life=0, log_dirs=[uuid_of(200), uuid_of(201)])
    epoch, records = do(cluster, sessions, request)
    assert epoch == before.epoch
    assert len(records) == 1
    after = cluster.image.brokers[2]
    assert not after.fenced
    assert after.directories == (uuid_of(200), uuid_of(201))


def test_a_new_incarnation_ends_the_session_of_the_earlier_one(cluster: Cluster, sessions: BrokerSessions) -> None:
    old, _ = do(cluster, sessions, asks(life=1))
    new, _ = do(cluster, sessions, asks(life=2), TIMEOUT_MS)
    assert old != new
    assert not sessions.is_valid(2, old, TIMEOUT_MS)
    assert sessions.is_valid(2, new, TIMEOUT_MS)


def test_a_new_incarnation_leaves_the_partitions_of_the_earlier_one(
    new_cluster: type[Cluster], sessions: BrokerSessions
) -> None:
    cluster = new_cluster(1, 2)
    cluster.create("a", 2, 2)
    _, records = do(cluster, sessions, asks())
    assert [type(each.record) for each in records[:-1]] == [PartitionChangeRecord] * 2
    assert isinstance(records[-1].record, RegisterBrokerRecord)  # last, so that no earlier record makes it visible
    assert sessions.required_offset(2, cluster.image.brokers[2].epoch) == cluster.image.offset
    for index in (0, 1):
        partition = cluster.image.partition("a", index)
        assert partition is not None
        assert (partition.leader, partition.isr) == (1, (1,))


@pytest.mark.parametrize("elr_enabled", [False, True])
@pytest.mark.parametrize("was_clean", [False, True])
@pytest.mark.parametrize("was_fenced", [False, True])
def test_only_a_clean_restart_keeps_the_eligibility_for_leadership(
    new_cluster: type[Cluster], sessions: BrokerSessions, elr_enabled: bool, was_clean: bool, was_fenced: bool
) -> None:
    """KIP-966: a broker that did not stop cleanly may have lost records that were acknowledged."""
    cluster = new_cluster(2, settings={"min.insync.replicas": "1"})
    if elr_enabled:
        feature = FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)
        cluster.commit([Versioned(feature)])
    cluster.create("a")
    if was_fenced:
        cluster.commit(fence_broker(cluster.image, 2, cluster.context))
    previous = cluster.image.brokers[2].epoch if was_clean else -1
    do(cluster, sessions, asks(previous_broker_epoch=previous))
    partition = cluster.image.partition("a", 0)
    assert partition is not None
    assert partition.leader == NO_LEADER
    if not elr_enabled:
        assert (partition.isr, partition.elr) == ((2,), ())  # the last replica remains in sync
    else:
        assert (partition.isr, partition.elr) == ((), (2,) if was_clean else ())
        assert partition.last_known_elr == (2,)


def test_brokers_of_zookeeper_are_not_registered(cluster: Cluster, sessions: BrokerSessions) -> None:
    assert rejected(cluster, sessions, asks(is_migrating_zk_broker=True)) == ErrorCode.BROKER_ID_NOT_REGISTERED
