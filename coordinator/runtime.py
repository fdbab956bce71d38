"""The runtime of a shard: decide, append, replay, reply.

A coordinator is sharded by the partitions of its internal topic (`__consumer_offsets` for groups): who leads a
partition coordinates whatever hashes to it. A `Shard` is the state machine of one partition. This module gives it
order and durability:

* A request is decided at once. Its records wait for the end of the turn of the loop, so that the requests of one turn
  share a batch and a write; then they are appended, replayed, and the answers leave.
* A decision sees everything that was decided before. Records that wait were not replayed yet, so whoever decides for
  the same group writes them first; other groups do not see each other's records.
* Records of one outcome are appended together or not at all; those of a transaction share their batch with no other
  outcome. When an append is refused, nothing was replayed: hard state cannot differ from the log, and each caller gets
  the error.
* Answers leave when the records are below the high watermark. One without records waits for those before it.
* A transaction ends by its marker in the log (`end_transaction`): everything that was decided before comes before it.
* Loading replays the log in slices; until it is through, requests are refused with COORDINATOR_LOAD_IN_PROGRESS.
* A mistake of ours (an exception in a decision) fails one request. One in a replay would leave the state different
  from the log, so the shard is given up and loaded again.

No clock, no loop and no files in here: the shell calls `flush` at the end of the turn when `wants_flush` was called,
`tick` when the next deadline has come, `load` for every batch of the log and then `activate`.
"""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ..protocol.compression import Codec
from ..protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ..protocol.records import NO_PRODUCER_ID, RecordBatch, build_batch, iter_records
from ..protocol.records import Record as LogRecord
from .deadlines import Deadlines
from .outcome import Answer, Caller, Now, Outcome, Producer, Record

logger = logging.getLogger(__name__)


class Shard(Protocol):
    """The state machine of one partition of a coordinator's topic."""

    @property
    def deadlines(self) -> Deadlines:
        """What has to end, and when."""

    def encode(self, record: Record) -> tuple[bytes, bytes | None]:
        """Key and value as they stand in the log."""

    def decode(self, key: bytes, value: bytes | None) -> Record | None:
        """The record of these bytes; None for a type that is not known here, which is left alone.

        Raises MalformedMessage when it is broken.
        """

    def replay(self, record: Record, *, producer_id: int) -> None:
        """Change the hard state. Total: whatever a log may hold is taken, and loading gives what deciding gave.

        ``producer_id`` is that of the transaction which the record belongs to, -1 outside of transactions.
        """

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """A transaction ended: its records count, or are forgotten."""

    def loaded(self, now: Now) -> Outcome:
        """The log was replayed to its end: begin to serve, with fresh deadlines."""

    def resign(self) -> Sequence[Caller]:
        """Serve no more. Whoever waits is told to look for the coordinator again."""


class PartitionWriter(Protocol):
    """The log of the shard's partition, as far as a runtime needs it."""

    @property
    def max_batch_bytes(self) -> int:
        """What a batch may have."""

    @property
    def high_watermark(self) -> int:
        """Records below are safe."""

    def append(self, batch: bytes, *, verification: Any = None) -> int:
        """Append one batch; returns the offset after its last record.

        ``verification`` is what the log gave when somebody began to verify that the batch's transaction is open
        (KIP-890).

        Raises:
            KafkaError: it was not appended.
        """

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        coordinator_epoch: int,
        committed: bool,
        transaction_version: int,
    ) -> int:
        """Append the marker that ends a producer's transaction; returns the offset after it.

        Raises:
            KafkaError: it was not appended.
        """


S = TypeVar("S", bound=Shard)

Decide = Callable[[S, Now], Outcome]

# A batch is at least 61 bytes without its records; a record's lengths and deltas are at most so many.
_BATCH_OVERHEAD = 61
_RECORD_OVERHEAD = 32
# So long a call of `tick` may take, beyond its last decision.
_TICK_MS = 2
# Of the records of a batch that cannot be read.
_LEFT_OUT_SHOWN = 10
# Loading gives way after so many records: about a tenth of a millisecond.
_RECORDS_OF_A_STEP = 32

# How an append's refusal looks to a client of the coordinator: it should come again, look for the coordinator again,
# or be told that what it sent is too much.
_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class State(enum.Enum):
    """Of a runtime: it is loading, serves, or has been given up."""

    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class _Batch:
    """Outcomes whose records are written together, of one transaction or of none."""

    __slots__ = ("outcomes", "producer", "records", "size", "verification")

    def __init__(self, producer: Producer | None, verification: Any) -> None:
        self.producer = producer
        self.verification = verification
        self.outcomes: list[Outcome] = []
        self.records: list[LogRecord] = []
        self.size = 0

    def has_room_for(self, producer: Producer | None, size: int, largest: int) -> bool:
        """Whether another outcome may join in."""
        return producer is None and self.producer is None and self.size + size <= largest


class _Told(NamedTuple):
    """What callers are told."""

    answers: Sequence[Answer]
    failures: Sequence[tuple[Caller, KafkaError]] = ()


class CoordinatorRuntime(Generic[S]):
    """One shard and its log."""

    def __init__(
        self,
        name: str,
        shard: S,
        writer: PartitionWriter,
        clock: Callable[[], Now],
        *,
        wants_flush: Callable[[], None],
        failed: Callable[[], None],
        codec: int = Codec.NONE,
    ) -> None:
        """``wants_flush`` is called when there is something to `flush` at the end of the turn; ``failed`` when the
        shard cannot go on and has to be loaded again. ``codec`` compresses the batches."""
        self.name = name
        self.shard = shard
        self.state = State.LOADING
        self.load_offset = 0
        """The next offset that loading looks at."""
        self.loaded_records = 0
        self._writer = writer
        self._clock = clock
        self._wants_flush = wants_flush
        self._failed = failed
        self._codec = codec
        self._unwritten: list[_Batch] = []
        self._unwritten_groups: set[str] = set()  # those whose records are in _unwritten
        self._unsafe: deque[tuple[int, Sequence[Answer]]] = deque()  # (the high watermark they wait for, answers)

    # -- requests ------------------------------------------------------------------------------------------------------

    def run(self, group_id: str, caller: Caller, decide: Decide[S], *, verification: Any = None) -> None:
        """Decide a request for one group. The caller is answered here, at the end of the turn, or by a later one.

        ``verification`` is for the log, which wants it for the first records of a transaction (KIP-890).
        """
        try:
            self.check_active()
            if group_id in self._unwritten_groups:
                self._write_all()
                self.check_active()
            now = self._clock()
            outcome = decide(self.shard, now)
            if outcome.records:
                self._add(group_id, outcome, now, verification)
                return
        except KafkaError as error:
            self._fail(caller, error)
            return
        except Exception:
            logger.exception("%s: a decision for the group %r failed by our own fault", self.name, group_id)
            self._fail(caller, _fault())
            return
        self._answer_when_safe(outcome.answers)

    def read(self, group_id: str | None = None) -> S:
        """The shard, to look at one group, or at all of them: everything that was decided for them is in it.

        Raises:
            KafkaError: as `check_active`.
        """
        self.check_active()
        if group_id is None or group_id in self._unwritten_groups:
            self._write_all()
            self.check_active()
        return self.shard

    def check_active(self) -> None:
        """Raise COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR unless requests are served."""
        if self.state is not State.ACTIVE:
            loading = self.state is State.LOADING
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NOT_COORDINATOR)

    def tick(self) -> None:
        """Decide what is due, once everything that was decided before is replayed: that may end a deadline's group.

        It gives way after `_TICK_MS`: then `next_deadline` is in the past.
        """
        self._write_all()
        if self.state is not State.ACTIVE:
            return
        started = self._clock().monotonic_ms
        # What becomes due meanwhile, and what does not fit into this turn, is for the next call.
        while (due := self.shard.deadlines.pop_due(started)) is not None:
            self.decide(due.group_id, due.action)
            if self._clock().monotonic_ms - started >= _TICK_MS:
                return

    def decide(self, group_id: str, action: Callable[[Now], Outcome]) -> None:
        """Decide what nobody asked for: a deadline, a change of topics. Without a group it may be about all of them."""
        if self.state is not State.ACTIVE:
            return
        if group_id in self._unwritten_groups or not group_id:
            self._write_all()
        try:
            now = self._clock()
            outcome = action(now)
            if outcome.records:
                self._add(group_id, outcome, now)
                if not group_id:
                    self._write_all()  # the next decision of any group must see it
                return
        except KafkaError as error:
            logger.warning("%s: a change of the group %r was refused: %s", self.name, group_id, error)
            return
        except Exception:
            logger.exception("%s: a deadline of the group %r failed by our own fault", self.name, group_id)
            return
        self._answer_when_safe(outcome.answers)

    def next_deadline(self) -> int | None:
        """When to call `tick`, in milliseconds of the monotonic clock."""
        return self.shard.deadlines.next() if self.state is State.ACTIVE else None

    # -- decide, append, replay, reply ---------------------------------------------------------------------------------

    def _add(self, group_id: str, outcome: Outcome, now: Now, verification: Any = None) -> None:
        """Have the records written at the end of the turn. Whatever is wrong with them, nobody is forgotten."""
        now_ms = now.epoch_ms
        encode = self.shard.encode
        encoded = []
        size = 0
        try:
            for record in outcome.records:
                key, value = encode(record)
                size += len(key) + (len(value) if value is not None else 0) + _RECORD_OVERHEAD
                encoded.append(LogRecord(0, now_ms, key, value))
        except Exception:
            logger.exception("%s: a record of the group %r cannot be encoded", self.name, group_id)
            self._tell(self._take_back(outcome, _fault()))
            return
        largest = self._writer.max_batch_bytes - _BATCH_OVERHEAD
        if size > largest:
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"A change of {size} bytes is too large.")
            self._tell(self._take_back(outcome, error))
            return
        unwritten = self._unwritten
        if not unwritten:
            self._wants_flush()
        if unwritten and unwritten[-1].has_room_for(outcome.producer, size, largest):
            batch = unwritten[-1]
        else:
            batch = _Batch(outcome.producer, verification)
            unwritten.append(batch)
        batch.outcomes.append(outcome)
        batch.records += encoded
        batch.size += size
        self._unwritten_groups.add(group_id)

    def flush(self) -> None:
        """Write what was decided, replay it, and answer."""
        if not self._unwritten:
            return
        batches, self._unwritten = self._unwritten, []
        self._unwritten_groups.clear()
        # Nobody is answered before all is written: who gets an answer may ask the next thing at once.
        for told in [self._write(batch) for batch in batches]:
            self._tell(told)
        if self._unsafe:
            self.high_watermark_changed()

    def _write_all(self) -> None:
        """Flush, also what answers bring about."""
        while self._unwritten:
            self.flush()

    def _write(self, batch: _Batch) -> _Told:
        """Append and replay; returns what can be told at once."""
        if self.state is not State.ACTIVE:  # since the batch before
            return self._take_back_all(batch, KafkaError(ErrorCode.NOT_COORDINATOR))
        try:
            end_offset = self._append(batch)
        except KafkaError as error:
            return self._take_back_all(batch, KafkaError(_APPEND_ERRORS.get(error.code, error.code), error.message))
        except Exception:
            # Nobody knows what of it is in the log.
            logger.exception("%s: an append failed by our own fault; the state is loaded again", self.name)
            self._give_up()
            return self._take_back_all(batch, KafkaError(ErrorCode.NOT_COORDINATOR))
        answers = [answer for outcome in batch.outcomes for answer in outcome.answers]
        producer_id = NO_PRODUCER_ID if batch.producer is None else batch.producer.id
        replay = self.shard.replay
        try:
            for outcome in batch.outcomes:
                for record in outcome.records:
                    replay(record, producer_id=producer_id)
                if outcome.replayed is not None:
                    outcome.replayed()
        except Exception:
            logger.exception("%s: a record could not be replayed; the state is loaded again", self.name)
            self._give_up()
            return _Told((), [(caller, KafkaError(ErrorCode.NOT_COORDINATOR)) for caller, _ in answers])
        if end_offset <= self._writer.high_watermark and not self._unsafe:
            return _Told(answers)
        self._unsafe.append((end_offset, answers))
        return _Told(())

    def _append(self, batch: _Batch) -> int:
        producer = batch.producer
        if producer is None:
            return self._writer.append(build_batch(batch.records, codec=self._codec))
        # Without sequences: a producer counts none for what coordinators write in its name (KIP-98).
        encoded = build_batch(
            batch.records, codec=self._codec, producer_id=producer.id, producer_epoch=producer.epoch, transactional=True
        )
        return self._writer.append(encoded, verification=batch.verification)

    def _give_up(self) -> None:
        """The state may be another one than the log's: it is loaded again."""
        self.state = State.CLOSED
        self._failed()

    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        coordinator_epoch: int,
        committed: bool,
        transaction_version: int,
    ) -> int:
        """End a producer's transaction in this partition by a marker, after everything that was decided before. Returns
        the offset after the marker; it is safe when the high watermark is there.

        Raises:
            KafkaError: there is no marker; as `check_active`, or as the log refused it.
        """
        self.check_active()
        self._write_all()
        self.check_active()
        try:
            end_offset = self._writer.append_marker(
                producer_id,
                producer_epoch,
                coordinator_epoch=coordinator_epoch,
                committed=committed,
                transaction_version=transaction_version,
            )
        except KafkaError:
            raise
        except Exception as error:
            # Nobody knows whether it is in the log.
            logger.exception("%s: a marker failed by our own fault; the state is loaded again", self.name)
            self._give_up()
            raise KafkaError(ErrorCode.NOT_COORDINATOR) from error
        try:
            self.shard.replay_end_transaction(producer_id, committed=committed)
        except Exception:
            # The marker is in the log, where loading finds it: the transaction has ended.
            logger.exception("%s: a marker could not be replayed; the state is loaded again", self.name)
            self._give_up()
            return end_offset
        if end_offset > self._writer.high_watermark:
            self._unsafe.append((end_offset, ()))  # who is told of what it made visible waits for it
        return end_offset

    def high_watermark_changed(self) -> None:
        """Release the answers that waited for it."""
        high_watermark = self._writer.high_watermark
        while self._unsafe and self._unsafe[0][0] <= high_watermark:
            self._answer(self._unsafe.popleft()[1])

    @property
    def is_unsafe(self) -> bool:
        """Whether what `read` shows is not below the high watermark yet: `answer_when_safe` is for who tells of it."""
        return bool(self._unsafe)

    def answer_when_safe(self, caller: Caller, response: Any) -> None:
        """Give this answer, which tells of the present state, when all of that is below the high watermark."""
        self._answer_when_safe([(caller, response)])

    def _answer_when_safe(self, answers: Sequence[Answer]) -> None:
        # It wrote nothing, but may tell of what was written before: of a group that another leader would not know.
        if self._unsafe and answers:
            self._unsafe.append((self._unsafe[-1][0], answers))
        else:
            self._answer(answers)

    @staticmethod
    def _answer(answers: Sequence[Answer]) -> None:
        for caller, response in answers:
            try:
                caller.reply(response)
            except Exception:  # the others must not wait for ever
                logger.exception("An answer could not be given")

    @staticmethod
    def _fail(caller: Caller, error: KafkaError) -> None:
        try:
            caller.fail(error)
        except Exception:  # as above
            logger.exception("A refusal could not be told")

    def _tell(self, told: _Told) -> None:
        self._answer(told.answers)
        for caller, error in told.failures:
            self._fail(caller, error)

    def _take_back(self, outcome: Outcome, error: KafkaError) -> _Told:
        """Its records are refused."""
        answered: Sequence[Answer] = ()
        if outcome.refused is not None:
            try:
                answered = outcome.refused(error)
            except Exception:
                logger.exception("%s: a refused change could not be taken back", self.name)
        done = {id(caller) for caller, _ in answered}
        return _Told(answered, [(caller, error) for caller, _ in outcome.answers if id(caller) not in done])

    def _take_back_all(self, batch: _Batch, error: KafkaError) -> _Told:
        told = [self._take_back(outcome, error) for outcome in batch.outcomes]
        return _Told([one for each in told for one in each.answers], [one for each in told for one in each.failures])

    # -- loading and leaving -------------------------------------------------------------------------------------------

    def load(self, batch: RecordBatch) -> Iterator[None]:
        """Replay a batch of the log, yielding now and then, so that others can be served in between.

        What cannot be decoded is left out with a line in the log, for the first records of a batch: one broken record
        must not make a group's offsets unreachable.

        Raises:
            InvalidRecordsError: the batch cannot be taken apart.
        """
        producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
        if batch.is_control:
            for record in iter_records(batch):
                self._replay_marker(record, batch.producer_id)
        else:
            decode, replay = self.shard.decode, self.shard.replay
            left_out = 0
            for number, record in enumerate(iter_records(batch), 1):
                if not number % _RECORDS_OF_A_STEP:
                    yield
                try:
                    if record.key is None:
                        raise MalformedMessage("it has no key", 0)
                    decoded = decode(record.key, record.value)
                except MalformedMessage as error:
                    left_out += 1
                    if left_out <= _LEFT_OUT_SHOWN:
                        logger.warning(
                            "%s: the record at offset %d cannot be read and is left out: %s",
                            self.name, record.offset, error,
                        )  # fmt: skip
                    continue
                if decoded is not None:
                    replay(decoded, producer_id=producer_id)
            if left_out > _LEFT_OUT_SHOWN:
                logger.warning(
                    "%s: %d more records of the batch at offset %d are left out",
                    self.name,
                    left_out - _LEFT_OUT_SHOWN,
                    batch.base_offset,
                )
            self.loaded_records += batch.record_count
        self.load_offset = batch.next_offset
        yield

    def _replay_marker(self, record: LogRecord, producer_id: int) -> None:
        # The key of a control record: version and type, of which 0 is abort and 1 commit (KIP-98).
        kind = int.from_bytes((record.key or b"")[2:4], "big")
        if kind in (0, 1):
            self.shard.replay_end_transaction(producer_id, committed=kind == 1)

    def activate(self) -> None:
        """Loading is through: serve."""
        assert self.state is State.LOADING
        self.state = State.ACTIVE
        if self.load_offset > self._writer.high_watermark:
            self._unsafe.append((self.load_offset, ()))
        self.decide("", self.shard.loaded)

    def close(self) -> None:
        """Serve no more: the partition has another leader, or the server stops."""
        self._write_all()
        self.state = State.CLOSED
        error = KafkaError(ErrorCode.NOT_COORDINATOR)
        for caller in self.shard.resign():
            self._fail(caller, error)
        while self._unsafe:
            for caller, _ in self._unsafe.popleft()[1]:
                self._fail(caller, error)


def _fault() -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The server has made a mistake; its log says more.")
