"""The output formats of groups: JSON, and tables in which a dash marks a missing value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from .group_client import Committed, Group, GroupClient, Member, TopicPartition, by_topic
from .group_offsets import LogOffsets
from .output import print_table

_NONE: Final = "-"


def position(commit: Committed | None, end: int | None) -> dict[str, Any]:
    """The committed offset, the end of the partition, and the lag."""
    return {
        "committed": None if commit is None else commit.offset,
        "end": end,
        "lag": None if commit is None or end is None else end - commit.offset,
        "leader_epoch": None if commit is None else commit.leader_epoch,
        "metadata": None if commit is None else commit.metadata,
    }


def offset_rows(client: GroupClient, log: LogOffsets, group: Group) -> list[dict[str, Any]]:
    """One row per partition with a committed offset or an assignment."""
    committed = client.committed(group.group_id)
    readers = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted({*committed, *readers})
    ends = log.ends(partitions)
    rows = []
    for partition in partitions:
        reader = readers.get(partition)
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                **position(committed.get(partition), ends[partition]),
                "member_id": reader and reader.member_id,
                "client_id": reader and reader.client_id,
                "host": reader and reader.host,
            }
        )
    return rows


def group_as_json(group: Group, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """All fields of a group; ``rows`` come from `offset_rows`."""
    return {
        "group": group.group_id,
        "type": group.type,
        "protocol_type": group.protocol_type,
        "state": group.state,
        "assignor": group.assignor or None,
        "coordinator": {
            "id": group.coordinator_id,
            "host": group.coordinator.host,
            "port": group.coordinator.port,
        },
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": [_member_as_json(member) for member in group.members],
        "offsets": rows,
    }


def _member_as_json(member: Member) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "epoch": member.epoch,
        "classic_protocol": member.uses_classic_protocol,
        "assignment": _numbers(member.assignment),
        "target_assignment": None if member.target_assignment is None else _numbers(member.target_assignment),
    }


def _numbers(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    return {topic: [each.partition for each in entries] for topic, entries in by_topic(partitions).items()}


def _written(partitions: Iterable[TopicPartition] | None) -> str:
    """``events:0,1 clicks:2``, the syntax of --topic."""
    topics = _numbers(partitions or ())
    return " ".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in topics.items()) or _NONE


def print_heading(group: Group) -> None:
    """Print a one-line summary of the group."""
    members = "1 member" if len(group.members) == 1 else f"{len(group.members)} members"
    print(f"{group.group_id}  {group.state}, {group.type}, {members}")


def print_states(groups: list[Group], verbose: bool) -> None:
    """Print a table of groups: states, assignors, coordinators."""
    columns = ["group", "state", "type", "members", "assignor", "coordinator"]
    rows: list[list[object]] = [
        [
            group.group_id,
            group.state,
            group.type,
            len(group.members),
            group.assignor or _NONE,
            f"{group.coordinator.host}:{group.coordinator.port} ({group.coordinator_id})",
        ]
        for group in groups
    ]
    if verbose:
        columns += ["epoch", "assignment epoch"]
        for row, group in zip(rows, groups, strict=True):
            row += [_or_none(group.epoch), _or_none(group.assignment_epoch)]
    print_table(columns, rows)


def print_members(group: Group, verbose: bool) -> None:
    """Print a table of members and their assignments; nothing for a group without members."""
    if not group.members:
        return
    columns = ["member", "instance", "client", "host", "partitions", "assignment"]
    rows: list[list[object]] = [
        [
            member.member_id,
            member.instance_id or _NONE,
            member.client_id,
            member.host,
            len(member.assignment),
            _written(member.assignment),
        ]
        for member in group.members
    ]
    if verbose:
        columns += ["epoch", "target assignment", "protocol"]
        for row, member in zip(rows, group.members, strict=True):
            protocol = "classic" if member.uses_classic_protocol or group.type == "classic" else "consumer"
            row += [_or_none(member.epoch), _written(member.target_assignment), protocol]
    print_table(columns, rows)


def print_offsets(rows: list[dict[str, Any]], verbose: bool) -> None:
    """Print a table of partitions: offsets, lag, members."""
    if not rows:
        print("No committed offsets or assignments.")
        return
    columns = ["topic", "partition", "committed", "end", "lag", *(["leader_epoch"] if verbose else [])]
    readers = ["member_id", "host", "client_id"]
    lines = [[row[column] if row[column] is not None else _NONE for column in columns + readers] for row in rows]
    names = [*(column.replace("_", " ") for column in columns), "member", "host", "client"]
    print_table(names, lines)


def _or_none(number: int | None) -> object:
    return _NONE if number is None else number
