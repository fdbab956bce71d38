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
from .output import binary_as_json, print_json

if TYPE_CHECKING:
    from kafka import KafkaConsumer, TopicPartition
    from kafka.consumer.fetcher import ConsumerRecord

_POLL_MS: Final = 500
_MAX_POLL_RECORDS: Final = 5000
# Without news for so long, what should be there does not come: a partition is without its leader, say.
_STALLED_S: Final = 30.0


@click.command("consume", short_help="Print the records of a topic.")
@click.argument("topic")
@click.option("--from-beginning", is_flag=True, help="Start with the oldest record.")
@click.option("--offset", type=int, help="Start at an offset; a negative one counts from the end.")
@click.option("--timestamp", metavar="TIME", help="Start at a time: milliseconds since 1970, or ISO 8601.")
@click.option(
    "--partition", "-p", "partitions", type=click.IntRange(0), multiple=True, help="Only this one; repeatable."
)
@click.option("--follow", "-f", is_flag=True, help="Go on when the end is reached, until Ctrl-C.")
@click.option("--max-messages", "-n", type=click.IntRange(1), help="Stop after so many records.")
@click.option("--read-committed", is_flag=True, help="Leave out records of aborted and open transactions.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per record, with everything it has.")
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

    Without --follow it prints what is there, from the oldest record on unless told otherwise, and ends. With --follow
    it starts at the end, unless told otherwise, and goes on until Ctrl-C. It never joins a group and commits nothing.
    Without --json, values are printed as they are, a line each; a null is an empty line.

    \b
    Examples:
      moldau consume events
      moldau consume events --follow --from-beginning
      moldau consume events --offset -10 --partition 0
      moldau consume events --timestamp 2026-01-31T12:00:00Z --json
    """
    if sum((from_beginning, offset is not None, timestamp is not None)) > 1:
        raise click.UsageError("--from-beginning, --offset and --timestamp exclude each other: choose one")
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
    """Milliseconds since 1970: given as such, or as ISO 8601 (local time unless it says otherwise)."""
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
        raise Failure(f"there is no topic {topic}; `moldau topics list` shows what there is")
    missing = sorted(set(wanted) - there)
    if missing:
        raise Failure(
            f"{topic} has no partition {', '.join(map(str, missing))}; it has {', '.join(map(str, sorted(there)))}"
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
            raise Failure(f"partition {partition.partition} has the offsets {low} to {high}, and not {offset}")
        client.seek(partition, offset if offset >= 0 else max(low, high + offset))


def _records(
    client: "KafkaConsumer", partitions: "list[TopicPartition]", ends: "dict[TopicPartition, int] | None"
) -> "Iterator[ConsumerRecord]":
    """Records as they come, in order within a partition; up to the ends when there are any."""
    remaining = list(partitions)
    last_news = time.monotonic()
    while True:
        if ends is not None:
            # Positions, not records: the last offsets of a partition may hold none (transaction markers, compaction).
            remaining = [partition for partition in remaining if client.position(partition) < ends[partition]]
            if not remaining:
                return
        polled = client.poll(timeout_ms=_POLL_MS)
        if polled:
            last_news = time.monotonic()
        elif ends is not None and time.monotonic() - last_news > _STALLED_S:
            stalled = ", ".join(str(partition.partition) for partition in remaining)
            raise Failure(
                f"no records of partition {stalled} for {_STALLED_S:g} seconds; `moldau doctor` finds out more"
            )
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
    """A record as `moldau produce --json` reads it back; ``time`` is there for people."""
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
