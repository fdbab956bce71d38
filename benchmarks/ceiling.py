"""The ceiling: a server that only acknowledges, so that the remaining cost is the client's.

`ceiling.c` parses frames, but not the messages inside. Its responses are encoded here in advance, with the protocol
package: one for each version of each API that a client may need to produce to one topic and to read it. Each field that
the program must read in a request, or write into a response, is a position. A position is found by encoding a value
that occurs nowhere else.

There is one topic, `TOPIC`, with one partition; the response to any topic name is that topic. Its content is an echo of
the last small batch, or, inside `pieces`, an endless repetition of one batch.
"""

from __future__ import annotations

import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ..protocol.api import ApiKey, request_class, response_class, response_header_version
from ..protocol.codec import encode
from ..protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ..protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ..protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from ..protocol.messages.headers import ResponseHeader
from ..protocol.messages.init_producer_id import InitProducerIdResponse
from ..protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from ..protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ..protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ..protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ..protocol.records import read_batch_header
from ..protocol.schema import Message, Response
from . import processes
from .row import Subject

TOPIC = "ceiling"
_TOPIC_ID = bytes(range(16))
_PIECES = "pieces"
_END = bytes(3)
"""The bytes after the records in a flexible response: no tagged fields of the partition, the topic, the response."""

_START_SECONDS = 10.0

# Values that occur nowhere else in a message, to find positions.
_INT32 = 0x0A1B2C3D
_INT64 = 0x1A2B3C4D5E6F7081
_RECORDS = b"?records?"


class CeilingServer:
    """The program as a `row.Server`. ``command`` runs it; ``directory`` is created here and removed by the caller."""

    subject = Subject.CEILING

    def __init__(self, command: Sequence[str], directory: Path) -> None:
        self._command = [*command]
        self._process: subprocess.Popen[bytes] | None = None
        self.data_dir = directory
        directory.mkdir(parents=True, exist_ok=True)
        # Bound here and inherited, so that the port is reserved and known before the responses are encoded.
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen(4096)
        self._port: int = self._socket.getsockname()[1]
        (directory / "answers").write_bytes(encoded_answers(self._port))

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self._port}"

    def address_of(self, listener: str) -> str:
        raise KeyError(listener)

    @property
    def topic(self) -> str:
        """The only topic."""
        return TOPIC

    @property
    def pid(self) -> int:
        assert self._process is not None, "not running"
        return self._process.pid

    def start(self) -> None:
        """Start, and return after a response to ApiVersions. Does nothing if the server is running."""
        if self._process is not None:
            return
        self._process = subprocess.Popen(
            [*self._command, str(self._socket.fileno()), str(self.data_dir / "answers"), str(self.data_dir / _PIECES)],
            pass_fds=[self._socket.fileno()],
            stdin=subprocess.DEVNULL,
        )
        processes.wait_for_answer(self.bootstrap_servers, self.pid, timeout_s=_START_SECONDS)

    def stop(self) -> None:
        """Stop the server. It has no state to close, so this is `kill`, which also ends a stopped process."""
        self.kill()

    def kill(self) -> None:
        """``kill -9``."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def close(self) -> None:
        """Stop, and release the port."""
        self.stop()
        self._socket.close()

    def cpu_seconds(self) -> float:
        """User and system time of the process so far."""
        return processes.cpu_seconds(self.pid)

    def resident_bytes(self) -> int:
        """The resident memory of the process."""
        return processes.resident_bytes(self.pid)


@contextmanager
def pieces(directory: Path, batch: bytes, count: int) -> Iterator[None]:
    """Inside the block, the topic of the server with this data directory contains ``batch`` repeatedly, for all new
    connections. It is in the file ``count`` times: more than the processor's cache holds if reading from memory is
    part of the work."""
    header = read_batch_header(batch)
    path = directory / _PIECES
    piece = batch[8:] + _END
    with path.open("wb") as file:
        file.write(struct.pack(">ii", len(batch), header.record_count))
        for _ in range(count):
            file.write(piece)
    try:
        yield
    finally:
        path.unlink()


class Answer(NamedTuple):
    """An entry of the response file; ceiling.c explains the positions."""

    api_key: int
    version: int
    flexible: bool
    frame: bytes
    look_at: int = 0
    wait_at: int = 0
    write_at: int = 0

    def encoded(self) -> bytes:
        numbers = (self.api_key, self.version, self.flexible, self.look_at, self.wait_at, self.write_at)
        return struct.pack(">hhbiiii", *numbers, len(self.frame)) + self.frame


def encoded_answers(port: int) -> bytes:
    """The response file of a server on this port."""
    return b"".join(answer.encoded() for answer in prepared_answers(port))


def prepared_answers(port: int) -> Iterator[Answer]:
    """All responses: every version of the APIs as supported by Apache Kafka 4.3, including ApiVersions."""
    responses: dict[ApiKey, Response] = {
        ApiKey.METADATA: _metadata(port),
        ApiKey.FIND_COORDINATOR: _find_coordinator(port),
        ApiKey.INIT_PRODUCER_ID: InitProducerIdResponse(producer_id=1, producer_epoch=0),
        ApiKey.OFFSET_COMMIT: _offset_commit(),
    }
    keys = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.API_VERSIONS, *responses)
    responses[ApiKey.API_VERSIONS] = _api_versions(keys)
    for version in ProduceRequest.STABLE_VERSIONS:
        yield _produce(version)
    for version in FetchRequest.STABLE_VERSIONS:
        yield _fetch(version)
    for version in ListOffsetsRequest.STABLE_VERSIONS:
        yield _list_offsets(version)
    for key, response in responses.items():
        for version in request_class(key).STABLE_VERSIONS:
            yield Answer(key, version, _is_flexible(key, version), _frame(_for_version(response, version), version))


def _produce(version: int) -> Answer:
    data = TopicProduceData(
        name=TOPIC, topic_id=_TOPIC_ID, partition_data=[PartitionProduceData(index=0, records=_RECORDS)]
    )
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[data])
    flexible = _is_flexible(ApiKey.PRODUCE, version)
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=TOPIC, topic_id=_TOPIC_ID, partition_responses=[PartitionProduceResponse(index=0, base_offset=0)]
            )
        ]
    )
    return Answer(
        ApiKey.PRODUCE,
        version,
        flexible,
        _frame(response, version),
        look_at=_position(encode(request, version), _RECORDS) - _length_size(flexible),
    )


def _fetch(version: int) -> Answer:
    partition = FetchPartition(partition=0, fetch_offset=_INT64, partition_max_bytes=1)
    topic = FetchTopic(topic=TOPIC, topic_id=_TOPIC_ID, partitions=[partition])
    request = encode(FetchRequest(max_wait_ms=_INT32, min_bytes=1, topics=[topic]), version)
    flexible = _is_flexible(ApiKey.FETCH, version)
    data = PartitionData(partition_index=0, high_watermark=1 << 62, log_start_offset=0, records=_RECORDS)
    data.last_stable_offset = data.high_watermark
    response = FetchResponse(responses=[FetchableTopicResponse(topic=TOPIC, topic_id=_TOPIC_ID, partitions=[data])])
    frame = _frame(response, version)
    records_at = _position(frame, _RECORDS)
    write_at = records_at - _length_size(flexible)
    end = frame[records_at + len(_RECORDS) :]
    assert end == (_END if flexible else b""), end
    return Answer(
        ApiKey.FETCH,
        version,
        flexible,
        frame[:write_at] + end,
        look_at=_position(request, struct.pack(">q", _INT64)),
        wait_at=_position(request, struct.pack(">i", _INT32)),
        write_at=write_at,
    )


def _list_offsets(version: int) -> Answer:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=_INT64)
    request = encode(ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=[wanted])]), version)
    found = ListOffsetsPartitionResponse(partition_index=0, offset=_INT64, leader_epoch=_epoch(version, 4))
    response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[found])])
    frame = _frame(response, version)
    offset = struct.pack(">q", _INT64)
    return Answer(
        ApiKey.LIST_OFFSETS,
        version,
        _is_flexible(ApiKey.LIST_OFFSETS, version),
        frame,
        look_at=_position(request, offset),
        write_at=_position(frame, offset),
    )


def _metadata(port: int) -> MetadataResponse:
    partition = MetadataResponsePartition(
        partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
    )
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=port)],
        cluster_id=TOPIC,
        controller_id=1,
        topics=[MetadataResponseTopic(name=TOPIC, topic_id=_TOPIC_ID, partitions=[partition])],
    )


def _find_coordinator(port: int) -> FindCoordinatorResponse:
    """In the form of the later versions; `_for_version` creates the earlier form."""
    return FindCoordinatorResponse(coordinators=[Coordinator(key="", node_id=1, host="127.0.0.1", port=port)])


def _offset_commit() -> OffsetCommitResponse:
    topic = OffsetCommitResponseTopic(name=TOPIC, topic_id=_TOPIC_ID)
    topic.partitions = [OffsetCommitResponsePartition(partition_index=0)]
    return OffsetCommitResponse(topics=[topic])


def _api_versions(keys: Sequence[ApiKey]) -> ApiVersionsResponse:
    advertised = [(key, request_class(key).STABLE_VERSIONS) for key in keys]
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=versions.lowest, max_version=versions.highest)
            for key, versions in advertised
        ]
    )


def _for_version(response: Response, version: int) -> Response:
    if isinstance(response, FindCoordinatorResponse) and version < 4:
        one = response.coordinators[0]
        return FindCoordinatorResponse(node_id=one.node_id, host=one.host, port=one.port)
    return response


def _frame(response: Response, version: int) -> bytes:
    body = encode(ResponseHeader(), response_header_version(response.API_KEY, version)) + encode(response, version)
    return len(body).to_bytes(4, "big") + body


def _is_flexible(key: ApiKey, version: int) -> bool:
    """Whether the request's header ends with tagged fields, and lengths are varints."""
    message: type[Message] = request_class(key)
    assert (version in message.FLEXIBLE_VERSIONS) == (version in response_class(key).FLEXIBLE_VERSIONS)
    return version in message.FLEXIBLE_VERSIONS


def _length_size(flexible: bool) -> int:
    """The size of the length field before records that are as short as `_RECORDS`."""
    return 1 if flexible else 4


def _epoch(version: int, since: int) -> int:
    return 0 if version >= since else -1


def _position(encoded: bytes, value: bytes) -> int:
    position = encoded.index(value)
    assert encoded.find(value, position + 1) == -1, "the value occurs twice"
    return position
