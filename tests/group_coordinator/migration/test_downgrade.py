"""A consumer group becomes a classic group when its last member of the consumer protocol leaves."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.group_coordinator.classic.state import ClassicGroupState
from moldau.group_coordinator.records import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
)
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequestProtocol
from moldau.protocol.messages.sync_group import SyncGroupRequest

from ...coordinator.harness import EPOCH_MS
from ..harness import Coordinator
from .actors import (
    GROUP,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    assert_replay_restores,
    consumer_heartbeat,
    join_request,
    leave_request,
    read_assignment,
    subscription,
)

BOTH = {"cooperative-sticky": subscription("t", user_data=b"mine"), "range": subscription("t")}


def mixed(*classic: str, **settings: Any) -> Coordinator:
    """A consumer group of ``m`` and these classic members, which have synced."""
    coordinator = Coordinator(consumer_assignment_interval_ms=0, **settings)
    coordinator.topics.create("t", 4)
    coordinator.send(consumer_heartbeat("m"))
    for member_id in classic:
        generation = coordinator.send(join_request(member_id, protocols=BOTH)).response.generation_id
        request = SyncGroupRequest(group_id=GROUP, generation_id=generation, member_id=member_id)
        assert coordinator.send(request).error is ErrorCode.NONE
    coordinator.written()
    return coordinator


def heartbeat(coordinator: Coordinator, member_id: str, generation_id: int) -> ErrorCode:
    request = HeartbeatRequest(group_id=GROUP, generation_id=generation_id, member_id=member_id)
    return coordinator.send(request).error


def test_the_group_rebalances_and_keeps_the_target_assignment_until_then() -> None:
    coordinator = mixed("c")
    coordinator.send(consumer_heartbeat("m", -1))
    group = coordinator.group()
    assert group.type == "classic"
    assert group.state is ClassicGroupState.PREPARING_REBALANCE
    assert heartbeat(coordinator, "c", 3) is ErrorCode.REBALANCE_IN_PROGRESS
    response = coordinator.send(join_request("c", protocols=BOTH)).response
    assert (response.generation_id, response.leader) == (4, "c")
    assert response.protocol_name == "cooperative-sticky"


def test_the_records_end_the_consumer_group_and_then_make_the_classic_group() -> None:
    coordinator = mixed("c", "d")
    (topic_id,) = coordinator.group().target_of("m")
    targets = [coordinator.group().target_of(member_id)[topic_id] for member_id in ("c", "d")]
    coordinator.send(consumer_heartbeat("m", -1))
    records = coordinator.written()
    assert all(one.value is None for one in records[:-1])
    assert records[-2].key == ConsumerGroupMetadataKey(group_id=GROUP)
    assert records[-1].key == GroupMetadataKey(group=GROUP)
    value = records[-1].value
    assert isinstance(value, GroupMetadataValue)
    assert (value.protocol_type, value.generation, value.protocol, value.leader) == (
        "consumer", 4, "cooperative-sticky", None,
    )  # fmt: skip
    assert value.current_state_timestamp == EPOCH_MS
    assert [one.member_id for one in value.members] == ["c", "d"]
    assert {one.session_timeout for one in value.members} == {SESSION_TIMEOUT_MS}
    assert {one.rebalance_timeout for one in value.members} == {REBALANCE_TIMEOUT_MS}
    assert {one.subscription for one in value.members} == {BOTH["cooperative-sticky"]}
    # The target assignment without the part of the member that left.
    assert [{index for _, index in read_assignment(one.assignment)} for one in value.members] == targets


def test_an_immediate_restart_keeps_the_members_and_the_rebalance() -> None:
    """Otherwise the partitions of the removed member would have no reader, without any notice."""
    coordinator = mixed("c")
    coordinator.send(consumer_heartbeat("m", -1))
    coordinator.restart()
    assert coordinator.group().type == "classic"
    assert coordinator.group().state is ClassicGroupState.PREPARING_REBALANCE
    assert heartbeat(coordinator, "c", 3) is ErrorCode.REBALANCE_IN_PROGRESS
    response = coordinator.send(join_request("c", protocols=BOTH)).response
    assert (response.generation_id, response.leader) == (4, "c")


def test_members_that_do_not_rejoin_after_a_restart_are_removed() -> None:
    coordinator = mixed("c")
    coordinator.send(consumer_heartbeat("m", -1))
    coordinator.restart()
    coordinator.advance(SESSION_TIMEOUT_MS)
    assert heartbeat(coordinator, "c", 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_speak_all_their_protocols_in_the_classic_group() -> None:
    coordinator = mixed("c")
    coordinator.send(consumer_heartbeat("m", -1))
    # A member that supports only other protocols than that of the generation may join.
    request = join_request("", protocols={"range": subscription("t")})
    assert coordinator.send(request).error is ErrorCode.MEMBER_ID_REQUIRED


def test_members_that_join_in_the_turn_of_the_downgrade_have_one_rebalance() -> None:
    coordinator = mixed("c", "d")
    coordinator.send_in_turn(consumer_heartbeat("m", -1))
    waiting = [coordinator.send_in_turn(join_request(member_id, protocols=BOTH)) for member_id in ("c", "d")]
    coordinator.settle()
    assert [caller.response.generation_id for caller in waiting] == [5, 5]
    assert coordinator.group().state is ClassicGroupState.COMPLETING_REBALANCE


def test_a_member_that_does_not_join_the_rebalance_is_removed() -> None:
    coordinator = mixed("c", "d")
    coordinator.send(consumer_heartbeat("m", -1))
    waiting = coordinator.send(join_request("c", protocols=BOTH))
    coordinator.advance(SESSION_TIMEOUT_MS)
    assert [one.member_id for one in waiting.response.members] == ["c"]


@pytest.mark.parametrize("how", ["leaves", "is removed", "session", "revocation"])
def test_ways_to_leave(how: str) -> None:
    coordinator = mixed("c", consumer_session_timeout_ms=60_000)
    match how:
        case "leaves":
            coordinator.send(consumer_heartbeat("m", -1))
        case "is removed":
            assert coordinator.send(leave_request("m")).response.members[0].error_code == 0
        case "session" | "revocation":
            if how == "revocation":
                # It must revoke partitions, and continues as if it need not.
                coordinator.send(consumer_heartbeat("m", 2))
            for tenth in range(6):
                coordinator.advance(10_000)
                assert coordinator.group().type == "consumer" or tenth == 5
                heartbeat(coordinator, "c", 3)
                if how == "revocation":
                    coordinator.send(consumer_heartbeat("m", 2))
    assert coordinator.group().type == "classic"
    assert list(coordinator.group().members) == ["c"]


def test_a_static_member_that_may_rejoin_counts_as_a_member() -> None:
    coordinator = mixed("c")
    coordinator.send(consumer_heartbeat("static", instance_id="i"))
    coordinator.send(consumer_heartbeat("m", -1))
    coordinator.send(consumer_heartbeat("static", -2, instance_id="i"))
    assert coordinator.group().type == "consumer"


@pytest.mark.parametrize(
    ("policy", "downgrades"),
    [("disabled", False), ("upgrade", False), ("downgrade", True), ("bidirectional", True)],
)
def test_policies(policy: str, *, downgrades: bool) -> None:
    coordinator = mixed("c")
    # Classic members cannot join while it is disabled, so it was enabled when this one joined.
    coordinator.states.config = Coordinator(consumer_assignment_interval_ms=0, consumer_migration_policy=policy).config
    assert coordinator.send(consumer_heartbeat("m", -1)).error is ErrorCode.NONE
    assert coordinator.group().type == ("classic" if downgrades else "consumer")
    assert list(coordinator.group().members) == ["c"]


def test_a_group_larger_than_classic_groups_may_be_stays_a_consumer_group() -> None:
    coordinator = mixed("c", "d", group_max_size=1)
    coordinator.send(consumer_heartbeat("m", -1))
    assert coordinator.group().type == "consumer"
    coordinator.send(leave_request("d"))
    # One that leaves a group of classic members only makes room for the change.
    assert coordinator.group().type == "classic"


def test_the_last_member_of_all_leaves_an_empty_consumer_group() -> None:
    coordinator = mixed("c")
    coordinator.send(leave_request("c", "m"))
    assert coordinator.group().type == "consumer"
    assert coordinator.group().state_name == "Empty"


def test_another_member_of_the_consumer_protocol_keeps_it_a_consumer_group() -> None:
    coordinator = mixed("c")
    coordinator.send(consumer_heartbeat("n"))
    coordinator.send(consumer_heartbeat("m", -1))
    assert coordinator.group().type == "consumer"


def test_a_downgrade_that_cannot_be_written_leaves_the_consumer_group() -> None:
    coordinator = mixed("c")
    with coordinator.log_refuses(ErrorCode.NOT_ENOUGH_REPLICAS):
        assert coordinator.send(consumer_heartbeat("m", -1)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator.group().type == "consumer"
    assert set(coordinator.group().members) == {"c", "m"}
    coordinator.advance(1)
    assert coordinator.group().type == "consumer"


def test_the_members_have_full_sessions_from_the_downgrade_on() -> None:
    coordinator = mixed("c")
    coordinator.advance(SESSION_TIMEOUT_MS - 1)
    coordinator.send(consumer_heartbeat("m", -1))
    coordinator.advance(SESSION_TIMEOUT_MS - 1)
    assert list(coordinator.group().members) == ["c"]
    coordinator.advance(1)
    assert not coordinator.group().members


# -- a static member takes the place of the last one -------------------------------------------------------------------


def with_static(**settings: Any) -> Coordinator:
    """Classic ``c`` and static ``static`` of the consumer protocol, each with half of the topic at epoch 3."""
    coordinator = Coordinator(consumer_assignment_interval_ms=0, **settings)
    coordinator.topics.create("t", 4)
    coordinator.send(consumer_heartbeat("static", instance_id="i"))
    coordinator.send(join_request("c", protocols=BOTH))
    received = coordinator.send(consumer_heartbeat("static", 2)).response.assignment
    coordinator.send(consumer_heartbeat("static", 2, topic_partitions=received.topic_partitions))
    generation = coordinator.send(join_request("c", protocols=BOTH)).response.generation_id
    coordinator.send(SyncGroupRequest(group_id=GROUP, generation_id=generation, member_id="c"))
    coordinator.send(consumer_heartbeat("static", -2, instance_id="i"))
    coordinator.written()
    return coordinator


def test_a_classic_member_takes_over_the_partitions_of_the_last_consumer_member_without_a_rebalance() -> None:
    coordinator = with_static()
    had = coordinator.group().target_of("static")
    response = coordinator.send(join_request("", instance_id="i", protocols=BOTH)).response
    assert (response.error_code, response.generation_id) == (0, 3)
    group = coordinator.group()
    assert group.type == "classic"
    assert group.state is ClassicGroupState.STABLE
    assert set(group.members) == {"c", response.member_id}
    assert heartbeat(coordinator, "c", 3) is ErrorCode.NONE
    request = SyncGroupRequest(
        group_id=GROUP,
        generation_id=3,
        member_id=response.member_id,
        group_instance_id="i",
        protocol_type=response.protocol_type,
        protocol_name=response.protocol_name,
    )
    assigned = read_assignment(coordinator.send(request).response.assignment)
    assert assigned == {("t", partition) for partitions in had.values() for partition in partitions}
    assert_replay_restores(coordinator)


def test_a_replacement_with_another_subscription_causes_a_rebalance() -> None:
    coordinator = with_static()
    coordinator.topics.create("u", 1)
    other = {"cooperative-sticky": subscription("t", "u"), "range": subscription("t", "u")}
    response = coordinator.send(join_request("", instance_id="i", protocols=other)).response
    # It is in no generation yet: it joins again with all other members.
    assert (response.error_code, response.generation_id) == (0, 0)
    group = coordinator.group()
    assert group.type == "classic"
    assert group.state is ClassicGroupState.PREPARING_REBALANCE
    assert heartbeat(coordinator, "c", 3) is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_outdated_target_assignment_triggers_a_rebalance() -> None:
    coordinator = with_static()
    coordinator.send(join_request("d", protocols=BOTH))
    coordinator.send(leave_request("d"))
    coordinator.send(join_request("", instance_id="i", protocols=BOTH))
    assert coordinator.group().type == "classic"
    assert coordinator.group().state is ClassicGroupState.PREPARING_REBALANCE


@pytest.mark.parametrize("policy", ["upgrade", "downgrade"])
def test_the_policy_determines_whether_a_replaced_member_ends_the_consumer_group(policy: str) -> None:
    coordinator = with_static(consumer_migration_policy=policy)
    response = coordinator.send(join_request("", instance_id="i", protocols=BOTH)).response
    assert response.error_code == 0
    assert coordinator.group().type == ("classic" if policy == "downgrade" else "consumer")
    assert set(coordinator.group().members) == {"c", response.member_id}


def test_a_replaced_classic_member_is_no_reason_to_downgrade() -> None:
    coordinator = with_static()
    coordinator.send(consumer_heartbeat("m"))
    coordinator.send(join_request("", instance_id="i", protocols=BOTH))
    assert coordinator.group().type == "consumer"
    coordinator.send(join_request("", instance_id="i", protocols=BOTH))
    assert coordinator.group().type == "consumer"


def test_a_replacement_that_cannot_be_written_leaves_the_consumer_group() -> None:
    coordinator = with_static()
    with coordinator.log_refuses(ErrorCode.NOT_ENOUGH_REPLICAS):
        caller = coordinator.send(join_request("", instance_id="i", protocols=BOTH))
    assert caller.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert set(coordinator.group().members) == {"c", "static"}
    assert coordinator.group().type == "consumer"


def test_changed_topics_are_noticed_after_a_rejected_replacement() -> None:
    coordinator = with_static()
    coordinator.topics.create("t", 5)
    with coordinator.log_refuses(ErrorCode.NOT_ENOUGH_REPLICAS):
        coordinator.send(join_request("", instance_id="i", protocols=BOTH))
    epoch = coordinator.group().group_epoch
    coordinator.send(join_request("c", protocols=BOTH))
    assert coordinator.group().group_epoch == epoch + 1


def test_a_protocol_that_a_member_names_twice_counts_once() -> None:
    coordinator = mixed()
    assert coordinator.send(join_request("a", protocols={"range": subscription("t")})).error is ErrorCode.NONE
    twice = join_request("b")
    twice.protocols = [
        JoinGroupRequestProtocol(name=name, metadata=subscription("t")) for name in ("range", "sticky", "sticky")
    ]
    assert coordinator.send(twice).error is ErrorCode.NONE
    stranger = join_request("c", protocols={"sticky": subscription("t")})
    assert coordinator.send(stranger).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert_replay_restores(coordinator)

    coordinator.send(consumer_heartbeat("m", -1))

    assert coordinator.group().type == "classic"
