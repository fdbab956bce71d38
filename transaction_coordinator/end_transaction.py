"""EndTxn: a producer commits or aborts its transaction (KIP-98).

The decision is final; the markers are written afterwards. So the response is sent before they are written. Until then,
other requests of the producer get the retriable error CONCURRENT_TRANSACTIONS.

A client that retries because it lost the response succeeds. Up to version 4, a retry is recognized by the state, and
its epoch must be the current one:

|                 | commit            | abort             |
| --------------- | ----------------- | ----------------- |
| EMPTY           | INVALID_TXN_STATE | INVALID_TXN_STATE |
| ONGOING         | commits           | aborts            |
| COMPLETE_COMMIT | done              | INVALID_TXN_STATE |
| COMPLETE_ABORT  | INVALID_TXN_STATE | done              |

Since version 5, every transaction bumps the epoch (KIP-890). A request with the previous epoch, or with the previous
producer ID and its last epoch, is a retry; a request with the current epoch is for the next transaction. That may be
aborted without partitions, because the client does not know whether a failed write has added one.

|                 | commit, current   | abort, current | commit, retry     | abort, retry      |
| --------------- | ----------------- | -------------- | ----------------- | ----------------- |
| EMPTY           | INVALID_TXN_STATE | aborts         | PRODUCER_FENCED   | PRODUCER_FENCED   |
| ONGOING         | commits           | aborts         | PRODUCER_FENCED   | PRODUCER_FENCED   |
| COMPLETE_COMMIT | INVALID_TXN_STATE | aborts         | done              | INVALID_TXN_STATE |
| COMPLETE_ABORT  | INVALID_TXN_STATE | aborts         | INVALID_TXN_STATE | done              |

PRODUCER_FENCED is INVALID_PRODUCER_EPOCH before version 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..coordinator.outcome import Outcome
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ..protocol.records import NO_PRODUCER_ID
from .changes import change
from .errors import fenced
from .transaction import COMPLETE, LAST_EPOCH, PREPARED, Transaction, TransactionStatus

if TYPE_CHECKING:
    from ..coordinator.outcome import Caller, Now
    from .states import TransactionStates

_FENCED_SINCE: Final = 2
_BUMPS_SINCE: Final = 5


def handle_end_transaction(states: TransactionStates, caller: Caller, request: EndTxnRequest, now: Now) -> Outcome:
    """EndTxn. Since version 5, the response contains the producer ID and epoch of the next transaction.

    Raises:
        KafkaError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
            INVALID_TXN_STATE.
    """
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    transaction = states.transactions.get(request.transactional_id)
    if transaction is None:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    end = _end_with_bump if caller.api_version >= _BUMPS_SINCE else _end
    return end(states, caller, request, transaction, now)


def _end(
    states: TransactionStates, caller: Caller, request: EndTxnRequest, transaction: Transaction, now: Now
) -> Outcome:
    if transaction.producer_id != request.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != request.producer_epoch:
        raise fenced(caller, _FENCED_SINCE)
    if transaction.status in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    done = [(caller, EndTxnResponse())]
    if transaction.status is TransactionStatus.ONGOING:
        after = transaction.ending(committed=request.committed, now_ms=now.epoch_ms)
        return change(states, after, now, done)
    if not _has_ended(transaction, committed=request.committed):
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    return Outcome(replies=done)


def _end_with_bump(
    states: TransactionStates, caller: Caller, request: EndTxnRequest, transaction: Transaction, now: Now
) -> Outcome:
    # Checked before the producer: the transaction may already contain its next ID, valid after the last marker.
    if transaction.status in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    retries_overflow = _is_retry_of_overflow(transaction, request)
    if transaction.producer_id != request.producer_id and not retries_overflow:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_retry = retries_overflow or request.producer_epoch == transaction.producer_epoch - 1
    if is_retry and transaction.status in COMPLETE:
        if not _has_ended(transaction, committed=request.committed):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        return Outcome(replies=[(caller, _next_producer(transaction))])
    if request.producer_epoch != transaction.producer_epoch:
        raise fenced(caller, _FENCED_SINCE)
    if request.committed and transaction.status is not TransactionStatus.ONGOING:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    after = transaction.ending_with_bump(
        committed=request.committed,
        next_producer_id=states.new_producer_id() if transaction.is_exhausted else NO_PRODUCER_ID,
        now_ms=now.epoch_ms,
    )
    return change(states, after, now, [(caller, _next_producer(after))])


def _is_retry_of_overflow(transaction: Transaction, request: EndTxnRequest) -> bool:
    """Whether the transaction of the request gave its producer another ID."""
    is_previous = transaction.previous_producer_id == request.producer_id
    return is_previous and request.producer_epoch == LAST_EPOCH and transaction.producer_epoch == 0


def _has_ended(transaction: Transaction, *, committed: bool) -> bool:
    return transaction.status is (TransactionStatus.COMPLETE_COMMIT if committed else TransactionStatus.COMPLETE_ABORT)


def _next_producer(transaction: Transaction) -> EndTxnResponse:
    producer_id, producer_epoch = transaction.next_producer
    return EndTxnResponse(producer_id=producer_id, producer_epoch=producer_epoch)
