"""Fencing: producers that were replaced, and transactions that took too long."""

from __future__ import annotations

from typing import Final

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from .. import committed_reads as r
from .. import group_offsets as o
from .. import partitions as p
from ..case import case, needs, versions_of
from ..check import Check, Topic
from ..outcome import NotApplicableError
from ..transactional_producer import FEATURE, Producer, errors, fenced

DESCRIBED: Final = needs(ApiKey.DESCRIBE_TRANSACTIONS, 0)
SECONDS: Final = 60.0
"""Apache Kafka looks for transactions that took too long every 10 seconds."""
TRANSACTION_VERSION_2: Final = {"transaction.version": 2}


def _zombie(c: Check) -> tuple[Producer, Producer, Topic]:
    """A producer that was replaced in the middle of its transaction, its successor with a transaction of its own, and
    the topic of both, which has the aborted record of the first (0), its marker, and that of the second (2)."""
    topic = c.topic(2)
    zombie = Producer(c).begin()
    zombie.write(topic, b"lost")
    successor = Producer(c, zombie.transactional_id).begin()
    successor.write(topic, b"good")
    return zombie, successor, topic


def _is_unharmed(c: Check, successor: Producer, topic: Topic) -> None:
    successor.commit()
    c.equal(r.consumed(c, topic), [b"good"], "what a consumer with read_committed returns")
    c.equal([r.end(c, topic, partition=each) for each in (0, 1)], [4, 0], "the log end offsets of partitions 0 and 1")


@case(
    "transactions.fencing.add-partitions",
    "a producer that was replaced cannot add partitions",
    source="KIP-98 and KIP-588",
    versions=versions_of(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 3),
)
def add_partitions(c: Check, version: int) -> None:
    """Sends: AddPartitionsToTxn of a producer whose transactional ID has a successor with an open transaction.

    Expects: PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH before version 2; the successor's transaction is committed
    without the partition.

    Why: two processes with one transactional ID must not write to one transaction.
    """
    zombie, successor, topic = _zombie(c)
    errors(c, zombie.add(topic, 1, version=version), {1: fenced(version, 2)})
    _is_unharmed(c, successor, topic)


@case(
    "transactions.fencing.add-offsets",
    "a producer that was replaced cannot add a group",
    source="KIP-98 and KIP-588",
    versions=versions_of(ApiKey.ADD_OFFSETS_TO_TXN),
)
def add_offsets(c: Check, version: int) -> None:
    """Sends: AddOffsetsToTxn of a producer whose transactional ID has a successor with an open transaction.

    Expects: PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH before version 2; the successor's transaction is committed.

    Why: the zombie would commit offsets of records that its successor processes again.
    """
    zombie, successor, topic = _zombie(c)
    c.error(zombie.add_offsets(c.group(), version), fenced(version, 2))
    _is_unharmed(c, successor, topic)


@case(
    "transactions.fencing.offset-commit",
    "a producer that was replaced cannot commit offsets",
    source="KIP-98 and KIP-447",
    versions=versions_of(ApiKey.TXN_OFFSET_COMMIT),
)
def offset_commit(c: Check, version: int) -> None:
    """Sends: AddOffsetsToTxn and TxnOffsetCommit of the successor, then TxnOffsetCommit with the epoch before.

    Expects: no error, then INVALID_PRODUCER_EPOCH; the group has the successor's offset after its commit.

    Why: an offset of a zombie would make its group skip records, or process them twice.
    """
    zombie, successor, topic = _zombie(c)
    group = c.group()
    successor.write_offsets(group, topic, {0: 5})
    found = zombie.commit_offsets(group, topic, {0: 9}, version)
    errors(c, found, {0: ErrorCode.INVALID_PRODUCER_EPOCH}, "TxnOffsetCommit")
    _is_unharmed(c, successor, topic)


@case(
    "transactions.fencing.end",
    "a producer that was replaced cannot end the transaction",
    source="KIP-98 and KIP-588",
    versions=versions_of(ApiKey.END_TXN),
    variants={"commit": (True,), "abort": (False,)},
)
def end(c: Check, version: int, committed: bool) -> None:
    """Sends: EndTxn of a producer whose transactional ID has a successor with an open transaction.

    Expects: PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH before version 2; the successor's transaction remains open.

    Why: a zombie that could end it would publish or discard half of it.
    """
    zombie, successor, topic = _zombie(c)
    response = zombie.end(version, committed=committed)
    c.error(response.error_code, fenced(version, 2))
    c.equal((response.producer_id, response.producer_epoch), (-1, -1), "producer_id and producer_epoch")
    c.equal(r.stored(c, topic).last_stable_offset, 2, "last_stable_offset after the zombie's EndTxn")
    _is_unharmed(c, successor, topic)


@case(
    "transactions.fencing.produce",
    "a producer that was replaced cannot write",
    source="KIP-98 and KIP-360",
    versions=versions_of(ApiKey.PRODUCE, 3),
    variants={"same-partition": (0, 1), "other-partition": (1, 0)},
)
def produce(c: Check, version: int, partition: int, sequence: int) -> None:
    """Sends: Produce of a producer whose transactional ID has a successor, to the partition that has records of both,
    or to a partition of the successor's transaction without records.

    Expects: INVALID_PRODUCER_EPOCH and no base offset; nothing is appended.

    Why: a record of a zombie in its successor's transaction would be committed with it.
    """
    zombie, successor, topic = _zombie(c)
    if version >= 12:
        zombie = Producer(c, zombie.transactional_id, implicit=True).adopt(zombie)
    elif partition:
        successor.added(topic, partition)
    answer = zombie.send(topic, zombie.batch(b"zombie", sequence=sequence), partition=partition, version=version)
    c.error(answer.error_code, ErrorCode.INVALID_PRODUCER_EPOCH)
    p.no_offset(c, answer)
    c.equal(r.end(c, topic, partition=partition), 3 if partition == 0 else 0, "the log end offset")
    successor.commit()
    c.equal(r.consumed(c, topic), [b"good"], "what a consumer with read_committed returns")


# Transactions that take longer than their timeout


def _expired(c: Check, topic: Topic, *, implicit: bool = False) -> Producer:
    producer = Producer(c, timeout_ms=1_000, implicit=implicit).begin()
    producer.write(topic, b"lost")
    producer.wait_for_state("CompleteAbort")
    return producer


@case(
    "transactions.timeout.aborted",
    "a transaction that takes longer than its timeout is aborted, and its producer fenced",
    source="KIP-98 and KIP-588",
    needs=DESCRIBED,
    seconds=SECONDS,
)
def timeout(c: Check) -> None:
    """Sends: records in a transaction with a timeout of one second; then nothing, until it is aborted. Then every
    version of AddPartitionsToTxn and AddOffsetsToTxn, Produce, TxnOffsetCommit and EndTxn, with the old epoch.

    Expects: the state CompleteAbort with the next epoch, an aborted transaction in Fetch, and the whole partition
    readable. The old epoch is fenced: PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH for old versions, Produce and
    TxnOffsetCommit. A new producer gets another epoch.

    Why: a producer that has died, or lost its network, would block all consumers of the partition forever.
    """
    topic = c.topic()
    producer = _expired(c, topic)
    found = producer.has_state("CompleteAbort", {})
    c.equal(found.producer_id, producer.producer_id, "producer_id in DescribeTransactions")
    c.equal(found.producer_epoch, 1, "producer_epoch in DescribeTransactions")
    r.shows(
        c,
        r.stored(c, topic),
        high_watermark=2,
        last_stable_offset=2,
        aborted=[(producer.producer_id, 0)],
        values=[b"lost"],
    )
    c.error(producer.produce(topic, b"late").error_code, ErrorCode.INVALID_PRODUCER_EPOCH, "Produce error_code")
    group = c.group()
    for need in versions_of(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 3):
        errors(c, producer.add(topic, version=need.version), {0: fenced(need.version, 2)})
    for need in versions_of(ApiKey.ADD_OFFSETS_TO_TXN):
        error = producer.add_offsets(group, need.version)
        c.error(error, fenced(need.version, 2), f"AddOffsetsToTxn v{need.version} error_code")
    for need in versions_of(ApiKey.END_TXN, 0, 4):
        for committed in (True, False):
            error = producer.end(need.version, committed=committed).error_code
            c.error(error, fenced(need.version, 2), f"EndTxn v{need.version} error_code")
    expired = producer.commit_offsets(group, topic, {0: 9})
    errors(c, expired, {0: ErrorCode.INVALID_PRODUCER_EPOCH}, "TxnOffsetCommit")
    c.equal(r.end(c, topic), 2, "the log end offset")
    successor = Producer(c, producer.transactional_id).begin()
    c.equal(successor.producer_id, producer.producer_id, "producer_id of the new producer")
    c.equal(successor.epoch, 2, "producer_epoch of the new producer")


@case(
    "transactions.timeout.offsets",
    "offsets of a transaction that took too long are discarded",
    source="KIP-98 and KIP-447",
    needs=needs(ApiKey.DESCRIBE_TRANSACTIONS, 0, ApiKey.OFFSET_FETCH, 7),
    seconds=SECONDS,
)
def timeout_offsets(c: Check) -> None:
    """Sends: a committed offset 3 of a group, and offset 9 in a transaction with a timeout of one second, which is not
    ended. Then OffsetFetch until the offset is stable.

    Expects: UNSTABLE_OFFSET_COMMIT while the transaction is open, then offset 3.

    Why: otherwise the members of the group could not start until an operator intervenes.
    """
    topic, group = c.topic(), c.group()
    o.commit(c, group, topic, {0: 3})
    producer = Producer(c, timeout_ms=1_000).begin()
    producer.write_offsets(group, topic, {0: 9})
    producer.wait_for_state("CompleteAbort")
    c.equal(o.settled(c, group, topic), {0: 3}, "the offset of the group")
    for need in versions_of(ApiKey.TXN_OFFSET_COMMIT, 4):
        if c.target.supports(need.api, need.version):
            late = producer.commit_offsets(group, topic, {0: 9}, need.version)
            errors(c, late, {0: ErrorCode.INVALID_PRODUCER_EPOCH}, f"TxnOffsetCommit v{need.version}")


@case(
    "transactions.timeout.end",
    "the end of a transaction that took too long",
    source="KIP-890",
    needs=needs(ApiKey.DESCRIBE_TRANSACTIONS, 0, ApiKey.END_TXN, 5),
    features=TRANSACTION_VERSION_2,
    seconds=SECONDS,
)
def timeout_end(c: Check) -> None:
    """Sends: EndTxn version 5 with commit, then with abort, after a transaction has been aborted by its timeout.

    Expects: INVALID_TXN_STATE for commit; for abort no error and the next epoch.

    Why: the records are aborted, so a commit must not succeed. An abort is what has happened: the producer continues.
    """
    topic = c.topic()
    producer = _expired(c, topic, implicit=True)
    producer_id = producer.producer_id
    c.error(producer.duplicate().end(committed=True).error_code, ErrorCode.INVALID_TXN_STATE, "error_code of commit")
    c.error(producer.end(committed=False).error_code, ErrorCode.NONE, "error_code of abort")
    c.equal((producer.producer_id, producer.epoch), (producer_id, 1), "producer_id and producer_epoch")
    producer.write(topic, b"next")
    producer.commit()
    c.equal(r.consumed(c, topic), [b"next"], "what a consumer with read_committed returns")


@case(
    "transactions.timeout.resume",
    "a producer resumes after its transaction took too long",
    source="KIP-360 and KIP-890",
    needs=DESCRIBED,
    features=TRANSACTION_VERSION_2,
    seconds=SECONDS,
)
def timeout_resume(c: Check) -> None:
    """Sends: InitProducerId with the epoch of a transaction that was aborted by its timeout.

    Expects: the next epoch; after another producer has started, PRODUCER_FENCED.

    Why: nothing has replaced the producer, so that it may continue; one that was replaced may not.
    """
    topic = c.topic()
    producer = _expired(c, topic, implicit=True)
    zombie = producer.duplicate()
    c.error(producer.init(resume=True).error_code, ErrorCode.NONE)
    c.equal((producer.producer_id, producer.epoch), (zombie.producer_id, 1), "producer_id and producer_epoch")
    Producer(c, producer.transactional_id).begin()
    c.error(zombie.init(resume=True).error_code, ErrorCode.PRODUCER_FENCED, "error_code of the fenced producer")


@case(
    "transactions.timeout.resume-fenced",
    "a producer that keeps its epoch does not resume after its transaction took too long",
    source="KIP-360 and KIP-588",
    needs=needs(ApiKey.DESCRIBE_TRANSACTIONS, 0, ApiKey.INIT_PRODUCER_ID, 4),
    seconds=SECONDS,
)
def timeout_resume_fenced(c: Check) -> None:
    """Sends: InitProducerId with the epoch of a transaction that was aborted by its timeout, to a server without
    transaction.version 2.

    Expects: PRODUCER_FENCED, producer ID -1, and epoch -1.

    Why: the server cannot distinguish this producer from one that another has replaced.
    """
    if c.target.features.get(FEATURE, 0) >= 2:
        raise NotApplicableError(f"the feature {FEATURE} is finalized at level 2")
    response = _expired(c, c.topic()).init(resume=True)
    c.error(response.error_code, ErrorCode.PRODUCER_FENCED)
    c.equal((response.producer_id, response.producer_epoch), (-1, -1), "producer_id and producer_epoch")
