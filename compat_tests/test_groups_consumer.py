"""Consumer groups (KIP-848) on a server with short sessions and small groups.

What does not depend on these settings is tested by the conformance cases `consumer-groups`, and real clients in
`test_groups_clients`.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from moldau.compat_tests.group_server import MAX_SIZE
from moldau.testing import config_requests
from moldau.testing import topic_requests as w
from moldau.testing.group_requests import ConsumerMember, code, describe_consumer_group
from moldau.testing.topic_requests import Topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

NewMember = Callable[..., ConsumerMember]


@pytest.fixture
def wire(group_servers: str) -> Iterator[WireClient]:
    with WireClient(group_servers) as client:
        yield client


@pytest.fixture
def topic(group_servers: str, topic_name: Callable[[], str]) -> Topic:
    return w.create_topic(group_servers, topic_name(), 6)


@pytest.fixture
def new_member(group_servers: str, group_id: str, topic: Topic) -> Iterator[NewMember]:
    """``new_member(*topics, **settings)``: a member of this test's group, of its topic if no other is named."""
    with ExitStack() as connections:

        def make(*topics: Topic, group_id: str = group_id, **settings: object) -> ConsumerMember:
            member = ConsumerMember(group_servers, group_id, *(topics or (topic,)), **settings)  # type: ignore[arg-type]
            return connections.enter_context(member)

        yield make


def share(*members: ConsumerMember) -> list[int]:
    """All partitions that these members own of the first one's topic, sorted: no two members own the same one."""
    return sorted(partition for member in members for owned in member.partitions.values() for partition in owned)


def test_a_silent_member_is_removed_after_its_session(new_member: NewMember, wire: WireClient, group_id: str) -> None:
    """The session timeout is set by the server and by a config of the group."""
    change = "consumer.session.timeout.ms", config_requests.SET, "3000"
    assert config_requests.alter(wire, config_requests.GROUP, group_id, change) == "NONE"
    lively, silent = new_member(), new_member()
    lively.join()
    silent.join()

    def has_everything() -> bool:
        answer = lively.heartbeat()
        if answer.assignment is not None:
            lively.heartbeat(owned=True)
        return share(lively) == [0, 1, 2, 3, 4, 5] and len(describe_consumer_group(wire, group_id).members) == 1

    wait_until(has_everything, "the end of the session")
    assert code(silent.heartbeat().error_code) == "UNKNOWN_MEMBER_ID"


def test_a_group_that_is_full(new_member: NewMember, wire: WireClient, group_id: str) -> None:
    members = [new_member() for _ in range(MAX_SIZE)]
    for member in members:
        assert member.join().error_code == 0
    assert code(new_member().join().error_code) == "GROUP_MAX_SIZE_REACHED"
    assert len(describe_consumer_group(wire, group_id).members) == MAX_SIZE
    members[0].leave()
    assert new_member().join().error_code == 0
