"""What readers see of transactions: markers, the last stable offset, aborted transactions, and ListOffsets."""

from __future__ import annotations

import time
from typing import Final

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ...protocol.records import iter_records
from .. import committed_reads as r
from .. import partitions as p
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check, Topic
from ..record_batches import batch
from ..transactional_producer import Producer

FETCHES: Final = versions_of(ApiKey.FETCH, 4)
LISTINGS: Final = versions_of(ApiKey.LIST_OFFSETS, 2)
MAX_TIMESTAMP: Final = -3
OUTCOMES: Final = {"commit": (True,), "abort": (False,)}


@case(
    "transactions.fetch.exchange",
    "Fetch has the last stable offset and the aborted transactions",
    source="KIP-98",
    layer=Layer.WIRE,
    versions=FETCHES,
)
def exchange(c: Check, version: int) -> None:
    """Sends: an aborted transaction of two records, a committed one of one record, and an open one of one record; Fetch
    with read_committed and with read_uncommitted.

    Expects: high watermark 6 and last stable offset 5 for both. With read_committed the aborted transaction, and the
    records before the last stable offset; with read_uncommitted a null list, and all records.

    Why: a consumer drops the records of the listed transactions, and must not read what may still abort.
    """
    topic = c.topic()
    producer = Producer(c).begin()
    producer.write(topic, b"a", b"b")
    producer.abort()
    producer.write(topic, b"c")
    producer.commit()
    producer.write(topic, b"d")
    r.shows(
        c,
        r.stored(c, topic, version=version),
        high_watermark=6,
        last_stable_offset=5,
        aborted=[(producer.producer_id, 0)],
        values=[b"a", b"b", b"c"],
    )
    r.shows(
        c,
        r.stored(c, topic, version=version, committed=False),
        high_watermark=6,
        last_stable_offset=5,
        aborted=None,
        values=[b"a", b"b", b"c", b"d"],
    )


@case(
    "transactions.fetch.nothing-stable",
    "Fetch with read_committed returns nothing of an open transaction",
    source="KIP-98",
    layer=Layer.WIRE,
    versions=FETCHES,
)
def nothing_stable(c: Check, version: int) -> None:
    """Sends: a record in a transaction that stays open; Fetch with read_committed from offset 0, from the high
    watermark, and from the offset after it.

    Expects: no records, last stable offset 0 and high watermark 1; no error at the high watermark, and
    OFFSET_OUT_OF_RANGE after it.

    Why: an offset between the last stable offset and the high watermark is valid: the consumer waits there.
    """
    topic = c.topic()
    Producer(c).begin().write(topic, b"a")
    for offset, expected in ((0, ErrorCode.NONE), (1, ErrorCode.NONE), (2, ErrorCode.OFFSET_OUT_OF_RANGE)):
        data = p.fetch(c, topic, offset, version=version, isolation_level=r.READ_COMMITTED)
        c.error(data.error_code, expected, f"error_code at offset {offset}")
        c.equal(p.batches_of(data), [], f"the batches from offset {offset}")
        if not expected:
            c.equal((data.high_watermark, data.last_stable_offset), (1, 0), "high_watermark and last_stable_offset")
            c.equal(data.aborted_transactions or [], [], "aborted_transactions")


@case(
    "transactions.fetch.overlapping",
    "the last stable offset is the first offset of the first open transaction",
    source="KIP-98",
    needs=needs(ApiKey.FETCH, 4),
)
def overlapping(c: Check) -> None:
    """Sends: a plain record, then records of three producers; commit of the second, abort of the first, commit of the
    third; Fetch with read_committed after each.

    Expects: the last stable offset 1, 1, 3 and 8; after the abort its first offset in the aborted transactions. A
    consumer returns the plain record and those of the second and third producer.

    Why: offsets are read in order, so no record after the start of an open transaction is read.
    """
    topic = c.topic()
    first, second, third = (Producer(c).begin() for _ in range(3))
    p.append(c, topic, batch(b"plain"))
    r.shows(c, r.stored(c, topic), high_watermark=1, last_stable_offset=1, aborted=[], values=[b"plain"])
    for producer, value in ((first, b"1"), (second, b"2"), (third, b"3"), (first, b"11")):
        producer.write(topic, value)
    r.shows(c, r.stored(c, topic), high_watermark=5, last_stable_offset=1, aborted=[], values=[b"plain"])
    second.commit()
    r.shows(c, r.stored(c, topic), high_watermark=6, last_stable_offset=1, aborted=[], values=[b"plain"])
    first.abort()
    aborted = [(first.producer_id, 1)]
    values = [b"plain", b"1", b"2"]
    r.shows(c, r.stored(c, topic), high_watermark=7, last_stable_offset=3, aborted=aborted, values=values)
    third.commit()
    values = [b"plain", b"1", b"2", b"3", b"11"]
    r.shows(c, r.stored(c, topic), high_watermark=8, last_stable_offset=8, aborted=aborted, values=values)
    c.equal(r.consumed(c, topic), [b"plain", b"2", b"3"], "what a consumer with read_committed returns")


@case(
    "transactions.fetch.aborted-list",
    "the aborted transactions are those that overlap with what is fetched",
    source="KIP-98",
    needs=needs(ApiKey.FETCH, 4),
)
def aborted_list(c: Check) -> None:
    """Sends: three aborted and one committed transaction of two producers, interleaved; Fetch with read_committed from
    several offsets, with and without a limit of bytes.

    Expects: producer ID and first offset of each aborted transaction that ends at or after the fetch offset, in order
    of their ends; with a limit at least those of the records that are returned.

    Why: a consumer would return aborted records if one were missing, and drop committed ones if one were too many.
    """
    topic = c.topic()
    one, two = Producer(c).begin(), Producer(c).begin()
    one.write(topic, b"a")  # 0
    two.write(topic, b"b")  # 1
    one.abort()  # 2
    one.write(topic, b"c")  # 3
    two.abort()  # 4
    one.commit()  # 5
    one.write(topic, b"d")  # 6
    one.abort()  # 7
    first, second, third = (one.producer_id, 0), (two.producer_id, 1), (one.producer_id, 6)
    for offset, expected in (
        (0, [first, second, third]),
        (2, [first, second, third]),
        (3, [second, third]),
        (4, [second, third]),
        (5, [third]),
        (7, [third]),
        (8, []),
    ):
        c.equal(r.stored(c, topic, offset).aborted, expected, f"aborted_transactions of a fetch from {offset}")
    # A response may list more than what its records need: servers find the end of a read by an index.
    size = len(one.batch(b"a")) + 10
    for offset, batches, needed in ((0, 1, [first]), (0, 2, [first, second]), (3, 1, [second]), (5, 1, [])):
        found = r.stored(c, topic, offset, max_bytes=batches * size).aborted or []
        what = f"aborted_transactions of a fetch of {batches} batches from {offset}"
        c.equal(found[: len(needed)], needed, f"{what}: those that are needed")
        c.equal(found, [each for each in (first, second, third) if each in found], f"{what}: order")
    c.equal(r.consumed(c, topic), [b"c"], "what a consumer with read_committed returns")


@case(
    "transactions.fetch.marker",
    "a marker is a control batch of one record",
    source="KIP-98 and KIP-890",
    versions=versions_of(ApiKey.END_TXN, 4),
    variants=OUTCOMES,
)
def marker(c: Check, version: int, committed: bool) -> None:
    """Sends: a record in a transaction, EndTxn, and Fetch.

    Expects: a batch with the attributes "control" and "transactional", the producer ID, the epoch (from EndTxn version
    5 on the next one), no sequence, and one record. Its key is version 0 and type 1 for commit, 0 for abort; its value
    is version 0 and the coordinator epoch, without headers.

    Why: consumers find the outcome in this record, and do not return it.
    """
    topic = c.topic()
    producer = Producer(c, implicit=version >= 5).begin()
    producer_id = producer.producer_id
    producer.write(topic, b"a")
    producer.finish(version, committed=committed)
    batches = p.read_batches(c, topic)
    c.equal(len(batches), 2, "the number of batches")
    found = batches[1]
    c.equal((found.is_control, found.is_transactional), (True, True), "the attributes: control and transactional")
    c.equal(found.producer_id, producer_id, "producer_id")
    c.equal(found.producer_epoch, 1 if version >= 5 else 0, "producer_epoch")
    c.equal((found.base_offset, found.last_offset), (1, 1), "base offset and last offset")
    c.equal(found.base_sequence, -1, "base_sequence")
    c.true(found.has_valid_crc(), "crc", expected="the CRC of the batch", actual=found.crc)
    records = list(iter_records(found))
    c.equal([each.key for each in records], [r.COMMIT_KEY if committed else r.ABORT_KEY], "the keys")
    value = records[0].value or b""
    c.equal((len(value), value[:2]), (6, b"\x00\x00"), "the value: its length and version")
    c.equal(list(records[0].headers), [], "the headers")
    epoch = int.from_bytes(value[2:], "big", signed=True)
    c.true(epoch >= 0, "the coordinator epoch", expected="at least 0", actual=epoch)
    if c.target.supports(ApiKey.DESCRIBE_PRODUCERS, 0):
        described = r.producers(c, topic)[producer_id].coordinator_epoch
        c.equal(epoch, described, "the coordinator epoch, compared with DescribeProducers")


@case(
    "transactions.fetch.waits",
    "a fetch with read_committed waits for the end of the transaction",
    source="KIP-98",
    needs=needs(ApiKey.FETCH, 4),
    variants=OUTCOMES,
)
def waits(c: Check, committed: bool) -> None:
    """Sends: Fetch with read_committed and a minimum of one byte, after 1,000 bytes in an open transaction; on another
    connection one more record, then EndTxn.

    Expects: one response with both records and the marker, and the last stable offset after it.

    Why: a fetch that counted uncommitted bytes would return nothing immediately, and its consumer would repeat it all
    the time.
    """
    topic = c.topic()
    producer = Producer(c).begin()
    producer.write(topic, b"x" * 1_000)
    reader = c.connect()
    version = c.version(ApiKey.FETCH)
    request = p.fetch_request(
        topic, {0: 0}, version=version, max_wait_ms=20_000, min_bytes=1, isolation_level=r.READ_COMMITTED
    )
    reader.send(request, version)
    producer.write(topic, b"more")
    producer.finish(committed=committed)
    data = reader.receive().responses[0].partitions[0]
    c.error(data.error_code, ErrorCode.NONE, "Fetch partition error_code")
    c.equal((data.high_watermark, data.last_stable_offset), (3, 3), "high_watermark and last_stable_offset")
    found = [each.is_control for each in p.batches_of(data)]
    c.equal(found, [False, False, True], "the batches of the response (true: control)")
    aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or []]
    c.equal(aborted, [] if committed else [(producer.producer_id, 0)], "aborted_transactions")


@case(
    "transactions.fetch.session",
    "a fetch session returns a partition whose last stable offset has changed",
    source="KIP-227 and KIP-98",
    needs=needs(ApiKey.FETCH, 7),
)
def session(c: Check) -> None:
    """Sends: a new fetch session with read_committed for a partition with an open transaction; an incremental fetch;
    EndTxn; an incremental fetch.

    Expects: the partition with last stable offset 0 and without batches; no partition; the partition with last stable
    offset 2, the record and the marker.

    Why: in a session only changed partitions are returned, and a commit changes one without new data by a producer.
    """
    topic = c.topic()
    producer = Producer(c).begin()
    producer.write(topic, b"a")
    version = c.version(ApiKey.FETCH)

    def fetched(session_id: int, epoch: int, offsets: dict[int, int]) -> tuple[int, list[tuple[int, int, int]]]:
        request = p.fetch_request(
            topic,
            offsets,
            version=version,
            isolation_level=r.READ_COMMITTED,
            session_id=session_id,
            session_epoch=epoch,
        )
        response = c.call(request, version)
        c.error(response.error_code, ErrorCode.NONE, "Fetch error_code")
        found = [
            (data.high_watermark, data.last_stable_offset, len(p.batches_of(data)))
            for each in response.responses
            for data in each.partitions
        ]
        return response.session_id, found

    what = "high_watermark, last_stable_offset and number of batches"
    session_id, found = fetched(0, 0, {0: 0})
    if session_id == 0:
        c.equal(found, [(1, 0, 0)], what)
        return  # A server may have no room for another session.
    c.equal(found, [(1, 0, 0)], what)
    c.equal(fetched(session_id, 1, {}), (session_id, []), f"session ID; {what} while nothing changes")
    producer.commit()
    c.equal(fetched(session_id, 2, {}), (session_id, [(2, 2, 2)]), f"session ID; {what} after the commit")


@case(
    "transactions.fetch.deleted-records",
    "records of an open transaction are deleted",
    source="KIP-107 and KIP-98",
    level=Level.SHOULD,
    needs=needs(ApiKey.DELETE_RECORDS, 0),
)
def deleted_records(c: Check) -> None:
    """Sends: two records in a transaction, DeleteRecords up to offset 1, Fetch from 1; EndTxn with abort, Fetch; and
    DeleteRecords up to 2.

    Expects: the last stable offset 1, not 0, while the transaction is open; after the abort 3, with the transaction in
    the list.

    Why: the first offset of the transaction no longer exists, and a stable offset before the log would be
    invalid. The rest of the transaction is still aborted.
    """
    topic = c.topic()
    producer = Producer(c).begin()
    producer.write(topic, b"a")
    producer.write(topic, b"b")
    _delete_up_to(c, topic, 1)
    r.shows(c, r.stored(c, topic, 1), high_watermark=2, last_stable_offset=1, aborted=[], values=[])
    producer.abort()
    found = r.stored(c, topic, 1)
    aborted = [(producer.producer_id, 0)]
    r.shows(c, found, high_watermark=3, last_stable_offset=3, aborted=aborted, values=[b"b"])
    c.equal(r.consumed(c, topic, start=1), [], "what a consumer with read_committed returns")
    _delete_up_to(c, topic, 2)
    found = r.stored(c, topic, 2)
    c.equal((found.high_watermark, found.last_stable_offset), (3, 3), "high_watermark and last_stable_offset")


def _delete_up_to(c: Check, topic: Topic, offset: int) -> None:
    requested = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic.name, partitions=[requested])], timeout_ms=10_000
    )
    found = c.call(request).topics[0].partitions[0]
    c.error(found.error_code, ErrorCode.NONE, "DeleteRecords error_code")
    c.equal(found.low_watermark, offset, "DeleteRecords low_watermark")


# ListOffsets


@case(
    "transactions.list-offsets.latest",
    "the latest offset is the last stable offset for read_committed",
    source="KIP-98",
    layer=Layer.WIRE,
    versions=LISTINGS,
)
def latest(c: Check, version: int) -> None:
    """Sends: ListOffsets of the latest and of the earliest offset, with both isolation levels: during a transaction of
    two records, after it, and during a second one of one record.

    Expects: 0 and 2; 3 and 3; 3 and 4 for read_committed and read_uncommitted. The earliest offset is always 0.

    Why: a consumer computes its lag by this, and seeks to it; with read_committed it cannot read further.
    """
    topic = c.topic()
    producer = Producer(c).begin()

    def shows(committed: int, uncommitted: int) -> None:
        for isolation_level, expected in ((1, committed), (0, uncommitted)):
            for timestamp, offset in ((p.LATEST, expected), (p.EARLIEST, 0)):
                found = p.list_offset(c, topic, timestamp, version=version, isolation_level=isolation_level)
                c.error(found.error_code, ErrorCode.NONE)
                what = f"offset of timestamp {timestamp} with isolation_level {isolation_level}"
                c.equal(found.offset, offset, what)

    producer.write(topic, b"a", b"b")
    shows(0, 2)
    producer.commit()
    shows(3, 3)
    producer.write(topic, b"c")
    shows(3, 4)


@case(
    "transactions.list-offsets.timestamp",
    "offsets by timestamp end at the last stable offset for read_committed",
    source="KIP-98",
    layer=Layer.WIRE,
    versions=LISTINGS,
)
def timestamp(c: Check, version: int) -> None:
    """Sends: a committed record that is 20 minutes old; an open transaction with records of ten minutes in the past and
    in the future. ListOffsets of several timestamps, with both isolation levels.

    Expects: offsets before the last stable offset for both levels, and -1 instead of the last record for
    read_committed; after the commit its offset.

    Why: a consumer with read_committed seeks there, and must not skip to records that may still abort.
    """
    topic = c.topic()
    producer = Producer(c).begin()
    # Much older records could be deleted by the topic's retention.
    past = int(time.time() * 1000) - 1_200_000
    future = past + 1_800_000
    producer.write(topic, b"a", timestamp=past)
    producer.commit()
    # The marker has offset 1 and the present time.
    producer.write(topic, b"b", timestamp=past + 600_000)
    producer.write(topic, b"c", timestamp=future)
    for when, isolation_level, expected in (
        (past - 500, 1, 0),
        (past, 1, 0),
        (past + 1, 1, 1),
        (past + 1, 0, 1),
        (future, 0, 3),
        (future, 1, -1),
    ):
        found = p.list_offset(c, topic, when, version=version, isolation_level=isolation_level)
        c.error(found.error_code, ErrorCode.NONE)
        c.equal(found.offset, expected, f"offset of timestamp {when} with isolation_level {isolation_level}")
    producer.commit()
    found = p.list_offset(c, topic, future, version=version, isolation_level=1)
    c.equal((found.offset, found.timestamp), (3, future), "offset and timestamp after the commit")


@case(
    "transactions.list-offsets.max-timestamp",
    "the largest timestamp ends at the last stable offset for read_committed",
    source="KIP-734 and KIP-98",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.LIST_OFFSETS, 7),
)
def max_timestamp(c: Check, version: int) -> None:
    """Sends: a record with a timestamp in the future in a transaction; ListOffsets with timestamp -3 and both isolation
    levels; again after the commit.

    Expects: offset 0 with this timestamp for read_uncommitted, -1 and -1 for read_committed; after the commit offset 0
    for both.

    Why: tools find the newest record by this; it must be one that the consumer can read.
    """
    topic = c.topic()
    producer = Producer(c).begin()
    future = int(time.time() * 1000) + 600_000
    producer.write(topic, b"a", timestamp=future)

    def shows(isolation_level: int, expected: tuple[int, int]) -> None:
        found = p.list_offset(c, topic, MAX_TIMESTAMP, version=version, isolation_level=isolation_level)
        c.error(found.error_code, ErrorCode.NONE)
        what = f"offset and timestamp with isolation_level {isolation_level}"
        c.equal((found.offset, found.timestamp), expected, what)

    shows(0, (0, future))
    shows(1, (-1, -1))
    producer.commit()
    for isolation_level in (0, 1):
        shows(isolation_level, (0, future))
