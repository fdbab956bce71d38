"""Whether what is in the log directories belongs together, and to this node: asked before a start changes anything.

A start follows the metadata log: what it does not know is set aside, what it knows and does not find is made anew. That
is right for what a crash left half done, and ruin where the metadata log is another cluster's, is gone, or decides
together with other nodes. So these are refused, in words that say what to do:

* partitions without a metadata log, or with one that is in another of the directories;
* directories of which the metadata log knows none;
* partitions of other topics than those of the metadata log. A topic that the log itself says was deleted is not
  meant: its directories are what a crash left;
* a metadata log of a cluster with other brokers. Other voters are the metadata log's own business.

A partition in a log directory that is missing among several is not refused here, it is offline (`LogManager.create`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from ..config.broker_config import StaticValue
from ..log.checkpoints import (
    META_PROPERTIES,
    CorruptCheckpointError,
    TopicPartition,
    decode_partition_metadata,
    decode_properties,
)
from ..log.files import FileSystem, join
from ..log.names import (
    LOG,
    METADATA_TOPIC,
    PARTITION_METADATA,
    parse_offset_file_name,
    parse_partition_directory_name,
)
from ..metadata.metadata_log import DIRECTORY as METADATA_DIRECTORY
from ..metadata.metadata_log import is_formatted
from ..protocol.uuid import uuid_to_str

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig
    from ..log.directory import LogDirectory
    from ..metadata.image import MetadataImage

_NAMED_AT_MOST = 5


class OwnershipError(Exception):
    """The directories must not be served by this node as they are; nothing was changed. The text is for people."""


def with_node_id_of(config: BrokerConfig, paths: Iterable[str], file_system: FileSystem) -> BrokerConfig:
    """The same settings, with the `node.id` of the directories if none was given."""
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
    """Raise `OwnershipError` where a start would make a new metadata log, or new ids, beside partitions of old ones."""
    for each in (metadata_directory, *directories):
        if each.cluster_id is None and each.online and was_used(file_system, each.path):
            raise OwnershipError(
                f"{each.path} has been used, and has lost its {META_PROPERTIES}, which says by whom. Put it back from "
                "a backup; a new one would be another cluster's. Nothing was changed."
            )
    if is_formatted(file_system, metadata_directory.path):
        return
    elsewhere = [each.path for each in directories if is_formatted(file_system, each.path)]
    if elsewhere:
        raise OwnershipError(
            f"The metadata log is in {elsewhere[0]}, and not in {metadata_directory.path}: let log.dirs begin with "
            f"{elsewhere[0]}, or set metadata.log.dir. Nothing was changed."
        )
    found = [path for each in directories if each.online for path in _with_log(file_system, each.path)]
    if found:
        raise OwnershipError(
            f"There are partitions without the metadata log that knows of them: {_some(found)}. It would be "
            f"{join(metadata_directory.path, METADATA_DIRECTORY)}; is it in another directory, which log.dirs or "
            "metadata.log.dir should name, or on a disk that is not mounted? Nothing was changed."
        )


def was_used(file_system: FileSystem, path: str) -> bool:
    """Whether a directory holds a metadata log, or partitions to which anything was ever appended."""
    return is_formatted(file_system, path) or bool(_with_log(file_system, path))


class Ownership:
    """What `Metadata.open` asks when it has read its log and before it writes the first record."""

    def __init__(self, file_system: FileSystem, directories: Sequence[LogDirectory], node_id: int) -> None:
        self._file_system = file_system
        self._directories = directories
        self._node_id = node_id

    def check(self, image: MetadataImage, deleted_topics: Collection[bytes]) -> None:
        """Raise `OwnershipError` if this node must not go on with these directories and this metadata.

        `deleted_topics` are the ids of topics that the log says were deleted.
        """
        self._check_brokers(image)
        self._check_directories(image)
        self._check_partitions(image, deleted_topics)

    def _check_brokers(self, image: MetadataImage) -> None:
        active = sorted(
            broker.id for broker in image.brokers.values() if broker.is_active and broker.id != self._node_id
        )
        replicas: dict[int, str] = {}
        for topic in image.topics_by_id.values():
            for index, partition in topic.partitions.items():
                for broker in partition.replicas:
                    replicas.setdefault(broker, f"{topic.name}-{index}")
        replicas.pop(self._node_id, None)
        if replicas:
            broker, partition_name = min(replicas.items())
            raise OwnershipError(
                f"This is one node of a cluster of several: {_brokers(replicas)} has replicas, of {partition_name} for "
                f"one, and Moldau serves alone. Reassign all partitions to broker {self._node_id} and unregister the "
                "others with Apache Kafka first. Nothing was changed."
            )
        if active:
            raise OwnershipError(
                f"This is one node of a cluster of several: {_brokers(active)} was active when its metadata was last "
                "written. Stop and unregister it with Apache Kafka first. Nothing was changed."
            )

    def _check_directories(self, image: MetadataImage) -> None:
        registration = image.brokers.get(self._node_id)
        if registration is None or not registration.directories:
            return
        # A directory that is new, or from before there were ids, has been given one just now.
        known = [each for each in self._directories if each.had_directory_id]
        if known and not any(each.directory_id in registration.directories for each in known):
            ours = ", ".join(f"{each.path} with directory.id={uuid_to_str(each.directory_id)}" for each in known)
            theirs = ", ".join(map(uuid_to_str, registration.directories))
            raise OwnershipError(
                f"The metadata log does not know {ours}; its broker {self._node_id} had {theirs}. "
                "Is it another cluster's? Nothing was changed."
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
                        f"{path} is of a topic with the id {uuid_to_str(topic_id)}; {name} has the id "
                        f"{uuid_to_str(topic.topic_id)} in the metadata log, which never knew the other. Is it another "
                        "cluster's? Move it away, or put right what belongs here. Nothing was changed."
                    )
                else:
                    unknown.append(path)
        if unknown and not belonging:
            raise OwnershipError(
                f"The metadata log knows none of the partitions that are here: {_some(unknown)}. Is it another "
                "cluster's? Nothing was changed."
            )

    def _topic_id(self, path: str) -> bytes | None:
        """None where it is not said, or cannot be read; the start tells of that."""
        file = join(path, PARTITION_METADATA)
        try:
            return decode_partition_metadata(self._file_system.read_file(file), file)
        except (OSError, CorruptCheckpointError):
            return None


def _partitions(file_system: FileSystem, directory: str) -> list[tuple[str, TopicPartition]]:
    """Paths of a directory's partitions, without those that wait to be deleted and the like."""
    found = []
    for name in sorted(file_system.list_directory(directory)[1]):
        parsed = parse_partition_directory_name(name)
        if parsed is not None and not parsed[2] and parsed[0] != METADATA_TOPIC:
            found.append((join(directory, name), parsed[:2]))
    return found


def _with_log(file_system: FileSystem, directory: str) -> list[str]:
    """Paths of its partitions to which anything was ever appended."""
    return [path for path, _key in _partitions(file_system, directory) if _has_log(file_system, path)]


def _has_log(file_system: FileSystem, path: str) -> bool:
    """By the name of a segment: any program has files that end in .log."""
    try:
        names = file_system.list_directory(path)[0]
    except PermissionError:
        return False  # loading it tells, if it is a partition
    parsed = map(parse_offset_file_name, names)
    return any(found is not None and found[1] == LOG for found in parsed)


def _some(paths: Sequence[str]) -> str:
    more = len(paths) - _NAMED_AT_MOST
    return ", ".join(paths[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")


def _brokers(ids: Iterable[int]) -> str:
    names = sorted(ids)
    return f"broker {names[0]}" if len(names) == 1 else f"each of the brokers {', '.join(map(str, names))}"
