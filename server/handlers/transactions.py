"""What is done with a transaction: AddPartitionsToTxn, AddOffsetsToTxn, EndTxn (API keys 24, 25, 26; KIP-98).

- AddPartitionsToTxn 0 to 5: up to version 3 from clients, one transaction; since 4 from brokers, many of them, each of
  which succeeds or fails by itself, and which may only ask whether the partitions were added (KIP-890). All partitions
  of a transaction are added, or none: where one does not exist, or is a coordinator's, the others are
  OPERATION_NOT_ATTEMPTED.
- AddOffsetsToTxn 0 to 4: adds the partition of `__consumer_offsets` that the group belongs to.
- EndTxn 0 to 5: answered when the decision is in the log; the markers follow. Since version 5 the answer has the
  producer id and epoch for the next transaction (KIP-890), and a retry gets them again.
- PRODUCER_FENCED since version 2 of each, INVALID_PRODUCER_EPOCH before (KIP-588).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...metadata.topic_names import CONSUMER_OFFSETS, INTERNAL_TOPICS
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ...protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ...protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ..callers import Gathering, Rewritten
from ..request import PARKED, Parked

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...coordinator.outcome import Caller
    from ..broker import Broker
    from ..request import RequestContext

_SEVERAL_SINCE = 4
"""AddPartitionsToTxn by brokers."""


# -- AddPartitionsToTxn ------------------------------------------------------------------------------------------------


def handle_add_partitions_to_txn(
    broker: Broker, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Parked:
    """Add partitions to transactions, or ask whether they were added."""
    if context.api_version < _SEVERAL_SINCE:
        transactions = [_only_transaction(request)]
    else:
        transactions = request.transactions
        if not transactions:
            return AddPartitionsToTxnResponse()
    gathering = Gathering(context, len(transactions), lambda results: _answer(context, results))
    for index, transaction in enumerate(transactions):

        def failed(error: KafkaError, transaction: AddPartitionsToTxnTransaction = transaction) -> Any:
            return _result(transaction, lambda topic, partition: error.code)

        caller = gathering.caller(index, failed)
        refused = _refused_partitions(broker, context, transaction)
        if refused:
            caller.reply(_result(transaction, _not_attempted_but(refused)))
        elif transaction.verify_only:
            try:
                caller.reply(_verified(broker, transaction))
            except KafkaError as error:
                caller.fail(error)
        else:
            _add(broker, context, transaction, caller)
    return PARKED


def _add(broker: Broker, context: RequestContext, transaction: AddPartitionsToTxnTransaction, caller: Caller) -> None:
    added = Rewritten(caller, lambda answer: _result(transaction, lambda topic, partition: ErrorCode.NONE))
    partitions = _partitions(transaction)
    broker.transactions.run(
        transaction.transactional_id,
        added,
        lambda shard, now: shard.add_partitions(
            added,
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            partitions,
            now,
            client_version=2 if context.api_version >= _SEVERAL_SINCE else 1,
        ),
    )


def _verified(broker: Broker, transaction: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    if not transaction.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    codes = broker.transactions.read(transaction.transactional_id).verify_partitions(
        transaction.transactional_id, transaction.producer_id, transaction.producer_epoch, _partitions(transaction)
    )
    return _result(transaction, lambda topic, partition: codes[topic, partition])


def _only_transaction(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _partitions(transaction: AddPartitionsToTxnTransaction) -> list[tuple[str, int]]:
    return [(topic.name, index) for topic in transaction.topics for index in topic.partitions]


def _refused_partitions(
    broker: Broker, context: RequestContext, transaction: AddPartitionsToTxnTransaction
) -> dict[tuple[str, int], ErrorCode]:
    topics = broker.metadata.image.topics_by_name
    refused = {}
    for name, index in _partitions(transaction):
        if name in INTERNAL_TOPICS and context.api_version < _SEVERAL_SINCE:
            refused[name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED  # AddOffsetsToTxn is the way
        elif name not in topics or index not in topics[name].partitions:
            refused[name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _not_attempted_but(refused: dict[tuple[str, int], ErrorCode]) -> Callable[[str, int], ErrorCode]:
    return lambda topic, index: refused.get((topic, index), ErrorCode.OPERATION_NOT_ATTEMPTED)


def _result(
    transaction: AddPartitionsToTxnTransaction, error_of: Callable[[str, int], ErrorCode]
) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id, topic_results=_topic_results(transaction.topics, error_of)
    )


def _topic_results(
    topics: list[AddPartitionsToTxnTopic], error_of: Callable[[str, int], ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=error_of(topic.name, index)
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _answer(context: RequestContext, results: list[AddPartitionsToTxnResult]) -> AddPartitionsToTxnResponse:
    if context.api_version < _SEVERAL_SINCE:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def failed_add_partitions_to_txn(request: AddPartitionsToTxnRequest, error: KafkaError) -> AddPartitionsToTxnResponse:
    """The error, for every partition where the version has nothing else."""
    return AddPartitionsToTxnResponse(
        error_code=error.code,
        results_by_topic_v3_and_below=_topic_results(request.v3_and_below_topics, lambda topic, partition: error.code),
    )


# -- AddOffsetsToTxn ---------------------------------------------------------------------------------------------------


def handle_add_offsets_to_txn(broker: Broker, context: RequestContext, request: AddOffsetsToTxnRequest) -> Parked:
    """Make the offsets of a group part of the transaction."""
    partition = (CONSUMER_OFFSETS, broker.groups.partition_of(request.group_id))
    caller = Rewritten(context, lambda answer: AddOffsetsToTxnResponse())
    broker.transactions.run(
        request.transactional_id,
        caller,
        lambda shard, now: shard.add_partitions(
            caller,
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [partition],
            now,
            client_version=1,
        ),
    )
    return PARKED


def failed_add_offsets_to_txn(request: AddOffsetsToTxnRequest, error: KafkaError) -> AddOffsetsToTxnResponse:
    """The error of the request."""
    return AddOffsetsToTxnResponse(error_code=error.code)


# -- EndTxn ------------------------------------------------------------------------------------------------------------


def handle_end_txn(broker: Broker, context: RequestContext, request: EndTxnRequest) -> Parked:
    """Commit or abort."""
    broker.transactions.run(
        request.transactional_id, context, lambda shard, now: shard.end_transaction(context, request, now)
    )
    return PARKED


def failed_end_txn(request: EndTxnRequest, error: KafkaError) -> EndTxnResponse:
    """The error, and no producer."""
    return EndTxnResponse(error_code=error.code)
