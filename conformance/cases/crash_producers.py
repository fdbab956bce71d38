"""Crash: what the server knows of idempotent producers (KIP-98)."""

from __future__ import annotations

import time
from typing import Final

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.init_producer_id import InitProducerIdRequest
from .. import partitions as p
from ..case import needs
from ..check import Check
from ..record_batches import batch
from ..recovery import crash_case, finish, new_producer, new_producer_id, ready, reconnected, stored_records

# A server forgets producers whose last record is old: one day by default in Apache Kafka.
_NOW: Final = int(time.time() * 1000)

IDEMPOTENT = needs(ApiKey.PRODUCE, 9, ApiKey.INIT_PRODUCER_ID, 0)
TRANSACTIONAL = needs(ApiKey.PRODUCE, 9, ApiKey.INIT_PRODUCER_ID, 3, ApiKey.DESCRIBE_TRANSACTIONS, 0)


@crash_case(
    "crash.idempotent.continues",
    "an idempotent producer continues its sequence",
    source="KIP-98",
    needs=IDEMPOTENT,
    variants={"one-batch": (1,), "many-batches": (20,)},
)
def continues(c: Check, count: int) -> None:
    """Sends: Produce of batches with sequence numbers; kill -9; restart; a batch that skips a number; the next batch.

    Expects: OUT_OF_ORDER_SEQUENCE_NUMBER and no base offset for the gap; the next batch is appended.

    Why: a server that forgets the sequence either rejects a correct producer, or accepts a gap, which is a lost record.
    """
    topic = c.topic()
    producer_id = new_producer_id(c)
    for number in range(count):
        p.append(c, topic, _batch(producer_id, 2 * number))
    c.crash()
    ready(c, topic)
    answer = p.produce(c, topic, _batch(producer_id, 2 * count + 1))
    c.error(answer.error_code, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "Produce error_code of a batch after a gap")
    answer = p.produce(c, topic, _batch(producer_id, 2 * count))
    c.error(answer.error_code, ErrorCode.NONE, "Produce error_code of the next batch")
    c.equal(answer.base_offset, 2 * count, "Produce base_offset of the next batch")
    c.equal(len(stored_records(c, topic)), 2 * count + 2, "the number of records")


@crash_case(
    "crash.idempotent.duplicate",
    "a batch from before the crash is recognized when it is repeated",
    source="KIP-98",
    needs=IDEMPOTENT,
)
def duplicate(c: Check) -> None:
    """Sends: Produce of 8 batches with sequence numbers; kill -9; restart; the last batch again, twice.

    Expects: no error and the base offset of the first time; the log is unchanged.

    Why: a producer whose acknowledgment was lost in the crash repeats its batch, and must not write it twice.
    """
    topic = c.topic()
    producer_id = new_producer_id(c)
    for number in range(8):
        p.append(c, topic, _batch(producer_id, 2 * number))
    before = stored_records(c, topic)
    c.crash()
    ready(c, topic)
    for _ in range(2):
        answer = p.produce(c, topic, _batch(producer_id, 14))
        c.error(answer.error_code, ErrorCode.NONE, "Produce error_code of the repeated batch")
        c.equal(answer.base_offset, 14, "Produce base_offset of the repeated batch")
    c.equal(stored_records(c, topic), before, "the records after the restart")


@crash_case(
    "crash.idempotent.old-batch",
    "a batch before the last ones is not appended when it is repeated",
    source="KIP-98",
    needs=IDEMPOTENT,
)
def old_batch(c: Check) -> None:
    """Sends: Produce of 12 batches with sequence numbers; kill -9; restart; the first batch again.

    Expects: DUPLICATE_SEQUENCE_NUMBER or OUT_OF_ORDER_SEQUENCE_NUMBER, and an unchanged log.

    Why: the server need not remember the offsets of old batches, but must recognize that they are old.
    """
    topic = c.topic()
    producer_id = new_producer_id(c)
    for number in range(12):
        p.append(c, topic, _batch(producer_id, 2 * number))
    c.crash()
    ready(c, topic)
    answer = p.produce(c, topic, _batch(producer_id, 0))
    rejected = (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    c.error(answer.error_code, rejected, "Produce error_code of the first batch")
    c.equal(p.end_offset(c, topic), 24, "the log end offset")


@crash_case(
    "crash.idempotent.several",
    "several producers of one partition keep their own sequences",
    source="KIP-98",
    needs=IDEMPOTENT,
)
def several(c: Check) -> None:
    """Sends: Produce of batches of three producers, in turn; kill -9; restart; the next batch of each, and one of each
    with the sequence number of another one.

    Expects: the next batches are appended; the others have OUT_OF_ORDER_SEQUENCE_NUMBER.

    Why: the state that the server restores from its log belongs to the producer ID and the partition.
    """
    topic = c.topic()
    producer_ids = [new_producer_id(c) for _ in range(3)]
    for round_ in range(3):
        for count, producer_id in enumerate(producer_ids, 1):
            for number in range(count):
                p.append(c, topic, _batch(producer_id, 2 * (round_ * count + number)))
    c.crash()
    ready(c, topic)
    for count, producer_id in enumerate(producer_ids, 1):
        answer = p.produce(c, topic, _batch(producer_id, 2 * 3 * count + 6))
        c.error(answer.error_code, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "Produce error_code of another sequence")
        answer = p.produce(c, topic, _batch(producer_id, 2 * 3 * count))
        c.error(answer.error_code, ErrorCode.NONE, "Produce error_code of the next batch")
        c.equal(answer.base_offset, 36 + 2 * (count - 1), "Produce base_offset of the next batch")


@crash_case(
    "crash.producer-ids.unique",
    "producer IDs are not assigned again",
    source="KIP-98 and KIP-730",
    needs=needs(ApiKey.INIT_PRODUCER_ID, 0),
)
def unique_ids(c: Check) -> None:
    """Sends: InitProducerId 20 times without a transactional ID; kill -9; restart; InitProducerId 20 times.

    Expects: 40 different producer IDs, each with epoch 0.

    Why: two producers with one ID would be taken for one; the records of the second would be dropped as duplicates.
    """
    before = [new_producer_id(c) for _ in range(20)]
    c.crash()
    after = [new_producer_id(c) for _ in range(20)]
    c.equal(len(set(before)), 20, "different producer IDs before the crash")
    c.equal(sorted(set(before) & set(after)), [], "producer IDs that were assigned before and after the crash")
    c.equal(len(set(after)), 20, "different producer IDs after the restart")


@crash_case(
    "crash.producer-ids.epoch",
    "a transactional ID keeps its producer ID, and its epoch grows",
    source="KIP-98",
    needs=TRANSACTIONAL,
)
def epoch_grows(c: Check) -> None:
    """Sends: InitProducerId with a transactional ID, twice; kill -9; restart; InitProducerId with it.

    Expects: the same producer ID, and epochs 0, 1 and 2.

    Why: an epoch that does not grow leaves an older instance of the producer able to write.
    """
    producer = new_producer(c)
    producer_id = producer.producer_id
    c.equal(producer.epoch, 0, "the first producer_epoch")
    producer.begin()
    c.crash()
    again = reconnected(c, producer).begin()
    c.equal((again.producer_id, again.epoch), (producer_id, 2), "producer_id and producer_epoch after the restart")


@crash_case(
    "crash.producer-ids.fenced",
    "a fenced producer stays fenced",
    source="KIP-98 and KIP-360",
    needs=TRANSACTIONAL,
)
def fenced(c: Check) -> None:
    """Sends: a transaction of a producer, which is committed; InitProducerId and a transaction of its successor; kill
    -9; restart; Produce and InitProducerId with the epoch of the first producer.

    Expects: INVALID_PRODUCER_EPOCH or another fatal error for Produce, PRODUCER_FENCED (or INVALID_PRODUCER_EPOCH,
    before version 4) for InitProducerId; nothing is appended.

    Why: the first instance may have been cut off while the server restarted, and must not write when it returns.
    """
    topic = c.topic()
    old = new_producer(c)
    old.write(topic, b"old")
    finish(c, old)
    new = old.duplicate().begin()
    new.write(topic, b"new")
    finish(c, new)
    c.crash()
    ready(c, topic)
    zombie = reconnected(c, old)
    end = p.end_offset(c, topic)
    answer = zombie.produce(topic, b"zombie")
    rejected = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
    c.error(answer.error_code, rejected, "Produce error_code with the old epoch")
    request = InitProducerIdRequest(
        transactional_id=zombie.transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=zombie.producer_id,
        producer_epoch=zombie.epoch,
    )
    found = c.call(request, to=zombie.wire)
    expected = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    c.error(found.error_code, expected, "InitProducerId error_code with the old epoch")
    c.equal(p.end_offset(c, topic), end, "the log end offset")


def _batch(producer_id: int, sequence: int) -> bytes:
    """Two records, whose timestamp is part of what a repeated batch must not change."""
    return batch(
        b"%d" % sequence,
        b"%d" % (sequence + 1),
        timestamp=_NOW + sequence,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )
