"""Committed offsets, request by request: OffsetCommit, OffsetFetch, OffsetDelete, and which commits are allowed.

Every version that Apache Kafka 4.3 advertises, members of both protocols, and commits from outside of any membership;
and what is refused, with Kafka's codes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from moldau.protocol.messages.offset_commit import OffsetCommitRequestTopic
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
    OffsetFetchResponseGroup,
)
from moldau.protocol.schema import Struct
from moldau.testing import topic_requests as w
from moldau.testing.group_requests import (
    ClassicMember,
    ConsumerMember,
    code,
    commit,
    commit_request,
    committed,
    delete_groups,
    describe_group,
    list_groups,
    rebalance,
    settle,
    subscription,
    wait_for_rebalance,
)
from moldau.testing.topic_requests import Topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

# offset, leader epoch, metadata, name of the error code
Found = tuple[int, int, str | None, str]

NOTHING: Found = (-1, -1, "", "NONE")


@pytest.fixture
def wire(group_servers: str) -> Iterator[WireClient]:
    with WireClient(group_servers) as client:
        yield client


@pytest.fixture
def topic(group_servers: str, topic_name: Callable[[], str]) -> Topic:
    return w.create_topic(group_servers, topic_name(), 3)


def fetch(
    wire: WireClient,
    group_id: str,
    topics: Mapping[Topic, Sequence[int]] | None,
    version: int = 10,
    *,
    require_stable: bool = False,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> tuple[str, dict[str | bytes, dict[int, Found]]]:
    """OffsetFetch of one group, in whatever form the version has: the group's code, and what was found.

    Topics are known by their names, and from version 10 on by their ids.
    """
    if version < 8:
        old = (
            None
            if topics is None
            else [OffsetFetchRequestTopic(name=t.name, partition_indexes=list(p)) for t, p in topics.items()]
        )
        answer = wire.call(OffsetFetchRequest(group_id=group_id, topics=old, require_stable=require_stable), version)
        return code(answer.error_code), _found(answer.topics, version)
    new = (
        None
        if topics is None
        else [
            OffsetFetchRequestTopics(name=t.name, topic_id=t.topic_id, partition_indexes=list(p))
            for t, p in topics.items()
        ]
    )
    asked = OffsetFetchRequestGroup(group_id=group_id, member_id=member_id, member_epoch=member_epoch, topics=new)
    (group,) = wire.call(OffsetFetchRequest(groups=[asked], require_stable=require_stable), version).groups
    assert isinstance(group, OffsetFetchResponseGroup)
    assert group.group_id == group_id
    return code(group.error_code), _found(group.topics, version)


def _found(topics: Sequence[Struct], version: int) -> dict[str | bytes, dict[int, Found]]:
    return {
        getattr(topic, "topic_id" if version >= 10 else "name"): {
            each.partition_index: (
                each.committed_offset,
                each.committed_leader_epoch,
                each.metadata,
                code(each.error_code),
            )
            for each in getattr(topic, "partitions")  # noqa: B009 - of several classes
        }
        for topic in topics
    }


def key_of(topic: Topic, version: int) -> str | bytes:
    """How an answer of this version calls a topic."""
    return topic.topic_id if version >= 10 else topic.name


def delete_offsets(wire: WireClient, group_id: str, topic: str, *partitions: int) -> tuple[str, dict[int, str]]:
    """OffsetDelete for partitions of one topic: the request's code, and those of the partitions."""
    asked = [OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
    request = OffsetDeleteRequest(group_id=group_id, topics=[OffsetDeleteRequestTopic(name=topic, partitions=asked)])
    answer = wire.call(request, 0)
    found = {each.partition_index: code(each.error_code) for found in answer.topics for each in found.partitions}
    return code(answer.error_code), found


# -- every version --


@pytest.mark.parametrize("version", range(2, 11))
def test_offset_commit(wire: WireClient, topic: Topic, group_id: str, version: int) -> None:
    """From outside of any membership, which makes a group that has nothing but offsets."""
    request = commit_request(group_id, topic, {0: 17, 2: 0}, metadata="řeka")
    (answered,) = wire.call(request, version).topics
    assert (answered.name, answered.topic_id) == ((topic.name, bytes(16)) if version < 10 else ("", topic.topic_id))
    assert {each.partition_index: code(each.error_code) for each in answered.partitions} == {0: "NONE", 2: "NONE"}
    assert fetch(wire, group_id, {topic: [0, 1, 2]}, 9) == (
        "NONE",
        {topic.name: {0: (17, -1, "řeka", "NONE"), 1: NOTHING, 2: (0, -1, "řeka", "NONE")}},
    )
    assert (list_groups(wire)[group_id].group_state, list_groups(wire)[group_id].protocol_type) == ("Empty", "")


@pytest.mark.parametrize("version", range(2, 11))
def test_offset_commit_of_a_classic_member(
    group_servers: str, wire: WireClient, topic: Topic, group_id: str, version: int
) -> None:
    with ClassicMember(group_servers, group_id) as member:
        rebalance(member)
        request = commit_request(group_id, topic, {1: 5}, member_id=member.member_id, generation=member.generation)
        assert commit(wire, request, version) == {1: "NONE"}
        request.generation_id_or_member_epoch = 2
        assert commit(wire, request, version) == {1: "ILLEGAL_GENERATION"}
        request.generation_id_or_member_epoch, request.member_id = 1, "stranger"
        assert commit(wire, request, version) == {1: "UNKNOWN_MEMBER_ID"}
    assert committed(wire, group_id, topic.name, [0, 1, 2]) == {0: -1, 1: 5, 2: -1}


@pytest.mark.parametrize("version", range(1, 11))
def test_offset_fetch(wire: WireClient, topic: Topic, group_id: str, version: int) -> None:
    request = commit_request(group_id, topic, {0: 4})
    request.topics[0].partitions[0].committed_leader_epoch = 0
    commit(wire, request)
    epoch = 0 if version >= 5 else -1
    assert fetch(wire, group_id, {topic: [2, 0]}, version) == (
        "NONE",
        {key_of(topic, version): {2: NOTHING, 0: (4, epoch, "", "NONE")}},
    )


@pytest.mark.parametrize("version", range(2, 11))
def test_offset_fetch_of_everything(wire: WireClient, topic: Topic, group_id: str, version: int) -> None:
    commit(wire, commit_request(group_id, topic, {0: 4, 2: 6}))
    found = {0: (4, -1, "", "NONE"), 2: (6, -1, "", "NONE")}
    assert fetch(wire, group_id, None, version) == ("NONE", {key_of(topic, version): found})


@pytest.mark.parametrize("version", range(1, 11))
def test_offset_fetch_of_an_unknown_group(wire: WireClient, topic: Topic, group_id: str, version: int) -> None:
    assert fetch(wire, group_id, {topic: [0, 77]}, version) == (
        "NONE",
        {key_of(topic, version): {0: NOTHING, 77: NOTHING}},
    )
    if version >= 2:
        assert fetch(wire, group_id, None, version) == ("NONE", {})
    assert group_id not in list_groups(wire)


@pytest.mark.parametrize("version", range(7, 11))
def test_offset_fetch_of_stable_offsets(wire: WireClient, topic: Topic, group_id: str, version: int) -> None:
    """Without a transaction all are."""
    commit(wire, commit_request(group_id, topic, {0: 4}))
    assert fetch(wire, group_id, {topic: [0]}, version, require_stable=True) == (
        "NONE",
        {key_of(topic, version): {0: (4, -1, "", "NONE")}},
    )


@pytest.mark.parametrize("version", range(8, 11))
def test_offset_fetch_of_several_groups(wire: WireClient, topic: Topic, group_id: str, version: int) -> None:
    for number in range(3):
        commit(wire, commit_request(f"{group_id}-{number}", topic, {0: number}))
    asked = [
        OffsetFetchRequestGroup(
            group_id=f"{group_id}-{number}",
            topics=None
            if number == 1
            else [OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=[0])],
        )
        for number in range(4)
    ]
    answer = wire.call(OffsetFetchRequest(groups=asked), version)
    assert {
        group.group_id: [each.committed_offset for found in group.topics for each in found.partitions]
        for group in answer.groups
    } == {f"{group_id}-{number}": [offset] for number, offset in enumerate((0, 1, 2, -1))}


def test_offset_delete(wire: WireClient, topic: Topic, group_id: str) -> None:
    commit(wire, commit_request(group_id, topic, {0: 4, 1: 5, 2: 6}))
    assert delete_offsets(wire, group_id, topic.name, 0, 2) == ("NONE", {0: "NONE", 2: "NONE"})
    assert committed(wire, group_id, topic.name, [0, 1, 2]) == {0: -1, 1: 5, 2: -1}
    # An offset that does not exist counts as deleted; only a partition that the topic does not have is unknown.
    assert delete_offsets(wire, group_id, topic.name, 0, 77) == (
        "NONE",
        {0: "NONE", 77: "UNKNOWN_TOPIC_OR_PARTITION"},
    )


# -- offsets --


def test_a_later_commit_replaces_an_earlier_one(wire: WireClient, topic: Topic, group_id: str) -> None:
    commit(wire, commit_request(group_id, topic, {0: 100}, metadata="first"))
    commit(wire, commit_request(group_id, topic, {0: 7}, metadata="second"))
    assert fetch(wire, group_id, {topic: [0]}, 9)[1][topic.name] == {0: (7, -1, "second", "NONE")}


@pytest.mark.parametrize("offset", [0, 1, 2**63 - 1])
def test_any_offset_may_be_committed(wire: WireClient, topic: Topic, group_id: str, offset: int) -> None:
    """The server does not check whether such a record exists."""
    assert commit(wire, commit_request(group_id, topic, {0: offset})) == {0: "NONE"}
    assert committed(wire, group_id, topic.name, [0]) == {0: offset}


def test_null_metadata_becomes_empty(wire: WireClient, topic: Topic, group_id: str) -> None:
    commit(wire, commit_request(group_id, topic, {0: 3}, metadata=None))
    assert fetch(wire, group_id, {topic: [0]}, 9)[1][topic.name] == {0: (3, -1, "", "NONE")}


@pytest.mark.parametrize(("size", "expected"), [(1_000, "NONE"), (1_001, "OFFSET_METADATA_TOO_LARGE")])
def test_the_size_of_the_metadata(wire: WireClient, topic: Topic, group_id: str, size: int, expected: str) -> None:
    request = commit_request(group_id, topic, {0: 3, 1: 4})
    request.topics[0].partitions[0].committed_metadata = "m" * size
    assert commit(wire, request) == {0: expected, 1: "NONE"}
    assert committed(wire, group_id, topic.name, [0, 1]) == {0: 3 if expected == "NONE" else -1, 1: 4}


def test_unknown_topics_and_partitions(wire: WireClient, topic: Topic, group_id: str) -> None:
    """Each partition has its own answer, and what is known is committed."""
    assert commit(wire, commit_request(group_id, topic, {0: 1, 77: 1, -1: 1})) == {
        0: "NONE",
        77: "UNKNOWN_TOPIC_OR_PARTITION",
        -1: "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert commit(wire, commit_request(group_id, "no-such-topic", {0: 1})) == {0: "UNKNOWN_TOPIC_OR_PARTITION"}
    assert committed(wire, group_id, topic.name, [0, 77]) == {0: 1, 77: -1}


def test_unknown_topic_ids(wire: WireClient, topic: Topic, group_id: str) -> None:
    unknown = Topic("", b"\x05" * 16)
    request = commit_request(group_id, unknown, {0: 1})
    request.topics.append(OffsetCommitRequestTopic(topic_id=topic.topic_id, partitions=request.topics[0].partitions))
    answer = wire.call(request, 10)
    assert {each.topic_id: code(each.partitions[0].error_code) for each in answer.topics} == {
        unknown.topic_id: "UNKNOWN_TOPIC_ID",
        topic.topic_id: "NONE",
    }
    assert fetch(wire, group_id, {unknown: [0], topic: [0]}, 10) == (
        "NONE",
        {unknown.topic_id: {0: (-1, -1, "", "UNKNOWN_TOPIC_ID")}, topic.topic_id: {0: (1, -1, "", "NONE")}},
    )


def test_offsets_of_a_deleted_topic_are_forgotten(
    group_servers: str, wire: WireClient, topic_name: Callable[[], str], group_id: str
) -> None:
    from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    lost, kept = (w.create_topic(group_servers, topic_name()) for _ in range(2))
    commit(wire, commit_request(group_id, lost, {0: 4}))
    commit(wire, commit_request(group_id, kept, {0: 5}))
    assert (
        wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=lost.name)], timeout_ms=10_000), 6)
        .responses[0]
        .error_code
        == 0
    )
    wait_until(lambda: set(fetch(wire, group_id, None, 9)[1]) == {kept.name}, "the end of the offsets")
    assert committed(wire, group_id, lost.name, [0]) == {0: -1}


# -- commits that are allowed --


def test_a_commit_during_a_rebalance(group_servers: str, wire: WireClient, topic: Topic, group_id: str) -> None:
    """A member that has not joined the next generation may still commit for its own; between Join and Sync none may."""
    with ClassicMember(group_servers, group_id) as first, ClassicMember(group_servers, group_id) as second:
        rebalance(first)
        second.start_join()
        wait_for_rebalance(first)
        own = commit_request(group_id, topic, {0: 9}, member_id=first.member_id, generation=first.generation)
        assert commit(wire, own) == {0: "NONE"}
        first.join()
        second.joined()
        assert commit(wire, own) == {0: "ILLEGAL_GENERATION"}
        own.generation_id_or_member_epoch = first.generation
        assert commit(wire, own) == {0: "REBALANCE_IN_PROGRESS"}
    assert committed(wire, group_id, topic.name, [0]) == {0: 9}


def test_a_commit_keeps_the_session_alive(group_servers: str, wire: WireClient, topic: Topic, group_id: str) -> None:
    with (
        ClassicMember(group_servers, group_id, session_timeout_ms=2_000) as member,
        ClassicMember(group_servers, group_id, session_timeout_ms=4_000, instance_id="other") as other,
    ):
        rebalance(member)
        rebalance(member, other)
        request = commit_request(group_id, topic, {0: 1}, member_id=member.member_id, generation=member.generation)

        def is_alone() -> bool:
            assert commit(wire, request) == {0: "NONE"}
            return len(describe_group(wire, group_id).members) == 1

        # The other session expires. This one would have expired in half that time, but its commits have extended it.
        wait_until(is_alone, "the end of the other session")
        assert member.heartbeat() == "REBALANCE_IN_PROGRESS"


def test_a_commit_from_outside_of_a_group_with_members(
    group_servers: str, wire: WireClient, topic: Topic, group_id: str
) -> None:
    with ClassicMember(group_servers, group_id) as member:
        rebalance(member)
        assert commit(wire, commit_request(group_id, topic, {0: 1})) == {0: "UNKNOWN_MEMBER_ID"}
        member.leave()
        assert commit(wire, commit_request(group_id, topic, {0: 1})) == {0: "NONE"}


def test_a_member_of_an_unknown_group(wire: WireClient, topic: Topic, group_id: str) -> None:
    request = commit_request(group_id, topic, {0: 1}, member_id="stranger", generation=3)
    assert commit(wire, request, 8) == {0: "ILLEGAL_GENERATION"}
    assert commit(wire, request, 9) == {0: "GROUP_ID_NOT_FOUND"}
    assert commit(wire, request, 10) == {0: "GROUP_ID_NOT_FOUND"}
    assert group_id not in list_groups(wire)


def test_a_commit_of_a_static_member(group_servers: str, wire: WireClient, topic: Topic, group_id: str) -> None:
    with (
        ClassicMember(group_servers, group_id, instance_id="i-1") as before,
        ClassicMember(group_servers, group_id, instance_id="i-1") as after,
    ):
        rebalance(before)
        after.join()
        after.sync()
        for member, instance_id, expected in (
            (after, "i-1", "NONE"),
            (before, "i-1", "FENCED_INSTANCE_ID"),
            (before, None, "UNKNOWN_MEMBER_ID"),
            (after, "i-9", "UNKNOWN_MEMBER_ID"),
        ):
            request = commit_request(
                group_id, topic, {0: 1}, member_id=member.member_id, generation=1, instance_id=instance_id
            )
            assert commit(wire, request) == {0: expected}


def test_an_empty_group_id(wire: WireClient, topic: Topic) -> None:
    """Offsets can be kept under it, as they could before groups had to have names; it has no members."""
    member = commit_request("", topic, {0: 3}, member_id="m", generation=1)
    assert commit(wire, member) == {0: "GROUP_ID_NOT_FOUND"}
    assert commit(wire, commit_request("", topic, {0: 3})) == {0: "NONE"}
    assert committed(wire, "", topic.name, [0]) == {0: 3}
    assert delete_offsets(wire, "", topic.name, 0) == ("INVALID_GROUP_ID", {})
    assert delete_groups(wire, "") == {"": "NONE"}


@pytest.mark.parametrize("version", [9, 10])
def test_commits_of_a_consumer_group_are_checked_by_epoch(
    group_servers: str, wire: WireClient, topic: Topic, group_id: str, version: int
) -> None:
    with ConsumerMember(group_servers, group_id, topic) as member:
        member.join()
        settle(member)
        request = commit_request(group_id, topic, {0: 1}, member_id=member.member_id, generation=member.epoch)
        assert commit(wire, request, version) == {0: "NONE"}
        request.generation_id_or_member_epoch = member.epoch + 1
        assert commit(wire, request, version) == {0: "STALE_MEMBER_EPOCH"}
        request.member_id = "stranger"
        assert commit(wire, request, version) == {0: "UNKNOWN_MEMBER_ID"}
        assert commit(wire, commit_request(group_id, topic, {0: 1}), version) == {0: "UNKNOWN_MEMBER_ID"}


def test_commits_of_a_consumer_group_need_version_9(
    group_servers: str, wire: WireClient, topic: Topic, group_id: str
) -> None:
    with ConsumerMember(group_servers, group_id, topic) as member:
        member.join()
        settle(member)
        request = commit_request(group_id, topic, {0: 1}, member_id=member.member_id, generation=member.epoch)
        assert commit(wire, request, 8) == {0: "UNSUPPORTED_VERSION"}


def test_an_older_epoch_may_commit_what_was_assigned_since_then(
    group_servers: str, wire: WireClient, topic: Topic, group_id: str
) -> None:
    """A member that learns of its new epoch after it has sent the commit is not refused (KIP-1251)."""
    with ConsumerMember(group_servers, group_id, topic) as member:
        member.join()
        settle(member)
        before = member.epoch
        with ConsumerMember(group_servers, group_id, topic) as other:
            other.join()
            settle(member, other)
            assert member.epoch > before
            kept, taken = member.partitions[topic.name][0], other.partitions[topic.name][0]

            def commit_before(*partitions: int) -> dict[int, str]:
                offsets = dict.fromkeys(partitions, 11)
                old = commit_request(group_id, topic, offsets, member_id=member.member_id, generation=before)
                return commit(wire, old)

            assert commit_before(kept) == {kept: "NONE"}
            assert commit_before(taken) == {taken: "STALE_MEMBER_EPOCH"}
            # One that is stale fails the whole request.
            assert commit_before(kept, taken) == {kept: "STALE_MEMBER_EPOCH", taken: "STALE_MEMBER_EPOCH"}
            assert committed(wire, group_id, topic.name, [kept, taken]) == {kept: 11, taken: -1}


# -- fetches that are allowed --


@pytest.mark.parametrize("version", [9, 10])
def test_fetches_of_a_consumer_group_are_checked_by_epoch(
    group_servers: str, wire: WireClient, topic: Topic, group_id: str, version: int
) -> None:
    with ConsumerMember(group_servers, group_id, topic) as member:
        member.join()
        settle(member)

        def asked(member_id: str | None, epoch: int) -> str:
            return fetch(wire, group_id, {topic: [0]}, version, member_id=member_id, member_epoch=epoch)[0]

        assert asked(member.member_id, member.epoch) == "NONE"
        assert asked(None, -1) == "NONE"
        assert asked(member.member_id, member.epoch - 1) == "STALE_MEMBER_EPOCH"
        assert asked(member.member_id, member.epoch + 1) == "STALE_MEMBER_EPOCH"
        assert asked("stranger", member.epoch) == "UNKNOWN_MEMBER_ID"


def test_fetches_of_classic_groups_are_not_checked(
    group_servers: str, wire: WireClient, topic: Topic, group_id: str
) -> None:
    with ClassicMember(group_servers, group_id) as member:
        rebalance(member)
        assert fetch(wire, group_id, {topic: [0]}, 9, member_id="stranger", member_epoch=77)[0] == "NONE"


# -- deletions that are allowed --


def test_offsets_of_topics_that_members_read_are_kept(
    group_servers: str, wire: WireClient, topic: Topic, topic_name: Callable[[], str], group_id: str
) -> None:
    other = w.create_topic(group_servers, topic_name())
    with ClassicMember(group_servers, group_id, protocols={"range": subscription(topic.name)}) as member:
        rebalance(member)
        for each in (topic, other):
            commit(wire, commit_request(group_id, each, {0: 4}, member_id=member.member_id, generation=1))
        assert delete_offsets(wire, group_id, topic.name, 0) == ("NONE", {0: "GROUP_SUBSCRIBED_TO_TOPIC"})
        assert delete_offsets(wire, group_id, other.name, 0) == ("NONE", {0: "NONE"})
        member.leave()
        assert delete_offsets(wire, group_id, topic.name, 0) == ("NONE", {0: "NONE"})


def test_offsets_of_topics_that_consumer_members_read_are_kept(
    group_servers: str, wire: WireClient, topic: Topic, topic_name: Callable[[], str], group_id: str
) -> None:
    other = w.create_topic(group_servers, topic_name())
    for each in (topic, other):
        commit(wire, commit_request(group_id, each, {0: 4}))
    with ConsumerMember(group_servers, group_id, topic) as member:
        member.join()
        assert delete_offsets(wire, group_id, topic.name, 0) == ("NONE", {0: "GROUP_SUBSCRIBED_TO_TOPIC"})
        assert delete_offsets(wire, group_id, other.name, 0) == ("NONE", {0: "NONE"})


def test_offsets_of_members_that_are_no_consumers_are_kept(
    group_servers: str, wire: WireClient, topic: Topic, group_id: str
) -> None:
    commit(wire, commit_request(group_id, topic, {0: 4}))
    with ClassicMember(group_servers, group_id, protocol_type="connect", protocols={"default": b""}) as member:
        rebalance(member)
        assert delete_offsets(wire, group_id, topic.name, 0)[0] == "NON_EMPTY_GROUP"
        member.leave()
        assert delete_offsets(wire, group_id, topic.name, 0) == ("NONE", {0: "NONE"})


def test_offset_delete_of_what_is_not_there(wire: WireClient, topic: Topic, group_id: str) -> None:
    assert delete_offsets(wire, group_id, topic.name, 0)[0] == "GROUP_ID_NOT_FOUND"
    commit(wire, commit_request(group_id, topic, {0: 4}))
    assert delete_offsets(wire, group_id, "no-such-topic", 0) == ("NONE", {0: "UNKNOWN_TOPIC_OR_PARTITION"})


def test_offsets_go_with_their_group(wire: WireClient, topic: Topic, group_id: str) -> None:
    commit(wire, commit_request(group_id, topic, {0: 4, 1: 5}))
    assert delete_groups(wire, group_id) == {group_id: "NONE"}
    assert committed(wire, group_id, topic.name, [0, 1]) == {0: -1, 1: -1}
    assert group_id not in list_groups(wire)
