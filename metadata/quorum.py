"""The metadata of a cluster with one node, which is broker and controller. `Metadata` opens and closes the parts.

    metadata = Metadata.open(
        file_system, data_directory, config,
        node_id=1, cluster_id="...", directory_ids=[...], listeners=[Endpoint("PLAINTEXT", "localhost", 9092)],
        now_ms=now_ms,
    )
    metadata.image                              the committed state (`committed.py`), replaced with every change
    metadata.subscribe(listener)                calls listener(delta, image) after every change
    metadata.controller                         decides requests (`controller.py`); a server calls it through a client
    metadata.request(request, now_ms=...)       the same without an event loop: the response of a committed request
    metadata.close(now_ms)

Startup takes the steps of Apache Kafka's combined node: recover and replay the log, begin a raft epoch, activate the
controller, register controller and broker (`registration.py`). Shutdown resigns leaderships and fences the broker.

This module uses no sockets, clocks or threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..protocol.steps import completed
from ..protocol.uuid import random_uuid as draw_uuid
from .batches import MetadataLogError
from .brokers import NodeDescription
from .committed import Check, CommittedMetadata, ImageListener
from .context import ControllerContext
from .controller import Controller
from .features import BOOTSTRAP_FEATURES, SUPPORTED_FEATURES, reported_features
from .metadata_log import LocalVoter, MetadataLog, format_directory
from .outcome import Versioned
from .records import FeatureLevelRecord
from .registration import NodeRegistration
from .registrations import Endpoint
from .settings import MetadataLogSettings

if TYPE_CHECKING:
    from ..config.sources import BrokerConfig
    from ..log.files import FileSystem
    from ..log.partition_log import Log
    from ..protocol.schema import Request
    from .image import MetadataImage
    from .snapshots import SnapshotFile

__all__ = ["Endpoint", "ImageListener", "Metadata", "MetadataLogError"]

DEFAULT_CONTROLLER_ENDPOINT: Final = Endpoint("CONTROLLER", "localhost", 9093)
"""The controller listener in the records. Nothing listens there, because the controller is embedded."""


class Metadata:
    """See the module docstring. Create it with `open`."""

    def __init__(
        self, log: MetadataLog, node: NodeDescription, context: ControllerContext, cluster_id: str, now_ms: int
    ) -> None:
        self._log = log
        self._node_id = node.node_id
        self._node = node
        self._context = context
        self._committed = CommittedMetadata(log, node.node_id, cluster_id, now_ms)
        self.settings = log.settings
        self.supported_features = SUPPORTED_FEATURES
        """Supported version ranges by feature, for ApiVersions."""

    @classmethod
    def open(
        cls,
        file_system: FileSystem,
        data_directory: str,
        config: BrokerConfig,
        *,
        node_id: int,
        cluster_id: str,
        directory_ids: Sequence[bytes],
        listeners: Iterable[Endpoint],
        now_ms: int,
        controller_endpoint: Endpoint = DEFAULT_CONTROLLER_ENDPOINT,
        rack: str | None = None,
        voter_directory_id: bytes | None = None,
        check: Check | None = None,
        random_uuid: Callable[[], bytes] = draw_uuid,
        draw: Callable[[int], int] | None = None,
    ) -> Metadata:
        """Start on a data directory, and format it if it is new. The broker is registered and active on return.

        `directory_ids` are those of all log directories. `voter_directory_id` is that of `data_directory`, if it is not
        the first of these. `listeners` are advertised. `check` may raise to refuse what was read; its exception
        propagates. `random_uuid` and `draw` are random sources, for tests. Raises MetadataLogError if a directory
        cannot be read or belongs to another quorum, KafkaError or OSError after an I/O error.
        """
        node = NodeDescription(
            node_id, random_uuid(), tuple(listeners), controller_endpoint, tuple(directory_ids), rack
        )
        voter = LocalVoter(node_id, voter_directory_id or node.directories[0], controller_endpoint)
        bootstrap = [
            Versioned(FeatureLevelRecord(name=name, feature_level=level)) for name, level in BOOTSTRAP_FEATURES.items()
        ]
        format_directory(file_system, data_directory, voter, bootstrap, now_ms)
        settings = MetadataLogSettings.of(config)
        log = MetadataLog.open(file_system, data_directory, voter, settings, now_ms=now_ms)
        try:
            context = ControllerContext(node_id, config, random_uuid=random_uuid, draw=draw)
            metadata = cls(log, node, context, cluster_id, now_ms)
            metadata._start(now_ms, check)
        except BaseException:
            log.abandon()
            raise
        return metadata

    def _start(self, now_ms: int, check: Check | None) -> None:
        transaction_open = self._committed.replay(now_ms, check)
        self._log.start_epoch(now_ms)
        self.controller = Controller(self._log, self._committed, self._context)
        self.controller.activate(now_ms, transaction_open=transaction_open)
        self._registration = NodeRegistration(self._node, self.controller)
        self._registration.register(now_ms)
        self._log.flush(now_ms)

    @property
    def image(self) -> MetadataImage:
        """The committed state."""
        return self._committed.image

    @property
    def node_id(self) -> int:
        return self._node_id

    @property
    def cluster_id(self) -> str:
        return self.image.cluster_id

    @property
    def broker_epoch(self) -> int:
        """The epoch with which this broker is registered."""
        return self.image.brokers[self._node_id].epoch

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
    def is_changing(self) -> bool:
        """Whether a change is waiting for a sync, or listeners are applying one."""
        return self.controller.last_pending is not None or self._committed.is_notifying

    @property
    def repairs(self) -> list[str]:
        """The damage that opening the log has repaired, as text."""
        return self._log.repairs

    @property
    def log(self) -> Log:
        """The underlying log, for flushing it in a thread."""
        return self._log.log

    def on_log_failure(self, callback: Callable[[OSError], None]) -> None:
        """Call `callback` if the log fails: after that the metadata cannot change."""
        self.controller.on_log_failure = callback

    def subscribe(self, listener: ImageListener) -> None:
        """Call `listener(delta, image)` after every change from now on, in the order of subscription."""
        self._committed.subscribe(listener)

    def request(self, request: Request, *, version: int = 0, now_ms: int) -> Any:
        """The response to a controller request, in one step; for programs without an event loop.

        On return the change is durable. In a server, no flush of the log may be in progress, and the brokers of this
        process may still be applying the change. Raises KafkaError for a request that fails as a whole; errors of
        single topics or resources are in the response.
        """
        decide = self.controller.deciding(request, version, lambda: now_ms)
        response, change = completed(self.controller.change(decide, lambda: now_ms))
        if change is not None and not change.is_done:
            self._log.flush(now_ms)
        return response

    def close(self, now_ms: int, *, may_write_snapshot: Callable[[], bool] = lambda: True) -> None:
        """Shut down cleanly: resign leaderships, fence the broker, close the log. Listeners are no longer called.

        `may_write_snapshot` is called if a last snapshot is due. No flush of the log may be in progress. Raises
        KafkaError after an I/O error; the files are closed in this case, too.
        """
        self._committed.unsubscribe_all()
        self.controller.stop_serving()
        try:
            self._registration.shut_down(now_ms)
            self._log.flush(now_ms)
            self._committed.write_last_snapshot(now_ms, may_write_snapshot)
            self._log.close(now_ms)
        except BaseException:
            self._log.abandon()
            raise

    def abandon(self) -> None:
        """Close the files without writing anything, as if the process had crashed."""
        self._committed.unsubscribe_all()
        self._log.abandon()

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
        return self._log.clean(now_ms)

    def take_trash(self) -> list[str]:
        """Files to unlink, after `internal.metadata.delete.delay.millis`."""
        return self._log.take_trash()
