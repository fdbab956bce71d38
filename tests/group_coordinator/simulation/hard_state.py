"""The hard state of a shard, which a restart must restore, in a form that can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

from moldau.group_coordinator.classic.group import ClassicGroup
from moldau.group_coordinator.classic.state import ClassicGroupState
from moldau.group_coordinator.consumer.group import ConsumerGroup
from moldau.group_coordinator.states import GroupStates

from .log_model import LogModel

# Fields of a consumer group that have no records.
_SOFT = {"_topics", "metadata_version", "regexes_refreshed_ms", "regexes_version"}


def written_out(states: GroupStates) -> dict[str, Any]:
    """Offsets, and consumer groups with their counters and indexes. Classic groups are compared with the log."""
    groups = {group_id: _fields(group) for group_id, group in states.groups.items() if isinstance(group, ConsumerGroup)}
    return {"groups": groups, "offsets": _offsets(states), "pending": _pending(states)}


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """The differences of two results of `written_out`."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            yield from differences(ours.get(key), theirs.get(key), f"{path} {key!r}")
    elif ours != theirs:
        yield f"{path}: {ours!r} and {theirs!r}"


def check_against_log(states: GroupStates, log: LogModel, uncertain: Set[str]) -> None:
    """Compare the state with the log.

    ``uncertain`` are classic groups whose records were rejected: they may be empty although the log has members.

    Raises:
        AssertionError: they differ.
    """
    expected = {
        of: (value.offset, value.leader_epoch, value.metadata, value.commit_timestamp)
        for of, value in log.offsets.items()
    }
    assert not (wrong := list(differences(_offsets(states), expected))), f"in the state and in the log {wrong}"
    assert len(states.offsets) == len(expected)
    pending = {of: True for one in log.pending.values() for of in one}
    assert not (wrong := list(differences(_pending(states), pending))), f"pending in the state and in the log {wrong}"
    for group_id, logged in log.groups.items():
        group = states.groups.get(group_id)
        if logged.epoch is not None:
            assert isinstance(group, ConsumerGroup), f"{group_id} is in the log"
            assert group.group_epoch == logged.epoch
            assert set(group.members) == logged.members
            assert {member.member_id: member.member_epoch for member in group.members.values()} == {
                member_id: logged.current[member_id].member_epoch for member_id in logged.members
            }
        elif logged.classic is not None:
            assert isinstance(group, ClassicGroup), f"{group_id} is in the log"
            _check_classic(group, logged.classic, is_sure=group_id not in uncertain)
    for group_id, group in states.groups.items():
        known = log.groups.get(group_id)
        if known is None or not known.exists:
            # It has offsets, or it has or had members that never reached a generation.
            assert isinstance(group, ClassicGroup), f"{group_id} is not in the log"
            assert group.state is not ClassicGroupState.STABLE, f"{group} is not in the log"
            assert group.state is not ClassicGroupState.EMPTY or not group.generation_id or group_id in uncertain, group


def _check_classic(group: ClassicGroup, logged: Any, *, is_sure: bool) -> None:
    assert group.generation_id >= logged.generation
    if group.state is ClassicGroupState.EMPTY:
        assert not group.members
        if is_sure:
            assert (group.generation_id, group.protocol_type) == (logged.generation, logged.protocol_type)
            assert not logged.members
    if group.state is ClassicGroupState.STABLE:
        name = group.protocol_name
        assert name is not None
        assert (group.generation_id, group.protocol_type, name, group.leader_id) == (
            logged.generation,
            logged.protocol_type,
            logged.protocol,
            logged.leader,
        )
        assert {
            one.member_id: (one.group_instance_id, one.protocols[name], one.assignment)
            for one in group.members.values()
        } == {one.member_id: (one.group_instance_id, one.subscription, one.assignment) for one in logged.members}
        assert group.static_members == {
            one.group_instance_id: one.member_id for one in logged.members if one.group_instance_id is not None
        }


def _offsets(states: GroupStates) -> dict[tuple[str, str, int], Any]:
    offsets = states.offsets
    return {
        (group_id, topic, index): (one.offset, one.leader_epoch, one.metadata, one.commit_timestamp_ms)
        for group_id in states.groups
        for topic in offsets.topics(group_id)
        for index, one in offsets.partitions(group_id, topic)
    }


def _pending(states: GroupStates) -> dict[tuple[str, str, int], bool]:
    return {(group_id, *one): True for group_id in states.groups for one in states.offsets.pending(group_id)}


def _fields(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _fields(one) for key, one in value.items()}
    slots = getattr(type(value), "__slots__", None)
    if (
        slots
        and not isinstance(value, tuple)
        and type(value).__module__.startswith("moldau.group_coordinator.consumer")
    ):
        return {name: _fields(getattr(value, name)) for name in slots if name not in _SOFT}
    return value
