"""Replays the records of transactions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ..coordinator.outcome import NOTHING, Outcome
from .as_records import DecidedRecord, transaction_of
from .changes import TIMEOUT, set_deadlines
from .expiration import EXPIRATION
from .markers import markers_of
from .records import TransactionLogKey, TransactionLogValue
from .transaction import PREPARED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..coordinator.outcome import Now, Record
    from .states import TransactionStates

_AFTER_LOADING: Final = "deadlines after loading"

_SLICE: Final = 200
"""About a millisecond."""


def replay(states: TransactionStates, record: Record) -> None:
    """Apply a record to the state."""
    if isinstance(record, DecidedRecord):
        states.transactions[record.transaction.transactional_id] = record.transaction
        return
    key, value = record.key, record.value
    assert isinstance(key, TransactionLogKey)
    transactional_id = key.transactional_id
    if value is None:
        states.transactions.pop(transactional_id, None)
        states.deadlines.cancel(transactional_id, TIMEOUT)
        states.deadlines.cancel(transactional_id, EXPIRATION)
        return
    assert isinstance(value, TransactionLogValue)
    states.transactions[transactional_id] = transaction_of(transactional_id, value)


def loaded(states: TransactionStates, now: Now) -> Outcome:
    """Write the markers of ending transactions again, because some may be missing. Set all deadlines, in slices."""
    ending = [transaction for transaction in states.transactions.values() if transaction.status in PREPARED]
    _begin_deadlines(states, [*states.transactions], 0, now)
    return Outcome(effects=[markers_of(transaction) for transaction in ending])


def _begin_deadlines(states: TransactionStates, transactional_ids: Sequence[str], first: int, now: Now) -> Outcome:
    """Set the deadlines of a slice of the loaded IDs, and soon those of the next: there may be 100,000 of them.

    IDs that were used since then already have deadlines, which are kept.
    """
    end = first + _SLICE
    for transactional_id in transactional_ids[first:end]:
        transaction = states.transactions.get(transactional_id)
        if transaction is not None:
            set_deadlines(states, transaction, now)
    if end < len(transactional_ids):
        again = partial(_begin_deadlines, states, transactional_ids, end)
        states.deadlines.set("", _AFTER_LOADING, now.monotonic_ms, again)
    return NOTHING
