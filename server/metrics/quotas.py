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
    for name, text, values in (
        ("requests", "Requests that exceeded a client quota.", [(each, number) for each, number, _ in counted]),
        (
            "seconds",
            "The throttle times of these requests.",
            [(each, total_ms / 1000) for each, _, total_ms in counted],
        ),
    ):
        samples = [Sample(each, value) for each, value in values]
        yield Family(f"moldau_quota_throttled_{name}_total", Kind.COUNTER, text, samples)
