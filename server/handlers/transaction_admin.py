"""Transactions, as described to administrators: DescribeTransactions, ListTransactions (API keys 65, 66; KIP-664).

- DescribeTransactions 0: each transactional id succeeds or fails independently.
- ListTransactions 0 to 2: all transactional ids of this broker. The request fails while one of the broker's partitions
  of `__transaction_state` is loading. The filters are by duration since version 1, and by a regular expression (with
  the syntax of RE2) since version 2.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...protocol.errors import KafkaError
from ...protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ...protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ...protocol.steps import each, each_once
from ...transaction_coordinator.describe import unknown_states

if TYPE_CHECKING:
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import Deferred, RequestContext


def handle_describe_transactions(
    broker: Broker, context: RequestContext, request: DescribeTransactionsRequest
) -> Sliced[DescribeTransactionsResponse | Deferred]:
    """Describe the state of the transactional ids."""
    response = DescribeTransactionsResponse()
    request.transactional_ids = yield from each_once(request.transactional_ids)
    for transactional_id in request.transactional_ids:
        try:
            state = broker.transactions.read(transactional_id).describe(transactional_id)
        except KafkaError as error:
            state = _failed_transaction(error, transactional_id)
        response.transaction_states.append(state)
        yield len(state.topics)
    return broker.transactions.when_committed(context, response, request.transactional_ids)


def failed_describe_transactions(
    request: DescribeTransactionsRequest, error: KafkaError
) -> Sliced[DescribeTransactionsResponse]:
    """The same error for every transactional id."""
    states = yield from each(partial(_failed_transaction, error), request.transactional_ids)
    return DescribeTransactionsResponse(transaction_states=states)


def _failed_transaction(error: KafkaError, transactional_id: str) -> TransactionState:
    return TransactionState(transactional_id=transactional_id, error_code=error.code)


def handle_list_transactions(
    broker: Broker, context: RequestContext, request: ListTransactionsRequest
) -> Sliced[ListTransactionsResponse | Deferred]:
    """List the transactional ids that match every filter."""
    moment = broker.transactions.now()
    response = ListTransactionsResponse(unknown_state_filters=unknown_states(request.state_filters))
    for shard in broker.transactions.read_all():
        yield 0
        for some in shard.list_transactions(request, moment):
            response.transaction_states += some
            yield len(some)
    return broker.transactions.when_committed(context, response)


def failed_list_transactions(request: ListTransactionsRequest, error: KafkaError) -> ListTransactionsResponse:
    """The error of the request."""
    return ListTransactionsResponse(error_code=error.code)
