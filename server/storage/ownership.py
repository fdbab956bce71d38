"""Whether the contents of the log directories belong together and to this node: checked before startup changes them.

Startup follows the metadata log: partitions that are not in the metadata log are set aside, and missing partitions are
re-created. This is right after a crash. It would destroy data if the metadata log belonged to another cluster, were
missing, or were decided together with other nodes. Therefore startup refuses these cases, with a message that states
what to do:

* partitions without a metadata log, or with one that is in another of the directories;
* directories none of which the metadata log contains;
* partitions of other topics than those of the metadata log. Topics whose deletion is in the log are permitted: a crash
  has left their directories;
* a metadata log of a cluster with other brokers. The metadata log itself checks for other voters.

If one of several log directories is missing, its partitions are not a reason to refuse: they are offline
(`LogManager.get_or_create`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ...config.broker_config import StaticValue
from ...log.checkpoints import (
    META_PROPERTIES,
    CorruptCheckpointError,
    TopicPartition,
    decode_partition_metadata,
    decode_properties,
)
from ...log.files import FileSystem, join
from ...log.names import (
    LOG,
    METADATA_TOPIC,
    PARTITION_METADATA,
    parse_offset_file_name,
    parse_partition_directory_name,
)
from ...metadata.metadata_log import DIRECTORY as METADATA_DIRECTORY
from ...metadata.metadata_log import is_formatted
from ...protocol.uuid import uuid_to_str

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...log.directory import LogDirectory
    from ...metadata.image import MetadataImage

_NAMED_AT_MOST = 5

BROKERS_FOLDER: Final = "brokers"
"""The folder in a directory of the first of several brokers that contains those of the others (`members`)."""


class OwnershipError(Exception):
    """This node must not use the directories as they are. Nothing was changed. The message is for the user."""


def with_node_id_of(config: BrokerConfig, paths: Iterable[str], file_system: FileSystem) -> BrokerConfig:
    """The same settings, with the `node.id` from the directories if none is set."""
    if "node.id" in config.static:
        return config
    for path in paths:
        try:
            properties = decode_properties(file_system.read_file(join(path, META_PROPERTIES)))
        except OSError:
            continue
        node_id = properties.get("node.id", "")
        if node_id.isdigit() and properties.get("version") == "1":
            return config.with_static({"node.id": StaticValue(node_id, join(path, META_PROPERTIES))})
    return config


def check_before_changing(
    file_system: FileSystem, directories: Sequence[LogDirectory], metadata_directory: LogDirectory
) -> None:
    """Raise `OwnershipError` if startup would create a metadata log, or ids, next to partitions of older ones."""
    for each in (metadata_directory, *directories):
        if each.cluster_id is None and each.online and was_used(file_system, each.path):
            raise OwnershipError(
                f"{each.path} contains data but no {META_PROPERTIES}, so its owner is unknown. Restore the file from "
                "a backup; a new file would start a new cluster. Nothing was changed."
            )
    if is_formatted(file_system, metadata_directory.path):
        return
    elsewhere = [each.path for each in directories if is_formatted(file_system, each.path)]
    if elsewhere:
        raise OwnershipError(
            f"The metadata log is in {elsewhere[0]}, not in {metadata_directory.path}. List it first in log.dirs: "
            f"{elsewhere[0]}, or set metadata.log.dir. Nothing was changed."
        )
    found = [path for each in directories if each.online for path in _with_log(file_system, each.path)]
    if found:
        raise OwnershipError(
            f"There are partitions, but no metadata log: {_some(found)}. The expected path is "
            f"{join(metadata_directory.path, METADATA_DIRECTORY)}. If it is in another directory, add that to "
            "log.dirs or set metadata.log.dir; if its disk is not mounted, mount it. Nothing was changed."
        )


def was_used(file_system: FileSystem, path: str) -> bool:
    """Whether a directory holds a metadata log, or partitions with records."""
    return is_formatted(file_system, path) or bool(_with_log(file_system, path))


class Ownership:
    """The check that `Metadata.open` makes after it has read its log and before it writes the first record."""

    def __init__(
        self,
        file_system: FileSystem,
        directories: Sequence[LogDirectory],
        node_id: int,
        *,
        brokers: Collection[int] | None,
    ) -> None:
        """``brokers``: the ids of the brokers that the cluster may have; None: any."""
        self._file_system = file_system
        self._directories = directories
        self._node_id = node_id
        self._brokers = brokers

    def check(self, image: MetadataImage, deleted_topics: Collection[bytes]) -> None:
        """Raise `OwnershipError` if this node must not use these directories with this metadata.

        `deleted_topics`: the ids of topics whose deletion is in the log.
        """
        if self._brokers is not None:
            self._check_brokers(image, self._brokers)
        self._check_directories(image)
        self._check_partitions(image, deleted_topics)

    def _check_brokers(self, image: MetadataImage, brokers: Collection[int]) -> None:
        replicas: dict[int, str] = {}
        for topic in image.topics_by_id.values():
            for index, partition in topic.partitions.items():
                for broker in partition.replicas:
                    if broker not in brokers:
                        replicas.setdefault(broker, f"{topic.name}-{index}")
        is_only_broker = len(brokers) == 1
        active = sorted(broker.id for broker in image.brokers.values() if broker.is_active and broker.id not in brokers)
        if not replicas and not (active and is_only_broker):
            return
        count = max((*replicas, *active)) - self._node_id + 1
        if replicas:
            broker, partition_name = min(replicas.items())
            problem = f"{_brokers(replicas)} has replicas, for example of {partition_name}"
        else:
            problem = f"{_brokers(active)} was active when its metadata was last written"
        if self._has_folder_of_brokers():
            advice = (
                f"Start all brokers of this directory with --brokers {count}, and delete the topics with these replicas"
                if replicas
                else f"Start all brokers of this directory once with --brokers {count}, and stop them"
            )
            raise OwnershipError(f"This is the directory of several brokers: {problem}. {advice}. Nothing was changed.")
        if replicas:
            raise OwnershipError(
                f"This is one node of a larger cluster: {problem}, but Moldau supports only one broker. Reassign all "
                f"partitions to broker {self._node_id} and unregister the others with Apache Kafka first. Nothing was "
                "changed."
            )
        raise OwnershipError(
            f"This is one node of a larger cluster: {problem}. Stop and unregister it with Apache Kafka first. Nothing "
            "was changed."
        )

    def _has_folder_of_brokers(self) -> bool:
        return any(self._file_system.exists(join(each.path, BROKERS_FOLDER)) for each in self._directories)

    def _check_directories(self, image: MetadataImage) -> None:
        registration = image.brokers.get(self._node_id)
        if registration is None or not registration.directories:
            return
        # A directory without an id (new, or written before ids existed) has just been given one.
        known = [each for each in self._directories if each.had_directory_id]
        if known and not any(each.directory_id in registration.directories for each in known):
            ours = ", ".join(f"{each.path} with directory.id={uuid_to_str(each.directory_id)}" for each in known)
            theirs = ", ".join(map(uuid_to_str, registration.directories))
            raise OwnershipError(
                f"The metadata log does not contain {ours}; broker {self._node_id} was registered with {theirs}. "
                "Check whether it belongs to another cluster. Nothing was changed."
            )

    def _check_partitions(self, image: MetadataImage, deleted_topics: Collection[bytes]) -> None:
        belonging, unknown = 0, []
        for directory in self._directories:
            if not directory.online:
                continue
            for path, (name, _partition) in _partitions(self._file_system, directory.path):
                topic = image.topics_by_name.get(name)
                topic_id = self._topic_id(path)
                if topic is not None and topic_id in (None, topic.topic_id):
                    belonging += 1
                elif topic_id in deleted_topics or not _has_log(self._file_system, path):
                    continue
                elif topic is not None and topic_id is not None:
                    raise OwnershipError(
                        f"{path} belongs to a topic with id {uuid_to_str(topic_id)}, but {name} has id "
                        f"{uuid_to_str(topic.topic_id)} in the metadata log, which does not contain the other id. "
                        "Check whether it belongs to another cluster, and move it away. Nothing was changed."
                    )
                else:
                    unknown.append(path)
        if unknown and not belonging:
            raise OwnershipError(
                f"The metadata log contains none of these partitions: {_some(unknown)}. Check whether it belongs to "
                "another cluster. Nothing was changed."
            )

    def _topic_id(self, path: str) -> bytes | None:
        """None if the id is missing or cannot be read; loading the partition reports that."""
        file = join(path, PARTITION_METADATA)
        try:
            return decode_partition_metadata(self._file_system.read_file(file), file)
        except (OSError, CorruptCheckpointError):
            return None


def _partitions(file_system: FileSystem, directory: str) -> list[tuple[str, TopicPartition]]:
    """Paths of a directory's partitions, without those that wait for deletion, for example."""
    found = []
    for name in sorted(file_system.list_directory(directory)[1]):
        parsed = parse_partition_directory_name(name)
        if parsed is not None and not parsed[2] and parsed[0] != METADATA_TOPIC:
            found.append((join(directory, name), parsed[:2]))
    return found


def _with_log(file_system: FileSystem, directory: str) -> list[str]:
    """Paths of a directory's partitions with records."""
    return [path for path, _key in _partitions(file_system, directory) if _has_log(file_system, path)]


def _has_log(file_system: FileSystem, path: str) -> bool:
    """Decided by the name of a segment: files of other programs may also end in .log."""
    try:
        names = file_system.list_directory(path)[0]
    except PermissionError:
        return False  # if it is a partition, loading it reports the error
    parsed = map(parse_offset_file_name, names)
    return any(found is not None and found[1] == LOG for found in parsed)


def _some(paths: Sequence[str]) -> str:
    more = len(paths) - _NAMED_AT_MOST
    return ", ".join(paths[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")


def _brokers(ids: Iterable[int]) -> str:
    names = sorted(ids)
    return f"broker {names[0]}" if len(names) == 1 else f"each of the brokers {', '.join(map(str, names))}"
