"""A transaction that changes: its record, and the deadlines that it has afterwards.

An open transaction is aborted, and its producer fenced, when its timeout has come. That counts from the first partition
by the clock of the records, so that it is the same after loading. Apache Kafka looks for them every
`transaction.abort.timed.out.transaction.cleanup.interval.ms`; here each has a deadline, and that setting is how long to
wait when an abort could not be written.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ..coordinator.outcome import NOTHING, Outcome
from ..protocol.records import NO_PRODUCER_ID
from . import expiration
from .as_records import record_of
from .transaction import EPOCH_BUMPS, NO_TIMEOUT_MS, PREPARED, TransactionStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..coordinator.outcome import Answer, Now
    from .states import TransactionStates
    from .transaction import Transaction

TIMEOUT: Final = "timeout"


def change(states: TransactionStates, after: Transaction, now: Now, answers: Sequence[Answer] = ()) -> Outcome:
    """Write the transaction as it is from now on. If that ends it, its markers are to be written then."""
    if after.status in PREPARED:
        answers = [*answers, states.outbox.of(after)]
    record = record_of(after, states.transaction_version())
    return Outcome([record], answers, replayed=partial(set_deadlines, states, after, now))


def set_deadlines(states: TransactionStates, transaction: Transaction, now: Now) -> None:
    """An open transaction times out, and every transactional id expires."""
    expiration.set_deadline(states, transaction, now)
    transactional_id = transaction.transactional_id
    if transaction.status is not TransactionStatus.ONGOING:
        states.deadlines.cancel(transactional_id, TIMEOUT)
    elif transaction.timeout_ms != NO_TIMEOUT_MS and not states.deadlines.is_set(transactional_id, TIMEOUT):
        left_ms = max(transaction.started_ms + transaction.timeout_ms - now.epoch_ms, 0)
        action = partial(time_out, states, transactional_id)
        states.deadlines.set(transactional_id, TIMEOUT, now.monotonic_ms + left_ms, action)


def time_out(states: TransactionStates, transactional_id: str, now: Now) -> Outcome:
    """The time of a transaction is over."""
    transaction = states.transactions.get(transactional_id)
    if transaction is None or transaction.status is not TransactionStatus.ONGOING:
        return NOTHING
    # It is cancelled with the record. If there is none, for whatever reason, it is tried again.
    again_ms = now.monotonic_ms + states.config.transaction_abort_timed_out_transaction_cleanup_interval_ms
    states.deadlines.set(transactional_id, TIMEOUT, again_ms, partial(time_out, states, transactional_id))
    return abort_and_fence(states, transaction, now)


def abort_and_fence(
    states: TransactionStates, transaction: Transaction, now: Now, answers: Sequence[Answer] = ()
) -> Outcome:
    """Abort an open transaction that its producer did not end, who must not write any more.

    Raises:
        KafkaError: there is no producer id at hand, and one is needed.
    """
    if states.transaction_version() < EPOCH_BUMPS:
        return change(states, transaction.fencing(now.epoch_ms), now, answers)
    next_producer_id = states.new_producer_id() if transaction.is_exhausted else NO_PRODUCER_ID
    after = transaction.ending_with_bump(committed=False, next_producer_id=next_producer_id, now_ms=now.epoch_ms)
    return change(states, after, now, answers)
