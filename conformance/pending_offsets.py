"""Offsets that a producer commits in a transaction, as a step of the setup of cases about groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode
from ..protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ..protocol.messages.end_txn import EndTxnRequest
from ..protocol.messages.init_producer_id import InitProducerIdRequest
from ..protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ..protocol.schema import Request
from .check import TRANSACTION, Check, Topic
from .classic_group import ClassicGroup

_BEFORE_TRANSACTION_VERSION_2 = {ApiKey.TXN_OFFSET_COMMIT: 4, ApiKey.END_TXN: 4}
"""The highest versions in which a producer keeps its epoch after the transaction (KIP-890)."""
_RETRIED = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS})


class PendingOffsets:
    """A transactional producer, and its open transaction with offsets of one group."""

    def __init__(self, c: Check, group: ClassicGroup) -> None:
        self._c = c
        self._group = group
        self._transactional_id = c.name("transactional-id")
        self._wire = c.coordinator(self._transactional_id, TRANSACTION)
        with c.setup("InitProducerId"):
            request = InitProducerIdRequest(transactional_id=self._transactional_id, transaction_timeout_ms=60_000)
            answer = self._retried(lambda: c.call(request, to=self._wire))
            self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch

    def send(self, topic: Topic, offsets: Mapping[int, int]) -> None:
        """Add the group to the transaction, and commit offsets in it."""
        c = self._c
        identity: dict[str, Any] = {
            "transactional_id": self._transactional_id,
            "producer_id": self._producer_id,
            "producer_epoch": self._producer_epoch,
            "group_id": self._group.id,
        }
        partitions = [
            TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
            for index, offset in offsets.items()
        ]
        commit = TxnOffsetCommitRequest(
            topics=[TxnOffsetCommitRequestTopic(name=topic.name, partitions=partitions)], **identity
        )
        with c.setup("committing offsets in a transaction"):
            self._retried(lambda: c.call(AddOffsetsToTxnRequest(**identity), to=self._wire))
            response = self._call(commit, to=self._group.wire)
            for each in response.topics[0].partitions:
                c.error(each.error_code, ErrorCode.NONE, "TxnOffsetCommit error_code")

    def end(self, *, committed: bool) -> None:
        """Commit or abort the transaction. The offsets are visible a moment later."""
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            committed=committed,
        )
        with self._c.setup("EndTxn"):
            self._retried(lambda: self._call(request, to=self._wire))

    def _call(self, request: Request, *, to: Any) -> Any:
        api = ApiKey(request.API_KEY)
        version = self._c.version(api, _BEFORE_TRANSACTION_VERSION_2.get(api))
        return self._c.call(request, version, to=to)

    def _retried(self, call: Callable[[], Any]) -> Any:
        def accepted() -> Any:
            answer = call()
            return None if answer.error_code in _RETRIED else answer

        answer = self._c.until(accepted, "a response without an error that is retried")
        self._c.error(answer.error_code, ErrorCode.NONE)
        return answer
