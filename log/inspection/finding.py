"""What an inspection finds, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Severity(Enum):
    """How bad it is."""

    ERROR = "error"
    """Records are lost or damaged, or a start would lose some or refuse the directory."""
    WARNING = "warning"
    """Something that is made from the records is wrong, or a start will have to mend it; no record is lost."""
    NOTE = "note"
    """Nothing is wrong, but worth knowing."""


class Kind(Enum):
    """What sort of thing it is about."""

    BATCH = "batch"
    TAIL = "tail"
    RECORDS = "records"
    GAP = "gap"
    EPOCH = "leader-epoch"
    OFFSET_INDEX = "offset-index"
    TIME_INDEX = "time-index"
    TRANSACTION_INDEX = "transaction-index"
    SNAPSHOT = "producer-snapshot"
    CHECKPOINT = "checkpoint"
    TOPIC = "topic"
    PROPERTIES = "properties"
    METADATA = "metadata"
    UNCLEAN = "not-closed-cleanly"
    LEFTOVER = "leftover"
    UNKNOWN = "unknown"
    UNREADABLE = "unreadable"


class Remedy(Enum):
    """What a repair does about it; the value is for people."""

    TRUNCATE = "cut the log here, with --truncate only"
    INDEXES = "make the indexes of the segment anew"
    PRODUCERS = "make producer snapshots and aborted transactions anew"
    BATCH_EPOCH = "write the leader epoch of leader-epoch-checkpoint into the batch, outside of its CRC"
    LEADER_EPOCHS = "write leader-epoch-checkpoint from the batches"
    CHECKPOINT = "correct the checkpoint"
    TOPIC_ID = "write partition.metadata from the metadata log"
    REMOVE = "remove it"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found. `path` is a file, or a directory."""

    severity: Severity
    kind: Kind
    path: str
    text: str
    """What is so, and what it means, in words."""
    partition: str | None = None
    """`<topic>-<partition>`; None for what concerns the whole log directory."""
    position: int | None = None
    """In bytes from the start of the file."""
    offset: int | None = None
    remedy: Remedy | None = None

    def as_json(self) -> dict[str, Any]:
        """For programs; the keys stay."""
        return {
            "severity": self.severity.value,
            "kind": self.kind.value,
            "partition": self.partition,
            "file": self.path,
            "position": self.position,
            "offset": self.offset,
            "text": self.text,
            "repair": None if self.remedy is None else self.remedy.name.lower(),
        }
