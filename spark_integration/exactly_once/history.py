"""The topic of a query's batches: one partition for each writer, in it the markers of that writer.

It is compacted, because only the last marker counts, and made by the first batch of the query. Only a writer's own
transactions write to its partition. So once its transactional id is taken over there is no transaction open in it,
and what is committed is all that there will ever be.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from moldau.spark_integration.archive_cluster import KafkaCluster
from moldau.spark_integration.archive_layout import ArchiveError

from .errors import AttemptFailedError, ExactlyOnceError
from .marker import Marker
from .settings import ClientSettings

DEFAULT_WRITERS = 4

_CONFIGS = {
    "cleanup.policy": "compact",
    # A segment is compacted when it is full: with the default of 1 GB that would be never.
    "segment.bytes": "16777216",
}
_ANSWER_S = 30.0
_AGAIN_S = 0.1
# What passes: a topic that was just made, a leader that is elsewhere now, a server that is not back yet.
_PASSING = (
    "NOT_LEADER_FOR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "UNKNOWN_TOPIC_OR_PART",
    "UNKNOWN_PARTITION",
    "UNKNOWN_TOPIC",
    "OFFSET_NOT_AVAILABLE",
    "REQUEST_TIMED_OUT",
    "TIMED_OUT",
    "TRANSPORT",
    "ALL_BROKERS_DOWN",
)
# An attempt leaves a marker and the record that ends its transaction, or that record alone.
_LOOK_BACK = 16


def find_history(settings: ClientSettings, topic: str) -> int | None:
    """How many writers have their markers in the topic; None where there is none.

    ExactlyOnceError where the topic would lose markers.
    """
    try:
        cluster = KafkaCluster(settings.bootstrap_servers, settings.given)
        found = cluster.topic(topic)
        if found is None:
            return None
        policy = cluster.configs(topic).get("cleanup.policy")
    except ArchiveError as error:
        raise ExactlyOnceError(str(error)) from error
    if policy != "compact":
        raise ExactlyOnceError(
            f"{topic} keeps what was written, and would lose it: its cleanup.policy is {policy}. Set it to compact, or "
            "name another one with batches_topic="
        )
    return found.partition_count


def make_history(settings: ClientSettings, topic: str, writers: int) -> None:
    try:
        KafkaCluster(settings.bootstrap_servers, settings.given).create(topic, writers, _CONFIGS)
    except ArchiveError as error:
        raise ExactlyOnceError(str(error)) from error


class HistoryReader:
    """Reads last markers, in the driver and in tasks."""

    def __init__(self, settings: ClientSettings, topic: str) -> None:
        from confluent_kafka import Consumer

        self._topic = topic
        self._consumer = Consumer(settings.consumer())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._consumer.close()

    def last(self, writer: int) -> Marker | None:
        """The last marker of a writer that is committed."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + _ANSWER_S
        while True:
            try:
                return self._last(writer)
            except KafkaException as error:
                name = error.args[0].name().lstrip("_")
                if name not in _PASSING or time.monotonic() > deadline:
                    text = f"what was written before cannot be read from {self._topic}: {error.args[0].str()} ({name})"
                    raise AttemptFailedError(text) from error
            time.sleep(_AGAIN_S)

    def _last(self, writer: int) -> Marker | None:
        from confluent_kafka import TopicPartition

        where = TopicPartition(self._topic, writer)
        low, end = self._consumer.get_watermark_offsets(where, timeout=_ANSWER_S)
        back = _LOOK_BACK
        while True:
            start = max(low, end - back)
            text = self._last_from(writer, start)
            if text is not None:
                return Marker.from_json(text)
            if start == low:
                return None
            # Only attempts that have failed: further back there may be one that has not.
            back *= 8

    def _last_from(self, writer: int, start: int) -> bytes | None:
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        self._consumer.assign([TopicPartition(self._topic, writer, start)])
        last: bytes | None = None
        while True:
            message = self._consumer.poll(_ANSWER_S)
            if message is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{self._topic} is not read to its end"))
            if message.error() is None:
                last = message.value() or b""
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return last
            else:
                raise KafkaException(message.error())
