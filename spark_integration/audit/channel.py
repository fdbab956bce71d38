"""The transport of counts to the audit topic: a port with three methods, and its implementation for Kafka.

Counting must not stop an application whose own records are still delivered. So after the channel is open, no method
raises. A failed delivery is reported to the sender's callback, and the counts are sent again with the next ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from .book import AUDIT_TOPIC

_LOG = logging.getLogger("moldau.audit")

# A page is sent repeatedly, and only its last revision counts.
_TOPIC_CONFIG = {"cleanup.policy": "compact,delete", "retention.ms": str(30 * 24 * 3600 * 1000)}

# The longest time that a send may block while the topic's partitions are not known.
_MAX_BLOCK_MS = 2_000


class ChannelError(Exception):
    """The audit topic cannot be reached or created; the text states what to do."""


class Channel(Protocol):
    """Accepts messages and reports those that were not delivered."""

    def send(self, key: bytes, value: bytes, on_failure: Callable[[], None]) -> None:
        """Send without waiting. ``on_failure`` may be called from any thread."""

    def flush(self, timeout_s: float) -> bool:
        """Wait at most ``timeout_s`` until all messages have been delivered or have failed; False on timeout."""

    def close(self) -> None:
        """Close the channel; no more messages follow."""


class KafkaChannel:
    """A separate kafka-python producer, since the application's may have serializers, transactions or acks=0."""

    def __init__(
        self, bootstrap_servers: str, topic: str = AUDIT_TOPIC, settings: Mapping[str, Any] | None = None
    ) -> None:
        """``settings``: kafka-python's, such as ``security_protocol``. The topic is created if it does not exist."""
        from kafka import KafkaProducer
        from kafka.errors import KafkaError

        self._topic = topic
        address = {"bootstrap_servers": bootstrap_servers.split(","), "client_id": "moldau-audit", **(settings or {})}
        try:
            _create_topic(topic, address)
            self._producer = KafkaProducer(acks="all", linger_ms=20, max_block_ms=_MAX_BLOCK_MS, **address)
            # Fetch the metadata now, so that no later call has to wait for it.
            self._producer.partitions_for(topic)
        except KafkaError as error:
            raise ChannelError(
                f"the audit topic {topic} cannot be reached at {bootstrap_servers} ({error}): is the server running, "
                "and may this client create or write to the topic?"
            ) from error

    def send(self, key: bytes, value: bytes, on_failure: Callable[[], None]) -> None:
        from kafka.errors import KafkaError

        def failed(error: object) -> None:
            _LOG.warning("counts were not delivered to %s and will be sent again: %s", self._topic, error)
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
            _LOG.warning("counts are not yet delivered to %s: %s", self._topic, error)
            return False
        return True

    def close(self) -> None:
        self._producer.close(timeout=5)


def _create_topic(topic: str, address: Mapping[str, Any]) -> None:
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
        # Another counting client has created the topic first.
        return
    finally:
        admin.close()
