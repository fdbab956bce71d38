"""InitProducerId with a transactional ID (KIP-98): a producer starts, and earlier producers with the ID are fenced.

- Every call bumps the epoch. An open transaction is aborted first, with a separate bump; until it has ended, the
  producer gets the retriable error CONCURRENT_TRANSACTIONS.
- A producer may send its current ID and epoch to continue after an error (KIP-360, version 3). Then it is fenced unless
  these are the current ones or the previous ones. The previous ones are a retry after a lost response, which gets
  the current ones.
- If the epochs of a producer ID are exhausted, a new ID is used.

PRODUCER_FENCED is INVALID_PRODUCER_EPOCH before version 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ..protocol.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from .changes import abort_and_fence, change
from .errors import fenced
from .transaction import LAST_EPOCH, NO_TIMEOUT_MS, PREPARED, Transaction, TransactionStatus

if TYPE_CHECKING:
    from ..coordinator.outcome import Caller, Now, Outcome
    from .states import TransactionStates

_FENCED_SINCE = 4


class _Expected(NamedTuple):
    """The producer ID and epoch in the request."""

    producer_id: int
    epoch: int


def handle_init_producer_id(
    states: TransactionStates, caller: Caller, request: InitProducerIdRequest, now: Now
) -> Outcome:
    """InitProducerId.

    Raises:
        KafkaError: INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT, CONCURRENT_TRANSACTIONS, PRODUCER_FENCED; of two-phase
            commit, which is not stable yet, TRANSACTIONAL_ID_AUTHORIZATION_FAILED and UNSUPPORTED_VERSION.
    """
    expected = _expected(request)
    timeout_ms = _timeout_ms(states, request)
    transactional_id = request.transactional_id
    assert transactional_id is not None
    transaction = states.transactions.get(transactional_id)
    if transaction is None:
        transaction = Transaction(transactional_id, states.new_producer_id(), NO_PRODUCER_EPOCH, timeout_ms)
    elif transaction.status in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    elif expected is not None and not _may_be_its_own(transaction, expected):
        raise fenced(caller, _FENCED_SINCE)
    if transaction.status is TransactionStatus.ONGOING:
        reply = InitProducerIdResponse(
            error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
        )
        return abort_and_fence(states, transaction, now, [(caller, reply)])
    begun = _begin(states, caller, transaction, expected, timeout_ms, now.epoch_ms)
    reply = InitProducerIdResponse(producer_id=begun.producer_id, producer_epoch=begun.producer_epoch)
    return change(states, begun, now, [(caller, reply)])


def _expected(request: InitProducerIdRequest) -> _Expected | None:
    has_id, has_epoch = request.producer_id != NO_PRODUCER_ID, request.producer_epoch != NO_PRODUCER_EPOCH
    if has_id != has_epoch:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return _Expected(request.producer_id, request.producer_epoch) if has_id else None


def _timeout_ms(states: TransactionStates, request: InitProducerIdRequest) -> int:
    """The checks that do not depend on the transaction."""
    config = states.config
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.enable_2pc and not config.transaction_two_phase_commit_enable:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.keep_prepared_txn:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if request.enable_2pc:
        return NO_TIMEOUT_MS
    if not 0 < request.transaction_timeout_ms <= config.transaction_max_timeout_ms:
        raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    return request.transaction_timeout_ms


def _may_be_its_own(transaction: Transaction, expected: _Expected) -> bool:
    """Whether the producer ID is the current one, or the previous one whose epochs are exhausted."""
    if expected.producer_id == transaction.producer_id:
        return True
    return expected.producer_id == transaction.previous_producer_id and expected.epoch >= LAST_EPOCH


def _begin(
    states: TransactionStates,
    caller: Caller,
    transaction: Transaction,
    expected: _Expected | None,
    timeout_ms: int,
    now_ms: int,
) -> Transaction:
    epoch = transaction.producer_epoch
    is_new = epoch == NO_PRODUCER_EPOCH
    if expected is not None and not is_new and expected.epoch != epoch:
        if expected.epoch != transaction.last_epoch:
            raise fenced(caller, _FENCED_SINCE)
        # No producer has started since: it would have reset the last epoch.
        return transaction.with_epoch(epoch, transaction.last_epoch, timeout_ms, now_ms)
    last_epoch = NO_PRODUCER_EPOCH if expected is None else epoch
    if transaction.is_exhausted:
        return transaction.with_new_producer_id(states.new_producer_id(), last_epoch, timeout_ms, now_ms)
    return transaction.with_epoch(epoch + 1, last_epoch, timeout_ms, now_ms)
