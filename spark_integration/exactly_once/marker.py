"""What a writer leaves with each part of a batch, and what the last one it has left means for the next attempt.

A marker is a record of the query's topic of batches: the key is the number of the writer, the partition too, the
value is JSON. It is in the same transaction as the rows that it tells of.

    {"version": 1, "query_id": "8d0b1f6e-...", "batch": 17, "rows": 1204, "digest": "00c5f1d2a9b34e77",
     "writers": 4, "split": "content"}

``query_id`` is Spark's, from the checkpoint. The digest is the sum of the rows' hashes, so it does not depend on their
order. It finds out a batch that was not the same the second time, which no checkpoint could: then rows may have
moved from one writer to another, and neither writing nor leaving out would be right.

Everything here decides and touches nothing.
"""

from __future__ import annotations

import enum
import json
from dataclasses import asdict, dataclass
from typing import Literal

from .errors import ExactlyOnceError

# What decides which writer a row falls to: a hash of the row, or the column that the user has named.
Split = Literal["content", "column"]

_VERSION = 1
_DIGESTS = 1 << 64


@dataclass(frozen=True, slots=True)
class Content:
    """A part of a batch, as far as it can be told from another."""

    rows: int = 0
    digest: int = 0

    def and_row(self, row_hash: int) -> Content:
        return Content(self.rows + 1, (self.digest + row_hash) % _DIGESTS)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a query: the same for all writers, and the same when it runs again."""

    query_name: str
    query_id: str
    number: int
    writers: int
    split: Split


@dataclass(frozen=True, slots=True)
class Marker:
    """A part of a batch is written."""

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
        """ExactlyOnceError where this is not a marker, or is one of a version that is not known here."""
        try:
            fields = json.loads(text or b"")
            if fields["version"] != _VERSION:
                raise ExactlyOnceError(
                    f"the last batch was written by another version of moldau (its marker has version "
                    f"{fields['version']}, known here is {_VERSION}): go on with that version"
                )
            content = Content(int(fields["rows"]), int(fields["digest"], 16))
            return cls(fields["query_id"], int(fields["batch"]), content, int(fields["writers"]), fields["split"])
        except (ValueError, KeyError, TypeError) as error:
            raise ExactlyOnceError(
                f"the topic of the query's batches has a record that is not a marker ({text!r:.80}): somebody else "
                "writes to it. Name another one with batches_topic="
            ) from error


class Part(enum.Enum):
    """Where a part of a batch stands when an attempt at it begins."""

    NOT_WRITTEN = "write it"
    WRITTEN = "it is there already: only compare"


def standing(last: Marker | None, batch: Batch) -> Part:
    """What the last marker of a writer means for a batch; ExactlyOnceError where the batch must not be written."""
    if last is None:
        return Part.NOT_WRITTEN
    if last.query_id != batch.query_id:
        raise ExactlyOnceError(
            f"{batch.query_name} has another checkpoint than before: Spark's id of the query is {batch.query_id}, and "
            f"was {last.query_id} when batch {last.batch} was written. Batches are counted from 0 in a new checkpoint, "
            "so what was written already cannot be told from what was not. Start with the checkpoint of before; or, "
            "to begin anew (what the source reads again is then written again), with another query_name"
        )
    if last.batch > batch.number:
        raise ExactlyOnceError(
            f"batch {batch.number} of {batch.query_name} comes too late, batch {last.batch} is written: the checkpoint "
            "is an older copy of itself, or another driver runs the same query"
        )
    if last.batch < batch.number:
        return Part.NOT_WRITTEN
    if (last.writers, last.split) != (batch.writers, batch.split):
        raise ExactlyOnceError(
            f"batch {batch.number} of {batch.query_name} is partly written, by {_writers(last.writers, last.split)}: "
            f"it cannot be finished by {_writers(batch.writers, batch.split)}. Change that after this batch"
        )
    return Part.WRITTEN


def check_same(last: Marker, found: Content, batch: Batch, writer: int) -> None:
    """A part that is written must be what it was; ExactlyOnceError where it is not.

    One writer has the whole batch: when it is written, nothing is left that could be told from it or not.
    """
    if batch.writers == 1 or last.content == found:
        return
    now = f"{_rows(found.rows)} now" if last.content.rows != found.rows else "others now"
    or_shared = " Or two of Spark's partitions have this writer's number" if batch.split == "column" else ""
    raise ExactlyOnceError(
        f"batch {batch.number} of {batch.query_name} is not the same as when it ran before: writer {writer} had "
        f"{_rows(last.content.rows)} then and has {now}. What comes before the writer is not deterministic (the time "
        "of day, random numbers, a table that has changed, a limit without an order), and what is written of this "
        "batch cannot be told from the rest. Where it cannot be made deterministic, writers=1 writes a batch as a whole"
        f".{or_shared}"
    )


def _writers(count: int, split: Split) -> str:
    return f"{count} {'writer' if count == 1 else 'writers'} {'with' if split == 'column' else 'without'} writer_column"


def _rows(count: int) -> str:
    return f"{count} {'row' if count == 1 else 'rows'}"
