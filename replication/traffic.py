"""Counters of a topic's records and requests on this broker.

They are plain numbers on the path of produce requests and fetches, which only the event loop changes. Metrics are
computed from them when they are requested.
"""

from __future__ import annotations


class Traffic:
    """The counters of one topic, since the broker has replicas of it."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "conversions",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "isr_expands",
        "isr_shrinks",
        "messages_in",
        "produces",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        """Records appended by clients and coordinators, without the copies of followers."""
        self.bytes_in = 0
        self.bytes_out = 0
        """Bytes sent to consumers, without those sent to followers."""
        self.bytes_rejected = 0
        """Bytes of batches that were larger than `max.message.bytes`."""
        self.produces = 0
        """Appends that clients have requested, one for each partition of a request."""
        self.fetches = 0
        """Reads that clients and followers have requested, one for each partition of a request."""
        self.failed_produces = 0
        """Of `produces`, those that failed for another reason than a client error that Apache Kafka expects."""
        self.failed_fetches = 0
        self.conversions = 0
        """Batches that were compressed again."""
        self.isr_shrinks = 0
        self.isr_expands = 0

    def add(self, other: Traffic) -> None:
        """Add the counters of another topic."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


UNCOUNTED = Traffic()
"""Of partitions that no `Replicas` has: tests, and partitions that are being created."""
