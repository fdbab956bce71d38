"""A client in another language: a program around its library, driven through its standard input and output.

One JSON object per line goes in, ``{"op": "read", "bootstrap_servers": ..., ...}``, and one comes out, ``{"ok": ...}``
or ``{"error": {"code": "MESSAGE_TOO_LARGE", "message": ...}}``. Bytes are base64, null is null. The program
logs to its standard error. The first client of a class starts the process, which serves all clients of that class, for
any server, because a JVM takes longer to start than a test to run. It exits at the end of its standard input.

    op                  arguments besides bootstrap_servers, security      answer
    produce             topic codec acks idempotent max_request_size       [[partition, offset], ...]
                        linger_ms give_up_ms request_timeout_ms records
                        [[partition, timestamp, key, value, [[name, value], ...]],
                        ...]
    read                topic partition start fetch_max_bytes              [[offset, timestamp, type, key, value,
                                                                           [[name, value], ...]], ...]
    offset_for_time     topic partition timestamp                          offset or null
    offsets             topic partition                                    [first, end]
    stream_start        topic partitions                                   null
    stream_wait         count timeout                                      null
    stream_stop                                                            {partition: [value, ...]}, values as text
    commit_offset       group topic partition start                        null
    committed_offset    group topic partition                              offset or null
    create_topic        topic partitions configs                           null
    topics                                                                 {name: partitions}
    delete_topic        topic                                              null
    create_partitions   topic total                                        null
    topic_configs       topic                                              {key: value}
    set_topic_config    topic key value                                    null
    delete_records      topic partition before                             first offset left
    groups                                                                 [name, ...]
    describe_group      group                                              [state, number of members]
    delete_group        group                                              null
"""

import base64
import json
import queue
import subprocess
import tempfile
import threading
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from moldau.testing.client import (
    DEADLINE_SECONDS,
    Client,
    ClientError,
    Delivered,
    DescribedGroup,
    Headers,
    Received,
    Record,
    Stream,
)


class Program:
    """The process. It handles one call at a time, in order."""

    def __init__(self, command: Sequence[str]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr)
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def call(self, deadline: float, /, **request: object) -> Any:
        """Send a request and return its result. Raises ClientError if it is an error."""
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            try:
                line = self._answers.get(timeout=deadline)
            except queue.Empty:
                self._process.kill()  # otherwise its response would be taken for that of the next call
                raise AssertionError(
                    f"no response to {request['op']} in {deadline} s; {self._error_output()}"
                ) from None
        assert line, f"the program has ended; {self._error_output()}"
        answer = json.loads(line)
        if "error" in answer:
            raise ClientError(answer["error"]["code"], answer["error"]["message"])
        return answer["ok"]

    @property
    def alive(self) -> bool:
        """Whether the process has not exited."""
        return self._process.poll() is None

    def close(self) -> None:
        """Close the process's standard input, and wait for its exit."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._stderr.close()

    def kill(self) -> None:
        """``kill -9``. ``close`` is still required."""
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            for line in stdout:
                self._answers.put(line)
        self._answers.put(b"")

    def _error_output(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")[-4000:]


_running: dict[type["ProgramClient"], Program] = {}


def close_programs() -> None:
    """Close all processes."""
    while _running:
        _running.popitem()[1].close()


class ProgramClient(Client):
    """A client whose work is done by a ``Program``; a subclass defines how to start it."""

    without: ClassVar[Mapping[Any, str]] = {}

    @classmethod
    @abstractmethod
    def command(cls) -> list[str]:
        """The command line; builds the program if it has not been built."""

    def __init__(self, bootstrap_servers: str, security: Mapping[str, str] | None = None) -> None:
        """``security``: properties of the connection, those of the Java client for it, and of librdkafka for others."""
        super().__init__(bootstrap_servers)
        self._security = dict(security or {})
        self._program()  # reports a missing JVM or compiler

    def _program(self) -> Program:
        program = _running.get(type(self))
        if program is None or not program.alive:
            program = _running[type(self)] = Program(self.command())
        return program

    def call(self, op: str, **arguments: object) -> Any:
        """One request of the table above, or one that only this program has."""
        return self._program().call(
            DEADLINE_SECONDS + 10,
            op=op,
            bootstrap_servers=self.bootstrap_servers,
            security=self._security,
            **arguments,
        )

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
        answer = self.call(
            "produce",
            topic=topic,
            codec=codec,
            acks=acks,
            idempotent=idempotent,
            max_request_size=max_request_size,
            linger_ms=linger_ms,
            give_up_ms=give_up_ms,
            request_timeout_ms=request_timeout_ms,
            records=[
                [
                    record.partition,
                    record.timestamp_ms,
                    _to_text(record.key),
                    _to_text(record.value),
                    [[name, _to_text(value)] for name, value in record.headers],
                ]
                for record in records
            ],
        )
        return [Delivered(partition, offset) for partition, offset in answer]

    def read(
        self, topic: str, partition: int, start: int | None = None, *, fetch_max_bytes: int | None = None
    ) -> list[Received]:
        answer = self.call("read", topic=topic, partition=partition, start=start, fetch_max_bytes=fetch_max_bytes)
        return [
            Received(
                partition=partition,
                offset=offset,
                timestamp_ms=timestamp_ms,
                timestamp_type=timestamp_type,
                key=_from_text(key),
                value=_from_text(value),
                headers=_headers(headers),
            )
            for offset, timestamp_ms, timestamp_type, key, value, headers in answer
        ]

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        offset: int | None = self.call("offset_for_time", topic=topic, partition=partition, timestamp=timestamp_ms)
        return offset

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        first, end = self.call("offsets", topic=topic, partition=partition)
        return first, end

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        self.call("commit_offset", group=group, topic=topic, partition=partition, start=offset)

    def committed_offset(self, group: str, topic: str, partition: int) -> int | None:
        offset: int | None = self.call("committed_offset", group=group, topic=topic, partition=partition)
        return offset

    def open_stream(self, topic: str, partitions: int) -> Stream:
        self.call("stream_start", topic=topic, partitions=partitions)
        return _ProgramStream(self)

    def send_create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        self.call("create_topic", topic=topic, partitions=partitions, configs=dict(configs))

    def topics(self) -> dict[str, int]:
        return dict(self.call("topics"))

    def delete_topic(self, topic: str) -> None:
        self.call("delete_topic", topic=topic)

    def create_partitions(self, topic: str, total: int) -> None:
        self.call("create_partitions", topic=topic, total=total)

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        return dict(self.call("topic_configs", topic=topic))

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        self.call("set_topic_config", topic=topic, key=key, value=value)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        return int(self.call("delete_records", topic=topic, partition=partition, before=before_offset))

    def groups(self) -> list[str]:
        return list(self.call("groups"))

    def describe_group(self, group: str) -> DescribedGroup:
        state, members = self.call("describe_group", group=group)
        return DescribedGroup(state, members)

    def delete_group(self, group: str) -> None:
        self.call("delete_group", group=group)


class _ProgramStream(Stream):
    """The stream runs in the program; there is one at a time."""

    def __init__(self, client: ProgramClient) -> None:
        self._client = client

    def wait_acknowledged(self, count: int) -> None:
        self._client.call("stream_wait", count=count, timeout=DEADLINE_SECONDS)

    def stop(self) -> dict[int, list[bytes]]:
        values = self._client.call("stream_stop")
        return {int(partition): [value.encode() for value in sent] for partition, sent in values.items()}


def _to_text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _from_text(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _headers(pairs: list[list[str | None]]) -> Headers:
    return tuple((str(name), _from_text(value)) for name, value in pairs)
