"""The transaction coordinator of a broker: a runtime for each partition of `__transaction_state` that it leads.

Hosting them is in `coordinators`. Here is what follows from a decision to end a transaction: its markers. Once the log
says "prepared", a marker goes to every partition of the transaction, and when the last of them is written the
coordinator decides "complete". What stands between the two survives everything: a server that was killed there finds
the transaction prepared in the log and begins with the markers anew, and a partition that has its marker already takes
another one.

A partition that refuses its marker is asked again, with growing pauses, until it takes it or its topic is gone. New
transactions of that producer wait for it, others do not.

Markers for partitions that other brokers lead would go there by WriteTxnMarkers: `_write` is the one place for that.
"""

from __future__ import annotations

import enum
import logging
from typing import TYPE_CHECKING

from ..coordinator.runtime import CoordinatorRuntime
from ..metadata.features import TRANSACTION_VERSION
from ..metadata.topic_names import TRANSACTION_STATE
from ..protocol.errors import ErrorCode, KafkaError
from ..transaction_coordinator.config import TransactionConfig
from ..transaction_coordinator.outbox import Markers
from ..transaction_coordinator.shard import TransactionShard
from ..transaction_coordinator.states import TransactionStates
from ..transaction_coordinator.transaction import COMPLETE, TransactionStatus
from .coordinators import Coordinators, Hosted
from .markers import write_marker

if TYPE_CHECKING:
    from ..replication.partition import Partition
    from .broker import Broker

logger = logging.getLogger(__name__)

_FIRST_RETRY_MS = 20
_LONGEST_RETRY_MS = 1000

_AT_REST = COMPLETE | {TransactionStatus.EMPTY}

TransactionRuntime = CoordinatorRuntime[TransactionShard]


class _Marker(enum.Enum):
    """What became of the marker of one partition."""

    WRITTEN = "written"
    """Or it is not needed any more."""
    LATER = "later"
    FENCED = "fenced"
    """A later coordinator was there."""


class _Ending:
    """A transaction whose markers are being written."""

    __slots__ = ("attempts", "fenced", "hosted", "markers", "missing", "unwritten")

    def __init__(self, hosted: Hosted[TransactionShard], markers: Markers) -> None:
        self.hosted = hosted
        self.markers = markers
        self.missing: list[tuple[str, int]] = list(markers.partitions)
        self.unwritten = 0  # of these, nobody knows yet what became of them
        self.attempts = 0
        self.fenced = False


class TransactionCoordinators(Coordinators[TransactionShard]):
    """The runtimes of this broker, by partition of `__transaction_state`."""

    topic = TRANSACTION_STATE
    absent = ErrorCode.NOT_COORDINATOR

    def __init__(self, broker: Broker, config: TransactionConfig, *, load_bytes: int = 5 << 20) -> None:
        super().__init__(broker, load_bytes=load_bytes)
        self.config = config

    def make_shard(self, partition: Partition) -> TransactionShard:
        """Transactions of one partition."""
        broker = self._broker
        states = TransactionStates(
            self.config,
            new_producer_id=broker.next_producer_id,
            transaction_version=lambda: broker.metadata.image.features.get(TRANSACTION_VERSION, 0),
        )
        return TransactionShard(states)

    def time_out(self, transactional_id: str) -> None:
        """Have an open transaction time out now: for tests.

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

    def acted(self, hosted: Hosted[TransactionShard]) -> None:
        """Begin to end the transactions that were prepared, once that is below the high watermark."""
        for markers in hosted.runtime.shard.take_markers():
            self._end(_Ending(hosted, markers))

    def _end(self, ending: _Ending) -> None:
        """Write the markers that are missing, and then see to the end of the transaction."""
        if self._hosted.get(ending.hosted.partition.index) is not ending.hosted:
            return  # whoever coordinates now finds the transaction in the log
        missing, ending.missing = ending.missing, []
        ending.unwritten = len(missing)
        for topic, index in missing:
            self._write(ending, topic, index)
        if not missing:
            self._all_became(ending)

    def _write(self, ending: _Ending, topic: str, index: int) -> None:
        """Write the marker of one partition."""
        registered = self._broker.metadata.image.topics_by_name.get(topic)
        if registered is None or index not in registered.partitions:
            self._became(ending, topic, index, _Marker.WRITTEN)  # the partition was deleted
            return

        def written(error: KafkaError | None) -> None:
            marker = _Marker.WRITTEN if error is None else self._refused(ending, topic, index, error)
            self._became(ending, topic, index, marker)

        markers = ending.markers
        try:
            write_marker(
                self._broker,
                topic,
                index,
                producer_id=markers.producer_id,
                producer_epoch=markers.producer_epoch,
                coordinator_epoch=ending.hosted.partition.leader_epoch,
                committed=markers.committed,
                transaction_version=markers.transaction_version,
                written=written,
            )
        except KafkaError as error:
            self._became(ending, topic, index, self._refused(ending, topic, index, error))
        except Exception:  # the transaction must not stand still because of that
            logger.exception("%s-%d: a marker failed by our own fault", topic, index)
            self._became(ending, topic, index, _Marker.LATER)

    def _became(self, ending: _Ending, topic: str, index: int, marker: _Marker) -> None:
        """This became of the marker of one partition."""
        if marker is _Marker.LATER:
            ending.missing.append((topic, index))
        elif marker is _Marker.FENCED:
            ending.fenced = True
        ending.unwritten -= 1
        if not ending.unwritten:
            self._all_became(ending)

    def _all_became(self, ending: _Ending) -> None:
        if ending.missing:
            self._try_again(ending)
        elif not ending.fenced:
            self._complete(ending)

    @staticmethod
    def _refused(ending: _Ending, topic: str, index: int, error: KafkaError) -> _Marker:
        transactional_id = ending.markers.transactional_id
        if error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
            # Whoever has a newer epoch there has ended this transaction, and nothing of it can be written any more.
            logger.warning("%s-%d needs no marker of %r: %s", topic, index, transactional_id, error)
            return _Marker.WRITTEN
        if error.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            # It is for the later coordinator to say how the transaction ends; here it stays prepared.
            logger.error("%s-%d takes no marker of %r: %s", topic, index, transactional_id, error)
            return _Marker.FENCED
        if not ending.attempts:
            logger.info("%s-%d will get its marker of %r later: %s", topic, index, transactional_id, error)
        return _Marker.LATER

    def _try_again(self, ending: _Ending) -> None:
        delay_ms = min(_FIRST_RETRY_MS << min(ending.attempts, 10), _LONGEST_RETRY_MS)
        ending.attempts += 1
        self._broker.timers.call_after(delay_ms, lambda: self._end(ending))

    def _complete(self, ending: _Ending) -> None:
        """All markers are written: the coordinator says so in its log."""
        hosted, markers = ending.hosted, ending.markers
        action = hosted.runtime.shard.markers_written(
            markers.transactional_id, markers.producer_id, markers.producer_epoch
        )
        hosted.runtime.decide(markers.transactional_id, action)
