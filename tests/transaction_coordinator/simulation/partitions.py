"""A partition as far as transactions see it: whose writes it takes, and what a marker makes of them.

The rules are those of Apache Kafka's producer state: an epoch that is too old is refused; the first write of a
transaction has to be confirmed by the coordinator, with no marker in between; a marker has at least the epoch that the
partition knows, with epoch bumps a newer one, and comes from the newest coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.transaction_coordinator.markers import Markers

from ..harness import Producer


class Entry(NamedTuple):
    """A write of a transaction."""

    transaction: int
    number: int
    producer: Producer


@dataclass
class _ProducerState:
    epoch: int = -1
    open_epoch: int | None = None
    """Of the open transaction."""
    coordinator_epoch: int = -1
    guards: dict[int, object] = field(default_factory=dict)
    """Writes that wait for the coordinator, by epoch."""


class Partition:
    """One partition."""

    def __init__(self, name: str, index: int) -> None:
        self.name = (name, index)
        self.outcomes: dict[Entry, bool | None] = {}
        """Of every write that was taken; None while its transaction is open."""
        self._open: dict[int, list[Entry]] = {}
        self._producers: dict[int, _ProducerState] = {}

    def has(self, entry: Entry) -> bool:
        """Whether this was written before: a retry."""
        return any(known[:2] == entry[:2] for known in self.outcomes)

    def is_fenced(self, producer: Producer) -> bool:
        return producer.epoch < self._state(producer).epoch

    def is_open(self, producer: Producer) -> bool:
        return self._state(producer).open_epoch == producer.epoch

    def start_verification(self, producer: Producer) -> object:
        """What the write has to bring when the coordinator has confirmed it."""
        return self._state(producer).guards.setdefault(producer.epoch, object())

    def append(self, entry: Entry, guard: object | None) -> bool:
        """Take the write; False when a marker came while it waited."""
        producer = entry.producer
        state = self._state(producer)
        if self.is_fenced(producer):
            return False
        if not self.is_open(producer) and (guard is None or state.guards.get(producer.epoch) is not guard):
            return False
        assert state.open_epoch in (None, producer.epoch), f"{self}: two transactions of producer {producer.id} at once"
        state.open_epoch = state.epoch = producer.epoch
        self.outcomes[entry] = None
        self._open.setdefault(producer.id, []).append(entry)
        return True

    def end(self, markers: Markers, coordinator_epoch: int) -> bool:
        """Take a marker; False when it is from a coordinator that another one has followed."""
        state = self._state(Producer(markers.producer_id, -1))
        if coordinator_epoch < state.coordinator_epoch:
            return False
        state.coordinator_epoch = coordinator_epoch
        assert markers.producer_epoch >= state.epoch, f"{self}: {markers} is older than epoch {state.epoch}"
        if markers.transaction_version >= 2 and state.open_epoch is not None:
            assert markers.producer_epoch > state.epoch, f"{self}: {markers} does not fence epoch {state.epoch}"
        state.epoch, state.open_epoch = markers.producer_epoch, None
        state.guards.clear()
        for entry in self._open.pop(markers.producer_id, []):
            self.outcomes[entry] = markers.committed
        return True

    @property
    def open_transactions(self) -> list[int]:
        return sorted(self._open)

    def _state(self, producer: Producer) -> _ProducerState:
        return self._producers.setdefault(producer.id, _ProducerState())

    def __str__(self) -> str:
        return f"partition {self.name[0]}-{self.name[1]}"
