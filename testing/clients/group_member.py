"""A member of a consumer group as a program: one process around one client, which reports its events.

It is started with one argument, a JSON object, and prints one JSON object a line until its standard input ends; then it
closes its consumer as its client does, and exits. It may also be killed.

    argument            bootstrap_servers, group_id, topic, protocol, instance_id (or null), session_timeout_ms

    event               besides "at", the time of day in nanoseconds
    assigned            partitions: those added; generation: the generation or member epoch, or null
    revoked             partitions: those given up; the coordinator does not know this yet
    lost                partitions: those that another member owns by now
    consumed            partition, first, last: offsets of records that are consecutive
    committed           the coordinator has accepted the offsets of all consumed records
    refused             reason: it has rejected them. The member retries, unless another member owns the records by now
    error               code, reason: the client reports an error to its application, other than of a commit
    left                the consumer is closed

Each record is reported as consumed before its offset is committed. A member owns the partitions that were assigned and
neither revoked nor lost since, with eager and cooperative protocols alike.
"""

import json
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from moldau.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Options:
    """The argument of the program."""

    bootstrap_servers: str
    group_id: str
    topic: str
    protocol: str
    instance_id: str | None
    session_timeout_ms: int

    @property
    def heartbeat_interval_ms(self) -> int:
        """Short enough for short sessions, and for members to notice a rebalance soon."""
        return min(300, self.session_timeout_ms // 6)


_printing = threading.Lock()


def report(event: str, **fields: object) -> None:
    """Print an event."""
    line = json.dumps({"event": event, "at": time.time_ns(), **fields})
    with _printing:
        print(line, flush=True)


def report_consumed(records: Iterable[tuple[int, int]]) -> None:
    """Report records, given by partition and offset."""
    ranges: dict[int, list[list[int]]] = {}
    for partition, offset in records:
        of_partition = ranges.setdefault(partition, [])
        if of_partition and of_partition[-1][1] + 1 == offset:
            of_partition[-1][1] = offset
        else:
            of_partition.append([offset, offset])
    for partition, of_partition in ranges.items():
        for first, last in of_partition:
            report("consumed", partition=partition, first=first, last=last)


@contextmanager
def reported(kind: type[Exception]) -> Iterator[None]:
    """Report an error of the client before it ends the program."""
    try:
        yield
    except kind as error:
        number = getattr(error, "errno", None)
        known = number in ErrorCode._value2member_map_
        code = ErrorCode(number).name if known and number is not None else type(error).__name__
        report("error", code=code, reason=str(error))
        raise


def begin() -> tuple[Options, threading.Event]:
    """The options, and an event that is set when the standard input ends."""
    options = Options(**json.loads(sys.argv[1]))
    leaving = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        leaving.set()

    threading.Thread(target=watch, name="stdin", daemon=True).start()
    return options, leaving
