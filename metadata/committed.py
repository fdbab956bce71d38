"""The committed metadata: the image that brokers follow, its listeners, and the snapshots of it.

The image contains only what is durable. Startup replays the latest snapshot and the log after it (`replay`). Later
changes come from the controller: `publish` replaces the image, and `notify` calls the listeners. A snapshot is built
from the image, and represents all of the log before it.

A broker without its own controller uses this module and an observer of the log in place of `controller.py`
(`followed.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from ..protocol.errors import KafkaError
from .batches import MetadataLogError
from .features import KRAFT_VERSION, METADATA_VERSION, SUPPORTED_FEATURES
from .image import MetadataDelta, MetadataImage, MetadataUpdate
from .records import RemoveTopicRecord
from .transactions import TransactionFilter

if TYPE_CHECKING:
    from ..protocol.steps import Steps
    from .metadata_log import StoredMetadataLog
    from .snapshots import SnapshotFile

logger = logging.getLogger(__name__)

ImageListener = Callable[[MetadataDelta, MetadataImage], "Steps[None] | None"]
"""Applies a change; in steps, if it returns them. Other changes may be published between the steps, so listeners use
the current image."""

Check = Callable[[MetadataImage, Collection[bytes]], None]
"""Called before the first record is written, with the image and the ids of topics whose deletion is in the log. Raises
to refuse startup."""

_SNAPSHOT_MIN_RECORDS: Final = 5_000
"""If the log has more records than this plus the image's records, startup requests a snapshot, and shutdown writes one.
Each restart elects all leaders again, and without a snapshot the next restart would have to read those records, too."""


def check_metadata_version(image: MetadataImage) -> None:
    """Raise MetadataLogError if this software does not support the cluster's metadata.version."""
    level, supported = image.metadata_version, SUPPORTED_FEATURES[METADATA_VERSION]
    if level and level not in supported:
        raise MetadataLogError(
            f"the cluster's metadata.version {level} is not supported; supported: {supported}. Lower it with "
            "kafka-features.sh downgrade, or use another version of Moldau"
        )


class CommittedMetadata:
    """See the module docstring."""

    def __init__(self, log: StoredMetadataLog, node_id: int, cluster_id: str, now_ms: int) -> None:
        self._log = log
        self._node_id = node_id
        self._last_snapshot_ms = now_ms
        self._found_long_log = False  # startup found a long log
        self._notifying = 0  # number of changes that listeners are being notified of
        self._image_listeners: list[ImageListener] = []
        self.image = MetadataImage(cluster_id=cluster_id)
        """The current state, replaced with every committed change."""
        self.was_served_by_this_version = False
        """Whether this software made the last registration of the broker before this startup."""

    def replay(self, now_ms: int, check: Check | None) -> bool:
        """Replay the log to its end; once, at startup. Returns whether a metadata transaction is open at the end.

        Raises MetadataLogError for a log that cannot be read or is too new, and the exceptions of `check`.
        """
        update = MetadataUpdate(self.image)
        transactions = TransactionFilter()
        offset = epoch = timestamp_ms = -1
        deleted_topics: set[bytes] = set()
        for batch in self._log.replay(now_ms):
            for record in transactions.feed(batch.records):
                update.replay(record)
                if isinstance(record, RemoveTopicRecord):
                    deleted_topics.add(record.topic_id)
            offset, epoch, timestamp_ms = batch.next_offset - 1, batch.epoch, batch.timestamp_ms
        self.image, _ = update.finish(offset=offset, epoch=epoch, timestamp_ms=timestamp_ms)
        last = self.image.brokers.get(self._node_id)
        # Each version of Apache Kafka has other features, or another range of metadata.version.
        self.was_served_by_this_version = last is not None and last.features == SUPPORTED_FEATURES
        check_metadata_version(self.image)
        if check is not None:
            check(self.image, deleted_topics)
        if self._log.kraft_version:
            features = {**self.image.features, KRAFT_VERSION: self._log.kraft_version}
            self.image = self.image._replace(features=features)
        self._found_long_log = self._log_is_long()
        return transactions.is_open

    # Changes

    @property
    def is_notifying(self) -> bool:
        """Whether listeners are applying a change."""
        return self._notifying > 0

    def subscribe(self, listener: ImageListener) -> None:
        """Call `listener(delta, image)` after every change from now on, in the order of subscription."""
        self._image_listeners.append(listener)

    def unsubscribe_all(self) -> None:
        """Stop calling listeners."""
        self._image_listeners.clear()

    def publish(self, image: MetadataImage) -> None:
        """Publish a durable change. `notify` must follow."""
        self.image = image

    def notify(self, delta: MetadataDelta) -> Steps[None]:
        """Call all listeners, in steps."""
        self._notifying += 1
        try:
            for listener in tuple(self._image_listeners):
                try:
                    steps = listener(delta, self.image)
                    if steps is not None:
                        yield from steps
                except Exception:
                    # The change is committed; a failing listener must not keep the others from applying it.
                    logger.exception(
                        "A metadata listener failed with an unexpected error at offset %d", delta.after.offset
                    )
        finally:
            self._notifying -= 1

    # Snapshots

    def snapshot_reason(self, now_ms: int) -> str | None:
        """The reason why a snapshot is due, as text; None if none is due. This check is very cheap."""
        latest = self._log.latest_snapshot
        if latest is not None and latest.end_offset == self._log.end_offset:
            return None
        settings = self._log.settings
        if self._log.bytes_after_snapshot >= settings.snapshot_bytes:
            return f"the log has {self._log.bytes_after_snapshot} bytes after the latest snapshot"
        if 0 < settings.snapshot_interval_ms <= now_ms - self._last_snapshot_ms:
            return f"the metadata has changed since the latest snapshot {now_ms - self._last_snapshot_ms} ms ago"
        if self._found_long_log:
            return f"the log has {self._log.records_after_snapshot} records after the latest snapshot"
        return None

    def begin_snapshot(self, now_ms: int) -> SnapshotFile:
        """Begin a snapshot of the current image. Changes may continue while it is encoded, written and finished.

        The log must be flushed before `finish`. Only one snapshot may be in progress, and only while the image contains
        the whole log. Raises KafkaError with KAFKA_STORAGE_ERROR, or OSError; then nothing has changed.
        """
        from .image_records import image_records

        return self._log.begin_snapshot(image_records(self.image), timestamp_ms=self.image.timestamp_ms, now_ms=now_ms)

    def end_snapshot(self, snapshot: SnapshotFile, now_ms: int) -> None:
        """The snapshot is finished. A discarded snapshot needs no such call."""
        self._log.end_snapshot(snapshot)
        self._last_snapshot_ms = now_ms
        self._found_long_log = False

    def write_snapshot(self, now_ms: int) -> None:
        """Write a whole snapshot without slices. Raises KafkaError, OSError; then the old state is unchanged."""
        snapshot = self.begin_snapshot(now_ms)
        try:
            self._log.flush(now_ms)
            while snapshot.encode():
                if snapshot.wants_to_write:
                    snapshot.write()
            snapshot.finish()
        except (OSError, KafkaError):
            snapshot.discard()
            raise
        self.end_snapshot(snapshot, now_ms)

    def write_last_snapshot(self, now_ms: int, may_write: Callable[[], bool]) -> None:
        """At a clean shutdown: write a snapshot if that makes the next startup faster and `may_write` permits it."""
        if not self._log_is_long() or not may_write():
            return
        try:
            self.write_snapshot(now_ms)
        except (OSError, KafkaError) as error:
            # The log contains the same state; only startup is slower.
            logger.warning("Cannot write a metadata snapshot: %s", error)

    def _log_is_long(self) -> bool:
        """Whether a new snapshot would make startup faster."""
        return self._log.records_after_snapshot > _SNAPSHOT_MIN_RECORDS + self.image.record_count
