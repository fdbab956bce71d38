"""Committed offsets of the empty group, which all clients of a server share: the test needs a dedicated server.

The cases of the conformance suite (area `offsets`) test OffsetCommit, OffsetFetch and OffsetDelete.
"""

from collections.abc import Callable, Iterator

import pytest

from moldau.testing import topic_requests as w
from moldau.testing.group_requests import commit, commit_request, committed, delete_groups
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
