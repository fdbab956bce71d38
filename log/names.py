"""Names of the files and directories of a log, as Apache Kafka names them.

    <log directory>/<topic>-<partition>/<base offset, 20 digits>.log
                                                               .index .timeindex .txnindex
                                        <offset, 20 digits>.snapshot
                                        leader-epoch-checkpoint
                                        partition.metadata

`.deleted` is appended to files that are about to be unlinked, `.cleaned` and `.swap` to the results of compaction
before they are in place. A partition's directory is renamed to `<topic>-<partition>.<32 hex digits>-delete` before it
is deleted, and to `...-stray` if it does not belong to a topic of the cluster; `...-future` is a replica that moves to
another log directory.

A log directory may contain files of its user. Only names of exactly these forms belong to the log: code that deletes
files checks `is_partition_file` or `is_leftover`, not the suffix of a name.
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
"""The metadata log is in a log directory too, but belongs to the controller: it is not one of the broker's logs."""

CUT = ".cut-"
"""In the name of a file with the bytes that a repair truncated: `<segment>.log.cut-<position>`."""

_MAX_NAME = 255
_MAX_TOPIC = 249
_MAX_PARTITION = 0x7FFF_FFFF
_TOPIC_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_UNIQUE_CHARACTERS = frozenset("0123456789abcdef")
_UNIQUE_LENGTH = 32

_OFFSET_SUFFIXES = frozenset({*SEGMENT_SUFFIXES, PRODUCER_SNAPSHOT})
_STATES = (DELETED, CLEANED, SWAP, TEMPORARY)
_OFFSET_LEFTOVERS = frozenset(suffix + state for suffix in _OFFSET_SUFFIXES for state in _STATES)
_SMALL_FILES = frozenset({LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA})
_SMALL_LEFTOVERS = frozenset(name + TEMPORARY for name in _SMALL_FILES)


def offset_file_name(offset: int, suffix: str) -> str:
    """`00000000000000000042.log` for offset 42."""
    return f"{offset:020d}{suffix}"


def parse_offset_file_name(name: str) -> tuple[int, str] | None:
    """The offset and the suffix (everything from the first dot); None for any other file."""
    digits, dot, suffix = name.partition(".")
    if not dot or len(digits) != 20 or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits), dot + suffix


def is_leftover(name: str) -> bool:
    """Whether a file of a partition was being written, swapped in or deleted, by its name."""
    parsed = parse_offset_file_name(name)
    return name in _SMALL_LEFTOVERS if parsed is None else parsed[1] in _OFFSET_LEFTOVERS


def is_partition_file(name: str) -> bool:
    """Whether a file of this name in a partition's directory is the partition's."""
    parsed = parse_offset_file_name(name)
    if parsed is None:
        return name in _SMALL_FILES or name in _SMALL_LEFTOVERS
    suffix = parsed[1]
    if suffix in _OFFSET_SUFFIXES or suffix in _OFFSET_LEFTOVERS:
        return True
    position = suffix.removeprefix(LOG + CUT)
    return position != suffix and position.isascii() and position.isdigit()


def partition_directory_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def parse_partition_directory_name(name: str) -> tuple[str, int, str] | None:
    """Topic, partition and state of a directory ("" or one of the three suffixes); None for any other directory.

    A name that Kafka does not create, for example `backup-007` or `x-1.old-delete`, is another directory's.
    """
    state = ""
    for suffix in (DELETE_DIRECTORY, FUTURE_DIRECTORY, STRAY_DIRECTORY):
        if name.endswith(suffix):
            name, _dot, unique = name[: -len(suffix)].rpartition(".")
            if len(unique) != _UNIQUE_LENGTH or not _UNIQUE_CHARACTERS.issuperset(unique):
                return None
            state = suffix
            break
    topic, _dash, digits = name.rpartition("-")
    if not 0 < len(topic) <= _MAX_TOPIC or not _TOPIC_CHARACTERS.issuperset(topic):
        return None
    if not 0 < len(digits) <= 10 or not (digits.isascii() and digits.isdigit()):
        return None
    partition = int(digits)
    if partition > _MAX_PARTITION or (digits[0] == "0" and digits != "0"):
        return None
    return topic, partition, state


def retired_directory_name(topic: str, partition: int, unique: str, suffix: str) -> str:
    """The name of a partition's directory that will be deleted, is a stray, or is a copy.

    A long topic name is shortened, so that the name does not exceed the file system's 255 bytes.
    """
    rest = f"-{partition}.{unique}{suffix}"
    return topic[: _MAX_NAME - len(rest)] + rest
