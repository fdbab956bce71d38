"""The end of a simulation: when nothing is broken any more, groups come to rest; when all go, nothing is left."""

from __future__ import annotations

from typing import Any

from moldau.group_coordinator.classic.group import ClassicGroup
from moldau.group_coordinator.consumer.group import ConsumerGroup

from .classic_client import CONSUMER, ClassicClient
from .classic_client import State as ClassicState
from .consumer_client import State as ConsumerState
from .world import GROUPS, Member, World

# Sessions and rebalances of the members that are gone end within this time.
_LONGEST_UNREST_MS = 120_000


def come_to_rest(world: World) -> None:
    """Nothing is broken any more: all live members become stable, and have each partition of their topics once."""
    world.note("nothing is broken any more")
    world.is_reliable = True
    world.log.refusal = None
    world.release_records()
    while not world.coordinator.is_active:
        world.go_on_loading()
    now_ms = world.hindered_until_ms = world.clock.monotonic_ms
    for member in world.members():
        member.paused_until_ms = 0
        member.busy_until_ms = min(member.busy_until_ms, now_ms + 1)
    world.settle(now_ms + 20_000)
    for member in world.members():
        if isinstance(member, ClassicClient) and any(one.instance_id for one in world.members_of(member.group_id)):
            # A static leader that rejoins is asked to keep the assignment unchanged (KIP-814), and takes the topics
            # for those of the assignment: no member notices changes while it was away.
            member.join_again()
    while any(_restlessness(world, group_id) for group_id in GROUPS):
        if world.clock.monotonic_ms > now_ms + _LONGEST_UNREST_MS:
            reasons = {group_id: _restlessness(world, group_id) for group_id in GROUPS}
            raise AssertionError(f"groups do not come to rest: {reasons}")
        world.settle(world.clock.monotonic_ms + 3000)
    world.check_state()


def _restlessness(world: World, group_id: str) -> str | None:
    """What keeps a group from being stable and complete; None when it is."""
    members = list(world.members_of(group_id))
    if not members:
        return None
    group = world.coordinator.states.groups.get(group_id)
    if group is None:
        return "it is not there"
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
    return _incompleteness(world, members)


def _incompleteness(world: World, members: list[Member]) -> str | None:
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
    return f"partitions that are not there are read: {readers}" if readers else None


def _partitions_of(world: World, member: Member) -> list[tuple[str, int]]:
    if isinstance(member, ClassicClient):
        return sorted(member.owned)
    return sorted((world.topics.name_of(topic_id) or repr(topic_id), index) for topic_id, index in member.owned)


def go_away(world: World) -> None:
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
    until_ms = world.clock.monotonic_ms + world.config.offsets_retention_ms + _LONGEST_UNREST_MS
    while left := _left(world):
        assert world.clock.monotonic_ms < until_ms, f"there is still {left}"
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
