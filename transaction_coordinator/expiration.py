"""Removes transactional IDs that were not used for `transactional.id.expiration.ms`, except during a transaction.

A producer that uses the ID later gets a new producer ID.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ..coordinator.outcome import NOTHING, Outcome
from .as_records import tombstone
from .transaction import COMPLETE, TransactionStatus

if TYPE_CHECKING:
    from ..coordinator.outcome import Now
    from .states import TransactionStates
    from .transaction import Transaction

EXPIRATION: Final = "expiration"

_MAY_EXPIRE: Final = COMPLETE | {TransactionStatus.EMPTY}


def set_deadline(states: TransactionStates, transaction: Transaction, now: Now) -> None:
    """Set or move the deadline: every use of the ID moves it."""
    transactional_id = transaction.transactional_id
    at_ms = now.monotonic_ms + max(_left_ms(states, transaction, now), 0)
    if not states.deadlines.move(transactional_id, EXPIRATION, at_ms):
        states.deadlines.set(transactional_id, EXPIRATION, at_ms, partial(expire, states, transactional_id))


def expire(states: TransactionStates, transactional_id: str, now: Now) -> Outcome:
    """Remove the ID if it is still unused; otherwise, or if the record is rejected, check again later."""
    transaction = states.transactions.get(transactional_id)
    if transaction is None:
        return NOTHING
    again_ms = states.config.transaction_remove_expired_transaction_cleanup_interval_ms
    left_ms = _left_ms(states, transaction, now)
    wait_ms = left_ms if left_ms > 0 else again_ms
    action = partial(expire, states, transactional_id)
    states.deadlines.set(transactional_id, EXPIRATION, now.monotonic_ms + wait_ms, action)
    if left_ms > 0 or transaction.status not in _MAY_EXPIRE:
        return NOTHING
    return Outcome([tombstone(transactional_id)])


def _left_ms(states: TransactionStates, transaction: Transaction, now: Now) -> int:
    return transaction.updated_ms + states.config.transactional_id_expiration_ms - now.epoch_ms
