"""A member of a consumer group as a program: one process around one client, which tells what happens to it.

It is started with one argument, a JSON object, and prints one JSON object a line until its standard input ends; then it
closes its consumer as its client does, and exits. Whoever starts it may also kill it.

    argument            bootstrap_servers, group_id, topic, protocol, instance_id (or null), session_timeout_ms

    event               besides "at", the time of day in nanoseconds
    assigned            partitions: those that have come; generation: the generation or member epoch, or null
    revoked             partitions: those that are given up, which the coordinator does not know yet
    lost                partitions: those that are somebody else's by now
    consumed            partition, first, last: offsets of records that are consecutive
    committed           the coordinator has taken the offsets of all that was consumed
    refused             reason: it has not, and will be asked again; unless the records are somebody else's by now
    left                the consumer is closed

Each record is told as consumed before its offset is committed. The partitions that a member owns are those that have
come and have not gone, whether its protocol is an eager or a cooperative one.
"""

import json
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """What a member is told at its start."""

    bootstrap_servers: str
    group_id: str
    topic: str
    protocol: str
    instance_id: str | None
    session_timeout_ms: int

    @property
    def heartbeat_interval_ms(self) -> int:
        """Often enough for a short session, and for a rebalance that is soon known to all."""
        return min(300, self.session_timeout_ms // 6)


_printing = threading.Lock()


def tell(event: str, **fields: object) -> None:
    """Print an event."""
    line = json.dumps({"event": event, "at": time.time_ns(), **fields})
    with _printing:
        print(line, flush=True)


def tell_consumed(records: Iterable[tuple[int, int]]) -> None:
    """Tell of records, given by partition and offset."""
    ranges: dict[int, list[list[int]]] = {}
    for partition, offset in records:
        of_partition = ranges.setdefault(partition, [])
        if of_partition and of_partition[-1][1] + 1 == offset:
            of_partition[-1][1] = offset
        else:
            of_partition.append([offset, offset])
    for partition, of_partition in ranges.items():
        for first, last in of_partition:
            tell("consumed", partition=partition, first=first, last=last)


def begin() -> tuple[Options, threading.Event]:
    """The options, and an event that is set when the member shall leave."""
    options = Options(**json.loads(sys.argv[1]))
    leaving = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        leaving.set()

    threading.Thread(target=watch, name="stdin", daemon=True).start()
    return options, leaving
