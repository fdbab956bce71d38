"""The states of a classic group, and the response to each request in each state.

A group moves in a cycle: members join (PREPARING_REBALANCE), each learns its generation and the leader sends the
assignments (COMPLETING_REBALANCE), and the members read (STABLE) until one joins, leaves or changes its subscription.
The log contains only the ends of the cycle: a generation with members (STABLE) and one without (EMPTY). A restart loses
a rebalance in progress, and its members start it again.

| request | EMPTY | PREPARING_REBALANCE | COMPLETING_REBALANCE | STABLE |
| --- | --- | --- | --- | --- |
| JoinGroup, new member | rebalance (1) | waits | rebalance | rebalance |
| JoinGroup, member | UNKNOWN_MEMBER_ID | waits | generation (2) | generation (2, 3) |
| JoinGroup, static member that lost its member id | rebalance (1) | waits | rebalance | generation (4) |
| SyncGroup | UNKNOWN_MEMBER_ID | REBALANCE_IN_PROGRESS | waits for the leader's | assignment |
| SyncGroup of the leader | UNKNOWN_MEMBER_ID | REBALANCE_IN_PROGRESS | assignments for all | assignment |
| Heartbeat | UNKNOWN_MEMBER_ID | REBALANCE_IN_PROGRESS | NONE | NONE |
| LeaveGroup | UNKNOWN_MEMBER_ID | removed (5) | removed, rebalance | removed, rebalance |
| OffsetCommit of a member | UNKNOWN_MEMBER_ID | accepted | REBALANCE_IN_PROGRESS | accepted |
| OffsetCommit without a member | accepted | UNKNOWN_MEMBER_ID | UNKNOWN_MEMBER_ID | UNKNOWN_MEMBER_ID |
| OffsetDelete | accepted | accepted (6) | accepted (6) | accepted (6) |
| DeleteGroups | accepted | NON_EMPTY_GROUP | NON_EMPTY_GROUP | NON_EMPTY_GROUP |

1. It waits for more members (`group.initial.rebalance.delay.ms`).
2. The same response again if its metadata is the same; otherwise a rebalance.
3. A rebalance if it is the leader: its reason is not in the metadata, for example more partitions.
4. The member gets its place and its assignment back (KIP-345); a rebalance if the group would now choose another
   protocol.
5. If it was the last missing member, the rebalance ends.
6. Except offsets of subscribed topics; NON_EMPTY_GROUP if the protocol type is not ``consumer``.

Requests of a member that is not in the group, or not in its generation, are rejected in every state (UNKNOWN_MEMBER_ID,
FENCED_INSTANCE_ID, ILLEGAL_GENERATION). Deadlines change the state without a request: an expired session removes its
member, a rebalance does not wait for members beyond their rebalance timeout, and a generation does not wait for members
that never request their assignment.
"""

from __future__ import annotations

import enum


class ClassicGroupState(enum.Enum):
    """The value is the name that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    """No group has this state: DescribeGroups shows it for groups that do not exist."""
