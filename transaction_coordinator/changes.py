"""Changes of a transaction: the record, and the deadlines afterwards.

When the timeout of an open transaction expires, it is aborted and its producer is fenced. The timeout counts from the
first partition, by the clock of the records, so that loading does not change it. Apache Kafka checks for expired
transactions every `transaction.abort.timed.out.transaction.cleanup.interval.ms`. Here each has a deadline, and that
setting is the delay before a failed abort is retried.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ..coordinator.outcome import NOTHING, Outcome
from ..protocol.records import NO_PRODUCER_ID
from . import expiration
from .as_records import record_of
from .markers import markers_of
from .transaction import EPOCH_BUMPS, NO_TIMEOUT_MS, PREPARED, TransactionStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..coordinator.outcome import Now, Reply
    from .states import TransactionStates
    from .transaction import Transaction

TIMEOUT: Final = "timeout"


def change(states: TransactionStates, after: Transaction, now: Now, replies: Sequence[Reply] = ()) -> Outcome:
    """Write the new state of the transaction. If the change ends it, its markers are written afterwards."""
    record = record_of(after, states.transaction_version())
    effects = [markers_of(after)] if after.status in PREPARED else ()
    return Outcome([record], replies, effects, replayed=partial(set_deadlines, states, after, now))


def set_deadlines(states: TransactionStates, transaction: Transaction, now: Now) -> None:
    """Set the deadlines: an open transaction times out, and every transactional id expires."""
    expiration.set_deadline(states, transaction, now)
    transactional_id = transaction.transactional_id
    if transaction.status is not TransactionStatus.ONGOING:
        states.deadlines.cancel(transactional_id, TIMEOUT)
    elif transaction.timeout_ms != NO_TIMEOUT_MS and not states.deadlines.is_set(transactional_id, TIMEOUT):
        left_ms = max(transaction.started_ms + transaction.timeout_ms - now.epoch_ms, 0)
        action = partial(time_out, states, transactional_id)
        states.deadlines.set(transactional_id, TIMEOUT, now.monotonic_ms + left_ms, action)


def time_out(states: TransactionStates, transactional_id: str, now: Now) -> Outcome:
    """The timeout of a transaction has expired."""
    transaction = states.transactions.get(transactional_id)
    if transaction is None or transaction.status is not TransactionStatus.ONGOING:
        return NOTHING
    # The record cancels this deadline. If no record is written, for any reason, the timeout is retried.
    again_ms = now.monotonic_ms + states.config.transaction_abort_timed_out_transaction_cleanup_interval_ms
    states.deadlines.set(transactional_id, TIMEOUT, again_ms, partial(time_out, states, transactional_id))
    return abort_and_fence(states, transaction, now)


def abort_and_fence(
    states: TransactionStates, transaction: Transaction, now: Now, replies: Sequence[Reply] = ()
) -> Outcome:
    """Abort an open transaction that its producer has not ended. The producer must not continue to write.

    Raises:
        KafkaError: a new producer id is needed and not available.
    """
    if states.transaction_version() < EPOCH_BUMPS:
        return change(states, transaction.fencing(now.epoch_ms), now, replies)
    next_producer_id = states.new_producer_id() if transaction.is_exhausted else NO_PRODUCER_ID
    after = transaction.ending_with_bump(committed=False, next_producer_id=next_producer_id, now_ms=now.epoch_ms)
    return change(states, after, now, replies)
