"""SyncGroup: the assignments from the leader to all members."""

from __future__ import annotations

import pytest

from moldau.group_coordinator.records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.sync_group import SyncGroupResponse

from ...coordinator.harness import EPOCH_MS
from ..harness import Coordinator
from .actors import (
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    heartbeat_request,
    join_all,
    join_request,
    leave_request,
    stable_group,
    sync_request,
)


def test_each_member_gets_the_assignment_of_the_leader() -> None:
    coordinator = Coordinator()
    leader, early, late = join_all(coordinator, {}, {}, {})
    of_early = coordinator.send(sync_request(early))
    of_leader = coordinator.send(sync_request(leader, 1, {leader: b"1", early: b"2", late: b"3"}))
    of_late = coordinator.send(sync_request(late))
    assert [caller.response for caller in (of_leader, of_early, of_late)] == [
        SyncGroupResponse(protocol_type="consumer", protocol_name="range", assignment=assignment)
        for assignment in (b"1", b"2", b"3")
    ]


def test_the_generation_is_written_with_its_assignments() -> None:
    coordinator = Coordinator()
    plain, static = join_all(
        coordinator,
        {"protocols": {"range": b"subscription 1"}},
        {"instance_id": "static", "protocols": {"sticky": b"other", "range": b"subscription 2"}},
    )
    assert coordinator.written() == []
    coordinator.send(sync_request(plain, 1, {plain: b"assignment 1", static: b"assignment 2"}))
    (record,) = coordinator.written()
    assert record.key == GroupMetadataKey(group="group")
    assert record.value_version == 3
    assert record.value == GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader=plain,
        current_state_timestamp=EPOCH_MS + 6000,
        members=[
            MemberMetadata(
                member_id=member_id,
                group_instance_id=instance_id,
                client_id="client",
                client_host="/127.0.0.1",
                rebalance_timeout=REBALANCE_TIMEOUT_MS,
                session_timeout=SESSION_TIMEOUT_MS,
                subscription=subscription,
                assignment=assignment,
            )
            for member_id, instance_id, subscription, assignment in [
                (plain, None, b"subscription 1", b"assignment 1"),
                (static, "static", b"subscription 2", b"assignment 2"),
            ]
        ],
    )


def test_members_omitted_by_the_leader_get_no_partitions_and_unknown_members_are_ignored() -> None:
    coordinator = Coordinator()
    leader, forgotten = join_all(coordinator, {}, {})
    waiting = coordinator.send(sync_request(forgotten))
    assert coordinator.send(sync_request(leader, 1, {leader: b"1", "stranger": b"2"})).error is ErrorCode.NONE
    assert waiting.response == SyncGroupResponse(protocol_type="consumer", protocol_name="range", assignment=b"")
    (record,) = coordinator.written()
    assert [(member.member_id, member.assignment) for member in record.value.members] == [
        (leader, b"1"),
        (forgotten, b""),
    ]


def test_assignments_of_a_follower_are_ignored() -> None:
    coordinator = Coordinator()
    leader, follower = join_all(coordinator, {}, {})
    waiting = coordinator.send(sync_request(follower, 1, {follower: b"mine"}))
    assert waiting.waits
    coordinator.send(sync_request(leader, 1, {leader: b"1", follower: b"2"}))
    assert waiting.response.assignment == b"2"


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name", "error"),
    [
        (None, None, ErrorCode.NONE),
        ("consumer", None, ErrorCode.NONE),
        (None, "range", ErrorCode.NONE),
        ("consumer", "range", ErrorCode.NONE),
        ("connect", "range", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", "sticky", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("", None, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_the_protocol_in_the_request_must_be_that_of_the_generation(
    protocol_type: str | None, protocol_name: str | None, error: ErrorCode
) -> None:
    coordinator = Coordinator()
    (member,) = join_all(coordinator, {})
    request = sync_request(member, 1, protocol_type=protocol_type, protocol_name=protocol_name)
    assert coordinator.send(request).error is error


def test_the_instance_id_must_be_the_members() -> None:
    coordinator = Coordinator()
    static, plain = join_all(coordinator, {"instance_id": "one"}, {})
    assert coordinator.send(sync_request(plain, instance_id="one")).error is ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.send(sync_request(plain, instance_id="two")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.send(sync_request(static, instance_id="one", assignments={static: b"1"})).error is ErrorCode.NONE


def test_a_member_that_retries_while_it_waits_gets_two_responses() -> None:
    coordinator = Coordinator()
    leader, follower = join_all(coordinator, {}, {})
    first = coordinator.send(sync_request(follower))
    second = coordinator.send(sync_request(follower))
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    coordinator.send(sync_request(leader, 1, {follower: b"2"}))
    assert second.response.assignment == b"2"


def test_responses_are_sent_when_the_generation_is_durable() -> None:
    coordinator = Coordinator()
    leader, follower = join_all(coordinator, {}, {})
    coordinator.log.replicated = False
    waiting = coordinator.send(sync_request(follower))
    of_leader = coordinator.send(sync_request(leader, 1, {leader: b"1", follower: b"2"}))
    assert waiting.waits
    assert of_leader.waits
    coordinator.log.replicated = True
    coordinator.runtime.high_watermark_changed()
    assert of_leader.response.assignment == b"1"
    assert waiting.response.assignment == b"2"


# -- a generation that cannot be written -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refusal", "answer"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_new_rebalance_begins_when_the_log_rejects_the_generation(refusal: ErrorCode, answer: ErrorCode) -> None:
    coordinator = Coordinator()
    leader, follower = join_all(coordinator, {}, {})
    waiting = coordinator.send(sync_request(follower))
    with coordinator.log_refuses(refusal):
        of_leader = coordinator.send(sync_request(leader, 1, {leader: b"1", follower: b"2"}))
    assert of_leader.error is answer
    assert waiting.error is answer
    assert coordinator.describe("group").group_state == "PreparingRebalance"
    assert {member.member_assignment for member in coordinator.describe("group").members} == {b""}
    again = [coordinator.send(join_request(member)) for member in (leader, follower)]
    assert [caller.response.generation_id for caller in again] == [2, 2]


def test_assignments_that_are_too_large_for_a_batch_are_rejected() -> None:
    coordinator = Coordinator()
    leader, follower = join_all(coordinator, {}, {})
    waiting = coordinator.send(sync_request(follower))
    of_leader = coordinator.send(sync_request(leader, 1, {leader: bytes(coordinator.log.max_batch_bytes)}))
    assert of_leader.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert waiting.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert coordinator.send(heartbeat_request(leader)).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.written() == []


def test_metadata_that_is_too_large_for_a_batch_does_not_affect_other_groups() -> None:
    coordinator = Coordinator()
    (member,) = join_all(coordinator, {"protocols": {"range": bytes(coordinator.log.max_batch_bytes)}})
    other = coordinator.send(join_request(group_id="other"), 3)
    too_large = coordinator.send_in_turn(sync_request(member, 1, {member: b"1"}))
    coordinator.advance(3000)
    assert too_large.error is ErrorCode.UNKNOWN_SERVER_ERROR
    request = sync_request(other.response.member_id, 1, {other.response.member_id: b"1"})
    request.group_id = "other"
    assert coordinator.send(request).response.assignment == b"1"


def test_if_the_log_rejects_an_empty_generation_the_group_is_empty_nevertheless() -> None:
    coordinator = Coordinator()
    (member,) = stable_group(coordinator, {})
    with coordinator.log_refuses(ErrorCode.NOT_ENOUGH_REPLICAS):
        assert coordinator.send(leave_request(member)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator.describe("group").group_state == "Empty"
    assert coordinator.group().generation_id == 2
    # A restart knows no better than the log: the member's session ends then.
    coordinator.restart()
    assert coordinator.describe("group").group_state == "Stable"
    coordinator.advance(SESSION_TIMEOUT_MS)
    assert coordinator.describe("group").group_state == "Empty"
