"""Queries an archive or a replay makes to a Kafka server, with confluent-kafka: topics, their offsets and settings.

They run before a JVM is started, so that a problem is reported within a second and in one sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .archive_layout import ArchiveError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_TIMEOUT_S = 15.0
_FIRST_ANSWER_S = 6.0
_RETRY_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that exists."""

    name: str
    topic_id: str
    partition_count: int


class KafkaCluster:
    """The server at an address. Every failure is an ArchiveError."""

    def __init__(self, bootstrap_servers: str, client: Mapping[str, str] | None = None) -> None:
        """``client``: settings of librdkafka, such as ``security.protocol``."""
        try:
            from confluent_kafka import KafkaException
            from confluent_kafka.admin import AdminClient
        except ImportError as error:
            raise ArchiveError("confluent-kafka is not installed: pip install confluent-kafka") from error

        self._bootstrap_servers = bootstrap_servers
        try:
            # librdkafka's messages on standard error would repeat, many times, the errors that are raised here.
            settings = {"bootstrap.servers": bootstrap_servers, "log_level": 0, **(client or {})}
            self._admin: AdminClient = AdminClient(settings)
            self._admin.list_topics("", timeout=_FIRST_ANSWER_S)
        except KafkaException as error:
            raise ArchiveError(
                f"no Kafka server responds at {bootstrap_servers}: {_words(error)}\nIs it running? `moldau doctor "
                f"--bootstrap-server {bootstrap_servers}` checks the connection."
            ) from error

    def topic(self, name: str) -> Topic | None:
        """The topic with this name, None if there is none."""
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        (answer,) = self._admin.describe_topics(TopicCollection([name]), request_timeout=_TIMEOUT_S).values()
        try:
            found = answer.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise ArchiveError(f"cannot describe {name}: {_words(error)}") from error
        except ValueError as error:
            raise ArchiveError(f"{name!r} is not a valid topic name") from error
        return Topic(name, str(found.topic_id), len(found.partitions))

    def ends(self, name: str, partitions: Iterable[int]) -> dict[int, int]:
        """The offset after the last record of each partition."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(name, partitions, OffsetSpec.latest())

    def beginnings(self, name: str, partitions: Iterable[int]) -> dict[int, int]:
        """The offset of the first record of each partition."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(name, partitions, OffsetSpec.earliest())

    def configs(self, name: str) -> dict[str, str | None]:
        """All settings of a topic, defaults included."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        with _explained(f"cannot read the settings of {name}"):
            resource = ConfigResource(ResourceType.TOPIC, name)
            (answer,) = self._admin.describe_configs([resource], request_timeout=_TIMEOUT_S).values()
            return {entry.name: entry.value for entry in answer.result().values()}

    def create(self, name: str, partition_count: int, configs: Mapping[str, str]) -> None:
        """Create a topic. Each partition has a leader when this returns."""
        from confluent_kafka.admin import NewTopic

        with _explained(f"cannot create the topic {name}"):
            new = NewTopic(name, partition_count, config=dict(configs))
            (answer,) = self._admin.create_topics(
                [new], operation_timeout=_TIMEOUT_S, request_timeout=2 * _TIMEOUT_S
            ).values()
            answer.result()
        self._wait_led(name, partition_count)

    def _wait_led(self, name: str, partition_count: int) -> None:
        """Wait for the leaders: metadata about a new topic may reach the brokers a moment after it was created."""
        import time

        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            with _explained(f"cannot describe {name}"):
                found = self._admin.list_topics(name, timeout=_TIMEOUT_S).topics[name].partitions
            if len(found) == partition_count and all(each.leader >= 0 for each in found.values()):
                return
            time.sleep(_RETRY_PAUSE_S)
        raise ArchiveError(f"the topic {name} was created but has no leader after {_TIMEOUT_S:g} seconds")

    def _offsets(self, name: str, partitions: Iterable[int], spec: Any) -> dict[int, int]:
        """Retries if a broker does not lead a partition yet, or no longer: a leader may have moved, and in Apache Kafka
        the leader of a new partition is in the metadata a moment before it serves the partition."""
        import time

        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        wanted = {TopicPartition(name, partition): spec for partition in partitions}
        if not wanted:
            return {}
        not_led = (
            KafkaError.NOT_LEADER_FOR_PARTITION,
            KafkaError.LEADER_NOT_AVAILABLE,
            KafkaError.UNKNOWN_TOPIC_OR_PART,
        )
        deadline = time.monotonic() + _TIMEOUT_S
        with _explained(f"cannot read the offsets of {name}"):
            while True:
                answers = self._admin.list_offsets(wanted, request_timeout=_TIMEOUT_S)
                try:
                    return {where.partition: answer.result().offset for where, answer in answers.items()}
                except KafkaException as error:
                    if error.args[0].code() not in not_led or time.monotonic() >= deadline:
                        raise
                time.sleep(_RETRY_PAUSE_S)


@contextmanager
def _explained(what: str) -> Iterator[None]:
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise ArchiveError(f"{what}: {_words(error)}") from error


def _words(error: Exception) -> str:
    """librdkafka's text of an error, with Kafka's name of the code."""
    code = error.args[0]
    return f"{code.str()} ({code.name().lstrip('_')})" if hasattr(code, "str") else str(error)
