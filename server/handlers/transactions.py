"""Changes of transactions: AddPartitionsToTxn, AddOffsetsToTxn, EndTxn (API keys 24, 25, 26; KIP-98).

- AddPartitionsToTxn 0 to 5. Up to version 3, clients send it for one transaction. Since version 4, brokers send it for
  several transactions, each of which succeeds or fails independently, and may only check whether the partitions were
  added (KIP-890). Either all partitions of a transaction are added, or none: if one is missing, or belongs to a
  coordinator, the error of the others is OPERATION_NOT_ATTEMPTED.
- AddOffsetsToTxn 0 to 4: adds the partition of `__consumer_offsets` that the group belongs to.
- EndTxn 0 to 5: the response follows when the decision is in the log; the markers are written later. Since version 5,
  the response has the producer id and epoch for the next transaction (KIP-890), and a retry gets the same ones.
- PRODUCER_FENCED since version 2 of each API, INVALID_PRODUCER_EPOCH before (KIP-588).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from ...protocol.steps import completed
from ..concurrency.pending import Pending
from ..context import DEFERRED, Deferred
from ..coordination.callers import Part, Rewritten

if TYPE_CHECKING:
    from ...coordinator.outcome import Caller
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext

Codes = dict[tuple[str, int], ErrorCode]
"""The error code of each partition of a transaction."""

_SEVERAL_SINCE = 4
"""AddPartitionsToTxn from brokers, for several transactions."""


# -- AddPartitionsToTxn ------------------------------------------------------------------------------------------------


def handle_add_partitions_to_txn(
    broker: Broker, context: RequestContext, request: AddPartitionsToTxnRequest
) -> Sliced[AddPartitionsToTxnResponse | Deferred]:
    """Add partitions to transactions, or check whether they were added."""
    if context.api_version < _SEVERAL_SINCE:
        transactions = [_only_transaction(request)]
    else:
        transactions = request.transactions
        if not transactions:
            return AddPartitionsToTxnResponse()
    pending: Pending[ErrorCode | Codes, KafkaError] = Pending(lambda results: _respond(context, transactions, results))
    for transaction in transactions:
        caller = Part(context, pending, lambda error: error.code)
        refused = yield from _refused_partitions(broker, context, transaction)
        if refused:
            caller.reply(refused)
        elif transaction.verify_only:
            try:
                caller.reply(_verified(broker, transaction))
            except KafkaError as error:
                caller.fail(error)
        else:
            _add(broker, context, transaction, caller)
        yield 0
    pending.start()
    return DEFERRED


def _add(broker: Broker, context: RequestContext, transaction: AddPartitionsToTxnTransaction, caller: Caller) -> None:
    added = Rewritten(caller, lambda answer: ErrorCode.NONE)
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


def _verified(broker: Broker, transaction: AddPartitionsToTxnTransaction) -> Codes:
    if not transaction.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return broker.transactions.read(transaction.transactional_id).verify_partitions(
        transaction.transactional_id, transaction.producer_id, transaction.producer_epoch, _partitions(transaction)
    )


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
) -> Sliced[Codes]:
    """The codes of all partitions if one is rejected, because the others are not attempted then; otherwise empty."""
    topics = broker.metadata.image.topics_by_name
    refused: Codes = {}
    for topic in transaction.topics:
        name = topic.name
        yield 0
        for index in topic.partitions:
            yield 0
            if name in INTERNAL_TOPICS and context.api_version < _SEVERAL_SINCE:
                refused[name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED  # only AddOffsetsToTxn adds them
            elif name not in topics or index not in topics[name].partitions:
                refused[name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if refused:
        for topic in transaction.topics:
            yield 0
            for index in topic.partitions:
                refused.setdefault((topic.name, index), ErrorCode.OPERATION_NOT_ATTEMPTED)
                yield 0
    return refused


def _respond(
    context: RequestContext, transactions: list[AddPartitionsToTxnTransaction], results: list[ErrorCode | Codes]
) -> None:
    steps = _respond_in_steps(context.api_version, transactions, results)
    if context.is_long:
        context.reply_in_slices(steps)
    else:
        context.reply(completed(steps))


def _respond_in_steps(
    api_version: int, transactions: list[AddPartitionsToTxnTransaction], results: list[ErrorCode | Codes]
) -> Sliced[AddPartitionsToTxnResponse]:
    response = AddPartitionsToTxnResponse()
    for transaction, codes in zip(transactions, results, strict=True):
        topic_results = yield from _topic_results(transaction.topics, codes)
        if api_version < _SEVERAL_SINCE:
            response.results_by_topic_v3_and_below = topic_results
        else:
            response.results_by_transaction.append(
                AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=topic_results)
            )
    return response


def _topic_results(
    topics: list[AddPartitionsToTxnTopic], codes: ErrorCode | Codes
) -> Sliced[list[AddPartitionsToTxnTopicResult]]:
    """``codes`` is one code for all partitions, or has a code for each."""
    results = []
    for topic in topics:
        result = AddPartitionsToTxnTopicResult(name=topic.name)
        results.append(result)
        yield 1
        for index in topic.partitions:
            code = codes[topic.name, index] if isinstance(codes, dict) else codes
            result.results_by_partition.append(
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            )
            yield 1
    return results


def failed_add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, error: KafkaError
) -> Sliced[AddPartitionsToTxnResponse]:
    """The error of the request, and of every partition for versions without the former."""
    results = yield from _topic_results(request.v3_and_below_topics, error.code)
    return AddPartitionsToTxnResponse(error_code=error.code, results_by_topic_v3_and_below=results)


# -- AddOffsetsToTxn ---------------------------------------------------------------------------------------------------


def handle_add_offsets_to_txn(
    broker: Broker, context: RequestContext, request: AddOffsetsToTxnRequest
) -> Sliced[Deferred]:
    """Add the offsets of a group to the transaction."""
    partition = (CONSUMER_OFFSETS, (yield from broker.groups.partition_of(request.group_id)))
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
    return DEFERRED


def failed_add_offsets_to_txn(request: AddOffsetsToTxnRequest, error: KafkaError) -> AddOffsetsToTxnResponse:
    """The error of the request."""
    return AddOffsetsToTxnResponse(error_code=error.code)


# -- EndTxn ------------------------------------------------------------------------------------------------------------


def handle_end_txn(broker: Broker, context: RequestContext, request: EndTxnRequest) -> Deferred:
    """Commit or abort a transaction."""
    broker.transactions.run(
        request.transactional_id, context, lambda shard, now: shard.end_transaction(context, request, now)
    )
    return DEFERRED


def failed_end_txn(request: EndTxnRequest, error: KafkaError) -> EndTxnResponse:
    """The error, without a producer id."""
    return EndTxnResponse(error_code=error.code)
