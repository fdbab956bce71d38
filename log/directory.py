"""One log directory: its lock, who it belongs to, its checkpoints, and whether it was left cleanly.

.lock                               held while a broker runs on it, against Apache Kafka's too
meta.properties                     cluster.id, node.id, directory.id
.kafka_cleanshutdown                left by a clean stop, removed by the next start before it opens a log
recovery-point-offset-checkpoint    from where an unclean start must look
log-start-offset-checkpoint         where DeleteRecords and retention have moved the beginning
replication-offset-checkpoint       high watermarks, which the replication layer knows
cleaner-offset-checkpoint           up to where compaction has come
"""

from __future__ import annotations

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

_VERSION = "1"


class LogDirectoryError(Exception):
    """A log directory that this broker must not use. The text, meant for people, says which, why, and what to do."""


class LogDirectory:
    """See the module's text."""

    def __init__(self, file_system: FileSystem, path: str) -> None:
        self._file_system = file_system
        self.path = path.rstrip("/")
        self.online = True
        """False once the device has failed; it stays so until the next start."""
        self.failure: str | None = None
        """Why it is not online."""
        self.partitions = 0
        """How many are in it."""
        self.directory_id = b""
        self.had_directory_id = False
        """It was in `meta.properties` when that was opened."""
        self.cluster_id: str | None = None
        """None for a directory that no broker has used yet."""
        self.was_clean = False
        self.previous_broker_epoch = -1
        """The epoch of the broker that stopped cleanly here, -1 if unknown (KIP-966)."""
        self._lock: Lock | None = None
        self._properties: dict[str, str] = {}

    def open(self, node_id: int) -> None:
        """Make it if missing, lock it, and read whose it is. Raises `LogDirectoryError`, or `OSError`."""
        self._file_system.make_directory(self.path)
        try:
            self._lock = self._file_system.lock(join(self.path, LOCK))
        except LockHeldError:
            raise LogDirectoryError(
                f"{self.path} is in use: another broker holds its .lock. Stop that broker, or take another directory."
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
            raise LogDirectoryError(f"{path} names no cluster.id.")
        directory_id = self._properties.get("directory.id")
        if directory_id:
            try:
                self.directory_id = uuid_from_str(directory_id)
                self.had_directory_id = True
            except ValueError as error:
                raise LogDirectoryError(f"{path}: directory.id: {error}") from None

    def check_cluster(self, cluster_id: str) -> None:
        """Raise `LogDirectoryError` if it is another cluster's."""
        if self.cluster_id is not None and self.cluster_id != cluster_id:
            raise LogDirectoryError(
                f"{self.path} belongs to the cluster {self.cluster_id}, not to {cluster_id}. "
                f"Each cluster needs directories of its own."
            )

    def adopt(self, cluster_id: str, node_id: int) -> None:
        """Say in `meta.properties` whose this directory is, if it is not said yet."""
        self.check_cluster(cluster_id)
        if self.cluster_id == cluster_id and self.directory_id:
            return
        if not self._properties and not self._file_system.exists(join(self.path, RECOVERY_POINT_CHECKPOINT)):
            # It says from now on that nothing was compacted yet. Without any, nobody knows: see `LogManager.load`.
            path = join(self.path, RECOVERY_POINT_CHECKPOINT)
            self._file_system.replace_file(path, encode_offsets({}), sync=True)
        self.cluster_id = cluster_id
        self.directory_id = self.directory_id or random_uuid()
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
        """Note whether the last stop was clean, and remove the sign: until the next clean stop, none was."""
        path = join(self.path, CLEAN_SHUTDOWN)
        try:
            self.previous_broker_epoch = decode_clean_shutdown(self._file_system.read_file(path))
        except FileNotFoundError:
            return
        self.was_clean = True
        self._file_system.unlink(path)
        self._file_system.sync_directory(self.path)

    def mark_clean(self, broker_epoch: int) -> None:
        """Everything is on the device: the next start need not look."""
        self._file_system.replace_file(join(self.path, CLEAN_SHUTDOWN), encode_clean_shutdown(broker_epoch), sync=True)

    def read_offsets(self, name: str) -> tuple[dict[TopicPartition, int], str | None]:
        """A checkpoint's offsets, and what is wrong with it: without it, recovery looks at everything."""
        path = join(self.path, name)
        try:
            return decode_offsets(self._file_system.read_file(path), path), None
        except FileNotFoundError:
            return {}, None
        except CorruptCheckpointError as error:
            return {}, str(error)

    def has_checkpoint(self, name: str) -> bool:
        """Whether it was ever written: Apache Kafka makes empty files first."""
        path = join(self.path, name)
        return self._file_system.exists(path) and self._file_system.size(path) > 0

    def release(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
