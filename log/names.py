"""Names of the files and directories of a log, as Apache Kafka names them.

    <log directory>/<topic>-<partition>/<base offset, 20 digits>.log
                                                               .index .timeindex .txnindex
                                        <offset, 20 digits>.snapshot
                                        leader-epoch-checkpoint
                                        partition.metadata

`.deleted` is appended to files that are about to be unlinked, `.cleaned` and `.swap` to the results of compaction
before they take their place. A partition's directory that is to be deleted is renamed to
`<topic>-<partition>.<32 hex digits>-delete`, one that belongs to no topic of the cluster to `...-stray`, and
`...-future` is a replica on its way to another log directory.
"""

from __future__ import annotations

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
PRODUCER_SNAPSHOT = ".snapshot"
SEGMENT_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
TEMPORARY = ".tmp"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

DELETE_DIRECTORY = "-delete"
FUTURE_DIRECTORY = "-future"
STRAY_DIRECTORY = "-stray"

METADATA_TOPIC = "__cluster_metadata"
"""The metadata log lies in a log directory too, but belongs to the controller: it is not one of the broker's logs."""

_MAX_NAME = 255


def offset_file_name(offset: int, suffix: str) -> str:
    """`00000000000000000042.log` for offset 42."""
    return f"{offset:020d}{suffix}"


def parse_offset_file_name(name: str) -> tuple[int, str] | None:
    """The offset and the suffix (everything from the first dot); None for a file that is not named by an offset."""
    digits, dot, suffix = name.partition(".")
    if not dot or len(digits) != 20 or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits), dot + suffix


def partition_directory_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def parse_partition_directory_name(name: str) -> tuple[str, int, str] | None:
    """Topic, partition and what the directory is ("" or one of the three suffixes); None for any other directory."""
    state = ""
    for suffix in (DELETE_DIRECTORY, FUTURE_DIRECTORY, STRAY_DIRECTORY):
        if name.endswith(suffix):
            name, dot, unique = name[: -len(suffix)].rpartition(".")
            if not dot or not unique:
                return None
            state = suffix
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not (partition.isascii() and partition.isdigit()):
        return None
    return topic, int(partition), state


def retired_directory_name(topic: str, partition: int, unique: str, suffix: str) -> str:
    """The name under which a partition's directory waits to be deleted, or is kept as a stray.

    A long topic name is cut, so that the whole stays within the file system's 255 bytes.
    """
    rest = f"-{partition}.{unique}{suffix}"
    return topic[: _MAX_NAME - len(rest)] + rest
