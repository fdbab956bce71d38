"""kcat: librdkafka at the command line, as Debian and Homebrew package it (often an old one: 2.0.2 with Debian 12).

Records go in on standard input between delimiters that no scenario uses in its data, and come out with their lengths.
One run of kcat has one partition, one list of headers, and one answer to whether an empty value means null, so a
sequence of records becomes one run for each stretch that agrees in these.

In its most talkative mode it reports each delivery with its offset on standard error, which is how a stream is
followed.
"""

import itertools
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, ClassVar

from moldau.testing import requirements
from moldau.testing.client import (
    DEADLINE_SECONDS,
    Client,
    ClientError,
    Delivered,
    Feature,
    Headers,
    Received,
    Record,
    Stream,
)

_RECORD_END, _KEY_END = b"\x1e\x1e", b"\x1f\x1f"
_DELIMITERS = ("-D", r"\x1e\x1e", "-K", r"\x1f\x1f")

_FORMAT = r"%p %o %T %K %S\n%k%s%h\x1e\x1e"

_DELIVERED = re.compile(r"% Message delivered to partition (\d+) \(offset (-?\d+)\)")

# librdkafka's sentences for the codes that the scenarios ask for.
_CODES = {
    "Broker: Message size too large": "MESSAGE_TOO_LARGE",
    "Broker: Unknown topic or partition": "UNKNOWN_TOPIC_OR_PARTITION",
    "Local: Unknown topic": "UNKNOWN_TOPIC_OR_PARTITION",
    "Broker: Invalid topic": "INVALID_TOPIC_EXCEPTION",
    "Broker: Offset out of range": "OFFSET_OUT_OF_RANGE",
    "Broker: Broker failed to validate record": "INVALID_RECORD",
}


class KcatClient(Client):
    """One kcat process for each stretch of work."""

    name = "kcat"
    without: ClassVar[Mapping[Feature, str]] = {
        Feature.TOPIC_ADMIN: "kcat cannot create or delete topics",
        Feature.COMMITTED_OFFSETS: "kcat commits only what it has consumed as a member of a group",
        Feature.GROUP_ADMIN: "kcat has no commands for groups",
        Feature.DELETE_GROUPS: "kcat has no commands for groups",
        Feature.CONFIG_ADMIN: "kcat has no commands for configs",
        Feature.INCREMENTAL_CONFIGS: "kcat has no commands for configs",
        Feature.DELETE_RECORDS: "kcat cannot delete records",
        Feature.NULL_KEY_AND_VALUE: "an empty line is not a record",
        Feature.ZERO_BYTES_IN_HEADERS: "headers are arguments of the command line",
        Feature.SET_TIMESTAMP: "kcat uses the time of sending as the timestamp",
        Feature.TIMESTAMP_TYPE: "its output format has no specifier for the timestamp type",
        Feature.PARTITION_OFFSETS: "its query mode returns -1 for special timestamps",
    }

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self._kcat = requirements.require_program("kcat")

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        max_request_size: int = 1_048_576,
        linger_ms: int = 5,
        give_up_ms: int = 30_000,
        request_timeout_ms: int | None = None,
    ) -> list[Delivered]:
        settings = {
            "acks": acks,
            "enable.idempotence": str(idempotent).lower(),
            "message.max.bytes": str(max_request_size),
            "linger.ms": str(linger_ms),
            "delivery.timeout.ms": str(give_up_ms),
            "topic.metadata.propagation.max.ms": "1000",
        }
        delivered: list[Delivered] = []
        for partition, headers, nulls, run in _runs(records):
            options = ["-P", "-t", topic, "-p", str(partition), "-z", codec, "-v", "-v", *_DELIMITERS]
            options += [] if not nulls else ["-Z"]
            options += itertools.chain.from_iterable(("-H", _header_option(*header)) for header in headers)
            done = self._run(options, settings, b"".join(map(_line, run)))
            reports = [Delivered(int(where), int(at)) for where, at in _DELIVERED.findall(done.stderr.decode())]
            assert len(reports) == len(run), done.stderr.decode()
            delivered += reports
        return delivered

    def read(
        self, topic: str, partition: int, start: int | None = None, *, fetch_max_bytes: int | None = None
    ) -> list[Received]:
        settings = {"auto.offset.reset": "error", "allow.auto.create.topics": "false", "fetch.wait.max.ms": "50"}
        if fetch_max_bytes is not None:
            limits = ("fetch.max.bytes", "fetch.message.max.bytes", "message.max.bytes")
            settings |= dict.fromkeys(limits, str(fetch_max_bytes))
        offset = "beginning" if start is None else str(start)
        options = ["-C", "-t", topic, "-p", str(partition), "-o", offset, "-e", "-q", "-f", _FORMAT]
        return _parse(self._run(options, settings).stdout)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        answer = self._run(["-Q", "-t", f"{topic}:{partition}:{timestamp_ms}"], {}).stdout.decode()
        offset = int(answer.rsplit(maxsplit=1)[-1])
        return None if offset == -1 else offset

    def topics(self) -> dict[str, int]:
        listed = json.loads(self._run(["-L", "-J"], {}).stdout)
        return {each["topic"]: len(each["partitions"]) for each in listed["topics"]}

    def consume_group(self, group: str, topic: str, count: int) -> list[Received]:
        """Be a member of a group until this many records are consumed; kcat commits them when it leaves."""
        settings = {"auto.offset.reset": "earliest", "allow.auto.create.topics": "false", "fetch.wait.max.ms": "50"}
        return _parse(self._run(["-G", group, "-c", str(count), "-q", "-f", _FORMAT, topic], settings).stdout)

    def open_stream(self, topic: str, partitions: int) -> Stream:
        return _KcatStream([self._kcat, "-b", self.bootstrap_servers], topic, partitions)

    def _run(
        self, options: Sequence[str], settings: Mapping[str, str], standard_input: bytes = b""
    ) -> "subprocess.CompletedProcess[bytes]":
        command = [self._kcat, "-b", self.bootstrap_servers, *options, *_settings(settings)]
        try:
            done = subprocess.run(
                command, input=standard_input, capture_output=True, timeout=DEADLINE_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"kcat has not ended within {DEADLINE_SECONDS:g} s") from error
        if done.returncode != 0:
            message = done.stderr.decode()
            raise ClientError(next((code for text, code in _CODES.items() if text in message), "OTHER"), message)
        return done


class _KcatStream(Stream):
    """One idempotent kcat for each partition, fed by one thread each and followed by another."""

    def __init__(self, command: list[str], topic: str, partitions: int) -> None:
        settings = {
            "enable.idempotence": "true",
            "linger.ms": "5",
            "queue.buffering.max.messages": "400",
            "reconnect.backoff.max.ms": "500",
        }
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._acknowledged = [0] * partitions
        self._waited_for = 0
        self._errors: list[str] = []
        self._threads: list[threading.Thread] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        for partition in range(partitions):
            # -E: a connection that breaks is no reason to end.
            options = ["-P", "-E", "-t", topic, "-p", str(partition), "-v", "-v", *_settings(settings)]
            process = subprocess.Popen([*command, *options], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
            assert process.stdin is not None
            assert process.stderr is not None
            self._processes.append(process)
            self._start(self._feed, partition, process.stdin)
            self._start(self._follow, partition, process.stderr)

    def wait_acknowledged(self, count: int) -> None:
        with self._changed:
            self._waited_for = max(self._waited_for, sum(self._acknowledged)) + count
            reached = self._changed.wait_for(
                lambda: sum(self._acknowledged) >= self._waited_for or bool(self._errors), DEADLINE_SECONDS
            )
            self._raise_first_error()
            assert reached, f"{self._acknowledged} records acknowledged in {DEADLINE_SECONDS} s"

    def stop(self) -> dict[int, list[bytes]]:
        self._stopping.set()
        deadline = time.monotonic() + DEADLINE_SECONDS
        codes = [process.wait(deadline - time.monotonic()) for process in self._processes]
        for thread in self._threads:
            thread.join()
        self._raise_first_error()
        assert codes == [0] * len(codes), f"exit codes {codes}"
        return {
            partition: [b"%d-%d" % (partition, number) for number in range(count)]
            for partition, count in enumerate(self._acknowledged)
        }

    def _start(self, work: Callable[[int, IO[bytes]], None], partition: int, pipe: IO[bytes]) -> None:
        thread = threading.Thread(target=work, args=(partition, pipe), daemon=True)
        thread.start()
        self._threads.append(thread)

    def _feed(self, partition: int, pipe: IO[bytes]) -> None:
        try:
            with pipe:
                for number in itertools.count():
                    if self._stopping.is_set():
                        return
                    pipe.write(b"%d-%d\n" % (partition, number))
        except BrokenPipeError:
            self._add_error(f"the producer of partition {partition} has ended")

    def _follow(self, partition: int, pipe: IO[bytes]) -> None:
        with pipe:
            for line in pipe:
                if _DELIVERED.match(line.decode()):
                    with self._changed:
                        self._acknowledged[partition] += 1
                        if sum(self._acknowledged) >= self._waited_for:
                            self._changed.notify_all()
                elif b"Delivery failed" in line:
                    self._add_error(line.decode())

    def _add_error(self, message: str) -> None:
        with self._changed:
            self._errors.append(message)
            self._changed.notify_all()

    def _raise_first_error(self) -> None:
        if self._errors:
            raise ClientError("UNDELIVERED", self._errors[0])


def _settings(settings: Mapping[str, str]) -> list[str]:
    return list(itertools.chain.from_iterable(("-X", f"{key}={value}") for key, value in settings.items()))


def _runs(records: Sequence[Record]) -> list[tuple[int, Headers, bool, list[Record]]]:
    def agreement(record: Record) -> tuple[int, Headers, bool]:
        return record.partition, record.headers, record.value is None

    return [(*what, list(run)) for what, run in itertools.groupby(records, agreement)]


def _line(record: Record) -> bytes:
    key = b"" if record.key is None else record.key + _KEY_END
    return key + (record.value or b"") + _RECORD_END


def _header_option(key: str, value: bytes | None) -> str:
    return key if value is None else key + "=" + os.fsdecode(value)


def _parse(output: bytes) -> list[Received]:
    received: list[Received] = []
    position = 0
    while position < len(output):
        line_end = output.index(b"\n", position)
        partition, offset, timestamp, key_length, value_length = map(int, output[position:line_end].split())
        key_end = line_end + 1 + max(key_length, 0)
        value_end = key_end + max(value_length, 0)
        record_end = output.index(_RECORD_END, value_end)
        received.append(
            Received(
                partition=partition,
                offset=offset,
                timestamp_ms=timestamp,
                timestamp_type=None,
                key=None if key_length < 0 else output[line_end + 1 : key_end],
                value=None if value_length < 0 else output[key_end:value_end],
                headers=_parse_headers(output[value_end:record_end]),
            )
        )
        position = record_end + len(_RECORD_END)
    return received


def _parse_headers(text: bytes) -> Headers:
    """``a=1,a=,b=NULL``: the scenarios use neither commas nor the word NULL in a header's value."""
    pairs = (header.partition(b"=") for header in text.split(b",")) if text else ()
    return tuple((key.decode(), None if value == b"NULL" else value) for key, _, value in pairs)
