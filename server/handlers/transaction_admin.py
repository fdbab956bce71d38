"""What people and tools ask of transactions: DescribeTransactions, ListTransactions (API keys 65, 66; KIP-664).

- DescribeTransactions 0: each transactional id succeeds or fails by itself.
- ListTransactions 0 to 2: for all transactional ids of this broker, and fails while one of its partitions of
  `__transaction_state` loads. Filtered by how long they last since version 1, by a regular expression since 2: it is
  RE2's kind here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import KafkaError
from ...protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ...protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ...transaction_coordinator.describe import unknown_states

if TYPE_CHECKING:
    from ..broker import Broker
    from ..request import Parked, RequestContext
    from ..slices import Sliced


def handle_describe_transactions(
    broker: Broker, context: RequestContext, request: DescribeTransactionsRequest
) -> Sliced[DescribeTransactionsResponse | Parked]:
    """The state of these transactional ids."""
    response = DescribeTransactionsResponse()
    request.transactional_ids = list(dict.fromkeys(request.transactional_ids))
    for transactional_id in request.transactional_ids:
        try:
            state = broker.transactions.read(transactional_id).describe(transactional_id)
        except KafkaError as error:
            state = TransactionState(transactional_id=transactional_id, error_code=error.code)
        response.transaction_states.append(state)
        yield len(state.topics)
    return broker.transactions.when_safe(context, response, request.transactional_ids)


def failed_describe_transactions(
    request: DescribeTransactionsRequest, error: KafkaError
) -> DescribeTransactionsResponse:
    """The same error for every transactional id."""
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(transactional_id=each, error_code=error.code) for each in request.transactional_ids
        ]
    )


def handle_list_transactions(
    broker: Broker, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse | Parked:
    """Those that every filter lets through."""
    moment = broker.transactions.now()
    response = ListTransactionsResponse(
        unknown_state_filters=unknown_states(request.state_filters),
        transaction_states=[
            listed for shard in broker.transactions.read_all() for listed in shard.list_transactions(request, moment)
        ],
    )
    return broker.transactions.when_safe(context, response)


def failed_list_transactions(request: ListTransactionsRequest, error: KafkaError) -> ListTransactionsResponse:
    """The error of the request."""
    return ListTransactionsResponse(error_code=error.code)
