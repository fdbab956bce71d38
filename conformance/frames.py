"""Frames for cases that control every byte: any header, unknown tagged fields, any part of a request.

A `Connection` writes headers itself and assigns correlation IDs; a case that tests headers builds its frames here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..protocol.api import request_header_version, response_class, response_header_version
from ..protocol.codec import decode_at, encode
from ..protocol.errors import ErrorCode
from ..protocol.messages.api_versions import ApiVersionsRequest
from ..protocol.messages.headers import RequestHeader, ResponseHeader
from ..protocol.schema import Request, Struct
from .check import Check
from .error_codes import with_names
from .exchange import Connection
from .outcome import InconclusiveError, MismatchError

CLIENT_ID: Final = "moldau-conformance"
UNKNOWN_TAGS: Final[Mapping[int, bytes]] = {10_000: b"from the future", 10_001: b""}
"""Tagged fields that no API has."""


def header(
    api_key: int,
    version: int,
    *,
    correlation_id: int = 0,
    client_id: str | None = CLIENT_ID,
    tags: Mapping[int, bytes] | None = None,
) -> bytes:
    """The header of a request; its API or version may not exist."""
    try:
        header_version = request_header_version(api_key, version)
    except ValueError:
        header_version = 2
    fields = RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    if tags:
        fields.unknown_tagged_fields = dict(tags)
    return encode(fields, header_version)


def frame(
    request: Request,
    version: int,
    *,
    correlation_id: int = 0,
    client_id: str | None = CLIENT_ID,
    tags: Mapping[int, bytes] | None = None,
) -> bytes:
    """A request without its length: header and body. `tags` are unknown tagged fields of the header."""
    start = header(request.API_KEY, version, correlation_id=correlation_id, client_id=client_id, tags=tags)
    return start + encode(request, version)


def with_length(payload: bytes) -> bytes:
    """A whole frame, as it is sent."""
    return len(payload).to_bytes(4, "big") + payload


def add_unknown_tags(struct: Struct) -> None:
    """Set `UNKNOWN_TAGS` on a request and all structs inside it."""
    struct.unknown_tagged_fields = dict(UNKNOWN_TAGS)
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        for each in value if isinstance(value, list) else [value]:
            # Structs that are a field's shared default must not be changed, and are not sent.
            if isinstance(each, Struct) and field.tag is None:
                add_unknown_tags(each)


def receive(connection: Connection, api_key: int, version: int, *, correlation_id: int = 0) -> Any:
    """The next response, which must belong to this correlation ID and fill its frame."""
    data = connection.receive_frame()
    found, at = decode_at(ResponseHeader, data, response_header_version(api_key, version), 0)
    if found.correlation_id != correlation_id:
        raise MismatchError("correlation_id of the response", str(correlation_id), str(found.correlation_id))
    response, end = decode_at(response_class(api_key), data, version, at)
    if end != len(data):
        raise MismatchError("the length of the response", f"{end} bytes", f"{len(data)} bytes")
    with_names(response)
    return response


@contextlib.contextmanager
def others_served(c: Check) -> Iterator[Connection]:
    """A connection for the bytes of the case. Afterwards one from before it and a new one must be served."""
    before = c.connect()
    with c.setup("ApiVersions on a second connection"):
        c.error(before.call(ApiVersionsRequest(), 0).error_code, ErrorCode.NONE)
    yield c.connect()
    try:
        after = c.connect()
    except InconclusiveError as error:
        raise MismatchError("a new connection", "accepted", str(error)) from error
    for connection, which in ((before, "an older connection"), (after, "a new connection")):
        c.error(connection.call(ApiVersionsRequest(), 0).error_code, ErrorCode.NONE, f"ApiVersions on {which}")
