"""Formats the log directories of a broker for the cluster of its controllers, as `kafka-storage format` does.

It writes `meta.properties` into each directory: the id of the cluster and of the node, and a new directory id. It never
changes a directory that has an owner or that contains data.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ...log.directory import LogDirectory, LogDirectoryError
from ...log.files import FileSystem
from ...protocol.uuid import uuid_from_str
from .data_directories import DataDirectoryError, check_data_directories
from .opening import StorageError
from .ownership import was_used

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...config.broker_config import BrokerConfig


def format_directories(
    config: BrokerConfig,
    log_dirs: Sequence[str],
    cluster_id: str,
    file_system: FileSystem,
    *,
    allow_non_empty: bool = False,
) -> list[str]:
    """Format these directories and `metadata.log.dir`, except those that are formatted for this node and cluster.

    Returns the formatted ones. Raises StorageError; then nothing was changed.
    """
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
            for directory in new:
                directory.adopt(cluster_id, config.node_id)
        except (DataDirectoryError, LogDirectoryError) as error:
            raise StorageError(str(error)) from None
        except OSError as error:
            raise StorageError(f"Cannot format {', '.join(paths)}: {error.strerror or error}.") from error
    return [directory.path for directory in new]
