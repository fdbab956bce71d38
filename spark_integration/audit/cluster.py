"""Which offsets are read: the ends of all partitions, fixed once, so that every scan of a topic has the same records.

The ends of the audit topic are fetched before those of the counted topics. So each counted record is within the range
that is read of its topic. In the other order, the newest counts would refer to records outside of the range.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..archive_cluster import KafkaCluster
from ..archive_layout import ArchiveError
from .request import AuditError

_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """The range that is read of a partition: from ``start`` to before ``end``, which is the last stable offset.

    The log begins at ``log_start``. There are no records at ``high_watermark`` and after. Records between ``end`` and
    ``high_watermark`` are undecided.
    """

    log_start: int
    start: int
    end: int
    high_watermark: int


class AuditCluster:
    """The queries that an audit makes to the server at an address."""

    def __init__(self, bootstrap_servers: str, client: Mapping[str, str]) -> None:
        with explained():
            self._cluster = KafkaCluster(bootstrap_servers, client)
        from confluent_kafka.admin import AdminClient

        self._admin: AdminClient = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0, **client})

    def partitions(self, topic: str) -> int | None:
        """The number of partitions of a topic; None if there is no topic with this name."""
        with explained():
            found = self._cluster.topic(topic)
        return None if found is None else found.partition_count

    def is_compacted(self, topic: str) -> bool:
        """Whether the log of this topic drops overwritten records."""
        with explained():
            policy = self._cluster.configs(topic).get("cleanup.policy")
        return "compact" in (policy or "")

    def bounds(self, topic: str, partition_count: int, from_ms: int | None = None) -> dict[int, Bounds]:
        """The range of each partition, from the first record at or after ``from_ms`` to the last stable offset.

        A record before the first one is older than ``from_ms``, whatever its partition. So no record of a window from
        that time on is omitted.
        """
        from confluent_kafka import IsolationLevel
        from confluent_kafka.admin import OffsetSpec

        partitions = range(partition_count)
        high_watermarks = self._offsets(topic, partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        ends = self._offsets(topic, partitions, OffsetSpec.latest())
        log_starts = self._offsets(topic, partitions, OffsetSpec.earliest())
        starts = log_starts
        if from_ms is not None:
            found = self._offsets(topic, partitions, OffsetSpec.for_timestamp(from_ms))
            # -1 if there is no record at or after that time.
            starts = {each: ends[each] if found[each] < 0 else found[each] for each in partitions}
        bounds = {}
        for each in partitions:
            # Records may be deleted or added between the requests.
            end = max(ends[each], log_starts[each])
            start = min(max(starts[each], log_starts[each]), end)
            bounds[each] = Bounds(log_starts[each], start, end, high_watermarks[each])
        return bounds

    def _offsets(self, topic: str, partitions: range, spec: Any, isolation_level: Any = None) -> dict[int, int]:
        from confluent_kafka import IsolationLevel, KafkaException, TopicPartition

        answers = self._admin.list_offsets(
            {TopicPartition(topic, each): spec for each in partitions},
            isolation_level=IsolationLevel.READ_COMMITTED if isolation_level is None else isolation_level,
            request_timeout=_TIMEOUT_S,
        )
        try:
            return {where.partition: answer.result().offset for where, answer in answers.items()}
        except KafkaException as error:
            raise AuditError(f"cannot read the offsets of {topic}: {error}") from error


@contextmanager
def explained() -> Iterator[None]:
    """Raises errors of an archive as errors of the audit."""
    try:
        yield
    except ArchiveError as error:
        raise AuditError(str(error)) from error
