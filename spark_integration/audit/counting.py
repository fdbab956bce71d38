"""``Audit``: counts the records that clients deliver and receive, and sends the counts to the audit topic.

There is no timer and no thread. Counts are sent with the first record after so many records or so many seconds, and at
flush and close. A process that dies loses its counts since then, so ``every_records`` and ``every_s`` limit the error
of the books of a crashed client. Its books are then not closed, which the audit reports.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import socket
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from ..options import HasBootstrapServers
from .book import AUDIT_TOPIC, Book, Rule
from .channel import Channel, KafkaChannel
from .clients import counting_consumer, counting_producer
from .page import Owner, Tier

_LOG = logging.getLogger("moldau.audit")

FLUSH_TIMEOUT_S = 30.0


class Counter:
    """The books of one client, and their channel to the audit topic. The wrapped clients and any other client use it.

    A producer counts a record when it is acknowledged, a consumer when it is returned to the application.
    """

    def __init__(self, book: Book, channel: Channel) -> None:
        self._book = book
        self._channel = channel
        self._is_closed = False
        # Called per record, so without an extra function call.
        self.count = book.count
        self.count_all = book.count_all
        self.begin = book.begin
        self.commit = book.commit
        self.abort = book.abort

    @property
    def instance(self) -> str:
        """The name of these books in the audit topic."""
        return self._book.owner.instance

    def send_if_due(self) -> None:
        """Send the counts if it is time to."""
        now_s = time.monotonic()
        if self._book.due(now_s):
            self._send(now_s)

    def flush(self, timeout_s: float = FLUSH_TIMEOUT_S) -> bool:
        """Send the counts and wait for their delivery; False if some were not delivered."""
        self._send(time.monotonic())
        return self._channel.flush(timeout_s) and self._book.unsent == 0

    def close(self, timeout_s: float = FLUSH_TIMEOUT_S) -> None:
        """Send the counts, and the message that closes the books."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self.flush(timeout_s):
            # The books stay open, so that the audit does not treat them as complete.
            _LOG.error("%s: the counts of %d pages were not delivered", self.instance, self._book.unsent)
            return
        key, value = self._book.closed(_time_ms())
        self._channel.send(key, value, lambda: None)
        self._channel.flush(timeout_s)

    def _send(self, now_s: float) -> None:
        for message in self._book.take(now_s, _time_ms()):
            self._channel.send(message.key, message.value, lambda page=message.page: self._book.failed(page))  # type: ignore[misc]


class Audit:
    """Counts for all clients of a process: one connection to the audit topic, and one set of books per client."""

    def __init__(
        self,
        broker: HasBootstrapServers | str | None = None,
        *,
        application: str | None = None,
        rule: Rule | None = None,
        topic: str = AUDIT_TOPIC,
        settings: Mapping[str, Any] | None = None,
        channel: Channel | None = None,
    ) -> None:
        """``broker``: an address ``HOST:PORT``, or an object with one; ``settings``: kafka-python's, to connect to it.

        ``application`` is the prefix of the instances' names. ``channel`` replaces the connection to the broker. Raises
        ``ChannelError`` if the topic cannot be reached.
        """
        if channel is None:
            if broker is None:
                raise ValueError("Audit needs the address of a broker, or a channel")
            address = broker if isinstance(broker, str) else broker.bootstrap_servers
            channel = KafkaChannel(address, topic, settings)
        self._channel = channel
        self._application = application
        self._rule = rule or Rule()
        self._counters: list[Counter] = []

    def producer(self, client: Any) -> Any:
        """Wrap a producer of kafka-python, confluent-kafka or aiokafka: it keeps its methods and counts deliveries."""
        return counting_producer(client, self.counter("producer"))

    def consumer(self, client: Any, *, group: str, from_earliest: bool = False) -> Any:
        """Wrap a consumer of kafka-python, confluent-kafka or aiokafka: it keeps its methods and counts its records.

        ``group``: consumers with the same name share the topics' records, each record once; usually the group id.
        ``from_earliest``: the group reads from the beginning, so that records before its first one are missing. If
        False, the group is assumed to begin with its first record.
        """
        return counting_consumer(client, self.counter("consumer", group, from_earliest=from_earliest))

    def counter(self, tier: Tier, group: str | None = None, *, from_earliest: bool = False) -> Counter:
        """Separate books, for a client without a wrapper: call ``count`` and ``send_if_due`` for each record."""
        if (tier == "consumer") != bool(group):
            raise ValueError("consumers are counted by group; a group is only valid for consumers")
        owner = Owner(tier, _instance_name(self._application or group or "producer"), group, from_earliest)
        counter = Counter(Book(owner, self._rule, time.monotonic()), self._channel)
        self._counters.append(counter)
        return counter

    def flush(self, timeout_s: float = FLUSH_TIMEOUT_S) -> bool:
        """Send all counts and wait for their delivery; False if some were not delivered."""
        arrived = [counter.flush(timeout_s) for counter in self._counters]
        return all(arrived)

    def close(self) -> None:
        """Close all books. The clients stay open; close them first, so that their last deliveries are counted."""
        for counter in self._counters:
            counter.close()
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _instance_name(application: str) -> str:
    """A unique name, also after a restart, because revisions of pages restart at 1."""
    parts = (application, socket.gethostname(), str(os.getpid()), secrets.token_hex(4))
    return re.sub(r"[^\w.-]", "_", "-".join(parts), flags=re.ASCII)


def _time_ms() -> int:
    return time.time_ns() // 1_000_000
