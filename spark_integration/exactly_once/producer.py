"""A producer for one transaction: librdkafka's, with its errors sorted into two kinds.

Trying again would change nothing, or this attempt is over and the next one finds out how far it came. Whatever the
error, nothing of an open transaction becomes visible: it is aborted here, or by whoever takes over the transactional
id, or by the server when its time is up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from .errors import AttemptFailedError, ExactlyOnceError
from .settings import ClientSettings

# How long a server may be away, or be busy with ending an older attempt, before this one gives up.
_PATIENCE_S = 90.0
_ABORT_S = 15.0
_NO_ROOM_S = 0.5

# Kafka's names of errors that are the same the next time, and what is to be done.
_LASTING: dict[str, str] = {
    "MSG_SIZE_TOO_LARGE": "raise message.max.bytes in client=, and max.message.bytes of the topic",
    "INVALID_MSG_SIZE": "raise message.max.bytes in client=, and max.message.bytes of the topic",
    "RECORD_LIST_TOO_LARGE": "raise max.message.bytes of the topic, or lower batch.size in client=",
    "UNKNOWN_TOPIC": "make the topic, and start the query again",
    "UNKNOWN_TOPIC_OR_PART": "make the topic, and start the query again",
    "TOPIC_EXCEPTION": "Kafka cannot have a topic of this name",
    "UNKNOWN_PARTITION": "a row names a partition that the topic does not have",
    "INVALID_TRANSACTION_TIMEOUT": "lower transaction_timeout_ms; the server's transaction.max.timeout.ms is the limit",
    "TOPIC_AUTHORIZATION_FAILED": "the user of the query must be allowed to write to the topic",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "the user of the query must be allowed to use the transactional id",
    "CLUSTER_AUTHORIZATION_FAILED": "the user of the query must be allowed to produce idempotently",
    "INVALID_TIMESTAMP": "the topic refuses the time of day as a timestamp",
    "INVALID_RECORD": "the topic does not take such a record (a compacted one wants keys)",
    "POLICY_VIOLATION": "the server's policy refuses it",
    "UNSUPPORTED_VERSION": "the server is too old for transactions",
    "UNSUPPORTED_FEATURE": "the server is too old for transactions",
}
_FENCED = ("FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")


class TransactionalProducer:
    """One transaction, from taking over the transactional id to the commit."""

    def __init__(self, settings: ClientSettings, transactional_id: str) -> None:
        from confluent_kafka import Producer

        self._id = transactional_id
        self._timeout_ms = settings.transaction_timeout_ms
        self._refused: Any = None
        self._refused_topic = ""
        self._begun_at: float | None = None
        self._producer = Producer({**settings.producer(transactional_id), "on_delivery": self._on_delivery})

    def take_over(self) -> None:
        """From here on nobody else writes in this id's name, and what others have begun is aborted or committed."""
        with self._explained("the transactional id cannot be taken over"):
            self._repeated(self._producer.init_transactions)

    def begin(self) -> None:
        with self._explained("a transaction cannot be begun"):
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
        """Hand over a record. It may be refused now or at any later call."""
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
        """All or nothing; when this returns, all."""
        with self._explained("the rows cannot be sent"):
            if self._producer.flush(_PATIENCE_S) and not self._refused:
                raise AttemptFailedError(f"{self._id}: the server has not answered for {_PATIENCE_S:g} seconds")
        self._check_refused()
        with self._explained("the transaction cannot be committed"):
            self._repeated(self._producer.commit_transaction)

    def abort(self) -> None:
        """Take back what was begun, if the server can be told. If not, the next attempt does it when it takes over."""
        from confluent_kafka import KafkaException

        if self._begun_at is None:
            return
        try:
            self._producer.abort_transaction(_ABORT_S)
        except (KafkaException, SystemError):
            # Ended already (fenced, timed out), or the server is away.
            self._producer.purge()

    def _repeated(self, call: Any) -> None:
        """Until the server has answered. librdkafka goes on with the same operation when it is called again."""
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
        # What follows a refusal is purged, and that is not the reason, even when its report comes first.
        if error is not None and (self._refused is None or _is_purged(self._refused)):
            self._refused, self._refused_topic = error, message.topic()

    def _check_refused(self) -> None:
        if self._refused is not None and _is_purged(self._refused):
            self._take_reports()
        if self._refused is not None:
            raise self._sorted(self._refused, f"the server has not taken a row for {self._refused_topic}")

    def _take_reports(self) -> None:
        """Those that have not come yet: after a refusal every record is answered soon."""
        from confluent_kafka import KafkaException

        with suppress(KafkaException, SystemError):
            self._producer.flush(_ABORT_S)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Around calls of librdkafka.

        confluent-kafka raises a fatal error in the middle of its other reports; then one of these fails, or the call
        itself, with a SystemError.
        """
        from confluent_kafka import KafkaException

        try:
            yield
        except (KafkaException, SystemError) as error:
            cause = error.args[0] if isinstance(error, KafkaException) else self._fatal_error(error)
            # The report of a record tells more than that one was refused.
            if self._refused is not None and not _is_fenced(cause):
                self._check_refused()
            raise self._sorted(cause, what) from error

    def _fatal_error(self, error: SystemError) -> Any:
        """What has ended the producer, where that was lost on the way: any further call is answered with it."""
        from confluent_kafka import KafkaException

        try:
            self._producer.begin_transaction()
        except KafkaException as fatal:
            return fatal.args[0]
        raise error

    def _sorted(self, error: Any, what: str) -> Exception:
        text = f"{self._id}: {what}: {error.str()} ({_name(error)})"
        if _is_fenced(error):
            return AttemptFailedError(f"{text}. {self._why_fenced()}")
        if _name(error) in _LASTING:
            return ExactlyOnceError(f"{text}: {_LASTING[_name(error)]}")
        return AttemptFailedError(text)

    def _why_fenced(self) -> str:
        lasted_ms = 0.0 if self._begun_at is None else (time.monotonic() - self._begun_at) * 1000
        if lasted_ms >= self._timeout_ms:
            return (
                f"The transaction was open for {lasted_ms:.0f} ms, longer than transaction_timeout_ms "
                f"({self._timeout_ms}): raise that, or let Spark make smaller batches (maxOffsetsPerTrigger)"
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
