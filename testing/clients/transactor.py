"""Transactional producers as a program: one process around one client, driven as in `program`.

    op          arguments                                                     answer
    open        producer transactional_id timeout_ms codec group_id source    null: it has its producer id
    begin       producer                                                      null
    produce     producer topic partition values                               null: all are acknowledged
    pipe        producer target count                                         null: consumed, produced, offsets sent
    commit      producer                                                      null
    abort       producer                                                      null
    read        topics committed                                              {topic: {partition: [value, ...]}}

All have ``bootstrap_servers`` too. The caller gives each producer a name. With a group (which
may be null, as the source) it has a consumer that reads committed records; ``pipe`` is then what stands between
``begin`` and ``commit`` of a program that consumes, transforms and produces: it takes ``count`` records, which are all
that there are, writes them to the same partition of the target with ``-piped`` at their end, and adds their offsets to
the transaction. ``read`` brings each partition up to its end, which is the last stable offset for a reader of committed
records.

A refusal of the client is reported as one of these codes, because every client has its own:

    FENCED      another producer has this transactional id, or the transaction was ended without its producer
    ABORTABLE   this transaction cannot be committed; the next one may
    RETRIABLE   the outcome is unknown; retrying the call finds out
    UNKNOWN     the outcome is unknown, and the client will not find out; abort before the next transaction
"""

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

READY_SECONDS = 40
"""How long a client may take for one operation: a killed server is unavailable for some seconds."""


class Refused(Exception):  # noqa: N818 - what it is
    """The client refused an operation."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Options:
    """The arguments of ``open``."""

    bootstrap_servers: str
    transactional_id: str
    timeout_ms: int
    codec: str
    group_id: str | None
    source: str | None


class Transactor(ABC):
    """A producer; the constructor opens it."""

    @abstractmethod
    def __init__(self, options: "Options") -> None: ...

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def produce(self, topic: str, partition: int, values: Sequence[str]) -> None: ...

    @abstractmethod
    def pipe(self, target: str, count: int) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...


Read = Callable[[str, Sequence[str], bool], Mapping[str, Mapping[int, Sequence[str]]]]


def serve(kind: type[Transactor], read: Read, refusal: Callable[[Exception], Refused | None]) -> None:
    """Handle requests until the standard input ends."""
    producers: dict[str, Transactor] = {}

    def perform(request: dict[str, Any]) -> Any:
        op, address = request.pop("op"), request.pop("bootstrap_servers")
        if op == "read":
            return read(address, request["topics"], request["committed"])
        name = request.pop("producer")
        if op == "open":
            producers[name] = kind(Options(address, **request))
            return None
        return getattr(producers[name], op)(**request)

    for line in sys.stdin:
        try:
            answer: dict[str, Any] = {"ok": perform(json.loads(line))}
        except Exception as error:  # noqa: BLE001 - the caller decides
            refused = error if isinstance(error, Refused) else refusal(error)
            code, message = (refused.code, refused.message) if refused else (type(error).__name__, str(error))
            answer = {"error": {"code": code, "message": message}}
        print(json.dumps(answer), flush=True)
