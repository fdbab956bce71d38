"""Members of both protocols in one group (KIP-848): groups that are upgraded and downgraded while they are in use.

In a consumer group a member of the classic protocol gets its responses immediately. Its generation is its own epoch.
SyncGroup returns the partitions that it may read; it rejoins whenever a heartbeat response requires it.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest

from moldau.compat_tests.group_server import CONFIG
from moldau.protocol.codec import encode
from moldau.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from moldau.testing.group_requests import (
    ClassicMember,
    ConsumerMember,
    assigned,
    assignment,
    code,
    describe_consumer_group,
    describe_group,
    leave_request,
    list_groups,
    rebalance,
    subscription,
    wait_for_coordinator,
    wait_for_rebalance,
)
from moldau.testing.servers import Server
from moldau.testing.topic_requests import Topic, create_topic
from moldau.testing.wire import WireClient

PARTITIONS = 4


class Group:
    """The members of one group, and the topic that they read."""

    def __init__(self, bootstrap_servers: str, name: str, connections: ExitStack) -> None:
        self.topic: Topic = create_topic(bootstrap_servers, name, PARTITIONS)
        self.name = name
        self._bootstrap_servers = bootstrap_servers
        self._connections = connections
        self.wire = connections.enter_context(WireClient(bootstrap_servers))

    def classic(self, **settings: object) -> ClassicMember:
        """A member of the classic protocol, not yet joined."""
        member = ClassicMember(
            self._bootstrap_servers,
            self.name,
            **{"protocols": self.protocols()} | settings,  # type: ignore[arg-type]
        )
        return self._connections.enter_context(member)

    def consumer(self, **settings: object) -> ConsumerMember:
        """A member of the consumer protocol, not yet joined."""
        member = ConsumerMember(self._bootstrap_servers, self.name, self.topic, **settings)  # type: ignore[arg-type]
        return self._connections.enter_context(member)

    def protocols(self, *owned: int) -> dict[str, bytes]:
        """What a member says that owns these partitions."""
        return {"range": subscription(self.topic.name, owned={self.topic.name: owned} if owned else None)}

    def assignment(self, *partitions: int) -> bytes:
        """What a leader says."""
        return assignment({self.topic.name: partitions})

    def stable_classic(self, **settings: object) -> tuple[ClassicMember, ClassicMember]:
        """A classic group of two at generation 2, each with half of the topic; the leader is first."""
        leader, follower = self.classic(**settings), self.classic(**settings)
        rebalance(leader)
        follower.start_join()
        rebalance_with(leader, follower, [self.assignment(0, 1), self.assignment(2, 3)])
        return leader, follower

    @property
    def type(self) -> str:
        """As ListGroups says."""
        return list_groups(self.wire)[self.name].group_type

    @property
    def state(self) -> str:
        """As ListGroups says."""
        return list_groups(self.wire)[self.name].group_state


def rebalance_with(leader: ClassicMember, follower: ClassicMember, assignments: list[bytes]) -> None:
    """The follower is joining; the leader is notified, and assigns."""
    wait_for_rebalance(leader)
    leader.start_join()
    for member in (leader, follower):
        assert member.joined().error_code == 0
    handed_in = dict(zip((leader.member_id, follower.member_id), assignments, strict=True))
    leader.start_sync(handed_in)
    follower.start_sync()
    for member, expected in zip((leader, follower), assignments, strict=True):
        assert member.synced().assignment == expected


@pytest.fixture
def group(group_servers: str, topic_name: Callable[[], str]) -> Iterator[Group]:
    with ExitStack() as connections:
        yield Group(group_servers, topic_name(), connections)


def owned(group: Group, member: ClassicMember) -> tuple[int, ...]:
    """What a SyncGroup of the member brings."""
    answer = member.sync()
    assert answer.error_code == 0, code(answer.error_code)
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    return tuple(assigned(answer.assignment).get(group.topic.name, []))


# -- a group becomes a consumer group, and a classic one again --


def test_one_member_of_each_protocol_step_by_step(group: Group) -> None:
    classic = group.classic()
    rebalance(classic)
    classic.start_join()
    assert classic.joined().generation_id == 2
    classic.start_sync({classic.member_id: group.assignment(0, 1, 2, 3)})
    assert classic.synced().error_code == 0

    consumer = group.consumer()
    answer = consumer.join()
    assert (answer.error_code, answer.member_epoch) == (0, 3)
    assert answer.assignment is not None
    assert answer.assignment.topic_partitions == []
    assert group.type == "consumer"
    assert group.state == "Reconciling"

    assert classic.heartbeat() == "REBALANCE_IN_PROGRESS"
    assert code(classic.sync().error_code) == "REBALANCE_IN_PROGRESS"
    classic.protocols = group.protocols(0, 1, 2, 3)
    joined = classic.join()
    assert (joined.error_code, joined.generation_id, joined.leader, joined.members) == (0, 2, "", [])
    assert (joined.protocol_type, joined.protocol_name, joined.member_id) == ("consumer", "range", classic.member_id)
    kept = owned(group, classic)
    assert len(kept) == 2
    assert consumer.heartbeat().assignment is None
    assert classic.heartbeat() == "REBALANCE_IN_PROGRESS"
    classic.protocols = group.protocols(*kept)
    assert classic.join().generation_id == 3
    assert owned(group, classic) == kept
    assert classic.heartbeat() == "NONE"
    consumer.heartbeat()
    assert sorted([*consumer.partitions[group.topic.name], *kept]) == [0, 1, 2, 3]
    assert group.state == "Stable"

    assert consumer.leave().error_code == 0
    assert group.type == "classic"
    assert group.state == "PreparingRebalance"
    assert classic.heartbeat() == "REBALANCE_IN_PROGRESS"
    joined = classic.join()
    assert (joined.generation_id, joined.leader) == (4, classic.member_id)
    assert [one.member_id for one in joined.members] == [classic.member_id]
    assert code(classic.sync({classic.member_id: group.assignment(0, 1, 2, 3)}).error_code) == "NONE"
    assert classic.heartbeat() == "NONE"
    assert code(describe_consumer_group(group.wire, group.name).error_code) == "GROUP_ID_NOT_FOUND"


def test_what_is_said_of_a_group_of_both(group: Group) -> None:
    classic = group.classic(instance_id="i")
    classic.join()
    classic.sync({classic.member_id: group.assignment(0, 1, 2, 3)})
    consumer = group.consumer()
    consumer.join()
    described = describe_consumer_group(group.wire, group.name)
    assert described.error_code == 0, code(described.error_code)
    assert (described.group_epoch, described.assignment_epoch, described.assignor_name) == (2, 2, "uniform")
    members = {one.member_id: one for one in described.members}
    assert set(members) == {classic.member_id, consumer.member_id}
    there = members[classic.member_id]
    assert (there.member_epoch, there.instance_id, there.member_type) == (1, "i", 0)
    assert there.subscribed_topic_names == [group.topic.name]
    assert members[consumer.member_id].member_type == 1
    assert code(describe_group(group.wire, group.name).error_code) == "GROUP_ID_NOT_FOUND"
    consumer.leave()
    assert [one.group_instance_id for one in describe_group(group.wire, group.name).members] == ["i"]


def test_members_that_wait_for_a_classic_rebalance_have_to_join_anew(group: Group) -> None:
    leader, follower = group.stable_classic()
    leader.start_join()
    consumer = group.consumer()
    assert consumer.join().member_epoch == 3
    answer = leader.wire.receive()
    assert (code(answer.error_code), answer.member_id) == ("REBALANCE_IN_PROGRESS", leader.member_id)
    assert leader.join().generation_id == 3
    assert follower.heartbeat() == "REBALANCE_IN_PROGRESS"
    assert follower.join().generation_id == 3


def test_members_that_wait_for_their_assignment_have_to_join_anew(group: Group) -> None:
    leader, follower = group.stable_classic()
    leader.start_join()
    wait_for_rebalance(follower)
    follower.start_join()
    for member in (leader, follower):
        assert member.joined().generation_id == 3
    follower.start_sync()
    consumer = group.consumer()
    assert consumer.join().member_epoch == 4
    assert code(follower.synced().error_code) == "REBALANCE_IN_PROGRESS"


def test_the_members_that_stay_share_out_what_the_last_consumer_member_had(group: Group) -> None:
    leader, follower = group.stable_classic()
    consumer = group.consumer()
    consumer.join()
    for member in (leader, follower):
        had: tuple[int, ...] = (0, 1) if member is leader else (2, 3)
        for _ in range(2):
            member.protocols = group.protocols(*had)
            assert member.join().error_code == 0
            had = owned(group, member)
    consumer.heartbeat()
    assert consumer.partitions
    consumer.leave()
    leader.start_join()
    follower.start_join()
    answers = [leader.joined(), follower.joined()]
    assert [one.generation_id for one in answers] == [4, 4]
    assert len({one.leader for one in answers}) == 1
    assert group.state == "CompletingRebalance"


def test_a_static_member_moves_without_a_rebalance_of_the_others(group: Group) -> None:
    classic = group.classic()
    static = group.classic(instance_id="i")
    rebalance(classic)
    static.start_join()
    rebalance_with(classic, static, [group.assignment(0, 1), group.assignment(2, 3)])
    consumer = group.consumer(instance_id="i")
    answer = consumer.join()
    assert (answer.error_code, answer.member_epoch) == (0, 2)
    assert consumer.partitions == {group.topic.name: [2, 3]}
    assert classic.heartbeat() == "NONE"
    assert static.heartbeat() == "FENCED_INSTANCE_ID"

    assert consumer.leave(epoch=-2).member_epoch == -2
    assert classic.heartbeat() == "NONE"
    again = group.classic(instance_id="i")
    joined = again.ask_join()
    assert (joined.error_code, joined.generation_id) == (0, 2)
    again.member_id, again.generation = joined.member_id, joined.generation_id
    assert owned(group, again) == (2, 3)
    assert group.type == "classic"
    assert group.state == "Stable"
    assert classic.heartbeat() == "NONE"


def test_a_static_member_that_comes_back_for_other_topics_has_no_generation_yet(
    group: Group, group_servers: str, topic_name: Callable[[], str]
) -> None:
    classic = group.classic()
    classic.join()
    classic.sync({classic.member_id: group.assignment(0, 1, 2, 3)})
    consumer = group.consumer(instance_id="i")
    epoch = consumer.join().member_epoch
    consumer.leave(epoch=-2)
    other = create_topic(group_servers, topic_name(), 1)
    joined = group.classic(instance_id="i", protocols={"range": subscription(group.topic.name, other.name)}).ask_join()
    assert (joined.error_code, joined.generation_id) == (0, 0)
    assert (group.type, group.state) == ("classic", "PreparingRebalance")
    assert classic.heartbeat() == "ILLEGAL_GENERATION"
    classic.generation = epoch
    assert classic.heartbeat() == "REBALANCE_IN_PROGRESS"


def test_a_member_that_left_is_reported_when_its_partitions_are_assigned(group: Group) -> None:
    consumer = group.consumer()
    consumer.join()
    leaving, staying = group.classic(), group.classic()
    leaving.join()
    staying.join()
    leaving.leave()
    assert staying.heartbeat() == "NONE"
    consumer.heartbeat()
    assert staying.heartbeat() == "REBALANCE_IN_PROGRESS"


# -- what is refused --


def test_requests_of_the_classic_protocol_that_are_refused(group: Group) -> None:
    consumer = group.consumer(instance_id="c")
    epoch = consumer.join().member_epoch + 1
    classic = group.classic(instance_id="i")
    assert classic.join().generation_id == epoch
    stranger = group.classic()
    stranger.member_id, stranger.generation = "nobody", epoch
    assert stranger.heartbeat() == "UNKNOWN_MEMBER_ID"
    assert code(stranger.sync().error_code) == "UNKNOWN_MEMBER_ID"
    stranger.member_id = consumer.member_id
    assert stranger.heartbeat() == "UNKNOWN_MEMBER_ID"
    assert code(stranger.sync().error_code) == "UNKNOWN_MEMBER_ID"
    stranger.instance_id = "i"
    assert stranger.heartbeat() == "FENCED_INSTANCE_ID"
    assert code(stranger.sync().error_code) == "FENCED_INSTANCE_ID"
    assert code(stranger.ask_join().error_code) == "FENCED_INSTANCE_ID"
    stranger.instance_id = "nobody"
    assert stranger.heartbeat() == "UNKNOWN_MEMBER_ID"
    assert code(stranger.ask_join().error_code) == "UNKNOWN_MEMBER_ID"
    for generation in (epoch - 1, epoch + 1, -1):
        classic.generation = generation
        assert classic.heartbeat() == "ILLEGAL_GENERATION"
        assert code(classic.sync().error_code) == "ILLEGAL_GENERATION"
    classic.generation = epoch
    classic.protocol_name = "sticky"
    assert code(classic.sync().error_code) == "INCONSISTENT_GROUP_PROTOCOL"
    classic.protocol_name, classic.protocol_type = "range", "connect"
    assert code(classic.sync().error_code) == "INCONSISTENT_GROUP_PROTOCOL"
    left = group.wire.call(
        leave_request(group.name, ("nobody", None), ("nobody", "i"), ("", "x"), ("", "i"), (consumer.member_id, None)),
        5,
    )
    assert [code(one.error_code) for one in left.members] == [
        "UNKNOWN_MEMBER_ID",
        "FENCED_INSTANCE_ID",
        "UNKNOWN_MEMBER_ID",
        "NONE",
        "NONE",
    ]
    assert group.state == "Empty"
    assert group.type == "consumer"


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"protocol_type": "connect"}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocols": {}}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocols": {"sticky": subscription("a")}}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocols": {"range": b""}}, "UNKNOWN_SERVER_ERROR"),
        ({"protocols": {"range": b"\xff\xff\0\0\0\0"}}, "UNKNOWN_SERVER_ERROR"),
        ({"session_timeout_ms": 99}, "INVALID_SESSION_TIMEOUT"),
        ({"session_timeout_ms": 60_001}, "INVALID_SESSION_TIMEOUT"),
        ({}, "NONE"),
    ],
)
def test_joins(group: Group, settings: dict[str, object], error: str) -> None:
    consumer = group.consumer()
    consumer.join()
    group.classic().join()
    member = group.classic(**settings)
    member.member_id = "chosen by the client"
    assert code(member.ask_join().error_code) == error


def test_a_member_id_is_given_first(group: Group) -> None:
    epoch = group.consumer().join().member_epoch
    member = group.classic()
    given = member.ask_join()
    assert code(given.error_code) == "MEMBER_ID_REQUIRED"
    assert len(given.member_id) in (22, 36)  # a uuid, without the client's name
    old = group.classic()
    joined = old.ask_join(3)
    assert (joined.error_code, joined.generation_id) == (0, epoch + 1)


def test_an_empty_consumer_group_gives_way_to_a_classic_one(group: Group) -> None:
    consumer = group.consumer()
    consumer.join()
    consumer.leave()
    assert group.type == "consumer"
    classic = group.classic()
    rebalance(classic)
    assert group.type == "classic"
    assert classic.generation == 1


@pytest.mark.parametrize(
    ("protocols", "given"),
    [
        ({"range": b""}, assignment({})),
        ({"range": subscription("a")}, b"\0\1\0\0\0\1\0"),
        (
            {"range": subscription("a")},
            b"\0\1" + encode(ConsumerProtocolAssignment(user_data=b"of a custom assignor"), 1),
        ),
    ],
)
def test_groups_that_cannot_be_upgraded(group: Group, protocols: dict[str, bytes], given: bytes) -> None:
    classic = group.classic(protocols=protocols)
    classic.join()
    assert classic.sync({classic.member_id: given}).error_code == 0
    answer = group.consumer().join()
    assert code(answer.error_code) == "GROUP_ID_NOT_FOUND"
    assert answer.error_message
    assert classic.heartbeat() == "NONE"


def test_groups_of_other_kinds_cannot_be_upgraded(group: Group) -> None:
    classic = group.classic(protocol_type="connect")
    rebalance(classic)
    assert code(group.consumer().join().error_code) == "GROUP_ID_NOT_FOUND"


# -- group.consumer.migration.policy --


@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade"])
def test_policies(
    new_server: Callable[..., AbstractContextManager[Server]], topic_name: Callable[[], str], policy: str
) -> None:
    with new_server(CONFIG | {"group.consumer.migration.policy": policy}) as server, ExitStack() as connections:
        wait_for_coordinator(server.bootstrap_servers)
        upgraded = Group(server.bootstrap_servers, topic_name(), connections)
        classic = upgraded.classic()
        rebalance(classic)
        classic.join()
        classic.sync({classic.member_id: upgraded.assignment(0, 1, 2, 3)})
        joined = upgraded.consumer().join()
        assert code(joined.error_code) == ("NONE" if policy == "upgrade" else "GROUP_ID_NOT_FOUND")

        downgraded = Group(server.bootstrap_servers, topic_name(), connections)
        consumer = downgraded.consumer()
        consumer.join()
        classic = downgraded.classic()
        classic.member_id = "chosen by the client"
        expected = "INCONSISTENT_GROUP_PROTOCOL" if policy == "disabled" else "NONE"
        assert code(classic.ask_join().error_code) == expected
        assert consumer.leave().error_code == 0
        assert downgraded.type == ("classic" if policy == "downgrade" else "consumer")
