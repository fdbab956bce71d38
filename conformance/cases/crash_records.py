"""Crash: records and offsets of partitions that were acknowledged before the server was killed."""

from __future__ import annotations

import threading
from random import Random

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ...protocol.records import Codec, Record, build_batch
from .. import partitions as p
from ..case import needs
from ..check import Check, Topic
from ..exchange import Recorder
from ..outcome import MismatchError
from ..record_batches import batch
from ..recovery import crash_case, new_producer_id, ready, stored_records

PRODUCE = needs(ApiKey.PRODUCE, 9)
T0 = 1_700_000_000_000


@crash_case(
    "crash.records.acknowledged",
    "acknowledged records survive a crash of the server, in order and once",
    source="Protocol: Produce",
    needs=PRODUCE,
    variants={"all": (-1,), "leader": (1,)},
)
def acknowledged(c: Check, acks: int) -> None:
    """Sends: Produce of 40 batches with 1 to 4 records to each of 3 partitions; kill -9; restart; Fetch of everything.

    Expects: each record once, at its acknowledged offset, with the same timestamp, key, value and headers; the next
    batch gets the next offset.

    Why: an acknowledgment promises that the record is stored; the crash of a process, unlike a power failure, loses
    nothing that was handed to the operating system.
    """
    topic = c.topic(3)
    expected: dict[int, list[tuple[object, ...]]] = {0: [], 1: [], 2: []}
    for number in range(120):
        partition = number % 3
        records: list[Record] = []
        for index in range(1 + number // 3 % 4):
            name = b"%d-%d" % (number, index)
            offset = len(expected[partition]) + len(records)
            records.append(
                Record(offset=offset, timestamp=T0 + number, key=b"k" + name, value=name, headers=[("h", name)])
            )
        answer = p.produce(c, topic, build_batch(records), partition=partition, acks=acks)
        c.error(answer.error_code, ErrorCode.NONE, "Produce error_code")
        c.equal(answer.base_offset, len(expected[partition]), "Produce base_offset")
        expected[partition] += [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in records]
    c.crash()
    ready(c, topic, partitions=3)
    for partition, records_before in expected.items():
        found = [each[:5] for each in stored_records(c, topic, partition=partition)]
        c.equal(found, records_before, f"offset, timestamp, key, value and headers of the records of {partition}")
        answer = p.produce(c, topic, batch(b"after"), partition=partition)
        c.error(answer.error_code, ErrorCode.NONE, "Produce error_code after the restart")
        c.equal(answer.base_offset, len(records_before), "Produce base_offset after the restart")


@crash_case(
    "crash.records.compression",
    "compressed batches survive a crash of the server",
    source="KIP-110 and Protocol: Record Batch",
    needs=PRODUCE,
    variants={codec.name.lower(): (codec,) for codec in Codec if codec is not Codec.NONE},
)
def compression(c: Check, codec: Codec) -> None:
    """Sends: Produce of 10 compressed batches of 50 records; kill -9; restart; Fetch.

    Expects: the same batches: offsets, codec, CRC and records.

    Why: a server that checks its log after an unclean stop must not mistake a compressed batch for damage, and drop it.
    """
    topic = c.topic()
    for number in range(10):
        values = [b"value %d of %d" % (index, number) for index in range(50)]
        p.append(c, topic, batch(*values, codec=codec, timestamp=T0 + number))
    before = stored_records(c, topic)
    c.equal(len(before), 500, "the number of records before the crash")
    c.equal({each.codec for each in before}, {codec}, "the codec of the stored batches")
    c.crash()
    ready(c, topic)
    c.equal(stored_records(c, topic), before, "the records after the restart")


@crash_case(
    "crash.records.segments",
    "a partition of several segments survives a crash of the server",
    source="Protocol: Record Batch",
    needs=PRODUCE,
)
def segments(c: Check) -> None:
    """Sends: Produce of 40 batches of 100 kB to a topic with `segment.bytes` of 1 MiB; kill -9; restart; Fetch from
    the middle of the log; ListOffsets for the timestamps of some batches.

    Expects: the batch that contains the requested offset, and for each timestamp the offset of its record.

    Why: the server may have lost the indexes of its active segment, and must rebuild them before it searches in them.
    """
    topic = c.topic(configs={"segment.bytes": "1048576"})
    payload = Random(1).randbytes(100_000)
    for number in range(40):
        p.append(c, topic, batch(b"%d " % number + payload, timestamp=T0 + number * 1000))
    c.crash()
    ready(c, topic)
    c.equal(p.end_offset(c, topic), 40, "the log end offset")
    for number in (0, 9, 10, 11, 23, 38, 39):
        data = p.fetch(c, topic, number, partition_max_bytes=1)
        c.error(data.error_code, ErrorCode.NONE, f"Fetch error_code at offset {number}")
        c.equal([each.base_offset for each in p.batches_of(data)], [number], f"the batches at offset {number}")
        found = p.list_offset(c, topic, T0 + number * 1000 - 1)
        c.error(found.error_code, ErrorCode.NONE, f"ListOffsets error_code for the timestamp of {number}")
        c.equal((found.offset, found.timestamp), (number, T0 + number * 1000), "ListOffsets offset and timestamp")


@crash_case(
    "crash.records.offsets",
    "ListOffsets and the high watermark are the same as before the crash",
    source="Protocol: ListOffsets; KIP-734",
    needs=needs(ApiKey.PRODUCE, 9, ApiKey.LIST_OFFSETS, 7),
)
def offsets(c: Check) -> None:
    """Sends: Produce of records whose timestamps are not in order; ListOffsets for the start, the end, the largest
    timestamp and three timestamps; kill -9; restart; the same ListOffsets, and Fetch at the end.

    Expects: the same offsets and timestamps, and a high watermark at the log end.

    Why: a consumer that starts at a time must start at the same record; a consumer at the end must not receive
    OFFSET_OUT_OF_RANGE.
    """
    topic = c.topic()
    for stamp in (5_000, 1_000, 9_000, 7_000):
        p.append(c, topic, batch(b"%d" % stamp, b"later", timestamp=T0 + stamp))
    requested = (p.EARLIEST, p.LATEST, -3, T0, T0 + 6_000, T0 + 9_001)

    def listed() -> list[tuple[int, int, int]]:
        found = [p.list_offset(c, topic, timestamp) for timestamp in requested]
        return [(each.error_code, each.offset, each.timestamp) for each in found]

    before = listed()
    c.equal([each[0] for each in before], [0] * len(requested), "ListOffsets error codes")
    c.crash()
    ready(c, topic)
    c.equal(listed(), before, "error_code, offset and timestamp of ListOffsets for start, end and timestamps")
    data = p.fetch(c, topic, 8)
    c.error(data.error_code, ErrorCode.NONE, "Fetch error_code at the log end")
    c.equal(data.high_watermark, 8, "high_watermark")


@crash_case(
    "crash.records.log-append-time",
    "timestamps that the server assigned survive its crash",
    source="KIP-32",
    needs=PRODUCE,
)
def log_append_time(c: Check) -> None:
    """Sends: Produce to a topic with `message.timestamp.type=LogAppendTime`; kill -9; restart; Fetch.

    Expects: the same timestamps, which are those of the Produce responses.

    Why: consumers search by these timestamps, and retention depends on them; a new time at the restart would break
    both.
    """
    topic = c.topic(configs={"message.timestamp.type": "LogAppendTime"})
    stamps = []
    for number in range(5):
        answer = p.produce(c, topic, batch(b"%d" % number, timestamp=T0))
        c.error(answer.error_code, ErrorCode.NONE, "Produce error_code")
        with c.setup("a topic with LogAppendTime"):
            stamp = answer.log_append_time_ms
            c.true(stamp > T0, "Produce log_append_time_ms", expected="the time of the server", actual=stamp)
        stamps.append(stamp)
    c.crash()
    ready(c, topic)
    c.equal([each.timestamp for each in stored_records(c, topic)], stamps, "the timestamps of the records")


@crash_case(
    "crash.records.delete-records",
    "DeleteRecords before a crash of the server loses no later record",
    source="KIP-107",
    needs=needs(ApiKey.PRODUCE, 9, ApiKey.DELETE_RECORDS, 2),
)
def delete_records(c: Check) -> None:
    """Sends: DeleteRecords up to offset 7 of 20; kill -9; restart; Fetch from offset 7; DeleteRecords up to 9.

    Expects: a log start offset of at most 7, the records from 7 to 19, and after the second DeleteRecords a log start
    offset of 9.

    Why: records before the offset may return, because Apache Kafka stores the log start offset only periodically; the
    records after it must exist.
    """
    topic = c.topic()
    p.append(c, topic, batch(*(b"%d" % number for number in range(20)), timestamp=T0))

    def delete_before(offset: int) -> None:
        wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic.name, partitions=[wanted])], timeout_ms=30_000
        )
        (result,) = c.call(request).topics[0].partitions
        c.error(result.error_code, ErrorCode.NONE, "DeleteRecords error_code")
        c.equal(result.low_watermark, offset, "DeleteRecords low_watermark")

    delete_before(7)
    c.crash()
    ready(c, topic)
    start = p.end_offset(c, topic, timestamp=p.EARLIEST)
    c.true(0 <= start <= 7, "the log start offset", expected="0 to 7", actual=start)
    c.equal(p.end_offset(c, topic), 20, "the log end offset")
    found = [(each.offset, each.value) for each in stored_records(c, topic) if each.offset >= 7]
    c.equal(found, [(number, b"%d" % number) for number in range(7, 20)], "the records from offset 7 on")
    delete_before(9)
    c.equal(p.end_offset(c, topic, timestamp=p.EARLIEST), 9, "the log start offset after the second DeleteRecords")


@crash_case(
    "crash.records.under-load",
    "a server that is killed while a producer writes has everything that it acknowledged",
    source="Protocol: Produce",
    needs=PRODUCE,
    variants={"all": (-1,), "leader": (1,)},
)
def under_load(c: Check, acks: int) -> None:
    """Sends: Produce of numbered records on one connection, 5 requests in flight, until the server is killed; restart;
    Fetch of everything.

    Expects: the numbers 0, 1, 2, ... without gaps and repetitions, at least up to the last that was acknowledged.

    Why: between two acknowledged records no record may be missing, and what was not acknowledged is stored completely
    or not at all.
    """
    topic = c.topic()
    writer = _Writer(c, topic, acks=acks)
    c.crash()
    count = writer.stopped()
    ready(c, topic)
    found = stored_records(c, topic)
    c.equal([each.offset for each in found], list(range(len(found))), "the offsets of the records")
    c.equal([each.value for each in found], [b"%d" % number for number in range(len(found))], "the values in order")
    c.true(len(found) >= count, "the number of records", expected=f"at least {count}, which were acknowledged",
           actual=len(found))  # fmt: skip


@crash_case(
    "crash.records.retry",
    "an idempotent producer that repeats what was not acknowledged writes each record once",
    source="KIP-98",
    needs=needs(ApiKey.PRODUCE, 9, ApiKey.INIT_PRODUCER_ID, 0),
)
def retry(c: Check) -> None:
    """Sends: Produce of numbered batches of an idempotent producer, 5 requests in flight, until the server is killed;
    after the restart all batches that have no response, again, and 10 more.

    Expects: no error for any of them, and each number once, in order.

    Why: exactly-once writing depends on it: the server has to know from its log which of the repeated batches it has.
    """
    topic = c.topic()
    producer_id = new_producer_id(c)
    writer = _Writer(c, topic, producer_id=producer_id)
    c.crash()
    count = writer.stopped()
    ready(c, topic)
    for number in range(count, writer.sent + 10):
        answer = p.produce(c, topic, _batch(number, producer_id))
        c.error(answer.error_code, ErrorCode.NONE, f"Produce error_code of the repeated batch {number}")
        c.equal(answer.base_offset, number, f"Produce base_offset of the repeated batch {number}")
    values = [each.value for each in stored_records(c, topic)]
    c.equal(values, [b"%d" % number for number in range(writer.sent + 10)], "the values in order")


def _batch(number: int, producer_id: int) -> bytes:
    if producer_id < 0:
        return batch(b"%d" % number)
    return batch(b"%d" % number, producer_id=producer_id, producer_epoch=0, base_sequence=number)


class _Writer:
    """Writes numbered records from a dedicated thread until its connection ends with the server."""

    _IN_FLIGHT = 5
    _AT_MOST = 10_000

    def __init__(self, c: Check, topic: Topic, *, acks: int = -1, producer_id: int = -1) -> None:
        self.sent = 0
        self.failure: str | None = None
        self._acknowledged = 0
        self._topic = topic
        self._acks = acks
        self._producer_id = producer_id
        self._version = c.version(ApiKey.PRODUCE)
        # Not one of the case's connections, which are closed before the crash.
        self._wire = c.target.connect(Recorder(), lambda: 60.0 * c.target.patience)
        self._stop = threading.Event()
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._write, name="writer", daemon=True)
        self._thread.start()
        with c.setup("the first acknowledgments"):
            c.until(lambda: self._has_begun.is_set() or self.failure, "20 acknowledged records")

    def stopped(self) -> int:
        """After the crash: the number of acknowledged records."""
        self._stop.set()
        self._thread.join()
        self._wire.close()
        if self.failure is not None:
            raise MismatchError("Produce before the crash", "an acknowledgment with the next offset", self.failure)
        return self._acknowledged

    def _write(self) -> None:
        try:
            while not self._stop.is_set():
                while self.sent - self._acknowledged < self._IN_FLIGHT and self.sent < self._AT_MOST:
                    data = _batch(self.sent, self._producer_id)
                    request = p.produce_request(self._topic, {0: data}, version=self._version, acks=self._acks)
                    self.sent += 1
                    self._wire.send(request, self._version)
                if self.sent == self._acknowledged:
                    self._wire.closed_by_server()
                    return
                answer = self._wire.receive().responses[0].partition_responses[0]
                if (answer.error_code, answer.base_offset) != (0, self._acknowledged):
                    self.failure = f"record {self._acknowledged}: {answer}"
                    return
                self._acknowledged += 1
                if self._acknowledged == 20:
                    self._has_begun.set()
        except OSError:
            return
