"""Client quotas (KIP-13, KIP-55, KIP-546): which quota applies to a client, and its rates. No I/O; time is an argument.

A quota belongs to a user, a client id, or a combination of both; each of them may be the default. The most specific one
applies (`QuotaIndex.find`). All clients of a quota for a user share one counter. Otherwise each client has its own.

A rate is measured in samples (`Rate`): a sample begins with its first record, and the rate is the sum of the samples by
the time since the oldest one began, but at least by that of all samples except one. So after idleness a burst passes.
A rate above the quota is throttled for the time after which it would be within it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ..protocol.named_tuples import NamedTuple

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

KEYS_OF_CLIENTS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
KEYS_OF_ADDRESSES: Final = (CONNECTION_CREATION_RATE,)
WHOLE_NUMBERS: Final = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONNECTION_CREATION_RATE})
"""The keys whose values are whole numbers."""
LARGEST: Final = {PRODUCER_BYTE_RATE: 2**63, CONSUMER_BYTE_RATE: 2**63, CONNECTION_CREATION_RATE: 2**31 - 1}
"""The largest values: those of Java's types. 2^63 is the double that Java rounds to its largest long."""

Entity = tuple[tuple[str, str | None], ...]
"""(entity type, name) pairs, sorted by type; the name None means the default."""


class Quota(NamedTuple):
    """A quota that applies to a client."""

    limit: float
    counter: tuple[str, str, str]
    """What shares one rate: the key, the user and the client id, which are empty if they make no difference."""


class QuotaIndex:
    """The quotas of the cluster by key. It does not change."""

    def __init__(self, quotas: Mapping[Entity, Mapping[str, float]]) -> None:
        self._by_key: dict[str, dict[Entity, float]] = {}
        for entity, values in quotas.items():
            for key, value in values.items():
                self._by_key.setdefault(key, {})[entity] = value

    def has_any(self, keys: Iterable[str]) -> bool:
        """Whether there is a quota of one of these kinds."""
        return any(key in self._by_key for key in keys)

    def rates_of_addresses(self) -> Mapping[str | None, float]:
        """New connections per second by address; None is the default of the other ones."""
        quotas = self._by_key.get(CONNECTION_CREATION_RATE, {})
        return {name: limit for ((_, name),), limit in quotas.items()}

    def has(self, key: str) -> bool:
        """Whether any client has a quota of this kind."""
        return key in self._by_key

    def find(self, key: str, user: str, client_id: str) -> Quota | None:
        """The quota of this kind that applies to a client."""
        quotas = self._by_key.get(key)
        if quotas is None:
            return None
        of_both = (key, user, client_id)
        for entity, counter in (
            (((CLIENT_ID, client_id), (USER, user)), of_both),
            (((CLIENT_ID, None), (USER, user)), of_both),
            (((USER, user),), (key, user, "")),
            (((CLIENT_ID, client_id), (USER, None)), of_both),
            (((CLIENT_ID, None), (USER, None)), of_both),
            (((USER, None),), (key, user, "")),
            (((CLIENT_ID, client_id),), (key, "", client_id)),
            (((CLIENT_ID, None),), (key, "", client_id)),
        ):
            limit = quotas.get(entity)
            if limit is not None:
                return Quota(limit, counter)
        return None


class TokenBucket:
    """A quota with a burst (KIP-599): it is exceeded while the tokens are negative, so one request may exceed it."""

    __slots__ = ("_burst", "_last_ms", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, now_ms: int) -> None:
        """``rate``: new tokens per second, up to ``burst``."""
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._last_ms = now_ms

    def change_rate(self, rate: float, burst: float, now_ms: int) -> None:
        """Another quota applies."""
        if rate != self._rate:
            self._refill(now_ms)
            self._rate, self._burst = rate, burst
            self._tokens = min(self._tokens, burst)

    def is_exceeded(self, now_ms: int) -> bool:
        """Whether nothing may be taken now."""
        self._refill(now_ms)
        return self._tokens < 0

    def take(self, amount: float, now_ms: int) -> None:
        """Take tokens, also if there are fewer."""
        self._refill(now_ms)
        self._tokens -= amount

    def throttle_ms(self, now_ms: int) -> int:
        """How long it takes until the quota is no longer exceeded."""
        self._refill(now_ms)
        return max(0, round(-self._tokens / self._rate * 1000))

    def is_full(self, now_ms: int) -> bool:
        """Whether it has all of its tokens."""
        self._refill(now_ms)
        return self._tokens >= self._burst

    def _refill(self, now_ms: int) -> None:
        self._tokens = min(self._burst, self._tokens + (now_ms - self._last_ms) / 1000 * self._rate)
        self._last_ms = now_ms


class Window(NamedTuple):
    """How rates are measured: ``quota.window.num`` samples of ``quota.window.size.seconds``."""

    samples: int
    size_ms: int

    @property
    def largest_burst_s(self) -> float:
        """After idleness, a client may use its quota of so many seconds at once."""
        return max(1, self.samples - 1) * self.size_ms / 1000


class _Sample:
    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self.start_ms = now_ms
        self.last_ms = now_ms
        self.total = 0.0


class Rate:
    """A rate per second."""

    __slots__ = ("_samples", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._samples: list[_Sample] = []

    def record(self, amount: float, now_ms: int) -> None:
        """Count an amount, which is negative if an earlier one is revoked."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._window.size_ms:
            samples.append(_Sample(now_ms))
            del samples[: -self._window.samples]
        samples[-1].total += amount
        samples[-1].last_ms = now_ms

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long the client has to wait until it is within its quota again."""
        total, elapsed_ms = self._measure(now_ms)
        rate = total / elapsed_ms * 1000
        return max(0, round((rate - limit) / limit * elapsed_ms))

    def is_idle(self, now_ms: int) -> bool:
        """Whether the rate is zero."""
        return self._measure(now_ms)[0] == 0

    def _measure(self, now_ms: int) -> tuple[float, int]:
        """The sum of the samples, and their time."""
        window = self._window
        expired_ms = now_ms - window.samples * window.size_ms
        samples = self._samples = [sample for sample in self._samples if sample.last_ms > expired_ms]
        elapsed_ms = now_ms - samples[0].start_ms if samples else 0
        missing = window.samples - 1 - elapsed_ms // window.size_ms
        if missing > 0:
            elapsed_ms += missing * window.size_ms
        return sum(sample.total for sample in samples), max(1, elapsed_ms)
