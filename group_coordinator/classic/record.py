"""The record of a classic group's generation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...coordinator.outcome import Record
from ..records import GroupMetadataKey, GroupMetadataValue, MemberMetadata

if TYPE_CHECKING:
    from ...coordinator.outcome import Now
    from .group import ClassicGroup

# What Apache Kafka 4.3 writes. Version 4 is the same in the flexible encoding; no release writes it yet.
GROUP_METADATA_VERSION = 3


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes] | None = None) -> Record:
    """The current generation with these assignments by member ID; None stands for the members' own."""
    protocol_name = group.protocol_name
    members = []
    for member in group.members.values():
        assert protocol_name is not None
        members.append(
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.protocols[protocol_name],
                assignment=member.assignment if assignments is None else assignments.get(member.member_id, b""),
            )
        )
    value = GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation_id,
        protocol=protocol_name,
        leader=group.leader_id,
        current_state_timestamp=group.current_state_timestamp_ms,
        members=members,
    )
    return Record(GroupMetadataKey(group=group.group_id), value, GROUP_METADATA_VERSION)


def empty_generation_record(group: ClassicGroup, now: Now) -> Record:
    """The group's next generation, without members."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation_id + 1,
        protocol=None,
        leader=None,
        current_state_timestamp=now.epoch_ms,
        members=[],
    )
    return Record(GroupMetadataKey(group=group.group_id), value, GROUP_METADATA_VERSION)


def new_group_record(group_id: str, now: Now) -> Record:
    """A group that never had a member."""
    value = GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=now.epoch_ms, members=[]
    )
    return Record(GroupMetadataKey(group=group_id), value, GROUP_METADATA_VERSION)


def group_tombstone(group_id: str) -> Record:
    """Deletes the group except its offsets."""
    return Record(GroupMetadataKey(group=group_id), None)
