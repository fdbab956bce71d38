"""A producer for one transaction: librdkafka's, with its errors sorted into two kinds.

Either a retry would not help, or this attempt is over and the next one determines how far it came. After any error, no
part of an open transaction becomes visible. It is aborted here, by the next task that initializes the transactional
id, or by the server when the transaction times out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from .errors import AttemptFailedError, ExactlyOnceError
from .settings import ClientSettings

# How long the server may be unavailable, or busy with aborting an older attempt, before this attempt fails.
_PATIENCE_S = 90.0
_ABORT_S = 15.0
_NO_ROOM_S = 0.5

# Kafka's names of permanent errors, and what to do about them.
_LASTING: dict[str, str] = {
    "MSG_SIZE_TOO_LARGE": "raise message.max.bytes in client=, and max.message.bytes of the topic",
    "INVALID_MSG_SIZE": "raise message.max.bytes in client=, and max.message.bytes of the topic",
    "RECORD_LIST_TOO_LARGE": "raise max.message.bytes of the topic, or lower batch.size in client=",
    "UNKNOWN_TOPIC": "create the topic, and restart the query",
    "UNKNOWN_TOPIC_OR_PART": "create the topic, and restart the query",
    "TOPIC_EXCEPTION": "Kafka does not allow this topic name",
    "UNKNOWN_PARTITION": "a row names a partition that the topic does not have",
    "INVALID_TRANSACTION_TIMEOUT": "lower transaction_timeout_ms; the server's transaction.max.timeout.ms is the limit",
    "TOPIC_AUTHORIZATION_FAILED": "the user of the query must be allowed to write to the topic",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "the user of the query must be allowed to use the transactional id",
    "CLUSTER_AUTHORIZATION_FAILED": "the user of the query must be allowed to produce idempotently",
    "INVALID_TIMESTAMP": "the topic rejects the current time as a timestamp",
    "INVALID_RECORD": "the topic rejects such a record (a compacted topic requires keys)",
    "POLICY_VIOLATION": "the server's policy rejects it",
    "UNSUPPORTED_VERSION": "the server is too old for transactions",
    "UNSUPPORTED_FEATURE": "the server is too old for transactions",
}
_FENCED = ("FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")


class TransactionalProducer:
    """One transaction, from the initialization of the transactional id to the commit."""

    def __init__(self, settings: ClientSettings, transactional_id: str) -> None:
        from confluent_kafka import Producer

        self._id = transactional_id
        self._timeout_ms = settings.transaction_timeout_ms
        self._refused: Any = None
        self._refused_topic = ""
        self._begun_at: float | None = None
        self._producer = Producer({**settings.producer(transactional_id), "on_delivery": self._on_delivery})

    def initialize(self) -> None:
        """Initialize the transactional id. Other producers with it are fenced, and their transactions ended."""
        with self._explained("the transactional id cannot be initialized"):
            self._repeated(self._producer.init_transactions)

    def begin(self) -> None:
        with self._explained("a transaction cannot be started"):
            self._producer.begin_transaction()
            self._begun_at = time.monotonic()

    def send(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> None:
        """Enqueue a record. This call or any later one may report its rejection."""
        placed = {} if partition is None else {"partition": partition}
        with self._explained(f"a row for {topic} cannot be sent"):
            while True:
                try:
                    self._producer.produce(topic, value, key, headers=list(headers), **placed)
                    break
                except BufferError:
                    self._producer.poll(_NO_ROOM_S)
            self._producer.poll(0)
        self._check_refused()

    def commit(self) -> None:
        """Commit all records, or none. When this returns, all are committed."""
        with self._explained("the rows cannot be sent"):
            if self._producer.flush(_PATIENCE_S) and not self._refused:
                raise AttemptFailedError(f"{self._id}: the server has not responded for {_PATIENCE_S:g} seconds")
        self._check_refused()
        with self._explained("the transaction cannot be committed"):
            self._repeated(self._producer.commit_transaction)

    def abort(self) -> None:
        """Abort the transaction, if the server can be reached. Otherwise the next attempt does it."""
        from confluent_kafka import KafkaException

        if self._begun_at is None:
            return
        try:
            self._producer.abort_transaction(_ABORT_S)
        except (KafkaException, SystemError):
            # The transaction has already ended (fenced, timed out), or the server is unavailable.
            self._producer.purge()

    def _repeated(self, call: Any) -> None:
        """Repeat a call until the server has responded. librdkafka then continues the same operation."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                call(max(1.0, deadline - time.monotonic()))
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() >= deadline:
                    raise

    def _on_delivery(self, error: Any, message: Any) -> None:
        # Records after a rejected one are purged. That is not the reason, even if their reports arrive first.
        if error is not None and (self._refused is None or _is_purged(self._refused)):
            self._refused, self._refused_topic = error, message.topic()

    def _check_refused(self) -> None:
        if self._refused is not None and _is_purged(self._refused):
            self._serve_delivery_reports()
        if self._refused is not None:
            raise self._classified(self._refused, f"the server rejected a row for {self._refused_topic}")

    def _serve_delivery_reports(self) -> None:
        """Serve the remaining reports: after a rejection, every record is reported soon."""
        from confluent_kafka import KafkaException

        with suppress(KafkaException, SystemError):
            self._producer.flush(_ABORT_S)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Wraps calls of librdkafka.

        confluent-kafka raises a fatal error while it delivers other reports. One of these, or the call itself, then
        fails with a SystemError.
        """
        from confluent_kafka import KafkaException

        try:
            yield
        except (KafkaException, SystemError) as error:
            cause = error.args[0] if isinstance(error, KafkaException) else self._fatal_error(error)
            # The report of a rejected record is more specific.
            if self._refused is not None and not _is_fenced(cause):
                self._check_refused()
            raise self._classified(cause, what) from error

    def _fatal_error(self, error: SystemError) -> Any:
        """The error that has ended the producer, if it was lost: any further call returns it."""
        from confluent_kafka import KafkaException

        try:
            self._producer.begin_transaction()
        except KafkaException as fatal:
            return fatal.args[0]
        raise error

    def _classified(self, error: Any, what: str) -> Exception:
        text = f"{self._id}: {what}: {error.str()} ({_name(error)})"
        if _is_fenced(error):
            return AttemptFailedError(f"{text}. {self._fencing_reason()}")
        if _name(error) in _LASTING:
            return ExactlyOnceError(f"{text}: {_LASTING[_name(error)]}")
        return AttemptFailedError(text)

    def _fencing_reason(self) -> str:
        lasted_ms = 0.0 if self._begun_at is None else (time.monotonic() - self._begun_at) * 1000
        if lasted_ms >= self._timeout_ms:
            return (
                f"The transaction was open for {lasted_ms:.0f} ms, longer than transaction_timeout_ms "
                f"({self._timeout_ms}): raise that limit, or use smaller batches (maxOffsetsPerTrigger)"
            )
        return (
            "Another attempt at the same part, another query of this name, or (with writer_column) another partition "
            "with this writer's number has taken over"
        )


def _name(error: Any) -> str:
    name: str = error.name()
    return name.lstrip("_")


def _is_purged(error: Any) -> bool:
    return _name(error) in ("PURGE_QUEUE", "PURGE_INFLIGHT")


def _is_fenced(error: Any) -> bool:
    return _name(error) in _FENCED
