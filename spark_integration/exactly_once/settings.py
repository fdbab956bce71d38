"""The settings of the Kafka clients: those of the user, checked, and those that exactly once stands on.

The clients are librdkafka's, in the driver and in the tasks; its names of settings are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

# Settings that a user may only give one value, if any.
_ONLY: Mapping[str, tuple[str, ...]] = {
    "enable.idempotence": ("true",),
    "acks": ("all", "-1"),
    "request.required.acks": ("all", "-1"),
    "queuing.strategy": ("fifo",),
}
_AT_LEAST_ONE = ("retries", "message.send.max.retries")
_AT_MOST_FIVE = ("max.in.flight", "max.in.flight.requests.per.connection")
_WITHIN_TRANSACTION = ("message.timeout.ms", "delivery.timeout.ms")

# Settings that are the writer's own, and what to do instead.
_OWN: Mapping[str, str] = {
    "bootstrap.servers": "the address is the writer's first argument",
    "metadata.broker.list": "the address is the writer's first argument",
    "transactional.id": "it is made of query_name",
    "transaction.timeout.ms": "give transaction_timeout_ms",
    "group.id": "the writer belongs to no group",
    "isolation.level": "markers are always read committed",
    "enable.partition.eof": "it is set",
    "enable.auto.commit": "nothing is committed to a group",
    "auto.offset.reset": "it is set",
}


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What producers, consumers and admin clients are made with. It travels to the tasks."""

    bootstrap_servers: str
    transaction_timeout_ms: int
    given: Mapping[str, str]

    def producer(self, transactional_id: str) -> dict[str, str | int | bool | Callable[..., None]]:
        return {
            # A key goes to the partition to which Spark's own sink, and any client in Java, would send it.
            "partitioner": "murmur2_random",
            # What went wrong is raised, with what to do; librdkafka's lines on standard error come without that.
            "log_level": 0,
            **self.given,
            "bootstrap.servers": self.bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": self.transaction_timeout_ms,
            "delivery.report.only.error": True,
        }

    def consumer(self) -> dict[str, str | int | bool]:
        """Of a consumer that reads to the end of what is committed, and says when it is there."""
        return {
            "log_level": 0,
            # At the end, an answer without records is what says so: it is not waited for.
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
    """ValueError where a setting takes away what exactly once stands on, or is not for a user to set."""
    for name, value in given.items():
        if not isinstance(value, str):
            raise ValueError(f"client[{name!r}] is {value!r}: librdkafka's settings are given as text")
        if name in _OWN:
            raise ValueError(f"{name} cannot be set: {_OWN[name]}")
        problem = _problem(name, value, transaction_timeout_ms)
        if problem:
            raise ValueError(f"{name}={value} does not go with transactions: {problem}")


def _problem(name: str, value: str, transaction_timeout_ms: int) -> str:
    if name in _ONLY and value.lower() not in _ONLY[name]:
        return f"it has to be {' or '.join(_ONLY[name])}, or left out"
    if name in (*_AT_LEAST_ONE, *_AT_MOST_FIVE, *_WITHIN_TRANSACTION) and not value.isdecimal():
        return "it has to be a number"
    if name in _AT_LEAST_ONE and int(value) < 1:
        return "it has to be at least 1, or left out"
    if name in _AT_MOST_FIVE and not 1 <= int(value) <= 5:
        return "it has to be between 1 and 5, or left out"
    if name in _WITHIN_TRANSACTION and not 1 <= int(value) <= transaction_timeout_ms:
        return f"it has to be between 1 and transaction_timeout_ms ({transaction_timeout_ms}), or left out"
    return ""
