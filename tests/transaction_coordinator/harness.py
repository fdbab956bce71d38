"""A transaction coordinator in a test: its shard in its runtime, on a log in memory, under a clock that the test moves.

    coordinator = Coordinator()
    producer = coordinator.begin()
    coordinator.add(producer, ("t", 0))
    coordinator.end(producer, committed=True)
    coordinator.write_markers()

Every request is one iteration of the loop: decide, append, replay, respond. `advance` moves the clock from deadline to
deadline. `restart` discards the state and loads it from the log, byte for byte. It does not sleep, and uses no random
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from moldau.coordinator.outcome import Now, Outcome
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.transaction_coordinator.as_records import record_of
from moldau.transaction_coordinator.config import TransactionConfig
from moldau.transaction_coordinator.markers import Markers
from moldau.transaction_coordinator.shard import TransactionShard
from moldau.transaction_coordinator.states import TransactionStates
from moldau.transaction_coordinator.transaction import Transaction

from ..coordinator.harness import FakeCaller, Harness

TIMEOUT_MS = 60_000
FIRST_PRODUCER_ID = 1000


class Producer(NamedTuple):
    """The producer id and epoch of a producer."""

    id: int
    epoch: int


NO_PRODUCER = Producer(-1, -1)


class Coordinator(Harness[TransactionShard]):
    """One shard, which serves. Settings are those of `TransactionConfig`."""

    def __init__(self, *, transaction_version: int = 2, **settings: Any) -> None:
        super().__init__()
        self.config = TransactionConfig(**settings)
        self.transaction_version = transaction_version
        self.next_producer_id = FIRST_PRODUCER_ID
        self.has_producer_ids = True
        self.restart()

    def new_shard(self) -> TransactionShard:
        self.markers: list[Markers] = []
        """What was to be written since `write_markers`."""
        self.states = TransactionStates(
            self.config,
            new_producer_id=self._new_producer_id,
            transaction_version=lambda: self.transaction_version,
        )
        return TransactionShard(self.states)

    def _new_producer_id(self) -> int:
        if not self.has_producer_ids:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self.next_producer_id += 1
        return self.next_producer_id - 1

    # -- requests ------------------------------------------------------------------------------------------------------

    def init(
        self,
        transactional_id: str = "id",
        api_version: int = 5,
        *,
        expected: Producer = NO_PRODUCER,
        timeout_ms: int = TIMEOUT_MS,
        **fields: Any,
    ) -> FakeCaller:
        """InitProducerId."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected.id,
            producer_epoch=expected.epoch,
            **fields,
        )
        return self._send(
            transactional_id, api_version, lambda caller, now: self.shard.init_producer_id(caller, request, now)
        )

    def begin(self, transactional_id: str = "id", **kwargs: Any) -> Producer:
        """InitProducerId that has to succeed."""
        response = self.init(transactional_id, **kwargs).response
        assert response.error_code == 0, ErrorCode(response.error_code)
        return Producer(response.producer_id, response.producer_epoch)

    def add(
        self,
        producer: Producer,
        *partitions: tuple[str, int],
        transactional_id: str = "id",
        api_version: int = 3,
        client_version: int = 1,
    ) -> FakeCaller:
        """AddPartitionsToTxn of one transaction."""
        return self._send(
            transactional_id,
            api_version,
            lambda caller, now: self.shard.add_partitions(
                caller, transactional_id, *producer, partitions, now, client_version=client_version
            ),
        )

    def verify(
        self, producer: Producer, *partitions: tuple[str, int], transactional_id: str = "id"
    ) -> dict[tuple[str, int], ErrorCode]:
        """AddPartitionsToTxn that only verifies."""
        return self.runtime.read(transactional_id).verify_partitions(transactional_id, *producer, partitions)

    def end(
        self, producer: Producer, *, committed: bool, transactional_id: str = "id", api_version: int = 5
    ) -> FakeCaller:
        """EndTxn."""
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=committed,
        )
        return self._send(
            transactional_id, api_version, lambda caller, now: self.shard.end_transaction(caller, request, now)
        )

    def commit(self, producer: Producer, **kwargs: Any) -> Producer:
        """EndTxn from version 5 on, which must succeed. Returns the producer of the next transaction."""
        response = self.end(producer, committed=True, **kwargs).response
        return Producer(response.producer_id, response.producer_epoch)

    def _send(
        self, transactional_id: str, api_version: int, decide: Callable[[FakeCaller, Now], Outcome]
    ) -> FakeCaller:
        sent = FakeCaller(api_version)
        self.runtime.run(transactional_id, sent, lambda shard, now: decide(sent, now))
        self.settle()
        return sent

    def write_markers(self) -> list[Markers]:
        """Complete the markers of all partitions. Returns them."""
        markers, self.markers = self.markers, []
        for one in markers:
            self.markers_written(one)
        return markers

    def markers_written(self, markers: Markers) -> None:
        """All partitions of this transaction have them."""
        action = self.shard.markers_written(markers.transactional_id, markers.producer_id, markers.producer_epoch)
        self.runtime.decide(markers.transactional_id, action)
        self.settle()

    def transaction(self, transactional_id: str = "id") -> Transaction:
        return self.runtime.read(transactional_id).states.transactions[transactional_id]

    def transactions(self) -> dict[str, Transaction]:
        """All partitions of a record."""
        known = self.runtime.read().states.transactions
        return {one: transaction._replace(last_epoch=-1) for one, transaction in known.items()}

    def begin_with_epoch(self, epoch: int, transactional_id: str = "id") -> Producer:
        """A producer that begins and has this epoch, as if it had begun many times."""
        transaction = Transaction(
            transactional_id, self._new_producer_id(), epoch - 1, TIMEOUT_MS, updated_ms=self.now().epoch_ms
        )
        self.runtime.decide(transactional_id, lambda now: Outcome([record_of(transaction, self.transaction_version)]))
        return self.begin(transactional_id)

    def settle(self) -> None:
        """End the iteration, and collect the markers to write."""
        super().settle()
        self.markers += cast("Sequence[Markers]", self.runtime.take_effects())


def partitions(topic: str, indices: Sequence[int]) -> list[tuple[str, int]]:
    """Of one topic."""
    return [(topic, index) for index in indices]
