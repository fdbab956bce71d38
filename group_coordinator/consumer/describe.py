"""ConsumerGroupDescribe (API key 69), versions 0-1, of one group.

* The assignment of a member includes the partitions that it must revoke: it may still read them.
* Deleted topics are omitted.
* A group that does not exist or is of another kind is GROUP_ID_NOT_FOUND.

Since version 1, the response contains the members' type: 0 uses the classic protocol, 1 the consumer protocol. The
server adds the authorized operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ...protocol.errors import ErrorCode
from ...protocol.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions
from .group import ConsumerGroup

if TYPE_CHECKING:
    from ..states import GroupStates, Topics
    from .member import ConsumerGroupMember

_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


def describe_consumer_group(states: GroupStates, group_id: str, api_version: int) -> DescribedGroup:
    """The current state of the group; the same in each version."""
    group = states.find(group_id, ConsumerGroup)
    if group is None:
        message = states.not_found_message(group_id, ConsumerGroup)
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.target_assignment_epoch,
        assignor_name=group.preferred_assignor() or states.config.consumer_assignors[0],
        members=[_member(states.topics, group, member) for member in group.members.values()],
    )


def _member(topics: Topics, group: ConsumerGroup, member: ConsumerGroupMember) -> Member:
    has: dict[bytes, set[int]] = {}
    for assigned in (member.assigned_partitions, member.partitions_pending_revocation):
        for topic_id, partitions in assigned.items():
            has.setdefault(topic_id, set()).update(partitions)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(topics, has),
        target_assignment=_assignment(topics, group.target_of(member.member_id)),
        member_type=_CLASSIC_MEMBER if member.uses_classic_protocol else _CONSUMER_MEMBER,
    )


def _assignment(topics: Topics, assigned: Mapping[bytes, Iterable[int]]) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(partitions))
            for topic_id, partitions in assigned.items()
            if (name := topics.name_of(topic_id)) is not None
        ]
    )
