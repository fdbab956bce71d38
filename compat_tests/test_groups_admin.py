"""A server under load: ten thousand groups are created and deleted while another group keeps working.

The cases of the conformance suite (area `groups`) test FindCoordinator, DescribeGroups, ListGroups and DeleteGroups.
"""

from collections.abc import Callable, Iterator

import pytest

from moldau.compat_tests.bystander import Bystander
from moldau.testing import topic_requests as w
from moldau.testing.group_requests import (
    ClassicMember,
    code,
    commit,
    commit_request,
    committed,
    delete_groups,
    list_groups,
)
from moldau.testing.topic_requests import Topic
from moldau.testing.wire import WireClient


@pytest.fixture
def wire(group_servers: str) -> Iterator[WireClient]:
    with WireClient(group_servers) as client:
        yield client


@pytest.fixture
def topic(group_servers: str, topic_name: Callable[[], str]) -> Topic:
    return w.create_topic(group_servers, topic_name(), 2)


# How much longer a round of the bystander may take. The limits do not depend on the speed of the machine, but on the
# work of other clients that the server does first. This is at most the pending work: 500 requests, or one request that
# deletes 4,000 offsets.
BESIDE_REQUESTS, BESIDE_DELETION = 500, 1_000


@pytest.fixture
def bystander(group_servers: str, topic: Topic, group_id: str) -> Iterator[Bystander]:
    with Bystander(group_servers, group_id, topic) as bystander:
        yield bystander


def test_ten_thousand_groups_do_not_delay_another_group(
    group_servers: str, wire: WireClient, topic: Topic, group_id: str, bystander: Bystander
) -> None:
    with WireClient(group_servers) as flood, bystander.undisturbed(BESIDE_REQUESTS):
        for start in range(0, 10_000, 500):
            for number in range(start, start + 500):
                flood.send(commit_request(f"{group_id}-{number}", topic, {0: number}), 9)
            for _ in range(500):
                assert flood.receive().topics[0].partitions[0].error_code == 0
    groups = list_groups(wire)
    assert {f"{group_id}-{number}" for number in range(10_000)} <= set(groups)
    assert committed(wire, f"{group_id}-9999", topic.name, [0]) == {0: 9_999}
    with bystander.undisturbed(BESIDE_REQUESTS):
        for start in range(0, 10_000, 100):
            names = [f"{group_id}-{number}" for number in range(start, start + 100)]
            assert set(delete_groups(wire, *names).values()) == {"NONE"}


def test_ten_thousand_groups_with_members(group_servers: str, group_id: str, bystander: Bystander) -> None:
    """Each join takes two requests, and each member would expire after its session timeout."""
    with (
        ClassicMember(group_servers, group_id, session_timeout_ms=1_000) as member,
        WireClient(group_servers) as flood,
        bystander.undisturbed(BESIDE_REQUESTS),
    ):
        request = member.join_request()
        for start in range(0, 10_000, 500):
            ids = []
            for number in range(start, start + 500):
                request.group_id, request.member_id = f"{group_id}-{number}", ""
                flood.send(request, 9)
            for _ in range(500):
                given = flood.receive()
                assert code(given.error_code) == "MEMBER_ID_REQUIRED"
                ids.append(given.member_id)
            for number, member_id in enumerate(ids, start):
                request.group_id, request.member_id = f"{group_id}-{number}", member_id
                flood.send(request, 9)
            for _ in range(500):
                answer = flood.receive()
                assert code(answer.error_code) in ("NONE", "UNKNOWN_MEMBER_ID")
                assert answer.generation_id == (1 if answer.error_code == 0 else -1)


def test_many_groups_with_offsets_are_deleted_in_one_request(
    group_servers: str, wire: WireClient, topic_name: Callable[[], str], group_id: str, bystander: Bystander
) -> None:
    """200 groups, 20 offsets each, in one DeleteGroups: Apache Kafka writes them as one batch, which has a limit."""
    wide = w.create_topic(group_servers, topic_name(), 20)
    names = [f"{group_id}-{number}" for number in range(200)]
    for name in names:
        assert set(commit(wire, commit_request(name, wide, dict.fromkeys(range(20), 1))).values()) == {"NONE"}
    with bystander.undisturbed(BESIDE_DELETION):
        assert delete_groups(wire, *names) == dict.fromkeys(names, "NONE")
    assert {name for name in list_groups(wire) if name.startswith(group_id)} == {group_id}
    assert committed(wire, names[-1], wide.name, [0, 19]) == {0: -1, 19: -1}
