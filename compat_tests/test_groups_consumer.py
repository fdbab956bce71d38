"""Consumer groups (KIP-848), request by request: ConsumerGroupHeartbeat and ConsumerGroupDescribe.

A member sends only heartbeats; the coordinator assigns. The members of these tests send exactly the given requests:
real clients are tested in `test_groups_clients`.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from moldau.compat_tests.group_server import MAX_SIZE
from moldau.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from moldau.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.testing import topic_requests as w
from moldau.testing.group_requests import (
    ClassicMember,
    ConsumerMember,
    assigned,
    assignment,
    code,
    commit,
    commit_request,
    committed,
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

NewMember = Callable[..., ConsumerMember]

GROUP_RESOURCE = 32


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


def set_group_config(wire: WireClient, group_id: str, name: str, value: str) -> str:
    """One config of a group; the name of the error code."""
    change = AlterableConfig(name=name, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group_id, configs=[change])
    (answer,) = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return code(answer.error_code)


def share(*members: ConsumerMember) -> list[int]:
    """All partitions that these members own of the first one's topic, sorted: no two members own the same one."""
    return sorted(partition for member in members for owned in member.partitions.values() for partition in owned)


# -- joining and leaving --


def test_the_first_member_gets_everything(new_member: NewMember, topic: Topic) -> None:
    member = new_member()
    answer = member.join()
    assert (answer.error_code, answer.member_id) == (0, member.member_id)
    assert answer.heartbeat_interval_ms == 200
    assert answer.member_epoch > 0
    settle(member)
    assert member.partitions == {topic.name: [0, 1, 2, 3, 4, 5]}


def test_version_0_is_given_a_member_id(new_member: NewMember) -> None:
    member = new_member(member_id="")
    answer = member.join(version=0)
    assert answer.error_code == 0
    assert answer.member_id
    settle(member)
    assert share(member) == [0, 1, 2, 3, 4, 5]


def test_version_1_brings_its_member_id(new_member: NewMember) -> None:
    refused = new_member(member_id="").join(version=1)
    assert code(refused.error_code) == "INVALID_REQUEST"
    assert refused.error_message == "MemberId can't be empty."


@pytest.mark.parametrize("version", [0, 1])
def test_a_heartbeat_without_news(new_member: NewMember, version: int) -> None:
    member = new_member()
    member.join()
    settle(member)
    answer = member.heartbeat(version)
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, member.epoch, None)
    # A member that reports its partitions does not get the same assignment again; one that reports none does.
    assert member.heartbeat(version, owned=True).assignment is None


def test_a_full_request_is_answered_with_the_assignment(new_member: NewMember, topic: Topic) -> None:
    member = new_member()
    member.join()
    settle(member)
    full = member.join_request()
    full.member_epoch = member.epoch
    full.topic_partitions = [TopicPartitions(topic_id=topic.topic_id, partitions=[0, 1, 2, 3, 4, 5])]
    answer = member.wire.call(full, 1)
    assert answer.error_code == 0
    assert answer.assignment is not None
    assert [sorted(each.partitions) for each in answer.assignment.topic_partitions] == [[0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize("version", [0, 1])
def test_leaving(new_member: NewMember, wire: WireClient, group_id: str, version: int) -> None:
    member = new_member()
    member.join()
    answer = member.leave(version=version)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, member.member_id, -1)
    group = describe_consumer_group(wire, group_id)
    assert (group.group_state, group.members) == ("Empty", [])
    assert code(member.heartbeat().error_code) == "UNKNOWN_MEMBER_ID"
    assert code(member.leave().error_code) == "UNKNOWN_MEMBER_ID"


def test_a_member_that_joins_again_at_epoch_0(new_member: NewMember) -> None:
    """It has lost its assignment, and gets it again; the other members keep theirs."""
    member, other = new_member(), new_member()
    member.join()
    other.join()
    settle(member, other)
    before, epoch = share(member), member.epoch
    answer = member.join()
    assert answer.error_code == 0
    settle(member, other)
    assert share(member) == before
    assert member.epoch == epoch


# -- a rebalance --


def test_a_partition_goes_to_the_next_owner_when_the_last_one_has_given_it_up(new_member: NewMember) -> None:
    old, new = new_member(), new_member()
    old.join()
    settle(old)
    answer = new.join()
    assert (answer.error_code, share(new)) == (0, [])
    # Heartbeats of the new one change nothing: the old one has to speak.
    for _ in range(3):
        assert new.heartbeat().error_code == 0
        assert share(new) == []

    def is_told() -> bool:
        return old.heartbeat().assignment is not None

    wait_until(is_told, "what the old member keeps")
    assert len(share(old)) == 3
    assert new.heartbeat().error_code == 0
    assert share(new) == []  # it got the assignment, and has not reported yet that it has revoked the partitions
    epoch = old.epoch
    old.heartbeat(owned=True)
    assert old.epoch > epoch
    wait_until(lambda: new.heartbeat().error_code == 0 and share(new), "what the new member gets")
    assert share(old, new) == [0, 1, 2, 3, 4, 5]


def test_members_come_and_go(new_member: NewMember) -> None:
    members = [new_member() for _ in range(3)]
    for count in range(1, 4):
        members[count - 1].join()
        settle(*members[:count])
        assert share(*members[:count]) == [0, 1, 2, 3, 4, 5]
        assert {len(share(member)) for member in members[:count]} == {6 // count}
        assert len({member.epoch for member in members[:count]}) == 1
    kept = share(members[2])
    members[0].leave()
    settle(*members[1:])
    assert share(*members[1:]) == [0, 1, 2, 3, 4, 5]
    assert set(kept) <= set(share(members[2]))


def test_a_member_that_does_not_give_up_its_partitions_is_fenced(new_member: NewMember) -> None:
    """After its rebalance timeout, although it keeps sending heartbeats."""
    stubborn, new = new_member(rebalance_timeout_ms=300), new_member()
    stubborn.join()
    settle(stubborn)
    new.join()

    def is_fenced() -> bool:
        new.heartbeat()
        answer = stubborn.heartbeat()
        assert code(answer.error_code) in ("NONE", "UNKNOWN_MEMBER_ID")
        return answer.error_code != 0

    wait_until(is_fenced, "the end of the rebalance timeout")
    settle(new)
    assert share(new) == [0, 1, 2, 3, 4, 5]


def test_a_silent_member_is_removed_after_its_session(new_member: NewMember, wire: WireClient, group_id: str) -> None:
    """The session's length is the server's to say, and a config of the group."""
    assert set_group_config(wire, group_id, "consumer.session.timeout.ms", "3000") == "NONE"
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


def test_a_group_config_out_of_bounds(wire: WireClient, group_id: str) -> None:
    assert set_group_config(wire, group_id, "consumer.session.timeout.ms", "1") == "INVALID_CONFIG"
    assert set_group_config(wire, group_id, "consumer.heartbeat.interval.ms", "1") == "INVALID_CONFIG"
    assert set_group_config(wire, group_id, "consumer.no.such.config", "1") == "INVALID_CONFIG"


def test_the_heartbeat_interval_of_a_group(new_member: NewMember, wire: WireClient, group_id: str) -> None:
    assert set_group_config(wire, group_id, "consumer.heartbeat.interval.ms", "321") == "NONE"
    member = new_member()
    member.join()
    wait_until(lambda: member.heartbeat().heartbeat_interval_ms == 321, "the group's interval")


# -- subscriptions --


def test_several_topics(new_member: NewMember, group_servers: str, topic_name: Callable[[], str], topic: Topic) -> None:
    other = w.create_topic(group_servers, topic_name(), 2)
    both, one = new_member(topic, other), new_member(topic, other)
    both.join()
    one.join()
    settle(both, one)
    owned = sorted((name, each) for member in (both, one) for name, all_ in member.partitions.items() for each in all_)
    assert owned == sorted([(topic.name, n) for n in range(6)] + [(other.name, n) for n in range(2)])


def test_members_with_different_subscriptions(
    new_member: NewMember, group_servers: str, topic_name: Callable[[], str], topic: Topic
) -> None:
    other = w.create_topic(group_servers, topic_name(), 2)
    first, second = new_member(topic), new_member(other)
    first.join()
    second.join()
    settle(first, second)
    assert first.partitions == {topic.name: [0, 1, 2, 3, 4, 5]}
    assert second.partitions == {other.name: [0, 1]}


def test_a_new_subscription(
    new_member: NewMember, group_servers: str, topic_name: Callable[[], str], topic: Topic
) -> None:
    other = w.create_topic(group_servers, topic_name(), 2)
    member = new_member(topic, other)
    member.join()
    settle(member)
    assert set(member.partitions) == {topic.name, other.name}
    change = ConsumerGroupHeartbeatRequest(
        group_id=member.group_id,
        member_id=member.member_id,
        member_epoch=member.epoch,
        subscribed_topic_names=[other.name],
    )
    assert member.send(change).error_code == 0
    member.heartbeat(owned=True)
    settle(member)
    assert member.partitions == {other.name: [0, 1]}


def test_a_topic_that_does_not_exist_yet(
    new_member: NewMember, group_servers: str, wire: WireClient, topic_name: Callable[[], str], group_id: str
) -> None:
    """The member waits for it without an assignment, and gets its partitions when it is made."""
    name = topic_name()
    request = new_member().join_request()
    request.subscribed_topic_names = [name]
    answer = wire.call(request, 1)
    assert answer.error_code == 0
    made = w.create_topic(group_servers, name, 2)
    member = new_member(made)
    member.member_id, member.epoch = request.member_id, answer.member_epoch
    wait_until(lambda: member.heartbeat().error_code == 0 and member.partitions == {name: [0, 1]}, "the new topic")
    settle(member)


def test_more_partitions(new_member: NewMember, wire: WireClient, topic: Topic) -> None:
    member = new_member()
    member.join()
    settle(member)
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic.name, count=8, assignments=None)], timeout_ms=10_000
    )
    assert wire.call(more, 3).results[0].error_code == 0
    wait_until(lambda: member.heartbeat().error_code == 0 and share(member) == list(range(8)), "the new partitions")


@pytest.mark.parametrize("pattern", ["{}-(a|b)", "{}-[ab]", "{}.*b|{}-a"])
def test_a_regular_expression(
    new_member: NewMember, group_servers: str, wire: WireClient, topic_name: Callable[[], str], pattern: str
) -> None:
    """It is matched against the whole name, by the server (RE2)."""
    base = topic_name()
    topics = [w.create_topic(group_servers, f"{base}-{letter}") for letter in "abc"]
    member = new_member(*topics)
    request = member.join_request()
    request.subscribed_topic_names, request.subscribed_topic_regex = [], pattern.replace("{}", base)
    assert member.send(request).error_code == 0
    expected = {f"{base}-a": [0], f"{base}-b": [0]}
    wait_until(lambda: member.heartbeat().error_code == 0 and member.partitions == expected, "the matching topics")


@pytest.mark.parametrize("pattern", ["(", "a**", "[z-a]", "(?=a)", r"\1"])
def test_an_invalid_regular_expression(new_member: NewMember, pattern: str) -> None:
    member = new_member()
    request = member.join_request()
    request.subscribed_topic_names, request.subscribed_topic_regex = [], pattern
    answer = member.wire.call(request, 1)
    assert code(answer.error_code) == "INVALID_REGULAR_EXPRESSION"


def test_an_empty_regular_expression_is_none(new_member: NewMember) -> None:
    member = new_member()
    request = member.join_request()
    request.subscribed_topic_regex = ""
    assert member.send(request).error_code == 0
    settle(member)
    assert share(member) == [0, 1, 2, 3, 4, 5]


# -- assignors --


@pytest.mark.parametrize("assignor", ["uniform", "range", None])
def test_server_side_assignors(
    new_member: NewMember, wire: WireClient, group_id: str, topic: Topic, assignor: str | None
) -> None:
    members = [new_member(assignor=assignor) for _ in range(2)]
    for member in members:
        member.join()
    settle(*members)
    assert share(*members) == [0, 1, 2, 3, 4, 5]
    assert describe_consumer_group(wire, group_id).assignor_name == (assignor or "uniform")
    if assignor == "range":
        assert sorted(share(member) for member in members) == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("assignor", ["mine", "Range", " "])
def test_an_unknown_assignor(new_member: NewMember, assignor: str) -> None:
    answer = new_member(assignor=assignor).join()
    assert code(answer.error_code) == "UNSUPPORTED_ASSIGNOR"
    assert answer.error_message is not None


# -- static members --


def test_a_static_member_that_comes_back_gets_what_it_had(
    new_member: NewMember, wire: WireClient, group_id: str
) -> None:
    static, other = new_member(instance_id="i-1"), new_member()
    static.join()
    other.join()
    settle(static, other)
    had, epoch = share(static), other.epoch
    answer = static.leave(epoch=-2)
    assert (answer.error_code, answer.member_epoch) == (0, -2)
    back = new_member(instance_id="i-1")
    assert back.join().error_code == 0
    settle(back, other)
    assert share(back) == had
    assert other.epoch == epoch  # nothing was required of it
    assert len(describe_consumer_group(wire, group_id).members) == 2


def test_a_static_member_that_has_gone_keeps_its_partitions(new_member: NewMember) -> None:
    static, other = new_member(instance_id="i-1"), new_member()
    static.join()
    other.join()
    settle(static, other)
    had = share(other)
    static.leave(epoch=-2)
    for _ in range(3):
        answer = other.heartbeat()
        assert (answer.error_code, answer.assignment) == (0, None)
    assert share(other) == had


def test_a_static_member_that_leaves_for_good(new_member: NewMember, wire: WireClient, group_id: str) -> None:
    static = new_member(instance_id="i-1")
    static.join()
    static.leave(epoch=-1)
    assert describe_consumer_group(wire, group_id).members == []


def test_an_instance_id_that_is_in_use(new_member: NewMember) -> None:
    first, second = new_member(instance_id="i-1"), new_member(instance_id="i-1")
    first.join()
    settle(first)
    answer = second.join()
    assert code(answer.error_code) == "UNRELEASED_INSTANCE_ID"
    assert first.heartbeat().error_code == 0


def test_an_instance_id_of_somebody_else(new_member: NewMember) -> None:
    first, second = new_member(instance_id="i-1"), new_member(instance_id="i-2")
    first.join()
    second.join()
    first.instance_id = "i-2"
    assert code(first.heartbeat().error_code) == "FENCED_INSTANCE_ID"
    assert code(first.leave(epoch=-2).error_code) == "FENCED_INSTANCE_ID"
    first.instance_id = "i-3"
    assert code(first.heartbeat().error_code) == "UNKNOWN_MEMBER_ID"


def test_the_one_before_is_fenced(new_member: NewMember) -> None:
    before, after = new_member(instance_id="i-1"), new_member(instance_id="i-1")
    before.join()
    before.leave(epoch=-2)
    assert after.join().error_code == 0
    assert code(before.heartbeat().error_code) == "FENCED_INSTANCE_ID"


# -- what is refused --


def refused(member: ConsumerMember, **fields: object) -> ConsumerGroupHeartbeatResponse:
    """The answer to the member's first heartbeat with these fields instead."""
    request = member.join_request()
    for name, value in fields.items():
        setattr(request, name, value)
    answer: ConsumerGroupHeartbeatResponse = member.wire.call(request, 1)
    assert (answer.member_epoch, answer.heartbeat_interval_ms, answer.assignment) == (0, 0, None)
    return answer


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"group_id": "  "}, "GroupId can't be empty."),
        ({"member_id": "  "}, "MemberId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": " "}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"subscribed_topic_names": None}, None),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": -3}, None),
    ],
    ids=lambda value: "-".join(f"{name}={each!r}" for name, each in value.items()) if isinstance(value, dict) else "",
)
def test_invalid_first_heartbeats(new_member: NewMember, fields: dict[str, object], message: str | None) -> None:
    answer = refused(new_member(), **fields)
    assert code(answer.error_code) == "INVALID_REQUEST"
    if message is not None:
        assert answer.error_message == message


def test_partitions_in_a_first_heartbeat(new_member: NewMember, topic: Topic) -> None:
    owned = [TopicPartitions(topic_id=topic.topic_id, partitions=[0])]
    answer = refused(new_member(), topic_partitions=owned)
    assert code(answer.error_code) == "INVALID_REQUEST"
    assert answer.error_message == "TopicPartitions must be empty when (re-)joining."


def test_an_unknown_member_of_an_unknown_group(new_member: NewMember, wire: WireClient, group_id: str) -> None:
    stranger = new_member()
    stranger.epoch = 3
    assert code(stranger.heartbeat().error_code) == "GROUP_ID_NOT_FOUND"
    assert code(stranger.leave().error_code) == "GROUP_ID_NOT_FOUND"
    assert group_id not in list_groups(wire)


def test_an_unknown_member(new_member: NewMember) -> None:
    new_member().join()
    stranger = new_member()
    stranger.epoch = 3
    assert code(stranger.heartbeat().error_code) == "UNKNOWN_MEMBER_ID"
    assert code(stranger.leave().error_code) == "UNKNOWN_MEMBER_ID"


def test_an_epoch_that_is_not_the_members(new_member: NewMember) -> None:
    member = new_member()
    member.join()
    settle(member)
    member.epoch += 1
    answer = member.heartbeat()
    assert code(answer.error_code) == "FENCED_MEMBER_EPOCH"
    member.epoch -= 1
    assert member.heartbeat().error_code == 0


def test_the_epoch_before_is_taken_while_its_answer_may_have_been_lost(new_member: NewMember) -> None:
    """The response with the new epoch was lost: the member reports its old state, and gets the response again."""
    member, other = new_member(), new_member()
    member.join()
    settle(member)
    before = member.epoch
    other.join()
    settle(member, other)
    assert member.epoch > before
    now = member.epoch
    member.epoch = before
    answer = member.heartbeat(owned=True)
    assert (answer.error_code, answer.member_epoch) == (0, now)
    # With partitions that it cannot have any more, it is not believed.
    member.epoch = before
    member.owned = {topic_id: [0, 1, 2, 3, 4, 5] for topic_id in member.owned}
    assert code(member.heartbeat(owned=True).error_code) == "FENCED_MEMBER_EPOCH"


def test_a_group_that_is_full(new_member: NewMember, wire: WireClient, group_id: str) -> None:
    members = [new_member() for _ in range(MAX_SIZE)]
    for member in members:
        assert member.join().error_code == 0
    assert code(new_member().join().error_code) == "GROUP_MAX_SIZE_REACHED"
    assert len(describe_consumer_group(wire, group_id).members) == MAX_SIZE
    members[0].leave()
    assert new_member().join().error_code == 0


def test_a_group_of_members_that_are_no_consumers(new_member: NewMember, group_servers: str, group_id: str) -> None:
    with ClassicMember(group_servers, group_id, protocol_type="connect", protocols={"default": b""}) as worker:
        rebalance(worker)
        assert code(new_member().join().error_code) == "GROUP_ID_NOT_FOUND"
        assert worker.heartbeat() == "NONE"


# -- describing --


@pytest.mark.parametrize("version", [0, 1])
def test_consumer_group_describe(
    new_member: NewMember, wire: WireClient, group_id: str, topic: Topic, version: int
) -> None:
    member = new_member(instance_id="i-1", client_id="me")
    request = member.join_request()
    request.rack_id = "rack"
    assert member.send(request).error_code == 0
    settle(member)
    group = describe_consumer_group(wire, group_id, version)
    assert (group.error_code, group.error_message, group.group_state) == (0, None, "Stable")
    assert group.group_epoch == group.assignment_epoch == member.epoch
    assert group.assignor_name == "uniform"
    assert group.authorized_operations == -(2**31)
    (described,) = group.members
    assert (described.member_id, described.instance_id, described.rack_id) == (member.member_id, "i-1", "rack")
    assert (described.client_id, described.client_host) == ("me", "/127.0.0.1")
    assert described.member_epoch == member.epoch
    assert (described.subscribed_topic_names, described.subscribed_topic_regex) == ([topic.name], "")
    for given in (described.assignment, described.target_assignment):
        (each,) = given.topic_partitions
        assert (each.topic_id, each.topic_name, sorted(each.partitions)) == (
            topic.topic_id,
            topic.name,
            [0, 1, 2, 3, 4, 5],
        )
    assert described.member_type == (1 if version >= 1 else -1)


@pytest.mark.parametrize("version", [0, 1])
def test_describing_what_is_no_consumer_group(
    group_servers: str, wire: WireClient, group_id: str, version: int
) -> None:
    unknown = describe_consumer_group(wire, group_id, version)
    assert (code(unknown.error_code), unknown.group_id) == ("GROUP_ID_NOT_FOUND", group_id)
    assert unknown.error_message == f"Group {group_id} not found."
    with ClassicMember(group_servers, group_id) as member:
        rebalance(member)
        classic = describe_consumer_group(wire, group_id, version)
        assert (code(classic.error_code), classic.members) == ("GROUP_ID_NOT_FOUND", [])
        assert classic.error_message == f"Group {group_id} is not a consumer group."


def test_authorized_operations_of_consumer_groups(new_member: NewMember, wire: WireClient, group_id: str) -> None:
    new_member().join()
    request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=True)
    (group,) = wire.call(request, 1).groups
    assert group.authorized_operations == 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


def test_the_states_of_a_consumer_group(new_member: NewMember, wire: WireClient, group_id: str) -> None:
    first, second = new_member(), new_member()
    first.join()
    settle(first)
    second.join()
    wait_until(
        lambda: describe_consumer_group(wire, group_id).group_state == "Reconciling", "partitions that are on their way"
    )
    assert {group for group in list_groups(wire, states=["Reconciling"]) if group == group_id} == {group_id}
    settle(first, second)
    assert describe_consumer_group(wire, group_id).group_state == "Stable"
    first.leave()
    second.leave()
    assert describe_consumer_group(wire, group_id).group_state == "Empty"


# -- from one protocol to the other --


def test_an_empty_classic_group_becomes_a_consumer_group(
    new_member: NewMember, group_servers: str, wire: WireClient, group_id: str, topic: Topic
) -> None:
    """With its offsets."""
    with ClassicMember(group_servers, group_id) as classic:
        rebalance(classic)
        commit(wire, commit_request(group_id, topic, {0: 5}, member_id=classic.member_id, generation=1))
        classic.leave()
    member = new_member()
    assert member.join().error_code == 0
    settle(member)
    assert committed(wire, group_id, topic.name, [0]) == {0: 5}
    assert list_groups(wire)[group_id].group_type == "consumer"


def test_an_empty_consumer_group_becomes_a_classic_group(
    new_member: NewMember, group_servers: str, wire: WireClient, group_id: str, topic: Topic
) -> None:
    member = new_member()
    member.join()
    member.leave()
    commit(wire, commit_request(group_id, topic, {0: 5}))
    with ClassicMember(group_servers, group_id, protocols={"range": subscription(topic.name)}) as classic:
        rebalance(classic)
        assert describe_group(wire, group_id).group_state == "Stable"
        assert committed(wire, group_id, topic.name, [0]) == {0: 5}
    assert list_groups(wire)[group_id].group_type == "classic"


def rejoin(member: ClassicMember, topic: str, owned: list[int]) -> list[int]:
    """Join again as a cooperative consumer that owns these partitions; those that it gets."""
    member.protocols = {"range": subscription(topic, owned={topic: owned})}
    assert member.join().error_code == 0
    given = member.sync()
    assert given.error_code == 0
    return assigned(given.assignment).get(topic, [])


def test_members_of_both_protocols(
    new_member: NewMember, group_servers: str, wire: WireClient, group_id: str, topic: Topic
) -> None:
    """A consumer joins a classic group, which is a consumer group from then on; the classic member has to rejoin,
    and is assigned to by the server."""
    with ClassicMember(group_servers, group_id, protocols={"range": subscription(topic.name)}) as classic:
        classic.join()
        classic.sync({classic.member_id: assignment({topic.name: range(6)})})
        modern = new_member()
        assert modern.join().error_code == 0
        wait_until(lambda: classic.heartbeat() == "REBALANCE_IN_PROGRESS", "the rebalance of the classic member")
        owned = rejoin(classic, topic.name, [0, 1, 2, 3, 4, 5])

        def is_shared() -> bool:
            nonlocal owned
            modern.heartbeat()
            if classic.heartbeat() == "REBALANCE_IN_PROGRESS":
                owned = rejoin(classic, topic.name, owned)
            return len(share(modern)) == 3

        wait_until(is_shared, "the partitions of both")
        assert sorted([*share(modern), *owned]) == [0, 1, 2, 3, 4, 5]
        types = {each.member_id: each.member_type for each in describe_consumer_group(wire, group_id).members}
        assert types == {classic.member_id: 0, modern.member_id: 1}
        # When the consumer has left, the group is a classic one again.
        modern.leave()
        wait_until(lambda: list_groups(wire)[group_id].group_type == "classic", "the way back")
