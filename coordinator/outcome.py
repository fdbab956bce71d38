"""What a state machine says should happen: records to append, and answers that leave when they are safe.

A coordinator's shard decides; it writes nothing and answers nobody. It is handed a request with the `Caller` who waits
and the time, and returns an `Outcome`. The runtime appends the records, replays them into the shard, and releases the
answers once the records are below the high watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ..protocol.errors import KafkaError
from ..protocol.schema import Message, Struct


class Now(NamedTuple):
    """The two clocks. Records carry the first; deadlines are counted by the second, which never jumps."""

    epoch_ms: int
    monotonic_ms: int


class Record(NamedTuple):
    """A record of a coordinator's topic. Without a value it deletes what is kept under the key."""

    key: Message
    value: Message | None
    value_version: int = 0


class Producer(NamedTuple):
    """Whose open transaction records belong to."""

    id: int
    epoch: int


class Caller(Protocol):
    """Who waits for an answer: one request of one client. Compared by identity."""

    @property
    def api_version(self) -> int:
        """Of the request."""

    @property
    def client_id(self) -> str:
        """As the client calls itself; may be empty."""

    @property
    def client_host(self) -> str:
        """The peer's address as Kafka writes it, ``/127.0.0.1``."""

    @property
    def listener_name(self) -> str:
        """The listener that the request came in by."""

    def reply(self, response: Any) -> None:
        """Answer, once."""

    def fail(self, error: KafkaError) -> None:
        """Answer with what the API has for this error, once."""


Answer = tuple[Caller, Struct]


def no_records(error: KafkaError) -> list[Answer]:
    """`Outcome.refused` of those who have nothing to take back."""
    return []


@dataclass(slots=True)
class Outcome:
    """What a decision comes to.

    ``records`` are appended together or not at all, and then replayed. ``answers`` leave afterwards. An outcome may
    answer callers of earlier requests (members that wait for a rebalance), and none at all (the caller is kept).

    Soft state (who waits, deadlines) may be changed while deciding. If the records cannot be appended, ``refused`` is
    called with the error: it takes soft changes back and returns answers of its own; every caller in ``answers`` that
    it does not answer gets the error. It does not raise.

    What soft state there is of something that the records make, as a group of another kind, has to wait for that:
    ``replayed`` is called as soon as they are replayed, before the answers leave.

    The records of a ``producer`` are part of its transaction: they go into a batch of that producer's and their own,
    and count or are forgotten when the transaction ends.
    """

    records: Sequence[Record] = ()
    answers: Sequence[Answer] = ()
    refused: Callable[[KafkaError], Sequence[Answer]] | None = None
    replayed: Callable[[], None] | None = None
    producer: Producer | None = None


NOTHING = Outcome()
"""Nothing is written and nobody is answered."""
