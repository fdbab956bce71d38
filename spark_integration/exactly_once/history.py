"""The topic of a query's batches: each writer has a partition, which contains its markers.

The topic is compacted, because only the last marker counts. The query's first batch creates it. Only a writer's own
transactions write to its partition. So once its transactional id has been initialized, the partition has no open
transaction, and no more records will be committed to it.
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
    # Only full segments are compacted; with the default of 1 GB a segment would never be full.
    "segment.bytes": "16777216",
}
_ANSWER_S = 30.0
_AGAIN_S = 0.1
# Temporary errors: the topic was just created, the leader has moved, the server has not restarted yet.
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
    "DESTROY_BROKER",  # the client has just replaced its connection to a broker
)
# An attempt leaves a marker and the control record of its transaction, or only the control record.
_LOOK_BACK = 16


def find_history(settings: ClientSettings, topic: str) -> int | None:
    """The number of writers that have markers in the topic; None if the topic does not exist.

    ExactlyOnceError if the topic would lose markers.
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
            f"{topic} would lose the markers of written batches: its cleanup.policy is {policy}. Set it to compact, or "
            "name another topic with batches_topic="
        )
    return found.partition_count


def create_history(settings: ClientSettings, topic: str, writers: int) -> None:
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
        """The last committed marker of a writer."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + _ANSWER_S
        while True:
            try:
                return self._last(writer)
            except KafkaException as error:
                name = error.args[0].name().lstrip("_")
                if name not in _PASSING or time.monotonic() > deadline:
                    text = f"the last marker cannot be read from {self._topic}: {error.args[0].str()} ({name})"
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
            # These are only failed attempts. A successful one may be further back.
            back *= 8

    def _last_from(self, writer: int, start: int) -> bytes | None:
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        self._consumer.assign([TopicPartition(self._topic, writer, start)])
        last: bytes | None = None
        while True:
            message = self._consumer.poll(_ANSWER_S)
            if message is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{self._topic} was not read to the end"))
            if message.error() is None:
                last = message.value() or b""
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return last
            else:
                raise KafkaException(message.error())
