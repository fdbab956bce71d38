"""Committed offsets where a test needs a server of its own, or a consumer group with several members.

The cases of the conformance suite (area `offsets`) test OffsetCommit, OffsetFetch and OffsetDelete.
"""

from collections.abc import Callable, Iterator

import pytest

from moldau.testing import topic_requests as w
from moldau.testing.group_requests import ConsumerMember, commit, commit_request, committed, delete_groups, settle
from moldau.testing.topic_requests import Topic
from moldau.testing.wire import WireClient


@pytest.fixture
def wire(group_servers: str) -> Iterator[WireClient]:
    with WireClient(group_servers) as client:
        yield client


@pytest.fixture
def topic(group_servers: str, topic_name: Callable[[], str]) -> Topic:
    return w.create_topic(group_servers, topic_name(), 3)


def test_the_empty_group_has_no_members_and_can_be_deleted(wire: WireClient, topic: Topic) -> None:
    """No conformance case may delete it: all clients of a server share it."""
    member = commit_request("", topic, {0: 3}, member_id="m", generation=1)
    assert commit(wire, member) == {0: "GROUP_ID_NOT_FOUND"}
    assert commit(wire, commit_request("", topic, {0: 3})) == {0: "NONE"}
    assert delete_groups(wire, "") == {"": "NONE"}
    assert committed(wire, "", topic.name, [0]) == {0: -1}


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
