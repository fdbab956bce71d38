"""The findings of an inspection, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Severity(Enum):
    """Severity of a finding."""

    ERROR = "error"
    """Records are lost or damaged, or startup would lose some or refuse the directory."""
    WARNING = "warning"
    """Data derived from the records is wrong, or startup has to repair it; no record is lost."""
    NOTE = "note"
    """Information; nothing is wrong."""


class Kind(Enum):
    """The category of a finding."""

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
    """How a repair fixes a finding; the value is the text that is printed."""

    TRUNCATE = "truncate the log here (only with --truncate)"
    INDEXES = "rebuild the indexes of the segment"
    PRODUCERS = "rebuild producer snapshots and transaction indexes"
    BATCH_EPOCH = "write the leader epoch of leader-epoch-checkpoint to the batch, outside its CRC"
    LEADER_EPOCHS = "rebuild leader-epoch-checkpoint from the batches"
    CHECKPOINT = "correct the checkpoint"
    TOPIC_ID = "write partition.metadata from the metadata log"
    REMOVE = "remove it"


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding. `path` is a file or a directory."""

    severity: Severity
    kind: Kind
    path: str
    text: str
    """Description of the finding and its consequence."""
    partition: str | None = None
    """`<topic>-<partition>`; None for what concerns the whole log directory."""
    position: int | None = None
    """Position in the file, in bytes."""
    offset: int | None = None
    remedy: Remedy | None = None

    def as_json(self) -> dict[str, Any]:
        """The JSON form; its keys are stable."""
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
