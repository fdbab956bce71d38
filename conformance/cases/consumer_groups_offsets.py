"""Offsets of consumer groups: member epochs in OffsetCommit, OffsetFetch and TxnOffsetCommit (KIP-848)."""

from __future__ import annotations

from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.end_txn import EndTxnRequest
from ...protocol.messages.init_producer_id import InitProducerIdRequest
from ...protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from .. import committed_offsets as o
from .. import consumer_group as g
from ..case import Release, case, needs, versions_of
from ..check import TRANSACTION, Check, Topic
from ..consumer_group import FEATURES, ConsumerMember

HEARTBEAT = needs(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, ApiKey.CONSUMER_GROUP_DESCRIBE, 0)
OFFSETS = (*HEARTBEAT, *needs(ApiKey.OFFSET_COMMIT, 9, ApiKey.OFFSET_FETCH, 9))
SOURCE = "KIP-848: OffsetCommit API and OffsetFetch API"


def stable_member(c: Check, partitions: int = 2) -> tuple[Topic, ConsumerMember]:
    """A topic, and the only member of a stable group that reads it."""
    topic = c.topic(partitions)
    member = ConsumerMember(c, c.group(), topic)
    g.stable(c, member)
    return topic, member


@case(
    "consumer-groups.offsets.commit.epoch",
    "OffsetCommit is fenced by member ID and member epoch",
    source=SOURCE,
    features=FEATURES,
    needs=OFFSETS,
    versions=versions_of(ApiKey.OFFSET_COMMIT, 9),
)
def commit_epoch(c: Check, version: int) -> None:
    """Sends: OffsetCommit with the member's ID and epoch; with the next epoch; with an unknown ID; without a member.

    Expects: NONE, STALE_MEMBER_EPOCH, UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID; only the first offset is stored.

    Why: a consumer that was removed must not overwrite the offsets of its successor.
    """
    topic, member = stable_member(c)

    def commit(offset: int, member_id: str, epoch: int) -> int:
        request = o.commit_request(member.group, topic, {0: offset}, member_id=member_id, generation=epoch)
        answer = o.commit(c, member.wire, request, version)
        c.equal(list(answer), [o.key_of(topic, version)], "the topics of the response")
        ((index, error_code),) = answer[o.key_of(topic, version)]
        c.equal(index, 0, "partition_index")
        return error_code

    c.error(commit(11, member.member_id, member.epoch), ErrorCode.NONE, "error_code with the right epoch")
    c.error(
        commit(12, member.member_id, member.epoch + 1), ErrorCode.STALE_MEMBER_EPOCH, "error_code with the next epoch"
    )
    c.error(commit(13, "stranger", member.epoch), ErrorCode.UNKNOWN_MEMBER_ID, "error_code with an unknown member")
    c.error(commit(14, "", -1), ErrorCode.UNKNOWN_MEMBER_ID, "error_code without a member")
    c.equal(o.offsets(c, member.wire, member.group, topic, [0, 1]), {0: 11, 1: -1}, "the committed offsets")


@case(
    "consumer-groups.offsets.commit.old-version",
    "versions of OffsetCommit without member epochs are rejected",
    source=SOURCE,
    features=FEATURES,
    needs=OFFSETS,
    versions=versions_of(ApiKey.OFFSET_COMMIT, 5, 8),
)
def commit_old_version(c: Check, version: int) -> None:
    """Sends: OffsetCommit in an older version with the ID and epoch of a member of the consumer protocol.

    Expects: UNSUPPORTED_VERSION, and no offset is stored.

    Why: a client of such a version would not understand STALE_MEMBER_EPOCH.
    """
    topic, member = stable_member(c)
    request = o.commit_request(member.group, topic, {0: 11}, member_id=member.member_id, generation=member.epoch)
    c.error(o.commit_error(c, member.wire, request, version), ErrorCode.UNSUPPORTED_VERSION)
    c.equal(o.offsets(c, member.wire, member.group, topic, [0]), {0: -1}, "the committed offsets")


@case(
    "consumer-groups.offsets.commit.older-epoch",
    "an offset may be committed with an older epoch at which the partition was already assigned",
    source="KIP-1251",
    features=FEATURES,
    needs=OFFSETS,
    since=Release(4, 3),
)
def commit_older_epoch(c: Check) -> None:
    """Sends: after a rebalance, commits with the epoch of before: for a partition that the member kept, for one that
    moved to another member, and for both in one request.

    Expects: no error for the first; STALE_MEMBER_EPOCH for the second, and for both partitions of the third.

    Why: a commit that crosses the response with the new epoch on its way is correct, as long as the partition is still
    the member's.
    """
    topic, member = stable_member(c)
    before = member.epoch
    other = ConsumerMember(c, member.group, topic)
    with c.setup("a second member"):
        other.join()
        g.settle(c, member, other)
    (kept,), (moved,) = member.partitions, other.partitions

    def commit(*partitions: int) -> list[tuple[int, int]]:
        offsets = dict.fromkeys(partitions, 11)
        request = o.commit_request(member.group, topic, offsets, member_id=member.member_id, generation=before)
        (answers,) = o.commit(c, member.wire, request).values()
        return answers

    stale = ErrorCode.STALE_MEMBER_EPOCH
    c.equal(commit(kept), [(kept, ErrorCode.NONE)], "the response for the kept partition")
    c.equal(commit(moved), [(moved, stale)], "the response for the partition that moved")
    c.equal(commit(kept, moved), [(kept, stale), (moved, stale)], "the response for both partitions")
    c.equal(o.offsets(c, member.wire, member.group, topic, [kept, moved]), {kept: 11, moved: -1}, "committed offsets")


@case(
    "consumer-groups.offsets.commit.empty-group",
    "offsets of an empty consumer group may be committed without a member",
    source=SOURCE,
    features=FEATURES,
    needs=OFFSETS,
)
def commit_empty_group(c: Check) -> None:
    """Sends: the only member leaves; then OffsetCommit without a member.

    Expects: no error, and the offset is stored.

    Why: tools reset the offsets of a group while its application is stopped.
    """
    topic, member = stable_member(c)
    with c.setup("an empty group"):
        c.error(member.leave().error_code, ErrorCode.NONE)
    request = o.commit_request(member.group, topic, {1: 11})
    c.error(o.commit_error(c, member.wire, request), ErrorCode.NONE)
    c.equal(o.offsets(c, member.wire, member.group, topic, [0, 1]), {0: -1, 1: 11}, "the committed offsets")


@case(
    "consumer-groups.offsets.fetch.epoch",
    "OffsetFetch is fenced by member ID and member epoch",
    source=SOURCE,
    features=FEATURES,
    needs=OFFSETS,
    versions=versions_of(ApiKey.OFFSET_FETCH, 9),
)
def fetch_epoch(c: Check, version: int) -> None:
    """Sends: OffsetFetch with the member's ID and epoch; without a member; with the epochs before and after; with an
    unknown ID.

    Expects: the committed offset for the first two; STALE_MEMBER_EPOCH twice and UNKNOWN_MEMBER_ID, without offsets.

    Why: a consumer that starts to read at an offset from before its successor's commits reads records again.
    """
    topic, member = stable_member(c)
    request = o.commit_request(member.group, topic, {0: 11}, member_id=member.member_id, generation=member.epoch)
    o.committed_before(c, member.wire, request)

    def fetch(member_id: str | None, epoch: int) -> o.Fetched:
        partitions = {topic: [0, 1]}
        return o.fetch(c, member.wire, member.group, partitions, version, member_id=member_id, member_epoch=epoch)

    for member_id, epoch in ((member.member_id, member.epoch), (None, -1)):
        found = fetch(member_id, epoch)
        c.error(found.error_code, ErrorCode.NONE, f"error_code of member {member_id}")
        offsets = {index: each.offset for index, each in found.topics[o.key_of(topic, version)].items()}
        c.equal(offsets, {0: 11, 1: -1}, f"the offsets for member {member_id}")
    for step in (-1, 1):
        found = fetch(member.member_id, member.epoch + step)
        c.equal(found, o.Fetched(ErrorCode.STALE_MEMBER_EPOCH, {}), f"the response to the member's epoch {step:+}")
    found = fetch("stranger", member.epoch)
    c.equal(found, o.Fetched(ErrorCode.UNKNOWN_MEMBER_ID, {}), "the response to an unknown member")


@case(
    "consumer-groups.offsets.fetch.all",
    "a member fetches all offsets of its group",
    source=SOURCE,
    features=FEATURES,
    needs=OFFSETS,
    versions=versions_of(ApiKey.OFFSET_FETCH, 9),
)
def fetch_all(c: Check, version: int) -> None:
    """Sends: OffsetFetch without topics, with the ID and epoch of a member whose group has one committed offset.

    Expects: this partition with its offset, leader epoch and metadata, and no other.

    Why: tools and some clients fetch everything that a group has committed.
    """
    topic, member = stable_member(c)
    request = o.commit_request(
        member.group,
        topic,
        {1: 11},
        member_id=member.member_id,
        generation=member.epoch,
        metadata="note",
        leader_epoch=0,
    )
    o.committed_before(c, member.wire, request)
    found = o.fetch(c, member.wire, member.group, None, version, member_id=member.member_id, member_epoch=member.epoch)
    c.error(found.error_code, ErrorCode.NONE)
    c.equal(found.topics, {o.key_of(topic, version): {1: o.Committed(11, 0, "note")}}, "the topics of the response")


@case(
    "consumer-groups.offsets.transaction.epoch",
    "TxnOffsetCommit is fenced by member ID and member epoch",
    source="KIP-447 and KIP-848",
    features=FEATURES | {"transaction.version": 2},
    needs=(*OFFSETS, *needs(ApiKey.TXN_OFFSET_COMMIT, 5, ApiKey.END_TXN, 5)),
)
def transaction_epoch(c: Check) -> None:
    """Sends: TxnOffsetCommit of a new producer, which also adds the group to its transaction (KIP-890), with the next
    epoch of the member, with an unknown member, and with the right member and epoch.

    Expects: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, NONE; the offset is visible only after the transaction's end.

    Why: exactly-once processing commits offsets in transactions, and relies on this to fence old consumers.
    """
    topic, member = stable_member(c)
    identifier = c.name("transaction")
    coordinator = c.coordinator(identifier, TRANSACTION)
    with c.setup("a transactional producer"):
        request = InitProducerIdRequest(transactional_id=identifier, transaction_timeout_ms=60_000)
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR

        def initialized() -> Any:
            answer = c.call(request, to=coordinator)
            return None if answer.error_code in loading else answer

        producer = c.until(initialized, "a response of the coordinator that has loaded")
        c.error(producer.error_code, ErrorCode.NONE, "InitProducerId error_code")

    def commit(member_id: str, epoch: int) -> int:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=11, committed_metadata="")
        answer = c.call(
            TxnOffsetCommitRequest(
                transactional_id=identifier,
                group_id=member.group,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                generation_id=epoch,
                member_id=member_id,
                topics=[TxnOffsetCommitRequestTopic(name=topic.name, partitions=[partition])],
            ),
            to=member.wire,
        )
        c.equal([each.name for each in answer.topics], [topic.name], "topics (name)")
        ((found,),) = [each.partitions for each in answer.topics]
        c.equal(found.partition_index, 0, "partition_index")
        return int(found.error_code)

    c.error(commit(member.member_id, member.epoch + 1), ErrorCode.ILLEGAL_GENERATION, "error_code with the next epoch")
    c.error(commit("stranger", member.epoch), ErrorCode.UNKNOWN_MEMBER_ID, "error_code of an unknown member")
    c.error(commit(member.member_id, member.epoch), ErrorCode.NONE, "error_code with the right epoch")
    c.equal(o.offsets(c, member.wire, member.group, topic, [0]), {0: -1}, "the committed offset before the end")
    end = EndTxnRequest(
        transactional_id=identifier,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=True,
    )
    c.error(c.call(end, to=coordinator).error_code, ErrorCode.NONE, "EndTxn error_code")
    c.until(
        lambda: o.offsets(c, member.wire, member.group, topic, [0]) == {0: 11}, "the offset after the transaction's end"
    )


@case(
    "consumer-groups.offsets.delete.subscribed",
    "offsets of topics to which members subscribe are not deleted",
    source="KIP-496 and KIP-848",
    features=FEATURES,
    needs=(*OFFSETS, *needs(ApiKey.OFFSET_DELETE, 0)),
)
def delete_subscribed(c: Check) -> None:
    """Sends: OffsetDelete for two topics of which the group's member subscribes to one; again after it has left.

    Expects: GROUP_SUBSCRIBED_TO_TOPIC for the subscribed topic, which keeps its offset, and no error for the other
    one; no error for the first after the member has left.

    Why: an offset that is deleted while it is used makes the consumer start again at the beginning or the end.
    """
    topic, other = c.topic(), c.topic()
    member = ConsumerMember(c, c.group(), topic)
    for each in (topic, other):
        o.committed_before(c, member.wire, o.commit_request(member.group, each, {0: 4}))
    g.stable(c, member)
    answer = o.delete(c, member.wire, member.group, {topic.name: [0], other.name: [0]})
    c.error(answer.error_code, ErrorCode.NONE)
    found = o.deleted(c, answer)
    c.equal(
        found,
        {topic.name: {0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}, other.name: {0: ErrorCode.NONE}},
        "error_code by topic and partition",
    )
    c.equal(o.offsets(c, member.wire, member.group, topic, [0]), {0: 4}, "the offset of the subscribed topic")
    c.equal(o.offsets(c, member.wire, member.group, other, [0]), {0: -1}, "the offset of the other topic")
    member.leave()
    found = o.deleted(c, o.delete(c, member.wire, member.group, {topic.name: [0]}))
    c.equal(found, {topic.name: {0: ErrorCode.NONE}}, "error_code after the member has left")
