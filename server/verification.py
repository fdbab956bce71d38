"""The first write of a transaction to a partition asks the transaction coordinator (KIP-890).

A transactional batch that comes late, after its transaction has ended, would open one that nobody ends. So where the
log has no open transaction of the producer, the coordinator is asked before the append, and the log is shown that it
was (`log.verification`). How it is asked depends on the client:

* Clients that know transaction.version 2 (Produce since version 12, TxnOffsetCommit since 5) add no partitions
  themselves: the coordinator adds them now. While it still ends the transaction before, the broker tries again for a
  short time by itself, which is cheaper than sending the records twice.
* Of older clients the coordinator says whether they have added the partition, unless
  ``transaction.partition.verification.enable`` is off. The answer comes in an error that the version knows.

A request that waits for the answer may not be overtaken by a later one of the same producer: requests of one
transactional id enter here one after the other. Nobody else waits.
"""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..log.verification import SWITCHED_OFF, Verification
from ..protocol.errors import ErrorCode, KafkaError
from .callers import Rewritten

if TYPE_CHECKING:
    from ..config.sources import BrokerConfig
    from ..coordinator.outcome import Now, Outcome, Producer
    from ..replication.partition import Partition
    from ..transaction_coordinator.shard import TransactionShard
    from .broker import Broker
    from .request import RequestContext


logger = logging.getLogger(__name__)


class Knows(enum.IntEnum):
    """What the client knows of KIP-890."""

    NOTHING = 0
    ABORTABLE = 1
    """The error TRANSACTION_ABORTABLE."""
    ADDING = 2
    """That partitions are added by writing to them."""


def of_produce(api_version: int) -> Knows:
    """By the version of Produce."""
    return Knows.ADDING if api_version >= 12 else Knows.ABORTABLE if api_version >= 11 else Knows.NOTHING


def of_txn_offset_commit(api_version: int) -> Knows:
    """By the version of TxnOffsetCommit."""
    return Knows.ADDING if api_version >= 5 else Knows.ABORTABLE if api_version >= 4 else Knows.NOTHING


class Verified(NamedTuple):
    """The answer: for each partition an error, or what the log wants to see, or nothing at all."""

    errors: dict[Partition, KafkaError]
    verifications: dict[Partition, Verification]


class Verifications:
    """Asks the coordinator, for the requests of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: dict[str, deque[Callable[[], bool]]] = {}
        self._enabled = True
        self._retry_ms = 0
        self._retry_total_ms = 0

    def update_config(self, config: BrokerConfig) -> None:
        """Take over the broker's settings."""
        self._enabled = config.bool("transaction.partition.verification.enable")
        self._retry_ms = config.int("add.partitions.to.txn.retry.backoff.ms")
        self._retry_total_ms = config.int("add.partitions.to.txn.retry.backoff.max.ms")

    # -- in order ------------------------------------------------------------------------------------------------------

    def enter(self, transactional_id: str, work: Callable[[], bool]) -> None:
        """Do ``work`` now, or when the requests of this id that came before have left.

        It says whether it is through. When it is not, the request has to `leave` later.
        """
        waiting = self._waiting.get(transactional_id)
        if waiting is not None:
            waiting.append(work)
        elif not work():
            self._waiting[transactional_id] = deque()

    def leave(self, transactional_id: str) -> None:
        """The request that went on has its answer: it is the others' turn."""
        waiting = self._waiting[transactional_id]
        while waiting:
            work = waiting.popleft()
            try:
                through = work()
            except Exception:  # whoever waits behind must not wait for ever
                logger.exception("A request of the transactional id %r failed by our own fault", transactional_id)
                through = True
            if not through:
                return
        del self._waiting[transactional_id]

    # -- asking --------------------------------------------------------------------------------------------------------

    def verify(
        self,
        context: RequestContext,
        transactional_id: str,
        producer: Producer,
        partitions: Sequence[tuple[Partition, int]],
        knows: Knows,
        done: Callable[[Verified], None],
        *,
        retries: bool = False,
    ) -> None:
        """See to it that these partitions belong to the producer's transaction; ``done`` is called once, now or later.

        A partition comes with the first sequence number of what is to be appended. With ``retries`` a client that
        knows adding does not hear of it when the transaction before is about to end.
        """
        if knows < Knows.ADDING and not self._enabled:
            done(Verified({}, {partition: SWITCHED_OFF for partition, _ in partitions}))
            return
        verified = Verified({}, {})
        now_ms = self._broker.now_ms()
        for partition, sequence in partitions:
            try:
                verification = partition.start_verification(
                    producer.id,
                    producer.epoch,
                    sequence,
                    epoch_per_transaction=knows >= Knows.ADDING,
                    now_ms=now_ms,
                )
            except KafkaError as error:
                verified.errors[partition] = error
            else:
                if verification is not None:
                    verified.verifications[partition] = verification
        if not verified.verifications:
            done(verified)
        elif knows < Knows.ADDING:
            self._ask(transactional_id, producer, knows, verified)
            done(verified)
        else:
            until = self._broker.loop.time() + self._retry_total_ms / 1000 if retries else 0.0
            self._add(context, transactional_id, producer, verified, until, done)

    def _ask(self, transactional_id: str, producer: Producer, knows: Knows, verified: Verified) -> None:
        """Whether the client has added the partitions; those that it has not get an error."""
        asked = {(partition.topic, partition.index): partition for partition in verified.verifications}
        try:
            shard = self._broker.transactions.read(transactional_id)
            codes = shard.verify_partitions(transactional_id, producer.id, producer.epoch, list(asked))
        except KafkaError as error:
            codes = dict.fromkeys(asked, error.code)
        for at, code in codes.items():
            if code is ErrorCode.TRANSACTION_ABORTABLE and knows < Knows.ABORTABLE:
                code = ErrorCode.INVALID_TXN_STATE
            if code is not ErrorCode.NONE:
                verified.errors[asked[at]] = _as_of_produce(KafkaError(code))

    def _add(
        self,
        context: RequestContext,
        transactional_id: str,
        producer: Producer,
        verified: Verified,
        until: float,
        done: Callable[[Verified], None],
    ) -> None:
        """Make the partitions part of the transaction, all or none."""
        _Adding(self._broker, context, transactional_id, producer, verified, until, self._retry_ms, done).add()


class _Adding(Rewritten):
    """Has the coordinator add the partitions of one request, and is told what came of it."""

    # An object instead of nested functions, which would hold each other, and the request, until the next collection.
    __slots__ = (
        "_broker",
        "_done",
        "_partitions",
        "_producer",
        "_retry_ms",
        "_transactional_id",
        "_until",
        "_verified",
    )

    def __init__(
        self,
        broker: Broker,
        context: RequestContext,
        transactional_id: str,
        producer: Producer,
        verified: Verified,
        until: float,
        retry_ms: int,
        done: Callable[[Verified], None],
    ) -> None:
        super().__init__(context, _as_it_is)
        self._broker = broker
        self._transactional_id = transactional_id
        self._producer = producer
        self._verified = verified
        self._partitions = [(partition.topic, partition.index) for partition in verified.verifications]
        self._until = until
        self._retry_ms = retry_ms
        self._done = done

    def add(self) -> None:
        """Ask for it, once."""
        self._broker.transactions.run(self._transactional_id, self, self._decide)

    def _decide(self, shard: TransactionShard, now: Now) -> Outcome:
        producer_id, producer_epoch = self._producer
        return shard.add_partitions(
            self, self._transactional_id, producer_id, producer_epoch, self._partitions, now, client_version=2
        )

    def reply(self, response: Any) -> None:
        """They were added."""
        self._done(self._verified)

    def fail(self, error: KafkaError) -> None:
        """They were not. The transaction before may be about to end: then it is worth trying again."""
        broker = self._broker
        if error.code is ErrorCode.CONCURRENT_TRANSACTIONS and broker.loop.time() < self._until:
            broker.timers.call_after(self._retry_ms, self.add)
            return
        self._verified.errors.update(dict.fromkeys(self._verified.verifications, _as_of_produce(error)))
        self._done(self._verified)


def _as_it_is(response: Any) -> Any:
    return response


def _as_of_produce(error: KafkaError) -> KafkaError:
    # Producers expect to hear it by this name from whom they write to.
    if error.code is ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message)
    return error
