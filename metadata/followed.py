"""The metadata of a broker whose controllers are other processes: it follows their log.

    metadata = FollowedMetadata.open(file_system, data_directory, config, ..., now_ms=now_ms)
    metadata.observer           what to request from which controller (`observer.py`)
    metadata.handle(response)   in steps: writes the copy of the log, publishes what is committed, calls the listeners
    metadata.applied_offset     the last offset that the listeners have applied, for heartbeats

The image begins with the latest snapshot in the copy. Records that follow it are replayed when the leader has reported
a high watermark beyond them: which of them are committed is unknown after a restart. A metadata transaction (KIP-868)
is published when it has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..protocol.errors import KafkaError
from ..protocol.steps import completed
from .batches import DamagedError, MetadataBatch
from .broker_metadata import BrokerMetadata
from .committed import CommittedMetadata, check_metadata_version
from .context import ControllerContext
from .difference import difference
from .features import KEPT_FEATURES, KRAFT_VERSION, SUPPORTED_FEATURES
from .image import MetadataImage, MetadataUpdate
from .log_copy import MetadataLogCopy
from .observer import (
    Append,
    Committed,
    Identity,
    LeaderKnown,
    Observer,
    ObserverSettings,
    SnapshotComplete,
    SnapshotPiece,
    Truncate,
)
from .settings import MetadataLogSettings
from .transactions import TransactionFilter

if TYPE_CHECKING:
    from ..config.sources import BrokerConfig
    from ..log.files import FileSystem
    from ..protocol.steps import Steps
    from .checkpoint import SnapshotId
    from .image import MetadataDelta
    from .log_copy import Blocking
    from .observer import Address, Effect
    from .records import MetadataRecord

T = TypeVar("T")

_RECORDS_PER_STEP: Final = 100

REGISTERED_FEATURES = {**SUPPORTED_FEATURES, **KEPT_FEATURES}
"""The ranges that a broker registers with remote controllers. They reject a broker that does not name every finalized
feature. So the features that this software keeps and does not implement are included; it advertises none of their APIs.
"""


def immediately(function: Callable[[], T]) -> Steps[T]:
    """A `Blocking` for programs without an event loop."""
    return function()
    yield 0


class FollowedMetadata(BrokerMetadata):
    """See the module docstring. Create it with `open`."""

    def __init__(
        self, copy: MetadataLogCopy, observer: Observer, context: ControllerContext, cluster_id: str, now_ms: int
    ) -> None:
        committed = CommittedMetadata(copy, context.node_id, cluster_id, now_ms)
        super().__init__(copy, committed, context, SUPPORTED_FEATURES)
        self._copy = copy
        self.observer = observer
        self._transactions = TransactionFilter()
        self._update: MetadataUpdate | None = None  # replayed and not published
        self._is_installing = False
        self._epoch_of_broker = -1
        self._failed: Callable[[OSError], None] | None = None
        self.applied_offset = -1
        """The last offset that the listeners have applied."""

    @classmethod
    def open(
        cls,
        file_system: FileSystem,
        data_directory: str,
        config: BrokerConfig,
        *,
        node_id: int,
        cluster_id: str,
        directory_id: bytes,
        bootstrap: Sequence[Address],
        voters: Mapping[int, Address] | None = None,
        first: int = 0,
        now_ms: int,
    ) -> FollowedMetadata:
        """Open the copy in a directory. `directory_id` is that of the directory; for the others see `Observer`.

        Raises MetadataLogError if the copy cannot be read or is too new, KafkaError or OSError after an I/O error.
        """
        copy = MetadataLogCopy.open(
            file_system, data_directory, MetadataLogSettings.of(config), node_id=node_id, now_ms=now_ms
        )
        try:
            latest = copy.latest_snapshot
            observer = Observer(
                Identity(node_id, cluster_id, directory_id),
                bootstrap,
                copy,
                voters=voters,
                epoch=copy.epoch,
                high_watermark=latest.end_offset if latest is not None and latest.end_offset else -1,
                first=first,
                settings=ObserverSettings(
                    fetch_max_bytes=config.int("controller.quorum.fetch.max.bytes"),
                    snapshot_max_bytes=config.int("controller.quorum.fetch.snapshot.max.bytes"),
                    retry_backoff_ms=config.int("controller.quorum.retry.backoff.ms"),
                ),
            )
            metadata = cls(copy, observer, ControllerContext(node_id, config), cluster_id, now_ms)
            snapshot = copy.snapshot_batch()
            if snapshot is not None:
                completed(metadata._publish_snapshot(snapshot))
        except BaseException:
            copy.abandon()
            raise
        return metadata

    @property
    def broker_epoch(self) -> int:
        """The epoch with which this broker is registered; -1 before."""
        return self._epoch_of_broker

    def registered(self, broker_epoch: int) -> None:
        """The controller has registered this broker with this epoch."""
        self._epoch_of_broker = broker_epoch

    def on_log_failure(self, callback: Callable[[OSError], None]) -> None:
        """Call `callback` if the files of the copy fail: after that the metadata cannot be followed."""
        self._copy.on_failure = callback

    # Following

    def handle(self, response: Any, now_ms: int, blocking: Blocking = immediately) -> Steps[None]:
        """Apply a response to `observer.request()`. Only one response is applied at a time.

        Raises:
            ObserverError: the quorum cannot be followed any longer.
            MetadataLogError: a record or a feature level is newer than this software.
        """
        effects = self.observer.handle(response)
        try:
            delta = yield from self._apply(effects, now_ms, blocking)
        except DamagedError as error:
            self.observer.failed(str(error))
            return
        except (KafkaError, OSError) as error:
            text = error.message or str(error) if isinstance(error, KafkaError) else error.strerror or str(error)
            self.observer.failed(f"cannot write the copy of the metadata log: {text}")
            return
        if delta is not None:
            yield from self._committed.notify(delta)
            self.applied_offset = max(self.applied_offset, delta.after.offset)

    def _apply(self, effects: Sequence[Effect], now_ms: int, blocking: Blocking) -> Steps[MetadataDelta | None]:
        copy = self._copy
        delta: MetadataDelta | None = None
        for effect in effects:
            match effect:
                case LeaderKnown():
                    copy.set_leader(effect.leader_id, effect.epoch)
                case Truncate():
                    copy.truncate(effect.offset, now_ms)
                case Append():
                    copy.append_fetched(effect.records, effect.epoch, now_ms)
                case SnapshotPiece():
                    copy.receive_snapshot(effect.id, effect.position, effect.data)
                case SnapshotComplete():
                    delta = yield from self._install(effect.id, now_ms, blocking)
                case Committed():
                    pass  # below, together with the records
        return delta or (yield from self._replay_committed())

    def _install(self, snapshot: SnapshotId, now_ms: int, blocking: Blocking) -> Steps[MetadataDelta]:
        self._is_installing = True
        try:
            batch = yield from self._copy.install_snapshot(snapshot, now_ms, blocking)
            return (yield from self._publish_snapshot(batch))
        finally:
            self._is_installing = False

    def _replay_committed(self) -> Steps[MetadataDelta | None]:
        """Replay the committed records that follow the image, and publish the image that they result in."""
        copy = self._copy
        last: MetadataBatch | None = None
        for stored in copy.committed_batches(self.observer.high_watermark):
            if self._update is None:
                self._update = MetadataUpdate(self.image)
            batch = yield from copy.replay_batch(stored)
            yield from _replay(self._update, self._transactions.feed(batch.records))
            last = batch
        if last is None or self._update is None or self._transactions.is_open:
            return None
        yield from self._update.prepare()
        update, self._update = self._update, None
        image, delta = update.finish(offset=last.next_offset - 1, epoch=last.epoch, timestamp_ms=last.timestamp_ms)
        image = self._with_kraft_version(image)
        return self._publish(delta._replace(after=image))

    def _publish_snapshot(self, batch: MetadataBatch) -> Steps[MetadataDelta]:
        self._update = None
        self._transactions = TransactionFilter()
        update = MetadataUpdate(MetadataImage(cluster_id=self.cluster_id))
        yield from _replay(update, batch.records)
        yield from update.prepare()
        image, _ = update.finish(offset=batch.next_offset - 1, epoch=batch.epoch, timestamp_ms=batch.timestamp_ms)
        delta = yield from difference(self.image, self._with_kraft_version(image))
        return self._publish(delta)

    def _publish(self, delta: MetadataDelta) -> MetadataDelta:
        check_metadata_version(delta.after)
        self._committed.publish(delta.after)
        return delta

    def _with_kraft_version(self, image: MetadataImage) -> MetadataImage:
        """kraft.version is in control records, and reported as a feature."""
        level = self._copy.kraft_version
        if image.features.get(KRAFT_VERSION, 0) == level:
            return image
        features = {name: each for name, each in image.features.items() if name != KRAFT_VERSION}
        return image._replace(features={**features, KRAFT_VERSION: level} if level else features)

    # Snapshots, and the end

    def snapshot_reason(self, now_ms: int) -> str | None:
        """The reason why a snapshot is due; none is while the image is behind the records that were replayed: during a
        replay or the installation of a snapshot, and while the end of a metadata transaction is missing."""
        return None if self._is_behind else super().snapshot_reason(now_ms)

    @property
    def _is_behind(self) -> bool:
        return self._update is not None or self._is_installing

    def close(self, now_ms: int, *, may_write_snapshot: Callable[[], bool] = lambda: True) -> None:
        """Close the copy; see `BrokerMetadata.close`. The controllers are not involved."""
        self._committed.unsubscribe_all()
        try:
            if not self._is_behind:
                self._committed.write_last_snapshot(now_ms, may_write_snapshot)
            self._copy.close(now_ms)
        except BaseException:
            self._copy.abandon()
            raise


def _replay(update: MetadataUpdate, records: Iterable[MetadataRecord]) -> Steps[None]:
    for count, record in enumerate(records, 1):
        update.replay(record)
        if not count % _RECORDS_PER_STEP:
            yield 0
