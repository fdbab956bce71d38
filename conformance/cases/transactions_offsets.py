"""AddOffsetsToTxn and TxnOffsetCommit: what they accept and reject."""

from __future__ import annotations

from typing import Final

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from .. import group_offsets as o
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..transactional_producer import NOT_ADDED, OFFSETS, Producer, errors, fenced

ADD_OFFSETS: Final = versions_of(ApiKey.ADD_OFFSETS_TO_TXN)
COMMITS: Final = versions_of(ApiKey.TXN_OFFSET_COMMIT)
STABLE: Final = needs(ApiKey.OFFSET_FETCH, 7)
DESCRIBED: Final = needs(ApiKey.DESCRIBE_TRANSACTIONS, 0)
OUTCOMES: Final = {"commit": (True,), "abort": (False,)}
IMPLICIT: Final = 5
"""The version of TxnOffsetCommit that adds the group to the transaction."""


def _producer(c: Check, version: int) -> Producer:
    return Producer(c, implicit=version >= IMPLICIT).begin()


@case(
    "transactions.add-offsets.exchange",
    "the offsets of a group become part of the transaction",
    source="KIP-98",
    layer=Layer.WIRE,
    needs=DESCRIBED,
    versions=ADD_OFFSETS,
)
def add_offsets(c: Check, version: int) -> None:
    """Sends: AddOffsetsToTxn, twice; DescribeTransactions after each.

    Expects: no error; the state Ongoing with one partition, of __consumer_offsets.

    Why: the coordinator writes a marker to the group's partition, which makes the offsets take effect.
    """
    producer, group = Producer(c).begin(), c.group()
    found: set[tuple[str, tuple[int, ...]]] = set()
    for _ in range(2):
        c.error(producer.add_offsets(group, version), ErrorCode.NONE)
        state = producer.has_state("Ongoing")
        found |= {(each.topic, tuple(each.partitions)) for each in state.topics}
    c.equal([(topic, len(partitions)) for topic, partitions in found], [(OFFSETS, 1)], "the partitions (number)")


@case(
    "transactions.add-offsets.unknown-producer",
    "a transactional ID or a producer ID that the coordinator does not have is rejected",
    source="KIP-98",
    layer=Layer.WIRE,
    versions=ADD_OFFSETS,
)
def add_offsets_unknown(c: Check, version: int) -> None:
    """Sends: AddOffsetsToTxn with a transactional ID that does not exist, with the producer ID of another one, and with
    the transactional ID "".

    Expects: INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_ID_MAPPING, INVALID_REQUEST.

    Why: the transactional ID has expired or belongs to another producer; the producer must stop, or get a new ID.
    """
    producer, other, group = Producer(c).begin(), Producer(c).begin(), c.group()
    unknown = producer.duplicate(c.name("unknown"))
    c.error(unknown.add_offsets(group, version), ErrorCode.INVALID_PRODUCER_ID_MAPPING, "error_code of the unknown ID")
    stranger = producer.duplicate()
    stranger.producer_id = other.producer_id
    error = stranger.add_offsets(group, version)
    c.error(error, ErrorCode.INVALID_PRODUCER_ID_MAPPING, "error_code of the other producer ID")
    c.error(Producer(c, "").add_offsets(group, version), ErrorCode.INVALID_REQUEST, "error_code of the empty ID")


@case(
    "transactions.add-offsets.fenced",
    "a producer with another epoch than the latest is fenced",
    source="KIP-98 and KIP-588",
    layer=Layer.WIRE,
    versions=ADD_OFFSETS,
    variants={"old-epoch": (-1,), "future-epoch": (1,)},
)
def add_offsets_fenced(c: Check, version: int, difference: int) -> None:
    """Sends: AddOffsetsToTxn with an epoch that is one below, or one above, that of the producer.

    Expects: PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH before version 2. The producer itself has no error.

    Why: two processes with one transactional ID must not commit offsets in one transaction.
    """
    Producer(c, name := c.name("transaction")).begin()
    producer, group = Producer(c, name).begin(), c.group()
    zombie = producer.duplicate()
    zombie.epoch += difference
    c.error(zombie.add_offsets(group, version), fenced(version, 2))
    c.error(producer.add_offsets(group, version), ErrorCode.NONE, "error_code of the producer itself")


@case(
    "transactions.offset-commit.exchange",
    "offsets in a transaction take effect when it commits, and are discarded when it aborts",
    source="KIP-98 and KIP-447",
    layer=Layer.WIRE,
    needs=STABLE,
    versions=COMMITS,
    variants=OUTCOMES,
)
def exchange(c: Check, version: int, committed: bool) -> None:
    """Sends: OffsetCommit of 3 for partition 0; TxnOffsetCommit of 17 for partition 0 and 0 for partition 2, with
    metadata; OffsetFetch with and without `require_stable`, before and after EndTxn.

    Expects: no error. Before the end: 3, none, none; with `require_stable` UNSTABLE_OFFSET_COMMIT for 0 and 2. After a
    commit: 17, none, 0, with the metadata; after an abort: 3, none, none.

    Why: a consumer that processes and produces in transactions restarts at these offsets; each record counts once.
    """
    topic, group = c.topic(3), c.group()
    o.commit(c, group, topic, {0: 3})
    producer = _producer(c, version)
    producer.write_offsets(group, topic, {0: 17, 2: 0}, version=version, metadata="řeka")
    c.equal(o.committed(c, group, topic, 0, 1, 2), {0: 3, 1: -1, 2: -1}, "the offsets before the end")
    unstable = {0: o.UNSTABLE, 1: -1, 2: o.UNSTABLE}
    c.equal(o.stable(c, group, topic, 0, 1, 2), unstable, "the offsets with require_stable before the end")
    producer.finish(committed=committed)
    o.settled(c, group, topic, 0, 1, 2)
    found = o.fetched(c, group, topic, 0, 1, 2)
    expected = {0: (17, "řeka"), 1: (-1, ""), 2: (0, "řeka")} if committed else {0: (3, ""), 1: (-1, ""), 2: (-1, "")}
    c.equal(found, expected, "offsets and metadata after the end")
    c.equal(o.fetched(c, group, topic, 0, 1, 2, require_stable=True), expected, "the same with require_stable")


@case(
    "transactions.offset-commit.not-added",
    "offsets of a group that is not part of the transaction are rejected",
    source="KIP-890",
    layer=Layer.WIRE,
    needs=STABLE,
    versions=versions_of(ApiKey.TXN_OFFSET_COMMIT, 0, 4),
)
def not_added(c: Check, version: int) -> None:
    """Sends: TxnOffsetCommit without AddOffsetsToTxn before it; again in a transaction with another partition.

    Expects: TRANSACTION_ABORTABLE or INVALID_TXN_STATE for each partition; no pending offset.

    Why: the coordinator does not know the group, so no marker would end it: its offsets would be unstable forever.
    """
    topic, group = c.topic(2), c.group()
    producer = Producer(c).begin()
    found = producer.commit_offsets(group, topic, {0: 1, 1: 1}, version)
    errors(c, found, dict.fromkeys((0, 1), NOT_ADDED), "TxnOffsetCommit")
    producer.added(topic)
    errors(c, producer.commit_offsets(group, topic, {0: 1}, version), {0: NOT_ADDED}, "TxnOffsetCommit")
    c.equal(o.stable(c, group, topic), {0: -1}, "the offset with require_stable")


@case(
    "transactions.offset-commit.not-added-error",
    "the error of offsets without a transaction depends on the version",
    source="KIP-890",
    level=Level.SHOULD,
    versions=versions_of(ApiKey.TXN_OFFSET_COMMIT, 3, 4),
    # Another producer would be verified together with this one.
    exclusive=True,
)
def not_added_error(c: Check, version: int) -> None:
    """Sends: TxnOffsetCommit without AddOffsetsToTxn before it, while no other case runs.

    Expects: TRANSACTION_ABORTABLE in version 4, INVALID_TXN_STATE in version 3.

    Why: after the first error a producer aborts its transaction and continues. Older clients do not know it, and take
    the second one as fatal.
    """
    topic, group = c.topic(), c.group()
    producer = Producer(c).begin()
    expected = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
    errors(c, producer.commit_offsets(group, topic, {0: 1}, version), {0: expected}, "TxnOffsetCommit")


@case(
    "transactions.offset-commit.implicit",
    "TxnOffsetCommit adds its group to the transaction",
    source="KIP-890",
    needs=needs(ApiKey.TXN_OFFSET_COMMIT, 5, ApiKey.DESCRIBE_TRANSACTIONS, 0),
    features={"transaction.version": 2},
)
def implicit(c: Check) -> None:
    """Sends: TxnOffsetCommit version 5 without AddOffsetsToTxn.

    Expects: no error; the transaction is Ongoing with one partition of __consumer_offsets.

    Why: producers with transaction.version 2 no longer send AddOffsetsToTxn.
    """
    topic, group = c.topic(), c.group()
    producer = Producer(c, implicit=True).begin()
    errors(c, producer.commit_offsets(group, topic, {0: 1}), {0: ErrorCode.NONE}, "TxnOffsetCommit")
    found = producer.has_state("Ongoing")
    c.equal([(each.topic, len(each.partitions)) for each in found.topics], [(OFFSETS, 1)], "the partitions (number)")
    producer.commit()
    c.equal(o.settled(c, group, topic), {0: 1}, "the offsets after the commit")


@case(
    "transactions.offset-commit.unknown-producer",
    "offsets of an unknown producer are rejected",
    source="KIP-890",
    layer=Layer.WIRE,
    needs=STABLE,
    versions=COMMITS,
)
def unknown_producer(c: Check, version: int) -> None:
    """Sends: TxnOffsetCommit with a transactional ID that does not exist, and with the producer ID of another one.

    Expects: INVALID_PRODUCER_ID_MAPPING for both; no pending offset.

    Why: the offsets would be pending without a transaction that ends them.
    """
    topic, group = c.topic(), c.group()
    producer, other = _producer(c, version), Producer(c).begin()
    expected = {0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    unknown = producer.duplicate(c.name("unknown"))
    errors(c, unknown.commit_offsets(group, topic, {0: 1}, version), expected, "TxnOffsetCommit")
    stranger = producer.duplicate()
    stranger.producer_id = other.producer_id
    errors(c, stranger.commit_offsets(group, topic, {0: 1}, version), expected, "TxnOffsetCommit")
    c.equal(o.stable(c, group, topic), {0: -1}, "the offset with require_stable")


@case(
    "transactions.offset-commit.fenced",
    "offsets with another epoch than the latest are rejected",
    source="KIP-98 and KIP-890",
    layer=Layer.WIRE,
    needs=STABLE,
    versions=COMMITS,
    variants={"old-epoch": (-1,), "future-epoch": (1,)},
)
def other_epoch(c: Check, version: int, difference: int) -> None:
    """Sends: TxnOffsetCommit with an epoch that is one below, or one above, that of the producer.

    Expects: INVALID_PRODUCER_EPOCH in every version; no pending offset.

    Why: an offset of a zombie would make its group skip records, or process them twice.
    """
    topic, group, name = c.topic(), c.group(), c.name("transaction")
    Producer(c, name).begin()
    producer = Producer(c, name).begin()
    zombie = producer.duplicate()
    zombie.epoch += difference
    found = zombie.commit_offsets(group, topic, {0: 1}, version)
    errors(c, found, {0: ErrorCode.INVALID_PRODUCER_EPOCH}, "TxnOffsetCommit")
    c.equal(o.stable(c, group, topic), {0: -1}, "the offset with require_stable")


@case(
    "transactions.offset-commit.unknown-partition",
    "an offset of a partition that does not exist is rejected, and the others are kept",
    source="Protocol: TxnOffsetCommit",
    layer=Layer.WIRE,
    needs=STABLE,
    versions=COMMITS,
)
def unknown_partition(c: Check, version: int) -> None:
    """Sends: TxnOffsetCommit for partitions 0 and 77 of a topic with one partition, and for an unknown topic.

    Expects: UNKNOWN_TOPIC_OR_PARTITION for 77 and for the topic, no error for 0; after the commit partition 0 has its
    offset.

    Why: a topic may be deleted while its records are processed; the other offsets must not be lost.
    """
    topic, group = c.topic(), c.group()
    producer = _producer(c, version)
    if not producer.implicit:
        c.error(producer.add_offsets(group), ErrorCode.NONE, "AddOffsetsToTxn error_code")
    found = producer.commit_offsets(group, topic, {0: 1, 77: 1}, version)
    expected = {0: ErrorCode.NONE, 77: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    errors(c, found, expected, "TxnOffsetCommit")
    found = producer.commit_offsets(group, c.name("no-topic"), {0: 1}, version)
    errors(c, found, {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, "TxnOffsetCommit")
    producer.commit()
    c.equal(o.settled(c, group, topic), {0: 1}, "the offsets after the commit")


@case(
    "transactions.offset-commit.empty-group",
    "an empty group ID is rejected",
    source="Protocol: TxnOffsetCommit",
    layer=Layer.WIRE,
    level=Level.SHOULD,
    versions=COMMITS,
)
def empty_group(c: Check, version: int) -> None:
    """Sends: TxnOffsetCommit with the group ID "".

    Expects: INVALID_GROUP_ID.

    Why: a consumer without a group has no offsets to commit.
    """
    topic = c.topic()
    found = _producer(c, version).commit_offsets("", topic, {0: 1}, version)
    errors(c, found, {0: ErrorCode.INVALID_GROUP_ID}, "TxnOffsetCommit")


@case(
    "transactions.offset-commit.metadata-too-large",
    "metadata that is too long is rejected",
    source="Protocol: TxnOffsetCommit",
    level=Level.SHOULD,
    needs=needs(ApiKey.TXN_OFFSET_COMMIT, 3),
)
def metadata_too_large(c: Check) -> None:
    """Sends: TxnOffsetCommit with 30,000 characters of metadata (`offset.metadata.max.bytes` is 4,096 by default).

    Expects: OFFSET_METADATA_TOO_LARGE; without metadata there is no error.

    Why: the server keeps the metadata of all groups in memory.
    """
    topic, group = c.topic(), c.group()
    producer = Producer(c).begin()
    c.error(producer.add_offsets(group), ErrorCode.NONE, "AddOffsetsToTxn error_code")
    found = producer.commit_offsets(group, topic, {0: 1}, metadata="m" * 30_000)
    errors(c, found, {0: ErrorCode.OFFSET_METADATA_TOO_LARGE}, "TxnOffsetCommit")
    errors(c, producer.commit_offsets(group, topic, {0: 1}), {0: ErrorCode.NONE}, "TxnOffsetCommit")
