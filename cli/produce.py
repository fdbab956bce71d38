"""``moldau produce``: send lines from standard input or a file as records."""

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import click

from ..config.definition import abridged
from ..protocol.errors import ErrorCode
from .client import bootstrap_option, error_text, producer
from .cluster import cluster
from .failure import Failure, Interrupted
from .output import any_integer, binary_from_json, member_texts
from .suggestions import did_you_mean

if TYPE_CHECKING:
    from kafka import KafkaProducer

_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_BATCH_BYTES: Final = 256 * 1024
# The client's maximum record size. It is large, because the server enforces the topic's limit.
_MAX_REQUEST_BYTES: Final = 64 * 1024 * 1024
_METADATA_TIMEOUT_MS: Final = 15_000
_LAST_FLUSH_S: Final = 3

Header = tuple[str, bytes]


class OutgoingRecord(NamedTuple):
    """A parsed line; the client chooses ``partition`` and ``timestamp_ms`` if they are None."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]
    partition: int | None = None
    timestamp_ms: int | None = None


class LineError(Exception):
    """A line that cannot be parsed as a record; the message says why."""


_WRITTEN_FIELDS: Final = (
    "key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp",
)  # fmt: skip
# `moldau consume --json` also prints these; they are ignored, because a new record gets new values.
_IGNORED_FIELDS: Final = (
    "topic", "offset", "time", "timestamp_type",
    # Of an export of `moldau console --registry`.
    "key_decoded", "key_schema", "key_problem", "value_decoded", "value_schema", "value_problem",
)  # fmt: skip
_HEADER_FIELDS: Final = ("name", "value", "value_base64")


@click.command("produce", short_help="Send lines as records to a topic.")
@click.argument("topic")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--key-separator", "-k", metavar="TEXT", help="Separator of key and value in a line.")
@click.option(
    "--header", "-H", "headers", multiple=True, metavar="NAME=VALUE", help="Header to add to every record; repeatable."
)
@click.option("--null", metavar="TEXT", help="Send a key or value that equals TEXT as null.")
@click.option(
    "--json", "as_json", is_flag=True, help="Parse each line as a JSON object, as printed by `moldau consume --json`."
)
@click.option("--compression", "-z", type=click.Choice(_CODECS), default="none", show_default=True, help="Codec.")
@click.option(
    "--acks",
    type=click.Choice(("0", "1", "all")),
    default="all",
    show_default=True,
    help="Acknowledgments to wait for.",
)
@click.option("--partition", "-p", type=click.IntRange(0), help="Send all records to this partition.")
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

    The value is the line's bytes without the newline. With --json, a line is an object with the optional fields key,
    value, headers, partition and timestamp. A key or value that is an object or an array is sent as its JSON text;
    key_base64 and value_base64 carry bytes that are not UTF-8. `moldau consume --json` prints this format.

    \b
    Examples:
      echo hello | moldau produce events
      moldau produce events lines.txt --compression zstd
      echo 'alice:{"n": 1}' | moldau produce events --key-separator :
      echo '{"key": "alice", "value": {"n": 1}, "headers": {"source": "shell"}}' | moldau produce events --json
      moldau consume events --json | moldau produce copy --json
    """
    if as_json and (key_separator is not None or null is not None):
        raise click.UsageError("--json cannot be combined with --key-separator or --null")
    fixed_headers = [_parse_header(header) for header in headers]
    read = JsonLines(fixed_headers) if as_json else _PlainLines(fixed_headers, key_separator, null)
    existed = _partitions(bootstrap_server, topic) is not None
    progress = Progress(topic, confirmed=acks != "0")

    def report_created_topic() -> None:
        count = None if existed else _partitions(bootstrap_server, topic)
        if count is not None:
            partitions = f"{count} partition{'' if count == 1 else 's'}"
            print(f"The topic {topic} did not exist; the server created it with {partitions}.", file=sys.stderr)

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
        _send_all(client, progress, lines, read, partition, report_created_topic)
    print(f"{_records(progress.sent)} sent to {topic}", file=sys.stderr)


def _partitions(bootstrap_server: str, topic: str) -> int | None:
    """The number of partitions, None if the topic does not exist. Does not create the topic."""
    with cluster(bootstrap_server) as servers:
        (found,) = servers.topics([topic])
    return None if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else len(found.partitions)


class _PlainLines:
    """Parses a line as a value, or as key, separator and value."""

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
            raise LineError(f"the key separator {self._separator.decode()!r} is missing")
        return OutgoingRecord(self._or_null(key), self._or_null(value), self._headers)

    def _or_null(self, data: bytes) -> bytes | None:
        return None if data == self._null else data


class _Object(dict[str, Any]):
    """A JSON object that records a duplicate name, of which a dict would silently keep the last value."""

    def __init__(self, members: list[tuple[str, Any]]) -> None:
        super().__init__(members)
        names = Counter(name for name, _ in members) if len(self) < len(members) else Counter[str]()
        self.repeated = next((name for name, count in names.items() if count > 1), None)


class JsonLines:
    """Parses a line as an object with the fields that `moldau consume --json` prints."""

    def __init__(self, headers: list[Header]) -> None:
        self._headers = headers

    def __call__(self, line: bytes) -> OutgoingRecord:
        try:
            text = line.decode("utf-8-sig")
            fields = json.loads(text, parse_constant=_refuse_constant, parse_int=any_integer, object_pairs_hook=_Object)
        except ValueError as error:
            raise LineError(f"not valid JSON: {error}") from error
        except RecursionError:
            raise LineError("the JSON is nested too deeply") from None
        if not isinstance(fields, _Object):
            raise LineError("not a JSON object")
        if fields.repeated is not None:
            raise LineError(f"duplicate field {fields.repeated!r}")
        try:
            _check_fields(fields, _WRITTEN_FIELDS, _IGNORED_FIELDS)
            structured = any(isinstance(fields.get(name), dict | list) for name in ("key", "value"))
            texts = member_texts(text) if structured else {}
            return OutgoingRecord(
                binary_from_json("key", fields, texts),
                binary_from_json("value", fields, texts),
                _json_headers(fields.get("headers")) + self._headers,
                _integer(fields, "partition"),
                _integer(fields, "timestamp"),
            )
        except ValueError as error:
            raise LineError(str(error)) from error


def _json_headers(headers: object) -> list[Header]:
    """Headers as an object of names and values, or as a list, which allows duplicate names and binary values."""
    if headers is None:
        return []
    if isinstance(headers, _Object):
        if headers.repeated is not None:
            raise LineError(
                f'duplicate header {headers.repeated!r}; write headers as [{{"name": ..., "value": ...}}, ...]'
            )
        return [_json_header({"name": name, "value": value}) for name, value in headers.items()]
    if isinstance(headers, list):
        return [_json_header(entry) for entry in headers]
    raise LineError('write headers as {"NAME": "VALUE", ...} or [{"name": ..., "value": ...}, ...]')


def _json_header(entry: object) -> Header:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise LineError(
            'write headers as {"NAME": "VALUE", ...} or [{"name": ..., "value": ...}, ...], '
            f"not {abridged(json.dumps(entry))}"
        )
    _check_fields(entry, _HEADER_FIELDS)
    try:
        value = binary_from_json("value", entry)
    except ValueError as error:
        raise LineError(f"header {entry['name']}: {error}") from error
    if value is None:
        raise LineError(f"header {entry['name']} is null, which kafka-python cannot send")
    return entry["name"], value


def _check_fields(fields: Mapping[str, object], known: Sequence[str], ignored: Sequence[str] = ()) -> None:
    for name in fields:
        if name not in known and name not in ignored:
            suggestion = did_you_mean(name, known) or f" Known fields: {', '.join(known)}."
            raise LineError(f"unknown field {name!r}.{suggestion}")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")


def _integer(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise LineError(f"{name} is not an integer")


def _parse_header(text: str) -> Header:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
    return name, value.encode()


class Progress:
    """Counts of sent and acknowledged records; the client's thread counts the acknowledgments."""

    def __init__(self, topic: str, *, confirmed: bool) -> None:
        """``confirmed``: whether the server responds, which it does not with acks=0."""
        self.topic = topic
        self._confirmed = confirmed
        self.sent = 0
        self.acknowledged = 0
        self.failed = threading.Event()
        self.error: object = None

    def on_acknowledged(self, _record: object) -> None:
        self.acknowledged += 1

    def on_error(self, error: object) -> None:
        if not self.failed.is_set():
            self.error = error
            self.failed.set()

    def __str__(self) -> str:
        # An interrupt may arrive between sending a record and counting it.
        sent = max(self.sent, self.acknowledged)
        text = f"{_records(sent)} sent to {self.topic}"
        if not self._confirmed:
            return f"{text}; the server sends no acknowledgments with --acks 0"
        if self.acknowledged == sent:
            return f"{text}, all acknowledged" if sent else text
        return (
            f"{text}, {self.acknowledged} acknowledged; the server may or may not have stored the other "
            f"{sent - self.acknowledged}"
        )


def _records(count: int) -> str:
    return f"{count} record{'' if count == 1 else 's'}"


def _send_all(
    client: "KafkaProducer",
    progress: Progress,
    lines: Iterable[bytes],
    read: _PlainLines | JsonLines,
    partition: int | None,
    on_first: Callable[[], None],
) -> None:
    """Send every line and wait for all acknowledgments. Raises Failure at the first error, or at an interrupt."""
    try:
        for number, line in enumerate(lines, 1):
            if progress.failed.is_set():
                break
            record = _read(read, number, line)
            _send(client, number, record, partition, progress)
            if progress.sent == 1:
                on_first()
        client.flush()
    except KeyboardInterrupt:
        _flush_briefly(client)
        raise Interrupted(f"interrupted: {progress}") from None
    except Failure as failure:
        if progress.sent:
            _flush_briefly(client)
            raise Failure(f"{failure.message}\n{progress}") from failure
        raise
    if progress.failed.is_set():
        raise Failure(f"cannot send to {progress.topic}: {error_text(progress.error)}\n{progress}")


def _flush_briefly(client: "KafkaProducer") -> None:
    """Wait briefly for in-flight records after an interrupt."""
    from kafka.errors import KafkaTimeoutError

    with suppress(KafkaTimeoutError):
        client.flush(timeout=_LAST_FLUSH_S)


def _read(read: _PlainLines | JsonLines, number: int, line: bytes) -> OutgoingRecord:
    try:
        return read(line)
    except LineError as error:
        raise Failure(f"line {number}: {error}") from error


def _send(
    client: "KafkaProducer", number: int, record: OutgoingRecord, partition: int | None, progress: Progress
) -> None:
    from kafka.errors import KafkaTimeoutError

    if record.key is None and record.value is None:
        raise Failure(f"line {number}: key and value are both null, which kafka-python cannot send")
    try:
        future = client.send(
            progress.topic,
            value=record.value,
            key=record.key,
            headers=record.headers,
            partition=record.partition if partition is None else partition,
            timestamp_ms=record.timestamp_ms,
        )
    except KafkaTimeoutError as error:
        raise Failure(
            f"topic {progress.topic} does not exist and is not auto-created, or it has no leader\n"
            f"Create it with `moldau topics create {progress.topic}`, or run `moldau doctor` to check the server."
        ) from error
    except (AssertionError, ValueError) as error:
        raise Failure(f"line {number}: {error}") from error
    progress.sent += 1
    future.add_callback(progress.on_acknowledged)
    future.add_errback(progress.on_error)


@contextmanager
def _lines(file: Path | None) -> Iterator[Iterable[bytes]]:
    """The lines without newlines; shows a progress bar for a file on a terminal."""
    if file is None or str(file) == "-":
        if sys.stdin.isatty():
            print("Enter one record per line; end with Ctrl-D.", file=sys.stderr)
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
