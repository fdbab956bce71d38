"""Placement of replicas, leader election and reassignment in clusters of several brokers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.metadata import brokers
from moldau.metadata.brokers import (
    assign_replicas_to_directories,
    fence_broker,
    shut_down_broker,
    unregister_broker,
)
from moldau.metadata.elect_leaders import elect_leaders
from moldau.metadata.features import reported_features
from moldau.metadata.image import BROKER_RESOURCE
from moldau.metadata.outcome import Versioned
from moldau.metadata.partition_changes import Election, change_partition, complete_reassignment
from moldau.metadata.placement import place
from moldau.metadata.producer_ids import allocate_producer_ids
from moldau.metadata.reassignments import alter_partition_reassignments, list_partition_reassignments
from moldau.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from moldau.metadata.registrations import LOST_DIRECTORY, NO_LEADER, BrokerRegistration, PartitionRegistration
from moldau.metadata.update_features import update_features
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from moldau.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from moldau.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from moldau.protocol.messages.unregister_broker import UnregisterBrokerRequest
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

Cluster = Any


def broker(broker_id: int, *, rack: str | None = None, fenced: bool = False, **changes: Any) -> BrokerRegistration:
    return BrokerRegistration(broker_id, 1, bytes(16), {}, {}, rack=rack, fenced=fenced, **changes)


# Placement


def test_leaders_and_followers_are_spread_evenly() -> None:
    placed = place([broker(number) for number in range(5)], 20, 3)
    for position in range(3):
        counts = [sum(replicas[position] == number for replicas in placed) for number in range(5)]
        assert counts == [4] * 5
    assert len(set(placed)) == 20


def test_replicas_are_in_different_racks() -> None:
    brokers = [broker(number, rack="abc"[number % 3]) for number in range(6)]
    for replicas in place(brokers, 12, 3):
        assert len({number % 3 for number in replicas}) >= 2
    assert all(len({n % 3 for n in replicas[:2]}) == 2 for replicas in place(brokers, 6, 2))


def test_fenced_brokers_get_replicas_only_if_no_other_broker_is_left() -> None:
    brokers = [broker(1), broker(2), broker(3, fenced=True)]
    assert all(3 not in replicas for replicas in place(brokers, 6, 2))
    assert all(replicas[2] == 3 for replicas in place(brokers, 6, 3))


@pytest.mark.parametrize(
    "brokers",
    [
        [],
        [broker(1, fenced=True)],
        [broker(1, in_controlled_shutdown=True)],
        [broker(1, directories=(b"d" * 16,), cordoned_directories=(b"d" * 16,))],
    ],
)
def test_placement_requires_a_broker_that_can_lead(brokers: list[BrokerRegistration]) -> None:
    with pytest.raises(KafkaError) as refused:
        place(brokers, 1, 1)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6), st.integers(0, 30), st.integers(1, 6), st.integers(0, 10), st.integers(1, 3))
def test_replicas_of_a_partition_are_on_different_brokers(
    brokers: int, partitions: int, factor: int, start: int, racks: int
) -> None:
    there = [broker(number, rack=str(number % racks)) for number in range(brokers)]
    if factor > brokers:
        with pytest.raises(KafkaError):
            place(there, partitions, factor, start)
        return
    placed = place(there, partitions, factor, start)
    assert len(placed) == partitions
    assert all(len(set(replicas)) == factor for replicas in placed)


# Changes of one partition


ALIVE = {1, 2, 3, 4}


def changed(partition: PartitionRegistration, *, alive: set[int] = ALIVE, **wanted: Any) -> PartitionRegistration:
    wanted.setdefault("elr_minimum", None)
    versioned = change_partition(partition, b"t" * 16, 0, may_lead=alive.__contains__, metadata_version=30, **wanted)
    if versioned is None:
        return partition
    assert isinstance(versioned.record, PartitionChangeRecord)
    assert versioned.version == 2
    return partition.merge(versioned.record)


def partition(*replicas: int, **changes: Any) -> PartitionRegistration:
    fields: dict[str, Any] = {"isr": replicas, "leader": replicas[0], "directories": (b"d" * 16,) * len(replicas)}
    return PartitionRegistration(replicas, **(fields | changes))


def test_an_unchanged_partition_has_no_record() -> None:
    before = partition(1, 2)
    assert changed(before) is before


def test_the_first_in_sync_replica_becomes_the_leader() -> None:
    after = changed(partition(1, 2, 3, isr=(1, 3)), alive={2, 3}, isr=[3])
    assert (after.leader, after.isr, after.leader_epoch) == (3, (3,), 1)


def test_the_last_in_sync_replica_stays_in_the_isr_when_it_goes_offline() -> None:
    after = changed(partition(1, 2, isr=(1,)), alive={2}, isr=[])
    assert (after.leader, after.isr, after.leader_epoch) == (NO_LEADER, (1,), 1)
    back = changed(after, alive={1, 2})
    assert (back.leader, back.leader_epoch) == (1, 2)


def test_an_unclean_election_elects_any_active_replica() -> None:
    after = changed(partition(1, 2, isr=(1,)), alive={2}, isr=[], election=Election.UNCLEAN)
    assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), 1)


def test_the_preferred_leader_is_elected_only_if_it_is_in_sync() -> None:
    before = partition(1, 2, leader=2)
    assert changed(before).leader == 2
    assert changed(before, election=Election.PREFERRED).leader == 1
    behind = partition(1, 2, leader=2, isr=(2,))
    assert changed(behind, election=Election.PREFERRED) == behind


def test_a_smaller_in_sync_set_raises_the_leader_epoch_only_up_to_3_5() -> None:
    def leader_epoch(metadata_version: int) -> int:
        before = partition(1, 2, 3)
        versioned = change_partition(
            before,
            b"t" * 16,
            0,
            may_lead=lambda _: True,
            metadata_version=metadata_version,
            elr_minimum=None,
            isr=[1, 2],
        )
        assert versioned is not None
        return before.merge(versioned.record).leader_epoch  # type: ignore[arg-type]

    assert (leader_epoch(30), leader_epoch(11)) == (0, 1)


def test_eligible_leader_replicas_are_kept_and_elected_with_kip_966() -> None:
    elr: dict[str, Any] = {"elr_minimum": 2}
    one_left = changed(partition(1, 2), alive={1}, isr=[1], **elr)
    assert (one_left.isr, one_left.elr, one_left.leader) == ((1,), (2,), 1)
    none_left = changed(one_left, alive=set(), isr=[], **elr)
    assert (none_left.isr, set(none_left.elr), none_left.leader) == ((), {1, 2}, NO_LEADER)
    assert none_left.last_known_elr == (1,)
    back = changed(none_left, alive={2}, **elr)
    assert (back.leader, back.isr, back.last_known_elr) == (2, (2,), ())


def test_the_last_known_leader_is_elected_if_isr_and_elr_are_empty() -> None:
    before = partition(1, 2, isr=(), leader=NO_LEADER, last_known_elr=(1,))
    after = changed(before, alive={1}, elr_minimum=1)
    assert (after.leader, after.isr, after.last_known_elr, after.leader_recovery_state) == (1, (1,), (), 1)


@pytest.mark.parametrize(
    ("replicas", "isr", "removing", "adding", "expected"),
    [
        ((1, 2), (1, 2), (), (), None),
        ((3, 1), (1,), (1,), (3,), None),
        ((3, 1), (1, 3), (1,), (3,), ((3,), (3,))),
        ((2, 1), (1,), (1,), (), None),
        ((2, 1), (1, 2), (1,), (), ((2,), (2,))),
        ((1, 2, 3), (1, 2), (), (3,), None),
        ((1, 2, 3), (1, 2, 3), (), (3,), ((1, 2, 3), (1, 2, 3))),
        # Fewer replicas than before: the remaining ones must be in sync.
        ((5, 2, 3, 1, 4), (1, 5), (1, 4), (5,), None),
        ((5, 2, 3, 1, 4), (1, 2, 3, 5), (1, 4), (5,), ((5, 2, 3), (2, 3, 5))),
    ],
)
def test_a_reassignment_completes_when_the_target_replicas_are_in_sync(
    replicas: Any, isr: Any, removing: Any, adding: Any, expected: Any
) -> None:
    assert complete_reassignment(replicas, isr, removing, adding) == expected


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_every_change_keeps_the_invariants_of_a_partition(data: st.DataObject) -> None:
    """After any change of any partition, the leader is active and in sync, and the ISR is a subset of the replicas."""
    replicas = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4, unique=True))
    isr = data.draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True))
    before = partition(*replicas, isr=tuple(isr), leader=data.draw(st.sampled_from([NO_LEADER, *isr])))
    alive = data.draw(st.sets(st.integers(1, 4)))
    target = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4, unique=True))
    removing = tuple(replica for replica in replicas if replica not in target)
    adding = tuple(replica for replica in target if replica not in replicas)
    after = changed(
        before,
        alive=alive,
        election=data.draw(st.sampled_from(list(Election))),
        isr=data.draw(st.none() | st.just([replica for replica in isr if replica in alive])),
        replicas=(*target, *removing),
        removing=removing or None,
        adding=adding or None,
        elr_minimum=data.draw(st.none() | st.integers(1, 3)),
    )
    assert set(after.isr) <= set(after.replicas)
    assert len(after.directories) == len(after.replicas)
    if after.leader != NO_LEADER:
        assert after.leader in after.isr
        assert after.leader in alive
    assert after.leader_epoch >= before.leader_epoch
    if after.leader != before.leader:
        assert after.leader_epoch > before.leader_epoch
    assert not set(after.elr) & set(after.isr)
    assert set(after.elr) <= set(after.replicas)


# Registration of brokers


def test_leadership_moves_when_a_broker_shuts_down_but_not_when_it_returns(new_cluster: type[Cluster]) -> None:
    cluster = new_cluster(1, 2)
    cluster.create("a", 4, 2)
    cluster.commit(shut_down_broker(cluster.image, 1, cluster.context))
    cluster.commit(fence_broker(cluster.image, 1, cluster.context))
    states = list(cluster.image.topics_by_name["a"].partitions.values())
    assert {(p.leader, p.isr) for p in states} == {(2, (2,))}
    assert not cluster.image.brokers[1].is_active
    cluster.join(cluster.node(1, life=2))
    assert list(cluster.image.topics_by_name["a"].partitions.values()) == states
    assert cluster.image.brokers[1].is_active


def test_a_single_broker_leads_all_partitions_again_in_a_later_epoch(cluster: Cluster) -> None:
    cluster.create("a", 2)
    epochs = [cluster.image.partition("a", 0).leader_epoch]
    for life in (1, 2):  # it died twice without a shutdown request
        cluster.join(cluster.node(1, life=life))
        found = cluster.image.partition("a", 0)
        assert (found.leader, found.isr) == (1, (1,))
        epochs.append(found.leader_epoch)
    assert epochs == [0, 2, 4]


def test_a_broker_epoch_is_the_offset_of_its_registration(cluster: Cluster) -> None:
    before = cluster.image.offset
    cluster.join(cluster.node(1, life=1))
    assert cluster.image.brokers[1].epoch == before + 1


def test_a_broker_registers_with_the_fields_of_the_metadata_version(cluster: Cluster) -> None:
    cluster.commit([Versioned(FeatureLevelRecord(name="metadata.version", feature_level=14))])
    cluster.create("a")
    cluster.join(cluster.node(1, life=1))
    assert cluster.image.brokers[1].directories == ()
    assert cluster.image.brokers[1].cordoned_directories is None
    assert cluster.image.partition("a", 0).leader == 1


def test_skipped_partitions_are_those_without_a_change(new_cluster: type[Cluster]) -> None:
    """The startup of a single broker skips partitions whose only replica is in sync and that need no change."""
    cluster = new_cluster(1, 2)
    cluster.create("a")
    cluster.create("unclean", unclean_leader_election_enable="true")
    skipped = 0
    for isr, leader, elr, last_known_elr, replicas, adding, name in itertools.product(
        [(), (1,), (2,)], [NO_LEADER, 1], [(), (1,)], [(), (1,)], [(1,), (1, 2)], [(), (2,)], ["a", "unclean"]
    ):
        topic = cluster.image.topics_by_name[name]
        partition = topic.partitions[0]._replace(
            isr=isr,
            leader=leader,
            elr=elr,
            last_known_elr=last_known_elr,
            replicas=replicas,
            adding_replicas=adding,
            directories=topic.partitions[0].directories * len(replicas),
        )
        image = cluster.image._replace(topics_by_id={topic.topic_id: topic._replace(partitions={0: partition})})
        affected = [(image.topics_by_id[topic.topic_id], 0, partition)] if 1 in isr or 1 in elr else []
        looked_at = brokers.elections(image, affected, cluster.context, leaving=1)
        assert brokers.remove_from_partitions(image, 1, cluster.context) == looked_at
        if brokers._needs_no_election(partition):
            assert looked_at == []
            skipped += 1
    assert skipped == 2


def test_an_unregistered_broker_leaves_all_isrs(new_cluster: type[Cluster]) -> None:
    cluster = new_cluster(1, 2)
    cluster.create("a", 2, 2)
    outcome = unregister_broker(cluster.image, UnregisterBrokerRequest(broker_id=2), cluster.context)
    assert isinstance(outcome.records[-1].record, UnregisterBrokerRecord)
    cluster.do(outcome)
    assert set(cluster.image.brokers) == {1}
    assert {p.isr for p in cluster.image.topics_by_name["a"].partitions.values()} == {(1,)}
    with pytest.raises(KafkaError) as refused:
        unregister_broker(cluster.image, UnregisterBrokerRequest(broker_id=2), cluster.context)
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_replica_in_a_lost_directory_cannot_lead(new_cluster: type[Cluster]) -> None:
    cluster = new_cluster(1, 2)
    cluster.create("a", 1, 2)
    leader = cluster.image.partition("a", 0).leader
    other = 3 - leader
    response = cluster.do(assigned(cluster, leader, LOST_DIRECTORY, "a", 0))
    assert response.directories[0].topics[0].partitions[0].error_code == 0
    assert cluster.image.partition("a", 0).directory(leader) == LOST_DIRECTORY
    cluster.do(elect(cluster, 0, ("a", [0])))
    cluster.commit(fence_broker(cluster.image, other, cluster.context))
    assert cluster.image.partition("a", 0).leader == NO_LEADER


def assigned(
    cluster: Cluster, broker_id: int, directory: bytes, topic: str, *partitions: int, epoch: int | None = None
) -> Any:
    topic_id = cluster.image.topics_by_name[topic].topic_id
    data = TopicData(topic_id=topic_id, partitions=[PartitionData(partition_index=index) for index in partitions])
    request = AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=cluster.image.brokers[broker_id].epoch if epoch is None else epoch,
        directories=[DirectoryData(id=directory, topics=[data])],
    )
    return assign_replicas_to_directories(cluster.image, request, cluster.context)


def test_a_broker_reports_the_directories_of_its_replicas(new_cluster: type[Cluster]) -> None:
    cluster = new_cluster(1, 2)
    cluster.create("a", 2)
    index = next(i for i, p in cluster.image.topics_by_name["a"].partitions.items() if p.leader == 1)
    response = cluster.do(assigned(cluster, 1, b"e" * 16, "a", index, 1 - index, 99))
    codes = [ErrorCode(p.error_code).name for p in response.directories[0].topics[0].partitions]
    assert codes == ["NONE", "NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert cluster.image.partition("a", index).directories == (b"e" * 16,)
    with pytest.raises(KafkaError) as refused:
        assigned(cluster, 1, b"e" * 16, "a", 0, epoch=77)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


# ElectLeaders


def elect(cluster: Cluster, kind: int, *wanted: tuple[str, list[int]], everywhere: bool = False) -> Any:
    requested = None if everywhere else [TopicPartitions(topic=name, partitions=indexes) for name, indexes in wanted]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=requested)
    return elect_leaders(cluster.image, request, cluster.context)


def results(response: Any) -> dict[tuple[str, int], str]:
    return {
        (topic.topic, partition.partition_id): ErrorCode(partition.error_code).name
        for topic in response.replica_election_results
        for partition in topic.partition_result
    }


@pytest.fixture
def unbalanced(new_cluster: type[Cluster]) -> Cluster:
    """Brokers 1 and 2, and topic `a` with two partitions. Broker 2 leads both, although 1 is preferred for one."""
    cluster = new_cluster(1, 2)
    cluster.create("a", 2, 2)
    cluster.commit(fence_broker(cluster.image, 1, cluster.context))
    cluster.join(cluster.node(1, life=1))
    for index, found in cluster.image.topics_by_name["a"].partitions.items():
        record = PartitionChangeRecord(
            topic_id=cluster.image.topics_by_name["a"].topic_id, partition_id=index, isr=list(found.replicas)
        )
        cluster.commit([Versioned(record, 2)])
    return cluster


def test_the_preferred_leader_is_elected(unbalanced: Cluster) -> None:
    partitions = unbalanced.image.topics_by_name["a"].partitions
    moved = next(index for index, found in partitions.items() if found.replicas[0] == 1)
    response = unbalanced.do(elect(unbalanced, 0, ("a", [0, 1, 9]), ("nothing", [0])))
    assert results(response) == {
        ("a", moved): "NONE",
        ("a", 1 - moved): "ELECTION_NOT_NEEDED",
        ("a", 9): "UNKNOWN_TOPIC_OR_PARTITION",
        ("nothing", 0): "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert unbalanced.image.partition("a", moved).leader == 1


def test_an_election_of_all_partitions_reports_only_changes(unbalanced: Cluster) -> None:
    unbalanced.create("b", 1, 2)
    response = unbalanced.do(elect(unbalanced, 0, everywhere=True))
    assert list(results(response).values()) == ["NONE"]
    assert {topic.topic for topic in response.replica_election_results} == {"a", "b"}
    assert results(unbalanced.do(elect(unbalanced, 0, everywhere=True))) == {}


def test_a_preferred_leader_that_is_not_in_sync_is_not_elected(new_cluster: type[Cluster]) -> None:
    cluster = new_cluster(1, 2)
    cluster.create("a", 1, 2)
    preferred = cluster.image.partition("a", 0).leader
    cluster.commit(fence_broker(cluster.image, preferred, cluster.context))
    assert results(elect(cluster, 0, ("a", [0])).response) == {("a", 0): "PREFERRED_LEADER_NOT_AVAILABLE"}
    assert results(elect(cluster, 1, ("a", [0])).response) == {("a", 0): "ELECTION_NOT_NEEDED"}


def test_an_unclean_election_requires_an_active_replica(new_cluster: type[Cluster]) -> None:
    cluster = new_cluster(1, 2)
    cluster.create("a", 1, 2)
    first, second = cluster.image.partition("a", 0).replicas
    for broker_id in (second, first):
        cluster.commit(fence_broker(cluster.image, broker_id, cluster.context))
    assert results(elect(cluster, 1, ("a", [0])).response) == {("a", 0): "ELIGIBLE_LEADERS_NOT_AVAILABLE"}
    cluster.join(cluster.node(second, life=1))
    assert cluster.image.partition("a", 0).leader == NO_LEADER
    assert results(cluster.do(elect(cluster, 1, ("a", [0])))) == {("a", 0): "NONE"}
    assert cluster.image.partition("a", 0).leader == second


def test_an_unknown_type_of_election_is_rejected(cluster: Cluster) -> None:
    with pytest.raises(KafkaError) as refused:
        elect(cluster, 2)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


# Reassignments


def reassign(cluster: Cluster, *wanted: tuple[int, list[int] | None], topic: str = "a", allow: bool = True) -> Any:
    partitions = [ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in wanted]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=partitions)], allow_replication_factor_change=allow
    )
    return alter_partition_reassignments(cluster.image, request, cluster.context)


def codes(outcome: Any) -> list[str]:
    response = getattr(outcome, "response", outcome)
    return [ErrorCode(p.error_code).name for topic in response.responses for p in topic.partitions]


def test_a_partition_moves_in_steps(new_cluster: type[Cluster]) -> None:
    cluster = new_cluster(1, 2, 3)
    cluster.create("a", 1, 1)
    (old,) = cluster.image.partition("a", 0).replicas
    new = old % 3 + 1
    assert codes(cluster.do(reassign(cluster, (0, [new])))) == ["NONE"]
    moving = cluster.image.partition("a", 0)
    assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ((new, old), (new,), (old,))
    assert (moving.leader, moving.isr) == (old, (old,))
    (listed,) = list_partition_reassignments(cluster.image, ListPartitionReassignmentsRequest(topics=None)).topics
    (ongoing,) = listed.partitions
    assert (listed.name, ongoing.partition_index, ongoing.replicas) == ("a", 0, [new, old])
    assert (ongoing.adding_replicas, ongoing.removing_replicas) == ([new], [old])
    # The new replica has caught up.
    record = change_partition(
        moving,
        cluster.image.topics_by_name["a"].topic_id,
        0,
        may_lead=lambda _: True,
        metadata_version=30,
        elr_minimum=None,
        isr=(old, new),
    )
    cluster.commit([record])
    moved = cluster.image.partition("a", 0)
    assert (moved.replicas, moved.isr, moved.leader, moved.is_reassigning) == ((new,), (new,), new, False)
    assert moved.leader_epoch == moving.leader_epoch + 1
    assert not list_partition_reassignments(cluster.image, ListPartitionReassignmentsRequest(topics=None)).topics


def test_reordering_replicas_completes_immediately(new_cluster: type[Cluster]) -> None:
    cluster = new_cluster(1, 2)
    cluster.create("a", 1, 2)
    first, second = cluster.image.partition("a", 0).replicas
    cluster.do(reassign(cluster, (0, [second, first])))
    found = cluster.image.partition("a", 0)
    assert (found.replicas, found.leader, found.is_reassigning) == ((second, first), first, False)


def test_a_reassignment_can_be_cancelled(new_cluster: type[Cluster]) -> None:
    cluster = new_cluster(1, 2, 3)
    cluster.create("a", 1, 1)
    before = cluster.image.partition("a", 0)
    (old,) = before.replicas
    cluster.do(reassign(cluster, (0, [old % 3 + 1])))
    assert codes(cluster.do(reassign(cluster, (0, None)))) == ["NONE"]
    after = cluster.image.partition("a", 0)
    assert (after.replicas, after.isr, after.leader, after.is_reassigning) == (before.replicas, (old,), old, False)
    assert codes(reassign(cluster, (0, None))) == ["NO_REASSIGNMENT_IN_PROGRESS"]


def test_invalid_reassignments_are_rejected(new_cluster: type[Cluster]) -> None:
    cluster = new_cluster(1, 2)
    cluster.create("a", 1, 1)
    outcome = reassign(cluster, (0, [7]), (0, []), (0, [1, 1]), (5, [1]))
    assert codes(outcome) == [*["INVALID_REPLICA_ASSIGNMENT"] * 3, "UNKNOWN_TOPIC_OR_PARTITION"]
    assert outcome.records == []
    assert codes(reassign(cluster, (0, [1]), topic="nothing")) == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert codes(reassign(cluster, (0, [1, 2]), allow=False)) == ["INVALID_REPLICATION_FACTOR"]
    assert codes(reassign(cluster, (0, [1, 2]), allow=True)) == ["NONE"]


def test_only_ongoing_reassignments_are_listed(cluster: Cluster) -> None:
    cluster.create("a", 2)
    for topics in (
        None,
        [],
        [ListPartitionReassignmentsTopics(name="a", partition_indexes=[0, 1, 9])],
        [ListPartitionReassignmentsTopics(name="nothing", partition_indexes=[0])],
    ):
        response = list_partition_reassignments(cluster.image, ListPartitionReassignmentsRequest(topics=topics))
        assert (response.error_code, response.error_message, response.topics) == (0, None, [])


# Eligible leader replicas (KIP-966)


@pytest.fixture
def half(new_cluster: type[Cluster]) -> Cluster:
    """Topic `a` with min.insync.replicas=2 and a replica on brokers 1 and 2. Its preferred replica has stopped, and is
    an eligible leader."""
    cluster = new_cluster(1, 2, 3, settings={"min.insync.replicas": "2"})
    cluster.commit([Versioned(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))])
    cluster.create("a", 1, 2)
    cluster.do(reassign(cluster, (0, [2, 1])))
    caught_up(cluster, 1, 2)
    cluster.commit(fence_broker(cluster.image, 2, cluster.context))
    found = cluster.image.partition("a", 0)
    assert (found.replicas, found.leader, found.isr, found.elr) == ((2, 1), 1, (1,), (2,))
    return cluster


def caught_up(cluster: Cluster, *isr: int) -> None:
    """The in-sync set is this one."""
    topic_id = cluster.image.topics_by_name["a"].topic_id
    record = change_partition(
        cluster.image.partition("a", 0),
        topic_id,
        0,
        may_lead=ALIVE.__contains__,
        metadata_version=30,
        elr_minimum=2,
        isr=isr,
    )
    cluster.commit([] if record is None else [record])


def test_an_eligible_leader_is_not_the_preferred_leader(half: Cluster) -> None:
    assert results(half.do(elect(half, 0, ("a", [0])))) == {("a", 0): "PREFERRED_LEADER_NOT_AVAILABLE"}
    assert half.image.partition("a", 0).elr == (2,)


def test_a_replica_stays_eligible_when_another_one_changes_its_directory(half: Cluster) -> None:
    half.do(assigned(half, 1, b"e" * 16, "a", 0))
    found = half.image.partition("a", 0)
    assert (found.elr, found.directory(1)) == ((2,), b"e" * 16)


def test_a_replica_stays_eligible_during_a_reassignment_and_when_it_is_cancelled(half: Cluster) -> None:
    half.do(reassign(half, (0, [3, 2])))
    assert half.image.partition("a", 0).is_reassigning
    assert half.image.partition("a", 0).elr == (2,)
    half.do(reassign(half, (0, None)))
    assert not half.image.partition("a", 0).is_reassigning
    assert half.image.partition("a", 0).elr == (2,)


def test_a_removed_replica_is_not_eligible(half: Cluster) -> None:
    half.do(reassign(half, (0, [1])))
    found = half.image.partition("a", 0)
    assert (found.replicas, found.isr, found.elr, found.leader) == ((1,), (1,), (), 1)


def test_an_in_sync_set_of_all_replicas_has_no_eligible_leaders_beside_it() -> None:
    """Although it is smaller than a min.insync.replicas that exceeds the number of replicas."""
    assert changed(partition(1, 2, isr=(1,), elr=(2,)), isr=[1, 2], elr_minimum=3).elr == ()


# UpdateFeatures


def update(cluster: Cluster, *updates: tuple[str, int, int], version: int = 2, validate_only: bool = False) -> Any:
    keys = [FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates]
    request = UpdateFeaturesRequest(feature_updates=keys, validate_only=validate_only)
    return update_features(cluster.image, request, version, cluster.context)


@pytest.mark.parametrize(
    ("feature", "level", "kind"),
    [
        ("metadata.version", 31, 1),
        ("metadata.version", 29, 1),
        ("metadata.version", 29, 2),
        ("metadata.version", 29, 3),
        ("metadata.version", 6, 3),
        ("metadata.version", -1, 1),
        ("metadata.version", 30, 0),
        ("kraft.version", 0, 2),
        ("kraft.version", 2, 1),
        ("group.version", 2, 1),
        ("group.version", -1, 2),
        ("group.version", 1, 2),
        ("transaction.version", 3, 1),
        ("share.version", 2, 1),
        ("no.such.feature", 1, 1),
        ("no.such.feature", 0, 1),
        ("no.such.feature", 0, 2),
        ("no.such.feature", 0, 3),
    ],
)
def test_invalid_feature_levels_are_rejected(cluster: Cluster, feature: str, level: int, kind: int) -> None:
    outcome = update(cluster, (feature, level, kind))
    assert outcome.response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert feature in outcome.response.error_message
    assert outcome.records == []


def test_a_lossless_level_change_is_accepted_in_both_directions(cluster: Cluster) -> None:
    cluster.commit([Versioned(FeatureLevelRecord(name="metadata.version", feature_level=27))])
    cluster.do(update(cluster, ("metadata.version", 29, 1)))
    assert cluster.image.metadata_version == 29
    cluster.do(update(cluster, ("metadata.version", 24, 2)))
    assert cluster.image.metadata_version == 24
    assert update(cluster, ("metadata.version", 22, 2)).response.error_code == ErrorCode.INVALID_UPDATE_VERSION


def test_the_feature_of_consumer_groups_can_be_enabled_and_disabled(cluster: Cluster) -> None:
    cluster.do(update(cluster, ("group.version", 1, 1)))
    assert cluster.image.features["group.version"] == 1
    assert update(cluster, ("group.version", 0, 1)).response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    cluster.do(update(cluster, ("group.version", 0, 2)))
    assert "group.version" not in cluster.image.features


def test_the_level_of_transactions_can_be_changed_in_steps(cluster: Cluster) -> None:
    cluster.do(update(cluster, ("transaction.version", 2, 1)))
    for level in (1, 0):
        cluster.do(update(cluster, ("transaction.version", level, 2)))
        assert cluster.image.features.get("transaction.version", 0) == level


RELEASE_4_3 = {
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "kraft.version": 1,
    "metadata.version": 30,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}


def test_all_features_of_a_release_are_accepted_and_only_supported_ones_reported(cluster: Cluster) -> None:
    cluster.do(update(cluster, *((feature, level, 1) for feature, level in RELEASE_4_3.items())))
    without_kraft = {feature: level for feature, level in RELEASE_4_3.items() if feature != "kraft.version"}
    assert {feature: cluster.image.features.get(feature) for feature in without_kraft} == without_kraft
    assert {"share.version", "streams.version"}.isdisjoint(reported_features(cluster.image.features))
    for feature in ("share.version", "streams.version"):
        cluster.do(update(cluster, (feature, 0, 2)))
        assert feature not in cluster.image.features


def test_enabling_eligible_leader_replicas_sets_one_minimum_for_all_brokers(cluster: Cluster) -> None:
    name, broker = "min.insync.replicas", str(cluster.context.node_id)
    own = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=broker, name=name, value="2")
    cluster.commit([Versioned(own)])
    cluster.do(update(cluster, ("eligible.leader.replicas.version", 1, 1)))
    assert cluster.image.config(BROKER_RESOURCE, "") == {name: "1"}
    assert cluster.image.config(BROKER_RESOURCE, broker) == {}
    again = update(cluster, ("eligible.leader.replicas.version", 1, 1))
    assert [type(versioned.record) for versioned in again.records] == [FeatureLevelRecord]


def test_eligible_leader_replicas_require_a_metadata_version(cluster: Cluster) -> None:
    cluster.commit([Versioned(FeatureLevelRecord(name="metadata.version", feature_level=22))])
    elr = ("eligible.leader.replicas.version", 1, 1)
    assert update(cluster, elr).response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert update(cluster, elr, ("metadata.version", 30, 1)).response.error_code == ErrorCode.NONE


def test_all_features_change_or_none(cluster: Cluster) -> None:
    cluster.commit([Versioned(FeatureLevelRecord(name="metadata.version", feature_level=27))])
    outcome = update(cluster, ("metadata.version", 29, 1), ("no.such.feature", 1, 1))
    assert (outcome.response.error_code, outcome.records) == (ErrorCode.INVALID_UPDATE_VERSION, [])


def test_each_version_of_update_features_has_its_response_format(cluster: Cluster) -> None:
    assert update(cluster, ("metadata.version", 30, 1), version=2).response.results == []
    assert [r.feature for r in update(cluster, ("metadata.version", 30, 1), version=1).response.results] == [
        "metadata.version"
    ]
    cluster.commit([Versioned(FeatureLevelRecord(name="metadata.version", feature_level=29))])
    keys = [FeatureUpdateKey(feature="metadata.version", max_version_level=28, allow_downgrade=True)]
    outcome = update_features(cluster.image, UpdateFeaturesRequest(feature_updates=keys), 0, cluster.context)
    assert (outcome.response.error_code, len(outcome.records)) == (0, 1)


def test_validate_only_changes_no_feature(cluster: Cluster) -> None:
    cluster.commit([Versioned(FeatureLevelRecord(name="metadata.version", feature_level=29))])
    outcome = update(cluster, ("metadata.version", 30, 1), validate_only=True)
    assert (outcome.response.error_code, outcome.records) == (0, [])


def test_every_broker_must_support_a_level(new_cluster: type[Cluster]) -> None:
    cluster = new_cluster(1)
    cluster.commit([Versioned(FeatureLevelRecord(name="metadata.version", feature_level=27))])
    cluster.commit([Versioned(RegisterBrokerRecord(broker_id=2, broker_epoch=99), 3)])
    outcome = update(cluster, ("metadata.version", 29, 1))
    assert outcome.response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "Broker 2" in outcome.response.error_message


# AllocateProducerIds


def test_producer_ids_are_allocated_in_unused_blocks(cluster: Cluster) -> None:
    epoch = cluster.image.brokers[1].epoch
    blocks = []
    for _ in range(3):
        outcome = allocate_producer_ids(cluster.image, AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch))
        response = cluster.do(outcome)
        blocks.append(range(response.producer_id_start, response.producer_id_start + response.producer_id_len))
    assert list(itertools.chain(*blocks)) == list(range(3000))
    assert outcome.records == [Versioned(ProducerIdsRecord(broker_id=1, broker_epoch=epoch, next_producer_id=3000))]


def test_an_earlier_broker_epoch_gets_no_producer_ids(cluster: Cluster) -> None:
    for request in (
        AllocateProducerIdsRequest(broker_id=1, broker_epoch=cluster.image.brokers[1].epoch - 1),
        AllocateProducerIdsRequest(broker_id=2, broker_epoch=0),
    ):
        with pytest.raises(KafkaError) as refused:
            allocate_producer_ids(cluster.image, request)
        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_exhausted_producer_ids_are_an_error(cluster: Cluster) -> None:
    cluster.commit([Versioned(ProducerIdsRecord(next_producer_id=2**63 - 1))])
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=cluster.image.brokers[1].epoch)
    with pytest.raises(KafkaError):
        allocate_producer_ids(cluster.image, request)


def test_a_registration_change_unfences_a_broker_once(cluster: Cluster) -> None:
    """The first record after a registration states that no directory is cordoned, as brokers of Apache Kafka report."""
    epoch = cluster.image.brokers[1].epoch
    assert cluster.image.brokers[1].cordoned_directories == ()
    cluster.commit([Versioned(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=1))])
    assert cluster.image.brokers[1].fenced
