"""``moldau produce``: lines, of standard input or of a file, become records."""

import json
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

import click

from .client import bootstrap_option, error_text, producer
from .failure import Failure
from .output import binary_from_json

if TYPE_CHECKING:
    from kafka import KafkaProducer

_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_BATCH_BYTES: Final = 256 * 1024
# The largest record the client sends; what is too large for the topic is the server's to say.
_MAX_REQUEST_BYTES: Final = 64 * 1024 * 1024
_METADATA_TIMEOUT_MS: Final = 15_000

Header = tuple[str, bytes]


class OutgoingRecord(NamedTuple):
    """What a line says; ``partition`` and ``timestamp_ms`` None leave the choice to the client."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]
    partition: int | None = None
    timestamp_ms: int | None = None


class LineError(Exception):
    """A line that is no record; the text says why."""


@click.command("produce", short_help="Send lines as records to a topic.")
@click.argument("topic")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--key-separator", "-k", metavar="TEXT", help="What stands between key and value in a line.")
@click.option(
    "--header", "-H", "headers", multiple=True, metavar="NAME=VALUE", help="Header of every record; repeatable."
)
@click.option("--null", metavar="TEXT", help="A key or value that is exactly TEXT is null.")
@click.option("--json", "as_json", is_flag=True, help="Every line is a JSON object, as `moldau consume --json` prints.")
@click.option("--compression", "-z", type=click.Choice(_CODECS), default="none", show_default=True, help="Codec.")
@click.option(
    "--acks", type=click.Choice(("0", "1", "all")), default="all", show_default=True, help="Who must have it."
)
@click.option("--partition", "-p", type=click.IntRange(0), help="Send everything to one partition.")
@bootstrap_option
def command(
    topic: str,
    file: Path | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    null: str | None,
    as_json: bool,
    compression: str,
    acks: str,
    partition: int | None,
    bootstrap_server: str,
) -> None:
    """Send the lines of FILE, or of standard input, as records to TOPIC.

    The bytes of a line are the value as they are, without the line's end. With --json, a line is an object with key,
    value, headers, partition and timestamp, all of them optional; value_base64 and key_base64 carry other bytes
    than UTF-8. `moldau consume --json` prints such lines.

    \b
    Examples:
      echo hello | moldau produce events
      moldau produce events lines.txt --compression zstd
      echo 'alice:{"n": 1}' | moldau produce events --key-separator :
      moldau consume events --json | moldau produce copy --json
    """
    if as_json and (key_separator is not None or null is not None):
        raise click.UsageError("--json says itself what is key and what is null: leave out --key-separator and --null")
    fixed_headers = [_parse_header(header) for header in headers]
    read = _JsonLines(fixed_headers) if as_json else _PlainLines(fixed_headers, key_separator, null)
    with (
        producer(
            bootstrap_server,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=acks == "all",
            compression_type=None if compression == "none" else compression,
            batch_size=_BATCH_BYTES,
            linger_ms=5,
            max_request_size=_MAX_REQUEST_BYTES,
            max_block_ms=_METADATA_TIMEOUT_MS,
        ) as client,
        _lines(file) as lines,
    ):
        sent = _send_all(client, topic, lines, read, partition)
    print(f"{sent} record{'' if sent == 1 else 's'} sent to {topic}", file=sys.stderr)


class _PlainLines:
    """A line is the value, or key and value around a separator."""

    def __init__(self, headers: list[Header], key_separator: str | None, null: str | None) -> None:
        self._headers = headers
        self._separator = None if key_separator is None else key_separator.encode()
        self._null = None if null is None else null.encode()
        if self._separator == b"":
            raise click.UsageError("--key-separator must not be empty")

    def __call__(self, line: bytes) -> OutgoingRecord:
        if self._separator is None:
            return OutgoingRecord(None, self._or_null(line), self._headers)
        key, separator, value = line.partition(self._separator)
        if not separator:
            raise LineError(f"there is no {self._separator.decode()!r} in it, which --key-separator asks for")
        return OutgoingRecord(self._or_null(key), self._or_null(value), self._headers)

    def _or_null(self, data: bytes) -> bytes | None:
        return None if data == self._null else data


class _JsonLines:
    """A line is an object with the fields that `moldau consume --json` prints."""

    def __init__(self, headers: list[Header]) -> None:
        self._headers = headers

    def __call__(self, line: bytes) -> OutgoingRecord:
        try:
            fields = json.loads(line)
            if not isinstance(fields, dict):
                raise LineError("it is no JSON object")
            headers = [self._header(entry) for entry in fields.get("headers") or ()]
            return OutgoingRecord(
                binary_from_json("key", fields),
                binary_from_json("value", fields),
                headers + self._headers,
                _integer(fields, "partition"),
                _integer(fields, "timestamp"),
            )
        except ValueError as error:
            raise LineError(f"it is not the JSON that is expected: {error}") from error

    @staticmethod
    def _header(entry: object) -> Header:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise LineError('a header is written {"name": ..., "value": ...}')
        value = binary_from_json("value", entry)
        if value is None:
            raise LineError(f"header {entry['name']} is null, which this client cannot send")
        return entry["name"], value


def _integer(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise LineError(f"{name} is not a whole number")


def _parse_header(text: str) -> Header:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
    return name, value.encode()


class _Outcome:
    """What became of the records; filled by the client's thread."""

    def __init__(self) -> None:
        self.failed = threading.Event()
        self.error: object = None

    def on_error(self, error: object) -> None:
        if not self.failed.is_set():
            self.error = error
            self.failed.set()


def _send_all(
    client: "KafkaProducer",
    topic: str,
    lines: Iterable[bytes],
    read: _PlainLines | _JsonLines,
    partition: int | None,
) -> int:
    """Send every line and wait until all are acknowledged; Failure at the first that is not."""
    outcome = _Outcome()
    sent = 0
    for number, line in enumerate(lines, 1):
        try:
            record = read(line)
        except LineError as error:
            raise Failure(f"line {number}: {error}") from error
        if outcome.failed.is_set():
            break
        _send(client, topic, number, record, partition, outcome)
        sent += 1
    client.flush()
    if outcome.failed.is_set():
        raise Failure(f"cannot send to {topic}: {error_text(outcome.error)}")
    return sent


def _send(
    client: "KafkaProducer",
    topic: str,
    number: int,
    record: OutgoingRecord,
    partition: int | None,
    outcome: _Outcome,
) -> None:
    from kafka.errors import KafkaTimeoutError

    if record.key is None and record.value is None:
        raise Failure(f"line {number}: key and value are both null, which this client cannot send")
    try:
        future = client.send(
            topic,
            value=record.value,
            key=record.key,
            headers=record.headers,
            partition=record.partition if partition is None else partition,
            timestamp_ms=record.timestamp_ms,
        )
    except KafkaTimeoutError as error:
        raise Failure(
            f"there is no topic {topic} and the server does not make it by itself, or it has no leader\n"
            f"`moldau topics create {topic}` makes it; `moldau doctor` finds out more."
        ) from error
    except (AssertionError, ValueError) as error:
        raise Failure(f"line {number}: {error}") from error
    future.add_errback(outcome.on_error)


@contextmanager
def _lines(file: Path | None) -> Iterator[Iterable[bytes]]:
    """The lines without their ends; of a file with a progress bar when somebody looks."""
    if file is None or str(file) == "-":
        if sys.stdin.isatty():
            print("Type records, one to a line; Ctrl-D ends.", file=sys.stderr)
        yield _without_ends(sys.stdin.buffer)
        return
    with file.open("rb") as stream:
        if not sys.stderr.isatty():
            yield _without_ends(stream)
            return
        with _progress_bar(stream, file.name) as lines:
            yield lines


@contextmanager
def _progress_bar(stream: IO[bytes], name: str) -> Iterator[Iterable[bytes]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=os.fstat(stream.fileno()).st_size)

        def counted() -> Iterator[bytes]:
            for line in stream:
                progress.advance(task, len(line))
                yield line

        yield _without_ends(counted())


def _without_ends(lines: Iterable[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield line[:-1] if line.endswith(b"\n") else line
