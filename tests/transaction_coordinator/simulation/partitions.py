"""The transactional state of a partition: which writes it accepts, and the effect of a marker.

The rules are those of Apache Kafka's producer state. An older epoch is rejected. The coordinator must confirm the first
write of a transaction, without a marker in between. The epoch of a marker is not older than that of the partition, with
epoch bumps it is newer, and the marker is from the latest coordinator.
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
    """The epoch of the open transaction."""
    coordinator_epoch: int = -1
    guards: dict[int, object] = field(default_factory=dict)
    """Pending verifications, by epoch."""


class Partition:
    """One partition."""

    def __init__(self, name: str, index: int) -> None:
        self.name = (name, index)
        self.outcomes: dict[Entry, bool | None] = {}
        """Whether each accepted write was committed; None while its transaction is open."""
        self._open: dict[int, list[Entry]] = {}
        self._producers: dict[int, _ProducerState] = {}

    def has(self, entry: Entry) -> bool:
        """Whether this write is a retry of an accepted one."""
        return any(known[:2] == entry[:2] for known in self.outcomes)

    def is_fenced(self, producer: Producer) -> bool:
        return producer.epoch < self._state(producer).epoch

    def is_open(self, producer: Producer) -> bool:
        return self._state(producer).open_epoch == producer.epoch

    def start_verification(self, producer: Producer) -> object:
        """The token with which the write may be appended once the coordinator has confirmed it."""
        return self._state(producer).guards.setdefault(producer.epoch, object())

    def append(self, entry: Entry, guard: object | None) -> bool:
        """Append the write. False if a marker was written during the verification."""
        producer = entry.producer
        state = self._state(producer)
        if self.is_fenced(producer):
            return False
        if not self.is_open(producer) and (guard is None or state.guards.get(producer.epoch) is not guard):
            return False
        assert state.open_epoch in (None, producer.epoch), f"{self}: two open transactions of producer {producer.id}"
        state.open_epoch = state.epoch = producer.epoch
        self.outcomes[entry] = None
        self._open.setdefault(producer.id, []).append(entry)
        return True

    def end(self, markers: Markers, coordinator_epoch: int) -> bool:
        """Append a marker. False if it is from an earlier coordinator."""
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
