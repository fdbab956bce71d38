"""TxnOffsetCommit: the leader epoch of a committed offset."""

from __future__ import annotations

from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ...protocol.messages.end_txn import EndTxnRequest
from ...protocol.messages.init_producer_id import InitProducerIdRequest
from ...protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ...protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from .. import partitions as p
from ..case import case, needs, versions_of
from ..check import TRANSACTION, Check
from ..record_batches import batch
from ..transactional_producer import FEATURE

_EPOCH = 0


@case(
    "transactions.offset-commit.leader-epoch",
    "an offset that is committed in a transaction keeps its leader epoch",
    source="KIP-320",
    needs=needs(ApiKey.OFFSET_FETCH, 8, ApiKey.END_TXN, 1, ApiKey.ADD_OFFSETS_TO_TXN, 1),
    versions=versions_of(ApiKey.TXN_OFFSET_COMMIT, 2),
)
def leader_epoch(c: Check, version: int) -> None:
    """Sends: TxnOffsetCommit of offset 1 with leader epoch 0, EndTxn (commit), and OffsetFetch.

    Expects: no errors; offset 1 with leader epoch 0 and the metadata of the commit.

    Why: a consumer that continues at this offset finds out with the epoch whether its records were lost.
    """
    topic, group, transactional_id = c.topic(), c.group(), c.name("transaction")
    p.append(c, topic, batch(b"a", b"b"))
    with c.setup("beginning a transaction"):
        coordinator = c.coordinator(transactional_id, TRANSACTION)
        group_coordinator = c.coordinator(group)
        init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        found = c.until(lambda: _without_error(c.call(init, to=coordinator)), "a producer ID")
        identity = {"transactional_id": transactional_id, "producer_id": found.producer_id}
        identity["producer_epoch"] = found.producer_epoch
        add = AddOffsetsToTxnRequest(group_id=group, **identity)
        added = c.call(add, c.version(ApiKey.ADD_OFFSETS_TO_TXN, 3), to=coordinator)
        c.error(added.error_code, ErrorCode.NONE, "AddOffsetsToTxn error_code")
    partition = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_leader_epoch=_EPOCH, committed_metadata="text"
    )
    topics = [TxnOffsetCommitRequestTopic(name=topic.name, partitions=[partition])]
    commit = TxnOffsetCommitRequest(group_id=group, topics=topics, **identity)
    (answer,) = c.call(commit, version, to=group_coordinator).topics
    c.error(answer.partitions[0].error_code, ErrorCode.NONE, "TxnOffsetCommit error_code")
    # A coordinator whose transactions have the format of level 0 cannot end one with a new epoch.
    new_epoch = version >= 5 and c.target.features.get(FEATURE, 0) >= 1
    end_version = c.version(ApiKey.END_TXN, None if new_epoch else 4)
    ended = c.call(EndTxnRequest(committed=True, **identity), end_version, to=coordinator)
    c.error(ended.error_code, ErrorCode.NONE, "EndTxn error_code")

    wanted = OffsetFetchRequestTopics(name=topic.name, partition_indexes=[0])
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[wanted])], require_stable=True)

    def committed() -> tuple[int, int, str | None] | None:
        result = c.call(fetch, c.version(ApiKey.OFFSET_FETCH, 9), to=group_coordinator).groups[0]
        if result.error_code or not result.topics:
            return None
        (found,) = result.topics[0].partitions
        if found.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            return None
        c.error(found.error_code, ErrorCode.NONE, "OffsetFetch error_code")
        return found.committed_offset, found.committed_leader_epoch, found.metadata

    c.equal(c.until(committed, "a stable offset"), (1, _EPOCH, "text"), "offset, leader epoch and metadata")


def _without_error(answer: Any) -> Any:
    return None if answer.error_code else answer
