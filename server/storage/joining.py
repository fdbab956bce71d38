"""The data of a broker whose controllers are remote: the directories are opened before it joins the cluster.

Such a directory must be formatted for a cluster (`moldau format`, or Apache Kafka's `kafka-storage format`): an id that
was made up here would be that of another cluster. The logs are loaded later, when the metadata has caught up.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from ...log.checkpoints import CLEAN_SHUTDOWN, META_PROPERTIES, CorruptCheckpointError, decode_clean_shutdown
from ...log.files import FileSystem, join
from ...metadata.batches import MetadataLogError
from ...metadata.followed import FollowedMetadata
from ...metadata.observer import Address
from ...metadata.quorum_state import QuorumStateError
from ...protocol.errors import KafkaError
from ...protocol.uuid import random_uuid
from .opening import Storage, StorageError, open_directories
from .ownership import was_used

if TYPE_CHECKING:
    from random import Random

    from ...config.broker_config import BrokerConfig
    from ...log.directory import LogDirectory
    from ...log.manager import LogManager

logger = logging.getLogger(__name__)

NO_EPOCH: Final = -1


class JoiningStorage:
    """Directories of a broker that has not joined yet. `storage` can be used when its logs are loaded."""

    def __init__(self, storage: Storage, metadata: FollowedMetadata, previous_broker_epoch: int) -> None:
        self.storage = storage
        self.metadata = metadata
        self.previous_broker_epoch = previous_broker_epoch
        """The epoch of the previous life, if it ended cleanly in every directory; otherwise -1."""


def open_joining_storage(
    config: BrokerConfig,
    log_dirs: list[str],
    *,
    now_ms: int,
    file_system: FileSystem,
    rng: Random,
) -> JoiningStorage:
    """Lock the directories, and open the copy of the metadata log.

    Raises:
        StorageError: as `open_storage`; or a directory is not formatted.
    """
    directories = open_directories(
        config,
        log_dirs,
        file_system=file_system,
        new_uuid=partial(random_uuid, rng.randbytes),
        allow_non_empty=True,  # only formatted directories are accepted
        check=lambda manager, home: _check(file_system, manager, home),
    )
    manager, home, config = directories.manager, directories.home, directories.config
    voters = static_voters(config)
    bootstrap = bootstrap_servers(config)
    with directories.release as opened:
        previous = _previous_broker_epoch(file_system, manager)
        try:
            metadata = FollowedMetadata.open(
                file_system,
                home.path,
                config,
                node_id=config.node_id,
                cluster_id=manager.cluster_id,
                directory_id=home.directory_id,
                bootstrap=bootstrap,
                voters=voters,
                first=rng.randrange(len(bootstrap)),
                now_ms=now_ms,
            )
        except (MetadataLogError, QuorumStateError, KafkaError, OSError) as error:
            raise StorageError(f"Cannot use the metadata in {home.path}: {error}") from error
        opened.pop_all()
    metadata.on_log_failure(lambda error: manager.directory_failed(home, error))
    return JoiningStorage(Storage(manager, metadata, directories.separate), metadata, previous)


def static_voters(config: BrokerConfig) -> dict[int, Address]:
    """The endpoints in `controller.quorum.voters`, by node id."""
    voters = {}
    for entry in config.list("controller.quorum.voters"):
        node_id, _, address = entry.partition("@")
        voters[int(node_id)] = _address(address)
    return voters


def bootstrap_servers(config: BrokerConfig) -> list[Address]:
    """The controllers to ask for the leader: `controller.quorum.bootstrap.servers`, or the static voters."""
    servers = [_address(entry) for entry in config.list("controller.quorum.bootstrap.servers")]
    return servers or list(static_voters(config).values())


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host.strip("[]"), int(port))


def _check(file_system: FileSystem, manager: LogManager, home: LogDirectory) -> None:
    """Checks before anything is written."""
    for each in dict.fromkeys((home, *manager.directories)):
        if not each.online:
            if each is home:
                raise StorageError(f"The directory of the metadata, {home.path}, is offline: {home.failure}")
        elif each.cluster_id is None and was_used(file_system, each.path):
            raise StorageError(
                f"{each.path} contains data but no {META_PROPERTIES}, so its owner is unknown. Restore the file from a "
                "backup. Nothing was changed."
            )
    if home.cluster_id is None:
        raise StorageError(
            f"{home.path} is not formatted. Format it for the cluster of the controllers: moldau format --cluster-id "
            "ID --config FILE (kafka-cluster.sh cluster-id shows the id). Nothing was changed."
        )


def _previous_broker_epoch(file_system: FileSystem, manager: LogManager) -> int:
    """The broker epoch of a clean shutdown, if all directories have the same one (KIP-966)."""
    epochs = set()
    for directory in manager.directories:
        try:
            epochs.add(decode_clean_shutdown(file_system.read_file(join(directory.path, CLEAN_SHUTDOWN))))
        except (OSError, CorruptCheckpointError):
            return NO_EPOCH
    return epochs.pop() if len(epochs) == 1 else NO_EPOCH
