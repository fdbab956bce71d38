"""A server's data on disk: the log directories and the metadata, opened and closed in the right order.

Opening: lock the directories; replay the metadata, which contain the topics; load the partitions' logs with the
configuration from the metadata, with recovery after an unclean shutdown. A partition directory that is not in the
metadata is set aside, never deleted.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial
from random import Random, SystemRandom
from typing import TYPE_CHECKING

from ...config.broker_config import BrokerConfig, Listener
from ...log.config import LogConfig
from ...log.directory import LogDirectory, LogDirectoryError
from ...log.files import FileSystem
from ...log.manager import LogManager
from ...metadata.image import TOPIC_RESOURCE
from ...metadata.quorum import DEFAULT_CONTROLLER_ENDPOINT, Endpoint, Metadata, MetadataLogError
from ...protocol.errors import KafkaError
from ...protocol.named_tuples import NamedTuple
from ...protocol.uuid import random_uuid
from ..concurrency.background import map_with_threads
from .data_directories import DataDirectoryError, check_data_directories
from .log_configs import topic_log_config
from .ownership import Ownership, OwnershipError, check_before_changing, with_node_id_of
from .recovery import Recovery

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...log.checkpoints import TopicPartition
    from ...metadata.broker_metadata import BrokerMetadata

logger = logging.getLogger(__name__)

SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class StorageError(Exception):
    """The data cannot be used. The message is for the user and states what to do."""


class Storage:
    """The open directories and the metadata."""

    def __init__(
        self, log_manager: LogManager, metadata: BrokerMetadata, metadata_directory: LogDirectory | None = None
    ) -> None:
        """`metadata_directory`: the directory of the metadata log, if it is not one of the log directories."""
        self.log_manager = log_manager
        self.metadata = metadata
        self._metadata_directory = metadata_directory

    def close(
        self, now_ms: int, high_watermarks: Mapping[TopicPartition, int] | None = None, *, threads: int = 1
    ) -> None:
        """Shut down cleanly with this many threads: flush everything, and mark the directories as clean."""
        epoch = self.metadata.broker_epoch
        try:
            self.metadata.close(now_ms, may_write_snapshot=self._names_are_durable)
        except KafkaError as error:
            logger.error("Cannot close the metadata log cleanly: %s", error)
        run = partial(map_with_threads, threads=threads)
        self.log_manager.close(now_ms=now_ms, broker_epoch=epoch, high_watermarks=high_watermarks, run=run)
        if self._metadata_directory is not None:
            self._metadata_directory.release()

    def _names_are_durable(self) -> bool:
        """The precondition of a snapshot: see `metadata_snapshots`."""
        try:
            self.log_manager.sync_names()
        except OSError:
            return False  # closing the logs reports it
        return all(directory.online for directory in self.log_manager.directories)

    def abandon(self) -> None:
        """Release files and locks without writing anything, as if the process had crashed."""
        self.metadata.abandon()
        for log in self.log_manager.logs():
            log.abandon()
        for directory in self.log_manager.directories:
            directory.release()
        if self._metadata_directory is not None:
            self._metadata_directory.release()


class OpenDirectories(NamedTuple):
    """The locked log directories of a node, before its metadata is opened."""

    manager: LogManager
    home: LogDirectory
    """The directory with the metadata log."""
    separate: LogDirectory | None
    """The same, if it is not one of the log directories."""
    config: BrokerConfig
    """With the `node.id` of the directories, if the settings have none."""
    release: contextlib.ExitStack
    """Releases the locks; empty it (`pop_all`) when something else does."""


def open_directories(
    config: BrokerConfig,
    log_dirs: list[str],
    *,
    file_system: FileSystem,
    new_uuid: Callable[[], bytes],
    allow_non_empty: bool,
    check: Callable[[LogManager, LogDirectory], None],
) -> OpenDirectories:
    """Lock the directories, and create missing ones. `check` is called before anything is written, and may raise.

    Raises StorageError, as `open_storage`.
    """
    metadata_path = (config.optional_str("metadata.log.dir") or log_dirs[0]).rstrip("/")
    try:
        paths = dict.fromkeys([metadata_path, *log_dirs])
        check_data_directories(file_system, paths, allow_non_empty=allow_non_empty)
    except DataDirectoryError as error:
        raise StorageError(str(error)) from None
    config = with_node_id_of(config, [metadata_path, *log_dirs], file_system)
    with contextlib.ExitStack() as opened:
        try:
            metadata_directory = None
            if metadata_path not in [path.rstrip("/") for path in log_dirs]:
                metadata_directory = LogDirectory(file_system, metadata_path, new_uuid)
                opened.callback(metadata_directory.release)
                metadata_directory.open(config.node_id)
            cluster_id = None if metadata_directory is None else metadata_directory.cluster_id
            manager = LogManager(
                log_dirs, node_id=config.node_id, cluster_id=cluster_id, file_system=file_system, new_uuid=new_uuid
            )
            home = metadata_directory or next(each for each in manager.directories if each.path == metadata_path)
            manager.open(lambda: check(manager, home))
            for directory in manager.directories:
                opened.callback(directory.release)
            home.adopt(manager.cluster_id, config.node_id)
        except (LogDirectoryError, OwnershipError) as error:
            raise StorageError(str(error)) from None
        return OpenDirectories(manager, home, metadata_directory, config, opened.pop_all())


def open_storage(
    config: BrokerConfig,
    log_dirs: list[str],
    listeners: Iterable[Listener],
    *,
    now_ms: int,
    file_system: FileSystem,
    rng: Random | None = None,
    allow_non_empty: bool = False,
    controller_endpoint: Endpoint | None = None,
    brokers: Collection[int] | None = None,
) -> Storage:
    """Open or create the directories. The metadata are in the first directory, or in `metadata.log.dir`.

    `controller_endpoint`: the address at which this node is the controller of other brokers, and `brokers`: their ids,
    if they are known.

    If the settings have no `node.id`, the directories define it. `allow_non_empty`: a directory that holds other files,
    and no data yet, becomes a data directory. `rng` is the random source for new IDs (cluster, directories, topics)
    and for replica placement.

    Raises:
        StorageError: a directory is in use, belongs to another broker or cluster, cannot be read, or is not
            permitted for data.
    """
    random = rng or SystemRandom()
    new_uuid = partial(random_uuid, random.randbytes)
    directories = open_directories(
        config,
        log_dirs,
        file_system=file_system,
        new_uuid=new_uuid,
        allow_non_empty=allow_non_empty,
        check=lambda manager, home: _check(file_system, config, manager, home),
    )
    manager, home, config = directories.manager, directories.home, directories.config
    with directories.release as opened:
        try:
            metadata = Metadata.open(
                file_system,
                home.path,
                config,
                node_id=config.node_id,
                cluster_id=manager.cluster_id,
                directory_ids=[directory.directory_id for directory in manager.online_directories()],
                voter_directory_id=home.directory_id,
                listeners=endpoints(listeners),
                now_ms=now_ms,
                rack=config.optional_str("broker.rack"),
                random_uuid=new_uuid,
                draw=random.randrange,
                controller_endpoint=controller_endpoint or DEFAULT_CONTROLLER_ENDPOINT,
                check=Ownership(
                    file_system,
                    manager.directories,
                    config.node_id,
                    brokers=(config.node_id,) if controller_endpoint is None else brokers,
                ).check,
            )
        except OwnershipError as error:
            raise StorageError(str(error)) from None
        except (MetadataLogError, KafkaError, OSError) as error:
            raise StorageError(f"Cannot use the metadata in {home.path}: {error}") from error
        opened.pop_all()
    storage = Storage(manager, metadata, directories.separate)
    # A failure of the metadata log is a failure of its directory, as for any other log in the directory.
    metadata.on_log_failure(lambda error: manager.directory_failed(home, error))
    load_logs(storage, now_ms)
    return storage


def endpoints(listeners: Iterable[Listener]) -> list[Endpoint]:
    """Listeners as they are registered with the controller."""
    return [Endpoint(each.name, each.host, each.port, SECURITY_PROTOCOLS[each.security_protocol]) for each in listeners]


def _check(file_system: FileSystem, config: BrokerConfig, manager: LogManager, home: LogDirectory) -> None:
    """Checks before anything is written; `home` is the directory with the metadata."""
    if not home.online and len(manager.directories) == 1 and home in manager.directories:
        raise StorageError(home.failure or "")
    if not home.online:
        where = "in the first log directory" if config.get("metadata.log.dir") is None else f"in {home.path}"
        raise StorageError(f"The metadata is {where}, which is offline: {home.failure}")
    check_before_changing(file_system, manager.directories, home)


def load_logs(storage: Storage, now_ms: int) -> None:
    """Load the logs of the partitions in the image. After an error the storage is abandoned.

    Raises:
        StorageError: a directory cannot be used.
    """
    try:
        for repair in storage.metadata.repairs:
            logger.warning("Metadata log: %s", repair)
        _load_logs(storage, now_ms)
    except LogDirectoryError as error:
        storage.abandon()
        raise StorageError(str(error)) from None
    except BaseException:
        storage.abandon()
        raise


def _load_logs(storage: Storage, now_ms: int) -> None:
    image = storage.metadata.image
    node_id = storage.metadata.node_id
    config = storage.metadata.broker_config
    plain = topic_log_config({}, config)

    def config_of(topic: str) -> LogConfig:
        overrides: Mapping[str, str] = image.config(TOPIC_RESOURCE, topic)
        return topic_log_config(overrides, config) if overrides else plain

    def is_stray(topic: str, partition: int, topic_id: bytes | None) -> bool:
        known = image.topics_by_name.get(topic)
        if known is None or (topic_id is not None and topic_id != known.topic_id):
            return True
        registration = known.partitions.get(partition)
        return registration is None or node_id not in registration.replicas

    def directory_id_of(topic: str, partition: int) -> bytes | None:
        known = image.topics_by_name.get(topic)
        registration = None if known is None else known.partitions.get(partition)
        return None if registration is None else registration.directory(node_id)

    recovery = Recovery(storage.log_manager.file_system, config.int("num.recovery.threads.per.data.dir"))
    try:
        report = storage.log_manager.load(
            now_ms=now_ms,
            config_of=config_of,
            is_stray=is_stray,
            directory_id_of=directory_id_of,
            compacted_anywhere=not storage.metadata.was_served_by_this_version,
            progress=recovery,
        )
    finally:
        recovery.close()
    troubles = report.repairs or report.strays or report.failed or report.links or report.foreign
    level = logging.WARNING if troubles else logging.INFO
    if report.loaded or level > logging.INFO:
        summary = report.summary()
        logger.log(level, "%s", summary[:1].upper() + summary[1:])
    if report.failed:
        logger.warning("Failed logs are offline and their files are unchanged; check them with `moldau log verify`")
