"""AddPartitionsToTxn and AddOffsetsToTxn (KIP-98): partitions become part of a transaction, of which they begin one.

Clients of transactions version 2 (KIP-890) do not send these: the leader of a partition adds it with their first write,
and asks whether a partition was added with any other client's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..coordinator.outcome import Outcome
from ..protocol.errors import ErrorCode, KafkaError
from .changes import change
from .errors import fenced
from .transaction import EPOCH_BUMPS, PREPARED, TransactionStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..coordinator.outcome import Answer, Caller, Now
    from .states import TransactionStates
    from .transaction import Partition

_FENCED_SINCE = 2


def handle_add_partitions(
    states: TransactionStates,
    caller: Caller,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Sequence[Partition],
    now: Now,
    *,
    client_version: int,
) -> Outcome:
    """Add them; the answer is None. ``client_version`` is 2 where the client leaves it to the leader.

    Raises:
        KafkaError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED (INVALID_PRODUCER_EPOCH before version
            2 of both APIs), CONCURRENT_TRANSACTIONS.
    """
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    transaction = states.transactions.get(transactional_id)
    if transaction is None:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    # Before the producer is looked at: with an epoch that is used up, it may have its next id already.
    if transaction.status in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.producer_id != producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != producer_epoch:
        raise fenced(caller, _FENCED_SINCE)
    added = frozenset(partitions)
    if transaction.status is TransactionStatus.ONGOING and added <= transaction.partitions:
        return Outcome(answers=[_done(caller)])
    known_version = EPOCH_BUMPS if client_version >= EPOCH_BUMPS else 0
    return change(states, transaction.adding(added, known_version, now.epoch_ms), now, [_done(caller)])


def verify_partitions(
    states: TransactionStates,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Sequence[Partition],
) -> dict[Partition, ErrorCode]:
    """Whether each of them is part of the producer's transaction.

    One that is not gives TRANSACTION_ABORTABLE; the rest is as for adding them, whatever the version.
    """
    transaction = states.transactions.get(transactional_id)
    error = ErrorCode.NONE
    if not transactional_id:
        error = ErrorCode.INVALID_REQUEST
    elif transaction is None or transaction.producer_id != producer_id:
        error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    elif transaction.producer_epoch != producer_epoch:
        error = ErrorCode.PRODUCER_FENCED
    elif transaction.status in PREPARED:
        error = ErrorCode.CONCURRENT_TRANSACTIONS
    if error or transaction is None:
        return dict.fromkeys(partitions, error)
    added = transaction.partitions
    return {one: ErrorCode.NONE if one in added else ErrorCode.TRANSACTION_ABORTABLE for one in partitions}


def _done(caller: Caller) -> Answer:
    nothing_to_say: Any = None
    return caller, nothing_to_say
