"""The requesting side of one connection, without I/O: frames, correlation ids, and the versions that both sides have.

A peer sends responses in the order of the requests. A response that was not requested, that has the correlation id of
another request, or that does not fill its frame makes the rest of the connection unusable (`PeerError`).

The first request is ApiVersions. Its response has version 0 if the peer does not know the version (KIP-511): it then
lists what the peer supports, and ApiVersions is sent again in the highest version of both sides.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from ...protocol.api import ApiKey, request_header_version, response_class, response_header_version
from ...protocol.codec import decode_at, encode
from ...protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ...protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ...protocol.messages.headers import RequestHeader, ResponseHeader

if TYPE_CHECKING:
    from ...protocol.schema import Request, Versions

STAGING_BYTES: Final = 64 * 1024
_LENGTH: Final = struct.Struct(">i")
_MAX_CORRELATION_ID: Final = (1 << 31) - 1
_API_VERSIONS: Final = ApiVersionsRequest.API_KEY


class PeerError(Exception):
    """The peer violates the protocol; the text states how."""


class FrameReader:
    """Assembles frames. The memory of a large frame grows with the bytes that have arrived, not with its length, except
    if the peer has sent a frame of this length before."""

    __slots__ = ("_filled", "_frame", "_largest", "_length", "_max_bytes", "_staged", "_staging")

    def __init__(self, staging: memoryview, max_bytes: int) -> None:
        """``staging``: a buffer that may be shared, because it is empty between two events."""
        self._staging = staging
        self._max_bytes = max_bytes
        self._length = -1  # of the frame that is being received; -1 while its length field is incomplete
        self._frame = bytearray()
        self._filled = 0
        self._largest = 0  # the length of the largest complete frame
        self._staged = True

    def space(self) -> memoryview:
        """Where to receive the next bytes. Release it before `received` is called."""
        missing = self._length - self._filled
        self._staged = self._length < 0 or missing <= len(self._staging)
        if self._staged:
            return self._staging[:]
        if self._filled == len(self._frame):
            self._frame.extend(bytes(min(missing, max(len(self._staging), self._filled, self._largest))))
        return memoryview(self._frame)[self._filled :]

    def received(self, count: int) -> Iterator[bytearray]:
        """Process ``count`` bytes in the buffer of `space`. Yields complete frames, without their length fields.

        Raises:
            PeerError: a length is negative or above the limit.
        """
        if not self._staged:
            self._filled += count
            if self._filled == self._length:
                yield self._complete()
            return
        data, at = bytes(self._staging[:count]), 0
        while True:
            if self._length < 0:
                wanted = 4 - self._filled
                piece = data[at : at + wanted]
                self._frame += piece
                self._filled += len(piece)
                at += len(piece)
                if self._filled < 4:
                    return
                self._begin(_LENGTH.unpack(self._frame)[0])
            piece = data[at : at + self._length - self._filled]
            if not self._filled and len(piece) < self._length:
                self._frame = bytearray(min(self._length, max(len(piece), self._largest)))  # not copied to grow
                self._frame[: len(piece)] = piece
            else:
                del self._frame[self._filled :]
                self._frame += piece
            self._filled += len(piece)
            at += len(piece)
            if self._filled < self._length:
                return
            yield self._complete()

    def _begin(self, length: int) -> None:
        if not 0 <= length <= self._max_bytes:
            raise PeerError(f"a response of {length} bytes; the limit is {self._max_bytes}")
        self._length = length
        self._frame = bytearray()
        self._filled = 0

    def _complete(self) -> bytearray:
        frame, self._frame = self._frame, bytearray()
        self._largest = max(self._largest, self._length)
        self._length, self._filled = -1, 0
        return frame


class Peer:
    """What a peer supports, from its ApiVersions response."""

    __slots__ = ("response", "versions")

    def __init__(self, response: ApiVersionsResponse) -> None:
        self.response = response
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        """The lowest and the highest version of each API, by its key."""

    def highest_version(self, api_key: int, wanted: Versions) -> int:
        """The highest version of an API in this range that the peer supports.

        Raises:
            KafkaError: UNSUPPORTED_VERSION: there is none.
        """
        offered = self.versions.get(api_key)
        if offered is not None:
            version = min(offered[1], wanted.highest)
            if version >= max(offered[0], wanted.lowest):
                return version
        name = ApiKey(api_key).message_name
        offers = "does not support the API" if offered is None else f"supports versions {offered[0]} to {offered[1]}"
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{name} is needed in a version from {wanted.lowest} to {wanted.highest}; the peer {offers}",
        )


class Conversation:
    """Requests and responses of one connection."""

    __slots__ = ("_client_id", "_expected", "_next_correlation_id", "_software")

    def __init__(self, client_id: str, software_version: str) -> None:
        self._client_id = client_id
        self._software = software_version
        self._next_correlation_id = 0
        self._expected: deque[tuple[int, int, int]] = deque()  # correlation id, API, version

    def request(self, request: Request, version: int) -> bytes:
        """The frame of a request.

        Raises:
            UnsupportedVersion: this version cannot represent the request.
            EncodeError: no version can.
        """
        key = request.API_KEY
        correlation_id = self._next_correlation_id
        header = RequestHeader(
            request_api_key=key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=self._client_id,
        )
        payload = encode(header, request_header_version(key, version)) + encode(request, version)
        self._next_correlation_id = 0 if correlation_id == _MAX_CORRELATION_ID else correlation_id + 1
        self._expected.append((correlation_id, key, version))
        return _LENGTH.pack(len(payload)) + payload

    def api_versions(self, version: int) -> bytes:
        """The frame of ApiVersions."""
        return self.request(
            ApiVersionsRequest(client_software_name="moldau", client_software_version=self._software), version
        )

    def response(self, frame: bytearray) -> Any:
        """The response in a frame: to the oldest request that has none.

        Raises:
            PeerError: the frame is not that response.
        """
        if not self._expected:
            raise PeerError("a response to no request")
        correlation_id, key, version = self._expected.popleft()
        name = ApiKey(key).message_name
        try:
            header, offset = decode_at(ResponseHeader, frame, response_header_version(key, version), 0)
            if header.correlation_id != correlation_id:
                raise PeerError(
                    f"a response with correlation id {header.correlation_id}, but the oldest request, {name}, has "
                    f"{correlation_id}"
                )
            if key == _API_VERSIONS and frame[offset : offset + 2] == _UNSUPPORTED_VERSION:
                version = 0
            response, end = decode_at(response_class(key), frame, version, offset)
        except MalformedMessage as error:
            raise PeerError(f"a malformed response to {name} version {version}: {error}") from error
        if end != len(frame):
            raise PeerError(f"a response to {name} version {version} with {len(frame) - end} bytes too many")
        return response


_UNSUPPORTED_VERSION: Final = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")
