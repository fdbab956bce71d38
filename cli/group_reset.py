"""The plans of ``moldau groups reset``: the new offsets of each group, from options or from a file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple, TextIO

from .cluster import explain
from .connection import PeerError
from .failure import Failure
from .group_client import HINTS, Committed, GroupClient, TopicPartition
from .group_offsets import LogOffsets, Offsets, Row, read_rows, written_rows
from .output import print_json, print_table


class Plan(NamedTuple):
    """The committed and the new offsets of a group."""

    group_id: str
    committed: Mapping[TopicPartition, Committed]
    new: Offsets


def new_offsets(
    way: str,
    value: Any,
    partitions: list[TopicPartition],
    committed: Mapping[TopicPartition, Committed],
    log: LogOffsets,
) -> Offsets:
    """The new offsets that an option selects for these partitions, which exist and have leaders."""
    match way:
        case "--to-earliest":
            return log.earliest(partitions)
        case "--to-latest":
            return log.latest(partitions)
        case "--to-current":
            behind = [partition for partition in partitions if partition not in committed]
            here = {partition: committed[partition].offset for partition in partitions if partition in committed}
            return here | (log.latest(behind) if behind else {})
        case "--to-offset":
            return log.within(dict.fromkeys(partitions, value))
        case "--to-datetime":
            return log.at_time(partitions, max(0, value))
        case "--by-duration":
            return log.at_time(partitions, max(0, _now_ms() - value))
    missing = [str(partition) for partition in partitions if partition not in committed]
    if missing:
        raise Failure(f"no committed offset to shift for {', '.join(missing)}; use --to-offset")
    return log.within({partition: committed[partition].offset + value for partition in partitions})


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def rows_of(file: TextIO | None) -> list[Row]:
    """The lines of an offsets file; empty without a file. Raises Failure for a malformed file."""
    if file is None:
        return []
    try:
        return read_rows(file.read())
    except (ValueError, UnicodeDecodeError) as error:
        raise Failure(f"{file.name}: {error}") from error


def offsets_of(rows: list[Row], group_id: str, *, alone: bool) -> Offsets:
    """A file's offsets for a group; lines without a group apply to a single group."""
    if not alone and any(row.group_id is None for row in rows):
        raise Failure("the file's lines have no group column, so it applies to one group; give exactly one GROUP")
    return {row.partition: row.offset for row in rows if row.group_id in (None, group_id)}


def execute_plans(plan: list[Plan], client: GroupClient) -> tuple[list[Plan], list[str]]:
    """Commit the new offsets group by group. Returns the plans that succeeded and the error messages.

    An error of one group does not affect the others. If the connection fails, the outcome of the current group is
    unknown and the remaining groups are skipped.
    """
    moved: list[Plan] = []
    problems: list[str] = []
    for number, (group_id, committed, new) in enumerate(plan):
        try:
            errors = client.commit(group_id, new)
        except Failure as failure:
            problems.append(f"cannot reset {group_id}: {failure.message}")
            continue
        except PeerError as problem:
            problems.append(
                f"unknown whether {group_id} was reset: {problem}; check with `moldau groups offsets {group_id}`"
            )
            problems += [f"{each.group_id} was not reset" for each in plan[number + 1 :]]
            break
        problems += [
            f"cannot reset {group_id} in {partition}: {explain(code, None, HINTS)}"
            for partition, code in errors.items()
        ]
        done = {partition: offset for partition, offset in new.items() if partition not in errors}
        moved.append(Plan(group_id, committed, done))
    return moved, problems


def print_plan(plan: list[Plan], *, alone: bool, export: bool, as_json: bool) -> None:
    """Print old and new offsets, or the new ones in the format of `read_rows`."""
    if export:
        rows = [
            Row(None if alone else group_id, partition, offset)
            for group_id, _, new in plan
            for partition, offset in sorted(new.items())
        ]
        print(written_rows(rows), end="")
        return
    lines = [
        {
            "group": group_id,
            "topic": partition.topic,
            "partition": partition.partition,
            "committed": committed[partition].offset if partition in committed else None,
            "new_offset": offset,
        }
        for group_id, committed, new in plan
        for partition, offset in sorted(new.items())
    ]
    if as_json:
        print_json(lines)
    elif lines:
        print_table(("group", "topic", "partition", "committed", "new offset"), [list(line.values()) for line in lines])
