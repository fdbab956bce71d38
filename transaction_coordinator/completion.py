"""The end of a transaction: every partition has its marker, and the next transaction may begin."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ..coordinator.outcome import NOTHING
from .changes import change
from .transaction import PREPARED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..coordinator.deadlines import Action
    from ..coordinator.outcome import Now, Outcome, Reply
    from ..protocol.errors import KafkaError
    from .states import TransactionStates

_DEADLINE: Final = "completion"

RETRY_MS: Final = 100
"""Time until a rejected record is retried: producers wait for it."""


def markers_written(states: TransactionStates, transactional_id: str, producer_id: int, producer_epoch: int) -> Action:
    """The decision to make when the markers of this producer and epoch are written."""
    return partial(_complete, states, transactional_id, producer_id, producer_epoch)


def _complete(
    states: TransactionStates, transactional_id: str, producer_id: int, producer_epoch: int, now: Now
) -> Outcome:
    transaction = states.transactions.get(transactional_id)
    if transaction is None or transaction.status not in PREPARED:
        return NOTHING
    if (transaction.producer_id, transaction.producer_epoch) != (producer_id, producer_epoch):
        return NOTHING
    outcome = change(states, transaction.completed(now.epoch_ms), now)
    again = markers_written(states, transactional_id, producer_id, producer_epoch)
    outcome.refused = partial(_try_again, states, transactional_id, again, now)
    return outcome


def _try_again(
    states: TransactionStates, transactional_id: str, action: Action, now: Now, error: KafkaError
) -> Sequence[Reply]:
    states.deadlines.set(transactional_id, _DEADLINE, now.monotonic_ms + RETRY_MS, action)
    return ()
