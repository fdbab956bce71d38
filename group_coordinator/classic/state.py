"""The states of a classic group, and what each request gets in each of them.

A group moves round a circle: members join (PREPARING_REBALANCE), each is told who is in the generation and the leader
hands in what everybody is to read (COMPLETING_REBALANCE), and they read (STABLE) until somebody comes, goes or wants
something else. The log knows of the ends of the circle alone: a generation with members (STABLE), and one without
(EMPTY). A rebalance that was under way is forgotten by a restart, and its members begin it anew.

| request | EMPTY | PREPARING_REBALANCE | COMPLETING_REBALANCE | STABLE |
| --- | --- | --- | --- | --- |
| JoinGroup, new member | rebalance (1) | waits | rebalance | rebalance |
| JoinGroup, member | UNKNOWN_MEMBER_ID | waits | generation (2) | generation (2, 3) |
| JoinGroup, static member that lost its member id | rebalance (1) | waits | rebalance | generation (4) |
| SyncGroup | UNKNOWN_MEMBER_ID | REBALANCE_IN_PROGRESS | waits for the leader's | assignment |
| SyncGroup of the leader | UNKNOWN_MEMBER_ID | REBALANCE_IN_PROGRESS | assignments for all | assignment |
| Heartbeat | UNKNOWN_MEMBER_ID | REBALANCE_IN_PROGRESS | NONE | NONE |
| LeaveGroup | UNKNOWN_MEMBER_ID | removed (5) | removed, rebalance | removed, rebalance |
| OffsetCommit of a member | UNKNOWN_MEMBER_ID | taken | REBALANCE_IN_PROGRESS | taken |
| OffsetCommit of nobody | taken | UNKNOWN_MEMBER_ID | UNKNOWN_MEMBER_ID | UNKNOWN_MEMBER_ID |
| OffsetDelete | taken | taken (6) | taken (6) | taken (6) |
| DeleteGroups | taken | NON_EMPTY_GROUP | NON_EMPTY_GROUP | NON_EMPTY_GROUP |

1. It waits for members that nobody knows of yet (`group.initial.rebalance.delay.ms`).
2. The same answer again, if its metadata is the same; a rebalance if it is not.
3. A rebalance if it is the leader: it wants one for a reason that is not in the metadata, as more partitions.
4. The member takes its place again, with the assignment that is there (KIP-345); a rebalance if the group would take
   another protocol now.
5. If it was the last one waited for, the rebalance ends.
6. But not of topics that are subscribed to; NON_EMPTY_GROUP if the protocol type is not ``consumer``.

What is asked by or for somebody who is not in the group, or not in its generation, is refused in every state
(UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION). Deadlines move it on by themselves: a session that ends
removes its member, a rebalance does not wait for members beyond their rebalance timeout, nor a generation for those
who never ask for their assignment.
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
    """No group is in it: DescribeGroups says so of groups that are not there."""
