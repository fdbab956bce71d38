"""Transactional producers of real clients: processes that are driven step by step.

`clients.transactor` describes the requests and responses. One process may have several producers; a producer that will
be killed has its own process. No checks here: a step returns the client's result.
"""

import builtins
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from types import TracebackType
from typing import Self

import pytest

from moldau.testing.client import ClientError
from moldau.testing.clients.commands import transactor_command
from moldau.testing.clients.java import java_command
from moldau.testing.clients.program import Program
from moldau.testing.kafka_jars import OLDER_CLIENTS

STEP_SECONDS = 60.0

FENCED, RETRIABLE, UNKNOWN = "FENCED", "RETRIABLE", "UNKNOWN"

Values = Mapping[str, Mapping[int, Sequence[str]]]
"""By topic and partition."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A client, and the command that starts its program."""

    name: str
    command: Callable[[], list[str]]

    def __str__(self) -> str:
        return self.name


def kinds() -> list[Kind]:
    """Every client that has transactions; of Java also clients that have no epoch for each of them (KIP-890)."""

    def older(version: str) -> Kind:
        return Kind(f"java-{version}", lambda: java_command("Transactor", version))

    return [
        *(
            Kind(client, partial(transactor_command, client))
            for client in ("confluent-kafka", "kafka-python", "aiokafka", "franz-go", "java")
        ),
        *(older(version) for version in OLDER_CLIENTS),
    ]


class Transactors:
    """One process of a client."""

    def __init__(self, kind: Kind, bootstrap_servers: str) -> None:
        self.kind = kind
        self.bootstrap_servers = bootstrap_servers
        self._program = Program(kind.command())
        self._names = count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._program.close()

    def open(
        self,
        transactional_id: str,
        *,
        timeout_ms: int = 60_000,
        codec: str = "none",
        group_id: str | None = None,
        source: str | None = None,
    ) -> "Transactor":
        """A producer that has its producer id; with a group it also consumes."""
        transactor = Transactor(self, f"producer-{next(self._names)}")
        transactor.call(
            "open",
            transactional_id=transactional_id,
            timeout_ms=timeout_ms,
            codec=codec,
            group_id=group_id,
            source=source,
        )
        return transactor

    def read(self, *topics: str, committed: bool = True) -> Values:
        """The values that its consumer reads, by topic and partition."""
        found = self.call("read", topics=topics, committed=committed)
        return {
            topic: {int(partition): values for partition, values in partitions.items()}
            for topic, partitions in found.items()
        }

    def call(self, op: str, **arguments: object) -> Mapping[str, Mapping[str, Sequence[str]]]:
        """One request. Raises ClientError."""
        answer: Mapping[str, Mapping[str, Sequence[str]]] = self._program.call(
            STEP_SECONDS, op=op, bootstrap_servers=self.bootstrap_servers, **arguments
        )
        return answer

    def kill(self) -> None:
        """``kill -9``."""
        self._program.kill()


class Transactor:
    """A producer in such a process."""

    def __init__(self, process: Transactors, name: str) -> None:
        self._process = process
        self._name = name

    def call(self, op: str, **arguments: object) -> None:
        """One request. Raises ClientError."""
        self._process.call(op, producer=self._name, **arguments)

    def begin(self) -> None:
        """Begin a transaction; no request is sent yet."""
        self.call("begin")

    def produce(self, topic: str, partition: int, *values: str) -> None:
        """Produce, and wait for the acknowledgements."""
        self.call("produce", topic=topic, partition=partition, values=values)

    def pipe(self, target: str, count: int) -> None:
        """Consume ``count`` records, write them to the target, and send the offsets."""
        self.call("pipe", target=target, count=count)

    def commit(self) -> None:
        """Commit; retry while the outcome is unknown."""
        self._end("commit")

    def abort(self) -> None:
        """Abort; retry while the outcome is unknown."""
        self._end("abort")

    def _end(self, op: str) -> None:
        while True:
            try:
                return self.call(op)
            except ClientError as error:
                if error.code != RETRIABLE:
                    raise

    def refusal(self, step: Callable[[], None]) -> str:
        """The error code of a step that the client must refuse; an error of the driver program is raised."""
        with pytest.raises(ClientError) as refused:
            step()
        if refused.value.code in dir(builtins):
            raise refused.value
        return refused.value.code


class Fleet:
    """One process per client, until the end of the tests."""

    def __init__(self) -> None:
        self._resources = ExitStack()
        self._running: dict[tuple[str, str], Transactors] = {}

    def get(self, kind: Kind, bootstrap_servers: str) -> Transactors:
        """The process of a client for a server."""
        key = (kind.name, bootstrap_servers)
        if key not in self._running:
            self._running[key] = self._resources.enter_context(Transactors(kind, bootstrap_servers))
        return self._running[key]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()
