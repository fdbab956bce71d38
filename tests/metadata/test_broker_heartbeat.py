"""BrokerHeartbeat: every state of a broker with every heartbeat, and the brokers whose sessions have expired."""

import itertools

import pytest

from moldau.metadata.broker_heartbeat import fence_expired, heartbeat
from moldau.metadata.brokers import change_directories, fence_broker, shut_down_broker
from moldau.metadata.outcome import Outcome, Versioned
from moldau.metadata.records import BrokerRegistrationChangeRecord, FeatureLevelRecord, PartitionChangeRecord
from moldau.metadata.registrations import NO_LEADER
from moldau.metadata.sessions import BrokerSessions
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

from .conftest import Cluster

FENCED, UNFENCED, SHUTTING_DOWN = "fenced", "unfenced", "controlled shutdown"


def uuid_of(number: int) -> bytes:
    return b"\x01" + number.to_bytes(15, "big")


@pytest.fixture
def sessions() -> BrokerSessions:
    return BrokerSessions(9000)


def beat(
    cluster: Cluster,
    sessions: BrokerSessions,
    broker_id: int = 2,
    *,
    offset: int | None = None,
    want_fence: bool = False,
    want_shut_down: bool = False,
    offline: tuple[bytes, ...] = (),
    cordoned: list[bytes] | None = None,
) -> tuple[BrokerHeartbeatResponse, list[Versioned]]:
    """Commit a heartbeat of a broker that has applied everything, or the metadata up to `offset`."""
    request = BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=cluster.image.brokers[broker_id].epoch,
        current_metadata_offset=cluster.image.offset if offset is None else offset,
        want_fence=want_fence,
        want_shut_down=want_shut_down,
        offline_log_dirs=list(offline),
        cordoned_log_dirs=cordoned,
    )
    outcome = heartbeat(cluster.image, request, sessions, cluster.context, cluster.image.offset + 1)
    return appended(cluster, outcome), outcome.records


def appended(cluster: Cluster, outcome: Outcome[BrokerHeartbeatResponse]) -> BrokerHeartbeatResponse:
    response = cluster.do(outcome)
    assert outcome.on_appended is not None
    outcome.on_appended()
    return response


def state_of(cluster: Cluster, broker_id: int = 2) -> str:
    broker = cluster.image.brokers[broker_id]
    return FENCED if broker.fenced else SHUTTING_DOWN if broker.in_controlled_shutdown else UNFENCED


def bring(cluster: Cluster, sessions: BrokerSessions, state: str, leads: bool) -> None:
    """Bring broker 2 into a state, as the only leader or without leaderships. Broker 1 has applied everything."""
    if state is FENCED:
        cluster.commit(fence_broker(cluster.image, 2, cluster.context))
    elif state is SHUTTING_DOWN:
        cluster.commit(shut_down_broker(cluster.image, 2, cluster.context))
    topic = cluster.image.topics_by_name["a"]
    partition = topic.partitions[0]._replace(leader=2 if leads else 1)
    topic = topic._replace(partitions={0: partition})
    cluster.image = cluster.image._replace(topics_by_id={topic.topic_id: topic}, topics_by_name={"a": topic})
    sessions.applied(1, cluster.image.brokers[1].epoch, cluster.image.offset)


@pytest.mark.parametrize(
    ("state", "want_fence", "want_shut_down", "caught_up", "leads"),
    list(
        itertools.product([FENCED, UNFENCED, SHUTTING_DOWN], [False, True], [False, True], [False, True], [False, True])
    ),
)
def test_every_heartbeat_in_every_state(
    new_cluster: type[Cluster],
    sessions: BrokerSessions,
    state: str,
    want_fence: bool,
    want_shut_down: bool,
    caught_up: bool,
    leads: bool,
) -> None:
    cluster = new_cluster(1, 2)
    cluster.create("a", 1, 2)
    bring(cluster, sessions, state, leads)
    epoch = cluster.image.brokers[2].epoch
    after, stops = state, False
    if state is FENCED:
        stops = want_shut_down
        if not stops and not want_fence and caught_up:
            after = UNFENCED
    elif state is UNFENCED:
        if want_shut_down and (want_fence or not leads):
            after, stops = FENCED, True
        elif want_shut_down:
            after = SHUTTING_DOWN
        elif want_fence:
            after = FENCED
    elif not leads:  # the other broker has applied all records, so this one may stop
        after, stops = FENCED, True

    response, records = beat(
        cluster,
        sessions,
        offset=epoch if caught_up else epoch - 1,
        want_fence=want_fence,
        want_shut_down=want_shut_down,
    )
    assert state_of(cluster) == after
    assert response.is_fenced == (after is FENCED)
    assert response.should_shut_down == stops
    assert response.is_caught_up == caught_up
    if after == state:
        assert records == []
    else:
        partition = cluster.image.partition("a", 0)
        assert partition is not None
        assert partition.leader == 1 or after is UNFENCED
        last = records[-1 if after is FENCED else 0].record
        assert isinstance(last, BrokerRegistrationChangeRecord)  # fencing is the last record, the others the first


def test_an_earlier_incarnation_is_rejected(cluster: Cluster, sessions: BrokerSessions) -> None:
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=cluster.image.brokers[1].epoch - 1)
    with pytest.raises(KafkaError) as raised:
        heartbeat(cluster.image, request, sessions, cluster.context, 100)
    assert raised.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_the_sessions_change_when_the_records_are_appended(
    new_cluster: type[Cluster], sessions: BrokerSessions
) -> None:
    cluster = new_cluster(1, 2)
    epoch = cluster.image.brokers[2].epoch
    request = BrokerHeartbeatRequest(broker_id=2, broker_epoch=epoch, current_metadata_offset=7, want_fence=True)
    outcome = heartbeat(cluster.image, request, sessions, cluster.context, 100)
    assert sessions.required_offset(2, epoch) == epoch
    appended(cluster, outcome)
    assert sessions.required_offset(2, epoch) == 100


def test_a_fenced_broker_is_unfenced_when_it_has_applied_the_fencing(
    new_cluster: type[Cluster], sessions: BrokerSessions
) -> None:
    """A suspended leader must not continue before it has applied the metadata changes of the meantime."""
    cluster = new_cluster(1, 2)
    cluster.create("a", 3, 2)
    before = cluster.image.offset
    beat(cluster, sessions, want_fence=True)
    assert cluster.image.offset == before + 4
    response, _ = beat(cluster, sessions, offset=cluster.image.offset - 1)
    assert (response.is_fenced, response.is_caught_up) == (True, False)
    response, _ = beat(cluster, sessions, offset=cluster.image.offset)
    assert (response.is_fenced, response.is_caught_up) == (False, True)


def test_controlled_shutdown_waits_for_the_active_brokers(new_cluster: type[Cluster], sessions: BrokerSessions) -> None:
    cluster = new_cluster(1, 2, 3)
    cluster.create("a", 6, 3)
    beat(cluster, sessions, 1)
    beat(cluster, sessions, 3)
    response, records = beat(cluster, sessions, want_shut_down=True)
    assert not response.should_shut_down
    assert not response.is_fenced
    assert isinstance(records[0].record, BrokerRegistrationChangeRecord)
    assert {type(each.record) for each in records[1:]} == {PartitionChangeRecord}
    moved = cluster.image.offset
    for broker_id, offset, expected in [(1, moved, False), (3, moved - 1, False), (3, moved, True)]:
        beat(cluster, sessions, broker_id, offset=offset)
        response, _ = beat(cluster, sessions, want_shut_down=True)
        assert response.should_shut_down is expected
    assert state_of(cluster) is FENCED


@pytest.mark.parametrize("elr_enabled", [False, True])
def test_the_leader_of_a_single_replica_can_stop(
    new_cluster: type[Cluster], sessions: BrokerSessions, elr_enabled: bool
) -> None:
    cluster = new_cluster(2)
    if elr_enabled:
        feature = FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)
        cluster.commit([Versioned(feature)])
    cluster.create("a", 2)
    response, _ = beat(cluster, sessions, want_shut_down=True)
    assert not response.should_shut_down
    response, _ = beat(cluster, sessions, want_shut_down=True)
    assert response.should_shut_down
    assert {partition.leader for partition in cluster.image.topics_by_name["a"].partitions.values()} == {NO_LEADER}


def test_unfencing_elects_leaders_of_partitions_without_one(
    new_cluster: type[Cluster], sessions: BrokerSessions
) -> None:
    cluster = new_cluster(2)
    cluster.create("a", 2)
    beat(cluster, sessions, want_fence=True)
    beat(cluster, sessions)
    assert {partition.leader for partition in cluster.image.topics_by_name["a"].partitions.values()} == {2}


def test_a_failed_directory_moves_its_partitions_once(new_cluster: type[Cluster], sessions: BrokerSessions) -> None:
    cluster = new_cluster(1, 2)
    cluster.create("a", 2, 2)
    failed, other = uuid_of(200), uuid_of(201)
    brokers = dict(cluster.image.brokers)
    brokers[2] = brokers[2]._replace(directories=(failed, other))
    cluster.image = cluster.image._replace(brokers=brokers)
    response, records = beat(cluster, sessions, offline=(failed,))
    assert not response.is_fenced
    assert [type(each.record) for each in records] == [PartitionChangeRecord] * 2 + [BrokerRegistrationChangeRecord]
    for partition in cluster.image.topics_by_name["a"].partitions.values():
        assert (partition.leader, partition.isr) == (1, (1,))
    assert cluster.image.brokers[2].directories == (other,)
    assert beat(cluster, sessions, offline=(failed,))[1] == []  # heartbeats repeat the list
    assert beat(cluster, sessions, offline=(uuid_of(999),))[1] == []  # an unknown directory


def test_cordoned_directories_are_recorded_when_they_change(cluster: Cluster, sessions: BrokerSessions) -> None:
    directory = uuid_of(100)
    for cordoned, changes in [([], False), ([directory], True), ([directory], False), (None, False)]:
        _, records = beat(cluster, sessions, 1, cordoned=cordoned)
        assert bool(records) is changes
    assert cluster.image.brokers[1].cordoned_directories == (directory,)


def test_cordoned_directories_need_their_metadata_version(cluster: Cluster, sessions: BrokerSessions) -> None:
    cluster.commit([Versioned(FeatureLevelRecord(name="metadata.version", feature_level=28))])
    assert beat(cluster, sessions, 1, cordoned=[uuid_of(100)])[1] == []


# The directories of a broker in the process of its controller


def test_the_failed_and_cordoned_directories_of_a_local_broker_are_recorded(new_cluster: type[Cluster]) -> None:
    cluster = new_cluster(1, 2)
    good, failed = uuid_of(100), uuid_of(101)
    epoch = cluster.image.brokers[1].epoch
    both = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, log_dirs=[good, failed])
    cluster.commit([Versioned(both, 2)])
    cluster.create("a", 1, 2)
    topic_id = cluster.image.topics_by_name["a"].topic_id
    directories = [failed, cluster.image.brokers[2].directories[0]]
    in_failed = PartitionChangeRecord(partition_id=0, topic_id=topic_id, replicas=[1, 2], directories=directories)
    cluster.commit([Versioned(in_failed, 1)])
    leader_epoch = cluster.image.topics_by_name["a"].partitions[0].leader_epoch

    def change(online: list[bytes], cordoned: list[bytes]) -> int:
        outcome = change_directories(cluster.image, 1, online, cordoned, cluster.context)
        cluster.do(outcome)
        return len(outcome.records)

    assert change([good, failed], []) == 0
    assert change([good, failed], [good]) == 1
    assert cluster.image.brokers[1].cordoned_directories == (good,)
    assert change([good], [good]) == 2
    partition = cluster.image.topics_by_name["a"].partitions[0]
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2,), leader_epoch + 1)
    assert cluster.image.brokers[1].directories == (good,)
    assert change([good], []) == 1
    cluster.commit([Versioned(FeatureLevelRecord(name="metadata.version", feature_level=29))])
    assert change([good], [good]) == 0


# Expired sessions


def look(cluster: Cluster, sessions: BrokerSessions, now_ms: int) -> int | None:
    end_offset = cluster.image.offset + 1
    outcome = fence_expired(cluster.image, sessions, cluster.context, end_offset=end_offset, session_ms=now_ms)
    fenced = cluster.do(outcome)
    if outcome.on_appended is not None:
        outcome.on_appended()
    return fenced


def test_one_broker_is_fenced_at_each_look(new_cluster: type[Cluster], sessions: BrokerSessions) -> None:
    cluster = new_cluster(1, 2, 3)
    cluster.create("a", 3, 3)
    for at, broker_id in enumerate((3, 1, 2)):
        sessions.contact(broker_id, cluster.image.brokers[broker_id].epoch, at)
    assert look(cluster, sessions, 8999) is None
    assert [look(cluster, sessions, 9001) for _ in range(3)] == [3, 1, None]
    assert [state_of(cluster, broker_id) for broker_id in (1, 2, 3)] == [FENCED, UNFENCED, FENCED]
    assert {partition.isr for partition in cluster.image.topics_by_name["a"].partitions.values()} == {(2,)}
    assert sessions.required_offset(1, cluster.image.brokers[1].epoch) == cluster.image.offset


def test_the_end_of_the_session_of_a_fenced_or_replaced_broker_changes_nothing(
    new_cluster: type[Cluster], sessions: BrokerSessions
) -> None:
    cluster = new_cluster(1, 2)
    cluster.commit(fence_broker(cluster.image, 2, cluster.context))
    before = cluster.image.offset
    for broker_id, epoch in ((2, cluster.image.brokers[2].epoch), (1, 0), (7, 7)):
        sessions.contact(broker_id, epoch, 0)
        assert look(cluster, sessions, 9000) is None
        assert sessions.expired(9000) is None
    assert cluster.image.offset == before


def test_an_expired_session_remains_if_fencing_fails(new_cluster: type[Cluster], sessions: BrokerSessions) -> None:
    cluster = new_cluster(1, 2)
    epoch = cluster.image.brokers[2].epoch
    sessions.contact(2, epoch, 0)
    fence_expired(cluster.image, sessions, cluster.context, end_offset=100, session_ms=9000)  # not appended
    assert sessions.expired(9000) == (2, epoch)
