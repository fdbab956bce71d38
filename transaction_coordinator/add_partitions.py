"""AddPartitionsToTxn and AddOffsetsToTxn (KIP-98): add partitions to a transaction. The first ones begin it.

Clients with transactions version 2 (KIP-890) do not send these: the leader of a partition adds it at their first write.
For other clients, the leader verifies that the partition was added.
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

    from ..coordinator.outcome import Caller, Now, Reply
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
    """Add partitions; the reply is None. ``client_version`` is 2 if the leader adds them for the client.

    Raises:
        KafkaError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED (INVALID_PRODUCER_EPOCH before version
            2 of both APIs), CONCURRENT_TRANSACTIONS.
    """
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    transaction = states.transactions.get(transactional_id)
    if transaction is None:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    # Checked before the producer: with an exhausted epoch, the transaction may already contain its next ID.
    if transaction.status in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.producer_id != producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != producer_epoch:
        raise fenced(caller, _FENCED_SINCE)
    added = frozenset(partitions)
    if transaction.status is TransactionStatus.ONGOING and added <= transaction.partitions:
        return Outcome(replies=[_done(caller)])
    known_version = EPOCH_BUMPS if client_version >= EPOCH_BUMPS else 0
    return change(states, transaction.adding(added, known_version, now.epoch_ms), now, [_done(caller)])


def verify_partitions(
    states: TransactionStates,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Sequence[Partition],
) -> dict[Partition, ErrorCode]:
    """Whether each of these partitions is part of the producer's transaction.

    The error for a missing one is TRANSACTION_ABORTABLE. The other errors are those of adding, in every version.
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


def _done(caller: Caller) -> Reply:
    nothing_to_say: Any = None
    return caller, nothing_to_say
