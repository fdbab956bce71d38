"""The client quotas of a broker: what producers and consumers have used, and for how long their connections are muted.

A request whose client has exceeded its quota is served, and its connection is muted for the throttle time: no request
is read from it (KIP-219). The response has the throttle time. A fetch that exceeds its quota has an empty response.

- Produce: the bytes of the request, when it is answered, also for refused partitions.
- Fetch: the bytes of the response. A fetch of a replica is not limited.
- CreateTopics, DeleteTopics and CreatePartitions: the partitions that are created or deleted (KIP-599), also if they
  are only validated. While the quota is exceeded, newer versions refuse topics with THROTTLING_QUOTA_EXCEEDED. Only
  such a response of these versions has a throttle time.
- Topics that Metadata creates automatically count, too. While the quota is exceeded, they do not exist.
- All requests: the percentage of the event loop's time (`loop_time`), with a throttle time of at most one sample. A
  fetch that exceeds it has an empty response, too. Requests between nodes are not limited.

Connections to which a quota applies have no fast paths.
"""

from __future__ import annotations

from collections.abc import Generator
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...log.descriptors import FileRange
from ...metadata.topic_names import invalid_reason
from ...protocol.api import ApiKey
from ...protocol.codec import encode_parts
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.steps import completed
from ...protocol.uuid import ZERO_UUID
from ...security.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Quota,
    QuotaIndex,
    Rate,
    TokenBucket,
    Window,
)
from .loop_time import LoopTime, Spent

if TYPE_CHECKING:
    from ...protocol.messages.fetch import FetchResponse
    from ...protocol.messages.produce import ProduceResponse
    from ..broker import Broker
    from ..context import RequestContext, ServedRequest
    from ..network.connection import Connection

_MAX_RATES: Final = 10_000
"""A client may use any number of client ids. If there are more rates, those of idle clients are forgotten first."""
_MANY_PARTITIONS: Final = 1000
_BYTES_OF_PARTITION: Final = 40
"""Of a partition in the response to a fetch, besides its records."""
_BYTES_OF_RESPONSE: Final = 64
"""Of such a response, besides its partitions."""
_METERED: Final = {ApiKey.PRODUCE: PRODUCER_BYTE_RATE, ApiKey.FETCH: CONSUMER_BYTE_RATE}
_STRICT_SINCE: Final = {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}
"""Clients know THROTTLING_QUOTA_EXCEEDED since these versions."""
_RESULTS: Final = {
    ApiKey.CREATE_TOPICS: "topics",
    ApiKey.DELETE_TOPICS: "responses",
    ApiKey.CREATE_PARTITIONS: "results",
}


class ClientQuotas:
    """See the module docstring. It belongs to the event loop."""

    def __init__(self, broker: Broker, window: Window, burst_s: int) -> None:
        """``burst_s``: after idleness, `controller_mutation_rate` of so many seconds may be used at once."""
        self._broker = broker
        self._window = window
        self._burst_s = burst_s
        self._sessions = broker.fetch_sessions
        self._clock = broker.loop.time
        self._index = QuotaIndex({})
        self._buckets: dict[tuple[str, str, str], TokenBucket] = {}
        self._rates: dict[tuple[str, str, str], Rate] = {}
        self.throttled: dict[tuple[str, str, str], tuple[int, int]] = {}
        """See `context.MutationQuotas`."""
        self.loop_time: LoopTime | None = None
        """Measures requests, if there is a quota that limits their time."""

    def load(self, index: QuotaIndex) -> None:
        """The quotas of the metadata have changed."""
        self._index = index
        if not index.has(REQUEST_PERCENTAGE):
            self.loop_time = None
        elif self.loop_time is None:
            self.loop_time = LoopTime(self._broker.slices.clock)

    def limits(self, context: ServedRequest) -> bool:
        """Whether a quota applies to the request."""
        return self._quota(context) is not None or self._find(REQUEST_PERCENTAGE, context) is not None

    def meter(self, context: ServedRequest, size: int) -> None:
        """Count a request of ``size`` bytes when it is answered. Called before its handler."""
        if _is_between_nodes(context):
            return
        quota = self._quota(context)
        if quota is not None:
            self._meter_bytes(context, quota, size)
        if self.loop_time is not None and self.loop_time.current is not None:
            time_quota = self._find(REQUEST_PERCENTAGE, context)
            if time_quota is not None:
                self._meter_time(context, time_quota, self.loop_time, self.loop_time.current)

    def _meter_bytes(self, context: ServedRequest, quota: Quota, size: int) -> None:
        request = context.request
        if context.route.api.key is ApiKey.FETCH:
            # Without what the response has besides records, because a response above the burst is never sent.
            session = self._sessions.get(request.session_id)
            partitions = sum(len(topic.partitions) for topic in request.topics)
            partitions += 0 if session is None else len(session.partitions)
            rest = _BYTES_OF_RESPONSE + partitions * _BYTES_OF_PARTITION
            largest = int(quota.limit * self._window.largest_burst_s)
            request.max_bytes = min(request.max_bytes, max(1, largest - rest))
            context.amend(partial(self._fetched, context, quota))
        elif request.acks == 0:  # there will be no response
            context.connection.mute(self._used(quota, size))
        else:
            context.amend(partial(self._produced, context.connection, quota, size))

    def _meter_time(self, context: ServedRequest, quota: Quota, loop_time: LoopTime, spent: Spent) -> None:
        def charge(seconds: float) -> int:
            """Returns the throttle time. After a response, it applies to the next request."""
            return self._used(quota, 100 * seconds, self._window.size_ms)

        def answered(response: Any) -> None:
            throttle_ms = charge(loop_time.take(spent))
            if throttle_ms <= 0:
                return
            context.connection.mute(throttle_ms)
            if hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = max(response.throttle_time_ms, throttle_ms)
            if context.route.api.key is ApiKey.FETCH and response.responses:
                self._revoke(context, response)

        if context.route.api.key is ApiKey.PRODUCE and context.request.acks == 0:  # there will be no response
            spent.charge = lambda seconds: context.connection.mute(charge(seconds))
        else:
            spent.charge = charge
            context.amend(answered)

    def _revoke(self, context: ServedRequest, response: FetchResponse) -> None:
        """Send no records, which do not count then."""
        quota = self._quota(context)
        if quota is not None:
            self._used(quota, -_fetched_bytes(response, context.api_version))
        self._empty(context, response)

    def _quota(self, context: ServedRequest) -> Quota | None:
        key = _METERED.get(context.route.api.key)
        return None if key is None else self._find(key, context)

    def _find(self, key: str, context: RequestContext) -> Quota | None:
        if not self._index.has(key):
            return None
        user = context.principal.partition(":")[2]
        return self._index.find(key, user, context.client_id)

    def _produced(self, connection: Connection, quota: Quota, size: int, response: ProduceResponse) -> None:
        response.throttle_time_ms = self._used(quota, size)
        connection.mute(response.throttle_time_ms)

    def _fetched(self, context: ServedRequest, quota: Quota, response: FetchResponse) -> None:
        size = _fetched_bytes(response, context.api_version)
        throttle_ms = self._used(quota, size)
        if throttle_ms > 0:
            self._used(quota, -size)
            self._empty(context, response)
            response.throttle_time_ms = throttle_ms
            context.connection.mute(throttle_ms)

    def _empty(self, context: ServedRequest, response: FetchResponse) -> None:
        """Send no partitions now. The session sends them with one of its next responses."""
        session = self._sessions.get(response.session_id)
        uses_topic_ids = context.api_version >= 13
        for topic in response.responses:
            name: Any = topic.topic_id if uses_topic_ids else topic.topic
            for data in topic.partitions:
                if isinstance(data.records, FileRange):
                    data.records.release()
                known = None if session is None else session.partitions.get((name, data.partition_index))
                if known is not None:
                    known.known_high_watermark = -1
        response.responses = []
        response.node_endpoints = []

    def limit_mutations(self, context: ServedRequest, request: Any) -> None:
        """See `context.MutationQuotas`."""
        quota = self._find(CONTROLLER_MUTATION_RATE, context)
        if quota is None:
            return
        now_ms = int(self._clock() * 1000)
        bucket = self._bucket(quota, now_ms)
        key = context.route.api.key
        is_strict = context.api_version >= _STRICT_SINCE[key]
        attribute = "topic_names" if key is ApiKey.DELETE_TOPICS and context.api_version < 6 else "topics"
        allowed, refused = [], []
        for topic in getattr(request, attribute):
            partitions = self._mutations(key, topic)
            if is_strict and partitions and bucket.is_exceeded(now_ms):
                refused.append(topic)
            else:
                allowed.append(topic)
                bucket.take(partitions, now_ms)
        # Clients that know the error learn the throttle time with it, and only then.
        throttle_ms = 0 if is_strict and not refused else bucket.throttle_ms(now_ms)
        self._count(quota, throttle_ms)
        results: list[Any] = []
        if refused:
            setattr(request, attribute, allowed)
            part = copy(request)
            setattr(part, attribute, refused)
            message = "The throttling quota has been exceeded."
            answer = context.route.failed(part, KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message))
            results = getattr(completed(answer) if isinstance(answer, Generator) else answer, _RESULTS[key])

        def change(response: Any) -> None:
            getattr(response, _RESULTS[key]).extend(results)
            response.throttle_time_ms = max(response.throttle_time_ms, throttle_ms)
            context.connection.mute(throttle_ms)

        if throttle_ms or refused:
            context.amend(change)

    def limit_auto_creation(self, context: RequestContext, names: list[str]) -> list[str]:
        """See `context.MutationQuotas`."""
        quota = self._find(CONTROLLER_MUTATION_RATE, context)
        if quota is None:
            return names
        now_ms = int(self._clock() * 1000)
        bucket = self._bucket(quota, now_ms)
        image, partitions = self._broker.metadata.image, self._broker.config.int("num.partitions")
        allowed = []
        for name in names:
            if name in image.topics_by_name or invalid_reason(name) is not None:
                allowed.append(name)  # it will not be created
            elif not bucket.is_exceeded(now_ms):
                bucket.take(partitions, now_ms)
                allowed.append(name)
        return allowed

    def _mutations(self, key: ApiKey, topic: Any) -> int:
        """How many partitions are created or deleted for a topic of a request."""
        image = self._broker.metadata.image
        topic_id = getattr(topic, "topic_id", ZERO_UUID)
        name = topic if isinstance(topic, str) else topic.name
        found = image.topics_by_name.get(name or "") if topic_id == ZERO_UUID else image.topics_by_id.get(topic_id)
        existing = 0 if found is None else len(found.partitions)
        if key is ApiKey.DELETE_TOPICS:
            return existing
        if key is ApiKey.CREATE_PARTITIONS:
            return max(0, topic.count - existing) if existing else 0
        if existing or invalid_reason(name) is not None:
            return 0  # it will be rejected, with its own error
        if topic.assignments:
            return len(topic.assignments)
        return topic.num_partitions if topic.num_partitions > 0 else self._broker.config.int("num.partitions")

    def _bucket(self, quota: Quota, now_ms: int) -> TokenBucket:
        bucket = self._buckets.get(quota.counter)
        burst = quota.limit * self._burst_s
        if bucket is None:
            if len(self._buckets) >= _MAX_RATES:
                self._buckets = {each: found for each, found in self._buckets.items() if not found.is_full(now_ms)}
                while len(self._buckets) >= _MAX_RATES:
                    del self._buckets[next(iter(self._buckets))]
            bucket = self._buckets[quota.counter] = TokenBucket(quota.limit, burst, now_ms)
        bucket.change_rate(quota.limit, burst, now_ms)
        return bucket

    def _used(self, quota: Quota, amount: float, max_ms: int | None = None) -> int:
        """Count an amount. Returns the throttle time in milliseconds."""
        now_ms = int(self._clock() * 1000)
        rate = self._rates.get(quota.counter)
        if rate is None:
            if len(self._rates) >= _MAX_RATES:
                self._forget_idle(now_ms)
            rate = self._rates[quota.counter] = Rate(self._window)
        rate.record(amount, now_ms)
        throttle_ms = rate.throttle_ms(quota.limit, now_ms)
        if max_ms is not None:
            throttle_ms = min(max_ms, throttle_ms)
        if amount > 0:  # otherwise an amount is revoked
            self._count(quota, throttle_ms)
        return throttle_ms

    def _count(self, quota: Quota, throttle_ms: int) -> None:
        """Count a throttled request, for the metrics."""
        if throttle_ms <= 0:
            return
        number, total_ms = self.throttled.get(quota.counter, (0, 0))
        if not number and len(self.throttled) >= _MAX_RATES:
            del self.throttled[next(iter(self.throttled))]
        self.throttled[quota.counter] = number + 1, total_ms + throttle_ms

    def _forget_idle(self, now_ms: int) -> None:
        self._rates = {counter: rate for counter, rate in self._rates.items() if not rate.is_idle(now_ms)}
        while len(self._rates) >= _MAX_RATES:
            del self._rates[next(iter(self._rates))]


def _fetched_bytes(response: FetchResponse, version: int) -> int:
    """The bytes of a response without its header, with the four bytes of its length, as Apache Kafka counts them.

    Those of very many partitions are estimated: this is no work in slices.
    """
    partitions = sum(len(topic.partitions) for topic in response.responses)
    if partitions > _MANY_PARTITIONS:
        records = sum(len(data.records or b"") for topic in response.responses for data in topic.partitions)
        return records + partitions * _BYTES_OF_PARTITION
    parts: list[Any] = []
    encode_parts(response, version, parts)
    return 4 + sum(map(len, parts))


def _is_between_nodes(context: ServedRequest) -> bool:
    """No quota limits what brokers need from each other."""
    request = context.request
    if context.route.api.key is ApiKey.FETCH:
        return bool(max(request.replica_id, request.replica_state.replica_id) >= 0)
    return context.route.api.key is ApiKey.WRITE_TXN_MARKERS
