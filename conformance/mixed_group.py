"""A group with members of the classic and of the consumer protocol (KIP-848), and the topic that they read.

In a consumer group, a member of the classic protocol gets its responses immediately. Its generation is its own epoch,
SyncGroup returns the partitions that it may read, and it rejoins whenever a heartbeat response requires it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode
from ..testing.group_requests import assigned, assignment, subscription
from . import configs
from . import consumer_group as g
from .case import needs
from .check import Check
from .classic_group import ClassicGroup, Member
from .consumer_group import ConsumerMember
from .outcome import NotApplicableError

NEEDS: Final = needs(
    ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, ApiKey.CONSUMER_GROUP_DESCRIBE, 0, ApiKey.JOIN_GROUP, 9, ApiKey.SYNC_GROUP, 5,
    ApiKey.HEARTBEAT, 4, ApiKey.LEAVE_GROUP, 5, ApiKey.LIST_GROUPS, 5,
)  # fmt: skip
_POLICY: Final = "group.consumer.migration.policy"


class MixedGroup(ClassicGroup):
    """A group whose classic members use the assignor range."""

    def __init__(self, c: Check, partitions: int = 4) -> None:
        super().__init__(c)
        policy = configs.value(c, configs.this_broker(c), _POLICY)
        if policy is not None and policy[0] != "bidirectional":
            raise NotApplicableError(f"{_POLICY} of the broker is {policy[0]}, not bidirectional")
        self.topic = c.topic(partitions)

    def classic(self, **settings: Any) -> Member:
        """A member of the classic protocol, which has not joined yet."""
        return self.member(**{"protocols": self.protocols()} | settings)

    def consumer(self, **settings: Any) -> ConsumerMember:
        """A member of the consumer protocol, which has not joined yet."""
        return ConsumerMember(self.c, self.id, self.topic, **settings)

    def protocols(self, *owned: int) -> dict[str, bytes]:
        """The protocols of a classic member that owns these partitions."""
        return {"range": subscription(self.topic.name, owned={self.topic.name: owned} if owned else None)}

    def assignment(self, *partitions: int) -> bytes:
        """The assignment that a leader sends."""
        return assignment({self.topic.name: partitions})

    def generation(self, *members: Member, partitions: Sequence[Sequence[int]]) -> None:
        """Complete a generation of a classic group; the first member is its leader. A step of the setup."""
        c, leader = self.c, members[0]
        with c.setup(f"a generation of {self.id} with {len(members)} members"):
            if leader.generation < 0 and len(members) > 1:
                self.generation(leader, partitions=[[each for some in partitions for each in some]])
            for number, member in enumerate(members[1:], 2):
                member.start_join()
                self.wait_for_members(number)
            leader.start_join()
            for member in members:
                c.error(member.joined().error_code, ErrorCode.NONE, "JoinGroup error_code")
            c.equal({member.leader for member in members}, {leader.member_id}, "the leader")
            sent = {member.member_id: self.assignment(*each) for member, each in zip(members, partitions, strict=True)}
            for member in members:
                member.start_sync(sent if member is leader else None)
            for member in members:
                answer = member.synced()
                c.error(answer.error_code, ErrorCode.NONE, "SyncGroup error_code")
                c.equal(answer.assignment, sent[member.member_id], "SyncGroup assignment")

    def synced(self, member: Member) -> list[int]:
        """The partitions that SyncGroup returns to a classic member."""
        answer = member.sync()
        self.c.error(answer.error_code, ErrorCode.NONE, "SyncGroup error_code")
        names = (answer.protocol_type, answer.protocol_name)
        self.c.equal(names, ("consumer", "range"), "SyncGroup protocol_type and protocol_name")
        found = assigned(answer.assignment)
        self.c.equal(set(found) <= {self.topic.name}, True, "whether SyncGroup assigns only the group's topic")
        return found.get(self.topic.name, [])

    def rejoined(self, member: Member, *owned: int) -> list[int]:
        """A classic member rejoins with these partitions; those that it gets."""
        member.protocols = self.protocols(*owned)
        answer = member.join()
        self.c.error(answer.error_code, ErrorCode.NONE, "JoinGroup error_code")
        return self.synced(member)

    def heartbeat(self, member: Member, expected: ErrorCode, when: str) -> None:
        """Compare the error code of a classic member's heartbeat."""
        self.c.error(member.heartbeat(), expected, f"Heartbeat error_code {when}")

    def is_shown(self, group_type: str, state: str, when: str) -> None:
        """Compare type and state in ListGroups."""
        found = g.listed(self.c, self.id)[self.id]
        self.c.equal((found.group_type, found.group_state), (group_type, state), f"type and state in ListGroups {when}")
