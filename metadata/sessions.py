"""The sessions of brokers with the active controller: soft state, which no record contains (KIP-631).

A broker keeps its session by heartbeats. A broker whose session has expired is fenced, one at each look (`expired`), so
that the elections of many failed brokers do not form one long task. The clock of sessions is monotonic: a change of the
wall clock fences no broker. A session belongs to one registration: a broker and its epoch. All sessions begin again
when a controller becomes active.

The connection of a process that has died is closed immediately, and a broker that lives connects again for its next
heartbeat. So a session also expires when its connection has been closed for a third of the timeout. Apache Kafka waits
for the whole timeout.

The offsets that brokers report decide when a controlled shutdown ends: a broker may stop when all other active brokers
have applied the records that moved its leaderships.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .registrations import BrokerRegistration

LOOKS_PER_TIMEOUT: Final = 8
"""How often expired sessions are looked for, in one session timeout."""

_WITHOUT_CONNECTION: Final = 3
"""The part of the timeout after which a session without a connection expires. `broker.heartbeat.interval.ms` is lower:
2 s of 9 s by default."""


class BrokerSessions:
    """See the module docstring."""

    def __init__(self, timeout_ms: int, local_broker: int | None = None) -> None:
        """``local_broker`` is in the process of the controller. Its session never ends, and it has applied a change
        before the controller responds to the request that has caused it."""
        self.timeout_ms = timeout_ms
        self._local_broker = local_broker
        self.is_connected: Callable[[int, int], bool | None] = lambda broker_id, epoch: True
        """Whether the connection of the broker's latest heartbeat with this epoch is open. None if there was none."""
        self._contacts: dict[tuple[int, int], int] = {}  # latest contact by broker and epoch, the oldest first
        self._disconnected: dict[tuple[int, int], int] = {}  # when this was noticed
        self._offsets: dict[tuple[int, int], int] = {}  # the offset that the broker has applied
        self._shutdown_offsets: dict[tuple[int, int], int] = {}
        self._required_offsets: dict[tuple[int, int], int] = {}

    def begin(self, brokers: Iterable[BrokerRegistration], now_ms: int) -> None:
        """A controller becomes active: every broker that is not fenced gets a whole session."""
        for broker in brokers:
            if not broker.fenced and broker.id != self._local_broker:
                self.contact(broker.id, broker.epoch, now_ms)

    def contact(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """A request of the broker has arrived, or it has been registered."""
        self._contacts.pop((broker_id, epoch), None)
        self._contacts[broker_id, epoch] = now_ms
        self._disconnected.pop((broker_id, epoch), None)

    def is_valid(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """Whether the session of this registration has not expired."""
        if broker_id == self._local_broker:
            return True
        contact_ms = self._contacts.get((broker_id, epoch))
        return contact_ms is not None and now_ms - contact_ms < self.timeout_ms

    def notice_disconnections(self, now_ms: int) -> None:
        """To be called periodically, before `expired`. A closed connection counts from the first call that sees it."""
        for session in self._contacts:
            if self.is_connected(*session) is False:
                self._disconnected.setdefault(session, now_ms)

    def expired(self, now_ms: int) -> tuple[int, int] | None:
        """The broker and the epoch of the session that has expired first. It remains until `end`."""
        for session, contact_ms in self._contacts.items():
            if now_ms - contact_ms >= self.timeout_ms or self._is_gone(session, now_ms):
                return session
        return None

    def _is_gone(self, session: tuple[int, int], now_ms: int) -> bool:
        noticed_ms = self._disconnected.get(session)
        return noticed_ms is not None and (now_ms - noticed_ms) * _WITHOUT_CONNECTION >= self.timeout_ms

    def end(self, broker_id: int, epoch: int) -> None:
        """The broker stops, or its session has expired: another incarnation may register immediately."""
        self._contacts.pop((broker_id, epoch), None)
        self._disconnected.pop((broker_id, epoch), None)
        for table in (self._offsets, self._shutdown_offsets, self._required_offsets):
            table.pop((broker_id, epoch), None)

    def require(self, broker_id: int, epoch: int, offset: int) -> None:
        """The broker is fenced, and may be unfenced only when it has applied the record at `offset`: its registration,
        or what fenced it. A broker that was suspended could otherwise continue as a leader that it no longer is."""
        self._required_offsets[broker_id, epoch] = offset

    def required_offset(self, broker_id: int, epoch: int) -> int:
        """The offset that the broker must have applied before it is unfenced.

        The broker epoch is an offset, too: that of the first record of the registration.
        """
        return self._required_offsets.get((broker_id, epoch), epoch)

    def applied(self, broker_id: int, epoch: int, offset: int) -> None:
        """The broker has applied the metadata up to this offset."""
        self._offsets[broker_id, epoch] = offset

    def shutdown_begins(self, broker_id: int, epoch: int, offset: int) -> None:
        """The record at `offset` is the last one that moves leaderships away from the broker."""
        self._shutdown_offsets[broker_id, epoch] = offset

    def may_stop(self, broker: BrokerRegistration, brokers: Iterable[BrokerRegistration]) -> bool:
        """Whether all active brokers know that this broker leads no partition."""
        until = self._shutdown_offsets.get((broker.id, broker.epoch), -1)
        return all(
            self._offsets.get((each.id, each.epoch), -1) >= until
            for each in brokers
            if each.is_active and each.id != self._local_broker
        )
