"""Produce in transactions: which records are accepted."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.produce import PartitionProduceResponse
from ...protocol.records import Codec, Record, build_batch
from .. import committed_reads as r
from .. import partitions as p
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check, Topic
from ..record_batches import batch
from ..transactional_producer import NOT_ADDED, Producer, errors

VERSIONS: Final = versions_of(ApiKey.PRODUCE, 3)
EXPLICIT: Final = versions_of(ApiKey.PRODUCE, 3, 11)
DESCRIBED: Final = needs(ApiKey.DESCRIBE_TRANSACTIONS, 0)
SOME: Final = tuple(each for each in VERSIONS if each.version in (3, 9, 11, 12, 13))
"""The versions that differ for a rejection: the first, the flexible ones, and those since KIP-890."""
TRANSACTION_VERSION_2: Final = {"transaction.version": 2}
IMPLICIT: Final = 12
"""The version that adds partitions to the transaction (KIP-890)."""


def _producer(c: Check, version: int) -> Producer:
    return Producer(c, implicit=version >= IMPLICIT).begin()


def _is_rejected(
    c: Check,
    answer: PartitionProduceResponse,
    expected: ErrorCode | Collection[ErrorCode],
    what: str = "Produce error_code",
) -> None:
    c.error(answer.error_code, expected, what)
    p.no_offset(c, answer, "base_offset of an error")


@case(
    "transactions.produce.exchange",
    "records are written in transactions",
    source="KIP-98 and KIP-890",
    layer=Layer.WIRE,
    needs=DESCRIBED,
    versions=VERSIONS,
)
def exchange(c: Check, version: int) -> None:
    """Sends: two transactions with three batches in two partitions each. Before version 12 AddPartitionsToTxn is sent
    before them.

    Expects: no error, and base offsets that count records and markers; the transaction is Ongoing with both partitions.
    A consumer with read_committed returns all records, in order.

    Why: from version 12 on Produce itself adds the partition; before, the producer does.
    """
    topic = c.topic(3)
    producer = _producer(c, version)
    for number in range(2):
        if version < IMPLICIT:
            producer.added(topic, 0, 1)
        for partition in (0, 1):
            for base_offset, values in ((0, (b"%d" % number, b"more")), (2, (b"again",))):
                answer = producer.produce(topic, *values, partition=partition, version=version)
                c.error(answer.error_code, ErrorCode.NONE, "partition_responses[0].error_code")
                c.equal(answer.index, partition, "partition_responses[0].index")
                c.equal(answer.base_offset, base_offset + 4 * number, "partition_responses[0].base_offset")
        producer.has_state("Ongoing", {topic.name: [0, 1]})
        producer.commit()
    for partition in (0, 1):
        expected = [b"0", b"more", b"again", b"1", b"more", b"again"]
        c.equal(r.consumed(c, topic, partition=partition), expected, f"what a consumer returns from {partition}")
    c.equal(r.end(c, topic, partition=2), 0, "the log end offset of partition 2")


@case(
    "transactions.produce.not-added",
    "records for a partition that is not part of the transaction are rejected",
    source="KIP-890",
    layer=Layer.WIRE,
    versions=EXPLICIT,
)
def not_added(c: Check, version: int) -> None:
    """Sends: Produce without AddPartitionsToTxn; AddPartitionsToTxn for partition 1, and Produce to 0 and to 1.

    Expects: TRANSACTION_ABORTABLE or INVALID_TXN_STATE for partition 0, and nothing is appended; no error for 1.

    Why: no marker would end these records, and consumers of the partition would wait forever.
    """
    topic = c.topic(2)
    producer = Producer(c).begin()
    _is_rejected(c, producer.produce(topic, b"-", version=version), NOT_ADDED)
    producer.added(topic, 1)
    _is_rejected(c, producer.produce(topic, b"-", version=version), NOT_ADDED)
    answer = producer.produce(topic, b"a", partition=1, version=version)
    c.error(answer.error_code, ErrorCode.NONE, "error_code of partition 1")
    c.equal([r.end(c, topic, partition=each) for each in (0, 1)], [0, 1], "the log end offsets")


@case(
    "transactions.produce.not-added-error",
    "the error of records without a transaction depends on the version",
    source="KIP-890",
    level=Level.SHOULD,
    versions=versions_of(ApiKey.PRODUCE, 10, 11),
    # Another producer would be verified together with this one.
    exclusive=True,
)
def not_added_error(c: Check, version: int) -> None:
    """Sends: Produce to a partition that is not part of the transaction, while no other case runs.

    Expects: TRANSACTION_ABORTABLE in version 11, INVALID_TXN_STATE in version 10.

    Why: after the first error a producer aborts its transaction and continues. Older clients do not know it, and take
    the second one as fatal.
    """
    topic = c.topic()
    producer = Producer(c).begin()
    expected = ErrorCode.TRANSACTION_ABORTABLE if version >= 11 else ErrorCode.INVALID_TXN_STATE
    _is_rejected(c, producer.produce(topic, b"-", version=version), expected)


@case(
    "transactions.produce.after-end",
    "records after the end of the transaction are rejected",
    source="KIP-890",
    versions=versions_of(ApiKey.PRODUCE, 10, 11),
    variants={"commit": (True,), "abort": (False,)},
)
def after_end(c: Check, version: int, committed: bool) -> None:
    """Sends: a transaction with one partition; after its end Produce to that partition, without AddPartitionsToTxn.

    Expects: TRANSACTION_ABORTABLE or INVALID_TXN_STATE; nothing is appended.

    Why: a request that was delayed in the network must not begin a transaction that no producer ends.
    """
    topic = c.topic()
    producer = Producer(c).begin()
    producer.added(topic)
    c.error(producer.produce(topic, b"a", version=version).error_code, ErrorCode.NONE, "error_code before the end")
    producer.finish(committed=committed)
    _is_rejected(c, producer.produce(topic, b"late", version=version), NOT_ADDED)
    c.equal(r.end(c, topic), 2, "the log end offset")
    c.equal(r.stored(c, topic).last_stable_offset, 2, "last_stable_offset")
    c.equal(r.consumed(c, topic), [b"a"] if committed else [], "what a consumer with read_committed returns")


@case(
    "transactions.produce.unknown-producer",
    "records of an unknown producer are rejected",
    source="KIP-890",
    layer=Layer.WIRE,
    versions=VERSIONS,
)
def unknown_producer(c: Check, version: int) -> None:
    """Sends: Produce with a transactional ID that does not exist, and with the producer ID of another one.

    Expects: INVALID_PRODUCER_ID_MAPPING for both, and nothing is appended.

    Why: the transactional ID has expired or belongs to another producer; no coordinator would end the transaction.
    """
    topic = c.topic()
    producer, other = _producer(c, version), Producer(c).begin()
    unknown = producer.duplicate(c.name("unknown"))
    answer = unknown.produce(topic, b"-", version=version)
    _is_rejected(c, answer, ErrorCode.INVALID_PRODUCER_ID_MAPPING, "error_code of the unknown ID")
    stranger = producer.duplicate()
    stranger.producer_id = other.producer_id
    answer = stranger.produce(topic, b"-", version=version)
    _is_rejected(c, answer, ErrorCode.INVALID_PRODUCER_ID_MAPPING, "error_code of the other producer ID")
    c.equal(r.end(c, topic), 0, "the log end offset")


@case(
    "transactions.produce.fenced",
    "records with another epoch than the latest are rejected",
    source="KIP-98 and KIP-890",
    layer=Layer.WIRE,
    versions=SOME,
    variants={"old-epoch": (-1,), "future-epoch": (1,)},
)
def other_epoch(c: Check, version: int, difference: int) -> None:
    """Sends: Produce with an epoch that is one below, or one above, that of the producer, to a new partition.

    Expects: INVALID_PRODUCER_EPOCH, and nothing is appended.

    Why: the partition does not know the producer yet; only the coordinator can fence it.
    """
    topic, name = c.topic(), c.name("transaction")
    Producer(c, name).begin()
    producer = Producer(c, name, implicit=version >= IMPLICIT).begin()
    if version < IMPLICIT:
        producer.added(topic)
    zombie = producer.duplicate()
    zombie.epoch += difference
    _is_rejected(c, zombie.produce(topic, b"-", version=version), ErrorCode.INVALID_PRODUCER_EPOCH)
    c.equal(r.end(c, topic), 0, "the log end offset")


@case(
    "transactions.produce.without-id",
    "a transactional batch without a transactional ID is rejected",
    source="KIP-98",
    layer=Layer.WIRE,
    versions=VERSIONS,
)
def without_id(c: Check, version: int) -> None:
    """Sends: Produce without a transactional ID, with a batch whose transactional attribute is set.

    Expects: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, and nothing is appended.

    Why: permissions are granted for transactional IDs; a batch must not go around them.
    """
    topic = c.topic()
    producer = _producer(c, version)
    if version < IMPLICIT:
        producer.added(topic)
    answer = p.produce(c, topic, producer.batch(b"-"), version=version)
    _is_rejected(c, answer, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    c.equal(r.end(c, topic), 0, "the log end offset")


@case(
    "transactions.produce.marker",
    "a client cannot write a marker",
    source="KIP-98",
    layer=Layer.WIRE,
    versions=SOME,
    variants={"commit": (r.COMMIT_KEY,), "abort": (r.ABORT_KEY,)},
)
def marker(c: Check, version: int, key: bytes) -> None:
    """Sends: a record in a transaction, and then a control batch with a marker that ends it.

    Expects: INVALID_RECORD; the transaction remains open.

    Why: markers belong to the coordinator. One from a client would commit a part of the transaction.
    """
    topic = c.topic()
    producer = _producer(c, version)
    producer.write(topic, b"a")
    control = build_batch(
        [Record(timestamp=5, key=key, value=bytes(6))],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transactional=True,
        control=True,
    )
    _is_rejected(c, producer.send(topic, control, version=version), ErrorCode.INVALID_RECORD)
    r.shows(c, r.stored(c, topic), high_watermark=1, last_stable_offset=0, aborted=[], values=[])


@case(
    "transactions.produce.several-producers",
    "a request has batches of one producer only",
    source="KIP-98",
    needs=needs(ApiKey.PRODUCE, 12, ApiKey.DESCRIBE_TRANSACTIONS, 0),
    features=TRANSACTION_VERSION_2,
)
def several_producers(c: Check) -> None:
    """Sends: Produce with batches of two producers for two partitions.

    Expects: INVALID_PRODUCER_ID_MAPPING for both partitions; nothing is appended, no transaction begins.

    Why: the request has one transactional ID, which is not that of both.
    """
    topic = c.topic(2)
    producer, other = Producer(c, implicit=True).begin(), Producer(c, implicit=True).begin()
    found = _produced(c, producer, topic, {0: producer.batch(b"-"), 1: other.batch(b"-")})
    errors(c, found, dict.fromkeys((0, 1), ErrorCode.INVALID_PRODUCER_ID_MAPPING), "Produce")
    producer.has_state("Empty", {})
    c.equal([r.end(c, topic, partition=each) for each in (0, 1)], [0, 0], "the log end offsets")


def _produced(c: Check, producer: Producer, topic: Topic, batches: dict[int, bytes]) -> dict[int, int]:
    """Produce several batches with one request; the error codes by partition."""
    version = producer.version(ApiKey.PRODUCE)
    request = p.produce_request(topic, batches, version=version, transactional_id=producer.transactional_id)
    found = c.call(request, version).responses
    return {each.index: each.error_code for topic in found for each in topic.partition_responses}


@case(
    "transactions.produce.each-partition",
    "each partition of a request has its own result",
    source="KIP-98 and KIP-890",
    needs=DESCRIBED,
    versions=versions_of(ApiKey.PRODUCE, 11, 12),
)
def each_partition(c: Check, version: int) -> None:
    """Sends: Produce with a correct batch for partition 0, one with a sequence gap for 1, and one for an unknown
    partition 77.

    Expects: no error, OUT_OF_ORDER_SEQUENCE_NUMBER, and UNKNOWN_TOPIC_OR_PARTITION; the transaction has 0 and 1.

    Why: the producer repeats only what was rejected.
    """
    topic = c.topic(2)
    producer = _producer(c, version)
    if version < IMPLICIT:
        producer.added(topic, 0, 1)
    producer.write(topic, b"a", partition=1)
    batches = {0: producer.batch(b"a"), 1: producer.batch(b"gap", sequence=5), 77: producer.batch(b"a")}
    expected = {
        0: ErrorCode.NONE,
        1: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        77: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    errors(c, _produced(c, producer, topic, batches), expected, "Produce")
    producer.has_state("Ongoing", {topic.name: [0, 1]})
    c.equal([r.end(c, topic, partition=each) for each in (0, 1)], [1, 1], "the log end offsets")


@case(
    "transactions.produce.beside-transaction",
    "a producer with an open transaction writes nothing else to its partition",
    source="KIP-98",
    level=Level.SHOULD,
    needs=needs(ApiKey.PRODUCE, 3),
)
def beside_transaction(c: Check) -> None:
    """Sends: a record in a transaction; one without transactional attribute, of the same producer, in the same
    partition; the same after the commit.

    Expects: INVALID_TXN_STATE while the transaction is open; no error after it.

    Why: the record would be in the middle of the transaction, and would be skipped if it aborts.
    """
    topic = c.topic()
    producer = Producer(c).begin()
    producer.write(topic, b"a")
    plain = producer.batch(b"b", sequence=1, transactional=False)
    _is_rejected(c, p.produce(c, topic, plain), ErrorCode.INVALID_TXN_STATE)
    producer.commit()
    answer = p.produce(c, topic, plain)
    c.error(answer.error_code, ErrorCode.NONE, "error_code after the commit")
    c.equal(r.consumed(c, topic), [b"a", b"b"], "what a consumer with read_committed returns")


@case(
    "transactions.produce.plain-batch",
    "a transactional ID alone begins no transaction",
    source="KIP-98",
    needs=DESCRIBED,
    versions=versions_of(ApiKey.PRODUCE, 11, 12),
)
def plain_batch(c: Check, version: int) -> None:
    """Sends: Produce with a transactional ID, and a batch without the transactional attribute.

    Expects: no error; the record can be read immediately, and the state of the transaction is Empty.

    Why: the attribute of the batch decides. Otherwise records would wait for a marker that never comes.
    """
    topic = c.topic()
    producer = _producer(c, version)
    answer = producer.send(topic, producer.batch(b"a", transactional=False), version=version)
    c.error(answer.error_code, ErrorCode.NONE)
    producer.has_state("Empty", {})
    r.shows(c, r.stored(c, topic), high_watermark=1, last_stable_offset=1, aborted=[], values=[b"a"])


@case(
    "transactions.produce.acks",
    "transactions do not require acks=-1",
    source="Protocol: Produce",
    level=Level.APACHE,
    needs=DESCRIBED,
    variants={"none": (0,), "leader": (1,)},
)
def acknowledgments(c: Check, acks: int) -> None:
    """Sends: a record in a transaction with acks=0 or acks=1, and EndTxn after it is in the log.

    Expects: no error; the record is committed.

    Why: clients require acks=-1 themselves; the server accepts all.
    """
    topic = c.topic()
    producer = Producer(c).begin()
    producer.added(topic)
    version = producer.version(ApiKey.PRODUCE)
    request = p.produce_request(
        topic, {0: producer.batch(b"a")}, version=version, acks=acks, transactional_id=producer.transactional_id
    )
    c.wire.send(request, version, answered=acks != 0)
    if acks:
        c.error(c.wire.receive().responses[0].partition_responses[0].error_code, ErrorCode.NONE)
    c.until(lambda: r.end(c, topic) == 1, "the record in the log")
    producer.commit()
    c.equal(r.consumed(c, topic), [b"a"], "what a consumer with read_committed returns")


@case(
    "transactions.produce.compression",
    "batches in transactions are compressed",
    source="KIP-98 and KIP-110",
    needs=needs(ApiKey.PRODUCE, 9),
    variants={codec.name.lower(): (codec,) for codec in Codec},
)
def compression(c: Check, codec: Codec) -> None:
    """Sends: a compressed batch of 20 records in a transaction that aborts, and one in a transaction that commits.

    Expects: a consumer with read_committed returns the records of the second.

    Why: the attributes of a batch have both its codec and whether it is transactional.
    """
    topic = c.topic()
    values = [b"%d" % number * 50 for number in range(20)]
    producer = Producer(c).begin()
    producer.write(topic, *values, codec=codec)
    producer.abort()
    producer.write(topic, *values, codec=codec)
    producer.commit()
    stored = [each for each in p.read_batches(c, topic) if not each.is_control]
    c.equal([each.codec for each in stored], [codec, codec], "the codecs of the stored batches")
    c.equal(r.consumed(c, topic), values, "what a consumer with read_committed returns")


@case(
    "transactions.produce.idempotent",
    "records of an idempotent producer are stable immediately, also between transactions",
    source="KIP-98",
    needs=needs(ApiKey.PRODUCE, 3),
)
def idempotent(c: Check) -> None:
    """Sends: a record without a producer, then one in a transaction, then another one without.

    Expects: the last stable offset is the offset of the open transaction; after its abort a consumer with
    read_committed returns both others.

    Why: records outside of transactions are always committed, but a consumer reads them in order.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"before"))
    producer = Producer(c).begin()
    producer.write(topic, b"lost")
    p.append(c, topic, batch(b"after"))
    r.shows(c, r.stored(c, topic), high_watermark=3, last_stable_offset=1, aborted=[], values=[b"before"])
    producer.abort()
    c.equal(r.stored(c, topic).last_stable_offset, 4, "last_stable_offset after the abort")
    c.equal(r.consumed(c, topic), [b"before", b"after"], "what a consumer with read_committed returns")
