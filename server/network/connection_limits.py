"""Limits on connections: of a broker, of a listener, and of an address; and on new connections per second.

- If a broker or a listener has its maximum (`max.connections`), new connections wait in the kernel's queue until
  another one is closed.
- A connection above the limit of its address (`max.connections.per.ip`) is accepted and closed.
- If an address has too many new connections per second (`connection_creation_rate`), further ones are accepted, and
  closed when the throttle time is over, at most a second later.
- If there are too many new connections per second (`max.connection.creation.rate`), further ones wait for at most a
  second. After idleness, a burst of ten seconds passes.

The limits of the broker do not concern its inter-broker listener if it has another one for clients, who could keep
brokers from replicating otherwise. Its connections count.

A limit that is lowered closes no connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...protocol.named_tuples import NamedTuple
from ...security.quotas import Rate, Window

UNLIMITED: Final = 2**31 - 1
_MAX_WAIT_MS: Final = 1000
_MAX_ADDRESSES: Final = 10_000
"""If there are rates of more addresses, those of idle ones are forgotten first."""
_NONE: Final[Mapping[str, int]] = {}


class Limits(NamedTuple):
    """The limits in effect."""

    connections: int = UNLIMITED
    of_listeners: Mapping[str, int] = _NONE
    """By name, of the listeners that have a limit of their own."""
    per_address: int = UNLIMITED
    of_addresses: Mapping[str, int] = _NONE
    """The addresses that have another limit."""
    rate: int = UNLIMITED
    """New connections per second."""
    rates_of_listeners: Mapping[str, int] = _NONE
    """By name, of the listeners that have a rate of their own."""
    window: Window = Window(11, 1000)
    """How rates are measured."""
    protected: str | None = None
    """The listener that the limits of the broker do not concern: that of other brokers, if clients have another one."""


class ConnectionLimits:
    """The limits, and the numbers of connections that they concern."""

    def __init__(self) -> None:
        self.limits = Limits()
        self._total = 0
        self.opened_total: dict[str, int] = {}
        """Connections of each listener since the startup."""
        self.closed_total: dict[str, int] = {}
        self._of_listeners: dict[str, int] = {}
        self._of_addresses: dict[str, int] = {}
        self._rates: dict[str, Rate] = {}  # by listener; "" is the broker's
        self._limits_of_addresses: Mapping[str | None, float] = {}
        self._rates_of_addresses: dict[str, Rate] = {}

    def apply(self, limits: Limits) -> None:
        """Other limits are in effect."""
        self.limits = limits
        self._rates = {name: Rate(limits.window) for name in limits.rates_of_listeners}
        if limits.rate != UNLIMITED:
            self._rates[""] = Rate(limits.window)

    def wait_ms(self, listener: str, now_ms: int) -> int:
        """How long the listener has to wait before it accepts a connection, because of its rate."""
        if not self._rates:
            return 0
        limits = self.limits
        waits = [0]
        for name, limit in (("", limits.rate), (listener, limits.rates_of_listeners.get(listener, UNLIMITED))):
            rate = None if name == "" and listener == limits.protected else self._rates.get(name)
            if rate is not None:
                waits.append(rate.throttle_ms(limit, now_ms) if limit else _MAX_WAIT_MS)
        return min(_MAX_WAIT_MS, max(waits))

    def accepted(self, listener: str, now_ms: int) -> None:
        """Count a new connection, also one that will be closed."""
        for name in ("", listener) if self._rates else ():
            rate = None if name == "" and listener == self.limits.protected else self._rates.get(name)
            if rate is not None:
                rate.record(1, now_ms)

    def limit_addresses(self, rates: Mapping[str | None, float]) -> None:
        """Other rates by address are in effect; None is the default. Addresses are in the form of the system."""
        self._limits_of_addresses = rates
        self._rates_of_addresses = {
            address: rate for address, rate in self._rates_of_addresses.items() if address in rates or None in rates
        }

    def throttle_ms(self, address: str, now_ms: int) -> int:
        """Count a new connection of an address. Above its rate, the connection does not count, and is closed after this
        time."""
        if not self._limits_of_addresses:
            return 0
        address = address.removeprefix("::ffff:")
        limit = self._limits_of_addresses.get(address, self._limits_of_addresses.get(None))
        if limit is None:
            return 0
        rate = self._rates_of_addresses.get(address)
        if rate is None:
            if len(self._rates_of_addresses) >= _MAX_ADDRESSES:
                self._forget_idle(now_ms)
            rate = self._rates_of_addresses[address] = Rate(self.limits.window)
        rate.record(1, now_ms)
        throttle_ms = min(_MAX_WAIT_MS, rate.throttle_ms(limit, now_ms))
        if throttle_ms > 0:
            rate.record(-1, now_ms)
        return throttle_ms

    def _forget_idle(self, now_ms: int) -> None:
        rates = {address: rate for address, rate in self._rates_of_addresses.items() if not rate.is_idle(now_ms)}
        while len(rates) >= _MAX_ADDRESSES:
            del rates[next(iter(rates))]
        self._rates_of_addresses = rates

    def is_full(self, listener: str) -> bool:
        """Whether the listener has to wait before it accepts a connection."""
        limits = self.limits
        if self._of_listeners.get(listener, 0) >= limits.of_listeners.get(listener, UNLIMITED):
            return True
        return self._total >= limits.connections and listener != limits.protected

    def limit_of(self, address: str) -> int | None:
        """The limit of an address that has so many connections; None if it may have another one."""
        limits = self.limits
        address = address.removeprefix("::ffff:")
        limit = limits.of_addresses.get(address, limits.per_address)
        return limit if self._of_addresses.get(address, 0) >= limit else None

    def opened(self, listener: str, address: str) -> None:
        """A connection was accepted."""
        self.opened_total[listener] = self.opened_total.get(listener, 0) + 1
        self._count(listener, address, 1)

    def closed(self, listener: str, address: str) -> None:
        """A connection was closed."""
        self.closed_total[listener] = self.closed_total.get(listener, 0) + 1
        self._count(listener, address, -1)

    def _count(self, listener: str, address: str, change: int) -> None:
        self._total += change
        self._of_listeners[listener] = self._of_listeners.get(listener, 0) + change
        address = address.removeprefix("::ffff:")
        number = self._of_addresses.get(address, 0) + change
        if number:
            self._of_addresses[address] = number
        else:
            del self._of_addresses[address]
