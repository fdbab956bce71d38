"""Observers of a partition: notified of each change that a follower, or its leader, has to be informed of.

A `Waiter` waits for one condition, once. An observer stays, so that a fetch of thousands of partitions looks at those
that have changed since the previous one, and not at all of them.
"""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Calls must be cheap: there is one for each append. They must not change the partition."""

    def appended(self, size: int) -> None:
        """The leader has appended ``size`` bytes."""

    def moved(self) -> None:
        """The high watermark, the log start offset, the leadership or the in-sync replicas may have changed."""

    def lost(self) -> None:
        """As `Waiter.partition_changed`."""
