"""Injects faults into the requests of a test's server, and records requests.

`FaultInjection` takes the place of the dispatcher when a test uses it for the first time, so that a server without
faults does no work for them. The dispatcher then serves each request for a `_Tap`, which stands for the connection: it
sees the response before the connection, and keeps the fast paths off.
"""

from __future__ import annotations

import base64
import logging
from collections import deque
from collections.abc import Callable, Mapping
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...log.descriptors import FileRange
from ...protocol.api import ApiKey, request_class, request_header_version, response_class, response_header_version
from ...protocol.codec import decode_at, encode
from ...protocol.errors import KafkaError, MalformedMessage
from ...protocol.messages.headers import RequestHeader, ResponseHeader
from ...protocol.steps import completed
from ..apis import APIS
from .dispatch import Route
from .faults import Fault, Kind, structs
from .stale_metadata import make_stale

if TYPE_CHECKING:
    from ...metadata.image import MetadataImage
    from ...protocol.schema import Struct
    from ..broker import Broker
    from ..network.connection import Connection
    from ..network.frames import Frame, FrameHandler, InFlight, Part
    from ..network.listeners import Network

RECORDED_REQUESTS: Final = 10_000
RECORDED_BYTES: Final = 16_384
"""The bytes of a request that are recorded: its first ones."""

UNKNOWN_TAG: Final = 10_000

_APIS: Final = {api.key: api for api in APIS}
_LENGTH: Final = 4
_AFTER: Final = frozenset(
    {
        Kind.ERROR_AFTER, Kind.DISCONNECT_AFTER, Kind.DISCONNECT_MIDDLE, Kind.THROTTLE, Kind.CORRUPT_BATCH,
        Kind.CAP_VERSIONS, Kind.STALE_METADATA, Kind.ADVERTISE, Kind.TAGGED_FIELDS,
    }
)  # fmt: skip


class Recorded(NamedTuple):
    """A request that was received."""

    number: int
    """Since recording began, from 0 on."""
    milliseconds: float
    """The time of the event loop."""
    peer: str
    data: bytes
    size: int
    fault: Kind | None

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "milliseconds": self.milliseconds,
            "peer": self.peer,
            "data": base64.b64encode(self.data).decode(),
            "size": self.size,
            "fault": None if self.fault is None else self.fault.value,
        }


class FaultInjection:
    """A `FrameHandler` before another one. Belongs to the event loop of the broker."""

    def __init__(self, broker: Broker, inner: FrameHandler) -> None:
        self._broker = broker
        self._inner = inner
        self._faults: dict[int, Fault] = {}
        self._images: dict[Fault, MetadataImage] = {}  # for STALE_METADATA
        self._numbers = 0
        self._recorded: deque[Recorded] = deque(maxlen=RECORDED_REQUESTS)
        self._count = 0
        self._resumed: bytes | None = None  # a request whose delay is over
        self.watchers: list[Callable[[], None]] = []
        """Called after each request is recorded."""

    def install(self, network: Network) -> None:
        """Take the place of the dispatcher, also for the connections that exist. To be called between requests."""
        for connection in network.connections:
            connection.produce_fast_path = connection.fetch_fast_path = None
        network.dispatcher = self

    # Commands

    def add(self, description: Mapping[str, Any]) -> int:
        """Add a fault, and return its number. Raises `FaultError`."""
        fault = Fault(description, self._topic_id)
        self._numbers += 1
        self._faults[self._numbers] = fault
        if fault.kind is Kind.STALE_METADATA:
            self._images[fault] = self._broker.metadata.image
        return self._numbers

    def remove(self, number: int | None) -> None:
        """Remove a fault, or all of them."""
        if number is None:
            self._faults.clear()
            self._images.clear()
        elif (fault := self._faults.pop(number, None)) is not None:
            self._images.pop(fault, None)

    def triggered(self, number: int) -> int:
        """How many requests a fault has affected; 0 if it was removed."""
        fault = self._faults.get(number)
        return 0 if fault is None else fault.triggered

    def recorded(self, since: int) -> list[Recorded]:
        """The recorded requests from this number on; the oldest ones are dropped above `RECORDED_REQUESTS`."""
        return [each for each in self._recorded if each.number >= since]

    @property
    def next_number(self) -> int:
        """The number of the next request."""
        return self._count

    # FrameHandler

    def handle(self, connection: Connection, frame: Frame) -> InFlight | list[Part] | None:
        if len(frame) < 8 or frame is self._resumed:
            return self._pass_on(connection, frame)
        key, version = int.from_bytes(frame[:2], "big", signed=True), int.from_bytes(frame[2:4], "big", signed=True)
        request = _LazyRequest(bytes(frame), key, version)
        fault = next(
            (each for each in self._faults.values() if each.affects(key, version, request.client_id, request.decode)),
            None,
        )
        self._record(connection, frame, None if fault is None else fault.kind)
        if fault is None:
            return self._pass_on(connection, frame)
        if fault.kind in _AFTER:
            return self._pass_on(connection, frame, _ResponseFault(fault, request, self._images.get(fault)))
        return self._instead(connection, fault, request, frame)

    def completes_earlier(self, frame: Frame) -> bool:
        return self._inner.completes_earlier(frame)

    def finish(self, context: Any, answer: Any) -> None:
        self._inner.finish(context, answer)

    def refuse(self, frame: Frame, error: KafkaError, respond: Callable[[list[Part] | None], None]) -> None:
        self._inner.refuse(frame, error, respond)

    # Faults before the request is processed

    def _instead(
        self, connection: Connection, fault: Fault, request: _LazyRequest, frame: Frame
    ) -> InFlight | list[Part] | None:
        if fault.kind is Kind.DISCONNECT:
            connection.close("a fault of a test: disconnect", level=logging.INFO)
            return None
        if fault.kind is Kind.BLACKHOLE:
            return _Blackhole()
        if fault.kind is Kind.DELAY:
            kept = bytes(frame)
            connection.begin_work()
            self._broker.timers.call_after(fault.milliseconds, lambda: self._resume(connection, kept))
            return None
        if not request.has_response:
            connection.close("a fault of a test: an error of a request with acks=0", level=logging.INFO)
            return None
        error = request.error_response(fault)
        return self._pass_on(connection, frame) if error is None else error

    def _resume(self, connection: Connection, frame: bytes) -> None:
        self._resumed = frame
        connection.serve_delayed(frame)
        self._resumed = None

    def _pass_on(
        self, connection: Connection, frame: Frame, fault: _ResponseFault | None = None
    ) -> InFlight | list[Part] | None:
        tap = _Tap(connection, fault)
        result = self._inner.handle(tap, frame)  # type: ignore[arg-type]
        return tap.changed(result) if isinstance(result, list) else result

    def _record(self, connection: Connection, frame: Frame, fault: Kind | None) -> None:
        self._recorded.append(
            Recorded(
                self._count, self._broker.loop.time() * 1000, connection.peer, bytes(frame[:RECORDED_BYTES]),
                len(frame), fault,
            )
        )  # fmt: skip
        self._count += 1
        for watcher in list(self.watchers):
            watcher()

    def _topic_id(self, topic: str) -> bytes | None:
        found = self._broker.metadata.image.topics_by_name.get(topic)
        return None if found is None else found.topic_id


class _LazyRequest:
    """A request, decoded when a filter or a response needs it."""

    def __init__(self, frame: bytes, key: int, version: int) -> None:
        self._frame = frame
        self.key = key
        self.version = version
        self.correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
        self.client_id = ""
        self._offset = 0
        self._decoded: Struct | None = None
        try:
            header, self._offset = decode_at(RequestHeader, frame, request_header_version(key, version), 0)
            self.client_id = header.client_id or ""
        except (MalformedMessage, KafkaError, ValueError):
            self._frame = b""

    def decode(self) -> Struct | None:
        if self._decoded is None and self._frame:
            try:
                self._decoded = decode_at(request_class(self.key), self._frame, self.version, self._offset)[0]
            except (MalformedMessage, KafkaError, ValueError):
                self._frame = b""
        return self._decoded

    @property
    def has_response(self) -> bool:
        return getattr(self.decode(), "acks", 1) != 0

    def error_response(self, fault: Fault) -> list[Part] | None:
        """The API's response for the error of a fault; None if the request cannot be decoded."""
        request = self.decode()
        if request is None:
            return None
        route = Route(_APIS[ApiKey(self.key)], self.version)
        failed = route.failed(request, KafkaError(fault.error, "a fault of a test"))
        response = completed(failed) if isinstance(failed, GeneratorType) else failed
        return route.encode_response(self.correlation_id, response)


class _ResponseFault:
    """Changes the response of one request."""

    def __init__(self, fault: Fault, request: _LazyRequest, image: MetadataImage | None) -> None:
        self._fault = fault
        self._request = request
        self._image = image

    def apply(self, connection: Connection, parts: list[Part]) -> list[Part]:
        """The parts to send instead. May close the connection."""
        fault, request = self._fault, self._request
        frame = _joined(parts)
        if fault.kind is Kind.DISCONNECT_AFTER:
            connection.close("a fault of a test: disconnect after the request", level=logging.INFO)
            return []
        if not frame:
            return []  # acks=0
        if fault.kind is Kind.DISCONNECT_MIDDLE:
            connection.close_after_responses()
            return [frame[: max(_LENGTH, len(frame) // 2)]]
        if fault.kind is Kind.ERROR_AFTER:
            return request.error_response(fault) or [frame]
        # The response to a version of ApiVersions that is not served has version 0 (KIP-511).
        version = request.version if request.version in response_class(request.key).VERSIONS else 0
        header_version = response_header_version(request.key, version)
        header, at = decode_at(ResponseHeader, frame, header_version, _LENGTH)
        response: Any = decode_at(response_class(request.key), frame, version, at)[0]
        if fault.kind is Kind.THROTTLE and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = fault.milliseconds
        elif fault.kind is Kind.CORRUPT_BATCH:
            _corrupt(response)
        elif fault.kind is Kind.CAP_VERSIONS:
            response.api_keys = [each for each in response.api_keys if self._capped(each)]
            if fault.features is not None:
                for name in ("supported_features", "finalized_features"):
                    kept = [each for each in getattr(response, name) if each.name in fault.features]
                    setattr(response, name, kept)
        elif fault.kind is Kind.STALE_METADATA and self._image is not None:
            make_stale(response, request.decode(), self._image, fault.topic)
        elif fault.kind is Kind.ADVERTISE:
            _advertise(response, *fault.address)
        elif fault.kind is Kind.TAGGED_FIELDS and version in response.FLEXIBLE_VERSIONS:
            _add_tagged_fields(response)
            if header_version > 0:  # ApiVersions has the old header in all versions
                _add_tagged_fields(header)
        body = encode(header, header_version) + encode(response, version)
        return [len(body).to_bytes(_LENGTH, "big") + body]

    def _capped(self, api: Any) -> bool:
        """Lower an API's highest version; whether it has any version left."""
        highest = self._fault.highest.get(api.api_key)
        if highest is not None:
            api.max_version = min(api.max_version, highest)
        return bool(api.min_version <= api.max_version)


def _advertise(struct: Any, host: str, port: int) -> None:
    """Change all addresses inside a response."""
    found: Any
    for found in structs(struct):
        if getattr(found, "host", "") and hasattr(found, "port"):
            found.host, found.port = host, port


def _add_tagged_fields(struct: Any) -> None:
    for each in structs(struct):
        try:
            each.unknown_tagged_fields = {UNKNOWN_TAG: b"a field of a later version"}
        except AttributeError:  # the shared default of a struct without values, which is read-only
            continue


def _corrupt(response: Any) -> None:
    for topic in getattr(response, "responses", ()):
        for partition in getattr(topic, "partitions", ()):
            if partition.records:
                # The last byte is usually the number of headers. The one before it is in the last value, so that only
                # the CRC shows the change.
                records = bytearray(partition.records)
                records[-2] ^= 0x01
                partition.records = bytes(records)


def _joined(parts: list[Part]) -> bytes:
    """The bytes of a response; the file ranges are read and released."""
    joined = bytearray()
    for part in parts:
        if isinstance(part, FileRange):
            joined += part.read()
            part.release()
        else:
            joined += part
    return bytes(joined)


class _Blackhole:
    """A request that is never completed; its connection waits behind it."""

    def __init__(self) -> None:
        self.parts: list[Part] | None = None
        self.held_bytes = 0
        self.keeps_request = False
        self.kept_bytes = 0

    def cancel(self) -> None:
        """Nothing was reserved."""

    def complete_early(self) -> None:
        """It is not completed, not even at shutdown."""


class _Tap:
    """The connection, as the dispatcher sees it for one request."""

    # Set by the dispatcher; the connection's own stay None.
    produce_fast_path: Any = None
    fetch_fast_path: Any = None

    def __init__(self, connection: Connection, fault: _ResponseFault | None) -> None:
        self._connection = connection
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_connection", "_fault", "produce_fast_path", "fetch_fast_path"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._connection, name, value)

    def changed(self, parts: list[Part]) -> list[Part]:
        return parts if self._fault is None else self._fault.apply(self._connection, parts)

    def response_ready(self, context: Any) -> None:
        """A pending request has its response."""
        if self._fault is not None and context.parts is not None:
            context.parts = self._fault.apply(self._connection, context.parts)
        self._connection.response_ready(context)
