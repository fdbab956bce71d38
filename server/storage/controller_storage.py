"""The data of a node that is only a controller: one directory, with the metadata log.

The directory is `metadata.log.dir`, or the first of `log.dirs`. The directory of a node that is also a broker is
refused: its partitions would be offline.
"""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING

from ...log.directory import LogDirectory, LogDirectoryError
from ...metadata.quorum import Metadata, MetadataLogError
from ...protocol.errors import KafkaError
from ...protocol.uuid import random_uuid, uuid_to_str
from .data_directories import DataDirectoryError, check_data_directories
from .opening import StorageError
from .ownership import OwnershipError, check_before_changing, with_node_id_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from ...config.broker_config import BrokerConfig
    from ...log.files import FileSystem
    from ...metadata.image import MetadataImage
    from ...metadata.registrations import Endpoint

logger = logging.getLogger(__name__)


class ControllerStorage:
    """The open directory and the metadata."""

    def __init__(self, directory: LogDirectory, metadata: Metadata, file_system: FileSystem) -> None:
        self.directory = directory
        self.metadata = metadata
        self._file_system = file_system

    # It has no partitions, whose names and files `upkeep` otherwise considers.

    @property
    def directories(self) -> list[LogDirectory]:
        """See `MetadataSnapshots`."""
        return [self.directory]

    def sync_names(self) -> None:
        """See `MetadataSnapshots`."""

    def take_trash(self) -> list[str]:
        """See `Trash`."""
        return []

    def delete_delay_ms(self, path: str) -> int | None:
        """See `Trash`."""
        return None

    def remove_trash(self, paths: Iterable[str]) -> list[OSError]:
        """See `Trash`."""
        problems = []
        for path in paths:
            try:
                self._file_system.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                problems.append(error)
        return problems

    def close(self, now_ms: int) -> None:
        """Flush everything, and unlock the directory."""
        try:
            self.metadata.close(now_ms)
        except KafkaError as error:
            logger.error("Cannot close the metadata log cleanly: %s", error)
        self.directory.release()

    def abandon(self) -> None:
        """Release files and locks without writing anything, as if the process had crashed."""
        self.metadata.abandon()
        self.directory.release()


def open_controller_storage(
    config: BrokerConfig,
    log_dirs: list[str],
    endpoint: Endpoint,
    *,
    now_ms: int,
    file_system: FileSystem,
    rng: Random,
    allow_non_empty: bool = False,
) -> ControllerStorage:
    """Open or create the directory. `endpoint` is the address that brokers connect to. See `open_storage`.

    Raises:
        StorageError: the directory is in use, belongs to another node or cluster, cannot be read, or is not permitted
            for data.
    """
    new_uuid = partial(random_uuid, rng.randbytes)
    path = (config.optional_str("metadata.log.dir") or log_dirs[0]).rstrip("/")
    try:
        check_data_directories(file_system, [path], allow_non_empty=allow_non_empty)
    except DataDirectoryError as error:
        raise StorageError(str(error)) from None
    config = with_node_id_of(config, [path], file_system)
    with contextlib.ExitStack() as opened:
        directory = LogDirectory(file_system, path, new_uuid)
        opened.callback(directory.release)
        try:
            directory.open(config.node_id)
            if not directory.online:
                raise StorageError(directory.failure or f"{path} is offline")
            check_before_changing(file_system, [directory], directory)
            directory.adopt(directory.cluster_id or uuid_to_str(new_uuid()), config.node_id)
        except (LogDirectoryError, OwnershipError) as error:
            raise StorageError(str(error)) from None
        assert directory.cluster_id is not None
        try:
            metadata = Metadata.open(
                file_system,
                path,
                config,
                node_id=config.node_id,
                cluster_id=directory.cluster_id,
                directory_ids=[directory.directory_id],
                listeners=(),
                controller_endpoint=endpoint,
                now_ms=now_ms,
                is_broker=False,
                check=partial(_check_role, config.node_id),
                random_uuid=new_uuid,
                draw=rng.randrange,
            )
        except (MetadataLogError, KafkaError, OSError) as error:
            raise StorageError(f"Cannot use the metadata in {path}: {error}") from error
        opened.pop_all()
    for repair in metadata.repairs:
        logger.warning("Metadata log: %s", repair)
    metadata.on_log_failure(lambda error: logger.error("The metadata log has failed: %s. Restart the server", error))
    return ControllerStorage(directory, metadata, file_system)


def _check_role(node_id: int, image: MetadataImage, deleted_topics: object) -> None:
    if node_id in image.brokers:
        raise StorageError(
            f"The directory is that of broker {node_id}, which is its own controller. Start it with "
            "process.roles=broker,controller, or use another directory"
        )
