"""The requests of producers and partition leaders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from moldau.coordinator.outcome import Now, Outcome
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

from ..harness import Producer
from .coordinator import TIMEOUT_MS

if TYPE_CHECKING:
    from moldau.coordinator.runtime import CoordinatorRuntime
    from moldau.transaction_coordinator.shard import TransactionShard

    from .partitions import Entry, Partition
    from .world import World

LOST = "lost"
"""Instead of a response: the connection was lost, or the request timed out."""


class CoordinatorCall(ABC):
    """A request to the coordinator; see `coordinator.outcome.Caller`."""

    client_id = "client"
    client_host = "/127.0.0.1"
    principal = "User:ANONYMOUS"
    listener_name = "PLAINTEXT"

    def __init__(self, world: World, transactional_id: str, api_version: int, *, may_be_late: bool) -> None:
        self.world = world
        self.transactional_id = transactional_id
        self.api_version = api_version
        self.may_be_late = may_be_late
        self.is_complete = False
        self.done: Callable[[Any], None] = lambda response: None

    @abstractmethod
    def run(self, runtime: CoordinatorRuntime[TransactionShard]) -> None:
        """The coordinator processes the request."""

    def reply(self, response: Any) -> None:
        error = ErrorCode(response.error_code) if response is not None else ErrorCode.NONE
        self._complete(error or response)

    def fail(self, error: KafkaError) -> None:
        self._complete(error.code)

    def lost(self) -> None:
        """The coordinator crashed."""
        if not self.is_complete:
            self._complete(LOST)

    def _complete(self, response: Any) -> None:
        assert not self.is_complete, f"{self} has two responses"
        self.is_complete = True
        self.world.on_response(self, response)


class DecidedCall(CoordinatorCall):
    """A request that may write records."""

    def run(self, runtime: CoordinatorRuntime[TransactionShard]) -> None:
        runtime.run(self.transactional_id, self, self.decide)

    @abstractmethod
    def decide(self, shard: TransactionShard, now: Now) -> Outcome:
        """Decide the records and the response."""


class Init(DecidedCall):
    """InitProducerId."""

    def __init__(self, world: World, transactional_id: str, expected: Producer, *, may_be_late: bool) -> None:
        super().__init__(world, transactional_id, 5, may_be_late=may_be_late)
        self.request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=expected.id,
            producer_epoch=expected.epoch,
        )

    def decide(self, shard: TransactionShard, now: Now) -> Outcome:
        return shard.init_producer_id(self, self.request, now)

    def reply(self, response: InitProducerIdResponse) -> None:
        if not response.error_code:
            self.world.begun(self.transactional_id, Producer(response.producer_id, response.producer_epoch))
        super().reply(response)

    def __str__(self) -> str:
        return f"InitProducerId {self.transactional_id} {self.request.producer_id}/{self.request.producer_epoch}"


class Add(DecidedCall):
    """AddPartitionsToTxn of a client, or of a partition's leader on its behalf."""

    def __init__(
        self, world: World, transactional_id: str, producer: Producer, partitions: list[tuple[str, int]], *, bumps: bool
    ) -> None:
        super().__init__(world, transactional_id, 5 if bumps else 3, may_be_late=bumps)
        self.producer = producer
        self.partitions = partitions
        self.client_version = 2 if bumps else 1

    def decide(self, shard: TransactionShard, now: Now) -> Outcome:
        return shard.add_partitions(
            self,
            self.transactional_id,
            *self.producer,
            self.partitions,
            now,
            client_version=self.client_version,
        )

    def __str__(self) -> str:
        return f"AddPartitionsToTxn {self.transactional_id} {self.producer} {self.partitions}"


class Verify(CoordinatorCall):
    """AddPartitionsToTxn of a partition's leader that only verifies."""

    def __init__(self, world: World, transactional_id: str, producer: Producer, partition: tuple[str, int]) -> None:
        super().__init__(world, transactional_id, 5, may_be_late=True)
        self.producer = producer
        self.partition = partition

    def run(self, runtime: CoordinatorRuntime[TransactionShard]) -> None:
        shard = runtime.read(self.transactional_id)
        self._complete(shard.verify_partitions(self.transactional_id, *self.producer, [self.partition])[self.partition])

    def __str__(self) -> str:
        return f"verify {self.transactional_id} {self.producer} {self.partition}"


class End(DecidedCall):
    """EndTxn."""

    def __init__(
        self, world: World, transactional_id: str, producer: Producer, *, committed: bool, bumps: bool
    ) -> None:
        super().__init__(world, transactional_id, 5 if bumps else 4, may_be_late=bumps)
        self.request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=committed,
        )

    def decide(self, shard: TransactionShard, now: Now) -> Outcome:
        return shard.end_transaction(self, self.request, now)

    def __str__(self) -> str:
        what = "commit" if self.request.committed else "abort"
        return f"EndTxn {self.transactional_id} {self.request.producer_id}/{self.request.producer_epoch} {what}"


class Write:
    """Produce of one batch to one partition."""

    def __init__(self, partition: Partition, transactional_id: str, entry: Entry, *, bumps: bool) -> None:
        self.partition = partition
        self.transactional_id = transactional_id
        self.entry = entry
        self.bumps = bumps

    def __str__(self) -> str:
        return f"a write of {self.transactional_id} {self.entry} to {self.partition}"


class Pause:
    """The backoff of a client before a retry."""
