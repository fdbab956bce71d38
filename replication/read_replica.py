"""Where consumers should read (KIP-392): from a follower in their rack, if there is one with the records.

A leader whose `replica.selector.class` is `RackAwareReplicaSelector` answers the fetch of a consumer with the id of an
in-sync follower instead of records. The consumer then fetches from that broker for some minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .in_sync import Follower

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

THIS_BROKER: Final = -1


def preferred_read_replica(
    followers: Mapping[int, Follower], offset: int, rack: str, rack_of: Callable[[int], str | None]
) -> int:
    """The broker from which a consumer in this rack should read from ``offset`` on.

    ``followers``: the in-sync ones. ``rack_of``: the rack of a live broker; None without a rack, or if the broker is
    not live. Of several followers in the rack, it is the one with the most records, then the one that was caught up
    last.
    """
    candidates = [
        (follower.end_offset, follower.caught_up_ms, broker_id)
        for broker_id, follower in followers.items()
        if follower.log_start_offset <= offset <= follower.end_offset and rack_of(broker_id) == rack
    ]
    return max(candidates)[-1] if candidates else THIS_BROKER
