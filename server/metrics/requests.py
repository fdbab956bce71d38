"""Metrics of requests and connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ...protocol.api import ApiKey
from .errors import CountedErrors
from .families import Family, Kind, Sample, gauge, labels

if TYPE_CHECKING:
    from ..network.listeners import Network
    from ..requests.dispatch import Dispatcher
    from .rates import Rates
    from .times import Durations, RequestTimes

_PROCESSOR: Final = "0"
"""All connections of a broker belong to one event loop."""


def request_families(
    dispatcher: Dispatcher, times: dict[int, RequestTimes], follower_fetches: dict[int, int], now: float
) -> Iterator[Family]:
    """The metrics of requests. ``follower_fetches``: the fetches of followers, by version."""
    requests: list[Sample] = []
    errors: Counter[str] = Counter()
    for route in dispatcher.routes:
        name, version = route.api.key.message_name, route.version
        count = route.requests + route.repeated
        requests.append(Sample(labels(request=name, version=version), count))
        if route.api.key is ApiKey.FETCH:
            followers = follower_fetches.get(version, 0)
            requests.append(Sample(labels(request="FetchConsumer", version=version), max(0, count - followers)))
            if followers:
                requests.append(Sample(labels(request="FetchFollower", version=version), followers))
        if isinstance(route.error_counts, CountedErrors):
            for error, number in route.error_counts.by_name():
                errors[labels(request=name, error=error)] += number
            errors[labels(request=name, error="NONE")] += route.repeated
    yield Family(
        "kafka.network:RequestMetrics:RequestsPerSec", Kind.COUNTER, "Requests of an API and a version.", requests
    )
    yield Family(
        "kafka.network:RequestMetrics:ErrorsPerSec",
        Kind.COUNTER,
        "Errors in responses of an API, also NONE.",
        [Sample(*item) for item in errors.items()],
    )
    yield from _times(times.copy(), now)
    for name in ("RequestQueueSize", "ResponseQueueSize"):
        yield gauge(f"kafka.network:RequestChannel:{name}", "Always 0: the event loop has no such queue.", 0)


def _times(times: dict[int, RequestTimes], now: float) -> Iterator[Family]:
    measured: tuple[tuple[str, str, str | None], ...] = (
        ("TotalTimeMs", "The time until the response, in ms.", "total"),
        ("LocalTimeMs", "The time on the event loop, in ms.", "local"),
        ("RemoteTimeMs", "The time for which a request waited for others, in ms.", "remote"),
        ("RequestQueueTimeMs", "Always 0: the event loop has no queue of requests.", None),
        ("ResponseQueueTimeMs", "Always 0: the event loop has no queue of responses.", None),
        ("ResponseSendTimeMs", "The time until the peer has taken a response, in ms.", "send"),
    )
    for name, text, attribute in measured:
        quantiles: list[Sample] = []
        counts: list[Sample] = []
        for key, each in times.items():
            durations: Durations = getattr(each, attribute or "total")
            request = labels(request=ApiKey(key).message_name)
            counts.append(Sample(request, durations.count))
            for quantile, value in durations.quantiles(now):
                quantiles.append(Sample(f'{request},quantile="{quantile}"', value if attribute else 0.0))
        bean = f"kafka.network:RequestMetrics:{name}"
        yield Family(bean, Kind.TIMER, text, quantiles)
        yield Family(bean, Kind.COUNTER, f"Observations. {text}", counts, "_count")


def connection_families(network: Network, rates: Rates, now: float) -> Iterator[Family]:
    """The metrics of connections, by listener."""
    by_listener: Counter[str] = Counter({listener.name: 0 for listener in network.listeners})
    software: Counter[str] = Counter()
    for connection in list(network.connections):
        by_listener[connection.listener_name] += 1
        name, _, version = connection.client_software.partition(" ")
        software[
            labels(
                clientSoftwareName=name or "unknown",
                clientSoftwareVersion=version or "unknown",
                listener=connection.listener_name,
                networkProcessor=_PROCESSOR,
            )
        ] += 1
    counts = network.counts
    prefix = "kafka.server:socket-server-metrics:"
    text = {name: labels(listener=name, networkProcessor=_PROCESSOR) for name in by_listener}
    yield Family(
        f"{prefix}connection-count",
        Kind.GAUGE,
        "Open connections.",
        [Sample(text[name], number) for name, number in by_listener.items()],
    )
    for metric, totals, verb in (
        ("connection-creation-rate", counts.opened_total, "Opened"),
        ("connection-close-rate", counts.closed_total, "Closed"),
    ):
        yield Family(
            f"{prefix}{metric}",
            Kind.GAUGE,
            f"{verb} connections per second.",
            [
                Sample(each, rates.per_second(f"{metric} {name}", totals.get(name, 0), now))
                for name, each in text.items()
            ],
        )
    yield Family(
        f"{prefix}connections-software",
        Kind.GAUGE,
        "Connections of each client software.",
        [Sample(*item) for item in software.items()],
    )
