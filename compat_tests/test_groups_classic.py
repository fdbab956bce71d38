"""The classic protocol, request by request: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and their responses.

Every version that Apache Kafka 4.3 advertises; two members and more; static members (KIP-345); and what is refused,
with Kafka's codes. The coordinator reads nothing in the metadata: most tests here send it what no consumer would.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from moldau.compat_tests.group_server import MAX_SIZE
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.sync_group import SyncGroupRequest
from moldau.testing.group_requests import (
    ClassicMember,
    assigned,
    assignment,
    code,
    describe_group,
    leave_request,
    rebalance,
    subscription,
    wait_for_rebalance,
)
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

NewMember = Callable[..., ClassicMember]

# A timeout that is waited for; what has to happen before it takes milliseconds.
SHORT_MS = 1_000


@pytest.fixture
def wire(group_servers: str) -> Iterator[WireClient]:
    with WireClient(group_servers) as client:
        yield client


@pytest.fixture
def new_member(group_servers: str, group_id: str) -> Iterator[NewMember]:
    """``new_member(**settings)``: a member of this test's group, not yet joined."""
    with ExitStack() as connections:

        def make(group_id: str = group_id, **settings: object) -> ClassicMember:
            return connections.enter_context(ClassicMember(group_servers, group_id, **settings))  # type: ignore[arg-type]

        yield make


# -- every version --


@pytest.mark.parametrize("version", range(10))
def test_join_group(new_member: NewMember, version: int) -> None:
    member = new_member(protocol_type="opaque", protocols={"b": b"preferred", "a": b"\x00second"})
    answer = member.join(version)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "b")
    assert answer.member_id == answer.leader == member.member_id
    assert answer.member_id.startswith("wire-")
    assert [(each.member_id, each.group_instance_id, each.metadata) for each in answer.members] == [
        (member.member_id, None, b"preferred")
    ]
    assert answer.protocol_type == ("opaque" if version >= 7 else None)
    assert answer.skip_assignment is False


@pytest.mark.parametrize("version", range(4))
def test_old_versions_need_no_second_join(new_member: NewMember, version: int) -> None:
    member = new_member()
    assert member.ask_join(version).generation_id == 1


@pytest.mark.parametrize("version", range(5, 10))
def test_join_of_a_static_member(new_member: NewMember, version: int) -> None:
    answer = new_member(instance_id="i-1").ask_join(version)
    assert (answer.error_code, answer.generation_id) == (0, 1)
    assert answer.member_id.startswith("i-1-")
    assert [each.group_instance_id for each in answer.members] == ["i-1"]


@pytest.mark.parametrize("version", range(6))
def test_sync_group(new_member: NewMember, version: int) -> None:
    member = new_member()
    member.join()
    answer = member.sync({member.member_id: b"\x00mine"}, version)
    assert (answer.error_code, answer.assignment) == (0, b"\x00mine")
    expected = ("consumer", "range") if version == 5 else (None, None)
    assert (answer.protocol_type, answer.protocol_name) == expected


@pytest.mark.parametrize("version", range(5))
def test_heartbeat(new_member: NewMember, version: int) -> None:
    member = new_member()
    rebalance(member)
    assert member.heartbeat(version) == "NONE"
    member.generation += 1
    assert member.heartbeat(version) == "ILLEGAL_GENERATION"
    member.member_id = "nobody"
    assert member.heartbeat(version) == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize("version", range(6))
def test_leave_group(new_member: NewMember, wire: WireClient, group_id: str, version: int) -> None:
    member = new_member()
    rebalance(member)
    answer = member.leave(version)
    assert answer.error_code == 0
    expected = [(member.member_id, None, 0)] if version >= 3 else []
    assert [(each.member_id, each.group_instance_id, each.error_code) for each in answer.members] == expected
    assert member.heartbeat() == "UNKNOWN_MEMBER_ID"
    group = describe_group(wire, group_id)
    assert (group.group_state, group.protocol_type, group.members) == ("Empty", "consumer", [])


@pytest.mark.parametrize("version", range(6))
def test_leaving_of_an_unknown_member(new_member: NewMember, version: int) -> None:
    rebalance(new_member())
    stranger = new_member()
    stranger.member_id = "stranger"
    answer = stranger.leave(version)
    if version < 3:
        assert code(answer.error_code) == "UNKNOWN_MEMBER_ID"
    else:
        assert answer.error_code == 0
        assert [(each.member_id, code(each.error_code)) for each in answer.members] == [
            ("stranger", "UNKNOWN_MEMBER_ID")
        ]


# -- a rebalance --


def test_the_leader_gets_all_members_and_the_others_none(new_member: NewMember) -> None:
    one, two = subscription("a"), subscription("a", "b")
    first, second = new_member(protocols={"range": one}), new_member(protocols={"range": two})
    rebalance(first)
    second.start_join()
    wait_for_rebalance(first)
    answer = first.join()
    second_response = second.joined()
    assert (answer.generation_id, second_response.generation_id) == (2, 2)
    assert answer.leader == second_response.leader == first.member_id
    assert {each.member_id: each.metadata for each in answer.members} == {
        first.member_id: one,
        second.member_id: two,
    }
    assert second_response.members == []
    assert second_response.protocol_name == "range"


def test_members_wait_for_the_assignment_of_the_leader(new_member: NewMember) -> None:
    leader, follower = new_member(), new_member()
    rebalance(leader)
    follower.start_join()
    wait_for_rebalance(leader)
    leader.join()
    follower.joined()
    follower.start_sync()
    leader.sync({leader.member_id: b"l", follower.member_id: b"f"})
    assert follower.synced().assignment == b"f"
    # A retry gets the same response.
    assert follower.sync().assignment == b"f"
    assert leader.heartbeat() == follower.heartbeat() == "NONE"


def test_a_member_without_an_assignment_gets_an_empty_one(new_member: NewMember) -> None:
    leader, follower = new_member(), new_member()
    rebalance(leader)
    rebalance(leader, follower, assignments={leader.member_id: b"all"})
    assert follower.sync().assignment == b""


def test_assignments_of_strangers_are_ignored(new_member: NewMember) -> None:
    member = new_member()
    member.join()
    answer = member.sync({member.member_id: b"mine", "stranger": b"x" * 1_000})
    assert (answer.error_code, answer.assignment) == (0, b"mine")


def test_partitions_that_do_not_exist_may_be_assigned(new_member: NewMember, wire: WireClient, group_id: str) -> None:
    """The coordinator does not know what an assignment means."""
    nowhere = assignment({"no such topic!": [0, 77, 2**31 - 1, -1]})
    member = new_member(protocols={"range": subscription("no such topic!")})
    member.join()
    assert assigned(member.sync({member.member_id: nowhere}).assignment) == {"no such topic!": [-1, 0, 77, 2**31 - 1]}
    (described,) = describe_group(wire, group_id).members
    assert described.member_assignment == nowhere
    assert member.heartbeat() == "NONE"


GARBAGE = (b"", b"\xff", b"\x00\x09garbage", b"\x00\x00\x7f\xff\xff\xff", bytes(100_000))


@pytest.mark.parametrize("protocol_type", ["consumer", "opaque"])
@pytest.mark.parametrize("data", GARBAGE, ids=range(len(GARBAGE)))
def test_metadata_that_no_consumer_would_send(
    request: pytest.FixtureRequest, new_member: NewMember, data: bytes, protocol_type: str
) -> None:
    if protocol_type == "consumer" and data in GARBAGE[2:4] and request.config.getoption("apache"):
        pytest.skip("Apache Kafka fails to parse it when the join is complete, and never answers")
    member = new_member(protocol_type=protocol_type, protocols={"range": data})
    (listed,) = member.join().members
    assert listed.metadata == data
    answer = member.sync({member.member_id: data})
    assert (answer.error_code, answer.assignment) == (0, data)


def test_other_protocol_types(new_member: NewMember, wire: WireClient, group_id: str) -> None:
    """``connect`` is one that exists; any name will do."""
    worker = new_member(protocol_type="connect", protocols={"sessioned": b"s", "compatible": b"c", "default": b"d"})
    answer = worker.join()
    assert (answer.error_code, answer.protocol_type, answer.protocol_name) == (0, "connect", "sessioned")
    worker.sync({worker.member_id: b"task 1"})
    group = describe_group(wire, group_id)
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "connect", "sessioned")
    (described,) = group.members
    assert (described.member_metadata, described.member_assignment) == (b"s", b"task 1")


def test_the_protocol_is_chosen_by_votes_among_what_all_support(new_member: NewMember) -> None:
    first = new_member(protocols={"a": b"", "b": b"", "c": b""})
    second = new_member(protocols={"c": b"", "b": b""})
    third = new_member(protocols={"x": b"", "c": b"", "b": b"", "a": b""})
    rebalance(first)
    assert first.protocol_name == "a"
    rebalance(first, second)
    rebalance(first, second, third)
    # The second one's vote and the third one's are for "c"; not all members support the first one's "a", so it was for
    # "b".
    assert {member.protocol_name for member in (first, second, third)} == {"c"}


def test_a_follower_that_joins_again_unchanged_sees_the_same_generation(new_member: NewMember) -> None:
    leader, follower = new_member(), new_member()
    rebalance(leader)
    rebalance(leader, follower)
    again = follower.join()
    assert (again.error_code, again.generation_id, again.leader) == (0, leader.generation, leader.member_id)
    assert leader.heartbeat() == "NONE"


def test_a_follower_with_new_metadata_causes_a_rebalance(new_member: NewMember) -> None:
    leader, follower = new_member(), new_member()
    rebalance(leader)
    rebalance(leader, follower)
    follower.protocols = {"range": subscription("b")}
    follower.start_join()
    wait_for_rebalance(leader)
    assert {each.metadata for each in leader.join().members} == {subscription("b"), subscription("a")}
    assert follower.joined().generation_id == 3


def test_a_leader_that_joins_again_causes_a_rebalance(new_member: NewMember) -> None:
    leader, follower = new_member(), new_member()
    rebalance(leader)
    rebalance(leader, follower)
    leader.start_join()
    wait_for_rebalance(follower)
    follower.join()
    assert leader.joined().generation_id == 3


def test_sync_and_heartbeat_during_a_rebalance(new_member: NewMember, wire: WireClient, group_id: str) -> None:
    first, second = new_member(), new_member()
    rebalance(first)
    second.start_join()
    wait_until(lambda: describe_group(wire, group_id).group_state == "PreparingRebalance", "the rebalance")
    assert code(first.sync().error_code) == "REBALANCE_IN_PROGRESS"
    assert first.heartbeat() == "REBALANCE_IN_PROGRESS"
    first.join()
    second.joined()
    # The new generation waits for its assignment.
    assert describe_group(wire, group_id).group_state == "CompletingRebalance"
    assert first.heartbeat() == "NONE"


def test_a_member_that_leaves_causes_a_rebalance(new_member: NewMember) -> None:
    leader, follower = new_member(), new_member()
    rebalance(leader)
    rebalance(leader, follower)
    assert follower.leave().members[0].error_code == 0
    assert leader.heartbeat() == "REBALANCE_IN_PROGRESS"
    assert [each.member_id for each in leader.join().members] == [leader.member_id]


def test_the_next_leader_when_the_leader_leaves(new_member: NewMember) -> None:
    leader, follower = new_member(), new_member()
    rebalance(leader)
    rebalance(leader, follower)
    leader.leave()
    answer = follower.join()
    assert answer.leader == follower.member_id
    assert [each.member_id for each in answer.members] == [follower.member_id]


def test_the_generation_goes_on_after_all_have_left(new_member: NewMember) -> None:
    first, second = new_member(), new_member()
    rebalance(first)
    assert first.generation == 1
    first.leave()
    rebalance(second)
    assert second.generation == 3  # being empty is a generation too


def test_several_leave_at_once(new_member: NewMember, wire: WireClient, group_id: str) -> None:
    """A batch has an answer for each; static members go by their instance ids (KIP-345)."""
    dynamic, static = new_member(), new_member(instance_id="i-1")
    rebalance(dynamic)
    rebalance(dynamic, static)
    leaving = leave_request(group_id, (dynamic.member_id, None), ("", "i-1"), ("stranger", None), ("", "i-2"))
    answer = wire.call(leaving, 5)
    assert answer.error_code == 0
    assert [(each.member_id, each.group_instance_id, code(each.error_code)) for each in answer.members] == [
        (dynamic.member_id, None, "NONE"),
        ("", "i-1", "NONE"),
        ("stranger", None, "UNKNOWN_MEMBER_ID"),
        ("", "i-2", "UNKNOWN_MEMBER_ID"),
    ]
    assert describe_group(wire, group_id).group_state == "Empty"


# -- static members --


def test_a_static_member_that_comes_back_causes_no_rebalance(
    new_member: NewMember, wire: WireClient, group_id: str
) -> None:
    leader, static = new_member(instance_id="i-1"), new_member(instance_id="i-2")
    rebalance(leader)
    rebalance(leader, static)
    back = new_member(instance_id="i-2")
    answer = back.join()
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 2, leader.member_id)
    assert answer.member_id != static.member_id
    assert back.sync().assignment == static.member_id.encode()  # what was assigned to the one before
    assert leader.heartbeat() == back.heartbeat() == "NONE"
    # The one before is not let in any more.
    assert static.heartbeat() == "FENCED_INSTANCE_ID"
    assert code(static.sync().error_code) == "FENCED_INSTANCE_ID"
    assert code(static.ask_join().error_code) == "FENCED_INSTANCE_ID"
    assert code(static.leave().members[0].error_code) == "FENCED_INSTANCE_ID"
    assert len(describe_group(wire, group_id).members) == 2


@pytest.mark.parametrize(("version", "skips"), [(8, False), (9, True)])
def test_a_static_leader_that_comes_back(new_member: NewMember, version: int, skips: bool) -> None:
    """Since version 9 it is the leader, without an assignment to make; before, the others' leader is its old id."""
    leader, other = new_member(instance_id="i-1"), new_member(instance_id="i-2")
    rebalance(leader)
    rebalance(leader, other)
    back = new_member(instance_id="i-1")
    answer = back.join(version)
    assert (answer.error_code, answer.generation_id, answer.skip_assignment) == (0, 2, skips)
    if skips:
        assert answer.leader == back.member_id
        assert {each.group_instance_id for each in answer.members} == {"i-1", "i-2"}
    else:
        assert answer.leader == leader.member_id
        assert answer.members == []
    assert back.sync().assignment == leader.member_id.encode()
    assert other.heartbeat() == "NONE"


def test_a_static_member_with_other_protocols_causes_a_rebalance(new_member: NewMember) -> None:
    leader, static = new_member(instance_id="i-1"), new_member(instance_id="i-2")
    rebalance(leader)
    rebalance(leader, static)
    back = new_member(instance_id="i-2", protocols={"range": subscription("a"), "roundrobin": b""})
    leader.protocols = {"roundrobin": b""}
    back.start_join()
    # The group chooses the same protocol as before: no rebalance is needed.
    assert back.joined().generation_id == 2
    assert leader.heartbeat() == "NONE"
    other = new_member(instance_id="i-3", protocols={"range": b""})
    other.start_join()
    wait_for_rebalance(leader)


def test_a_member_id_of_somebody_else_with_an_instance_id(new_member: NewMember) -> None:
    first, second = new_member(instance_id="i-1"), new_member(instance_id="i-2")
    rebalance(first)
    rebalance(first, second)
    thief = new_member(instance_id="i-1")
    thief.member_id, thief.generation = second.member_id, second.generation
    assert code(thief.ask_join().error_code) == "FENCED_INSTANCE_ID"
    assert thief.heartbeat() == "FENCED_INSTANCE_ID"
    assert code(thief.sync().error_code) == "FENCED_INSTANCE_ID"
    assert first.heartbeat() == second.heartbeat() == "NONE"


def test_an_unknown_instance_id_with_a_member_id(new_member: NewMember) -> None:
    rebalance(new_member(instance_id="i-1"))
    stranger = new_member(instance_id="i-9")
    stranger.member_id, stranger.generation = "i-9-made-up", 1
    assert code(stranger.ask_join().error_code) == "UNKNOWN_MEMBER_ID"
    assert stranger.heartbeat() == "UNKNOWN_MEMBER_ID"
    assert code(stranger.leave().members[0].error_code) == "UNKNOWN_MEMBER_ID"


def test_a_static_member_need_not_say_its_instance_id_again(new_member: NewMember) -> None:
    member = new_member(instance_id="i-1")
    rebalance(member)
    member.instance_id = None
    assert member.heartbeat() == "NONE"


# -- time --


def test_a_silent_member_is_removed_after_its_session(new_member: NewMember, wire: WireClient, group_id: str) -> None:
    leader, silent = new_member(), new_member(session_timeout_ms=SHORT_MS)
    rebalance(leader)
    rebalance(leader, silent)
    wait_for_rebalance(leader)
    assert [each.member_id for each in leader.join().members] == [leader.member_id]
    assert silent.heartbeat() == "UNKNOWN_MEMBER_ID"
    assert len(describe_group(wire, group_id).members) == 1


def test_heartbeats_keep_a_short_session_alive(new_member: NewMember) -> None:
    member, other = new_member(session_timeout_ms=3 * SHORT_MS), new_member(session_timeout_ms=SHORT_MS)
    rebalance(member)
    rebalance(member, other)
    # The one with the shorter session goes; the other one has sent heartbeats for all that time.
    wait_for_rebalance(member)
    assert member.join().error_code == 0


def test_a_group_is_empty_after_its_last_session(new_member: NewMember, wire: WireClient, group_id: str) -> None:
    rebalance(new_member(session_timeout_ms=SHORT_MS))
    wait_until(lambda: describe_group(wire, group_id).group_state == "Empty", "the end of the session")


def test_a_rebalance_does_not_wait_for_ever(new_member: NewMember) -> None:
    """Who has not joined again after the rebalance timeout is removed, however many heartbeats it sends."""
    sleeper = new_member(rebalance_timeout_ms=SHORT_MS)
    rebalance(sleeper)
    awake = new_member(rebalance_timeout_ms=SHORT_MS)
    answer = awake.join()
    assert answer.leader == awake.member_id
    assert [each.member_id for each in answer.members] == [awake.member_id]
    assert sleeper.heartbeat() == "UNKNOWN_MEMBER_ID"


def test_a_static_member_that_misses_a_rebalance_stays(new_member: NewMember) -> None:
    """For its session: it is assigned to without being asked (KIP-345)."""
    static = new_member(instance_id="i-1", rebalance_timeout_ms=SHORT_MS)
    rebalance(static)
    awake = new_member(rebalance_timeout_ms=SHORT_MS)
    answer = awake.join()
    assert (answer.error_code, answer.generation_id) == (0, 2)
    assert answer.leader == awake.member_id
    assert {each.member_id for each in answer.members} == {awake.member_id, static.member_id}


def test_a_member_that_never_sends_sync_group(new_member: NewMember) -> None:
    """After the rebalance timeout it is removed, and the others start again (KAFKA-13435)."""
    leader, lazy = new_member(rebalance_timeout_ms=SHORT_MS), new_member(rebalance_timeout_ms=SHORT_MS)
    rebalance(leader)
    lazy.start_join()
    wait_for_rebalance(leader)
    leader.join()
    lazy.joined()
    answer = leader.sync({leader.member_id: b"l", lazy.member_id: b"z"})
    assert (answer.error_code, answer.assignment) == (0, b"l")
    wait_for_rebalance(leader)
    assert lazy.heartbeat() == "UNKNOWN_MEMBER_ID"
    assert [each.member_id for each in leader.join().members] == [leader.member_id]


def test_a_leader_that_never_sends_sync_group(new_member: NewMember) -> None:
    leader, follower = new_member(rebalance_timeout_ms=SHORT_MS), new_member(rebalance_timeout_ms=SHORT_MS)
    rebalance(leader)
    follower.start_join()
    wait_for_rebalance(leader)
    leader.join()
    follower.joined()
    follower.start_sync()
    assert code(follower.synced().error_code) == "REBALANCE_IN_PROGRESS"
    answer = follower.join()
    assert answer.leader == follower.member_id
    assert [each.member_id for each in answer.members] == [follower.member_id]
    assert leader.heartbeat() == "UNKNOWN_MEMBER_ID"


def test_a_connection_that_ends_does_not_end_the_member(new_member: NewMember, wire: WireClient, group_id: str) -> None:
    member = new_member()
    rebalance(member)
    member.close()
    again = new_member()
    again.member_id, again.generation = member.member_id, member.generation
    assert again.heartbeat() == "NONE"
    assert describe_group(wire, group_id).group_state == "Stable"


def test_a_member_that_hangs_up_while_it_waits(new_member: NewMember) -> None:
    """The member whose JoinGroup waits has disconnected; the group continues without it after its session."""
    first, second = new_member(), new_member(session_timeout_ms=SHORT_MS)
    rebalance(first)
    second.start_join()
    second.close()
    wait_for_rebalance(first)
    first.join()
    answer = first.sync({first.member_id: b"all"})
    assert answer.error_code == 0
    wait_for_rebalance(first)
    assert [each.member_id for each in first.join().members] == [first.member_id]


# -- what is refused --


def test_an_unknown_member_id(new_member: NewMember, group_id: str) -> None:
    rebalance(new_member())
    stranger = new_member()
    stranger.member_id, stranger.generation = "made up", 1
    assert code(stranger.ask_join().error_code) == "UNKNOWN_MEMBER_ID"
    assert code(stranger.sync().error_code) == "UNKNOWN_MEMBER_ID"
    assert stranger.heartbeat() == "UNKNOWN_MEMBER_ID"


def test_a_group_that_does_not_exist(new_member: NewMember) -> None:
    stranger = new_member()
    stranger.member_id, stranger.generation = "made up", 1
    assert code(stranger.ask_join().error_code) == "UNKNOWN_MEMBER_ID"
    assert code(stranger.sync().error_code) == "UNKNOWN_MEMBER_ID"
    assert stranger.heartbeat() == "UNKNOWN_MEMBER_ID"
    answer = stranger.leave()
    assert code(answer.error_code) == "UNKNOWN_MEMBER_ID" or code(answer.members[0].error_code) == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize("generation", [-1, 0, 2, 2**31 - 1])
def test_a_wrong_generation(new_member: NewMember, generation: int) -> None:
    member = new_member()
    rebalance(member)
    member.generation = generation
    assert code(member.sync().error_code) == "ILLEGAL_GENERATION"
    assert member.heartbeat() == "ILLEGAL_GENERATION"


def test_an_empty_group_id(new_member: NewMember) -> None:
    member = new_member(group_id="")
    assert code(member.ask_join().error_code) == "INVALID_GROUP_ID"
    member.member_id, member.generation = "made up", 1
    assert code(member.sync().error_code) == "INVALID_GROUP_ID"
    assert member.heartbeat() == "INVALID_GROUP_ID"
    assert code(member.leave().error_code) == "INVALID_GROUP_ID"


@pytest.mark.parametrize("session_timeout_ms", [-1, 0, 99, 60_001, 2**31 - 1])
def test_a_session_timeout_out_of_bounds(new_member: NewMember, session_timeout_ms: int) -> None:
    answer = new_member(session_timeout_ms=session_timeout_ms).ask_join()
    assert code(answer.error_code) == "INVALID_SESSION_TIMEOUT"
    assert (answer.generation_id, answer.member_id, answer.members) == (-1, "", [])


@pytest.mark.parametrize("session_timeout_ms", [100, 60_000])
def test_the_bounds_of_the_session_timeout(new_member: NewMember, session_timeout_ms: int) -> None:
    assert new_member(session_timeout_ms=session_timeout_ms).join().error_code == 0


def test_protocols_that_have_nothing_in_common(new_member: NewMember, wire: WireClient, group_id: str) -> None:
    member = new_member(protocols={"range": b""})
    rebalance(member)
    assert code(new_member(protocols={"roundrobin": b""}).ask_join().error_code) == "INCONSISTENT_GROUP_PROTOCOL"
    other_type = new_member(protocol_type="connect", protocols={"range": b""})
    assert code(other_type.ask_join().error_code) == "INCONSISTENT_GROUP_PROTOCOL"
    # Nobody else notices.
    assert member.heartbeat() == "NONE"
    assert len(describe_group(wire, group_id).members) == 1


@pytest.mark.parametrize(
    ("protocol_type", "protocols"), [("consumer", {}), ("", {"range": b""})], ids=["no protocols", "no type"]
)
def test_a_first_member_without_a_protocol(
    new_member: NewMember, protocol_type: str, protocols: dict[str, bytes]
) -> None:
    answer = new_member(protocol_type=protocol_type, protocols=protocols).ask_join()
    assert code(answer.error_code) == "INCONSISTENT_GROUP_PROTOCOL"


def test_sync_group_with_another_protocol(new_member: NewMember) -> None:
    """Since version 5 a member says what it believes to take part in (KIP-559)."""
    member = new_member()
    member.join()
    for protocol_type, protocol_name in (
        ("connect", "range"),
        ("consumer", "roundrobin"),
        (None, "range"),
        ("consumer", None),
    ):
        request = member.sync_request({member.member_id: b""})
        request.protocol_type, request.protocol_name = protocol_type, protocol_name
        assert code(member.wire.call(request, 5).error_code) == "INCONSISTENT_GROUP_PROTOCOL"
    assert member.sync({member.member_id: b"mine"}).assignment == b"mine"


def test_a_group_that_is_full(new_member: NewMember, wire: WireClient, group_id: str) -> None:
    members = [new_member() for _ in range(MAX_SIZE)]
    rebalance(members[0])
    rebalance(*members)
    refused = new_member().ask_join()
    assert code(refused.error_code) == "GROUP_MAX_SIZE_REACHED"
    assert members[0].heartbeat() == "NONE"
    assert len(describe_group(wire, group_id).members) == MAX_SIZE


def test_the_same_protocol_twice(request: pytest.FixtureRequest, new_member: NewMember, wire: WireClient) -> None:
    if request.config.getoption("apache"):
        pytest.skip("Apache Kafka counts it twice, finds no protocol that all members have, and never answers")
    member = new_member(protocol_type="opaque", protocols={"range": b"one"})
    twice = member.join_request()
    twice.protocols.append(JoinGroupRequestProtocol(name="range", metadata=b"two"))
    given = wire.call(twice, 9)
    assert code(given.error_code) == "MEMBER_ID_REQUIRED"
    twice.member_id = given.member_id
    answer = wire.call(twice, 9)
    assert (answer.error_code, answer.protocol_name) == (0, "range")


@pytest.mark.parametrize("instance_id", ["", ".", "..", "with space", "ž", "x" * 250])
def test_any_instance_id_will_do(new_member: NewMember, wire: WireClient, group_id: str, instance_id: str) -> None:
    """Clients check theirs; the server does not."""
    answer = new_member(instance_id=instance_id).join()
    assert answer.error_code == 0
    assert answer.member_id.startswith(f"{instance_id}-")
    assert [each.group_instance_id for each in describe_group(wire, group_id).members] == [instance_id]


def test_member_ids_that_were_given_and_not_used(new_member: NewMember, wire: WireClient, group_id: str) -> None:
    """They do not count as members, are forgotten after the session timeout, and then unknown."""
    waiting = new_member(session_timeout_ms=SHORT_MS)
    given = waiting.ask_join()
    assert code(given.error_code) == "MEMBER_ID_REQUIRED"
    assert describe_group(wire, group_id).members == []

    def is_forgotten() -> bool:
        later = new_member()
        later.member_id = given.member_id
        later.session_timeout_ms = 200
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=200,
            rebalance_timeout_ms=1_000,
            member_id=given.member_id + "x",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        return code(later.wire.call(request, 9).error_code) == "UNKNOWN_MEMBER_ID"

    wait_until(is_forgotten, "the end of the wait for the second join")


def test_a_sync_of_an_unknown_member(wire: WireClient, group_id: str) -> None:
    request = SyncGroupRequest(group_id=group_id, generation_id=1, member_id="")
    assert code(wire.call(request, 4).error_code) == "UNKNOWN_MEMBER_ID"
