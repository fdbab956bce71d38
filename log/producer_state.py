"""The producer state of a partition: idempotence (KIP-98) and open transactions.

For each producer id: the epoch, and the sequence numbers of the last five batches. They determine how a batch with a
producer id is handled (`check`), in Apache Kafka's order:

* the exact sequence range of one of the five, same epoch: a duplicate, acknowledged with the original offsets;
* an older epoch: INVALID_PRODUCER_EPOCH;
* a newer epoch must begin at sequence 0, the same epoch must continue where the last batch ended (2**31 - 1 is followed
  by 0): anything else is OUT_OF_ORDER_SEQUENCE_NUMBER;
* an unknown producer may begin with any sequence number: its records may have been deleted by retention.

A transactional batch also requires that the producer's transaction is already open in this log, or that the transaction
coordinator has confirmed that the transaction contains this partition, and that no marker has ended it since (KIP-890).
Otherwise the batch could be appended after the marker of its transaction, and the transaction would remain open
forever. See `Verification`.

A marker is checked by epochs (`check_marker`): those of its producer and of the coordinator that writes it.

The state is a function of the log: every batch that is appended, or read at recovery, is passed to `update`. Snapshots
(`.snapshot`, named by their offset) avoid reading the log from its beginning:

    version int16 1 | crc uint32 of what follows | count int32 | entries
    entry: producer_id int64 | epoch int16 | last_sequence int32 | last_offset int64 | offset_delta int32
           | timestamp int64 | coordinator_epoch int32 | first offset of the open transaction int64, -1: none

A snapshot contains only the last batch, so after a restart only that batch is recognized as a duplicate, as in Apache
Kafka.

This module does not access files: the log reads and writes the snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from struct import error as struct_error

from ..protocol.checksum import crc32c
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.named_tuples import NamedTuple
from ..protocol.records import (
    CONTROL_MASK,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    InvalidRecordsError,
    RecordBatch,
    increment_sequence,
    iter_records,
)
from .verification import DISABLED, Verification

BATCHES_TO_RETAIN = 5
"""The number of batches that may be retried; the Java producer's limit of requests in flight follows from it."""

MARKER_BATCH_SIZE = 78
"""Bytes of a control batch with a marker: the header, and a record with a key of 4 bytes and a value of 6."""

_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEADER = Struct(">hIi")
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
_CRC_COVERS_FROM = 6
_CONTROL_KEY = Struct(">hh")
_END_TRANSACTION_VALUE = Struct(">hi")
_CONTROL_VERSION = _MARKER_VERSION = 0
_MARKER_PREFIX = Struct(">qiibI")
# What the CRC covers: the rest of the header; of the record what comes before its key, the key, the value's length, the
# value, no headers. Lengths are zigzag varints.
_MARKER_BATCH = Struct(">hiqqqhii 5s hh b hi x")
_MARKER_BEFORE_KEY = b"\x20\0\0\0\x08"
_MARKER_VALUE_LENGTH = 0x0C
_ABORT, _COMMIT = 0, 1
_NO_TRANSACTION = -1
_LARGEST_EPOCH = 0x7FFF
# From this transaction.version on the coordinator raises a producer's epoch before it writes the marker (KIP-890).
_EPOCH_PER_TRANSACTION = 2


class CorruptSnapshotError(ValueError):
    """A corrupt producer snapshot: an older one, or the log itself, must be used instead."""


class RetainedBatch(NamedTuple):
    """A batch that is recognized as a duplicate if it is retried."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class EndTransactionMarker(NamedTuple):
    """A control record that ends a transaction."""

    committed: bool
    coordinator_epoch: int


class CompletedTransaction(NamedTuple):
    """A transaction that a marker at `last_offset` has just ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerEntry:
    """The state of one producer id."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "transaction_first_offset")

    def __init__(self, producer_id: int, epoch: int = NO_PRODUCER_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: list[RetainedBatch] = []
        self.coordinator_epoch = -1
        self.last_timestamp = NO_TIMESTAMP
        self.transaction_first_offset = _NO_TRANSACTION

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProducerEntry) and all(getattr(self, n) == getattr(other, n) for n in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ProducerEntry({', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)})"


class ProducerState:
    """The producers of one partition; see the module docstring."""

    __slots__ = ("_verifications", "open_transactions", "producers")

    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        self.open_transactions: dict[int, int] = {}
        """First offset to producer id. Transactions begin in the order of their offsets, so it is sorted."""
        # By producer id: the pending verifications of transactions without records in this log.
        self._verifications: dict[int, Verification] = {}

    def check(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        transactional: bool,
        verification: Verification | None = None,
    ) -> RetainedBatch | None:
        """Check a client's batch. Returns the original batch if it is a duplicate, else None; raises `KafkaError`."""
        entry = self.producers.get(producer_id)
        if entry is None:
            if transactional:
                self._check_verified(producer_id, verification)
            if self._verifications:
                self._check_first_sequence(producer_id, first_sequence, known=False)
            return None
        if epoch == entry.epoch:
            for batch in entry.batches:
                if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                    return batch
        in_transaction = entry.transaction_first_offset != _NO_TRANSACTION
        if epoch < entry.epoch:
            raise _stale(producer_id, epoch, entry.epoch)
        if transactional and not (in_transaction and epoch == entry.epoch):
            self._check_verified(producer_id, verification)
        if self._verifications:
            self._check_first_sequence(producer_id, first_sequence, known=bool(entry.batches))
        if epoch != entry.epoch:
            if first_sequence != 0 and entry.epoch != NO_PRODUCER_EPOCH:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for new epoch of producer {producer_id}: {epoch} (request epoch), "
                    f"{first_sequence} (seq. number), {entry.epoch} (current producer epoch)",
                )
        elif epoch != NO_PRODUCER_EPOCH:
            expected = increment_sequence(entry.last_sequence, 1)
            if first_sequence != expected:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Out of order sequence number for producer {producer_id}: {first_sequence} "
                    f"(incoming seq. number), {entry.last_sequence} (current end sequence number)",
                )
        if in_transaction and not transactional:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"Expected transactional write from producer {producer_id}")
        return None

    def check_own(
        self, producer_id: int, epoch: int, transactional: bool, verification: Verification | None = None
    ) -> None:
        """Check a coordinator's batch with a producer id, which has no sequence numbers. Raises `KafkaError`."""
        entry = self.producers.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise _stale(producer_id, epoch, entry.epoch)
        if transactional:
            if not self.has_open_transaction(producer_id, epoch):
                self._check_verified(producer_id, verification)
        elif entry is not None and entry.transaction_first_offset != _NO_TRANSACTION:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"Expected transactional write from producer {producer_id}")

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int) -> None:
        """Check a marker. Raises `KafkaError` INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.

        With an epoch for each transaction (KIP-890), a marker has a higher epoch than the batches that it ends. An
        equal epoch is a retry of the same marker: then no transaction is open, and appending it again is harmless. The
        largest epoch has no higher one.
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            return
        strict = transaction_version >= _EPOCH_PER_TRANSACTION
        if epoch < entry.epoch or (
            strict
            and epoch == entry.epoch
            and entry.transaction_first_offset != _NO_TRANSACTION
            and epoch != _LARGEST_EPOCH
        ):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {producer_id} is {epoch} in a marker of transaction.version {transaction_version}, "
                f"which is {'not larger' if strict else 'smaller'} than the last seen epoch {entry.epoch}",
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Coordinator epoch for producer {producer_id} is {coordinator_epoch}, "
                f"which is smaller than the last seen coordinator epoch {entry.coordinator_epoch}",
            )

    # Verification

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer's transaction of exactly this epoch has records in this log and no marker."""
        entry = self.producers.get(producer_id)
        return entry is not None and entry.transaction_first_offset != _NO_TRANSACTION and entry.epoch == epoch

    def start_verification(
        self, producer_id: int, epoch: int, first_sequence: int, *, epoch_per_transaction: bool, now_ms: int
    ) -> Verification | None:
        """Begin the verification of a transaction with the coordinator; None if it is not necessary.

        Raises INVALID_PRODUCER_EPOCH for an older epoch.
        """
        entry = self.producers.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise _stale(producer_id, epoch, entry.epoch)
        if self.has_open_transaction(producer_id, epoch):
            return None
        verification = self._verifications.get(producer_id)
        if verification is None:
            verification = self._verifications[producer_id] = Verification(
                epoch, first_sequence, epoch_per_transaction=epoch_per_transaction, started_ms=now_ms
            )
        else:
            verification.note(epoch, first_sequence)
        return verification

    def _check_verified(self, producer_id: int, verification: Verification | None) -> None:
        if verification is DISABLED:
            return
        if verification is None or self._verifications.get(producer_id) is not verification:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")

    def _check_first_sequence(self, producer_id: int, first_sequence: int, *, known: bool) -> None:
        """During the verification of a transaction, no batch may overtake the pending ones. `known`: the last sequence
        number of the producer is known."""
        verification = self._verifications.get(producer_id)
        if verification is None:
            return
        if verification.epoch_per_transaction and first_sequence != 0 and not known:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Invalid sequence number for producer {producer_id}: {first_sequence} (incoming seq. number). "
                "Expected sequence 0 for transactions v2 idempotent producer with no existing state.",
            )
        if first_sequence > verification.lowest_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {producer_id}: {first_sequence} (incoming seq. number), "
                f"{verification.lowest_sequence} (earliest seen sequence)",
            )

    # Accounting

    def update(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        transactional: bool,
    ) -> None:
        """A batch of records was appended."""
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id, epoch)
        batches = entry.batches
        if entry.epoch != epoch:
            entry.epoch = epoch
            batches.clear()
        elif len(batches) == BATCHES_TO_RETAIN:
            del batches[0]
        batches.append(RetainedBatch(first_sequence, last_sequence, first_offset, last_offset, timestamp))
        entry.last_timestamp = timestamp
        if transactional:
            self._verifications.pop(producer_id, None)
            if entry.transaction_first_offset == _NO_TRANSACTION:
                entry.transaction_first_offset = first_offset
                self.open_transactions[first_offset] = producer_id

    def end_transaction(
        self, producer_id: int, epoch: int, marker: EndTransactionMarker, offset: int, timestamp: int
    ) -> CompletedTransaction | None:
        """A marker was appended at `offset`; the transaction that it ended, None if it was empty."""
        verification = self._verifications.get(producer_id)
        # If each transaction has its own epoch, a marker has the epoch of the next one, which may have begun.
        if verification is not None and not (verification.epoch_per_transaction and verification.epoch == epoch):
            del self._verifications[producer_id]
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id, epoch)
        if entry.epoch != epoch:
            entry.epoch = epoch
            entry.batches.clear()
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = timestamp
        first_offset = entry.transaction_first_offset
        if first_offset == _NO_TRANSACTION:
            return None
        entry.transaction_first_offset = _NO_TRANSACTION
        self.open_transactions.pop(first_offset, None)
        return CompletedTransaction(producer_id, first_offset, offset, not marker.committed)

    def replay(self, header: BatchHeader, batch: RecordBatch | None) -> CompletedTransaction | None:
        """Update the state for a batch that is already in the log. `batch` is only needed for control batches."""
        if header.producer_id < 0:
            return None
        if header.is_control:
            marker = read_end_transaction_marker(batch) if batch is not None else None
            if marker is None:
                return None
            return self.end_transaction(
                header.producer_id, header.producer_epoch, marker, header.base_offset, header.max_timestamp
            )
        self.update(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
            header.is_transactional,
        )
        return None

    def first_open_transaction(self) -> int | None:
        """The first offset of the oldest open transaction: read_committed consumers stop here."""
        return next(iter(self.open_transactions), None)

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """The last stable offset after this transaction's marker is replicated."""
        first = self.first_open_transaction()
        return completed.last_offset + 1 if first is None else first

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Remove producers that were inactive for `producer.id.expiration.ms` and have no open transaction."""
        expired = [
            producer_id
            for producer_id, entry in self.producers.items()
            if entry.transaction_first_offset == _NO_TRANSACTION and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.producers[producer_id]
        lingering = [
            producer_id
            for producer_id, verification in self._verifications.items()
            if now_ms - verification.started_ms >= expiration_ms
        ]
        for producer_id in lingering:
            del self._verifications[producer_id]

    def clear(self) -> None:
        self.producers.clear()
        self.open_transactions.clear()
        self._verifications.clear()

    def become(self, other: ProducerState) -> None:
        """Take over all producers of `other`, which must not be used any more."""
        self.clear()
        self.producers.update(other.producers)
        self.open_transactions.update(other.open_transactions)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self.producers.values())

    def __len__(self) -> int:
        return len(self.producers)

    # Snapshots

    def encode_snapshot(self) -> bytes:
        """The content of a `.snapshot` file."""
        # Runs on the event loop, for perhaps 100,000 producers: the only call per entry is the one that packs.
        entries = bytearray()
        pack = _SNAPSHOT_ENTRY.pack
        for entry in self.producers.values():
            if entry.batches:
                _, last_sequence, first_offset, last_offset, _ = entry.batches[-1]
            else:
                last_sequence, first_offset, last_offset = NO_SEQUENCE, -1, -1
            entries += pack(
                entry.producer_id,
                entry.epoch,
                last_sequence,
                last_offset,
                last_offset - first_offset,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.transaction_first_offset,
            )
        header = _SNAPSHOT_HEADER.pack(_SNAPSHOT_VERSION, 0, len(self.producers))
        crc = crc32c(entries, crc32c(header[_CRC_COVERS_FROM:]))
        return _SNAPSHOT_HEADER.pack(_SNAPSHOT_VERSION, crc, len(self.producers)) + entries

    def load_snapshot(self, data: bytes) -> None:
        """Replace the state by a snapshot's. Raises `CorruptSnapshotError`, and leaves the state unchanged."""
        try:
            version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
        except struct_error:
            raise CorruptSnapshotError("the snapshot is truncated") from None
        if version != _SNAPSHOT_VERSION:
            raise CorruptSnapshotError(f"unknown snapshot version {version}")
        if crc32c(memoryview(data)[_CRC_COVERS_FROM:]) != crc:
            raise CorruptSnapshotError("the snapshot's CRC does not match")
        if len(data) != _SNAPSHOT_HEADER.size + count * _SNAPSHOT_ENTRY.size:
            raise CorruptSnapshotError("the snapshot's length does not match its count")
        self.clear()
        transactions = []
        for fields in _SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[_SNAPSHOT_HEADER.size :]):
            producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, first = fields
            entry = self.producers[producer_id] = ProducerEntry(producer_id, epoch)
            entry.coordinator_epoch = coordinator_epoch
            entry.last_timestamp = timestamp
            if last_offset >= 0:
                first_sequence = increment_sequence(last_sequence, -offset_delta)
                entry.batches.append(
                    RetainedBatch(first_sequence, last_sequence, last_offset - offset_delta, last_offset, timestamp)
                )
            if first >= 0:
                entry.transaction_first_offset = first
                transactions.append((first, producer_id))
        self.open_transactions.update(sorted(transactions))


def _stale(producer_id: int, epoch: int, last_seen: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Epoch of producer {producer_id} is {epoch}, which is smaller than the last seen epoch {last_seen}",
    )


def build_end_transaction_marker(
    producer_id: int,
    producer_epoch: int,
    marker: EndTransactionMarker,
    *,
    offset: int,
    leader_epoch: int,
    now_ms: int,
    log_append_time: bool = False,
) -> bytes:
    """A control batch with this one marker, as Apache Kafka writes it."""
    covered = _MARKER_BATCH.pack(
        TRANSACTIONAL_MASK | CONTROL_MASK | (TIMESTAMP_TYPE_MASK if log_append_time else 0),
        0,  # the last offset, from the first
        now_ms,
        now_ms,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        1,  # records
        _MARKER_BEFORE_KEY,
        _CONTROL_VERSION,
        _COMMIT if marker.committed else _ABORT,
        _MARKER_VALUE_LENGTH,
        _MARKER_VERSION,
        marker.coordinator_epoch,
    )
    return _MARKER_PREFIX.pack(offset, MARKER_BATCH_SIZE - LOG_OVERHEAD, leader_epoch, MAGIC, crc32c(covered)) + covered


def read_end_transaction_marker(batch: RecordBatch) -> EndTransactionMarker | None:
    """The marker in a control batch; None for a control batch of another kind (KRaft has several), or an empty one."""
    try:
        record = next(iter(iter_records(batch)), None)
        if record is None or record.key is None or record.value is None:
            return None
        _version, kind = _CONTROL_KEY.unpack_from(record.key)
        if kind not in (_ABORT, _COMMIT):
            return None
        _version, coordinator_epoch = _END_TRANSACTION_VALUE.unpack_from(record.value)
    except (InvalidRecordsError, ValueError, struct_error):
        return None
    return EndTransactionMarker(kind == _COMMIT, coordinator_epoch)
