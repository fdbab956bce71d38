"""DescribeTransactions (version 0) of one transactional id, and ListTransactions (0-2) of one shard (KIP-664)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from ..coordinator.patterns import Pattern
from ..protocol.errors import ErrorCode
from ..protocol.messages.describe_transactions import TopicData
from ..protocol.messages.describe_transactions import TransactionState as DescribedTransaction
from ..protocol.messages.list_transactions import ListTransactionsRequest
from ..protocol.messages.list_transactions import TransactionState as ListedTransaction
from .transaction import TransactionStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..coordinator.outcome import Now
    from .states import TransactionStates
    from .transaction import Transaction

STATE_NAMES: Final = frozenset(status.state_name for status in TransactionStatus) | {"Dead", "PrepareEpochFence"}
"""The states that a filter may name. Apache Kafka has two more, which do not exist here."""

_LISTED_PER_STEP: Final = 100
# A pattern takes from a microsecond to milliseconds for a name: clients may send large patterns.
_MATCHED_PER_STEP: Final = 4


def describe_transaction(states: TransactionStates, transactional_id: str) -> DescribedTransaction:
    """Describe one id. INVALID_REQUEST and TRANSACTIONAL_ID_NOT_FOUND are part of the response."""
    if not transactional_id:
        return DescribedTransaction(transactional_id=transactional_id, error_code=ErrorCode.INVALID_REQUEST)
    transaction = states.transactions.get(transactional_id)
    if transaction is None:
        return DescribedTransaction(transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(transaction.partitions):
        by_topic[topic].append(index)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=transaction.status.state_name,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic=topic, partitions=indices) for topic, indices in by_topic.items()],
    )


def unknown_states(state_filters: Sequence[str]) -> list[str]:
    """The unknown states in a filter, which the response lists."""
    return [name for name in state_filters if name not in STATE_NAMES]


def list_transactions(
    states: TransactionStates, request: ListTransactionsRequest, now: Now
) -> Iterator[list[ListedTransaction]]:
    """The transactions that match all filters, in several lists; an empty filter matches all.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION, before the first list.
    """
    state_names, producer_ids = frozenset(request.state_filters), frozenset(request.producer_id_filters)
    duration_ms = request.duration_filter
    matches = _matcher(request.transactional_id_pattern)

    def is_wanted(transaction: Transaction) -> bool:
        return (
            (not producer_ids or transaction.producer_id in producer_ids)
            and (not state_names or transaction.status.state_name in state_names)
            # A transaction that never began has a start time before the Unix epoch, as in Apache Kafka.
            and (duration_ms < 0 or now.epoch_ms - transaction.started_ms > duration_ms)
            and matches(transaction.transactional_id)
        )

    transactional_ids = list(states.transactions)
    step_size = _MATCHED_PER_STEP if request.transactional_id_pattern else _LISTED_PER_STEP
    for first in range(0, len(transactional_ids), step_size):
        some = (states.transactions.get(one) for one in transactional_ids[first : first + step_size])
        yield [
            ListedTransaction(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.status.state_name,
            )
            for transaction in some
            if transaction is not None and is_wanted(transaction)
        ]


def _matcher(pattern: str | None) -> Callable[[str], bool]:
    if not pattern:
        return lambda transactional_id: True
    return Pattern(pattern, name="Transaction ID pattern").matches
