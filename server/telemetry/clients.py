"""Client telemetry (KIP-714): subscriptions, the instances of clients, and the metrics that they have pushed.

The event loop calls `subscription`, `check_push` and `store`; the thread of the metrics only reads.

- An instance is known by the ID that it got here, or that it has chosen; the least recently used of `MAX_INSTANCES` is
  forgotten. A change of the subscriptions replaces it, so its first request afterwards is never too early.
- The ID of a subscription depends on its content and on the instance, so that it is the same on all brokers.
- A series is the last value of a metric with its attributes. There are at most `MAX_SERIES` of all clients and
  `MAX_SERIES_OF_CLIENT` of one; others are counted as omitted. They end if the client makes no request for three
  intervals.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...config import client_metrics as settings
from ...metadata.image import CLIENT_METRICS_RESOURCE
from ...protocol.checksum import crc32c
from ...protocol.compression import Codec
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.uuid import ZERO_UUID, random_uuid, uuid_to_str

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...metadata.image import ConfigResource, MetadataImage
    from .otlp import Point

MAX_INSTANCES: Final = 4096
MAX_SERIES: Final = 10_000
MAX_SERIES_OF_CLIENT: Final = 1000

ACCEPTED_COMPRESSION: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""In the order of preference. No compression is always accepted."""

ALL_METRICS: Final = "*"

_INTERVALS_KEPT: Final = 3
_MIN_KEPT_MS: Final = 60_000

_RETRY_AFTER: Final = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
"""After these errors a client may request its subscription immediately."""


class Client(NamedTuple):
    """The client behind a request."""

    client_id: str
    software_name: str
    software_version: str
    address: str
    port: int


class Subscription(NamedTuple):
    """What clients push, from the configs of a resource."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: dict[str, Any]
    """Patterns of RE2."""

    def matches(self, instance_id: bytes, client: Client) -> bool:
        """Whether it is for this client."""
        texts = {
            settings.CLIENT_INSTANCE_ID: uuid_to_str(instance_id),
            settings.CLIENT_ID: client.client_id,
            settings.CLIENT_SOFTWARE_NAME: client.software_name,
            settings.CLIENT_SOFTWARE_VERSION: client.software_version,
            settings.CLIENT_SOURCE_ADDRESS: client.address,
            settings.CLIENT_SOURCE_PORT: str(client.port),
        }
        return all(pattern.fullmatch(texts[selector]) for selector, pattern in self.match.items())


class Series(NamedTuple):
    """What a number of a client is."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    is_counter: bool


class Instance:
    """A client instance, with its subscription."""

    __slots__ = (
        "client",
        "instance_id",
        "interval_ms",
        "last_error",
        "last_get_ms",
        "last_push_ms",
        "metrics",
        "series",
        "subscription_id",
        "terminating",
        "version",
    )

    def __init__(self, instance_id: bytes, client: Client, version: int, subscriptions: list[Subscription]) -> None:
        matching = [each for each in subscriptions if each.matches(instance_id, client)]
        names = dict.fromkeys(name for each in matching for name in each.metrics)
        self.instance_id = instance_id
        self.client = client
        self.version = version
        self.interval_ms = min((each.interval_ms for each in matching), default=settings.DEFAULT_INTERVAL_MS)
        self.metrics = (ALL_METRICS,) if ALL_METRICS in names else tuple(names)
        content = f"{self.interval_ms} {','.join(sorted(self.metrics))}".encode()
        checksum = crc32c(content + instance_id)
        self.subscription_id = checksum - (1 << 32) if checksum >> 31 else checksum
        self.last_get_ms: float | None = None
        self.last_push_ms: float | None = None
        self.last_error = ErrorCode.NONE
        self.terminating = False
        self.series: dict[Series, float] = {}

    def is_stale(self, now_ms: float) -> bool:
        """Whether it has made no request for a while."""
        last_ms = self.last_request_ms
        return last_ms is not None and now_ms - last_ms > max(_MIN_KEPT_MS, _INTERVALS_KEPT * self.interval_ms)

    @property
    def last_request_ms(self) -> float | None:
        """The time of the last request that was not too early."""
        return max((ms for ms in (self.last_get_ms, self.last_push_ms) if ms is not None), default=None)


class ClientTelemetry:
    """See the module docstring. Times are milliseconds of a monotonic clock."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        now_ms: Callable[[], float],
        max_bytes: int,
        *,
        new_id: Callable[[], bytes] = random_uuid,
    ) -> None:
        self._image = image
        self._now_ms = now_ms
        self._new_id = new_id
        self.max_bytes = max_bytes
        """The limit of a push, before and after decompression."""
        self.unreadable = 0
        """Pushes that are not metrics."""
        self.omitted = 0
        """Numbers without a series, because there are too many."""
        self._instances: OrderedDict[bytes, Instance] = OrderedDict()
        self._series = 0
        self._configs: Mapping[ConfigResource, Mapping[str, str]] | None = None
        self._overrides: list[tuple[str, Mapping[str, str]]] = []
        self._subscriptions: list[Subscription] = []
        self._version = 0

    def subscription(self, instance_id: bytes, client: Client) -> Instance:
        """The subscription of this instance, or of a new one. Raises THROTTLING_QUOTA_EXCEEDED if it is too early."""
        while instance_id == ZERO_UUID:
            instance_id = self._new_id()
        now_ms = self._now_ms()
        instance = self._instance(instance_id, client)
        last_ms = instance.last_request_ms
        if last_ms is not None and now_ms - last_ms < instance.interval_ms and instance.last_error not in _RETRY_AFTER:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_get_ms = now_ms
        instance.last_error = ErrorCode.NONE
        return instance

    def check_push(
        self,
        instance_id: bytes,
        client: Client,
        *,
        subscription_id: int,
        terminating: bool,
        compression_type: int,
        size: int,
    ) -> Instance:
        """The instance whose push of ``size`` bytes is accepted. Raises KafkaError for one that is rejected."""
        if instance_id == ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        now_ms = self._now_ms()
        instance = self._instance(instance_id, client)
        was_terminating, instance.terminating = instance.terminating, terminating
        too_early = instance.last_push_ms is not None and now_ms - instance.last_push_ms < instance.interval_ms
        error = ErrorCode.NONE
        if was_terminating:
            error = ErrorCode.INVALID_REQUEST
        elif too_early and not terminating:
            error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        else:
            instance.last_push_ms = now_ms
            if subscription_id != instance.subscription_id:
                error = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
            elif compression_type != Codec.NONE and compression_type not in ACCEPTED_COMPRESSION:
                error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            elif size > self.max_bytes:
                error = ErrorCode.TELEMETRY_TOO_LARGE
        instance.last_error = error
        if error:
            raise KafkaError(error)
        self._forget_stale(now_ms)
        return instance

    def store(self, instance: Instance, point: Point) -> None:
        """Keep a number as the last value of its series."""
        series = instance.series
        key = Series(point.name, point.attributes, point.is_counter)
        before = series.get(key)
        if before is None:
            if self._instances.get(instance.instance_id) is not instance:
                return  # it was forgotten while its push was read
            if self._series >= MAX_SERIES or len(series) >= MAX_SERIES_OF_CLIENT:
                self.omitted += 1
                return
            self._series += 1
            before = 0.0
        series[key] = before + point.value if point.is_delta else point.value

    def live_instances(self) -> list[Instance]:
        """The instances that have made requests recently. Another thread may call this."""
        now_ms = self._now_ms()
        return [each for each in list(self._instances.values()) if not each.is_stale(now_ms)]

    def _instance(self, instance_id: bytes, client: Client) -> Instance:
        self._update_subscriptions()
        known = self._instances.get(instance_id)
        if known is not None and known.version == self._version:
            self._instances.move_to_end(instance_id)
            return known
        instance = Instance(instance_id, client, self._version, self._subscriptions)
        if known is not None:
            self._series -= len(known.series)
        self._instances[instance_id] = instance
        self._instances.move_to_end(instance_id)
        if len(self._instances) > MAX_INSTANCES:
            self._forget(next(iter(self._instances)))
        return instance

    def _forget_stale(self, now_ms: float) -> None:
        """Forget the least recently used instances that have not made a request for a while."""
        while (oldest := next(iter(self._instances.values()))).is_stale(now_ms):
            self._forget(oldest.instance_id)

    def _forget(self, instance_id: bytes) -> None:
        self._series -= len(self._instances.pop(instance_id).series)

    def _update_subscriptions(self) -> None:
        configs = self._image().configs
        if configs is self._configs:
            return
        self._configs = configs
        found = sorted(
            (resource.name, overrides)
            for resource, overrides in configs.items()
            if resource.type == CLIENT_METRICS_RESOURCE
        )
        if found == self._overrides:
            return
        self._overrides = found
        self._subscriptions = [_subscription(overrides) for _, overrides in found]
        self._version += 1


def _subscription(overrides: Mapping[str, str]) -> Subscription:
    values = {
        name: setting.parse(overrides[name]) if name in overrides else setting.default
        for name, setting in settings.SETTINGS.items()
    }
    metrics, match, interval_ms = values["metrics"], values["match"], values["interval.ms"]
    assert isinstance(metrics, tuple)
    assert isinstance(match, tuple)
    assert isinstance(interval_ms, int)
    return Subscription(metrics, interval_ms, settings.selectors(match))
