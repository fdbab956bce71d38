"""What an audit reads: topics, the ends of their partitions, archives, and the tiers that must account for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..archive_layout import Layout, local_folder
from ..archive_manifest import Manifest, load_existing
from .cluster import AuditCluster, Bounds
from .ledger import Ledger, Seen, TierSummary, empty_ledger, read_ledger
from .report import PRODUCER
from .request import AuditError, AuditRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Archive:
    folder: Path
    manifest: Manifest
    tier: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is read, and which tiers must account for it."""

    request: AuditRequest
    window_ms: int
    bounds: Mapping[str, Mapping[int, Bounds]]
    # All tiers except the server, by topic.
    tiers: Mapping[str, Mapping[str, TierSummary]]
    archives: Sequence[Archive]
    notes: list[str] = field(default_factory=list)

    @property
    def first_window_ms(self) -> int | None:
        """The start of the first window; None without a limit."""
        from_ms = self.request.from_ms
        return None if from_ms is None else from_ms - from_ms % self.window_ms

    @property
    def last_window_ms(self) -> int | None:
        """The start of the last window, or slightly later; None without a limit."""
        until_ms = self.request.until_ms
        return None if until_ms is None else until_ms - self.window_ms

    @property
    def tier_names(self) -> list[str]:
        """Producers first. Each tier has a column, numbered in this order."""
        names = {name for tiers in self.tiers.values() for name in tiers}
        return sorted(names, key=lambda name: (name != PRODUCER, name))


def check_counts(cluster: AuditCluster, request: AuditRequest) -> int | None:
    """The number of partitions of the audit topic, None without one; AuditError if there is nothing to balance."""
    partitions = cluster.partitions(request.audit_topic)
    if partitions is None and not request.archives:
        raise AuditError(
            f"there is no topic {request.audit_topic} at {request.bootstrap_servers}, so there are no counts: "
            "wrap producers and consumers with moldau.spark_integration.audit.Audit, or name an --archive"
        )
    return partitions


@contextmanager
def open_ledger(spark: SparkSession, cluster: AuditCluster, request: AuditRequest) -> Iterator[Ledger]:
    """The books in the audit topic, inside a ``with`` block."""
    partitions = check_counts(cluster, request)
    if partitions is None:
        yield empty_ledger()
        return
    bounds = cluster.bounds(request.audit_topic, partitions)
    with read_ledger(
        spark, request.bootstrap_servers, request.audit_topic, bounds, request.client, request.window_ms
    ) as ledger:
        yield ledger


def make_plan(cluster: AuditCluster, request: AuditRequest, ledger: Ledger) -> Plan:
    window_ms = request.window_ms if request.window_ms is not None else ledger.longest_window_ms
    archives = _archives(request.archives)
    archived = [archive.manifest.topic for archive in archives]
    known = sorted({*ledger.topics, *archived})
    notes = list(ledger.notes)
    bounds = {}
    for topic in request.topics or known:
        if topic not in known:
            raise AuditError(f"there are no counts of {topic}; there are counts of {', '.join(known) or 'nothing'}")
        problem, found = _bounds(cluster, topic, request.from_ms, window_ms)
        if problem and request.topics:
            raise AuditError(problem)
        if problem:
            notes.append(f"{problem}; it was skipped")
        else:
            bounds[topic] = found
    tiers = {topic: dict(ledger.topics.get(topic, {})) for topic in bounds}
    for archive in archives:
        if archive.manifest.topic in bounds:
            tiers[archive.manifest.topic][archive.tier] = _archive_summary(archive.manifest, window_ms)
    return Plan(request, window_ms, bounds, tiers, [each for each in archives if each.manifest.topic in bounds], notes)


def _bounds(
    cluster: AuditCluster, topic: str, from_ms: int | None, window_ms: int
) -> tuple[str | None, dict[int, Bounds]]:
    """The ranges that are read of a topic, or the reason why it cannot be audited."""
    partitions = cluster.partitions(topic)
    if partitions is None:
        return f"the topic {topic} no longer exists", {}
    if cluster.is_compacted(topic):
        return f"the topic {topic} is compacted, so its log does not keep every record", {}
    return None, cluster.bounds(topic, partitions, None if from_ms is None else from_ms - from_ms % window_ms)


def _archives(folders: Sequence[str]) -> list[Archive]:
    loaded = [(folder := local_folder(text), load_existing(Layout(folder))) for text in folders]
    topics = [manifest.topic for _, manifest in loaded]
    return [
        Archive(folder, manifest, "archive" if topics.count(manifest.topic) == 1 else f"archive {folder.name}")
        for folder, manifest in loaded
    ]


def _archive_summary(manifest: Manifest, window_ms: int) -> TierSummary:
    """The summary of an archive, which must account for records after its first one, like a consumer."""
    first_window = min((piece.oldest_ms for piece in manifest.pieces), default=0)
    first_window -= first_window % window_ms
    return TierSummary(
        first_window,
        partitions={
            partition: Seen(found.first_offset, first_window, found.last_offset)
            for partition, found in manifest.partitions.items()
        },
    )
