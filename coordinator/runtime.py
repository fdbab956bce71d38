"""The runtime of a shard: decide, append, replay, reply.

A coordinator is sharded by the partitions of its internal topic (`__consumer_offsets` for groups): the leader of a
partition coordinates the keys (group IDs, transactional IDs) that hash to it. A `Shard` is the state machine of one
partition. This module gives it order and durability:

* A request is decided immediately. Its records wait for the end of the iteration of the event loop, so that the
  requests of one iteration share a batch and a write. Then they are appended and replayed, and the responses are sent.
* A decision sees all earlier decisions. Pending records are not replayed yet, so a decision for the same key writes
  them first; other keys do not see each other's records.
* Records of one outcome are appended together or not at all. Records of a transaction do not share their batch with
  other outcomes. If an append is rejected, nothing is replayed: hard state cannot differ from the log, and each caller
  gets the error.
* Responses are sent when the records are below the high watermark. A response without records waits for the records
  before it. So do effects, which the shell takes (`take_effects`).
* A transaction ends with its marker in the log (`end_transaction`): all earlier decisions are written before it.
* Loading replays the log in slices. Until it is complete, requests fail with COORDINATOR_LOAD_IN_PROGRESS.
* An internal error (an exception in a decision) fails one request. An internal error in a replay would leave the state
  different from the log, so the shard is closed and loaded again.

This module uses no clock, event loop or files: the shell calls `flush` at the end of the iteration in which
`request_flush` was called, `tick` when the next deadline is due, `load` for every batch of the log and then `activate`.
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
from .outcome import Caller, Now, Outcome, Producer, Record, Reply

logger = logging.getLogger(__name__)


class Shard(Protocol):
    """The state machine of one partition of a coordinator's topic."""

    @property
    def deadlines(self) -> Deadlines:
        """The deadlines of the shard."""

    def encode(self, record: Record) -> tuple[bytes, bytes | None]:
        """Key and value as they are stored in the log."""

    def decode(self, key: bytes, value: bytes | None) -> Record | None:
        """The record in these bytes; None for an unknown type, which is ignored.

        Raises MalformedMessage if the bytes are invalid.
        """

    def replay(self, record: Record, *, producer_id: int) -> None:
        """Change the hard state. Accepts everything that a log may contain; loading restores the decided state.

        ``producer_id`` is that of the record's transaction, -1 outside of transactions.
        """

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """A transaction ended: its records take effect, or are discarded."""

    def loaded(self, now: Now) -> Outcome:
        """The log has been replayed to its end: start to serve, with new deadlines."""

    def resign(self) -> Sequence[Caller]:
        """Stop serving. Returns the pending callers, whose clients must look for the coordinator again."""


class PartitionWriter(Protocol):
    """The log of the shard's partition, as a runtime uses it."""

    @property
    def max_batch_bytes(self) -> int:
        """The maximum size of a batch in bytes."""

    @property
    def high_watermark(self) -> int:
        """Records below this offset are committed."""

    def append(self, batch: bytes, *, verification: Any = None) -> int:
        """Append one batch; returns the offset after its last record.

        ``verification`` is what the log returned when the verification of the batch's transaction was started
        (KIP-890).

        Raises:
            KafkaError: the batch was not appended.
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
            KafkaError: the marker was not appended.
        """


S = TypeVar("S", bound=Shard)

Decide = Callable[[S, Now], Outcome]

# The size of a batch without its records is at least 61 bytes; this is the maximum for a record's lengths and deltas.
_BATCH_OVERHEAD = 61
_RECORD_OVERHEAD = 32
# The maximum duration of a call of `tick`, except for its last decision.
_TICK_MS = 2
# The number of unreadable records of a batch that are logged.
_SKIPPED_LOGGED_MAX = 10
# Loading yields after this number of records: about a tenth of a millisecond.
_RECORDS_PER_STEP = 32

# The errors of appends, as the coordinator's clients get them: they retry, look for the coordinator again, or learn
# that their request is too large.
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
    """The state of a runtime: it is loading, serves, or is closed."""

    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class _Batch:
    """Outcomes whose records are written together, all of one transaction or none of any."""

    __slots__ = ("outcomes", "producer", "records", "size", "verification")

    def __init__(self, producer: Producer | None, verification: Any) -> None:
        self.producer = producer
        self.verification = verification
        self.outcomes: list[Outcome] = []
        self.records: list[LogRecord] = []
        self.size = 0

    def has_room_for(self, producer: Producer | None, size: int, largest: int) -> bool:
        """Whether the records of another outcome may be added."""
        return producer is None and self.producer is None and self.size + size <= largest


class _Completion(NamedTuple):
    """Responses to send, and effects for the shell."""

    replies: Sequence[Reply]
    failures: Sequence[tuple[Caller, KafkaError]] = ()
    effects: Sequence[object] = ()


class CoordinatorRuntime(Generic[S]):
    """One shard and its log."""

    def __init__(
        self,
        name: str,
        shard: S,
        writer: PartitionWriter,
        clock: Callable[[], Now],
        *,
        request_flush: Callable[[], None],
        failed: Callable[[], None],
        codec: int = Codec.NONE,
    ) -> None:
        """``request_flush`` is called when there is something to `flush` at the end of the iteration of the event loop.

        ``failed`` is called when the shard cannot continue and must be loaded again. ``codec`` compresses the batches.
        """
        self.name = name
        self.shard = shard
        self.state = State.LOADING
        self.load_offset = 0
        """The next offset to load."""
        self.loaded_records = 0
        self._writer = writer
        self._clock = clock
        self._request_flush = request_flush
        self._failed = failed
        self._codec = codec
        self._unwritten: list[_Batch] = []
        self._unwritten_keys: set[str] = set()  # the keys of the records in _unwritten
        self._uncommitted: deque[tuple[int, _Completion]] = (
            deque()
        )  # (the required high watermark, what to release then)
        self._effects: list[object] = []  # released, and not taken yet

    # -- requests ------------------------------------------------------------------------------------------------------

    def run(self, key: str, caller: Caller, decide: Decide[S], *, verification: Any = None) -> None:
        """Decide a request for one key. The caller is completed during this call, by `flush`, or by a later decision.

        ``verification`` is passed to the log, which needs it for the first records of a transaction (KIP-890).
        """
        try:
            self.check_active()
            if key in self._unwritten_keys:
                self._write_all()
                self.check_active()
            now = self._clock()
            outcome = decide(self.shard, now)
            if outcome.records:
                self._add(key, outcome, now, verification)
                return
        except KafkaError as error:
            self._fail(caller, error)
            return
        except Exception:
            logger.exception("%s: a request of %r failed with an unexpected error", self.name, key)
            self._fail(caller, _fault())
            return
        self._complete_when_committed(_Completion(outcome.replies, effects=outcome.effects))

    def read(self, key: str | None = None) -> S:
        """The shard, for reading one key or all keys: it contains all decisions for them.

        Raises:
            KafkaError: as `check_active`.
        """
        self.check_active()
        if key is None or key in self._unwritten_keys:
            self._write_all()
            self.check_active()
        return self.shard

    def check_active(self) -> None:
        """Raise COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR unless the runtime is active."""
        if self.state is not State.ACTIVE:
            loading = self.state is State.LOADING
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NOT_COORDINATOR)

    def tick(self) -> None:
        """Decide what is due, after all earlier decisions are replayed: they may remove a deadline's key.

        It returns after `_TICK_MS`: then `next_deadline` is in the past.
        """
        self._write_all()
        if self.state is not State.ACTIVE:
            return
        started = self._clock().monotonic_ms
        # Deadlines that become due in the meantime, or do not fit into this call, are left to the next call.
        while (due := self.shard.deadlines.pop_due(started)) is not None:
            self.decide(due.key, due.action)
            if self._clock().monotonic_ms - started >= _TICK_MS:
                return

    def decide(self, key: str, action: Callable[[Now], Outcome]) -> None:
        """Make a decision without a request: a deadline, a change of topics. An empty key means all keys."""
        if self.state is not State.ACTIVE:
            return
        if key in self._unwritten_keys or not key:
            self._write_all()
        try:
            now = self._clock()
            outcome = action(now)
            if outcome.records:
                self._add(key, outcome, now)
                if not key:
                    self._write_all()  # the next decision for any key must see it
                return
        except KafkaError as error:
            logger.warning("%s: a change of %r was rejected: %s", self.name, key, error)
            return
        except Exception:
            logger.exception("%s: a timer of %r failed with an unexpected error", self.name, key)
            return
        self._complete_when_committed(_Completion(outcome.replies, effects=outcome.effects))

    def next_deadline(self) -> int | None:
        """When to call `tick`, in milliseconds of the monotonic clock."""
        return self.shard.deadlines.next() if self.state is State.ACTIVE else None

    # -- decide, append, replay, reply ---------------------------------------------------------------------------------

    def _add(self, key: str, outcome: Outcome, now: Now, verification: Any = None) -> None:
        """Queue the records for the next `flush`. If they are invalid, every caller gets an error."""
        now_ms = now.epoch_ms
        encode = self.shard.encode
        encoded = []
        size = 0
        try:
            for record in outcome.records:
                encoded_key, value = encode(record)
                size += len(encoded_key) + (len(value) if value is not None else 0) + _RECORD_OVERHEAD
                encoded.append(LogRecord(0, now_ms, encoded_key, value))
        except Exception:
            logger.exception("%s: cannot encode a record of %r", self.name, key)
            self._complete(self._roll_back(outcome, _fault()))
            return
        largest = self._writer.max_batch_bytes - _BATCH_OVERHEAD
        if size > largest:
            error = KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"The records of {size} bytes exceed the maximum size of a batch."
            )
            self._complete(self._roll_back(outcome, error))
            return
        unwritten = self._unwritten
        if not unwritten:
            self._request_flush()
        if unwritten and unwritten[-1].has_room_for(outcome.producer, size, largest):
            batch = unwritten[-1]
        else:
            batch = _Batch(outcome.producer, verification)
            unwritten.append(batch)
        batch.outcomes.append(outcome)
        batch.records += encoded
        batch.size += size
        self._unwritten_keys.add(key)

    def flush(self) -> None:
        """Write the pending decisions, replay them, and send the responses."""
        if not self._unwritten:
            return
        batches, self._unwritten = self._unwritten, []
        self._unwritten_keys.clear()
        # All batches are written before the first response: a client that gets a response may send its next request.
        for completion in [self._write(batch) for batch in batches]:
            self._complete(completion)
        if self._uncommitted:
            self.high_watermark_changed()

    def _write_all(self) -> None:
        """Flush until nothing is pending: responses may cause more decisions."""
        while self._unwritten:
            self.flush()

    def _write(self, batch: _Batch) -> _Completion:
        """Append and replay. Returns what can be released immediately."""
        if self.state is not State.ACTIVE:  # closed since the previous batch
            return self._roll_back_all(batch, KafkaError(ErrorCode.NOT_COORDINATOR))
        try:
            end_offset = self._append(batch)
        except KafkaError as error:
            return self._roll_back_all(batch, KafkaError(_APPEND_ERRORS.get(error.code, error.code), error.message))
        except Exception:
            # It is unknown which part of it is in the log.
            logger.exception("%s: an append failed with an unexpected error; reloading the state", self.name)
            self._give_up()
            return self._roll_back_all(batch, KafkaError(ErrorCode.NOT_COORDINATOR))
        replies = [reply for outcome in batch.outcomes for reply in outcome.replies]
        producer_id = NO_PRODUCER_ID if batch.producer is None else batch.producer.id
        replay = self.shard.replay
        try:
            for outcome in batch.outcomes:
                for record in outcome.records:
                    replay(record, producer_id=producer_id)
                if outcome.replayed is not None:
                    outcome.replayed()
        except Exception:
            logger.exception("%s: replaying a record failed; reloading the state", self.name)
            self._give_up()
            return _Completion((), [(caller, KafkaError(ErrorCode.NOT_COORDINATOR)) for caller, _ in replies])
        completion = _Completion(replies, effects=[effect for outcome in batch.outcomes for effect in outcome.effects])
        if end_offset <= self._writer.high_watermark and not self._uncommitted:
            return completion
        self._uncommitted.append((end_offset, completion))
        return _Completion(())

    def _append(self, batch: _Batch) -> int:
        producer = batch.producer
        if producer is None:
            return self._writer.append(build_batch(batch.records, codec=self._codec))
        # Without sequence numbers: coordinators' records on behalf of a producer do not count in its sequence (KIP-98).
        encoded = build_batch(
            batch.records, codec=self._codec, producer_id=producer.id, producer_epoch=producer.epoch, transactional=True
        )
        return self._writer.append(encoded, verification=batch.verification)

    def _give_up(self) -> None:
        """The state may differ from the log: load it again."""
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
        """End a producer's transaction in this partition with a marker, after all earlier decisions.

        Returns the offset after the marker. The marker is committed when the high watermark has reached this offset.

        Raises:
            KafkaError: the marker was not written: an error of `check_active`, or of the log.
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
            # It is unknown whether the marker is in the log.
            logger.exception("%s: writing a marker failed with an unexpected error; reloading the state", self.name)
            self._give_up()
            raise KafkaError(ErrorCode.NOT_COORDINATOR) from error
        try:
            self.shard.replay_end_transaction(producer_id, committed=committed)
        except Exception:
            # The marker is in the log, where loading finds it: the transaction has ended.
            logger.exception("%s: replaying a marker failed; reloading the state", self.name)
            self._give_up()
            return end_offset
        if end_offset > self._writer.high_watermark:
            self._uncommitted.append(
                (end_offset, _Completion(()))
            )  # responses about state that it made visible wait for it
        return end_offset

    def high_watermark_changed(self) -> None:
        """Release the responses and effects that waited for the high watermark."""
        high_watermark = self._writer.high_watermark
        while self._uncommitted and self._uncommitted[0][0] <= high_watermark:
            self._complete(self._uncommitted.popleft()[1])

    def take_effects(self) -> Sequence[object]:
        """The effects of decisions that are below the high watermark now, each once, in the order of decisions.

        If the outcomes of the shard have effects, this must be called after every call that decides, flushes or moves
        the high watermark.
        """
        if not self._effects:
            return ()
        effects, self._effects = self._effects, []
        return effects

    @property
    def has_uncommitted(self) -> bool:
        """Whether part of the state from `read` is above the high watermark: use `respond_when_committed`."""
        return bool(self._uncommitted)

    def respond_when_committed(self, caller: Caller, response: Any) -> None:
        """Send this response, which describes the current state, when all of that is below the high watermark."""
        self._complete_when_committed(_Completion([(caller, response)]))

    def _complete_when_committed(self, completion: _Completion) -> None:
        # It has no records, but may describe earlier records: a group, for example, that another leader would not know.
        if self._uncommitted and (completion.replies or completion.effects):
            self._uncommitted.append((self._uncommitted[-1][0], completion))
        else:
            self._complete(completion)

    @staticmethod
    def _reply_all(replies: Sequence[Reply]) -> None:
        for caller, response in replies:
            try:
                caller.reply(response)
            except Exception:  # the other callers must not wait forever
                logger.exception("Sending a response failed with an unexpected error")

    @staticmethod
    def _fail(caller: Caller, error: KafkaError) -> None:
        try:
            caller.fail(error)
        except Exception:  # as above
            logger.exception("Sending an error response failed with an unexpected error")

    def _complete(self, completion: _Completion) -> None:
        self._reply_all(completion.replies)
        for caller, error in completion.failures:
            self._fail(caller, error)
        self._effects += completion.effects

    def _roll_back(self, outcome: Outcome, error: KafkaError) -> _Completion:
        """The records of the outcome were rejected: roll it back."""
        answered: Sequence[Reply] = ()
        if outcome.refused is not None:
            try:
                answered = outcome.refused(error)
            except Exception:
                logger.exception("%s: rolling back a rejected change failed with an unexpected error", self.name)
        done = {id(caller) for caller, _ in answered}
        return _Completion(answered, [(caller, error) for caller, _ in outcome.replies if id(caller) not in done])

    def _roll_back_all(self, batch: _Batch, error: KafkaError) -> _Completion:
        completion = [self._roll_back(outcome, error) for outcome in batch.outcomes]
        return _Completion(
            [one for each in completion for one in each.replies], [one for each in completion for one in each.failures]
        )

    # -- loading and closing -------------------------------------------------------------------------------------------

    def load(self, batch: RecordBatch) -> Iterator[None]:
        """Replay a batch of the log. Yields at intervals, so that other work can run in between.

        Records that cannot be decoded are skipped, and the first ones of a batch are logged: one invalid record must
        not make a group's offsets unreachable.

        Raises:
            InvalidRecordsError: the batch cannot be parsed.
        """
        producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
        if batch.is_control:
            for record in iter_records(batch):
                self._replay_marker(record, batch.producer_id)
        else:
            decode, replay = self.shard.decode, self.shard.replay
            skipped = 0
            for number, record in enumerate(iter_records(batch), 1):
                if not number % _RECORDS_PER_STEP:
                    yield
                try:
                    if record.key is None:
                        raise MalformedMessage("the record has no key", 0)
                    decoded = decode(record.key, record.value)
                except MalformedMessage as error:
                    skipped += 1
                    if skipped <= _SKIPPED_LOGGED_MAX:
                        logger.warning(
                            "%s: skipping the record at offset %d, which cannot be decoded: %s",
                            self.name, record.offset, error,
                        )  # fmt: skip
                    continue
                if decoded is not None:
                    replay(decoded, producer_id=producer_id)
            if skipped > _SKIPPED_LOGGED_MAX:
                logger.warning(
                    "%s: skipping %d more records of the batch at offset %d",
                    self.name,
                    skipped - _SKIPPED_LOGGED_MAX,
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
        """Loading is complete: start to serve."""
        assert self.state is State.LOADING
        self.state = State.ACTIVE
        if self.load_offset > self._writer.high_watermark:
            self._uncommitted.append((self.load_offset, _Completion(())))
        self.decide("", self.shard.loaded)

    def close(self) -> None:
        """Stop serving: the partition has another leader, or the server shuts down."""
        self._write_all()
        self.state = State.CLOSED
        error = KafkaError(ErrorCode.NOT_COORDINATOR)
        for caller in self.shard.resign():
            self._fail(caller, error)
        while self._uncommitted:
            for caller, _ in self._uncommitted.popleft()[1].replies:
                self._fail(caller, error)


def _fault() -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "Internal server error; see the server log.")
