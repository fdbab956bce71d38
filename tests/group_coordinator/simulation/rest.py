"""The end of a simulation: without faults all groups become stable, and without members no state remains."""

from __future__ import annotations

from typing import Any

from moldau.group_coordinator.classic.group import ClassicGroup
from moldau.group_coordinator.consumer.group import ConsumerGroup

from .classic_client import CONSUMER, ClassicClient
from .classic_client import State as ClassicState
from .consumer_client import State as ConsumerState
from .world import GROUPS, Member, World

# The sessions and rebalances of stopped members end within this time.
_MAX_STABILIZATION_MS = 120_000


def check_stabilization(world: World) -> None:
    """No more faults: all running members become stable, and each partition of their topics has one owner."""
    world.note("no more faults")
    world.is_reliable = True
    world.log.rejection = None
    world.release_records()
    while not world.coordinator.is_active:
        world.continue_loading()
    now_ms = world.disrupted_until_ms = world.clock.monotonic_ms
    for member in world.members():
        member.paused_until_ms = 0
        member.busy_until_ms = min(member.busy_until_ms, now_ms + 1)
    world.settle(now_ms + 20_000)
    for member in world.members():
        if isinstance(member, ClassicClient) and any(one.instance_id for one in world.members_of(member.group_id)):
            # A static leader that rejoins must keep the assignment unchanged (KIP-814), and assumes that it is for the
            # current topics. So no member notices that topics changed while the leader was stopped.
            member.request_rebalance()
    while any(_instability(world, group_id) for group_id in GROUPS):
        if world.clock.monotonic_ms > now_ms + _MAX_STABILIZATION_MS:
            reasons = {group_id: _instability(world, group_id) for group_id in GROUPS}
            raise AssertionError(f"groups do not become stable: {reasons}")
        world.settle(world.clock.monotonic_ms + 3000)
    world.check_state()


def _instability(world: World, group_id: str) -> str | None:
    """Why a group is not stable or its assignment is incomplete; None if neither."""
    members = list(world.members_of(group_id))
    if not members:
        return None
    group = world.coordinator.states.groups.get(group_id)
    if group is None:
        return "the group is missing"
    if group.state_name != "Stable":
        return f"it is {group.state_name}"
    if set(group.members) != {member.member_id for member in members}:
        return f"its members are {sorted(group.members)}"
    assert isinstance(group, (ClassicGroup, ConsumerGroup))
    epoch = group.generation_id if isinstance(group, ClassicGroup) else group.group_epoch
    for member in members:
        if isinstance(member, ClassicClient):
            if member.state is not ClassicState.STABLE or member.generation != epoch:
                return f"{member} is {member.state.value} in generation {member.generation} of {epoch}"
        elif member.state is not ConsumerState.STABLE or member.epoch != epoch:
            return f"{member} is {member.state.value} at epoch {member.epoch} of {epoch}"
    return _incomplete_assignment(world, members)


def _incomplete_assignment(world: World, members: list[Member]) -> str | None:
    readers: dict[tuple[str, int], list[Member]] = {}
    for member in members:
        if isinstance(member, ClassicClient) and member.protocol_type != CONSUMER:
            return None
        for partition in _partitions_of(world, member):
            readers.setdefault(partition, []).append(member)
    for name in sorted(world.topics.names()):
        entitled = [member for member in members if member.may_read(name)]
        for index in range(world.topics.partition_count(name)):
            having = readers.pop((name, index), [])
            if len(having) != (1 if entitled else 0) or not all(one in entitled for one in having):
                return f"{name}-{index} is read by {having}, and {entitled} subscribe to it"
    return f"members own partitions that do not exist: {readers}" if readers else None


def _partitions_of(world: World, member: Member) -> list[tuple[str, int]]:
    if isinstance(member, ClassicClient):
        return sorted(member.owned)
    return sorted((world.topics.name_of(topic_id) or repr(topic_id), index) for topic_id, index in member.owned)


def check_removal(world: World) -> None:
    """All members leave, time passes, and no state remains in memory."""
    world.note("all members leave")
    for member in world.members():
        if world.random.random() < 0.5:
            member.leave()
        else:
            member.stop()
    world.outsider.stop()
    for producer in world.producers:
        producer.end(committed=world.random.random() < 0.5)
    until_ms = world.clock.monotonic_ms + world.config.offsets_retention_ms + _MAX_STABILIZATION_MS
    while left := _left(world):
        assert world.clock.monotonic_ms < until_ms, f"remaining state: {left}"
        world.settle(world.clock.monotonic_ms + 1)
    assert not world.invariants.unanswered
    world.check_state()


def _left(world: World) -> dict[str, Any]:
    states = world.coordinator.states
    found: dict[str, Any] = {
        "groups": states.groups,
        "offsets": len(states.offsets),
        "pending offsets": states.offsets._pending_by_group or states.offsets._pending_by_producer,
        "groups that are being deleted": states.being_deleted,
        # The check for expired offsets repeats forever; it belongs to no group.
        "deadlines": [key for key in states.deadlines._deadlines if key[0]],
    }
    return {what: one for what, one in found.items() if one}
