"""Members of the classic protocol in a consumer group: the tables of `migration.classic_members`."""

from __future__ import annotations

import time
from typing import Any

import pytest

from moldau.group_coordinator.consumer.member import MemberState
from moldau.group_coordinator.migration.consumer_protocol import with_topic_ids
from moldau.group_coordinator.records import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
)
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.sync_group import SyncGroupRequest

from ...coordinator.harness import FakeCaller
from ..harness import Coordinator, FakeTopics
from .actors import (
    GROUP,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    assignment,
    consumer_heartbeat,
    join_request,
    leave_request,
    read_assignment,
    subscription,
)

RANGE = {"range": subscription("t")}


def mixed(*, partitions: int = 4, **settings: Any) -> Coordinator:
    """A consumer group with one member, ``m``, which has all partitions at epoch 2. There is no interval between
    assignments."""
    coordinator = Coordinator(consumer_assignment_interval_ms=0, **settings)
    coordinator.topics.create("t", partitions)
    coordinator.send(consumer_heartbeat("m"))
    coordinator.written()
    return coordinator


def join(coordinator: Coordinator, member_id: str = "c", **facts: object) -> FakeCaller:
    return coordinator.send(join_request(member_id, **facts))  # type: ignore[arg-type]


def sync(
    coordinator: Coordinator,
    generation_id: int,
    member_id: str = "c",
    *,
    instance_id: str | None = None,
    protocol_type: str | None = "consumer",
    protocol_name: str | None = "range",
) -> FakeCaller:
    return coordinator.send(
        SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
        )
    )


def heartbeat(
    coordinator: Coordinator, generation_id: int, member_id: str = "c", instance_id: str | None = None
) -> ErrorCode:
    return coordinator.send(
        HeartbeatRequest(
            group_id=GROUP, generation_id=generation_id, member_id=member_id, group_instance_id=instance_id
        )
    ).error


def modern_member_revokes(coordinator: Coordinator) -> None:
    """The member ``m`` gets its new assignment, which is half of the topic, and has revoked the rest."""
    topic_id = coordinator.topics.id_of("t")
    received = coordinator.send(consumer_heartbeat("m", 2)).response.assignment
    assert [len(one.partitions) for one in received.topic_partitions] == [2]
    assert received.topic_partitions[0].topic_id == topic_id
    assert (
        coordinator.send(consumer_heartbeat("m", 2, topic_partitions=received.topic_partitions)).response.member_epoch
        == 3
    )


# -- JoinGroup ---------------------------------------------------------------------------------------------------------


def test_a_new_member_first_receives_an_id_and_no_state_is_kept() -> None:
    coordinator = mixed()
    response = join(coordinator, "").response
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert response.member_id == "uuid-1"
    assert list(coordinator.group().members) == ["m"]
    assert coordinator.written() == []


def test_before_version_4_a_new_member_joins_immediately() -> None:
    coordinator = mixed()
    response = coordinator.send(join_request(), 3).response
    assert (response.error_code, response.member_id, response.generation_id) == (0, "uuid-1", 3)


def test_join_group_responds_immediately_and_names_no_other_member() -> None:
    coordinator = mixed()
    response = join(coordinator).response
    assert (response.error_code, response.generation_id, response.member_id) == (0, 3, "c")
    assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
    assert (response.leader, response.members, response.skip_assignment) == ("", [], False)


def test_joining_writes_the_member_and_the_next_group_epoch() -> None:
    coordinator = mixed()
    join(coordinator, session_timeout_ms=7000)
    records = coordinator.written()
    assert records[0].key == ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id="c")
    value = records[0].value
    assert value is not None
    assert value.classic_member_metadata.session_timeout_ms == 7000
    assert [one.name for one in value.classic_member_metadata.supported_protocols] == ["range"]
    assert value.subscribed_topic_names == ["t"]
    assert records[1].key == ConsumerGroupMetadataKey(group_id=GROUP)
    assert records[1].value.epoch == 3


def test_a_new_member_gets_no_partition_before_its_owner_has_revoked_it() -> None:
    coordinator = mixed()
    join(coordinator)
    assert coordinator.group().members["c"].state is MemberState.UNRELEASED_PARTITIONS
    assert read_assignment(sync(coordinator, 3).response.assignment) == frozenset()
    assert heartbeat(coordinator, 3) is ErrorCode.NONE
    modern_member_revokes(coordinator)
    assert heartbeat(coordinator, 3) is ErrorCode.REBALANCE_IN_PROGRESS
    assert join(coordinator).response.generation_id == 3
    assert len(read_assignment(sync(coordinator, 3).response.assignment)) == 2
    assert heartbeat(coordinator, 3) is ErrorCode.NONE


def test_a_member_that_has_not_revoked_yet_stays_in_its_generation() -> None:
    coordinator = mixed()
    join(coordinator)
    modern_member_revokes(coordinator)
    join(coordinator)
    owned = read_assignment(sync(coordinator, 3).response.assignment)
    for member_id in ("two", "more"):
        coordinator.send(consumer_heartbeat(member_id))
    assert heartbeat(coordinator, 3) is ErrorCode.REBALANCE_IN_PROGRESS

    response = join(coordinator, protocols={"range": subscription("t", owned=owned)}).response
    assert response.generation_id == 3
    assert coordinator.group().members["c"].state is MemberState.UNREVOKED_PARTITIONS
    left = read_assignment(sync(coordinator, 3).response.assignment)
    assert left < owned
    assert heartbeat(coordinator, 3) is ErrorCode.REBALANCE_IN_PROGRESS

    response = join(coordinator, protocols={"range": subscription("t", owned=left)}).response
    assert response.generation_id == 5
    assert read_assignment(sync(coordinator, 5).response.assignment) == left
    assert heartbeat(coordinator, 5) is ErrorCode.NONE


def test_joining_again_with_the_same_subscription_changes_nothing() -> None:
    coordinator = mixed()
    join(coordinator)
    modern_member_revokes(coordinator)
    assert join(coordinator).response.generation_id == 3
    coordinator.written()
    assert join(coordinator).response.generation_id == 3
    assert coordinator.written() == []


def test_another_subscription_is_another_epoch() -> None:
    coordinator = mixed()
    coordinator.topics.create("u", 1)
    join(coordinator)
    assert join(coordinator, protocols={"range": subscription("t", "u")}).response.generation_id == 4
    assert coordinator.group().subscriptions.topics() == {"t", "u"}


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {"sticky": subscription("t")}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"session_timeout_ms": 5}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": {"range": b""}}, ErrorCode.UNKNOWN_SERVER_ERROR),
        ({"protocols": {"range": b"\xff\xff\0\0\0\0"}}, ErrorCode.UNKNOWN_SERVER_ERROR),
        ({"protocols": {"range": b"\0\0\0\0\0\x09"}}, ErrorCode.UNKNOWN_SERVER_ERROR),
        ({"instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance_id": "i"}, ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_rejected_joins(facts: dict[str, object], error: ErrorCode) -> None:
    coordinator = mixed()
    join(coordinator)
    assert coordinator.send(join_request("", instance_id="i")).error is ErrorCode.NONE
    coordinator.written()
    assert join(coordinator, "another", **facts).error is error
    assert coordinator.written() == []


def test_a_full_group_accepts_only_its_own_classic_members() -> None:
    coordinator = mixed(consumer_max_size=2)
    assert join(coordinator).error is ErrorCode.NONE
    assert join(coordinator, "another").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert join(coordinator).error is ErrorCode.NONE


def test_no_classic_member_joins_while_migration_is_disabled() -> None:
    coordinator = mixed(consumer_migration_policy="disabled")
    assert join(coordinator).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("policy", ["upgrade", "downgrade", "bidirectional", "BIDIRECTIONAL"])
def test_classic_members_join_under_any_other_policy(policy: str) -> None:
    assert join(mixed(consumer_migration_policy=policy)).error is ErrorCode.NONE


def test_a_join_that_cannot_be_written_changes_nothing() -> None:
    coordinator = mixed()
    with coordinator.log_refuses(ErrorCode.NOT_ENOUGH_REPLICAS):
        assert join(coordinator).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert list(coordinator.group().members) == ["m"]
    assert join(coordinator).response.generation_id == 3


def test_a_classic_member_may_switch_to_the_consumer_protocol() -> None:
    coordinator = mixed()
    join(coordinator)
    assert coordinator.send(consumer_heartbeat("c")).response.member_epoch == 3
    assert coordinator.group().classic_members == 0
    assert heartbeat(coordinator, 3) is ErrorCode.UNKNOWN_MEMBER_ID
    coordinator.advance(REBALANCE_TIMEOUT_MS - 1)
    # It did not sync, and no longer needs to.
    for member_id in ("c", "m"):
        coordinator.send(consumer_heartbeat(member_id))
    coordinator.advance(1)
    assert set(coordinator.group().members) == {"c", "m"}


def test_the_rack_is_that_of_the_subscription_and_is_kept() -> None:
    coordinator = mixed()
    join(coordinator, protocols={"range": subscription("t", rack_id="r")})
    assert coordinator.group().members["c"].rack_id == "r"
    join(coordinator)
    assert coordinator.group().members["c"].rack_id == "r"


def test_a_member_that_switches_to_the_classic_protocol_loses_its_regular_expression() -> None:
    coordinator = mixed()
    coordinator.send(consumer_heartbeat("c", subscribed_topic_names=None, subscribed_topic_regex="t|u"))
    assert coordinator.group().subscriptions.regexes == {"t|u": 1}
    join(coordinator)
    assert coordinator.group().members["c"].regex is None
    assert not coordinator.group().subscriptions.resolved


def test_changed_topics_are_noticed_by_the_join_after_a_rejected_one() -> None:
    coordinator = mixed()
    join(coordinator)
    coordinator.topics.create("t", 5)
    with coordinator.log_refuses(ErrorCode.NOT_ENOUGH_REPLICAS):
        assert join(coordinator).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert join(coordinator).response.generation_id == 4


# -- static members ----------------------------------------------------------------------------------------------------


def static(*, classic_others: bool) -> Coordinator:
    """The static classic member ``i`` in a group with ``m``, or with a classic member."""
    coordinator = mixed(consumer_migration_policy="upgrade")
    coordinator.send(join_request("", instance_id="i"))
    if classic_others:
        join(coordinator)
        coordinator.send(consumer_heartbeat("m", -1))
    coordinator.written()
    return coordinator


def test_a_static_member_that_rejoins_without_its_id_replaces_itself() -> None:
    coordinator = static(classic_others=False)
    first = coordinator.group().static_members["i"]
    target = coordinator.group().target_of(first)
    response = coordinator.send(join_request("", instance_id="i")).response
    assert response.error_code == 0
    assert response.member_id != first
    assert response.generation_id == 3
    assert coordinator.group().static_members == {"i": response.member_id}
    assert coordinator.group().target_of(response.member_id) == target
    assert first not in coordinator.group().members
    assert heartbeat(coordinator, 3, first, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert join(coordinator, first, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert sync(coordinator, 3, first, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_without_its_id_that_must_revoke_has_no_generation_yet() -> None:
    coordinator = static(classic_others=False)
    modern_member_revokes(coordinator)
    first = coordinator.group().static_members["i"]
    coordinator.send(join_request(first, instance_id="i"))
    (had,) = coordinator.group().members[first].assigned_partitions.values()
    for member_id in ("two", "more"):
        coordinator.send(consumer_heartbeat(member_id))
    owned = subscription("t", owned=[("t", partition) for partition in had])
    response = coordinator.send(join_request("", instance_id="i", protocols={"range": owned})).response
    assert response.generation_id == 0
    assert coordinator.group().members[response.member_id].state is MemberState.UNREVOKED_PARTITIONS


def test_a_static_member_of_the_consumer_protocol_is_replaced_while_it_lives() -> None:
    coordinator = static(classic_others=False)
    coordinator.send(consumer_heartbeat("static", instance_id="j"))
    response = coordinator.send(join_request("", instance_id="j")).response
    assert response.error_code == 0
    assert coordinator.group().static_members["j"] == response.member_id
    assert coordinator.send(consumer_heartbeat("static", 4)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_members_may_omit_their_instance_id() -> None:
    coordinator = static(classic_others=False)
    member_id = coordinator.group().static_members["i"]
    assert heartbeat(coordinator, 3, member_id) is ErrorCode.NONE
    assert heartbeat(coordinator, 3, member_id, "i") is ErrorCode.NONE
    assert heartbeat(coordinator, 3, member_id, "nobody") is ErrorCode.UNKNOWN_MEMBER_ID


# -- SyncGroup ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2, 3, 9])
def test_the_assignment_has_the_version_of_the_subscription(version: int) -> None:
    coordinator = mixed()
    modern_was = coordinator.send(consumer_heartbeat("m", -1))
    assert modern_was.error is ErrorCode.NONE
    coordinator.send(consumer_heartbeat("m"))
    metadata = version.to_bytes(2, "big") + subscription("t", version=min(version, 3))[2:]
    join(coordinator, protocols={"range": metadata})
    received = sync(coordinator, coordinator.group().members["c"].member_epoch).response.assignment
    assert received == assignment(version=min(version, 3))


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "m"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": 4}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": -1}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": None, "protocol_name": None}, ErrorCode.NONE),
    ],
)
def test_rejected_syncs(facts: dict[str, object], error: ErrorCode) -> None:
    coordinator = mixed()
    join(coordinator)
    assert sync(coordinator, **({"generation_id": 3} | facts)).error is error  # type: ignore[arg-type]


def test_a_member_behind_the_target_assignment_must_join_before_it_syncs() -> None:
    coordinator = mixed()
    join(coordinator)
    coordinator.send(consumer_heartbeat("another"))
    assert sync(coordinator, 3).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert join(coordinator).response.generation_id == 4
    assert sync(coordinator, 4).error is ErrorCode.NONE


def test_the_response_to_sync_group_repeats_the_requested_protocol() -> None:
    coordinator = mixed()
    join(coordinator)
    response = sync(coordinator, 3).response
    assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
    response = sync(coordinator, 3, protocol_type=None, protocol_name=None).response
    assert (response.protocol_type, response.protocol_name) == (None, None)


# -- Heartbeat ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("member_id", "generation_id", "error"),
    [
        ("nobody", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        ("c", 2, ErrorCode.ILLEGAL_GENERATION),
        ("c", 4, ErrorCode.ILLEGAL_GENERATION),
        ("c", 3, ErrorCode.NONE),
    ],
)
def test_heartbeats(member_id: str, generation_id: int, error: ErrorCode) -> None:
    coordinator = mixed()
    join(coordinator)
    assert heartbeat(coordinator, generation_id, member_id) is error


def test_the_session_timeout_is_that_of_the_member() -> None:
    coordinator = mixed()
    join(coordinator, session_timeout_ms=10_000)
    sync(coordinator, 3)
    for _ in range(3):
        coordinator.advance(9_999)
        assert heartbeat(coordinator, 3) is ErrorCode.NONE
        coordinator.send(consumer_heartbeat("m", 2))
    coordinator.advance(10_000)
    assert list(coordinator.group().members) == ["m"]
    assert heartbeat(coordinator, 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_syncing_is_a_sign_of_life() -> None:
    coordinator = mixed()
    join(coordinator, session_timeout_ms=10_000)
    coordinator.advance(9_999)
    sync(coordinator, 3)
    coordinator.advance(9_999)
    assert heartbeat(coordinator, 3) is ErrorCode.NONE


def test_the_session_of_a_classic_member_outlives_a_restart() -> None:
    coordinator = mixed()
    join(coordinator, session_timeout_ms=10_000)
    sync(coordinator, 3)
    coordinator.advance(9_000)
    coordinator.restart()
    coordinator.advance(9_999)
    assert "c" in coordinator.group().members
    coordinator.advance(1 + SESSION_TIMEOUT_MS // 10)
    assert "c" not in coordinator.group().members


def test_a_member_that_does_not_sync_within_its_rebalance_timeout_is_fenced() -> None:
    coordinator = mixed()
    join(coordinator, session_timeout_ms=600_000)
    coordinator.advance(REBALANCE_TIMEOUT_MS // 2)
    coordinator.send(consumer_heartbeat("m", 2))
    assert heartbeat(coordinator, 3) is ErrorCode.NONE
    coordinator.advance(REBALANCE_TIMEOUT_MS // 2 - 1)
    assert heartbeat(coordinator, 3) is ErrorCode.NONE
    coordinator.advance(1)
    assert heartbeat(coordinator, 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_join_within_its_rebalance_timeout_is_fenced() -> None:
    coordinator = mixed()
    join(coordinator)
    sync(coordinator, 3)
    modern_member_revokes(coordinator)
    assert heartbeat(coordinator, 3) is ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(4):
        # The time counts from the first REBALANCE_IN_PROGRESS.
        coordinator.advance(REBALANCE_TIMEOUT_MS // 4 - 1)
        coordinator.send(consumer_heartbeat("m", 3))
        assert heartbeat(coordinator, 3) is ErrorCode.REBALANCE_IN_PROGRESS
    coordinator.advance(4)
    assert heartbeat(coordinator, 3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.send(consumer_heartbeat("m", 3)).response.member_epoch == 4


def test_a_member_that_joins_and_syncs_in_time_is_kept() -> None:
    coordinator = mixed()
    join(coordinator, session_timeout_ms=60_000)
    sync(coordinator, 3)
    modern_member_revokes(coordinator)
    assert heartbeat(coordinator, 3) is ErrorCode.REBALANCE_IN_PROGRESS
    join(coordinator, session_timeout_ms=60_000)
    sync(coordinator, 3)
    for _ in range(4):
        coordinator.advance(REBALANCE_TIMEOUT_MS // 2)
        coordinator.send(consumer_heartbeat("m", 3))
        assert heartbeat(coordinator, 3) is ErrorCode.NONE


def test_a_late_member_that_cannot_be_fenced_is_fenced_when_it_can() -> None:
    coordinator = mixed()
    join(coordinator, session_timeout_ms=600_000)
    with coordinator.log_refuses(ErrorCode.NOT_ENOUGH_REPLICAS):
        coordinator.advance(REBALANCE_TIMEOUT_MS)
    assert "c" in coordinator.group().members
    coordinator.advance(500)
    assert "c" not in coordinator.group().members


# -- LeaveGroup --------------------------------------------------------------------------------------------------------


def test_each_member_of_a_leave_group_has_its_own_error() -> None:
    coordinator = mixed()
    join(coordinator)
    static_id = coordinator.send(join_request("", instance_id="i")).response.member_id
    response = coordinator.send(
        leave_request("c", "nobody", ("stranger", "i"), ("", "nobody"), ("", "i"), ("", None))
    ).response
    assert response.error_code == 0
    assert [(one.member_id, one.group_instance_id, one.error_code) for one in response.members] == [
        ("c", None, ErrorCode.NONE),
        ("nobody", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("stranger", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("", "nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "i", ErrorCode.NONE),
        ("", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert static_id not in coordinator.group().members
    assert list(coordinator.group().members) == ["m"]
    assert coordinator.group().group_epoch == 5  # one more for both


def test_members_of_the_consumer_protocol_can_be_removed_by_leave_group() -> None:
    coordinator = mixed(consumer_migration_policy="upgrade")
    join(coordinator)
    assert coordinator.send(leave_request("m")).response.members[0].error_code == 0
    assert list(coordinator.group().members) == ["c"]


def test_the_group_does_not_wait_for_a_member_that_has_left() -> None:
    coordinator = mixed()
    deadlines = len(coordinator.states.deadlines)
    join(coordinator)
    coordinator.send(leave_request("c"))
    assert len(coordinator.states.deadlines) == deadlines


def test_the_others_rebalance_for_a_removed_member_after_an_assignment_by_a_consumer_member() -> None:
    coordinator = mixed()
    for member_id in ("c", "d"):
        join(coordinator, member_id)
    coordinator.send(leave_request("d"))
    epoch = join(coordinator).response.generation_id
    join(coordinator, "d")
    join(coordinator)
    coordinator.send(leave_request("d"))
    assert heartbeat(coordinator, epoch + 1) is ErrorCode.NONE
    coordinator.send(consumer_heartbeat("m", 2))
    assert heartbeat(coordinator, epoch + 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_leaving_twice_in_one_request_is_leaving_once() -> None:
    coordinator = mixed()
    join(coordinator)
    response = coordinator.send(leave_request("c", "c")).response
    assert [one.error_code for one in response.members] == [0, 0]
    assert coordinator.group().group_epoch == 4


def test_no_records_are_written_when_no_member_leaves() -> None:
    coordinator = mixed()
    coordinator.send(leave_request("nobody"))
    assert coordinator.written() == []


# -- an empty group ----------------------------------------------------------------------------------------------------


def empty() -> Coordinator:
    coordinator = mixed()
    coordinator.send(consumer_heartbeat("m", -1))
    coordinator.written()
    return coordinator


def test_an_empty_consumer_group_is_replaced_by_a_classic_one() -> None:
    coordinator = empty()
    member_id = join(coordinator, "").response.member_id
    assert coordinator.group().type == "classic"
    tombstone, record = coordinator.written()[-2:]
    assert (type(tombstone.key), tombstone.value) == (ConsumerGroupMetadataKey, None)
    assert record.key == GroupMetadataKey(group="group")
    assert isinstance(record.value, GroupMetadataValue)
    assert (record.value.generation, record.value.protocol_type, record.value.members) == (0, "", [])
    waiting = join(coordinator, member_id)
    coordinator.advance(3000)
    response = waiting.response
    assert (response.generation_id, response.leader) == (1, member_id)
    coordinator.restart()
    assert coordinator.group().type == "classic"
    assert not coordinator.group().members


def test_the_offsets_of_an_empty_consumer_group_are_found_after_a_restart_before_the_first_generation() -> None:
    coordinator = empty()
    commit = OffsetCommitRequest(
        group_id="group",
        topics=[
            OffsetCommitRequestTopic(
                name="t", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
            )
        ],
    )
    coordinator.send(commit, 8)
    join(coordinator, "")
    coordinator.restart()
    assert [(one.group_id, one.group_state) for some in coordinator.shard.list_groups([], []) for one in some] == [
        ("group", "Empty")
    ]
    assert coordinator.delete_group("group").error is ErrorCode.NONE
    assert not len(coordinator.states.offsets)


@pytest.mark.parametrize("facts", [{"session_timeout_ms": 5}, {"protocols": {}}])
def test_a_rejected_join_leaves_an_empty_consumer_group_unchanged(facts: dict[str, object]) -> None:
    coordinator = empty()
    assert join(coordinator, "", **facts).error is not ErrorCode.NONE
    assert coordinator.group().type == "consumer"
    assert coordinator.written() == []


def test_an_unknown_member_of_an_empty_consumer_group_is_rejected() -> None:
    coordinator = empty()
    assert join(coordinator).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(coordinator, 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert heartbeat(coordinator, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    response = coordinator.send(leave_request("c")).response
    assert response.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.group().type == "consumer"


@pytest.mark.parametrize("version", [3, 9])
def test_an_empty_consumer_group_is_kept_if_its_deletion_cannot_be_written(version: int) -> None:
    coordinator = empty()
    with coordinator.log_refuses(ErrorCode.NOT_ENOUGH_REPLICAS):
        caller = coordinator.send(join_request(), version)
    assert caller.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator.group().type == "consumer"
    coordinator.advance(10 * SESSION_TIMEOUT_MS)
    assert coordinator.group().type == "consumer"


# -- only classic members ----------------------------------------------------------------------------------------------


def test_classic_members_of_a_consumer_group_share_the_partitions_of_a_leaving_member() -> None:
    """Where the policy allows no downgrade, no member of the consumer protocol can cause the assignment."""
    coordinator = mixed(consumer_migration_policy="upgrade")
    for member_id in ("a", "b"):
        join(coordinator, member_id)
    coordinator.send(consumer_heartbeat("m", -1))
    epoch = coordinator.group().group_epoch
    assert heartbeat(coordinator, 3, "a") is ErrorCode.REBALANCE_IN_PROGRESS
    assert join(coordinator, "a").response.generation_id == epoch
    assert heartbeat(coordinator, epoch, "a") is ErrorCode.NONE
    assert heartbeat(coordinator, 4, "b") is ErrorCode.REBALANCE_IN_PROGRESS


def test_classic_members_alone_in_a_consumer_group_rebalance_for_new_partitions() -> None:
    coordinator = mixed(consumer_migration_policy="upgrade")
    join(coordinator)
    coordinator.send(consumer_heartbeat("m", -1))
    epoch = join(coordinator).response.generation_id
    assert heartbeat(coordinator, epoch) is ErrorCode.NONE
    coordinator.topics.create("unrelated", 1)
    assert heartbeat(coordinator, epoch) is ErrorCode.NONE
    assert coordinator.group().metadata_version == coordinator.topics.version
    coordinator.topics.create("t", 5)
    assert heartbeat(coordinator, epoch) is ErrorCode.REBALANCE_IN_PROGRESS
    assert join(coordinator).response.generation_id == epoch + 1
    assert len(read_assignment(sync(coordinator, epoch + 1).response.assignment)) == 5


def test_a_topic_that_is_named_very_often_takes_no_time() -> None:
    topics = FakeTopics()
    topic_id = topics.create("t")

    started = time.process_time()
    owned = with_topic_ids(topics, (("t", [partition]) for partition in range(60_000)))
    assert time.process_time() - started < 1

    assert owned == {topic_id: frozenset(range(60_000))}
