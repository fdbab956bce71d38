"""The state machine of one member: every state, and its transitions."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.group_coordinator.consumer.member import ConsumerGroupMember, MemberState
from moldau.group_coordinator.consumer.reconciliation import reconcile
from moldau.protocol.errors import ErrorCode, KafkaError

T, U = b"t" * 16, b"u" * 16
EVERY_TOPIC = frozenset({T, U})

STABLE, UNREVOKED = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS
UNRELEASED, UNKNOWN = MemberState.UNRELEASED_PARTITIONS, MemberState.UNKNOWN


def member(state: MemberState, epoch: int, assigned: dict[int, int], pending: dict[int, int] | None = None) -> Any:
    """One that has these partitions of T, each with its assignment epoch."""
    return ConsumerGroupMember(
        "m",
        member_epoch=epoch,
        previous_member_epoch=epoch - 1,
        state=state,
        assigned_partitions={T: assigned} if assigned else {},
        partitions_pending_revocation={T: pending} if pending else {},
    )


def step(
    before: ConsumerGroupMember,
    target: set[int],
    *,
    target_epoch: int,
    owned: set[int] | None = None,
    taken: frozenset[int] = frozenset(),
    subscribed: frozenset[bytes] = EVERY_TOPIC,
    subscription_changed: bool = False,
) -> ConsumerGroupMember:
    return reconcile(
        before,
        target_epoch=target_epoch,
        target={T: frozenset(target)} if target else {},
        owned=None if owned is None else {T: frozenset(owned)},
        owner_of=lambda topic_id, partition: "another" if partition in taken else None,
        subscribed=subscribed,
        subscription_changed=subscription_changed,
    )


def test_a_stable_member_is_unchanged() -> None:
    before = member(STABLE, 5, {0: 3})
    assert step(before, {0}, target_epoch=5) is before


def test_it_gets_unowned_partitions() -> None:
    after = step(member(STABLE, 5, {0: 3}), {0, 1}, target_epoch=6)
    assert after == member(STABLE, 6, {0: 3, 1: 6})


def test_it_waits_for_owned_partitions() -> None:
    after = step(member(STABLE, 5, {0: 3}), {0, 1, 2}, target_epoch=6, taken=frozenset({1}))
    assert after == member(UNRELEASED, 6, {0: 3, 2: 6})
    assert step(after, {0, 1, 2}, target_epoch=6).state is STABLE


def test_it_revokes_before_it_advances() -> None:
    after = step(member(STABLE, 5, {0: 3, 1: 4}), {0, 2}, target_epoch=6)
    assert (after.member_epoch, after.previous_member_epoch, after.state) == (5, 5, UNREVOKED)
    assert (after.assigned_partitions, after.partitions_pending_revocation) == ({T: {0: 3}}, {T: {1: 4}})


def test_it_advances_immediately_if_it_does_not_own_them() -> None:
    after = step(member(STABLE, 5, {0: 3, 1: 4}), {0, 2}, target_epoch=6, owned={0})
    assert after == member(STABLE, 6, {0: 3, 2: 6})


@pytest.mark.parametrize("owned", [None, {0, 1}, {1}])
def test_it_waits_until_it_owns_none_of_them(owned: set[int] | None) -> None:
    before = member(UNREVOKED, 5, {0: 3}, {1: 4})
    assert step(before, {0, 2}, target_epoch=6, owned=owned) is before


def test_then_it_moves_to_the_newest_target() -> None:
    after = step(member(UNREVOKED, 5, {0: 3}, {1: 4}), {0, 2}, target_epoch=8, owned={0})
    assert (after.member_epoch, after.previous_member_epoch, after.state) == (8, 5, STABLE)
    assert after.assigned_partitions == {T: {0: 3, 2: 8}}
    assert after.partitions_pending_revocation == {}


def test_the_newest_target_may_take_more() -> None:
    after = step(member(UNREVOKED, 5, {0: 3}, {1: 4}), {2}, target_epoch=8, owned={0})
    assert (after.member_epoch, after.state) == (5, UNREVOKED)
    assert (after.assigned_partitions, after.partitions_pending_revocation) == ({}, {T: {0: 3}})


def test_a_revoked_partition_may_be_assigned_again() -> None:
    """No other member can have got it: it was this member's until now."""
    after = step(member(UNREVOKED, 5, {0: 3}, {1: 4}), {0, 1}, target_epoch=6, owned={0}, taken=frozenset({1}))
    assert (after.member_epoch, after.state, after.assigned_partitions) == (6, STABLE, {T: {0: 3, 1: 6}})


def test_an_unsubscribed_topic_is_revoked_before_the_next_target_assignment() -> None:
    after = step(member(STABLE, 5, {0: 3}), {0}, target_epoch=5, subscribed=frozenset({U}), subscription_changed=True)
    assert (after.member_epoch, after.state) == (5, UNREVOKED)
    assert (after.assigned_partitions, after.partitions_pending_revocation) == ({}, {T: {0: 3}})


def test_an_unsubscribed_topic_that_it_does_not_own_is_dropped() -> None:
    after = step(
        member(STABLE, 5, {0: 3}),
        {0},
        target_epoch=5,
        owned=set(),
        subscribed=frozenset({U}),
        subscription_changed=True,
    )
    assert (after.member_epoch, after.state, after.assigned_partitions) == (5, STABLE, {})


def test_a_target_of_an_unsubscribed_topic_is_ignored() -> None:
    after = step(member(STABLE, 5, {}), {0}, target_epoch=6, subscribed=frozenset({U}))
    assert (after.member_epoch, after.state, after.assigned_partitions) == (6, STABLE, {})


@pytest.mark.parametrize("owned", [None, {0}])
def test_a_member_in_an_unknown_state_must_rejoin(owned: set[int] | None) -> None:
    with pytest.raises(KafkaError) as fenced:
        step(member(UNKNOWN, 5, {0: 3}), {0}, target_epoch=6, owned=owned)
    assert fenced.value.code is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_in_an_unknown_state_continues_after_it_rejoined() -> None:
    before = member(UNKNOWN, 5, {0: 3, 1: 3})
    after = reconcile(
        before,
        target_epoch=6,
        target={T: frozenset({0})},
        owned={},
        owner_of=lambda topic_id, partition: None,
        subscribed=EVERY_TOPIC,
        subscription_changed=False,
    )
    assert (after.member_epoch, after.state, after.assigned_partitions) == (6, STABLE, {T: {0: 3}})


partition_sets = st.sets(st.integers(0, 7))


@given(
    state=st.sampled_from([STABLE, UNREVOKED, UNRELEASED]),
    assigned=partition_sets,
    pending=partition_sets,
    target=partition_sets,
    taken=partition_sets,
    owned=st.none() | partition_sets,
    subscribed=st.booleans(),
    changed=st.booleans(),
)
@settings(max_examples=500, deadline=None)
def test_each_step_preserves_the_invariants(
    state: MemberState,
    assigned: set[int],
    pending: set[int],
    target: set[int],
    taken: set[int],
    owned: set[int] | None,
    subscribed: bool,
    changed: bool,
) -> None:
    """No partition of another member is assigned, no partition in use is dropped, and the epoch never decreases."""
    pending = pending - assigned if state is UNREVOKED else set()
    taken -= assigned | pending
    before = member(state, 5, dict.fromkeys(assigned, 3), dict.fromkeys(pending, 3))
    after = step(
        before,
        target,
        target_epoch=6,
        owned=owned,
        taken=frozenset(taken),
        subscribed=frozenset({T} if subscribed else {U}),
        subscription_changed=changed,
    )
    has = set(after.assigned_partitions.get(T, {}))
    waits_for = set(after.partitions_pending_revocation.get(T, {}))
    assert after.member_epoch in (5, 6)
    assert not has & taken
    assert not has & waits_for
    # It owns all partitions that it may still read: assigned ones, and those that it must revoke.
    still_reads = assigned | pending if owned is None else (assigned | pending) & owned
    assert still_reads <= has | waits_for
    if after.member_epoch == 6:
        assert not waits_for
        wanted = target if subscribed else set()
        assert has <= wanted
        assert (after.state is STABLE) == (has == wanted)
    # Another step without news leads to the same.
    if after.state is not UNRELEASED:
        again = step(
            after, target, target_epoch=6, taken=frozenset(taken), subscribed=frozenset({T} if subscribed else {U})
        )
        assert again.assigned_partitions == after.assigned_partitions


def test_dropping_very_many_topics_takes_no_time() -> None:
    assigned = {number.to_bytes(16, "big"): {0: 5} for number in range(20_000)}
    before = ConsumerGroupMember("m", member_epoch=5, assigned_partitions=assigned)

    started = time.process_time()
    after = reconcile(
        before,
        target_epoch=5,
        target={},
        owned=None,
        owner_of=lambda topic_id, partition: None,
        subscribed=frozenset(),
        subscription_changed=True,
    )
    assert time.process_time() - started < 1

    assert (after.assigned_partitions, after.partitions_pending_revocation) == ({}, assigned)
