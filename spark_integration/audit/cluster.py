"""Which offsets are read: the ends of all partitions, fixed once, so that every look at a topic sees the same records.

The audit topic's ends are asked for before those of the topics that it tells of. So whatever has been counted is in
what is read of the topic; the other way round the newest counts would tell of records that nobody has seen.
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
    """What is read of a partition: from ``start`` to before ``end``, which is as far as is committed.

    The log begins at ``log_start``. At ``high_watermark`` and after, there is nothing; between ``end`` and there,
    nobody can say yet.
    """

    log_start: int
    start: int
    end: int
    high_watermark: int


class AuditCluster:
    """The server at an address, as far as an audit asks it."""

    def __init__(self, bootstrap_servers: str, client: Mapping[str, str]) -> None:
        with explained():
            self._cluster = KafkaCluster(bootstrap_servers, client)
        from confluent_kafka.admin import AdminClient

        self._admin: AdminClient = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0, **client})

    def partitions(self, topic: str) -> int | None:
        """How many partitions a topic has; None where there is none of this name."""
        with explained():
            found = self._cluster.topic(topic)
        return None if found is None else found.partition_count

    def is_compacted(self, topic: str) -> bool:
        """The log of this topic drops records that were overwritten."""
        with explained():
            policy = self._cluster.configs(topic).get("cleanup.policy")
        return "compact" in (policy or "")

    def bounds(self, topic: str, partition_count: int, from_ms: int | None = None) -> dict[int, Bounds]:
        """By partition, from the first record at or after ``from_ms``, as far as is committed.

        A record before that one is older than ``from_ms``, wherever it was meant to be; none is left out that belongs
        to a window from then on.
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
            # None at or after that time is -1.
            starts = {each: ends[each] if found[each] < 0 else found[each] for each in partitions}
        bounds = {}
        for each in partitions:
            # Records may be deleted, or added, between the questions.
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
            raise AuditError(f"cannot see the offsets of {topic}: {error}") from error


@contextmanager
def explained() -> Iterator[None]:
    """What an archive cannot do is an error of the audit."""
    try:
        yield
    except ArchiveError as error:
        raise AuditError(str(error)) from error
