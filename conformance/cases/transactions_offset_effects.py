"""Which offsets take effect with the end of a transaction, and which are unstable before it."""

from __future__ import annotations

from typing import Final

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.delete_groups import DeleteGroupsRequest
from ...protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from .. import committed_reads as r
from .. import group_offsets as o
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..transactional_producer import Producer, group_coordinator

COMMITS: Final = versions_of(ApiKey.TXN_OFFSET_COMMIT)
STABLE: Final = needs(ApiKey.OFFSET_FETCH, 7)
OUTCOMES: Final = {"commit": (True,), "abort": (False,)}
IMPLICIT: Final = 5
"""The version of TxnOffsetCommit that adds the group to the transaction."""


def _producer(c: Check, version: int) -> Producer:
    return Producer(c, implicit=version >= IMPLICIT).begin()


@case(
    "transactions.stable-offsets.exchange",
    "OffsetFetch with require_stable has an error for an offset that a transaction may change",
    source="KIP-447",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.OFFSET_FETCH, 7),
)
def stable(c: Check, version: int) -> None:
    """Sends: OffsetFetch with `require_stable`, for a partition with a pending offset and one without, before and after
    the commit of the transaction.

    Expects: UNSTABLE_OFFSET_COMMIT with offset -1, and offset -1 without an error; afterwards offset 5 and -1.

    Why: a consumer that started at the offset before would process records again whose results are committed.
    """
    topic, group = c.topic(2), c.group()
    producer = Producer(c).begin()
    producer.write_offsets(group, topic, {1: 5})
    found = o.stable(c, group, topic, 0, 1, version=version)
    c.equal(found, {0: -1, 1: o.UNSTABLE}, "the offsets of an open transaction")
    producer.commit()
    c.equal(o.settled(c, group, topic, 0, 1, version=version), {0: -1, 1: 5}, "the offsets after the commit")


@case(
    "transactions.stable-offsets.everything",
    "OffsetFetch of all partitions has the unstable ones",
    source="KIP-447",
    versions=versions_of(ApiKey.OFFSET_FETCH, 7),
)
def everything(c: Check, version: int) -> None:
    """Sends: OffsetCommit of 3 for partitions 0 and 1; TxnOffsetCommit of 4 for 1 and 2; OffsetFetch of all partitions,
    with and without `require_stable`.

    Expects: 3 and 3 without; with it 3 for 0 and UNSTABLE_OFFSET_COMMIT for 1. After the commit 3, 4 and 4.

    Why: a consumer that requests everything must learn that an offset is about to change.
    """
    topic, group = c.topic(3), c.group()
    o.commit(c, group, topic, {0: 3, 1: 3})
    producer = Producer(c).begin()
    producer.write_offsets(group, topic, {1: 4, 2: 4})
    found = o.fetched(c, group, topic, version=version, everything=True)
    c.equal(found, {0: (3, ""), 1: (3, "")}, "all offsets")
    found = o.fetched(c, group, topic, version=version, everything=True, require_stable=True)
    c.equal(found, {0: (3, ""), 1: o.UNSTABLE}, "all offsets with require_stable")
    producer.commit()
    expected = {0: (3, ""), 1: (4, ""), 2: (4, "")}

    o.settled(c, group, topic, 1, 2)
    found = o.fetched(c, group, topic, version=version, everything=True, require_stable=True)
    c.equal(found, expected, "all offsets after the commit")


@case(
    "transactions.offset-commit.last-offset",
    "the last offset of a transaction takes effect",
    source="KIP-98",
    versions=COMMITS,
)
def last_offset(c: Check, version: int) -> None:
    """Sends: TxnOffsetCommit of 5, 9 and 7 for one partition in one transaction, and EndTxn with commit.

    Expects: offset 7.

    Why: a consumer may seek back within a transaction; the order of the requests decides, not the largest offset.
    """
    topic, group = c.topic(), c.group()
    producer = _producer(c, version)
    for offset in (5, 9, 7):
        producer.write_offsets(group, topic, {0: offset}, version=version)
    producer.commit()
    c.equal(o.settled(c, group, topic), {0: 7}, "the offsets after the commit")


@case(
    "transactions.offset-commit.two-transactions",
    "of two transactions, the later offset takes effect",
    source="KIP-98 and KIP-447",
    needs=STABLE,
)
def two_transactions(c: Check) -> None:
    """Sends: TxnOffsetCommit of a first producer for partitions 0 and 1 with offset 1, then of a second for 0 and 2
    with offset 2; EndTxn with commit of the second, then of the first.

    Expects: between the two ends, 0 and 1 are unstable and 2 has offset 2; after both: 2, 1 and 2.

    Why: offsets of one transaction must not become stable by the end of another one.
    """
    topic, group = c.topic(3), c.group()
    first, second = Producer(c).begin(), Producer(c).begin()
    first.write_offsets(group, topic, {0: 1, 1: 1})
    second.write_offsets(group, topic, {0: 2, 2: 2})
    second.commit()
    between = {0: o.UNSTABLE, 1: o.UNSTABLE, 2: 2}
    c.until(lambda: o.stable(c, group, topic, 0, 1, 2) == between, f"the offsets {between}")
    c.equal(o.committed(c, group, topic, 0, 1, 2), {0: 2, 1: -1, 2: 2}, "the offsets without require_stable")
    first.commit()
    after = {0: 2, 1: 1, 2: 2}
    c.equal(o.settled(c, group, topic, 0, 1, 2), after, "the offsets after the commit")


@case(
    "transactions.offset-commit.outside",
    "a commit outside of the transaction takes effect immediately",
    source="KIP-447",
    needs=STABLE,
)
def outside(c: Check) -> None:
    """Sends: TxnOffsetCommit of 1, then OffsetCommit of 5 for the same partition, then EndTxn with commit.

    Expects: 5 before the end, but UNSTABLE_OFFSET_COMMIT with `require_stable`; 5 after it.

    Why: the later commit wins, and readers that wait for the transaction still do.
    """
    topic, group = c.topic(), c.group()
    producer = Producer(c).begin()
    producer.write_offsets(group, topic, {0: 1})
    o.commit(c, group, topic, {0: 5})
    c.equal(o.committed(c, group, topic), {0: 5}, "the offset before the end")
    c.equal(o.stable(c, group, topic), {0: o.UNSTABLE}, "the offset with require_stable before the end")
    producer.commit()
    c.equal(o.settled(c, group, topic), {0: 5}, "the offsets after the commit")


@case(
    "transactions.offset-commit.several-groups",
    "a transaction has records, and offsets of several groups",
    source="KIP-98",
    needs=STABLE,
    variants=OUTCOMES,
)
def several_groups(c: Check, committed: bool) -> None:
    """Sends: offsets of three groups and a record in one transaction; EndTxn.

    Expects: after a commit the record and each group's own offset; after an abort none of them.

    Why: the transaction is atomic over all its partitions.
    """
    topic = c.topic()
    groups = [c.group() for _ in range(3)]
    producer = Producer(c).begin()
    for number, group in enumerate(groups):
        producer.write_offsets(group, topic, {0: number})
    producer.write(topic, b"a")
    producer.finish(committed=committed)
    for number, group in enumerate(groups):
        expected = {0: number if committed else -1}
        c.equal(o.settled(c, group, topic), expected, "the offsets after the end")
    c.equal(r.consumed(c, topic), [b"a"] if committed else [], "what a consumer with read_committed returns")


@case(
    "transactions.offset-commit.deleted-group",
    "pending offsets of a deleted group do not take effect",
    source="KIP-98 and KIP-229",
    level=Level.SHOULD,
    needs=(*STABLE, *needs(ApiKey.DELETE_GROUPS, 0)),
)
def deleted_group(c: Check) -> None:
    """Sends: TxnOffsetCommit, DeleteGroups, EndTxn with commit, and OffsetFetch.

    Expects: the group is deleted without an error; it has no offset, before and after the end.

    Why: a group that an operator has deleted must not come back with an old offset.
    """
    topic, group = c.topic(), c.group()
    producer = Producer(c).begin()
    producer.write_offsets(group, topic, {0: 1})
    (deleted,) = c.call(DeleteGroupsRequest(groups_names=[group]), to=group_coordinator(c, group)).results
    c.error(deleted.error_code, ErrorCode.NONE, "DeleteGroups error_code")
    c.equal(o.stable(c, group, topic), {0: -1}, "the offset with require_stable")
    producer.commit()
    c.equal(o.committed(c, group, topic), {0: -1}, "the offset after the commit")


@case(
    "transactions.offset-commit.deleted-offset",
    "a pending offset that is deleted does not take effect",
    source="KIP-98 and KIP-496",
    level=Level.SHOULD,
    needs=(*STABLE, *needs(ApiKey.OFFSET_DELETE, 0)),
)
def deleted_offset(c: Check) -> None:
    """Sends: OffsetCommit of 1, TxnOffsetCommit of 2, OffsetDelete of the partition, OffsetFetch, and EndTxn with
    commit.

    Expects: no error; the group has no offset, before and after the end.

    Why: an offset that an operator has deleted must not come back.
    """
    topic, group = c.topic(), c.group()
    o.commit(c, group, topic, {0: 1})
    producer = Producer(c).begin()
    producer.write_offsets(group, topic, {0: 2})
    partition = OffsetDeleteRequestPartition(partition_index=0)
    request = OffsetDeleteRequest(
        group_id=group, topics=[OffsetDeleteRequestTopic(name=topic.name, partitions=[partition])]
    )
    response = c.call(request, 0, to=group_coordinator(c, group))
    c.error(response.error_code, ErrorCode.NONE, "OffsetDelete error_code")
    c.equal([each.error_code for each in response.topics[0].partitions], [0], "OffsetDelete error codes")
    c.equal(o.committed(c, group, topic), {0: -1}, "the offset before the end")
    c.equal(o.stable(c, group, topic), {0: -1}, "the offset with require_stable before the end")
    producer.commit()
    c.equal(o.committed(c, group, topic), {0: -1}, "the offset after the end")
