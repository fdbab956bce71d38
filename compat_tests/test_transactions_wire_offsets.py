"""Offsets in transactions, request by request: AddOffsetsToTxn, TxnOffsetCommit, which commits are allowed, and the
responses of OffsetFetch in between (KIP-98, KIP-447, KIP-848, KIP-890)."""

from collections.abc import Iterator, Mapping

import pytest

from moldau.compat_tests.transaction_wire import Producer, consume, describe, partitions_of
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from moldau.testing import topic_requests as w
from moldau.testing.group_requests import (
    ClassicMember,
    ConsumerMember,
    code,
    commit,
    commit_request,
    delete_groups,
    list_groups,
    rebalance,
    settle,
)
from moldau.testing.group_requests import committed as committed_offsets
from moldau.testing.topic_requests import Topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

OFFSETS = "__consumer_offsets"


@pytest.fixture
def wire(transaction_servers: str) -> Iterator[WireClient]:
    with WireClient(transaction_servers) as client:
        yield client


@pytest.fixture(scope="module")
def topic(transaction_servers: str) -> Topic:
    """One for all tests, because every test has its own group, and hardly any test writes to it."""
    return w.create_topic(transaction_servers, "offsets-in-transactions", 3)


def committed(wire: WireClient, group_id: str, topic: Topic, *partitions: int) -> dict[int, int]:
    """The offsets for a request without ``require_stable``; -1 for none."""
    return committed_offsets(wire, group_id, topic.name, partitions or (0,))


def stable(wire: WireClient, group_id: str, topic: Topic, *partitions: int, version: int = 9) -> dict[int, int | str]:
    """The offsets for a request with ``require_stable``, or the names of the error codes."""
    if version < 8:
        old = OffsetFetchRequestTopic(name=topic.name, partition_indexes=list(partitions or (0,)))
        answer = wire.call(OffsetFetchRequest(group_id=group_id, topics=[old], require_stable=True), version)
        assert answer.error_code == 0
        (found,) = answer.topics
    else:
        new = OffsetFetchRequestTopics(
            name=topic.name, topic_id=topic.topic_id, partition_indexes=list(partitions or (0,))
        )
        asked = OffsetFetchRequestGroup(group_id=group_id, topics=[new])
        (group,) = wire.call(OffsetFetchRequest(groups=[asked], require_stable=True), version).groups
        assert group.error_code == 0
        (found,) = group.topics
    for each in found.partitions:
        assert each.error_code == 0 or (each.committed_offset, each.metadata) == (-1, ""), each
    return {
        each.partition_index: code(each.error_code) if each.error_code else each.committed_offset
        for each in found.partitions
    }


# -- every version --


@pytest.mark.parametrize("version", range(5))
def test_add_offsets(producer: Producer, name: str, version: int) -> None:
    """The group's partition becomes part of the transaction."""
    assert producer.add_offsets(name, version) == "NONE"
    assert producer.add_offsets(name, version) == "NONE"
    found = describe(producer.wire, producer.transactional_id)
    assert (found.transaction_state, partitions_of(found)) == ("Ongoing", {OFFSETS: [0]})


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_a_stranger(producer: Producer, name: str, version: int) -> None:
    fenced = "PRODUCER_FENCED" if version >= 2 else "INVALID_PRODUCER_EPOCH"
    unknown = Producer(producer.wire, f"{name}-unknown")
    assert unknown.add_offsets(name, version) == "INVALID_PRODUCER_ID_MAPPING"
    other = producer.duplicate()
    other.producer_id += 100_000
    assert other.add_offsets(name, version) == "INVALID_PRODUCER_ID_MAPPING"
    for difference in (-1, 1):
        other = producer.duplicate()
        other.epoch += difference
        assert other.add_offsets(name, version) == fenced
    assert Producer(producer.wire, "").add_offsets(name, version) == "INVALID_REQUEST"
    assert producer.state == "Empty"


@pytest.mark.parametrize("ends_by_commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("version", range(6))
def test_offsets_count_when_the_transaction_commits(
    producer: Producer, topic: Topic, name: str, version: int, ends_by_commit: bool
) -> None:
    wire = producer.wire
    assert commit(wire, commit_request(name, topic, {0: 3})) == {0: "NONE"}
    if version < 5:
        assert producer.add_offsets(name) == "NONE"
    assert producer.commit_offsets(name, topic, {0: 17, 2: 0}, version, metadata="řeka") == {0: "NONE", 2: "NONE"}
    assert partitions_of(describe(wire, name)) == {OFFSETS: [0]}
    assert committed(wire, name, topic, 0, 1, 2) == {0: 3, 1: -1, 2: -1}
    assert stable(wire, name, topic, 0, 1, 2) == {0: "UNSTABLE_OFFSET_COMMIT", 1: -1, 2: "UNSTABLE_OFFSET_COMMIT"}
    if ends_by_commit:
        producer.commit(5 if version == 5 else 4)
    else:
        producer.abort(5 if version == 5 else 4)
    expected = {0: 17, 1: -1, 2: 0} if ends_by_commit else {0: 3, 1: -1, 2: -1}
    assert committed(wire, name, topic, 0, 1, 2) == expected
    assert stable(wire, name, topic, 0, 1, 2) == expected


@pytest.mark.parametrize("version", range(7, 11))
def test_stable_offsets(producer: Producer, topic: Topic, name: str, version: int) -> None:
    wire = producer.wire
    assert producer.commit_offsets(name, topic, {1: 5}) == {1: "NONE"}
    assert stable(wire, name, topic, 0, 1, version=version) == {0: -1, 1: "UNSTABLE_OFFSET_COMMIT"}
    producer.commit()
    assert stable(wire, name, topic, 0, 1, version=version) == {0: -1, 1: 5}


@pytest.mark.parametrize(
    ("version", "expected"),
    [*((version, "INVALID_TXN_STATE") for version in range(4)), (4, "TRANSACTION_ABORTABLE")],
)
def test_a_group_that_was_not_added(producer: Producer, topic: Topic, name: str, version: int, expected: str) -> None:
    assert producer.commit_offsets(name, topic, {0: 1, 1: 1}, version) == {0: expected, 1: expected}
    producer.add(topic)
    assert producer.commit_offsets(name, topic, {0: 1}, version) == {0: expected}
    assert stable(producer.wire, name, topic) == {0: -1}


@pytest.mark.parametrize("version", [0, 3, 4, 5])
def test_commits_of_a_stranger(producer: Producer, topic: Topic, name: str, version: int) -> None:
    unknown = producer.duplicate()
    unknown.transactional_id += "-unknown"
    assert unknown.commit_offsets(name, topic, {0: 1}, version) == {0: "INVALID_PRODUCER_ID_MAPPING"}
    other = producer.duplicate()
    other.producer_id += 100_000
    assert other.commit_offsets(name, topic, {0: 1}, version) == {0: "INVALID_PRODUCER_ID_MAPPING"}
    for difference in (-1, 1):
        other = producer.duplicate()
        other.epoch += difference
        assert other.commit_offsets(name, topic, {0: 1}, version) == {0: "INVALID_PRODUCER_EPOCH"}
    assert producer.state == "Empty"


# -- what is committed --


def test_the_last_offset_of_a_transaction_counts(producer: Producer, topic: Topic, name: str) -> None:
    for offset in (5, 9, 7):
        assert producer.commit_offsets(name, topic, {0: offset}) == {0: "NONE"}
    producer.commit()
    assert committed(producer.wire, name, topic) == {0: 7}


def test_offsets_of_several_transactions(producer: Producer, topic: Topic, name: str) -> None:
    """What is committed later counts, whatever was written first."""
    wire = producer.wire
    other = Producer(wire, f"{name}-other").begin()
    assert producer.commit_offsets(name, topic, {0: 1, 1: 1}) == {0: "NONE", 1: "NONE"}
    assert other.commit_offsets(name, topic, {0: 2, 2: 2}) == {0: "NONE", 2: "NONE"}
    other.commit()
    assert stable(wire, name, topic, 0, 1, 2) == {0: "UNSTABLE_OFFSET_COMMIT", 1: "UNSTABLE_OFFSET_COMMIT", 2: 2}
    assert committed(wire, name, topic, 0, 1, 2) == {0: 2, 1: -1, 2: 2}
    producer.commit()
    # The record of the second one is the later of the two.
    assert stable(wire, name, topic, 0, 1, 2) == {0: 2, 1: 1, 2: 2}


def test_a_commit_outside_of_the_transaction(producer: Producer, topic: Topic, name: str) -> None:
    """It takes effect immediately; the offset is unstable nevertheless."""
    wire = producer.wire
    assert producer.commit_offsets(name, topic, {0: 1}) == {0: "NONE"}
    assert commit(wire, commit_request(name, topic, {0: 5})) == {0: "NONE"}
    assert committed(wire, name, topic) == {0: 5}
    assert stable(wire, name, topic) == {0: "UNSTABLE_OFFSET_COMMIT"}
    producer.commit()
    assert stable(wire, name, topic) == {0: 5}


def test_offsets_of_several_groups(producer: Producer, topic: Topic, name: str) -> None:
    wire = producer.wire
    groups = [f"{name}-{number}" for number in range(3)]
    for number, group_id in enumerate(groups):
        assert producer.commit_offsets(group_id, topic, {0: number}) == {0: "NONE"}
    producer.write(topic, b"a")
    assert partitions_of(describe(wire, name)) == {OFFSETS: [0], topic.name: [0]}
    producer.commit()
    assert [committed(wire, each, topic)[0] for each in groups] == [0, 1, 2]
    assert consume(wire, topic)[-1] == b"a"


def test_every_offset_of_a_group_is_asked_for(producer: Producer, topic: Topic, name: str) -> None:
    """What is pending is not there yet, or not as it will be."""
    wire = producer.wire
    commit(wire, commit_request(name, topic, {0: 3, 1: 3}))
    assert producer.commit_offsets(name, topic, {1: 4, 2: 4}) == {1: "NONE", 2: "NONE"}

    def everything(*, require_stable: bool) -> Mapping[int, tuple[int, str]]:
        asked = OffsetFetchRequestGroup(group_id=name, topics=None)
        (group,) = wire.call(OffsetFetchRequest(groups=[asked], require_stable=require_stable), 9).groups
        return {
            each.partition_index: (each.committed_offset, code(each.error_code))
            for found in group.topics
            for each in found.partitions
        }

    assert everything(require_stable=False) == {0: (3, "NONE"), 1: (3, "NONE")}
    assert everything(require_stable=True) == {0: (3, "NONE"), 1: (-1, "UNSTABLE_OFFSET_COMMIT")}
    producer.commit()
    assert everything(require_stable=True) == {0: (3, "NONE"), 1: (4, "NONE"), 2: (4, "NONE")}


def test_unknown_topics_and_partitions(producer: Producer, topic: Topic, name: str) -> None:
    assert producer.commit_offsets(name, topic, {0: 1, 77: 1}) == {0: "NONE", 77: "UNKNOWN_TOPIC_OR_PARTITION"}
    assert producer.commit_offsets(name, "no-such-topic", {0: 1}) == {0: "UNKNOWN_TOPIC_OR_PARTITION"}
    producer.commit()
    assert committed(producer.wire, name, topic, 0) == {0: 1}


@pytest.mark.parametrize(("size", "expected"), [(1_000, "NONE"), (1_001, "OFFSET_METADATA_TOO_LARGE")])
def test_the_size_of_the_metadata(producer: Producer, topic: Topic, name: str, size: int, expected: str) -> None:
    assert producer.commit_offsets(name, topic, {0: 1}, metadata="m" * size) == {0: expected}


def test_an_empty_group_id(producer: Producer, topic: Topic) -> None:
    assert producer.commit_offsets("", topic, {0: 1}) == {0: "INVALID_GROUP_ID"}
    assert producer.state == "Empty"


# -- commits that are allowed --


@pytest.mark.parametrize("version", [0, 2, 3, 4, 5])
def test_a_commit_without_member_id_is_accepted(
    transaction_servers: str, producer: Producer, topic: Topic, name: str, version: int
) -> None:
    """Without a member id, as clients before KIP-447 did: the group is not asked, even if it has members."""
    with ClassicMember(transaction_servers, name) as member:
        rebalance(member)
        producer.add_offsets(name)
        assert producer.commit_offsets(name, topic, {0: 1}, version) == {0: "NONE"}


@pytest.mark.parametrize("version", [3, 4, 5])
def test_members_of_a_classic_group(
    transaction_servers: str, producer: Producer, topic: Topic, name: str, version: int
) -> None:
    with ClassicMember(transaction_servers, name) as member:
        rebalance(member)
        producer.add_offsets(name)

        def tried(member_id: str, generation: int, instance_id: str | None = None) -> str:
            (found,) = producer.commit_offsets(
                name, topic, {0: 1}, version, member_id=member_id, generation=generation, instance_id=instance_id
            ).values()
            return found

        assert tried(member.member_id, member.generation) == "NONE"
        assert tried(member.member_id, member.generation + 1) == "ILLEGAL_GENERATION"
        assert tried(member.member_id, member.generation - 1) == "ILLEGAL_GENERATION"
        assert tried("stranger", member.generation) == "UNKNOWN_MEMBER_ID"
        assert tried("", member.generation) == "UNKNOWN_MEMBER_ID"
        assert tried(member.member_id, member.generation, "i-9") == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize("version", [3, 5])
def test_static_members(transaction_servers: str, producer: Producer, topic: Topic, name: str, version: int) -> None:
    with (
        ClassicMember(transaction_servers, name, instance_id="i-1") as before,
        ClassicMember(transaction_servers, name, instance_id="i-1") as after,
    ):
        rebalance(before)
        after.join()
        after.sync()
        producer.add_offsets(name)
        for member, expected in ((after, "NONE"), (before, "FENCED_INSTANCE_ID")):
            assert producer.commit_offsets(
                name, topic, {0: 1}, version, member_id=member.member_id, generation=1, instance_id="i-1"
            ) == {0: expected}


@pytest.mark.parametrize("version", [3, 5])
def test_members_of_no_group(producer: Producer, topic: Topic, name: str, version: int) -> None:
    producer.add_offsets(name)
    found = producer.commit_offsets(name, topic, {0: 1}, version, member_id="stranger", generation=3)
    assert found == {0: "ILLEGAL_GENERATION"}
    assert name not in list_groups(producer.wire)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_members_of_a_consumer_group(
    transaction_servers: str, producer: Producer, topic: Topic, name: str, version: int
) -> None:
    """The generation is the member's epoch (KIP-848)."""
    with ConsumerMember(transaction_servers, name, topic) as member:
        member.join()
        settle(member)
        producer.add_offsets(name)

        def tried(member_id: str, epoch: int) -> str:
            (found,) = producer.commit_offsets(
                name, topic, {0: 1}, version, member_id=member_id, generation=epoch
            ).values()
            return found

        assert tried(member.member_id, member.epoch) == "NONE"
        assert tried(member.member_id, member.epoch + 1) == "ILLEGAL_GENERATION"
        assert tried("stranger", member.epoch) == "UNKNOWN_MEMBER_ID"
        assert tried("", -1) == "NONE"


def test_a_rebalance_is_no_obstacle(transaction_servers: str, producer: Producer, topic: Topic, name: str) -> None:
    """Whoever has not joined the next generation may commit for its own; between Join and Sync too, for the new one."""
    with ClassicMember(transaction_servers, name) as member:
        rebalance(member)
        member.start_join()
        member.joined()
        assert producer.commit_offsets(
            name, topic, {0: 1}, member_id=member.member_id, generation=member.generation
        ) == {0: "NONE"}


# -- groups with pending offsets --


def test_a_group_with_pending_offsets_is_deleted(producer: Producer, topic: Topic, name: str) -> None:
    wire = producer.wire
    assert producer.commit_offsets(name, topic, {0: 1}) == {0: "NONE"}
    assert delete_groups(wire, name) == {name: "NONE"}
    assert stable(wire, name, topic) == {0: -1}
    producer.commit()
    assert committed(wire, name, topic) == {0: -1}


def test_pending_offsets_are_deleted(producer: Producer, topic: Topic, name: str) -> None:
    wire = producer.wire
    assert commit(wire, commit_request(name, topic, {0: 1})) == {0: "NONE"}
    assert producer.commit_offsets(name, topic, {0: 2}) == {0: "NONE"}
    asked = OffsetDeleteRequestTopic(name=topic.name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    answer = wire.call(OffsetDeleteRequest(group_id=name, topics=[asked]), 0)
    assert [code(each.error_code) for found in answer.topics for each in found.partitions] == ["NONE"]
    assert committed(wire, name, topic) == {0: -1}
    assert stable(wire, name, topic) == {0: -1}
    producer.commit()
    assert committed(wire, name, topic) == {0: -1}


def test_offsets_of_a_transaction_that_took_too_long(wire: WireClient, topic: Topic, name: str) -> None:
    commit(wire, commit_request(name, topic, {0: 3}))
    producer = Producer(wire, name, timeout_ms=1_000).begin()
    assert producer.commit_offsets(name, topic, {0: 9}) == {0: "NONE"}
    wait_until(lambda: stable(wire, name, topic) == {0: 3}, "the end of the transaction")
    assert producer.commit_offsets(name, topic, {0: 9}, 4) == {0: "INVALID_PRODUCER_EPOCH"}
    assert producer.commit_offsets(name, topic, {0: 9}, 5) == {0: "INVALID_PRODUCER_EPOCH"}
