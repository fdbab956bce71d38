"""Produce: idempotent producers, whose batches have sequence numbers, without transactions (KIP-98 and KIP-360)."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from .. import partitions as p
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..idempotent_producer import IdempotentProducer, Reply, new_producer_id
from ..record_batches import batch
from ..record_deletion import delete_before

SOURCE = "KIP-98"
IDEMPOTENT = needs(ApiKey.PRODUCE, 9, ApiKey.INIT_PRODUCER_ID, 0)
LARGEST = 2**31 - 1
GAP = Reply("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)


def appended(offset: int) -> Reply:
    return Reply("NONE", offset)


@case(
    "produce.idempotent.exchange",
    "batches with sequence numbers are appended once and in order",
    source=SOURCE,
    needs=needs(ApiKey.INIT_PRODUCER_ID, 0),
    versions=versions_of(ApiKey.PRODUCE),
)
def exchange(c: Check, version: int) -> None:
    """Sends: Produce of the sequence numbers 0 to 2 in one batch, 3, 3 again, 5 and 4.

    Expects: base offsets 0, 3, again 3 for the repeated batch, OUT_OF_ORDER_SEQUENCE_NUMBER with -1, then 4; each
    record once.

    Why: a producer repeats a batch when its response was lost, and relies on this to write it neither twice nor out of
    order.
    """
    topic = c.topic()
    producer = IdempotentProducer(c, topic)
    c.equal(producer.send(0, count=3, version=version), appended(0), "the response to 0 to 2")
    c.equal(producer.send(3, version=version), appended(3), "the response to 3")
    c.equal(producer.send(3, version=version), appended(3), "the response to 3 again")
    c.equal(producer.send(5, version=version), GAP, "the response to 5")
    c.equal(producer.send(4, version=version), appended(4), "the response to 4")
    c.equal(p.values(c, topic), [b"0", b"1", b"2", b"3", b"4"], "the values")


@case(
    "produce.idempotent.batch-unchanged",
    "producer ID, epoch and sequence number are stored",
    source=SOURCE,
    needs=IDEMPOTENT,
)
def batch_unchanged(c: Check) -> None:
    """Sends: Produce of two batches with sequence numbers; Fetch.

    Expects: batches with the producer ID, the epoch, and the base sequences 0 and 2.

    Why: followers, and the server after a restart, rebuild the state of producers from the batches.
    """
    topic = c.topic()
    producer = IdempotentProducer(c, topic)
    producer.send(0, count=2)
    producer.send(2)
    found = [(each.producer_id, each.producer_epoch, each.base_sequence) for each in p.read_batches(c, topic)]
    expected = [(producer.producer_id, producer.epoch, sequence) for sequence in (0, 2)]
    c.equal(found, expected, "producer_id, producer_epoch and base_sequence of the batches")


@case(
    "produce.idempotent.last-five",
    "the last five batches are recognized",
    source="KAFKA-5494",
    needs=IDEMPOTENT,
)
def last_five(c: Check) -> None:
    """Sends: Produce of seven batches, then the last five again, in both orders, and the first ones again.

    Expects: the base offset of the first time for each of the five; no base offset for older ones, whichever error
    they have; each record once.

    Why: a producer has up to five requests in flight, and repeats all of them after a lost connection.
    """
    topic = c.topic()
    producer = IdempotentProducer(c, topic)
    for sequence in range(7):
        c.equal(producer.send(sequence), appended(sequence), f"the response to {sequence}")
    for sequence in (2, 3, 4, 5, 6, 6, 5, 4, 3, 2):
        c.equal(producer.send(sequence), appended(sequence), f"the response to {sequence} again")
    for sequence in (0, 1):
        answer = producer.send(sequence)
        allowed = {"DUPLICATE_SEQUENCE_NUMBER", "OUT_OF_ORDER_SEQUENCE_NUMBER"}
        right = answer.base_offset in p.NO_OFFSETS and answer.error in allowed
        c.true(right, f"the response to {sequence} again", expected=" or ".join(sorted(allowed)), actual=answer)
    c.equal(p.values(c, topic), [b"%d" % sequence for sequence in range(7)], "the values")


@case(
    "produce.idempotent.gap",
    "a gap in the sequence is rejected",
    source=SOURCE,
    needs=IDEMPOTENT,
    variants={"1": (4,), "1000": (1_003,), "back-beyond-start": (LARGEST,)},
)
def gap(c: Check, sequence: int) -> None:
    """Sends: Produce of the sequence numbers 0 to 2, then one that is not 3, twice, then 3.

    Expects: OUT_OF_ORDER_SEQUENCE_NUMBER and no base offset for the gap both times; 3 is appended.

    Why: a gap means that an earlier batch was lost.
    """
    topic = c.topic()
    producer = IdempotentProducer(c, topic)
    c.equal(producer.send(0, count=3), appended(0), "the response to 0 to 2")
    for _ in range(2):
        c.equal(producer.send(sequence), GAP, f"the response to {sequence}")
    c.equal(producer.send(3), appended(3), "the response to 3")
    c.equal(p.values(c, topic), [b"0", b"1", b"2", b"3"], "the values")


@case(
    "produce.idempotent.overlap",
    "a batch that overlaps an earlier one is not a duplicate",
    source=SOURCE,
    needs=IDEMPOTENT,
    variants={"shorter": (0, 2), "longer": (0, 4), "inside": (1, 1), "across-end": (2, 2)},
)
def overlap(c: Check, sequence: int, count: int) -> None:
    """Sends: Produce of the sequence numbers 0 to 2, a batch that begins or ends elsewhere, then 3.

    Expects: OUT_OF_ORDER_SEQUENCE_NUMBER and no base offset for the overlapping batch; 3 is appended.

    Why: a producer repeats batches unchanged; another batch with some of their numbers is an error.
    """
    topic = c.topic()
    producer = IdempotentProducer(c, topic)
    c.equal(producer.send(0, count=3), appended(0), "the response to 0 to 2")
    c.equal(producer.send(sequence, count=count), GAP, "the response to the overlapping batch")
    c.equal(producer.send(3), appended(3), "the response to 3")
    c.equal(p.values(c, topic), [b"0", b"1", b"2", b"3"], "the values")


@case(
    "produce.idempotent.unknown-producer",
    "a producer that the partition does not know may begin with any sequence number",
    source="KIP-360",
    needs=IDEMPOTENT,
    variants={"0": (0,), "1": (1,), "42": (42,), "largest": (LARGEST,)},
)
def unknown_producer(c: Check, sequence: int) -> None:
    """Sends: Produce with a new producer ID and this sequence number, the same again, and the next one.

    Expects: base offsets 0, 0 and 1.

    Why: the server forgets producers that were idle for long; they continue where they were.
    """
    producer = IdempotentProducer(c, c.topic())
    c.equal(producer.send(sequence), appended(0), f"the response to {sequence}")
    c.equal(producer.send(sequence), appended(0), f"the response to {sequence} again")
    following = 0 if sequence == LARGEST else sequence + 1
    c.equal(producer.send(following), appended(1), f"the response to {following}")


@case(
    "produce.idempotent.wrap",
    "the sequence continues at 0 after its largest number",
    source=SOURCE,
    needs=IDEMPOTENT,
)
def wrap(c: Check) -> None:
    """Sends: Produce of the last two numbers in one batch, 0 and 1; to another partition a batch of five that begins
    with the third last number, the same again, then 2.

    Expects: base offsets 0, 2 and 3; 0, 0 and 5.

    Why: a producer that writes two billion records to a partition gets there.
    """
    producer = IdempotentProducer(c, c.topic(2))
    c.equal(producer.send(LARGEST - 1, count=2), appended(0), "the response to the last two numbers")
    c.equal(producer.send(0), appended(2), "the response to 0")
    c.equal(producer.send(1), appended(3), "the response to 1")
    for _ in range(2):
        answer = producer.send(LARGEST - 2, partition=1, count=5)
        c.equal(answer, appended(0), "the response to the batch across the end")
    c.equal(producer.send(2, partition=1), appended(5), "the response to 2")


@case(
    "produce.idempotent.partitions",
    "each partition has its own sequence",
    source=SOURCE,
    needs=IDEMPOTENT,
)
def partitions(c: Check) -> None:
    """Sends: Produce of 0 and 1 to two partitions with one producer ID, alternately, and 3 to the second.

    Expects: base offsets 0 and 1 in each; OUT_OF_ORDER_SEQUENCE_NUMBER for 3.

    Why: producers count the batches of each partition separately.
    """
    producer = IdempotentProducer(c, c.topic(2))
    for sequence in (0, 1):
        for partition in (0, 1):
            answer = producer.send(sequence, partition=partition)
            c.equal(answer, appended(sequence), f"the response to {sequence} in partition {partition}")
    c.equal(producer.send(3, partition=1), GAP, "the response to 3 in partition 1")


@case(
    "produce.idempotent.producers",
    "producers do not disturb each other's sequences",
    source=SOURCE,
    needs=IDEMPOTENT,
)
def producers(c: Check) -> None:
    """Sends: Produce of two producers to one partition alternately; then the batches of the first again.

    Expects: ascending base offsets; the old ones for the repeated batches, although others were appended after them.

    Why: the last five batches are those of each producer, not of the partition.
    """
    topic = c.topic()
    first, second = IdempotentProducer(c, topic), IdempotentProducer(c, topic)
    c.true(first.producer_id != second.producer_id, "producer_id", expected="two", actual=first.producer_id)
    for sequence in range(3):
        c.equal(first.send(sequence), appended(2 * sequence), f"the response to {sequence} of the first")
        c.equal(second.send(sequence), appended(2 * sequence + 1), f"the response to {sequence} of the second")
    for number in range(8):
        c.equal(second.send(3 + number), appended(6 + number), f"the response to {3 + number} of the second")
    for sequence in range(3):
        c.equal(first.send(sequence), appended(2 * sequence), f"the response to {sequence} of the first again")
    c.equal(p.end_offset(c, topic), 14, "the log end offset")


@case(
    "produce.idempotent.epochs",
    "an older epoch is fenced, and a newer one begins at 0",
    source="KIP-98 and KIP-360",
    needs=IDEMPOTENT,
)
def epochs(c: Check) -> None:
    """Sends: Produce of 0 in epoch 5, 1 in epoch 4, 1 in epoch 6, 0 in epoch 6, and 1 in epochs 5 and 6.

    Expects: appended; INVALID_PRODUCER_EPOCH; OUT_OF_ORDER_SEQUENCE_NUMBER; appended; INVALID_PRODUCER_EPOCH; appended.

    Why: a producer raises its epoch to reset its sequence after an error; batches of the old one may still be on their
    way.
    """
    topic = c.topic()
    producer = IdempotentProducer(c, topic)
    fenced = Reply("INVALID_PRODUCER_EPOCH", -1)
    steps = [
        (5, 0, appended(0)),
        (4, 1, fenced),
        (6, 1, GAP),
        (6, 0, appended(1)),
        (5, 1, fenced),
        (6, 1, appended(2)),
    ]
    for epoch, sequence, expected in steps:
        c.equal(producer.send(sequence, epoch=epoch), expected, f"the response to {sequence} in epoch {epoch}")
    c.equal(p.values(c, topic), [b"0", b"0", b"1"], "the values")


@case(
    "produce.idempotent.epoch-repeated",
    "a batch of the newer epoch is recognized when it is repeated",
    source="KIP-360",
    needs=IDEMPOTENT,
)
def epoch_repeated(c: Check) -> None:
    """Sends: Produce of 0 and 1 in epoch 0, and of 0 in epoch 1, twice.

    Expects: base offsets 0, 1, 2 and 2.

    Why: the same sequence number in another epoch is another batch.
    """
    topic = c.topic()
    producer = IdempotentProducer(c, topic)
    c.equal(producer.send(0, epoch=0), appended(0), "the response to 0 in epoch 0")
    c.equal(producer.send(1, epoch=0), appended(1), "the response to 1 in epoch 0")
    for _ in range(2):
        c.equal(producer.send(0, epoch=1), appended(2), "the response to 0 in epoch 1")
    c.equal(p.end_offset(c, topic), 3, "the log end offset")


@case(
    "produce.idempotent.no-sequence",
    "a producer ID without a sequence number is rejected",
    source=SOURCE,
    layer=Layer.WIRE,
    needs=IDEMPOTENT,
    variants={"minus-1": (-1,), "minus-2": (-2,)},
)
def no_sequence(c: Check, sequence: int) -> None:
    """Sends: Produce with a producer ID, epoch 0, and a negative base sequence.

    Expects: INVALID_RECORD and no base offset; an empty log.

    Why: such a batch could not be recognized when it is repeated.
    """
    topic = c.topic()
    producer_id, _ = new_producer_id(c)
    answer = p.produce(c, topic, batch(b"-", producer_id=producer_id, producer_epoch=0, base_sequence=sequence))
    c.error(answer.error_code, ErrorCode.INVALID_RECORD)
    p.no_offset(c, answer)
    c.equal(p.end_offset(c, topic), 0, "the log end offset")


@case(
    "produce.idempotent.pipelined",
    "pipelined batches are appended in the order of their sequence",
    source=SOURCE,
    needs=IDEMPOTENT,
)
def pipelined(c: Check) -> None:
    """Sends: Produce of the sequence numbers 0 to 4 without waiting; then all five again without waiting.

    Expects: base offsets 0 to 4, twice; each record once.

    Why: this is what a producer with five requests in flight does after its connection was lost.
    """
    topic = c.topic()
    producer_id, epoch = new_producer_id(c)
    version = c.version(ApiKey.PRODUCE)
    for sequence in (*range(5), *range(5)):
        data = batch(b"%d" % sequence, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        c.wire.send(p.produce_request(topic, {0: data}, version=version), version)
    found = [c.wire.receive().responses[0].partition_responses[0] for _ in range(10)]
    c.equal([each.error_code for each in found], [0] * 10, "error_code of the ten responses")
    c.equal([each.base_offset for each in found], [*range(5), *range(5)], "base_offset of the ten responses")
    c.equal(p.values(c, topic), [b"%d" % sequence for sequence in range(5)], "the values")


@case(
    "produce.idempotent.after-deletion",
    "a producer continues after its records were deleted",
    source="KIP-360",
    needs=(*IDEMPOTENT, *needs(ApiKey.DELETE_RECORDS, 0)),
)
def after_deletion(c: Check) -> None:
    """Sends: Produce of 0 and 1, DeleteRecords of both, then 1 again and 2.

    Expects: the base offset of the first time for 1; base offset 2 for 2.

    Why: before KIP-360, producers to topics with a short retention got UNKNOWN_PRODUCER_ID.
    """
    topic = c.topic()
    producer = IdempotentProducer(c, topic)
    c.equal(producer.send(0), appended(0), "the response to 0")
    c.equal(producer.send(1), appended(1), "the response to 1")
    c.equal(delete_before(c, topic, -1).low_watermark, 2, "low_watermark of DeleteRecords")
    c.equal(producer.send(1), appended(1), "the response to 1 again")
    c.equal(producer.send(2), appended(2), "the response to 2")
    c.equal(p.values(c, topic), [b"2"], "the values")


@case(
    "produce.idempotent.described",
    "DescribeProducers shows the last sequence number of a producer",
    source="KIP-664",
    level=Level.SHOULD,
    needs=(*IDEMPOTENT, *needs(ApiKey.DESCRIBE_PRODUCERS, 0)),
)
def described(c: Check) -> None:
    """Sends: Produce of 0 to 2 in one batch with epoch 3, a rejected batch, and DescribeProducers.

    Expects: one active producer with its ID, epoch 3, last sequence 2, and no transaction.

    Why: users find hanging transactions and unexpected producers with it.
    """
    topic = c.topic()
    producer = IdempotentProducer(c, topic)
    c.equal(producer.send(0, count=3, epoch=3), appended(0), "the response to 0 to 2")
    c.equal(producer.send(9, epoch=3), GAP, "the response to 9")
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic.name, partition_indexes=[0])])
    (found,) = c.call(request).topics[0].partitions
    c.error(found.error_code, ErrorCode.NONE, "error_code of DescribeProducers")
    active = [
        (each.producer_id, each.producer_epoch, each.last_sequence, each.current_txn_start_offset)
        for each in found.active_producers
    ]
    c.equal(active, [(producer.producer_id, 3, 2, -1)], "producer_id, epoch, last_sequence and transaction")
