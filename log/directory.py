"""One log directory: its lock, its owner, its checkpoints, and whether it was left cleanly.

.lock                               held by the running broker, also effective against Apache Kafka
meta.properties                     cluster.id, node.id, directory.id
.kafka_cleanshutdown                created by a clean shutdown; removed by the next startup before it opens a log
recovery-point-offset-checkpoint    the offsets from which recovery must read
log-start-offset-checkpoint         the start offsets set by DeleteRecords and retention
replication-offset-checkpoint       high watermarks, from the replication layer
cleaner-offset-checkpoint           the offsets up to which the logs were compacted
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..protocol.uuid import random_uuid, uuid_from_str, uuid_to_str
from .checkpoints import (
    CLEAN_SHUTDOWN,
    LOCK,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    CorruptCheckpointError,
    TopicPartition,
    decode_clean_shutdown,
    decode_offsets,
    decode_properties,
    encode_clean_shutdown,
    encode_offsets,
    encode_properties,
)
from .files import FileSystem, Lock, LockHeldError, join
from .partition_log import Log

_VERSION = "1"


class LogDirectoryError(Exception):
    """A log directory that this broker must not use. The message contains the path, the reason, and what to do."""


class LogDirectory:
    """See the module docstring."""

    def __init__(self, file_system: FileSystem, path: str, new_uuid: Callable[[], bytes] = random_uuid) -> None:
        """`new_uuid` creates the ID of a new directory, and the unique names of retired partitions."""
        self._file_system = file_system
        self.new_uuid = new_uuid
        self.path = path.rstrip("/")
        self.online = True
        """False once the device has failed; it remains offline until the next startup."""
        self.failure: str | None = None
        """Why it is offline."""
        self.is_cordoned = False
        """It gets no new replicas (KIP-1066)."""
        self.partitions = 0
        """The number of its partitions."""
        self.directory_id = b""
        self.had_directory_id = False
        """Whether `meta.properties` contained the directory ID when it was read."""
        self.cluster_id: str | None = None
        """None for a new directory."""
        self.was_clean = False
        self.previous_broker_epoch = -1
        """The broker epoch at the clean shutdown; -1 if unknown (KIP-966)."""
        self._lock: Lock | None = None
        self._properties: dict[str, str] = {}

    def open(self, node_id: int) -> None:
        """Create it if missing, lock it, and read its owner. Raises `LogDirectoryError` and `OSError`."""
        self._file_system.make_directory(self.path)
        try:
            self._lock = self._file_system.lock(join(self.path, LOCK))
        except LockHeldError:
            raise LogDirectoryError(
                f"{self.path} is in use: another broker holds its .lock. Stop that broker, or use another directory."
            ) from None
        try:
            self._read_properties(node_id)
        except BaseException:
            self.release()
            raise

    def _read_properties(self, node_id: int) -> None:
        path = join(self.path, META_PROPERTIES)
        try:
            self._properties = decode_properties(self._file_system.read_file(path))
        except FileNotFoundError:
            return
        version = self._properties.get("version")
        if version != _VERSION:
            raise LogDirectoryError(f"{path} has version {version}; only version 1 (KRaft) is supported.")
        owner = self._properties.get("node.id")
        if owner != str(node_id):
            raise LogDirectoryError(f"{path} belongs to the broker with node.id={owner}, not to node.id={node_id}.")
        self.cluster_id = self._properties.get("cluster.id")
        if not self.cluster_id:
            raise LogDirectoryError(f"{path} has no cluster.id.")
        directory_id = self._properties.get("directory.id")
        if directory_id:
            try:
                self.directory_id = uuid_from_str(directory_id)
                self.had_directory_id = True
            except ValueError as error:
                raise LogDirectoryError(f"{path}: directory.id: {error}") from None

    def check_cluster(self, cluster_id: str) -> None:
        """Raise `LogDirectoryError` if it belongs to another cluster."""
        if self.cluster_id is not None and self.cluster_id != cluster_id:
            raise LogDirectoryError(
                f"{self.path} belongs to cluster {self.cluster_id}, not to {cluster_id}. "
                f"Use separate directories for each cluster."
            )

    def adopt(self, cluster_id: str, node_id: int) -> None:
        """Write the owner to `meta.properties`, if the file does not exist yet."""
        self.check_cluster(cluster_id)
        if self.cluster_id == cluster_id and self.directory_id:
            return
        if not self._properties and not self._file_system.exists(join(self.path, RECOVERY_POINT_CHECKPOINT)):
            # Its existence means that nothing was compacted yet. Without it that is unknown: see `LogManager.load`.
            path = join(self.path, RECOVERY_POINT_CHECKPOINT)
            self._file_system.replace_file(path, encode_offsets({}), sync=True)
        self.cluster_id = cluster_id
        self.directory_id = self.directory_id or self.new_uuid()
        properties = {
            **self._properties,
            "version": _VERSION,
            "cluster.id": cluster_id,
            "node.id": str(node_id),
            "directory.id": uuid_to_str(self.directory_id),
        }
        self._file_system.replace_file(
            join(self.path, META_PROPERTIES), encode_properties(properties.items()), sync=True
        )

    def begin_loading(self) -> None:
        """Read whether the last shutdown was clean, and remove the marker until the next clean shutdown."""
        path = join(self.path, CLEAN_SHUTDOWN)
        try:
            self.previous_broker_epoch = decode_clean_shutdown(self._file_system.read_file(path))
        except FileNotFoundError:
            return
        self.was_clean = True
        self._file_system.unlink(path)
        self._file_system.sync_directory(self.path)

    def mark_clean(self, broker_epoch: int) -> None:
        """Everything is durable: the next startup needs no recovery."""
        self._file_system.replace_file(join(self.path, CLEAN_SHUTDOWN), encode_clean_shutdown(broker_epoch), sync=True)

    def read_offsets(self, name: str) -> tuple[dict[TopicPartition, int], str | None]:
        """A checkpoint's offsets, and why it could not be read: then recovery reads everything."""
        path = join(self.path, name)
        try:
            return decode_offsets(self._file_system.read_file(path), path), None
        except FileNotFoundError:
            return {}, None
        except CorruptCheckpointError as error:
            return {}, str(error)

    def has_checkpoint(self, name: str) -> bool:
        """Whether it was ever written: Apache Kafka creates empty files first."""
        path = join(self.path, name)
        return self._file_system.exists(path) and self._file_system.size(path) > 0

    def fail(self, error: OSError, logs: Iterable[Log]) -> None:
        """The device failed: the directory and its logs are offline from now on."""
        self.online = False
        self.failure = error.strerror or str(error)
        for log in logs:
            log.take_offline(self.failure)

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
