"""What a server keeps on disk: the log directories and the metadata, opened and closed in the right order.

Open: lock the directories; replay the metadata (the topics are in it); load the partitions' logs with the configuration
that the metadata gives them, recovering what an unclean stop left. A partition's directory which the metadata does not
know is set aside, never deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..config.broker_config import BrokerConfig, Listener
from ..log.config import LogConfig
from ..log.directory import LogDirectoryError
from ..log.files import FileSystem
from ..log.manager import LogManager
from ..metadata.image import TOPIC_RESOURCE
from ..metadata.quorum import Endpoint, Metadata, MetadataLogError
from ..protocol.errors import KafkaError
from .log_configs import topic_log_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..log.checkpoints import TopicPartition

logger = logging.getLogger(__name__)

_SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class StorageError(Exception):
    """The data cannot be used; the text is for people and says what to do."""


class Storage:
    """The open directories and the metadata."""

    def __init__(self, log_manager: LogManager, metadata: Metadata) -> None:
        self.log_manager = log_manager
        self.metadata = metadata

    def close(self, now_ms: int, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """A clean stop: everything on the device, the directories marked so."""
        epoch = self.metadata.broker_epoch
        try:
            self.metadata.close(now_ms)
        except KafkaError as error:
            logger.error("The metadata log could not be closed cleanly: %s", error)
        self.log_manager.close(now_ms=now_ms, broker_epoch=epoch, high_watermarks=high_watermarks)

    def abandon(self) -> None:
        """Let go of files and locks and write nothing, as if the process had died."""
        self.metadata.abandon()
        for log in self.log_manager.logs():
            log.abandon()
        for directory in self.log_manager.directories:
            directory.release()


def open_storage(
    config: BrokerConfig,
    log_dirs: list[str],
    listeners: Iterable[Listener],
    *,
    now_ms: int,
    file_system: FileSystem,
) -> Storage:
    """Open or make the directories, the metadata in the first of them.

    Raises:
        StorageError: a directory is in use, belongs to another broker or cluster, or cannot be read.
    """
    manager = LogManager(log_dirs, node_id=config.node_id, file_system=file_system)
    try:
        manager.open()
    except LogDirectoryError as error:
        raise StorageError(str(error)) from None
    try:
        metadata = Metadata.open(
            file_system,
            manager.directories[0].path,
            config,
            node_id=config.node_id,
            cluster_id=manager.cluster_id,
            directory_ids=[directory.directory_id for directory in manager.directories],
            listeners=[
                Endpoint(listener.name, listener.host, listener.port, _SECURITY_PROTOCOLS[listener.security_protocol])
                for listener in listeners
            ],
            now_ms=now_ms,
            rack=config.optional_str("broker.rack"),
        )
    except (MetadataLogError, KafkaError, OSError) as error:
        for directory in manager.directories:
            directory.release()
        raise StorageError(f"The metadata in {manager.directories[0].path} cannot be used: {error}") from error
    storage = Storage(manager, metadata)
    try:
        for repair in metadata.repairs:
            logger.warning("Metadata log: %s", repair)
        _load_logs(storage, now_ms)
    except LogDirectoryError as error:
        storage.abandon()
        raise StorageError(str(error)) from None
    except BaseException:
        storage.abandon()
        raise
    return storage


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

    report = storage.log_manager.load(now_ms=now_ms, config_of=config_of, is_stray=is_stray)
    level = logging.WARNING if report.repairs or report.strays or report.failed else logging.INFO
    if report.loaded or level > logging.INFO:
        summary = report.summary()
        logger.log(level, "%s", summary[:1].upper() + summary[1:])
