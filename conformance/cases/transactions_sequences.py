"""Produce in transactions: sequence numbers and repeated batches."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.produce import PartitionProduceResponse
from .. import committed_reads as r
from .. import partitions as p
from ..case import Level, case, needs, versions_of
from ..check import Check
from ..transactional_producer import NOT_ADDED, Producer

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
    "transactions.produce.sequence",
    "sequence numbers begin at 0 with each epoch",
    source="KIP-98, KIP-360 and KIP-890",
    needs=needs(ApiKey.PRODUCE, 12, ApiKey.END_TXN, 5),
    features=TRANSACTION_VERSION_2,
)
def sequence(c: Check) -> None:
    """Sends: sequence numbers 0 and 1, a gap to 3, the first batch again, 2; after EndTxn version 5, number 3, then 0.

    Expects: OUT_OF_ORDER_SEQUENCE_NUMBER for the gap and for 3 after the end; base offset 0 for the repeated batch,
    without a second append. A consumer returns each record once.

    Why: the new epoch of each transaction begins new sequences in every partition.
    """
    topic = c.topic()
    producer = Producer(c, implicit=True).begin()
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for number, values, expected, base_offset in (
        (0, (b"a", b"b"), ErrorCode.NONE, 0),
        (3, (b"gap",), out_of_order, -1),
        (0, (b"a", b"b"), ErrorCode.NONE, 0),
        (2, (b"c",), ErrorCode.NONE, 2),
        (-1, (), ErrorCode.NONE, -1),
        (3, (b"-",), out_of_order, -1),
        (0, (b"d",), ErrorCode.NONE, 4),
        (-1, (), ErrorCode.NONE, -1),
    ):
        if number < 0:
            producer.commit()
            continue
        answer = producer.send(topic, producer.batch(*values, sequence=number))
        c.error(answer.error_code, expected, f"error_code of sequence {number}, {values}")
        c.equal(answer.base_offset, base_offset, f"base_offset of sequence {number}, {values}")
    c.equal(r.consumed(c, topic), [b"a", b"b", b"c", b"d"], "what a consumer with read_committed returns")


@case(
    "transactions.produce.sequence-continues",
    "sequence numbers continue over transactions with one epoch",
    source="KIP-98",
    versions=versions_of(ApiKey.PRODUCE, 11, 11),
)
def sequence_continues(c: Check, version: int) -> None:
    """Sends: three transactions of one record, with sequence numbers 0, 1 and 2; in the fourth one number 7.

    Expects: no errors, then OUT_OF_ORDER_SEQUENCE_NUMBER.

    Why: before version 12 a producer keeps its epoch, and continues its sequences.
    """
    topic = c.topic()
    producer = Producer(c).begin()
    for number in range(3):
        producer.added(topic)
        answer = producer.send(topic, producer.batch(b"%d" % number, sequence=number), version=version)
        c.error(answer.error_code, ErrorCode.NONE, f"error_code of sequence {number}")
        c.equal(answer.base_offset, 2 * number, f"base_offset of sequence {number}")
        producer.commit()
    producer.added(topic)
    answer = producer.send(topic, producer.batch(b"-", sequence=7), version=version)
    _is_rejected(c, answer, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    producer.abort()
    c.equal(r.consumed(c, topic), [b"0", b"1", b"2"], "what a consumer with read_committed returns")


@case(
    "transactions.produce.first-sequence",
    "the first sequence number of a producer in a partition",
    source="KIP-360 and KIP-890",
    level=Level.SHOULD,
    versions=versions_of(ApiKey.PRODUCE, 11, 12),
)
def first_sequence(c: Check, version: int) -> None:
    """Sends: Produce with sequence number 5 to a partition that does not have the producer.

    Expects: OUT_OF_ORDER_SEQUENCE_NUMBER in version 12; no error in version 11.

    Why: a partition may have forgotten a producer that keeps its epoch. With an epoch per transaction, only 0 can be
    first, and anything else means a lost record.
    """
    topic = c.topic()
    producer = _producer(c, version)
    if version < IMPLICIT:
        producer.added(topic)
    answer = producer.send(topic, producer.batch(b"-", sequence=5), version=version)
    c.error(answer.error_code, ErrorCode.NONE if version < IMPLICIT else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    c.equal(r.end(c, topic), 1 if version < IMPLICIT else 0, "the log end offset")


@case(
    "transactions.produce.repeated",
    "a repeated batch is not appended again, and one of an old epoch is rejected",
    source="KIP-98 and KIP-890",
    needs=needs(ApiKey.PRODUCE, 12, ApiKey.END_TXN, 5),
    features=TRANSACTION_VERSION_2,
)
def repeated(c: Check) -> None:
    """Sends: one batch in a transaction with Produce version 11; again after EndTxn version 4; again after
    AddPartitionsToTxn; again after EndTxn version 5, with versions 11 and 12.

    Expects: no error; TRANSACTION_ABORTABLE or INVALID_TXN_STATE; no error, with the first base offset;
    INVALID_PRODUCER_EPOCH twice.

    Why: a retry is a duplicate as long as its epoch is the producer's; with the next epoch it is a zombie's.
    """
    topic = c.topic()
    producer = Producer(c).begin()
    producer.added(topic)
    data = producer.batch(b"a")
    c.error(producer.send(topic, data).error_code, ErrorCode.NONE, "error_code of the first request")
    producer.commit(4)
    _is_rejected(c, producer.send(topic, data, version=11), NOT_ADDED)
    producer.added(topic)
    answer = producer.send(topic, data, version=11)
    c.error(answer.error_code, ErrorCode.NONE, "error_code of the repeated batch")
    c.equal(answer.base_offset, 0, "base_offset of the repeated batch")
    producer.commit(5)
    for version in (11, 12):
        _is_rejected(c, producer.send(topic, data, version=version), ErrorCode.INVALID_PRODUCER_EPOCH)
    c.equal(r.consumed(c, topic), [b"a"], "what a consumer with read_committed returns")
