"""The protocol without a client: single requests over a socket, for what no client would send or show.

    with Connection(bootstrap_servers) as connection:
        response = connection.request(MetadataRequest(topics=None), 12)

Requests may be sent without waiting (``send``), answers are read in order (``receive``), and bytes that are no
request at all can be sent as they are (``send_bytes``). A connection that the server has closed raises
``ConnectionClosedError``; a server that says nothing, ``TimeoutError`` after ``timeout`` seconds.
"""

import itertools
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self, TypeVar, cast

from moldau.compat_tests.client import DEADLINE_SECONDS
from moldau.protocol.api import request_header_version, response_class, response_header_version
from moldau.protocol.codec import decode_at, encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from moldau.protocol.messages.headers import RequestHeader, ResponseHeader
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.records import RecordBatch, iter_batches
from moldau.protocol.schema import Request

_LENGTH = struct.Struct(">i")

_Result = TypeVar("_Result")


class ConnectionClosedError(Exception):
    """The server has closed the connection."""


class Connection:
    """A connection to a server; requests are answered in order."""

    def __init__(self, bootstrap_servers: str, *, timeout: float = 20.0, client_id: str | None = "compat") -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._correlation_ids = itertools.count(1)
        self._received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def request(self, request: Request, version: int) -> Any:
        """Send a request and return its answer, whose correlation id must match and whose frame must be used up."""
        return self.receive(request, version, self.send(request, version))

    def send(self, request: Request, version: int) -> int:
        """Send a request, and return its correlation id."""
        correlation_id = next(self._correlation_ids)
        self.send_bytes(frame(request, version, correlation_id, self._client_id))
        return correlation_id

    def receive(self, request: Request, version: int, correlation_id: int) -> Any:
        """The next answer, which must be that to ``request``."""
        response, received_id = decode_response(request.API_KEY, version, self.receive_frame())
        assert received_id == correlation_id, f"answer {received_id} instead of {correlation_id}"
        return response

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are. Raises ConnectionClosedError if the server takes no more."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionClosedError from error

    def receive_frame(self) -> bytes:
        """The next frame without its length."""
        (length,) = _LENGTH.unpack(self._receive_exactly(4))
        assert length >= 0, f"a frame of {length} bytes"
        return self._receive_exactly(length)

    def wait_closed(self) -> None:
        """Return when the server has closed the connection; what it sends before must be nothing."""
        try:
            data = self._socket.recv(1 << 16)
        except ConnectionResetError:
            return
        assert not data, f"the server answered with {len(data)} bytes"

    def silent_for(self, seconds: float) -> bool:
        """Whether neither bytes nor an end came for so long."""
        before = self._socket.gettimeout()
        self._socket.settimeout(seconds)
        try:
            self._received += self._socket.recv(1 << 16) or b""
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(before)
        return False

    def half_close(self) -> None:
        """Send no more, and go on reading."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def _receive_exactly(self, count: int) -> bytes:
        while len(self._received) < count:
            try:
                data = self._socket.recv(max(1 << 16, count - len(self._received)))
            except ConnectionResetError as error:
                raise ConnectionClosedError from error
            if not data:
                raise ConnectionClosedError(f"after {len(self._received)} of {count} bytes")
            self._received += data
        wanted, self._received = self._received[:count], self._received[count:]
        return wanted


def frame(request: Request, version: int, correlation_id: int = 1, client_id: str | None = "compat") -> bytes:
    """A whole request: length, header, body."""
    body = raw_header(request.API_KEY, version, correlation_id, client_id) + encode(request, version)
    return _LENGTH.pack(len(body)) + body


def raw_header(api_key: int, version: int, correlation_id: int = 1, client_id: str | None = "compat") -> bytes:
    """The header of a request; of an API or version that does not exist, in its newest form."""
    header = RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    try:
        return encode(header, request_header_version(api_key, version))
    except (KeyError, ValueError):
        return encode(header, 2)


def framed(body: bytes) -> bytes:
    """Bytes with their length before them."""
    return _LENGTH.pack(len(body)) + body


def decode_response(api_key: int, version: int, data: bytes) -> tuple[Any, int]:
    """An answer and its correlation id; asserts that nothing follows it in its frame."""
    header, offset = decode_at(ResponseHeader, data, response_header_version(api_key, version), 0)
    response, end = decode_at(response_class(api_key), data, version, offset)
    assert end == len(data), f"{len(data) - end} bytes follow the response"
    return response, header.correlation_id


def wait_until(condition: Callable[[], _Result | None], what: str, interval: float = 0.02) -> _Result:
    """The first result of ``condition`` that is true. For state that no answer announces: it is asked again and
    again."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < deadline, f"{what}: not in {DEADLINE_SECONDS} s"
        time.sleep(interval)


def wait_for_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Return when the server says that it leads all partitions of a topic.

    A created topic reaches a broker's metadata, and is led there, a moment after the answer to CreateTopics.
    """
    with Connection(bootstrap_servers) as connection:

        def is_led() -> bool:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            (found,) = connection.request(asked, 12).topics
            led = [each for each in found.partitions if each.error_code == 0 and each.leader_id >= 0]
            return found.error_code == 0 and len(led) == partitions

        wait_until(is_led, f"{partitions} partitions of {topic}")


def wait_for_no_topic(bootstrap_servers: str, topic: str) -> None:
    """Return when the server does not know a topic any more."""
    with Connection(bootstrap_servers) as connection:

        def is_gone() -> bool:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            (found,) = connection.request(asked, 12).topics
            return bool(found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

        wait_until(is_gone, f"the end of {topic}")


def fetch(
    connection: Connection, topic: str, partition: int, offset: int, max_bytes: int = 50_000_000
) -> PartitionData:
    """One fetch of one partition by name, in version 12, the last that has names."""
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=100, min_bytes=0, max_bytes=max_bytes, topics=[FetchTopic(topic=topic, partitions=[asked])]
    )
    response = connection.request(request, 12)
    assert response.error_code == 0
    (data,) = response.responses[0].partitions
    assert isinstance(data, PartitionData)
    return data


def stored_batches(bootstrap_servers: str, topic: str, partition: int = 0) -> list[RecordBatch]:
    """All batches of a partition as they are stored."""
    with Connection(bootstrap_servers) as connection:
        batches: list[RecordBatch] = []
        data = fetch(connection, topic, partition, 0)
        assert data.error_code == 0, ErrorCode(data.error_code).name
        while records := bytes(cast(memoryview, data.records or b"")):
            batches += iter_batches(records)
            data = fetch(connection, topic, partition, batches[-1].next_offset)
        return batches
