"""The metadata of the cluster, as one node keeps it that is broker and controller in one: `Metadata`.

    metadata = Metadata.open(
        file_system, data_directory, config,
        node_id=1, cluster_id="...", directory_ids=[...], listeners=[Endpoint("PLAINTEXT", "localhost", 9092)],
        now_ms=now_ms,
    )
    metadata.image                              the present state (`image.py`), replaced with every change
    metadata.subscribe(listener)                listener(delta, image) after every change
    metadata.create_topics(request, now_ms=...) and the other requests: the answer, when what it says has happened
    metadata.close(now_ms)

A change goes through one narrow place, `commit`: the controller's records are appended to the metadata log in one
batch, synced, replayed onto the image, and the listeners are told. When a method returns, brokers of this process have
followed. A request that changes nothing touches no file. Methods raise `KafkaError` for a request that fails as a whole
(POLICY_VIOLATION, TOPIC_DELETION_DISABLED, INVALID_REQUEST, ...); errors of single topics or resources are in the
answer.

Every start goes the way of Apache Kafka's combined node: recover and replay the log, begin a raft epoch, write the
bootstrap records into an empty log or abort what a crash left half done, register the controller, register the broker
(fenced), let it in. A stop gives up leadership and fences the broker. What a broker led is led by it again after
either, with a higher leader epoch, by which clients can tell that a crash may have cut the log (KIP-320).

When the device fails, changes are refused with KAFKA_STORAGE_ERROR from then on: what a failed sync left behind cannot
be known. A full disk passes.

No sockets, no clock, no threads. A sync takes what the device takes (`docs/metadata.md` has numbers), and whoever calls
waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ..protocol.uuid import random_uuid as draw_uuid
from .batches import MetadataLogError
from .brokers import (
    NodeDescription,
    fence_broker,
    register_broker,
    register_controller,
    shut_down_broker,
    unfence_broker,
)
from .context import ControllerContext
from .features import (
    BOOTSTRAP_FEATURES,
    CONTROLLER_REGISTRATION_SINCE,
    KRAFT_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    TRANSACTIONS_SINCE,
    missing_features,
    reported_features,
)
from .image import MetadataDelta, MetadataImage, MetadataUpdate
from .metadata_log import LocalVoter, MetadataLog, format_directory
from .outcome import Outcome, Versioned
from .records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    RemoveTopicRecord,
)
from .registrations import Endpoint
from .settings import MetadataLogSettings
from .topic_names import CLUSTER_METADATA, invalid_reason
from .transactions import TransactionFilter

if TYPE_CHECKING:
    from ..config.sources import BrokerConfig
    from ..log.files import FileSystem
    from ..protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from ..protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from ..protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
    from ..protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from ..protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from ..protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from ..protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
    from ..protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
    from ..protocol.messages.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from ..protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )
    from ..protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
    from ..protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
    from .snapshots import SnapshotFile

__all__ = ["Endpoint", "Listener", "Metadata", "MetadataLogError"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

Listener = Callable[[MetadataDelta, MetadataImage], None]

Check = Callable[[MetadataImage, Collection[bytes]], None]
"""Given the image and the ids of topics that the log says were deleted, before the first record is written: raises what
refuses the start."""

DEFAULT_CONTROLLER_ENDPOINT: Final = Endpoint("CONTROLLER", "localhost", 9093)
"""What the records name as the controller's listener. Nothing listens there while the controller is embedded."""

_SNAPSHOT_MIN_RECORDS: Final = 5_000
"""A start that finds more records in the log than these and what the image takes wants a snapshot, and a stop writes
one, so that restarts, which elect every leader anew, do not make each other slower and slower."""


class Metadata:
    """See the module's text. Made by `open`."""

    def __init__(
        self,
        log: MetadataLog,
        node: NodeDescription,
        context: ControllerContext,
        voter_directory_id: bytes,
        now_ms: int,
    ) -> None:
        self._log = log
        self._node = node
        self._context = context
        self.settings = log.settings
        self._last_snapshot_ms = now_ms
        self._found_much = False  # at the start, in the log
        self._listeners: list[Listener] = []
        self._voter_directory_id = voter_directory_id
        self.image = MetadataImage()
        self.was_served_by_us = False
        """The broker that registered last, before this start, was this software."""
        self.supported_features = SUPPORTED_FEATURES
        """Version ranges by feature, for ApiVersions."""

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
        """Start on a data directory, formatting it if it is new. The broker is registered and active on return.

        `directory_ids` are those of all log directories. `voter_directory_id` is that of `data_directory`, if it is not
        the first of these. `listeners` are advertised. `check` may refuse what was read; what it raises goes on.
        `random_uuid` and `draw` are the dice, for tests. Raises MetadataLogError for a directory that cannot be read
        or belongs to another quorum, KafkaError or OSError where the device fails.
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
            metadata = cls(log, node, context, voter.directory_id, now_ms)
            metadata._start(cluster_id, now_ms, check)
        except BaseException:
            log.abandon()
            raise
        return metadata

    @property
    def node_id(self) -> int:
        return self._node.node_id

    @property
    def cluster_id(self) -> str:
        return self.image.cluster_id

    @property
    def controller_id(self) -> int:
        """The node that decides: this one."""
        return self._node.node_id

    @property
    def broker_epoch(self) -> int:
        """The epoch with which this broker is registered."""
        return self.image.brokers[self._node.node_id].epoch

    @property
    def finalized_features(self) -> dict[str, int]:
        """Finalized levels that clients may rely on here, for ApiVersions; their epoch is `image.offset`."""
        return reported_features(self.image.features)

    @property
    def broker_config(self) -> BrokerConfig:
        """The node's settings that are in force: the static ones, and the dynamic ones of the image over them."""
        return self._context.broker_config(self.image)

    @property
    def repairs(self) -> list[str]:
        """What opening the log found broken and repaired, in words."""
        return self._log.repairs

    def tell_log_failure(self, told: Callable[[OSError], None]) -> None:
        """Call `told` should the log fail: nothing of the cluster can be changed after that."""
        self._log.tell_failure(told)

    def subscribe(self, listener: Listener) -> None:
        """Call `listener(delta, image)` after every change from now on, in the order of subscription."""
        self._listeners.append(listener)

    def close(self, now_ms: int, *, may_write_snapshot: Callable[[], bool] = lambda: True) -> None:
        """A clean stop: leadership is given up, the broker fenced, the log closed. Listeners are not told any more.

        `may_write_snapshot` is asked where a last snapshot is wanted.
        Raises KafkaError where the device fails; the files are closed then, too.
        """
        self._listeners.clear()
        try:
            if self._node.node_id in self.image.brokers:
                self._append(shut_down_broker(self.image, self._node.node_id, self._context), now_ms)
                self._append(fence_broker(self.image, self._node.node_id, self._context), now_ms)
                if self._log_is_long() and may_write_snapshot():
                    self._write_last_snapshot(now_ms)
            self._log.close(now_ms)
        except BaseException:
            self._log.abandon()
            raise

    def abandon(self) -> None:
        """Close the files and write nothing, as if the process had died."""
        self._listeners.clear()
        self._log.abandon()

    # The one way of a change

    def commit(self, records: Sequence[Versioned], now_ms: int) -> None:
        """Make these records part of the state: on the device, in the image, known to all listeners.

        Raises KafkaError with KAFKA_STORAGE_ERROR; then they are not part of it.
        """
        if not records:
            return
        delta = self._append(records, now_ms, sync=True)
        for listener in self._listeners:
            try:
                listener(delta, self.image)
            except Exception:
                # The change is made; one who cannot follow it must not keep the others from it.
                logger.exception("a listener could not follow the metadata to offset %d", self.image.offset)

    def _append(self, records: Sequence[Versioned], now_ms: int, *, sync: bool = False) -> MetadataDelta:
        end_offset = self._log.append(records, now_ms)
        if sync:
            self._log.flush(now_ms)
        replayed = (versioned.record for versioned in records)
        self.image, delta = self.image.apply(
            replayed, end_offset=end_offset, epoch=self._log.epoch, timestamp_ms=now_ms
        )
        return delta

    def _answer(self, outcome: Outcome[T], now_ms: int) -> T:
        self.commit(outcome.records, now_ms)
        return outcome.response

    # Snapshots

    def snapshot_reason(self, now_ms: int) -> str | None:
        """Why it is time to write a snapshot, in words; None while it is not. Costs next to nothing."""
        latest = self._log.latest_snapshot
        if latest is not None and latest.end_offset == self._log.end_offset:
            return None
        settings = self.settings
        if self._log.bytes_after_snapshot >= settings.snapshot_bytes:
            return f"the log has {self._log.bytes_after_snapshot} bytes that are in none"
        if 0 < settings.snapshot_interval_ms <= now_ms - self._last_snapshot_ms:
            return f"{now_ms - self._last_snapshot_ms} ms have passed, and there were changes"
        if self._found_much:
            return f"the log has {self._log.records_after_snapshot} records that are in none"
        return None

    def begin_snapshot(self, now_ms: int) -> SnapshotFile:
        """A snapshot of the image as it is now; changes may go on while it is encoded, written and finished.

        One at a time. Raises KafkaError with KAFKA_STORAGE_ERROR or OSError; then nothing has changed.
        """
        from .image_records import image_records

        return self._log.begin_snapshot(image_records(self.image), timestamp_ms=self.image.timestamp_ms, now_ms=now_ms)

    def end_snapshot(self, snapshot: SnapshotFile, now_ms: int) -> None:
        """It was finished. One that was discarded is simply forgotten."""
        self._log.end_snapshot(snapshot)
        self._last_snapshot_ms = now_ms
        self._found_much = False

    def write_snapshot(self, now_ms: int) -> None:
        """All of it at once, for those who have nothing else to do. Raises KafkaError, OSError; the old state stays."""
        snapshot = self.begin_snapshot(now_ms)
        try:
            while snapshot.encode():
                if snapshot.wants_to_write:
                    snapshot.write()
            snapshot.finish()
        except OSError:
            snapshot.discard()
            raise
        self.end_snapshot(snapshot, now_ms)

    def clean(self, now_ms: int) -> list[str]:
        """Let go of snapshots, and of the log before them, that are older or more than they should be (see
        `MetadataLog.clean`). Returns what was done, in words."""
        return self._log.clean(now_ms)

    def take_trash(self) -> list[str]:
        """Files that are to be unlinked, after `internal.metadata.delete.delay.millis`."""
        return self._log.take_trash()

    def _log_is_long(self) -> bool:
        """Would a start be quicker with a new snapshot?"""
        return self._log.records_after_snapshot > _SNAPSHOT_MIN_RECORDS + self.image.record_count

    def _write_last_snapshot(self, now_ms: int) -> None:
        try:
            self.write_snapshot(now_ms)
        except (OSError, KafkaError) as error:
            # The log says the same, if slower.
            logger.warning("No snapshot of the metadata was written: %s", error)

    # Starting

    def _start(self, cluster_id: str, now_ms: int, check: Check | None) -> None:
        transaction_open = self._replay(cluster_id, now_ms, check)
        self._log.start_epoch(now_ms)
        if self._log.kraft_version:
            features = {**self.image.features, KRAFT_VERSION: self._log.kraft_version}
            self.image = self.image._replace(features=features)
        activation = self._activation_records(transaction_open)
        if activation:
            self._append(activation, now_ms)
        if self.image.metadata_version >= CONTROLLER_REGISTRATION_SINCE:
            self._append(register_controller(self._node), now_ms)
        # The epoch is the offset of the first record that belongs to the registration, unique as every offset is.
        self._append(register_broker(self.image, self._node, self._log.end_offset, self._context), now_ms)
        self._append(unfence_broker(self.image, self._node.node_id, self._context), now_ms)
        self._log.flush(now_ms)

    def _replay(self, cluster_id: str, now_ms: int, check: Check | None) -> bool:
        """Bring the image to the end of the log. Returns whether a transaction is open there."""
        update = MetadataUpdate(MetadataImage(cluster_id=cluster_id))
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
        last = self.image.brokers.get(self._node.node_id)
        # Apache Kafka has other features, or another range of metadata.version, in each of its versions.
        self.was_served_by_us = last is not None and last.features == SUPPORTED_FEATURES
        level = self.image.metadata_version
        if level and level not in SUPPORTED_FEATURES[METADATA_VERSION]:
            supported = SUPPORTED_FEATURES[METADATA_VERSION]
            raise MetadataLogError(f"the cluster's metadata.version is {level}; supported here are {supported}")
        if check is not None:
            check(self.image, deleted_topics)
        self._found_much = self._log_is_long()
        return transactions.is_open

    def _activation_records(self, transaction_open: bool) -> list[Versioned]:
        """What a new leader writes first: the bootstrap records into an empty log, an end to what is half done, and
        the features that came to us since the log was written."""
        records: list[Versioned] = []
        if transaction_open:
            records.append(Versioned(AbortTransactionRecord(reason="Controller failover")))
        if self.image.metadata_version:
            last = self.image.controllers.get(self._node.node_id)
            missing = missing_features(self.image.features, last.features) if last else {}
            records += [
                Versioned(FeatureLevelRecord(name=name, feature_level=level)) for name, level in missing.items()
            ]
            return records
        bootstrap: list[MetadataRecord] = self._log.bootstrap_records()
        levels = [
            r.feature_level for r in bootstrap if isinstance(r, FeatureLevelRecord) and r.name == METADATA_VERSION
        ]
        if not levels:
            levels = [LATEST_METADATA_VERSION]
            bootstrap.insert(0, FeatureLevelRecord(name=METADATA_VERSION, feature_level=LATEST_METADATA_VERSION))
        wrapped: list[MetadataRecord] = bootstrap
        if levels[-1] >= TRANSACTIONS_SINCE:
            wrapped = [BeginTransactionRecord(name="Bootstrap records"), *bootstrap, EndTransactionRecord()]
        return records + [Versioned(record) for record in wrapped]

    # Requests. Their modules are imported by the first of a kind: most servers see few kinds.

    def create_topics(self, request: CreateTopicsRequest, *, now_ms: int) -> CreateTopicsResponse:
        """CreateTopics: `create_topics.py`."""
        from .create_topics import create_topics

        return self._answer(create_topics(self.image, request, self._context), now_ms)

    def auto_create_topics(self, names: Sequence[str], *, create: bool, now_ms: int) -> dict[str, ErrorCode]:
        """Make topics that somebody asked for by name and that are not there; with `create` false, only say why not.

        Returns the error of each name that is no topic afterwards. Coordinators' topics get what they need.
        """
        errors = {name: ErrorCode.INVALID_TOPIC_EXCEPTION for name in names if invalid_reason(name) is not None}
        if CLUSTER_METADATA in names:
            errors[CLUSTER_METADATA] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # this log is no topic, and cannot be one
        missing = [
            name for name in dict.fromkeys(names) if name not in errors and name not in self.image.topics_by_name
        ]
        if not create:
            return errors | dict.fromkeys(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if missing:
            from .create_topics import auto_create_request

            response = self.create_topics(auto_create_request(missing, self._context.config), now_ms=now_ms)
            errors |= {topic.name: ErrorCode(topic.error_code) for topic in response.topics if topic.error_code}
        return errors

    def delete_topics(self, request: DeleteTopicsRequest, *, now_ms: int) -> DeleteTopicsResponse:
        """DeleteTopics: `delete_topics.py`."""
        from .delete_topics import delete_topics

        return self._answer(delete_topics(self.image, request, self._context), now_ms)

    def create_partitions(self, request: CreatePartitionsRequest, *, now_ms: int) -> CreatePartitionsResponse:
        """CreatePartitions: `create_partitions.py`."""
        from .create_partitions import create_partitions

        return self._answer(create_partitions(self.image, request, self._context), now_ms)

    def alter_configs(self, request: AlterConfigsRequest, *, now_ms: int) -> AlterConfigsResponse:
        """AlterConfigs: `alter_configs.py`."""
        from .alter_configs import alter_configs

        return self._answer(alter_configs(self.image, request, self._context), now_ms)

    def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, *, now_ms: int
    ) -> IncrementalAlterConfigsResponse:
        """IncrementalAlterConfigs: `alter_configs.py`."""
        from .alter_configs import incremental_alter_configs

        return self._answer(incremental_alter_configs(self.image, request, self._context), now_ms)

    def elect_leaders(self, request: ElectLeadersRequest, *, now_ms: int) -> ElectLeadersResponse:
        """ElectLeaders: `elect_leaders.py`."""
        from .elect_leaders import elect_leaders

        return self._answer(elect_leaders(self.image, request), now_ms)

    def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest, *, now_ms: int
    ) -> AlterPartitionReassignmentsResponse:
        """AlterPartitionReassignments: `reassignments.py`."""
        from .reassignments import alter_partition_reassignments

        return self._answer(alter_partition_reassignments(self.image, request, self._context), now_ms)

    def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        """ListPartitionReassignments: `reassignments.py`."""
        from .reassignments import list_partition_reassignments

        return list_partition_reassignments(self.image, request)

    def update_features(self, request: UpdateFeaturesRequest, *, version: int, now_ms: int) -> UpdateFeaturesResponse:
        """UpdateFeatures of this version: `update_features.py`."""
        from .update_features import update_features

        return self._answer(update_features(self.image, request, version, self._context), now_ms)

    def unregister_broker(self, request: UnregisterBrokerRequest, *, now_ms: int) -> UnregisterBrokerResponse:
        """UnregisterBroker: `brokers.py`. This broker, which is plainly there, registers again at once."""
        from .brokers import unregister_broker

        response = self._answer(unregister_broker(self.image, request, self._context), now_ms)
        if request.broker_id == self._node.node_id:
            self.commit(register_broker(self.image, self._node, self._log.end_offset, self._context), now_ms)
            self.commit(unfence_broker(self.image, self._node.node_id, self._context), now_ms)
        return response

    def allocate_producer_ids(self, *, now_ms: int) -> range:
        """A block of producer ids for this broker: `producer_ids.py`."""
        from .producer_ids import allocate_producer_ids

        request = AllocateProducerIdsRequest(broker_id=self._node.node_id, broker_epoch=self.broker_epoch)
        block = self._answer(allocate_producer_ids(self.image, request), now_ms)
        return range(block.producer_id_start, block.producer_id_start + block.producer_id_len)

    def assign_replicas_to_directories(
        self, request: AssignReplicasToDirsRequest, *, now_ms: int
    ) -> AssignReplicasToDirsResponse:
        """AssignReplicasToDirs: `brokers.py`. For a broker with more than one log directory."""
        from .brokers import assign_replicas_to_directories

        return self._answer(assign_replicas_to_directories(self.image, request, self._context), now_ms)

    def describe_quorum(self, request: DescribeQuorumRequest, *, version: int, now_ms: int) -> DescribeQuorumResponse:
        """DescribeQuorum of this version: `describe_quorum.py`."""
        from .describe_quorum import QuorumStatus, describe_quorum

        status = QuorumStatus(
            leader_id=self._node.node_id,
            leader_epoch=self._log.epoch,
            directory_id=self._voter_directory_id,
            controller_endpoint=self._node.controller_endpoint,
            log_end_offset=self._log.end_offset,
            high_watermark=self._log.flushed_offset,
        )
        return describe_quorum(request, version, status, now_ms)
