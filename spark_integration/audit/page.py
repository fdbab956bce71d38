"""The record of the audit topic: one page of the books of one client, as JSON.

A page counts the records of one partition whose timestamps lie in one window, as one client instance saw them. A page
is always sent as a whole, with an increasing revision. A reader keeps the highest revision of each page. So duplicate
messages, or a lost one that is followed by another, change nothing, and the topic may be compacted by its key.

    key    "<instance>/<page>", or "<instance>" for the message that closes the books
    value  {"version": 1,              other versions are rejected
            "kind": "page",            or "closed": the last message; such a message ends with "from_earliest"
            "time": 1795212000123,     when it was sent, milliseconds since 1970
            "tier": "producer",        or "consumer"
                    "group": "billing",        for a consumer: its instances together read each record once
                    "instance": "billing-host-4711-9f3a2c01",
            "from_earliest": false,    for a consumer: the group reads a topic from its beginning
            "page": 3, "revision": 2,  the page's number in the books of the instance, and how often it was sent
            "topic": "orders", "partition": 0,
            "window_start": 1795212000000, "window_end": 1795212060000,
            "count": 141,
            "offsets": [[0, 99], [110, 149], [7, 7]],   runs, first and last; an offset in two of them was seen twice
            "unplaced": 0}             records without an offset (acks=0); count is these and all that the runs hold
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Literal

VERSION = 1

Tier = Literal["producer", "consumer"]

# The same schema for Spark.
SPARK_SCHEMA = (
    "version int, kind string, time long, tier string, `group` string, instance string, from_earliest boolean, "
    "page long, revision long, topic string, partition int, window_start long, window_end long, "
    "`count` long, offsets array<array<long>>, unplaced long"
)


@dataclass(frozen=True, slots=True)
class Owner:
    """The client instance that has counted."""

    tier: Tier
    instance: str
    group: str | None = None
    from_earliest: bool = False

    def fields(self) -> dict[str, object]:
        return {
            "tier": self.tier,
            "group": self.group,
            "instance": self.instance,
            "from_earliest": self.from_earliest,
        }


@dataclass(slots=True, eq=False)
class Page:
    """A page that is being filled."""

    number: int
    topic: str
    partition: int
    window_start: int
    window_end: int
    count: int = 0
    unplaced: int = 0
    revision: int = 0
    runs: list[list[int]] = field(default_factory=list)
    # Whether records were counted since the page was last sent.
    changed: bool = False
    # The offset that would extend the last run.
    next_offset: int = -1

    def add(self, offset: int) -> None:
        """Count a record; a negative offset means that the offset is unknown."""
        self.count += 1
        self.changed = True
        if offset < 0:
            self.unplaced += 1
        elif offset == self.next_offset:
            self.runs[-1][1] = offset
            self.next_offset = offset + 1
        else:
            self.runs.append([offset, offset])
            self.next_offset = offset + 1


def page_message(owner: Owner, page: Page, time_ms: int) -> tuple[bytes, bytes]:
    """Key and value of a page in its current state."""
    value = {
        "version": VERSION,
        "kind": "page",
        "time": time_ms,
        **owner.fields(),
        "page": page.number,
        "revision": page.revision,
        "topic": page.topic,
        "partition": page.partition,
        "window_start": page.window_start,
        "window_end": page.window_end,
        "count": page.count,
        "offsets": page.runs,
        "unplaced": page.unplaced,
    }
    return f"{owner.instance}/{page.number}".encode(), _encoded(value)


def closed_message(owner: Owner, time_ms: int) -> tuple[bytes, bytes]:
    """Key and value of the last message, which closes the books."""
    value = {"version": VERSION, "kind": "closed", "time": time_ms, **owner.fields()}
    return owner.instance.encode(), _encoded(value)


def _encoded(value: dict[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
