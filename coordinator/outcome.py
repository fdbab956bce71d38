"""The result of a state machine's decision: records to append, and the responses and effects that follow.

A coordinator's shard decides; it neither writes nor responds. It receives a request with its `Caller` and the time, and
returns an `Outcome`. The runtime appends the records, replays them into the shard, and releases the responses and the
effects once the records are below the high watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ..protocol.errors import KafkaError
from ..protocol.schema import Message, Struct


class Now(NamedTuple):
    """The two clocks. Records contain the first; deadlines use the second, which never jumps."""

    epoch_ms: int
    monotonic_ms: int


class Record(NamedTuple):
    """A record of a coordinator's topic. A record without a value deletes the state of its key."""

    key: Message
    value: Message | None
    value_version: int = 0


class Producer(NamedTuple):
    """The producer of a transaction, and its epoch."""

    id: int
    epoch: int


class Caller(Protocol):
    """Receives a response: one request of one client. Compared by identity."""

    @property
    def api_version(self) -> int:
        """The API version of the request."""

    @property
    def client_id(self) -> str:
        """The client id; may be empty."""

    @property
    def client_host(self) -> str:
        """The peer's address as Kafka writes it, ``/127.0.0.1``."""

    @property
    def principal(self) -> str:
        """The principal of the client, as ``User:name``."""

    @property
    def listener_name(self) -> str:
        """The listener that received the request."""

    def reply(self, response: Any) -> None:
        """Complete the request with this response, once."""

    def fail(self, error: KafkaError) -> None:
        """Complete the request with the API's response for this error, once."""


Reply = tuple[Caller, Struct]


@dataclass(slots=True)
class Outcome:
    """The result of a decision.

    ``records`` are appended together or not at all, and then replayed. ``replies`` are sent afterwards. An outcome may
    complete callers of earlier requests (members that wait for a rebalance), or none (the caller stays pending).

    ``effects`` are the consequences outside of the shard, such as the markers of a transaction that ends. They are
    values: the runtime releases them when the records are below the high watermark, after the responses, and the shell
    acts on them (`CoordinatorRuntime.take_effects`). They are dropped if the records cannot be appended, or if the
    shard is closed before. In this case the next runtime that loads the shard finds the remaining work in the log
    (`Shard.loaded`).

    Decisions may change soft state (pending callers, deadlines). If the records cannot be appended, ``refused`` is
    called with the error: it rolls back soft changes and returns its own responses. Every caller in ``replies`` that it
    does not complete gets the error. It does not raise.

    Soft state of something that the records create, such as a group of another kind, can only be set after they exist:
    ``replayed`` is called as soon as the records are replayed, before the responses are sent.

    The records of a ``producer`` are part of its transaction: they are written in a separate batch of that producer,
    and take effect or are discarded when the transaction ends.
    """

    records: Sequence[Record] = ()
    replies: Sequence[Reply] = ()
    effects: Sequence[object] = ()
    refused: Callable[[KafkaError], Sequence[Reply]] | None = None
    replayed: Callable[[], None] | None = None
    producer: Producer | None = None


NOTHING = Outcome()
"""No records and no responses."""
