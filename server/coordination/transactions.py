"""The transaction coordinator of a broker: a runtime for each partition of `__transaction_state` that it leads.

Hosting is in `coordinators`. This module adds the consequence of a decision to end a transaction: its markers. When the
state "prepared" is in the log, a marker is written to every partition of the transaction. After the last marker is
written, the coordinator decides "complete". The work between the two states survives a crash: a restarted server finds
the prepared transaction in the log and writes all markers again. A second marker in a partition does no harm.

If a partition rejects its marker, the write is retried, with growing delays, until it succeeds or the topic is deleted.
Meanwhile new transactions of that producer wait; other producers are not affected.

Markers for partitions that other brokers lead are sent to them (`remote_markers`). Each retry looks for the leader
again, because the partition may have moved.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ...metadata.features import TRANSACTION_VERSION
from ...metadata.topic_names import TRANSACTION_STATE
from ...protocol.errors import ErrorCode, KafkaError
from ...transaction_coordinator.config import TransactionConfig
from ...transaction_coordinator.markers import Markers
from ...transaction_coordinator.shard import TransactionShard
from ...transaction_coordinator.states import TransactionStates
from ...transaction_coordinator.transaction import COMPLETE, TransactionStatus
from ..concurrency.pending import Pending
from .coordinators import Coordinators, HostedRuntime

if TYPE_CHECKING:
    from ...replication.partition import Partition
    from .markers import MarkerWriter
    from .on_demand import Services

logger = logging.getLogger(__name__)

_FIRST_RETRY_MS = 20
_LONGEST_RETRY_MS = 1000

_AT_REST = COMPLETE | {TransactionStatus.EMPTY}


class _Marker(enum.Enum):
    """The result of writing the marker of one partition."""

    WRITTEN = "written"
    """The marker is written, or no longer needed."""
    LATER = "later"
    FENCED = "fenced"
    """A coordinator with a later epoch has written to the partition."""


class _Ending:
    """A transaction whose markers are being written."""

    __slots__ = ("attempts", "fenced", "hosted", "markers", "missing")

    def __init__(self, hosted: HostedRuntime[TransactionShard], markers: Markers) -> None:
        self.hosted = hosted
        self.markers = markers
        self.missing: list[tuple[str, int]] = sorted(markers.partitions)  # the order is reproducible
        self.attempts = 0
        self.fenced = False


class TransactionCoordinators(Coordinators[TransactionShard]):
    """The runtimes of this broker, by partition of `__transaction_state`."""

    topic = TRANSACTION_STATE
    absent = ErrorCode.NOT_COORDINATOR

    def __init__(
        self,
        services: Services,
        config: TransactionConfig,
        markers: MarkerWriter,
        new_producer_id: Callable[[], int],
        *,
        load_bytes: int = 5 << 20,
    ) -> None:
        super().__init__(services, load_bytes=load_bytes)
        self.config = config
        self._markers = markers
        self._new_producer_id = new_producer_id

    def make_shard(self, partition: Partition) -> TransactionShard:
        """The transactions of one partition."""
        image = self._services.image
        states = TransactionStates(
            self.config,
            new_producer_id=self._new_producer_id,
            transaction_version=lambda: image().features.get(TRANSACTION_VERSION, 0),
        )
        return TransactionShard(states)

    def hosted_of(self, key: str) -> HostedRuntime[TransactionShard]:
        """See `Coordinators`. An empty ID is invalid, whichever broker would coordinate it: INVALID_REQUEST."""
        if not key:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The transactional ID is empty.")
        return super().hosted_of(key)

    def time_out(self, transactional_id: str) -> None:
        """Make an open transaction time out now. For tests.

        Raises:
            KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, TRANSACTIONAL_ID_NOT_FOUND, INVALID_TXN_STATE.
        """
        hosted = self.hosted_of(transactional_id)
        hosted.runtime.decide(transactional_id, hosted.runtime.read(transactional_id).time_out(transactional_id))
        self.flush(hosted)

    def has_ended(self, transactional_id: str) -> bool:
        """Whether no transaction of this id is open or about to end.

        Raises:
            KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        transaction = self.read(transactional_id).states.transactions.get(transactional_id)
        return transaction is None or transaction.status in _AT_REST

    # -- markers -------------------------------------------------------------------------------------------------------

    def _arm(self, hosted: HostedRuntime[TransactionShard]) -> None:
        """Begin to write the markers of transactions whose end is committed, and arm the timer of the runtime."""
        for effect in hosted.runtime.take_effects():
            assert isinstance(effect, Markers)
            self._end(_Ending(hosted, effect))
        super()._arm(hosted)

    def _end(self, ending: _Ending) -> None:
        """Write the missing markers, then complete the transaction."""
        if self._hosted.get(ending.hosted.partition.index) is not ending.hosted:
            return  # the current coordinator finds the transaction in the log
        pending: Pending[_Marker, KafkaError] = Pending(partial(self._written, ending))
        for topic, index in ending.missing:
            self._write(ending, topic, index, partial(pending.complete, pending.add()))
        pending.start()

    def _write(self, ending: _Ending, topic: str, index: int, became: Callable[[_Marker], None]) -> None:
        """Write the marker of one partition."""
        registered = self._services.image().topics_by_name.get(topic)
        if registered is None or index not in registered.partitions:
            became(_Marker.WRITTEN)  # the partition was deleted
            return

        def written(error: KafkaError | None) -> None:
            became(_Marker.WRITTEN if error is None else self._refused(ending, topic, index, error))

        markers = ending.markers
        leader = registered.partitions[index].leader
        try:
            if leader < 0:
                written(KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{index} has no leader."))
                return
            write = (
                self._markers.write
                if leader == self._services.node_id
                else partial(self._services.peers().markers.write, leader)
            )
            write(
                topic,
                index,
                producer_id=markers.producer_id,
                producer_epoch=markers.producer_epoch,
                coordinator_epoch=ending.hosted.leader_epoch,
                committed=markers.committed,
                transaction_version=markers.transaction_version,
                written=written,
            )
        except Exception:  # the transaction must not stall because of this
            logger.exception("Writing a transaction marker to %s-%d failed with an unexpected error", topic, index)
            became(_Marker.LATER)

    def _written(self, ending: _Ending, markers: list[_Marker]) -> None:
        """Handle the results of the missing markers."""
        if self._hosted.get(ending.hosted.partition.index) is not ending.hosted:
            return  # the current coordinator finds the transaction in the log
        ending.missing = [
            partition for partition, marker in zip(ending.missing, markers, strict=True) if marker is _Marker.LATER
        ]
        ending.fenced = ending.fenced or _Marker.FENCED in markers
        if ending.missing:
            self._try_again(ending)
        elif not ending.fenced:
            self._complete(ending)

    @staticmethod
    def _refused(ending: _Ending, topic: str, index: int, error: KafkaError) -> _Marker:
        transactional_id = ending.markers.transactional_id
        if error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
            # A producer with a newer epoch has ended this transaction, and its records can no longer be written.
            logger.warning(
                "%s-%d does not need the transaction marker of %r: %s", topic, index, transactional_id, error
            )
            return _Marker.WRITTEN
        if error.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            # The later coordinator decides how the transaction ends; here it stays prepared.
            logger.warning("%s-%d rejects the transaction marker of %r: %s", topic, index, transactional_id, error)
            return _Marker.FENCED
        if not ending.attempts:
            logger.info(
                "Cannot write the transaction marker to %s-%d yet; the marker of %r is retried: %s",
                topic,
                index,
                transactional_id,
                error,
            )
        return _Marker.LATER

    def _try_again(self, ending: _Ending) -> None:
        delay_ms = min(_FIRST_RETRY_MS << min(ending.attempts, 10), _LONGEST_RETRY_MS)
        ending.attempts += 1
        self._services.timers.call_after(delay_ms, lambda: self._end(ending))

    def _complete(self, ending: _Ending) -> None:
        """All markers are written: append "complete" to the log."""
        hosted, markers = ending.hosted, ending.markers
        action = hosted.runtime.shard.markers_written(
            markers.transactional_id, markers.producer_id, markers.producer_epoch
        )
        hosted.runtime.decide(markers.transactional_id, action)
