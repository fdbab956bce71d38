"""What listens at an address, if it is not a Kafka server: the reason in words, before any case runs."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from typing import Final

from ..protocol.codec import encode
from ..protocol.errors import KafkaError, MalformedMessage
from ..protocol.messages.headers import RequestHeader
from .target import CLIENT_ID, Target

PROBE_SECONDS: Final = 5.0
_TLS_RECORDS: Final = (0x15, 0x16)


class UnusableServerError(Exception):
    """The server cannot be tested; the message says what is there, and what to do."""


def describe(target: Target) -> None:
    """`Target.describe`, or `UnusableServerError` within a few seconds."""
    try:
        target.describe()
        return
    except (OSError, KafkaError, MalformedMessage, ValueError) as error:
        failure = error
    raise UnusableServerError(_explain(target, failure)) from failure


def _explain(target: Target, failure: Exception) -> str:
    address = target.address
    if isinstance(failure, socket.gaierror):
        return f"the host of {address} cannot be resolved: {failure.strerror}. Check the name."
    if isinstance(failure, ConnectionRefusedError):
        return f"nothing listens at {address}. Start the server, or check host and port."
    if isinstance(failure, ssl.SSLCertVerificationError):
        return f"the certificate of {address} is not trusted: {failure.verify_message}. Use --tls-ca FILE."
    if isinstance(failure, ssl.SSLError):
        return f"{address} does not accept TLS ({failure.reason}). Is this a plaintext listener? Omit --tls."
    if target.security.tls is None:
        seen = _first_bytes(target)
        if isinstance(seen, bytes):
            kind = _kind_of(seen)
            if kind is not None:
                return f"{address} is {kind}"
    if target.security.authenticate is not None:
        return f"{address} refused the authentication or does not use it: {failure}"
    if isinstance(failure, TimeoutError):
        return (
            f"{address} accepts connections and does not respond within {10 * target.patience:g} s. Is it a Kafka "
            "server that is still starting? --patience 3 waits three times as long."
        )
    if isinstance(failure, ConnectionError):
        return (
            f"{address} closed the connection without a response to ApiVersions. Is it a Kafka server? A listener "
            "with SASL or TLS needs --sasl-mechanism or --tls."
        )
    return f"{address} sent something that is not a response to ApiVersions ({failure}). Is it a Kafka server?"


def _first_bytes(target: Target) -> bytes | None:
    """What the server sends after a request for ApiVersions; None if that cannot be found out."""
    host, _, port = target.address.rpartition(":")
    header = RequestHeader(request_api_key=18, request_api_version=0, correlation_id=1, client_id=CLIENT_ID)
    frame = encode(header, 1)
    deadline = time.monotonic() + PROBE_SECONDS
    with contextlib.suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), PROBE_SECONDS) as peer:
        peer.sendall(len(frame).to_bytes(4, "big") + frame)
        data = b""
        while len(data) < 8 and time.monotonic() < deadline:
            piece = peer.recv(64)
            if not piece:
                break
            data += piece
        return data
    return None


def _kind_of(data: bytes) -> str | None:
    """What a server is by its first bytes, and what to do; None if it may be a Kafka server."""
    if data[:5] == b"HTTP/":
        return "an HTTP server, not a Kafka server. Use the port of the Kafka listener."
    if len(data) >= 3 and data[0] in _TLS_RECORDS and data[1] == 3:
        return "a TLS listener. Use --tls."
    if data[:4] == b"SSH-":
        return "an SSH server, not a Kafka server. Check the port."
    if len(data) >= 8:
        length, correlation_id = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:8], "big")
        if correlation_id != 1 or not 6 <= length <= 1 << 20:
            return f"not a Kafka server: its first bytes are {data[:16].hex(' ')}. Check the port."
    return None
