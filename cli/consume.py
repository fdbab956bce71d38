"""``moldau consume``: the records of a topic, without a group and without committing anything."""

import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from ..config.integers import signed_integer
from .client import bootstrap_option, consumer
from .failure import Failure
from .interrupts import deferred_interrupt
from .output import binary_as_json, print_json

if TYPE_CHECKING:
    from kafka import KafkaConsumer, TopicPartition
    from kafka.consumer.fetcher import ConsumerRecord

_POLL_MS: Final = 500
_MAX_POLL_RECORDS: Final = 5000
# Give up after this long without records below the end offset, for example because a partition has no leader.
_STALLED_S: Final = 30.0


@click.command("consume", short_help="Print the records of a topic.")
@click.argument("topic")
@click.option("--from-beginning", is_flag=True, help="Start at the oldest record.")
@click.option("--offset", type=int, help="Start at an offset; a negative value counts from the end.")
@click.option("--timestamp", metavar="TIME", help="Start at a time: milliseconds since 1970, or ISO 8601.")
@click.option(
    "--partition",
    "-p",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    help="Read only this partition; repeatable.",
)
@click.option("--follow", "-f", is_flag=True, help="Wait for new records at the end, until Ctrl-C.")
@click.option("--max-messages", "-n", type=click.IntRange(1), help="Stop after this many records.")
@click.option("--read-committed", is_flag=True, help="Skip records of aborted and open transactions.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per record, with all its fields.")
@click.option("--key-separator", "-k", metavar="TEXT", help="Print the key and TEXT before every value.")
@bootstrap_option
def command(
    topic: str,
    from_beginning: bool,
    offset: int | None,
    timestamp: str | None,
    partitions: tuple[int, ...],
    follow: bool,
    max_messages: int | None,
    read_committed: bool,
    as_json: bool,
    key_separator: str | None,
    bootstrap_server: str,
) -> None:
    """Print the records of TOPIC.

    Without --follow, print the existing records and exit; the default start is the oldest record. With --follow, wait
    for new records until Ctrl-C; the default start is the end. The command never joins a group and commits no offsets.
    Without --json, each value is printed unchanged on its own line; a null is an empty line.

    \b
    Examples:
      moldau consume events
      moldau consume events --follow --from-beginning
      moldau consume events --offset -10 --partition 0
      moldau consume events --timestamp 2026-01-31T12:00:00Z --json
    """
    if sum((from_beginning, offset is not None, timestamp is not None)) > 1:
        raise click.UsageError("--from-beginning, --offset and --timestamp are mutually exclusive")
    timestamp_ms = None if timestamp is None else parse_time(timestamp)
    write = _json_writer() if as_json else _plain_writer(key_separator)
    isolation = "read_committed" if read_committed else "read_uncommitted"
    with consumer(bootstrap_server, isolation_level=isolation, max_poll_records=_MAX_POLL_RECORDS) as client:
        chosen = _choose_partitions(client, topic, partitions)
        client.assign(chosen)
        if timestamp_ms is not None:
            _seek_to_time(client, chosen, timestamp_ms)
        elif offset is not None:
            _seek_to_offset(client, chosen, offset)
        elif follow and not from_beginning:
            client.seek_to_end(*chosen)
        else:
            client.seek_to_beginning(*chosen)
        ends = None if follow else client.end_offsets(chosen)
        for count, record in enumerate(_records(client, chosen, ends), 1):
            write(record)
            if count == max_messages:
                break
        sys.stdout.flush()


def parse_time(text: str) -> int:
    """Milliseconds since 1970, from a number or from ISO 8601 (local time without an offset)."""
    milliseconds = signed_integer(text, 64)
    if milliseconds is not None:
        return milliseconds
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is neither milliseconds since 1970 nor a time like 2026-01-31T12:00:00Z",
            param_hint="--timestamp",
        ) from error


def _choose_partitions(client: "KafkaConsumer", topic: str, wanted: tuple[int, ...]) -> "list[TopicPartition]":
    from kafka import TopicPartition

    there = client.partitions_for_topic(topic)
    if not there:
        raise Failure(f"topic {topic} does not exist; `moldau topics list` lists the topics")
    missing = sorted(set(wanted) - there)
    if missing:
        raise Failure(
            f"{topic} has no partition {', '.join(map(str, missing))}, only {', '.join(map(str, sorted(there)))}"
        )
    return [TopicPartition(topic, partition) for partition in sorted(set(wanted) or there)]


def _seek_to_time(client: "KafkaConsumer", partitions: "list[TopicPartition]", timestamp_ms: int) -> None:
    found = client.offsets_for_times(dict.fromkeys(partitions, timestamp_ms))
    for partition in partitions:
        position = found.get(partition)
        if position is None:
            client.seek_to_end(partition)
        else:
            client.seek(partition, position.offset)


def _seek_to_offset(client: "KafkaConsumer", partitions: "list[TopicPartition]", offset: int) -> None:
    first, after_last = client.beginning_offsets(partitions), client.end_offsets(partitions)
    for partition in partitions:
        low, high = first[partition], after_last[partition]
        if offset > high or 0 <= offset < low:
            raise Failure(
                f"offset {offset} is out of range: partition {partition.partition} has offsets {low} to {high}"
            )
        client.seek(partition, offset if offset >= 0 else max(low, high + offset))


def _records(
    client: "KafkaConsumer", partitions: "list[TopicPartition]", ends: "dict[TopicPartition, int] | None"
) -> "Iterator[ConsumerRecord]":
    """Records in order of arrival (in offset order per partition), up to ``ends`` if given."""
    remaining = list(partitions)
    last_progress = time.monotonic()
    while True:
        if ends is not None:
            # Compare positions, not records: the last offsets may hold no records (transaction markers, compaction).
            remaining = [partition for partition in remaining if client.position(partition) < ends[partition]]
            if not remaining:
                return
        with deferred_interrupt():
            polled = client.poll(timeout_ms=_POLL_MS)
        if polled:
            last_progress = time.monotonic()
        elif ends is not None and time.monotonic() - last_progress > _STALLED_S:
            stalled = ", ".join(str(partition.partition) for partition in remaining)
            raise Failure(f"no records from partition {stalled} for {_STALLED_S:g} seconds; run `moldau doctor`")
        for partition, records in polled.items():
            for record in records:
                if ends is None or record.offset < ends[partition]:
                    yield record
        sys.stdout.flush()


def _plain_writer(key_separator: str | None) -> "Callable[[ConsumerRecord], None]":
    out = sys.stdout.buffer
    separator = None if key_separator is None else key_separator.encode()

    def write(record: "ConsumerRecord") -> None:
        value = record.value or b""
        out.write(value + b"\n" if separator is None else b"%b%b%b\n" % (record.key or b"", separator, value))

    return write


def _json_writer() -> "Callable[[ConsumerRecord], None]":
    def write(record: "ConsumerRecord") -> None:
        print_json(record_as_json(record))

    return write


def record_as_json(record: "ConsumerRecord") -> dict[str, Any]:
    """A record in the form that `moldau produce --json` reads; ``time`` is informational."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "time": _iso(record.timestamp),
        "timestamp_type": ("CreateTime", "LogAppendTime")[record.timestamp_type] if record.timestamp >= 0 else None,
        **binary_as_json("key", record.key),
        **binary_as_json("value", record.value),
        "headers": [{"name": name, **binary_as_json("value", value)} for name, value in record.headers],
    }


def _iso(timestamp_ms: int) -> str | None:
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment.isoformat(timespec="milliseconds") if timestamp_ms >= 0 else None
