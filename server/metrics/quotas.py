"""The metrics of client quotas: which clients are throttled.

Apache Kafka has the attributes `throttle-time` of MBeans with users and client ids, which Strimzi's rules do not
export. A counter belongs to a quota, as its rate does: all clients of a quota for a user share one. It begins with the
first quota of the cluster, and ends when all quotas are removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .families import Family, Kind, Sample, labels

if TYPE_CHECKING:
    from ..context import MutationQuotas


def quota_families(quotas: MutationQuotas | None) -> Iterator[Family]:
    """Requests of throttled clients, and for how long."""
    found = {} if quotas is None else quotas.throttled.copy()
    counted = [
        (labels(quota=key, user=user, client_id=client_id), number, total_ms)
        for (key, user, client_id), (number, total_ms) in found.items()
    ]
    yield Family(
        "moldau_quota_throttled_requests_total",
        Kind.COUNTER,
        "Requests that exceeded a client quota.",
        [Sample(each, number) for each, number, _ in counted],
    )
    yield Family(
        "moldau_quota_throttled_seconds_total",
        Kind.COUNTER,
        "The throttle times of these requests.",
        [Sample(each, total_ms / 1000) for each, _, total_ms in counted],
    )
