"""Fetch: the header of a stored batch."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.records import Record, build_batch, iter_batches
from .. import partitions as p
from ..case import case, needs
from ..check import Check

_FIELDS = (
    "magic",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)
_TIME = 1_700_000_000_000


@case(
    "fetch.batch-header",
    "the header of a batch is stored as the producer sent it",
    source="Protocol: Record Batch",
    needs=needs(ApiKey.PRODUCE, 3, ApiKey.FETCH, 4),
)
def batch_header(c: Check) -> None:
    """Sends: Produce with a batch whose second record has the largest timestamp; then Fetch.

    Expects: the fields of the header as they were sent, except base offset and partition leader epoch, and a valid CRC.

    Why: consumers compute offsets and timestamps from the header, and searches by time rely on the largest timestamp.
    """
    topic = c.topic()
    times = (_TIME, _TIME + 5_000, _TIME + 1_000)
    sent = build_batch([Record(timestamp=when, value=b"value") for when in times])
    p.append(c, topic, sent)
    (expected,) = iter_batches(sent)
    found = p.read_batches(c, topic)
    c.equal(len(found), 1, "the number of batches")
    for field in _FIELDS:
        c.equal(getattr(found[0], field), getattr(expected, field), f"{field} of the batch")
    c.equal(found[0].has_valid_crc(), True, "whether the CRC is valid")
