"""The shard of the transaction coordinator. It only routes requests.

One shard holds the transactional ids that hash to one partition of `__transaction_state`. A request is decided by the
module of its API; all of these modules use the same `TransactionStates`.

| request | unknown id | EMPTY, COMPLETE_* | ONGOING | PREPARE_* |
| --- | --- | --- | --- | --- |
| InitProducerId | a new producer id | bumps the epoch | aborts, "retry" | "retry" |
| AddPartitionsToTxn, AddOffsetsToTxn | rejected | begins a transaction | adds | "retry" |
| EndTxn | rejected | a retry, or rejected | ends it | "retry" |
| markers written | - | - | - | completes it |
| timeout | - | - | aborts and fences | - |
| expiration | - | removes it | - | - |

The markers of a transaction that ends are an effect of that decision (`Outcome.effects`): the shell writes them when
the decision is committed, and then decides `markers_written`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
from .states import TransactionStates
from .transaction import TransactionStatus


class TransactionShard:
    """The state machine of one partition of `__transaction_state`; see `coordinator.runtime.Shard`."""

    def __init__(self, states: TransactionStates) -> None:
        self.states = states

    @property
    def deadlines(self) -> Deadlines:
        """The deadlines of all transactional ids."""
        return self.states.deadlines

    # -- records -------------------------------------------------------------------------------------------------------

    encode = staticmethod(records.encode_record)
    decode = staticmethod(records.decode_record)

    def replay(self, record: Record, *, producer_id: int) -> None:
        """Apply a record to the state. The records themselves are never part of a transaction."""
        replay.replay(self.states, record)

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """No effect: there are no transactions in `__transaction_state`."""

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
        """AddPartitionsToTxn for one transaction, and equivalent requests: all partitions, or none. Responds with None.

        ``client_version`` is 2 if the leader of a partition adds it for its client (KIP-890), otherwise 1.
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
        """AddPartitionsToTxn that only verifies, for one transaction."""
        return add_partitions.verify_partitions(self.states, transactional_id, producer_id, producer_epoch, partitions)

    def end_transaction(self, caller: Caller, request: EndTxnRequest, now: Now) -> Outcome:
        """EndTxn."""
        return handle_end_transaction(self.states, caller, request, now)

    # -- markers -------------------------------------------------------------------------------------------------------

    def markers_written(self, transactional_id: str, producer_id: int, producer_epoch: int) -> Action:
        """The decision after all markers are written, or their partitions deleted."""
        return completion.markers_written(self.states, transactional_id, producer_id, producer_epoch)

    # -- queries -------------------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> DescribedTransaction:
        """DescribeTransactions for one transactional id."""
        return describe.describe_transaction(self.states, transactional_id)

    def list_transactions(self, request: ListTransactionsRequest, now: Now) -> Iterator[list[ListedTransaction]]:
        """ListTransactions; `describe.unknown_states` returns the unknown states in its filter."""
        return describe.list_transactions(self.states, request, now)

    # -- for tests -----------------------------------------------------------------------------------------------------

    def time_out(self, transactional_id: str) -> Action:
        """The decision when the timeout of an open transaction has expired.

        Raises:
            KafkaError: TRANSACTIONAL_ID_NOT_FOUND, INVALID_TXN_STATE.
        """
        transaction = self.states.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"Transactional id {transactional_id} does not exist."
            )
        if transaction.status is not TransactionStatus.ONGOING:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"{transactional_id} has no open transaction.")
        return lambda now: changes.time_out(self.states, transactional_id, now)

    # -- for the shell -------------------------------------------------------------------------------------------------

    def loaded(self, now: Now) -> Outcome:
        """Write the markers of ending transactions again, and set all deadlines."""
        return replay.loaded(self.states, now)

    def resign(self) -> Sequence[Caller]:
        """No callers are pending here."""
        return ()
