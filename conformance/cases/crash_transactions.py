"""Crash: transactions that were open, decided or complete when the server was killed (KIP-98 and KIP-890).

Each case exists for both protocols: `explicit`, in which the producer adds partitions, and `implicit`, in which Produce
and TxnOffsetCommit do (`transaction.version` 2).
"""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from .. import committed_offsets as o
from .. import committed_reads as reads
from .. import partitions as p
from ..case import needs
from ..check import Check
from ..recovery import (
    NOT_READY,
    crash_case,
    finish,
    group_coordinator,
    new_group,
    new_producer,
    ready,
    reconnected,
    wait_for_end,
)

TRANSACTIONS = needs(
    ApiKey.PRODUCE, 9, ApiKey.FETCH, 12, ApiKey.INIT_PRODUCER_ID, 3, ApiKey.END_TXN, 1, ApiKey.DESCRIBE_TRANSACTIONS, 0
)  # fmt: skip
PROTOCOLS = {"explicit": (False,), "implicit": (True,)}
SOURCE = "KIP-98 and KIP-890"


@crash_case(
    "crash.transactions.complete",
    "committed transactions are visible, aborted ones are not",
    source=SOURCE,
    needs=TRANSACTIONS,
    variants=PROTOCOLS,
)
def complete(c: Check, implicit: bool) -> None:
    """Sends: four transactions over two partitions, two of which are aborted; kill -9; restart; Fetch with
    read_committed; the last EndTxn again.

    Expects: the records of the committed ones; the same high watermark, last stable offset and aborted transactions;
    no error for EndTxn, with the same producer ID and epoch.

    Why: the list of aborted transactions is what hides their records; without it consumers see them.
    """
    topic = c.topic(2)
    producer = new_producer(c, implicit=implicit)
    for number in range(4):
        for partition in (0, 1):
            producer.write(topic, b"%d" % number, b"%d again" % number, partition=partition)
        last = producer.duplicate()
        finish(c, producer, committed=number % 2 == 0)
    for partition in (0, 1):
        c.until(lambda: reads.stored(c, topic, partition=partition).last_stable_offset == 12, "the last marker")  # noqa: B023
    before = [reads.stored(c, topic, partition=partition) for partition in (0, 1)]
    c.crash()
    ready(c, topic, partitions=2)
    for partition in (0, 1):
        found = reads.stored(c, topic, partition=partition)
        c.equal(found, before[partition], "watermarks, aborted transactions and values of the Fetch response")
        c.equal([each[1] for each in found.aborted or []], [3, 9], "the first offsets of the aborted transactions")
        values = reads.consumed(c, topic, partition=partition)
        c.equal(values, [b"0", b"0 again", b"2", b"2 again"], "the values that a consumer returns")
    last = reconnected(c, last)
    c.error(last.end(committed=False).error_code, ErrorCode.NONE, "EndTxn error_code of the last decision, repeated")
    c.equal((last.producer_id, last.epoch), (producer.producer_id, producer.epoch), "producer_id and producer_epoch")


@crash_case(
    "crash.transactions.open.commit",
    "an open transaction continues and is committed",
    source=SOURCE,
    needs=TRANSACTIONS,
    variants=PROTOCOLS,
)
def open_commit(c: Check, implicit: bool) -> None:
    """Sends: Produce in a transaction; kill -9; restart; Fetch with read_committed; Produce and EndTxn of the same
    producer.

    Expects: the transaction is Ongoing with its partition, and its records are not visible; afterwards all are.

    Why: a producer that is connected again continues; it does not know that the server was dead.
    """
    topic = c.topic()
    producer = new_producer(c, implicit=implicit)
    producer.write(topic, b"before", b"and")
    c.crash()
    ready(c, topic)
    producer = reconnected(c, producer)
    producer.has_state("Ongoing", {topic.name: [0]})
    reads.shows(c, reads.stored(c, topic), high_watermark=2, last_stable_offset=0, aborted=[], values=[])
    answer = producer.send(topic, producer.batch(b"gap", sequence=3))
    c.error(answer.error_code, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "Produce error_code of a batch after a gap")
    c.equal(producer.write(topic, b"after"), 2, "Produce base_offset after the restart")
    finish(c, producer)
    c.until(lambda: reads.stored(c, topic).last_stable_offset == 4, "the marker")
    c.equal(reads.consumed(c, topic), [b"before", b"and", b"after"], "the values that a consumer returns")


@crash_case(
    "crash.transactions.open.abort",
    "an open transaction is aborted by its producer",
    source=SOURCE,
    needs=TRANSACTIONS,
    variants=PROTOCOLS,
)
def open_abort(c: Check, implicit: bool) -> None:
    """Sends: Produce to two partitions in a transaction; kill -9; restart; EndTxn that aborts; a transaction that is
    committed.

    Expects: the records of the first transaction are never visible; those of the second are.

    Why: the server must know all partitions of the transaction, to write their markers.
    """
    topic = c.topic(2)
    producer = new_producer(c, implicit=implicit)
    for partition in (0, 1):
        producer.write(topic, b"lost", partition=partition)
    c.crash()
    ready(c, topic, partitions=2)
    producer = reconnected(c, producer)
    identity = producer.producer_id
    finish(c, producer, committed=False)
    for partition in (0, 1):
        c.until(lambda: reads.stored(c, topic, partition=partition).last_stable_offset == 2, "the marker")  # noqa: B023
        found = reads.stored(c, topic, partition=partition)
        c.equal(found.aborted, [(identity, 0)], "aborted_transactions (producer_id, first_offset)")
        producer.write(topic, b"kept", partition=partition)
    finish(c, producer)
    for partition in (0, 1):
        c.until(lambda: reads.stored(c, topic, partition=partition).last_stable_offset == 4, "the marker")  # noqa: B023
        c.equal(reads.consumed(c, topic, partition=partition), [b"kept"], "the values that a consumer returns")


@crash_case(
    "crash.transactions.open.successor",
    "an open transaction is aborted by the next instance of its producer",
    source=SOURCE,
    needs=TRANSACTIONS,
    variants=PROTOCOLS,
)
def open_successor(c: Check, implicit: bool) -> None:
    """Sends: Produce in a transaction; kill -9; restart; InitProducerId with the transactional ID; Produce and EndTxn
    with the old epoch.

    Expects: a higher epoch; the transaction is aborted; the old epoch has INVALID_PRODUCER_EPOCH for Produce, and
    PRODUCER_FENCED or INVALID_PRODUCER_EPOCH for EndTxn.

    Why: server and application often die together; the new instance must not wait for the old one's timeout.
    """
    topic = c.topic()
    old = new_producer(c, implicit=implicit)
    old.write(topic, b"lost")
    c.crash()
    ready(c, topic)
    old = reconnected(c, old)
    new = old.duplicate().begin()
    c.equal(new.producer_id, old.producer_id, "producer_id of the next instance")
    c.true(new.epoch > old.epoch, "producer_epoch of the next instance", expected=f"more than {old.epoch}",
           actual=new.epoch)  # fmt: skip
    c.until(lambda: reads.stored(c, topic).last_stable_offset == 2, "the marker")
    c.equal(reads.stored(c, topic).aborted, [(old.producer_id, 0)], "aborted_transactions (producer_id, first_offset)")
    answer = old.send(topic, old.batch(b"zombie", sequence=1))
    c.error(answer.error_code, ErrorCode.INVALID_PRODUCER_EPOCH, "Produce error_code with the old epoch")
    fenced = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    c.error(old.end().error_code, fenced, "EndTxn error_code with the old epoch")
    c.equal(p.end_offset(c, topic), 2, "the log end offset")
    new.write(topic, b"kept")
    finish(c, new)
    c.until(lambda: reads.stored(c, topic).last_stable_offset == 4, "the marker")
    c.equal(reads.consumed(c, topic), [b"kept"], "the values that a consumer returns")


@crash_case(
    "crash.transactions.decided",
    "a decided transaction stays decided",
    source=SOURCE,
    needs=TRANSACTIONS,
    variants={
        f"{name}-{protocol}": (committed, *arguments)
        for protocol, arguments in PROTOCOLS.items()
        for name, committed in (("commit", True), ("abort", False))
    },
)
def decided(c: Check, committed: bool, implicit: bool) -> None:
    """Sends: Produce in a transaction and EndTxn; when it has its response, kill -9; restart; EndTxn with the opposite
    decision, and EndTxn again.

    Expects: INVALID_TXN_STATE for the opposite; no error for the same; the transaction becomes
    complete as it was decided, and the producer continues.

    Why: the application knows the outcome; a transaction whose outcome changes makes the systems disagree.
    """
    topic = c.topic()
    producer = new_producer(c, implicit=implicit)
    producer.write(topic, b"decided")
    retry = producer.duplicate()
    c.error(producer.end(committed=committed).error_code, ErrorCode.NONE, "EndTxn error_code")
    c.crash()
    ready(c, topic)
    retry = reconnected(c, retry)
    wait_for_end(c, retry, committed=committed)
    opposite = retry.duplicate().end(committed=not committed)
    c.error(opposite.error_code, ErrorCode.INVALID_TXN_STATE, "EndTxn error_code with the opposite decision")
    again = retry.end(committed=committed)
    c.error(again.error_code, ErrorCode.NONE, "EndTxn error_code of the same decision, repeated")
    c.equal((retry.producer_id, retry.epoch), (producer.producer_id, producer.epoch), "producer_id and producer_epoch")
    following = retry.duplicate().begin()
    following.write(topic, b"next")
    finish(c, following)


@crash_case(
    "crash.transactions.offsets.committed",
    "offsets that were committed in a transaction survive",
    source="KIP-98 and KIP-447",
    needs=(*TRANSACTIONS, *needs(ApiKey.OFFSET_FETCH, 7, ApiKey.TXN_OFFSET_COMMIT, 0)),
    variants=PROTOCOLS,
)
def offsets_committed(c: Check, implicit: bool) -> None:
    """Sends: TxnOffsetCommit in a transaction that is committed, and in one that is aborted; kill -9; restart;
    OffsetFetch.

    Expects: the offset of the committed transaction.

    Why: in consume-transform-produce the offsets and the records must survive together.
    """
    topic, group = c.topic(), new_group(c)
    producer = new_producer(c, implicit=implicit)
    for offset, committed in ((5, True), (9, False)):
        producer.write(topic, b"%d" % offset)
        producer.write_offsets(group, topic, {0: offset}, metadata="in it")
        finish(c, producer, committed=committed)
    wire = c.coordinator(group)
    with c.setup("the committed offset before the crash"):
        c.until(lambda: o.offsets(c, wire, group, topic, [0]) == {0: 5}, "the offset 5")
    c.crash()
    ready(c, topic)
    version = c.version(ApiKey.OFFSET_FETCH)
    found = o.fetch(c, group_coordinator(c, group), group, {topic: [0]}, version, require_stable=True)
    c.error(found.error_code, ErrorCode.NONE, "OffsetFetch error_code")
    expected = {o.key_of(topic, version): {0: o.Committed(5, metadata="in it")}}
    c.equal(found.topics, expected, "offset, leader epoch, metadata and error code of the partition")


@crash_case(
    "crash.transactions.offsets.pending",
    "offsets of an open transaction stay pending",
    source="KIP-447",
    needs=(*TRANSACTIONS, *needs(ApiKey.OFFSET_FETCH, 7, ApiKey.TXN_OFFSET_COMMIT, 0)),
    variants=PROTOCOLS,
)
def offsets_pending(c: Check, implicit: bool) -> None:
    """Sends: OffsetCommit; TxnOffsetCommit in a transaction; kill -9; restart; OffsetFetch with and without
    `require_stable`; EndTxn; OffsetFetch.

    Expects: UNSTABLE_OFFSET_COMMIT with `require_stable`, the old offset without; after the commit the new one.

    Why: a consumer that starts with the old offset while the transaction is open processes its records twice.
    """
    topic, group = c.topic(), new_group(c)
    o.committed_before(c, c.coordinator(group), o.commit_request(group, topic, {0: 3}))
    producer = new_producer(c, implicit=implicit)
    producer.write_offsets(group, topic, {0: 8})
    c.crash()
    ready(c, topic)
    wire = group_coordinator(c, group)
    producer = reconnected(c, producer)
    version = c.version(ApiKey.OFFSET_FETCH)

    def fetched(require_stable: bool) -> o.Committed:
        found = o.fetch(c, wire, group, {topic: [0]}, version, require_stable=require_stable)
        c.error(found.error_code, ErrorCode.NONE, "OffsetFetch error_code")
        return found.topics[o.key_of(topic, version)][0]

    c.equal(fetched(False), o.Committed(3), "the committed offset without require_stable")
    c.error(fetched(True).error_code, ErrorCode.UNSTABLE_OFFSET_COMMIT, "OffsetFetch error_code with require_stable")

    def ended() -> bool:
        # The coordinator may still be waiting for the partition of the group's offsets.
        found = producer.end()
        if found.error_code in NOT_READY:
            return False
        c.error(found.error_code, ErrorCode.NONE, "EndTxn error_code")
        return True

    c.until(ended, "EndTxn without CONCURRENT_TRANSACTIONS")
    c.until(lambda: fetched(True) == o.Committed(8), "the offset of the transaction, with require_stable")
