"""A minimal consumer: it fetches a megabyte, finds the end of the last batch, and fetches from there.

One partition, one request at a time, no group and no session. Of the records it only reads the headers of their
batches.
"""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Self

from ..protocol.api import response_header_version
from ..protocol.codec import decode, decode_at
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.fetch import FetchRequest, FetchResponse
from ..protocol.messages.headers import ResponseHeader
from ..protocol.records import iter_batches
from . import load

FETCH_BYTES = 1_000_000

_RECEIVE_SECONDS = 60.0
_BUFFER_BYTES = FETCH_BYTES + 64_000
"""The size of a response that contains its first batch whole, unless that is larger than the requested bytes."""


class Reader:
    """Reads partition 0 of ``topic`` from ``offset`` on, which may be set again at any time."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        host, port = bootstrap_servers.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), _RECEIVE_SECONDS)
        self._topic = topic
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self.offset = 0

    def read(self) -> int:
        """Fetch once, and advance after the received batches; returns their size in bytes. At the end of the log: 0,
        after half a second.

        A response may end in the middle of a batch, which is fetched again and not counted.
        """
        self._socket.sendall(load.fetch_frame(self._topic, FETCH_BYTES, offset=self.offset))
        self._receive(4)
        size = int.from_bytes(self._view[:4], "big")
        if size > _BUFFER_BYTES:
            raise ConnectionError(f"a response of {size} bytes to a fetch of {FETCH_BYTES}")
        self._receive(size)
        version = response_header_version(FetchRequest.API_KEY, load.FETCH_VERSION)
        _header, start = decode_at(ResponseHeader, self._buffer, version, 0)
        (partition,) = decode(FetchResponse, self._buffer, load.FETCH_VERSION, start).responses[0].partitions
        if partition.error_code:
            raise KafkaError(ErrorCode(partition.error_code), f"reading {self._topic} at {self.offset}")
        records = partition.records
        if not isinstance(records, (bytes, bytearray, memoryview)):
            return 0
        size = 0
        for batch in iter_batches(records):
            self.offset = batch.next_offset
            size += batch.size
        return size

    def _receive(self, size: int) -> None:
        filled = 0
        while filled < size:
            received = self._socket.recv_into(self._view[filled:size])
            if not received:
                raise ConnectionError("the server closed the reader's connection")
            filled += received

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
