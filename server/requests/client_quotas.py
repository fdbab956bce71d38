"""The client quotas of a broker: what producers and consumers have used, and for how long their connections are muted.

A request whose client has exceeded its quota is served, and its connection is muted for the throttle time: no request
is read from it (KIP-219). The response has the throttle time. A fetch that exceeds its quota has an empty response.

- Produce: the bytes of the request, when it is answered, also for refused partitions.
- Fetch: the bytes of the records in the response. A fetch of a replica is not limited.

Connections to which a quota applies have no fast paths. The quotas `request_percentage`, `controller_mutation_rate` and
`connection_creation_rate` are kept in the metadata without effect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...log.descriptors import FileRange
from ...protocol.api import ApiKey
from ...security.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, Quota, QuotaIndex, Rate, Window

if TYPE_CHECKING:
    from ...metadata.image import MetadataImage
    from ...protocol.messages.fetch import FetchResponse
    from ...protocol.messages.produce import ProduceResponse
    from ..context import ServedRequest
    from ..network.connection import Connection
    from ..records.fetch_session import FetchSessionCache

logger = logging.getLogger(__name__)

_MAX_RATES: Final = 10_000
"""A client may use any number of client ids. If there are more rates, those of idle clients are forgotten first."""
_ENFORCED: Final = {ApiKey.PRODUCE: PRODUCER_BYTE_RATE, ApiKey.FETCH: CONSUMER_BYTE_RATE}


class ClientQuotas:
    """See the module docstring. It belongs to the event loop."""

    def __init__(self, window: Window, sessions: FetchSessionCache, clock: Callable[[], float]) -> None:
        """``clock``: seconds, which only increase."""
        self._window = window
        self._sessions = sessions
        self._clock = clock
        self._index = QuotaIndex({})
        self._rates: dict[tuple[str, str, str], Rate] = {}

    def load(self, image: MetadataImage) -> None:
        """The quotas of the metadata have changed."""
        self._index = QuotaIndex(image.client_quotas)
        without_effect = sorted(
            {key for values in image.client_quotas.values() for key in values} - set(_ENFORCED.values())
        )
        if without_effect:
            logger.warning("Quotas of these kinds have no effect: %s", ", ".join(without_effect))

    def limits(self, context: ServedRequest) -> bool:
        """Whether a quota applies to the request."""
        return self._quota(context) is not None

    def meter(self, context: ServedRequest, size: int) -> None:
        """Count a request of ``size`` bytes when it is answered. Called before its handler."""
        quota = self._quota(context)
        if quota is None:
            return
        request = context.request
        if context.route.api.key is ApiKey.PRODUCE:
            if request.acks == 0:  # there will be no response
                context.connection.mute(self._used(quota, size))
            else:
                context.amend(partial(self._produced, context.connection, quota, size))
        elif max(request.replica_id, request.replica_state.replica_id) < 0:
            request.max_bytes = min(request.max_bytes, int(quota.limit * self._window.largest_burst_s))
            context.amend(partial(self._fetched, context, quota))

    def _quota(self, context: ServedRequest) -> Quota | None:
        key = _ENFORCED.get(context.route.api.key)
        if key is None or not self._index.has(key):
            return None
        user = context.principal.partition(":")[2]
        return self._index.find(key, user, context.client_id)

    def _produced(self, connection: Connection, quota: Quota, size: int, response: ProduceResponse) -> None:
        response.throttle_time_ms = self._used(quota, size)
        connection.mute(response.throttle_time_ms)

    def _fetched(self, context: ServedRequest, quota: Quota, response: FetchResponse) -> None:
        size = sum(len(data.records or b"") for topic in response.responses for data in topic.partitions)
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

    def _used(self, quota: Quota, amount: int) -> int:
        """Count an amount. Returns the throttle time in milliseconds."""
        now_ms = int(self._clock() * 1000)
        rate = self._rates.get(quota.counter)
        if rate is None:
            if len(self._rates) >= _MAX_RATES:
                self._forget_idle(now_ms)
            rate = self._rates[quota.counter] = Rate(self._window)
        rate.record(amount, now_ms)
        return rate.throttle_ms(quota.limit, now_ms)

    def _forget_idle(self, now_ms: int) -> None:
        self._rates = {counter: rate for counter, rate in self._rates.items() if not rate.is_idle(now_ms)}
        while len(self._rates) >= _MAX_RATES:
            del self._rates[next(iter(self._rates))]
