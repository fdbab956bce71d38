"""The metrics of a broker: what `listener` serves.

The thread of the listener reads plain numbers and copies of tables that the event loop changes. A copy of a table is
one step of the interpreter, so it is consistent. The numbers of different objects may be of slightly different times.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ... import __version__
from ..telemetry.clients import ClientTelemetry
from .clients import client_families
from .cluster import cluster_families
from .errors import CountedErrors
from .families import Family, Kind, Sample, gauge, labels, text_of
from .groups import group_families, transaction_families
from .pace import cpu_clock_of_this_thread, monotonic
from .process import idle_families, process_families
from .quotas import quota_families
from .rates import Rates
from .requests import connection_families, request_families
from .times import Durations, MeasuredDispatcher
from .topics import topic_families

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.listeners import Network
    from ..requests.dispatch import Dispatcher

# Kafka's BrokerState.
_STARTING: Final = 1
_RUNNING: Final = 3
_STOPPING: Final = 7


class _Served(NamedTuple):
    broker: Broker
    dispatcher: Dispatcher
    measured: MeasuredDispatcher
    network: Network
    loop_cpu: Callable[[], float]
    clock: Callable[[], float]  # of request times
    flushes: Durations


class BrokerMetrics:
    """See the module docstring, and `listener.Source`."""

    def __init__(self, max_partitions: int) -> None:
        self._max_partitions = max_partitions
        self._served: _Served | None = None
        self._is_stopping = False
        self._rates = Rates()

    def serve(self, broker: Broker, dispatcher: Dispatcher, network: Network) -> None:
        """The broker is about to serve clients. Called on its event loop, before the first request."""
        clock = network.turns.clock
        measured = MeasuredDispatcher(dispatcher, clock)
        network.dispatcher = measured
        broker.produce_times = measured.times_of(0)
        dispatcher.count_errors(CountedErrors)
        broker.telemetry = ClientTelemetry(
            lambda: broker.metadata.image, broker.timers.now_ms, broker.config.int("telemetry.max.bytes")
        )
        flushes = broker.group_commit.durations = Durations()
        served = _Served(broker, dispatcher, measured, network, cpu_clock_of_this_thread(), clock, flushes)
        _loop_idle(served, self._rates, monotonic())
        self._served = served

    def stopping(self) -> None:
        """The broker is about to stop."""
        self._is_stopping = True

    def unready(self) -> str | None:
        """See `listener.Source`."""
        served = self._served
        if self._is_stopping:
            return "stopping"
        if served is None:
            return "starting"
        registration = served.broker.metadata.image.brokers.get(served.broker.node_id)
        return "fenced" if registration is None or registration.fenced else None

    def check(self, alive: Callable[[], None]) -> bool:
        """See `listener.Source`."""
        served = self._served
        if served is None:
            return False
        loop: asyncio.AbstractEventLoop = served.broker.loop
        with contextlib.suppress(RuntimeError):  # it is closed, so it does not respond
            loop.call_soon_threadsafe(alive)
        return True

    def text(self, dialect: str) -> Iterator[str]:
        """See `listener.Source`."""
        return text_of(self.families(self._rates), dialect)

    def identity(self) -> Mapping[str, str] | None:
        """See `otlp.Source`."""
        if self._served is None:
            return None
        broker = self._served.broker
        return {
            "service.name": "moldau",
            "service.version": __version__,
            "service.instance.id": f"{broker.cluster_id}-{broker.node_id}",
        }

    def families(self, rates: Rates) -> Iterator[Family | None]:
        """All metrics. None: a moment to pause. ``rates`` belong to the calling thread."""
        yield from process_families()
        served = self._served
        state = _STOPPING if self._is_stopping else _RUNNING if served is not None else _STARTING
        yield gauge("kafka.server:KafkaServer:BrokerState", "1: starting, 3: running, 7: stopping.", state)
        if served is None:
            return
        now = monotonic()
        broker = served.broker
        yield from idle_families(_loop_idle(served, rates, now))
        yield from request_families(served.dispatcher, served.measured.times, broker.follower_fetches, served.clock())
        yield from connection_families(served.network, rates, now)
        yield from topic_families(broker.replicas, lambda: broker.metadata.image, self._max_partitions)
        yield from _logs(broker)
        yield from _flushes(served.flushes, broker.loop.time())
        yield from cluster_families(broker, rates, now, self._max_partitions)
        yield from group_families(broker, self._max_partitions)
        yield from transaction_families(broker, broker.now_ms())
        yield from quota_families(broker.mutation_quotas)
        if broker.telemetry is not None:
            yield from client_families(broker.telemetry)


def _loop_idle(served: _Served, rates: Rates, now: float) -> float:
    return max(0.0, min(1.0, 1.0 - rates.per_second("loop", served.loop_cpu(), now)))


def _logs(broker: Broker) -> Iterator[Family]:
    directories = broker.log_manager.directories
    offline = sum(not directory.online for directory in directories)
    yield gauge("kafka.log:LogManager:OfflineLogDirectoryCount", "Log directories that have failed.", offline)
    yield gauge(
        "kafka.log:LogCleaner:max-clean-time-secs", "How long the last compaction took.", broker.log_cleaner.last_pass_s
    )
    uncleanable = list(broker.log_cleaner.uncleanable)
    samples = []
    for directory in directories:
        found = sum(broker.log_manager.directory_of(*key) is directory for key in uncleanable)
        samples.append(Sample(labels(logDirectory=f'"{directory.path}"'), found))
    yield Family(
        "kafka.log:LogCleanerManager:uncleanable-partitions-count",
        Kind.GAUGE,
        "Partitions that are not compacted because of an error.",
        samples,
    )


def _flushes(durations: Durations, now: float) -> Iterator[Family]:
    bean, text = "kafka.log:LogFlushStats:LogFlushRateAndTimeMs", "The time to flush a log, in ms."
    samples = [Sample(f'quantile="{quantile}"', value) for quantile, value in durations.quantiles(now)]
    yield Family(bean, Kind.TIMER, text, samples)
    yield Family(bean, Kind.COUNTER, f"Observations. {text}", [Sample("", durations.count)], "_count")
