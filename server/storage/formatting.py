"""Formats the log directories of a broker for the cluster of its controllers, as `kafka-storage format` does.

It writes `meta.properties` into each directory: the id of the cluster and of the node, and a new directory id. It never
changes a directory that has an owner or that contains data.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ...log.directory import LogDirectory, LogDirectoryError
from ...log.files import FileSystem
from ...metadata.metadata_log import write_bootstrap_records
from ...metadata.outcome import Versioned
from ...metadata.quorum import bootstrap_records
from ...metadata.records import UserScramCredentialRecord
from ...protocol.uuid import uuid_from_str
from .data_directories import DataDirectoryError, check_data_directories
from .opening import StorageError
from .ownership import was_used

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...config.broker_config import BrokerConfig
    from ...security.scram_arguments import ScramUser


def format_directories(
    config: BrokerConfig,
    log_dirs: Sequence[str],
    cluster_id: str,
    file_system: FileSystem,
    *,
    allow_non_empty: bool = False,
    users: Sequence[ScramUser] = (),
) -> list[str]:
    """Format these directories and `metadata.log.dir`, except those that are formatted for this node and cluster.

    ``users`` are created when the cluster is started for the first time. Returns the formatted ones. Raises
    StorageError; then nothing was changed.
    """
    if users and "controller" not in config.roles:
        raise StorageError(
            "Users are created with the cluster, by a node with the controller role. Nothing was changed."
        )
    try:
        uuid_from_str(cluster_id)
    except ValueError:
        raise StorageError(f"{cluster_id!r} is no cluster id; kafka-cluster.sh cluster-id shows it.") from None
    metadata_directory = config.optional_str("metadata.log.dir")
    paths = list(dict.fromkeys([*([metadata_directory] if metadata_directory else []), *log_dirs]))
    with contextlib.ExitStack() as opened:
        try:
            check_data_directories(file_system, dict.fromkeys(paths), allow_non_empty=allow_non_empty)
            directories = [LogDirectory(file_system, path) for path in paths]
            for directory in directories:
                directory.open(config.node_id)
                opened.callback(directory.release)
                directory.check_cluster(cluster_id)
                if directory.cluster_id is None and was_used(file_system, directory.path):
                    raise StorageError(f"{directory.path} contains data of an unknown owner. Nothing was changed.")
            new = [directory for directory in directories if directory.cluster_id is None]
            if users:
                if directories[0] not in new:
                    raise StorageError(
                        f"{directories[0].path} is formatted already, so users cannot be created with it. "
                        "Start the server and use `moldau users`. Nothing was changed."
                    )
                write_bootstrap_records(file_system, directories[0].path, _records_of(config, users))
            for directory in new:
                directory.adopt(cluster_id, config.node_id)
        except (DataDirectoryError, LogDirectoryError) as error:
            raise StorageError(str(error)) from None
        except OSError as error:
            raise StorageError(f"Cannot format {', '.join(paths)}: {error.strerror or error}.") from error
    return [directory.path for directory in new]


def _records_of(config: BrokerConfig, users: Sequence[ScramUser]) -> list[Versioned]:
    """The first records of a cluster: its features, and its first users."""
    records = [
        UserScramCredentialRecord(name=user.name, mechanism=user.mechanism.code, **user.credential._asdict())
        for user in users
    ]
    return bootstrap_records(config) + [Versioned(record) for record in records]
