"""The targets of an offset reset: the selected partitions and the new offset of each.

Only `LogOffsets` sends requests, and nothing here writes. An offset out of range is clamped to the partition's first
offset or end, with a warning; a time after the last record becomes the end of the partition.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from ..config.integers import bounded_integer
from ..protocol.messages.metadata import MetadataResponseTopic
from .cluster import EARLIEST_OFFSET, LATEST_OFFSET, Cluster, explain
from .failure import Failure
from .group_client import HINTS, TopicPartition

Offsets = dict[TopicPartition, int]

_NO_OFFSET: Final = -1


class WantedTopic(NamedTuple):
    """A requested topic; ``partitions`` None selects all of them."""

    name: str
    partitions: tuple[int, ...] | None


def parse_topic(text: str) -> WantedTopic:
    """Parse ``events`` or ``events:0,1,2``. Raises ValueError."""
    name, colon, numbers = text.partition(":")
    if not colon and name:
        return WantedTopic(name, None)
    partitions = {bounded_integer(part, 2**31 - 1) for part in numbers.split(",")}
    if not name or None in partitions:
        raise ValueError(f"{text!r} is neither TOPIC nor TOPIC:0,1,2")
    return WantedTopic(name, tuple(sorted(partition for partition in partitions if partition is not None)))


class Row(NamedTuple):
    """A line of an offsets file; ``group_id`` is None in a file for a single group."""

    group_id: str | None
    partition: TopicPartition
    offset: int


def read_rows(text: str) -> list[Row]:
    """Parse lines ``topic,partition,offset`` or ``group,topic,partition,offset``. Raises ValueError with the line."""
    rows = []
    for number, cells in enumerate(csv.reader(io.StringIO(text)), 1):
        cells = [cell.strip() for cell in cells]
        if not any(cells):
            continue
        *group, topic, partition, offset = cells if len(cells) in (3, 4) else (*cells, "", "", "")
        index, position = bounded_integer(partition, 2**31 - 1), bounded_integer(offset, 2**63 - 1)
        if len(cells) not in (3, 4) or not topic or index is None or position is None:
            raise ValueError(f"line {number} is neither topic,partition,offset nor group,topic,partition,offset")
        rows.append(Row(group[0] if group else None, TopicPartition(topic, index), position))
    return rows


def written_rows(rows: Iterable[Row]) -> str:
    """The inverse of `read_rows`, in the format of Kafka's kafka-consumer-groups tool."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in rows:
        group = [] if row.group_id is None else [row.group_id]
        writer.writerow([*group, row.partition.topic, row.partition.partition, row.offset])
    return out.getvalue()


class LogOffsets:
    """The log offsets of partitions, from ListOffsets."""

    def __init__(self, cluster: Cluster, warn: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._warn = warn

    def partitions(self, wanted: Iterable[WantedTopic]) -> list[TopicPartition]:
        """The selected partitions. Raises Failure for an unknown topic."""
        wanted = list(wanted)
        topics = {topic.name or "": topic for topic in self._topics(each.name for each in wanted)}
        found: dict[TopicPartition, None] = {}
        for each in wanted:
            numbers = each.partitions
            if numbers is None:
                numbers = tuple(sorted(partition.partition_index for partition in topics[each.name].partitions))
            found.update((TopicPartition(each.name, number), None) for number in numbers)
        return list(found)

    def check(self, partitions: Iterable[TopicPartition]) -> None:
        """Raise Failure unless all of these partitions exist and have a leader."""
        wanted = list(partitions)
        leaders = {
            TopicPartition(topic.name or "", partition.partition_index): partition.leader_id
            for topic in self._topics(partition.topic for partition in wanted)
            for partition in topic.partitions
        }
        missing = [str(partition) for partition in wanted if partition not in leaders]
        if missing:
            raise Failure(f"unknown partition {', '.join(missing)}; `moldau topics describe` lists the partitions")
        leaderless = [str(partition) for partition in wanted if leaders[partition] < 0]
        if leaderless:
            raise Failure(f"no leader for {', '.join(leaderless)}, so the log offsets are unknown; run `moldau doctor`")

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The first offset of each partition."""
        return self._known(partitions, EARLIEST_OFFSET)

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The offset after the last record of each partition."""
        return self._known(partitions, LATEST_OFFSET)

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Like `latest`, but None for partitions that are deleted or have no leader."""
        wanted = list(partitions)
        metadata = self._cluster.topics(sorted({partition.topic for partition in wanted})) if wanted else []
        positions = self._cluster.positions([topic for topic in metadata if topic.error_code == 0], LATEST_OFFSET)
        return {partition: positions[partition].offset if partition in positions else None for partition in wanted}

    def at_time(self, partitions: Iterable[TopicPartition], timestamp_ms: int) -> Offsets:
        """The offset of each partition's first record at or after the time; the end if there is none."""
        wanted = list(partitions)
        found = self._known(wanted, timestamp_ms)
        behind = [partition for partition in wanted if found[partition] == _NO_OFFSET]
        for partition in behind:
            self._warn(f"{partition} has no record at or after this time; using its end offset")
        return found | (self.latest(behind) if behind else {})

    def within(self, offsets: Mapping[TopicPartition, int]) -> Offsets:
        """The same offsets, clamped to the first and end offset of each partition."""
        earliest, latest = self.earliest(offsets), self.latest(offsets)
        kept = {}
        for partition, offset in offsets.items():
            first, end = earliest[partition], latest[partition]
            if offset > end:
                self._warn(f"offset {offset} is beyond the end of {partition}; using the end offset {end}")
            elif offset < first:
                self._warn(f"offset {offset} is before the start of {partition}; using the first offset {first}")
            kept[partition] = min(max(offset, first), end)
        return kept

    def _known(self, partitions: Iterable[TopicPartition], timestamp: int) -> Offsets:
        wanted = list(partitions)
        topics = [_only(topic, wanted) for topic in self._topics(partition.topic for partition in wanted)]
        positions = self._cluster.positions(topics, timestamp)
        unknown = [str(partition) for partition in wanted if partition not in positions]
        if unknown:
            raise Failure(f"the leader of {', '.join(unknown)} did not return its offsets; run `moldau doctor`")
        return {partition: positions[partition].offset for partition in wanted}

    def _topics(self, names: Iterable[str]) -> list[MetadataResponseTopic]:
        distinct = sorted(set(names))
        topics = self._cluster.topics(distinct) if distinct else []
        failed = [f"{topic.name}: {explain(topic.error_code, None, HINTS)}" for topic in topics if topic.error_code]
        if failed:
            raise Failure("\n".join(failed))
        return topics


def _only(topic: MetadataResponseTopic, partitions: list[TopicPartition]) -> MetadataResponseTopic:
    """The topic with only the given partitions."""
    numbers = {partition.partition for partition in partitions if partition.topic == topic.name}
    return MetadataResponseTopic(
        name=topic.name, partitions=[each for each in topic.partitions if each.partition_index in numbers]
    )
