"""What people ask of groups: FindCoordinator, DescribeGroups, ListGroups, DeleteGroups, in every version.

And a server under load: ten thousand groups are created in a loop while another group keeps working.
"""

from collections.abc import Callable, Iterator, Sequence

import pytest

from moldau.compat_tests.bystander import Bystander
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.list_groups import ListGroupsRequest
from moldau.testing import topic_requests as w
from moldau.testing.group_requests import (
    ClassicMember,
    ConsumerMember,
    code,
    commit,
    commit_request,
    committed,
    delete_groups,
    describe_consumer_group,
    describe_group,
    list_groups,
    rebalance,
    settle,
    subscription,
)
from moldau.testing.topic_requests import Topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

# READ, DELETE, DESCRIBE, and DESCRIBE_CONFIGS and ALTER_CONFIGS of a group: a bit for each operation's code.
ALL_GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11

GROUP, TRANSACTION = 0, 1


@pytest.fixture
def wire(group_servers: str) -> Iterator[WireClient]:
    with WireClient(group_servers) as client:
        yield client


@pytest.fixture
def topic(group_servers: str, topic_name: Callable[[], str]) -> Topic:
    return w.create_topic(group_servers, topic_name(), 2)


# -- FindCoordinator --


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator(wire: WireClient, group_servers: str, group_id: str, version: int) -> None:
    broker = wire.call(DescribeClusterRequest(), 1).brokers[0]
    expected = (0, broker.broker_id, *group_servers.split(":"))
    if version < 4:
        request = FindCoordinatorRequest(key=group_id)
        answer = wire.call(request, version)
        assert (answer.error_code, answer.node_id, answer.host, str(answer.port)) == expected
        return
    answer = wire.call(FindCoordinatorRequest(coordinator_keys=[group_id, "", "another"]), version)
    found = {each.key: each for each in answer.coordinators}
    assert list(found) == [group_id, "", "another"]
    for each in (found[group_id], found["another"]):
        assert (each.error_code, each.node_id, each.host, str(each.port)) == expected
    assert found[""].error_code == 0


@pytest.mark.parametrize("version", range(1, 7))
def test_a_coordinator_of_an_unknown_kind(wire: WireClient, version: int) -> None:
    if version < 4:
        assert code(wire.call(FindCoordinatorRequest(key="g", key_type=9), version).error_code) == "INVALID_REQUEST"
        return
    answer = wire.call(FindCoordinatorRequest(coordinator_keys=["g"], key_type=9), version)
    assert {code(each.error_code) for each in answer.coordinators} == {"INVALID_REQUEST"}


def test_no_coordinators_at_all(wire: WireClient) -> None:
    assert wire.call(FindCoordinatorRequest(coordinator_keys=[]), 4).coordinators == []


# -- DescribeGroups --


@pytest.mark.parametrize("version", range(7))
def test_describe_groups(group_servers: str, wire: WireClient, group_id: str, version: int) -> None:
    metadata = subscription("a", "b")
    with ClassicMember(
        group_servers, group_id, instance_id="i-1", client_id="me", protocols={"range": metadata}
    ) as member:
        rebalance(member)
        group = describe_group(wire, group_id, version)
        assert (group.error_code, group.group_id, group.group_state) == (0, group_id, "Stable")
        assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
        (described,) = group.members
        assert described.member_id == member.member_id
        assert described.group_instance_id == ("i-1" if version >= 4 else None)
        assert (described.client_id, described.client_host) == ("me", "/127.0.0.1")
        assert described.member_metadata == metadata
        assert described.member_assignment == member.member_id.encode()
        assert group.authorized_operations == -(2**31)


@pytest.mark.parametrize("version", range(7))
def test_describe_an_unknown_group(wire: WireClient, group_id: str, version: int) -> None:
    """It is dead; since version 6 it is an error (KIP-1043)."""
    group = describe_group(wire, group_id, version)
    assert (group.group_id, group.group_state, group.protocol_type, group.members) == (group_id, "Dead", "", [])
    assert code(group.error_code) == ("GROUP_ID_NOT_FOUND" if version >= 6 else "NONE")
    assert (group.error_message is not None) == (version >= 6)


@pytest.mark.parametrize("version", range(3, 7))
def test_authorized_operations_of_groups(group_servers: str, wire: WireClient, group_id: str, version: int) -> None:
    with ClassicMember(group_servers, group_id) as member:
        rebalance(member)
        (group,) = wire.call(
            DescribeGroupsRequest(groups=[group_id], include_authorized_operations=True), version
        ).groups
        assert group.authorized_operations == ALL_GROUP_OPERATIONS


def test_describe_several_groups(group_servers: str, wire: WireClient, group_id: str) -> None:
    with ClassicMember(group_servers, group_id) as member:
        rebalance(member)
        answer = wire.call(DescribeGroupsRequest(groups=["nobody", group_id]), 6)
        assert sorted((group.group_id, code(group.error_code)) for group in answer.groups) == sorted(
            [("nobody", "GROUP_ID_NOT_FOUND"), (group_id, "NONE")]
        )


def test_describing_a_consumer_group_as_a_classic_one(
    group_servers: str, wire: WireClient, topic: Topic, group_id: str
) -> None:
    with ConsumerMember(group_servers, group_id, topic) as member:
        member.join()
        settle(member)
        group = describe_group(wire, group_id, 6)
        assert (code(group.error_code), group.group_state) == ("GROUP_ID_NOT_FOUND", "Dead")
        group = describe_group(wire, group_id, 5)
        assert (code(group.error_code), group.group_state) == ("NONE", "Dead")


def test_the_states_of_a_classic_group(group_servers: str, wire: WireClient, group_id: str) -> None:
    with ClassicMember(group_servers, group_id) as first, ClassicMember(group_servers, group_id) as second:
        first.join()
        group = describe_group(wire, group_id)
        assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
        assert [(each.member_metadata, each.member_assignment) for each in group.members] == [(b"", b"")]
        first.sync({first.member_id: b"all"})
        assert describe_group(wire, group_id).group_state == "Stable"
        second.start_join()
        wait_until(lambda: describe_group(wire, group_id).group_state == "PreparingRebalance", "the rebalance to begin")
        first.leave()
        second.joined()
        second.leave()
        assert describe_group(wire, group_id).group_state == "Empty"


# -- ListGroups --


@pytest.mark.parametrize("version", range(6))
def test_list_groups(group_servers: str, wire: WireClient, group_id: str, version: int) -> None:
    with ClassicMember(group_servers, group_id) as member:
        rebalance(member)
        group = list_groups(wire, version=version)[group_id]
        assert group.protocol_type == "consumer"
        assert group.group_state == ("Stable" if version >= 4 else "")
        assert group.group_type == ("classic" if version >= 5 else "")


def test_groups_by_state_and_type(group_servers: str, wire: WireClient, topic: Topic, group_id: str) -> None:
    stable, empty, modern = (f"{group_id}-{kind}" for kind in ("stable", "empty", "modern"))
    with ClassicMember(group_servers, stable) as member, ConsumerMember(group_servers, modern, topic) as consumer:
        rebalance(member)
        consumer.join()
        settle(consumer)
        commit(wire, commit_request(empty, topic, {0: 1}))

        def listed(states: Sequence[str] = (), types: Sequence[str] = ()) -> set[str]:
            return {each for each in list_groups(wire, states=states, types=types) if each.startswith(group_id)}

        assert listed() == {stable, empty, modern}
        assert listed(states=["Stable"]) == {stable, modern}
        assert listed(states=["stable"]) == {stable, modern}
        assert listed(states=["Empty"]) == {empty}
        assert listed(states=["Empty", "Stable"]) == {stable, empty, modern}
        assert listed(states=["PreparingRebalance", "Dead"]) == set()
        assert listed(states=["nonsense"]) == set()
        assert listed(types=["classic"]) == {stable, empty}
        assert listed(types=["Consumer"]) == {modern}
        assert listed(types=["consumer", "classic"]) == {stable, empty, modern}
        assert listed(states=["Empty"], types=["consumer"]) == set()
        assert listed(types=["share"]) == set()
        # An unknown type.
        answer = wire.call(ListGroupsRequest(types_filter=["nonsense"]), 5)
        assert (answer.error_code, answer.groups) == (0, [])
        assert list_groups(wire)[modern].group_type == "consumer"


# -- DeleteGroups --


@pytest.mark.parametrize("version", range(3))
def test_delete_groups(group_servers: str, wire: WireClient, topic: Topic, group_id: str, version: int) -> None:
    full, empty, simple, unknown = (f"{group_id}-{kind}" for kind in ("full", "empty", "simple", "unknown"))
    with ClassicMember(group_servers, full) as member, ClassicMember(group_servers, empty) as gone:
        rebalance(member)
        rebalance(gone)
        gone.leave()
        commit(wire, commit_request(simple, topic, {0: 1}))
        assert delete_groups(wire, full, empty, simple, unknown, version=version) == {
            full: "NON_EMPTY_GROUP",
            empty: "NONE",
            simple: "NONE",
            unknown: "GROUP_ID_NOT_FOUND",
        }
        assert {each for each in list_groups(wire) if each.startswith(group_id)} == {full}
        assert describe_group(wire, empty).group_state == "Dead"
        assert committed(wire, simple, topic.name, [0]) == {0: -1}
        assert member.heartbeat() == "NONE"


def test_delete_a_consumer_group(group_servers: str, wire: WireClient, topic: Topic, group_id: str) -> None:
    with ConsumerMember(group_servers, group_id, topic) as member:
        member.join()
        assert delete_groups(wire, group_id) == {group_id: "NON_EMPTY_GROUP"}
        member.leave()
        assert delete_groups(wire, group_id) == {group_id: "NONE"}
        assert code(describe_consumer_group(wire, group_id).error_code) == "GROUP_ID_NOT_FOUND"


def test_delete_a_group_twice_and_nothing(wire: WireClient, topic: Topic, group_id: str) -> None:
    commit(wire, commit_request(group_id, topic, {0: 1}))
    assert wire.call(DeleteGroupsRequest(groups_names=[]), 2).results == []
    answer = wire.call(DeleteGroupsRequest(groups_names=[group_id, group_id]), 2)
    assert code(answer.results[0].error_code) == "NONE"
    assert {result.group_id for result in answer.results} == {group_id}


def test_a_group_that_was_deleted_begins_anew(group_servers: str, wire: WireClient, group_id: str) -> None:
    with ClassicMember(group_servers, group_id) as member, ClassicMember(group_servers, group_id) as another:
        rebalance(member)
        member.leave()
        assert delete_groups(wire, group_id) == {group_id: "NONE"}
        rebalance(another)
        assert another.generation == 1


# -- a lot --

# How much longer a round of the bystander may take. It does not matter how fast the machine is, only how much of what
# others have asked for is done before its turn: never more than what is on its way, which is 500 requests, or one that
# deletes 4,000 offsets.
BESIDE_REQUESTS, BESIDE_DELETION = 500, 1_000


@pytest.fixture
def bystander(group_servers: str, topic: Topic, group_id: str) -> Iterator[Bystander]:
    with Bystander(group_servers, group_id, topic) as bystander:
        yield bystander


def test_ten_thousand_groups_while_another_goes_on(
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
    """Each join takes two requests, and each member would be forgotten after its session."""
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


def test_many_groups_with_offsets_are_deleted_at_once(
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
