"""The shard of the transaction coordinator: it routes, and decides nothing.

One shard holds the transactional ids that hash to one partition of `__transaction_state`. A request goes to the module
of its API; all of them work on the same `TransactionStates`.

| request | unknown id | EMPTY, COMPLETE_* | ONGOING | PREPARE_* |
| --- | --- | --- | --- | --- |
| InitProducerId | a new producer id | bumps the epoch | aborts, "come again" | "come again" |
| AddPartitionsToTxn, AddOffsetsToTxn | refused | begins a transaction | adds | "come again" |
| EndTxn | refused | a retry, or refused | ends it | "come again" |
| markers written | - | - | - | completes it |
| timeout | - | - | aborts and fences | - |
| expiration | - | forgets it | - | - |

A transaction that ends has its markers in the outbox, as soon as the decision is safe. The shell takes them from there,
writes them, and then decides `markers_written`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..coordinator.deadlines import Action, Deadlines
from ..coordinator.outcome import Caller, Now, Outcome, Record
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.describe_transactions import TransactionState as DescribedTransaction
from ..protocol.messages.end_txn import EndTxnRequest
from ..protocol.messages.init_producer_id import InitProducerIdRequest
from ..protocol.messages.list_transactions import ListTransactionsRequest
from ..protocol.messages.list_transactions import TransactionState as ListedTransaction
from . import add_partitions, changes, completion, describe, records, replay
from .end_transaction import handle_end_transaction
from .init_producer_id import handle_init_producer_id
from .states import Markers, TransactionStates
from .transaction import TransactionStatus


class TransactionShard:
    """The state machine of one partition of `__transaction_state`; see `coordinator.runtime.Shard`."""

    def __init__(self, states: TransactionStates) -> None:
        self.states = states

    @property
    def deadlines(self) -> Deadlines:
        """Of all transactional ids."""
        return self.states.deadlines

    # -- records -------------------------------------------------------------------------------------------------------

    encode = staticmethod(records.encode_record)
    decode = staticmethod(records.decode_record)

    def replay(self, record: Record, *, producer_id: int) -> None:
        """Take a record into the state. None is part of a transaction itself."""
        replay.replay(self.states, record)

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Nobody has transactions in `__transaction_state`."""

    # -- producers -----------------------------------------------------------------------------------------------------

    def init_producer_id(self, caller: Caller, request: InitProducerIdRequest, now: Now) -> Outcome:
        """InitProducerId with a transactional id."""
        return handle_init_producer_id(self.states, caller, request, now)

    def add_partitions(
        self,
        caller: Caller,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[tuple[str, int]],
        now: Now,
        *,
        client_version: int,
    ) -> Outcome:
        """AddPartitionsToTxn of one transaction, and what comes to the same: all partitions, or none. It answers None.

        ``client_version`` is 2 where the leader of a partition adds it for its client (KIP-890), else 1.
        """
        return add_partitions.handle_add_partitions(
            self.states,
            caller,
            transactional_id,
            producer_id,
            producer_epoch,
            partitions,
            now,
            client_version=client_version,
        )

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[tuple[str, int]],
    ) -> dict[tuple[str, int], ErrorCode]:
        """AddPartitionsToTxn that only asks, of one transaction."""
        return add_partitions.verify_partitions(self.states, transactional_id, producer_id, producer_epoch, partitions)

    def end_transaction(self, caller: Caller, request: EndTxnRequest, now: Now) -> Outcome:
        """EndTxn."""
        return handle_end_transaction(self.states, caller, request, now)

    # -- markers -------------------------------------------------------------------------------------------------------

    def take_markers(self) -> list[Markers]:
        """What has to be written to partitions; it is not given a second time."""
        return self.states.outbox.take()

    def markers_written(self, transactional_id: str, producer_id: int, producer_epoch: int) -> Action:
        """What is decided when all of them are written, or their partitions are gone."""
        return completion.markers_written(self.states, transactional_id, producer_id, producer_epoch)

    # -- what people ask -----------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> DescribedTransaction:
        """DescribeTransactions of one transactional id."""
        return describe.describe_transaction(self.states, transactional_id)

    def list_transactions(self, request: ListTransactionsRequest, now: Now) -> list[ListedTransaction]:
        """ListTransactions; `describe.unknown_states` says which states in it are none."""
        return describe.list_transactions(self.states, request, now)

    # -- for tests -----------------------------------------------------------------------------------------------------

    def time_out(self, transactional_id: str) -> Action:
        """What is decided when the timeout of an open transaction has come.

        Raises:
            KafkaError: TRANSACTIONAL_ID_NOT_FOUND, INVALID_TXN_STATE.
        """
        transaction = self.states.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"There is no transactional id {transactional_id}.")
        if transaction.status is not TransactionStatus.ONGOING:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"{transactional_id} has no open transaction.")
        return lambda now: changes.time_out(self.states, transactional_id, now)

    # -- the shell's ---------------------------------------------------------------------------------------------------

    def loaded(self, now: Now) -> Outcome:
        """The markers of what was about to end, and deadlines for everybody."""
        return replay.loaded(self.states, now)

    def resign(self) -> Sequence[Caller]:
        """Nobody waits."""
        return ()
