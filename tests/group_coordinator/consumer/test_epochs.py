"""Member epochs: which are accepted, and for which partitions offsets may be committed (KIP-848, KIP-1251)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moldau.group_coordinator.records import ClassicMemberMetadata
from moldau.protocol.errors import ErrorCode, KafkaError

from ..harness import Coordinator
from .consumer import GROUP, Consumer, settle


@pytest.fixture
def coordinator() -> Coordinator:
    coordinator = Coordinator()
    coordinator.topics.create("t", 4)
    return coordinator


def two_members(coordinator: Coordinator) -> tuple[Consumer, Consumer]:
    a, b = Consumer(coordinator, "a", ["t"]), Consumer(coordinator, "b", ["t"])
    a.join()
    coordinator.advance(2000)
    b.join()
    settle(a, b)
    return a, b


def test_an_epoch_ahead_is_fenced(coordinator: Coordinator) -> None:
    a, _ = two_members(coordinator)
    assert a.heartbeat(member_epoch=a.epoch + 1).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_lost_a_response_may_send_the_previous_epoch(coordinator: Coordinator) -> None:
    a, b = Consumer(coordinator, "a", ["t"]), Consumer(coordinator, "b", ["t"])
    a.join()
    coordinator.advance(2000)
    b.join()
    a.heartbeat()
    kept = a.owns(a.assigned)
    # The response to this heartbeat is lost:
    assert a.heartbeat(topic_partitions=kept).response.member_epoch == 3
    again = a.heartbeat(member_epoch=2, topic_partitions=kept)
    assert again.response.member_epoch == 3


@pytest.mark.parametrize("owned", [None, {"t": {0, 1, 2, 3}}, {"unknown": {0}}])
def test_a_member_that_may_own_unassigned_partitions_is_fenced(
    coordinator: Coordinator, owned: dict[str, set[int]] | None
) -> None:
    coordinator.topics.create("unknown")
    a, b = Consumer(coordinator, "a", ["t"]), Consumer(coordinator, "b", ["t"])
    a.join()
    coordinator.advance(2000)
    b.join()
    a.heartbeat()
    a.heartbeat(topic_partitions=a.owns(a.assigned))
    partitions = None if owned is None else a.owns(owned)
    assert a.heartbeat(member_epoch=2, topic_partitions=partitions).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_an_older_epoch_is_fenced_whatever_it_owns(coordinator: Coordinator) -> None:
    a, b = two_members(coordinator)
    coordinator.advance(2000)
    coordinator.topics.create("t", 8)
    settle(a, b)
    assert a.epoch == 4
    assert a.heartbeat(member_epoch=2, topic_partitions=[]).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_fenced_member_rejoins_and_keeps_its_place(coordinator: Coordinator) -> None:
    a, b = two_members(coordinator)
    owned = a.owned
    assert a.join().response.member_epoch == 3
    assert a.owned == owned
    settle(a, b)


def check(coordinator: Coordinator, epoch: int, partition: int | None = None, **more: object) -> ErrorCode:
    """Of a commit of the member a."""
    group = coordinator.group(GROUP)
    arguments = {"transactional": False, "api_version": 9, "member_id": "a", "group_instance_id": None, **more}
    try:
        check_partition = group.check_offset_commit(generation_or_epoch=epoch, **arguments)
    except KafkaError as error:
        return error.code
    if check_partition is None:
        return ErrorCode.NONE
    assert partition is not None, "this commit is judged by partition"
    result: ErrorCode = check_partition("t", partition)
    return result


def test_an_earlier_epoch_may_commit_only_for_partitions_held_since_then(coordinator: Coordinator) -> None:
    a, b = two_members(coordinator)
    assert a.epoch == 3
    kept, given_up = min(a.owned["t"]), min(b.owned["t"])
    # For any partition: the member is up to date.
    assert check(coordinator, 3) is ErrorCode.NONE
    # Partitions that it has owned since epoch 2 may still be committed at epoch 2; its former partitions may not.
    assert check(coordinator, 2, kept) is ErrorCode.NONE
    assert check(coordinator, 2, given_up) is ErrorCode.STALE_MEMBER_EPOCH
    assert check(coordinator, 1, kept) is ErrorCode.STALE_MEMBER_EPOCH
    assert check(coordinator, 4) is ErrorCode.STALE_MEMBER_EPOCH
    b.leave()
    coordinator.advance(2000)
    a.follow()
    assert a.epoch == 4
    assert check(coordinator, 3, given_up) is ErrorCode.STALE_MEMBER_EPOCH
    assert check(coordinator, 2, kept) is ErrorCode.NONE


def test_partitions_being_revoked_may_be_committed(coordinator: Coordinator) -> None:
    a, b = Consumer(coordinator, "a", ["t"]), Consumer(coordinator, "b", ["t"])
    a.join()
    coordinator.advance(2000)
    b.join()
    a.heartbeat()
    for partition in range(4):
        assert coordinator.group(GROUP).members["a"].assignment_epoch(coordinator.topics.id_of("t"), partition) == 2
    assert check(coordinator, 2) is ErrorCode.NONE


def test_which_members_may_commit(coordinator: Coordinator) -> None:
    a, _ = two_members(coordinator)
    assert check(coordinator, 3, member_id="nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    assert check(coordinator, 3, api_version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert check(coordinator, 3, api_version=3, transactional=True) is ErrorCode.NONE
    assert check(coordinator, -1, member_id="", transactional=True) is ErrorCode.NONE
    assert check(coordinator, -1, member_id="") is ErrorCode.UNKNOWN_MEMBER_ID
    # Tools, while the group has no members.
    a.leave()
    coordinator.group(GROUP).members["b"]
    Consumer(coordinator, "b").send(member_epoch=-1)
    assert check(coordinator, -1, member_id="") is ErrorCode.NONE
    assert check(coordinator, 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_of_the_classic_protocol_has_its_own_error(coordinator: Coordinator) -> None:
    two_members(coordinator)
    group = coordinator.group(GROUP)
    group.update_member(replace(group.members["a"], classic_member_metadata=ClassicMemberMetadata()))
    assert check(coordinator, 3, api_version=5) is ErrorCode.NONE
    assert check(coordinator, 4) is ErrorCode.ILLEGAL_GENERATION
    assert check(coordinator, 0, 0) is ErrorCode.ILLEGAL_GENERATION


def test_which_members_may_fetch_offsets(coordinator: Coordinator) -> None:
    two_members(coordinator)
    group = coordinator.group(GROUP)
    group.check_offset_fetch(None, -1)
    group.check_offset_fetch("a", 3)
    with pytest.raises(KafkaError) as stale:
        group.check_offset_fetch("a", 2)
    assert stale.value.code is ErrorCode.STALE_MEMBER_EPOCH
    with pytest.raises(KafkaError) as unknown:
        group.check_offset_fetch("nobody", 3)
    assert unknown.value.code is ErrorCode.UNKNOWN_MEMBER_ID
