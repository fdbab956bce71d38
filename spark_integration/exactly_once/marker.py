"""The marker that a writer stores with each part of a batch, and what the last marker means for the next attempt.

A marker is a record of the query's topic of batches. Its key and its partition are the number of the writer, and its
value is JSON. It is in the same transaction as the rows that it describes.

    {"version": 1, "query_id": "8d0b1f6e-...", "batch": 17, "rows": 1204, "digest": "00c5f1d2a9b34e77",
     "writers": 4, "split": "content"}

``query_id`` is Spark's, from the checkpoint. The digest is the sum of the rows' hashes, so it does not depend on their
order. It detects a repeated batch whose content differs, which a checkpoint cannot. Rows may then have moved from one
writer to another, and neither writing the part nor skipping it would be right.

This module is pure: it decides and does no I/O.
"""

from __future__ import annotations

import enum
import json
from dataclasses import asdict, dataclass
from typing import Literal

from .errors import ExactlyOnceError

# How rows are assigned to writers: by a hash of the row, or by a column that the user has named.
Split = Literal["content", "column"]

_VERSION = 1
_DIGESTS = 1 << 64


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a part of a batch, as far as it can be compared."""

    rows: int = 0
    digest: int = 0

    def and_row(self, row_hash: int) -> Content:
        return Content(self.rows + 1, (self.digest + row_hash) % _DIGESTS)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a query: equal for all writers, and for each repetition."""

    query_name: str
    query_id: str
    number: int
    writers: int
    split: Split


@dataclass(frozen=True, slots=True)
class Marker:
    """States that a part of a batch is written."""

    query_id: str
    batch: int
    content: Content
    writers: int
    split: Split

    @classmethod
    def of(cls, batch: Batch, content: Content) -> Marker:
        return cls(batch.query_id, batch.number, content, batch.writers, batch.split)

    def to_json(self) -> bytes:
        fields = asdict(self)
        del fields["content"]
        content = {"rows": self.content.rows, "digest": f"{self.content.digest:016x}"}
        return json.dumps({"version": _VERSION, **fields, **content}).encode()

    @classmethod
    def from_json(cls, text: bytes | None) -> Marker:
        """ExactlyOnceError if this is not a marker, or has an unknown version."""
        try:
            fields = json.loads(text or b"")
            if fields["version"] != _VERSION:
                raise ExactlyOnceError(
                    f"the last batch was written by another version of moldau (its marker has version "
                    f"{fields['version']}, supported is {_VERSION}): continue with that version of moldau"
                )
            content = Content(int(fields["rows"]), int(fields["digest"], 16))
            return cls(fields["query_id"], int(fields["batch"]), content, int(fields["writers"]), fields["split"])
        except (ValueError, KeyError, TypeError) as error:
            raise ExactlyOnceError(
                f"the topic of the query's batches has a record that is not a marker ({text!r:.80}): another producer "
                "writes to it. Choose another topic with batches_topic="
            ) from error


class Part(enum.Enum):
    """The state of a part of a batch at the beginning of an attempt."""

    NOT_WRITTEN = "write it"
    WRITTEN = "it is already written: only compare"


def standing(last: Marker | None, batch: Batch) -> Part:
    """What a writer's last marker means for a batch; ExactlyOnceError if the batch must not be written."""
    if last is None:
        return Part.NOT_WRITTEN
    if last.query_id != batch.query_id:
        raise ExactlyOnceError(
            f"{batch.query_name} has a different checkpoint than before: Spark's id of the query is {batch.query_id}, "
            f"and was {last.query_id} when batch {last.batch} was written. A new checkpoint counts batches from 0, so "
            "written batches cannot be distinguished from new ones. Start with the previous checkpoint; or, to start "
            "again from the beginning (rows that the source reads again are then written again), with another "
            "query_name"
        )
    if last.batch > batch.number:
        raise ExactlyOnceError(
            f"batch {batch.number} of {batch.query_name} is outdated: batch {last.batch} is already written. "
            "The checkpoint was restored from an older copy, or another driver runs the same query"
        )
    if last.batch < batch.number:
        return Part.NOT_WRITTEN
    if (last.writers, last.split) != (batch.writers, batch.split):
        raise ExactlyOnceError(
            f"batch {batch.number} of {batch.query_name} was partly written by {_writers(last.writers, last.split)}: "
            f"it cannot be completed by {_writers(batch.writers, batch.split)}. Change the writers after this batch"
        )
    return Part.WRITTEN


def check_same(last: Marker, found: Content, batch: Batch, writer: int) -> None:
    """ExactlyOnceError if the content of a written part is not the same as before.

    With a single writer, a written part is the whole batch, so a difference does not matter.
    """
    if batch.writers == 1 or last.content == found:
        return
    now = f"{_rows(found.rows)} now" if last.content.rows != found.rows else "different rows now"
    or_shared = " Or two of Spark's partitions have this writer's number" if batch.split == "column" else ""
    raise ExactlyOnceError(
        f"batch {batch.number} of {batch.query_name} is not the same as when it ran before: writer {writer} had "
        f"{_rows(last.content.rows)} then and has {now}. The input of the writer is not deterministic (the time of "
        "day, random numbers, a table that has changed, a limit without an order), so the written rows of this batch "
        "cannot be distinguished from the rest. If it cannot be made deterministic, writers=1 writes a batch as a whole"
        f".{or_shared}"
    )


def _writers(count: int, split: Split) -> str:
    return f"{count} {'writer' if count == 1 else 'writers'} {'with' if split == 'column' else 'without'} writer_column"


def _rows(count: int) -> str:
    return f"{count} {'row' if count == 1 else 'rows'}"
