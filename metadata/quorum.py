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
from .broker_metadata import BrokerMetadata
from .brokers import NodeDescription
from .committed import Check, CommittedMetadata, ImageListener
from .context import ControllerContext
from .controller import Controller
from .features import BOOTSTRAP_FEATURES, ELIGIBLE_LEADER_REPLICAS_VERSION, SUPPORTED_FEATURES
from .image import BROKER_RESOURCE
from .metadata_log import LocalVoter, MetadataLog, format_directory
from .outcome import Versioned
from .records import ConfigRecord, FeatureLevelRecord, MetadataRecord
from .registration import NodeRegistration
from .registrations import Endpoint
from .settings import MetadataLogSettings

if TYPE_CHECKING:
    from ..config.sources import BrokerConfig
    from ..log.files import FileSystem
    from ..protocol.schema import Request
    from .controller import Change

__all__ = ["Endpoint", "ImageListener", "Metadata", "MetadataLogError"]

DEFAULT_CONTROLLER_ENDPOINT: Final = Endpoint("CONTROLLER", "localhost", 9093)
"""The controller listener in the records. Nothing listens there, because the controller is embedded."""


class Metadata(BrokerMetadata):
    """See the module docstring. Create it with `open`."""

    def __init__(
        self, log: MetadataLog, node: NodeDescription, context: ControllerContext, cluster_id: str, now_ms: int
    ) -> None:
        committed = CommittedMetadata(log, node.node_id, cluster_id, now_ms)
        super().__init__(log, committed, context, SUPPORTED_FEATURES)
        self._log = log
        self._node = node

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
        is_broker: bool = True,
        random_uuid: Callable[[], bytes] = draw_uuid,
        draw: Callable[[int], int] | None = None,
    ) -> Metadata:
        """Start on a data directory, and format it if it is new.

        `directory_ids` are those of all log directories. `voter_directory_id` is that of `data_directory`, if it is not
        the first of these. `listeners` are advertised. `check` may raise to refuse what was read; its exception
        propagates. `is_broker`: the node is also a broker, which is registered and active on return; otherwise its only
        directory is that of the metadata. `random_uuid` and `draw` are random sources, for tests. Raises
        MetadataLogError if a directory cannot be read or belongs to another quorum, KafkaError or OSError after an I/O
        error.
        """
        node = NodeDescription(
            node_id, random_uuid(), tuple(listeners), controller_endpoint, tuple(directory_ids), rack
        )
        voter = LocalVoter(node_id, voter_directory_id or node.directories[0], controller_endpoint)
        format_directory(file_system, data_directory, voter, bootstrap_records(config), now_ms)
        settings = MetadataLogSettings.of(config)
        log = MetadataLog.open(file_system, data_directory, voter, settings, now_ms=now_ms)
        try:
            context = ControllerContext(node_id, config, random_uuid=random_uuid, draw=draw)
            metadata = cls(log, node, context, cluster_id, now_ms)
            metadata._start(now_ms, check, is_broker)
        except BaseException:
            log.abandon()
            raise
        return metadata

    def _start(self, now_ms: int, check: Check | None, is_broker: bool) -> None:
        transaction_open = self._committed.replay(now_ms, check)
        self._log.start_epoch(now_ms)
        self.controller = Controller(self._log, self._committed, self._context)
        self.controller.activate(now_ms, transaction_open=transaction_open)
        self._registration = NodeRegistration(self._node, self.controller)
        self._registration.register(now_ms)
        if is_broker:
            self._registration.register_broker(now_ms)
        self._log.flush(now_ms)

    @property
    def metadata_log(self) -> MetadataLog:
        """The log of this voter, which observers fetch."""
        return self._log

    @property
    def last_pending(self) -> Change | None:
        """The latest change that waits for a sync (`Controller.last_pending`)."""
        return self.controller.last_pending

    def on_log_failure(self, callback: Callable[[OSError], None]) -> None:
        """Call `callback` if the log fails: after that the metadata cannot change."""
        self.controller.on_log_failure = callback

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
            if self._registration.is_broker:
                self._registration.shut_down(now_ms)
            self._log.flush(now_ms)
            self._committed.write_last_snapshot(now_ms, may_write_snapshot)
            self._log.close(now_ms)
        except BaseException:
            self._log.abandon()
            raise


def bootstrap_records(config: BrokerConfig) -> list[Versioned]:
    """The records of a new cluster: its features.

    A cluster with other brokers also has eligible leader replicas (KIP-966), and one `min.insync.replicas` for all
    brokers, on which they depend. `kafka-storage format` and the first start of Apache Kafka's controller do the same.
    """
    levels = dict(BOOTSTRAP_FEATURES)
    records: list[MetadataRecord] = []
    if config.controller_listeners:
        levels[ELIGIBLE_LEADER_REPLICAS_VERSION] = 1
        name = "min.insync.replicas"
        value = str(config.int(name))
        records.append(ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=name, value=value))
    features = [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]
    return [Versioned(record) for record in (*features, *records)]
