"""The way of the counts to the audit topic: a port of three methods, and Kafka behind it.

Counting must not stop an application whose records still get through. So nothing here raises once the channel is open:
what is not delivered is told to whoever sent it, who tries again with the next counts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from .book import AUDIT_TOPIC

_LOG = logging.getLogger("moldau.audit")

# A page is sent again and again, and only its last revision counts.
_TOPIC_CONFIG = {"cleanup.policy": "compact,delete", "retention.ms": str(30 * 24 * 3600 * 1000)}

# What a send may block when the topic's partitions are not known (any more).
_MAX_BLOCK_MS = 2_000


class ChannelError(Exception):
    """The audit topic cannot be reached or made; the text says what to do about it."""


class Channel(Protocol):
    """Takes messages and says which of them did not arrive."""

    def send(self, key: bytes, value: bytes, on_failure: Callable[[], None]) -> None:
        """Send without waiting. ``on_failure`` may be called from any thread."""

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything has arrived or failed, at most so long; False if some of it has done neither."""

    def close(self) -> None:
        """Nothing will follow."""


class KafkaChannel:
    """A kafka-python producer of its own: the application's may have serializers, transactions or acks=0."""

    def __init__(
        self, bootstrap_servers: str, topic: str = AUDIT_TOPIC, settings: Mapping[str, Any] | None = None
    ) -> None:
        """``settings``: kafka-python's, such as ``security_protocol``. The topic is made if it is not there."""
        from kafka import KafkaProducer
        from kafka.errors import KafkaError

        self._topic = topic
        address = {"bootstrap_servers": bootstrap_servers.split(","), "client_id": "moldau-audit", **(settings or {})}
        try:
            _make_topic(topic, address)
            self._producer = KafkaProducer(acks="all", linger_ms=20, max_block_ms=_MAX_BLOCK_MS, **address)
            # Learned now, so that no later call has to wait for it.
            self._producer.partitions_for(topic)
        except KafkaError as error:
            raise ChannelError(
                f"the audit topic {topic} cannot be reached at {bootstrap_servers} ({error}): is the server running, "
                "and may this client make or write the topic?"
            ) from error

    def send(self, key: bytes, value: bytes, on_failure: Callable[[], None]) -> None:
        from kafka.errors import KafkaError

        def failed(error: object) -> None:
            _LOG.warning("counts did not reach %s, and are sent again with the next ones: %s", self._topic, error)
            on_failure()

        try:
            self._producer.send(self._topic, key=key, value=value).add_errback(failed)
        except KafkaError as error:
            failed(error)

    def flush(self, timeout_s: float) -> bool:
        from kafka.errors import KafkaError

        try:
            self._producer.flush(timeout_s)
        except KafkaError as error:
            _LOG.warning("counts are still on their way to %s: %s", self._topic, error)
            return False
        return True

    def close(self) -> None:
        self._producer.close(timeout=5)


def _make_topic(topic: str, address: Mapping[str, Any]) -> None:
    from kafka.admin import KafkaAdminClient, NewTopic
    from kafka.errors import TopicAlreadyExistsError

    admin = KafkaAdminClient(**address)
    try:
        if topic in admin.list_topics():
            return
        admin.create_topics(
            [NewTopic(name=topic, num_partitions=1, replication_factor=-1, topic_configs=dict(_TOPIC_CONFIG))]
        )
    except TopicAlreadyExistsError:
        # Another client that counts was faster.
        return
    finally:
        admin.close()
