"""The settings of the Kafka clients: those of the user, checked, and those that exactly-once writing requires.

The driver and the tasks use clients of librdkafka; settings have librdkafka's names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

# Settings for which a user may only give these values, if any.
_ONLY: Mapping[str, tuple[str, ...]] = {
    "enable.idempotence": ("true",),
    "acks": ("all", "-1"),
    "request.required.acks": ("all", "-1"),
    "queuing.strategy": ("fifo",),
}
_ONE_OR_MORE = ("retries", "message.send.max.retries")
_ONE_TO_FIVE = ("max.in.flight", "max.in.flight.requests.per.connection")
_WITHIN_TRANSACTION = ("message.timeout.ms", "delivery.timeout.ms")

# Settings that the writer sets itself, and what to use instead.
_OWN: Mapping[str, str] = {
    "bootstrap.servers": "the address is the writer's first argument",
    "metadata.broker.list": "the address is the writer's first argument",
    "transactional.id": "it is derived from query_name",
    "transaction.timeout.ms": "use transaction_timeout_ms",
    "group.id": "the writer does not join a group",
    "isolation.level": "markers are always read committed",
    "enable.partition.eof": "the writer sets it",
    "enable.auto.commit": "no offsets are committed",
    "auto.offset.reset": "the writer sets it",
}


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of producers, consumers and admin clients. It is sent to the tasks."""

    bootstrap_servers: str
    transaction_timeout_ms: int
    given: Mapping[str, str]

    def producer(self, transactional_id: str) -> dict[str, str | int | bool | Callable[..., None]]:
        return {
            # A key goes to the same partition as with Spark's own sink and any Java client.
            "partitioner": "murmur2_random",
            # Errors are raised, together with what to do; librdkafka's messages on standard error lack that.
            "log_level": 0,
            **self.given,
            "bootstrap.servers": self.bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": self.transaction_timeout_ms,
            "delivery.report.only.error": True,
        }

    def consumer(self) -> dict[str, str | int | bool]:
        """The settings of a consumer that reads to the last stable offset, and reports the end of a partition."""
        return {
            "log_level": 0,
            # An empty response reports the end, so it must not be delayed.
            "fetch.wait.max.ms": 10,
            **self.given,
            "bootstrap.servers": self.bootstrap_servers,
            "group.id": "moldau-exactly-once",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }


def check_given(given: Mapping[str, str], transaction_timeout_ms: int) -> None:
    """ValueError if a setting breaks exactly-once writing, or cannot be set by a user."""
    for name, value in given.items():
        if not isinstance(value, str):
            raise ValueError(f"client[{name!r}] is {value!r}: librdkafka's settings must be strings")
        if name in _OWN:
            raise ValueError(f"{name} cannot be set: {_OWN[name]}")
        problem = _problem(name, value, transaction_timeout_ms)
        if problem:
            raise ValueError(f"{name}={value} is not possible with transactions: {problem}")


def _problem(name: str, value: str, transaction_timeout_ms: int) -> str:
    if name in _ONLY and value.lower() not in _ONLY[name]:
        return f"it must be {' or '.join(_ONLY[name])}, or omitted"
    if name in (*_ONE_OR_MORE, *_ONE_TO_FIVE, *_WITHIN_TRANSACTION) and not value.isdecimal():
        return "it must be a number"
    if name in _ONE_OR_MORE and int(value) < 1:
        return "it must be at least 1, or omitted"
    if name in _ONE_TO_FIVE and not 1 <= int(value) <= 5:
        return "it must be between 1 and 5, or omitted"
    if name in _WITHIN_TRANSACTION and not 1 <= int(value) <= transaction_timeout_ms:
        return f"it must be between 1 and transaction_timeout_ms ({transaction_timeout_ms}), or omitted"
    return ""
