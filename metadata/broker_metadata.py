"""What a broker uses of the metadata, wherever the controller is: the committed image, its listeners, and snapshots.

`quorum.Metadata` is the metadata of a node that is broker and controller. `followed.FollowedMetadata` is the metadata
of a broker that copies the log from remote controllers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .features import reported_features

if TYPE_CHECKING:
    from ..config.sources import BrokerConfig
    from ..log.partition_log import Log
    from .committed import CommittedMetadata, ImageListener
    from .context import ControllerContext
    from .controller import Change
    from .image import MetadataImage
    from .metadata_log import StoredMetadataLog
    from .registrations import VersionRange
    from .snapshots import SnapshotFile


class BrokerMetadata(ABC):
    """See the module docstring."""

    def __init__(
        self,
        log: StoredMetadataLog,
        committed: CommittedMetadata,
        context: ControllerContext,
        supported_features: Mapping[str, VersionRange],
    ) -> None:
        self._stored = log
        self._committed = committed
        self._context = context
        self.settings = log.settings
        self.supported_features = supported_features
        """Supported version ranges by feature, as this broker registers them."""

    @property
    def image(self) -> MetadataImage:
        """The committed state."""
        return self._committed.image

    @property
    def context(self) -> ControllerContext:
        """The settings of this node, for decisions."""
        return self._context

    @property
    def node_id(self) -> int:
        return self._context.node_id

    @property
    def cluster_id(self) -> str:
        return self.image.cluster_id

    @property
    def broker_epoch(self) -> int:
        """The epoch with which this broker is registered."""
        return self.image.brokers[self.node_id].epoch

    @property
    def finalized_features(self) -> dict[str, int]:
        """Finalized levels that clients may use here, for ApiVersions; their epoch is `image.offset`."""
        return reported_features(self.image.features)

    @property
    def broker_config(self) -> BrokerConfig:
        """The effective settings of the node: the static settings, overridden with the dynamic ones of the image."""
        return self._context.broker_config(self.image)

    @property
    def was_served_by_this_version(self) -> bool:
        """Whether this software made the last registration of the broker before this startup."""
        return self._committed.was_served_by_this_version

    @property
    def last_pending(self) -> Change | None:
        """The latest change that waits for a sync, if this node decides changes."""
        return None

    @property
    def is_changing(self) -> bool:
        """Whether a change is waiting for a sync, or listeners are applying one."""
        return self.last_pending is not None or self._committed.is_notifying

    @property
    def repairs(self) -> list[str]:
        """The damage that opening the log has repaired, as text."""
        return self._stored.repairs

    @property
    def quorum_leader(self) -> tuple[int, int]:
        """The active controller, -1 if it is unknown, and the epoch of the quorum."""
        return self._stored.leader_id, self._stored.epoch

    @property
    def log(self) -> Log:
        """The underlying log, for flushing it in a thread."""
        return self._stored.log

    def subscribe(self, listener: ImageListener) -> None:
        """Call `listener(delta, image)` after every change from now on, in the order of subscription."""
        self._committed.subscribe(listener)

    @abstractmethod
    def close(self, now_ms: int, *, may_write_snapshot: Callable[[], bool] = lambda: True) -> None:
        """Shut down cleanly and close the log. Listeners are no longer called.

        `may_write_snapshot` is called if a last snapshot is due. No flush of the log may be in progress. Raises
        KafkaError after an I/O error; the files are closed in this case, too.
        """

    def abandon(self) -> None:
        """Close the files without writing anything, as if the process had crashed."""
        self._committed.unsubscribe_all()
        self._stored.abandon()

    # Snapshots

    def snapshot_reason(self, now_ms: int) -> str | None:
        """The reason why a snapshot is due (`CommittedMetadata.snapshot_reason`)."""
        return self._committed.snapshot_reason(now_ms)

    def begin_snapshot(self, now_ms: int) -> SnapshotFile:
        """Begin a snapshot (`CommittedMetadata.begin_snapshot`). Not while `is_changing`."""
        return self._committed.begin_snapshot(now_ms)

    def end_snapshot(self, snapshot: SnapshotFile, now_ms: int) -> None:
        """The snapshot is finished (`CommittedMetadata.end_snapshot`)."""
        self._committed.end_snapshot(snapshot, now_ms)

    def write_snapshot(self, now_ms: int) -> None:
        """Write a whole snapshot (`CommittedMetadata.write_snapshot`)."""
        self._committed.write_snapshot(now_ms)

    def clean(self, now_ms: int) -> list[str]:
        """Delete snapshots, and the log before them, above the limits of age and size (`MetadataLog.clean`).
        Returns what was done, as text."""
        return self._stored.clean(now_ms)

    def take_trash(self) -> list[str]:
        """Files to unlink, after `internal.metadata.delete.delay.millis`."""
        return self._stored.take_trash()
