"""Reads with `isolation_level` read_committed: what a partition shows of transactions, and what a consumer returns."""

from __future__ import annotations

from typing import NamedTuple

from ..protocol.errors import ErrorCode
from ..protocol.messages.describe_producers import DescribeProducersRequest, ProducerState, TopicRequest
from ..protocol.records import iter_records
from . import partitions as p
from .check import Check, Topic
from .exchange import Connection

READ_COMMITTED = 1
COMMIT_KEY = b"\x00\x00\x00\x01"
ABORT_KEY = b"\x00\x00\x00\x00"


class Stored(NamedTuple):
    """The transactional fields of a fetch response, and its records."""

    high_watermark: int
    last_stable_offset: int
    aborted: list[tuple[int, int]] | None
    """Producer ID and first offset, in the order of the response."""
    values: list[bytes | None]
    """Of all records that are not markers, including those of aborted transactions."""


def stored(
    c: Check,
    topic: Topic,
    offset: int = 0,
    *,
    partition: int = 0,
    committed: bool = True,
    version: int | None = None,
    max_bytes: int = 50_000_000,
) -> Stored:
    """One fetch, which does not wait."""
    data = p.fetch(
        c,
        topic,
        offset,
        partition=partition,
        version=version,
        max_bytes=max_bytes,
        partition_max_bytes=max_bytes,
        isolation_level=READ_COMMITTED if committed else 0,
    )
    c.error(data.error_code, ErrorCode.NONE, "Fetch partition error_code")
    aborted = data.aborted_transactions or ([] if committed else None)
    return Stored(
        data.high_watermark,
        data.last_stable_offset,
        None if aborted is None else [(each.producer_id, each.first_offset) for each in aborted],
        [
            record.value
            for batch in p.batches_of(data)
            if not batch.is_control
            for record in iter_records(batch)
            if record.offset >= offset
        ],
    )


def shows(
    c: Check,
    found: Stored,
    *,
    high_watermark: int,
    last_stable_offset: int,
    aborted: list[tuple[int, int]] | None,
    values: list[bytes | None] | list[bytes],
) -> None:
    """Compare all fields."""
    c.equal(found.high_watermark, high_watermark, "high_watermark")
    c.equal(found.last_stable_offset, last_stable_offset, "last_stable_offset")
    c.equal(found.aborted, aborted, "aborted_transactions (producer_id, first_offset)")
    c.equal(found.values, values, "the values of the records")


def consumed(
    c: Check, topic: Topic, *, partition: int = 0, start: int = 0, to: Connection | None = None
) -> list[bytes | None]:
    """The values that a consumer with `isolation.level=read_committed` returns.

    As the protocol describes it: a batch is skipped from the first offset of an aborted transaction of its producer
    until the producer's next marker. Small fetches, so that the lists of several responses are needed.
    """
    found: list[bytes | None] = []
    offset = start
    while True:
        data = p.fetch(
            c, topic, offset, partition=partition, partition_max_bytes=500, isolation_level=READ_COMMITTED, to=to
        )
        c.error(data.error_code, ErrorCode.NONE, "Fetch partition error_code")
        batches = p.batches_of(data)
        if not batches:
            return found
        aborted = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or [])
        skipped: set[int] = set()
        for batch in batches:
            while aborted and aborted[0][0] <= batch.last_offset:
                skipped.add(aborted.pop(0)[1])
            if batch.is_control:
                skipped.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in skipped):
                found += [record.value for record in iter_records(batch) if record.offset >= offset]
        offset = batches[-1].next_offset


def end(c: Check, topic: Topic, *, partition: int = 0) -> int:
    """The log end offset, with uncommitted records."""
    return p.end_offset(c, topic, partition=partition)


def producers(c: Check, topic: Topic, partition: int = 0) -> dict[int, ProducerState]:
    """DescribeProducers of one partition, by producer ID."""
    requested = TopicRequest(name=topic.name, partition_indexes=[partition])
    response = c.call(DescribeProducersRequest(topics=[requested]), 0)
    c.equal([each.name for each in response.topics], [topic.name], "the topics of the DescribeProducers response")
    found = response.topics[0].partitions
    c.equal([each.partition_index for each in found], [partition], "the partitions of the DescribeProducers response")
    c.error(found[0].error_code, ErrorCode.NONE, "DescribeProducers error_code")
    return {each.producer_id: each for each in found[0].active_producers}


def markers(c: Check, topic: Topic, *, partition: int = 0) -> list[bool]:
    """The outcomes of the markers of a partition: true for commit."""
    keys = [
        record.key
        for batch in p.read_batches(c, topic, partition=partition)
        if batch.is_control
        for record in iter_records(batch)
    ]
    c.equal([each for each in keys if each not in (COMMIT_KEY, ABORT_KEY)], [], "keys of control records")
    return [each == COMMIT_KEY for each in keys]
